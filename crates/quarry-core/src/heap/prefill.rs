//! Objects set aside in a sheaf, for code that must not fail later.

use core::ptr::NonNull;

use super::Cache;
use crate::machine::Machine;
use crate::sheaf::{Sheaf, SheafCache};

/// A sheaf with objects that only its holder allocates. Dropping it returns it to the cache with
/// what is left in it. While it exists its objects count as allocated.
pub struct Prefilled<'h, M: Machine> {
    cache: Cache<'h, M, SheafCache>,
    /// Always there but in `drop`.
    sheaf: Option<Sheaf>,
}

impl<'h, M: Machine> Cache<'h, M, SheafCache> {
    /// Sets at least `objects` objects aside. `None` if memory is exhausted, and always in a cache with
    /// debugging, whose objects have to be checked one by one. More than the cache's
    /// `sheaf_capacity` cost a sheaf of their own, which is not kept when it is returned.
    ///
    /// ```
    /// # use quarry_core::design::CacheSpec;
    /// # use quarry_core::era::Era;
    /// # use quarry_core::geometry::CacheFlags;
    /// # use quarry_core::heap::{Cache, Heap};
    /// # use quarry_core::machine::Machine;
    /// # use quarry_core::sheaf::SheafCache;
    /// fn three<M: Machine>(cache: Cache<'_, M, SheafCache>) -> Option<()> {
    ///     let mut set_aside = cache.prefill(3)?;
    ///     for _ in 0..3 {
    ///         let object = set_aside.alloc().expect("cannot fail");
    ///         // SAFETY: no other code knows the object.
    ///         unsafe { cache.free(object) }.expect("a live object");
    ///     }
    ///     Some(())
    /// }
    /// ```
    #[must_use]
    pub fn prefill(&self, objects: u32) -> Option<Prefilled<'h, M>> {
        if self.head().flags().debug() {
            return None;
        }
        let sheaf = self.body.design.prefill(self.env(), objects)?;
        Some(Prefilled {
            cache: *self,
            sheaf: Some(sheaf),
        })
    }
}

impl<M: Machine> Prefilled<'_, M> {
    /// Objects that are left.
    #[must_use]
    pub fn objects(&self) -> u32 {
        self.sheaf.as_ref().map_or(0, Sheaf::size)
    }

    /// Allocates one of the objects; `None` if none is left. The cache frees it like any other.
    pub fn alloc(&mut self) -> Option<NonNull<u8>> {
        let sheaf = self.sheaf.as_mut()?;
        self.cache
            .body
            .design
            .alloc_prefilled(self.cache.env(), sheaf)
    }

    /// Sets more objects aside, so that at least `objects` are left. Returns `false` if memory is
    /// exhausted, and keeps what was left.
    pub fn top_up(&mut self, objects: u32) -> bool {
        let env = self.cache.env();
        self.sheaf
            .as_mut()
            .is_some_and(|sheaf| self.cache.body.design.top_up(env, sheaf, objects))
    }
}

impl<M: Machine> Drop for Prefilled<'_, M> {
    fn drop(&mut self) {
        if let Some(sheaf) = self.sheaf.take() {
            self.cache
                .body
                .design
                .return_prefilled(self.cache.env(), sheaf);
        }
    }
}
