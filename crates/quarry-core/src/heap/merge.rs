//! Caches that become aliases of others ([`crate::merge`]).

use core::ptr::NonNull;

use super::{CacheBody, CacheView, CreateError, Heap};
use crate::design::{CacheHead, CacheSpec, Design};
use crate::geometry::CacheParams;
use crate::machine::Machine;
use crate::merge::{Alias, MergeRules, MergeSearch, UniqueId, Wish};
use crate::name::Name;
use crate::sync::Ordering;

impl<M: Machine, D: Design> Heap<M, D> {
    /// The rules by which this heap merges caches, if it does.
    fn merge_rules(&self) -> Option<&'static MergeRules> {
        let boot = &self.system.boot;
        D::merge_rules(self.system.era).filter(|_| boot.merge && !boot.hardening.caches())
    }

    /// Makes what new caches can be merged into from the start.
    pub(super) fn prepare_merging(&self) -> Result<(), CreateError> {
        if self.merge_rules().is_some_and(|rules| rules.into_kmalloc) {
            self.make_kmalloc_caches()?;
        }
        Ok(())
    }

    /// An existing cache that serves the new one, which is its alias from now on. A `unique` one is refused if
    /// a cache has its name.
    pub(super) fn merge(
        &self,
        spec: &CacheSpec<'_>,
        unique: bool,
    ) -> Result<Option<&CacheBody<D>>, CreateError> {
        let Some(rules) = self.merge_rules() else {
            return Ok(None);
        };
        let params = CacheParams {
            object_size: spec.object_size,
            align: spec.align,
            flags: spec.flags,
            sheaf_capacity: spec.sheaf_capacity,
        };
        let geometry = D::geometry(
            self.system.era,
            &self.system.params,
            &self.system.boot,
            &params,
        )?;
        let wish = Wish {
            object_size: spec.object_size,
            align: geometry.layout.align,
            flags: spec.flags,
        };
        if !rules.allows_wish(&wish) {
            return Ok(None);
        }
        let machine = self.machine();
        let _pass = self.system.pages.gate().enter(machine);
        let alias = self.new_alias(spec.name)?;
        let serves = |head: &CacheHead| rules.matches(head.flags, &head.geometry.layout, &wish);
        let (mut found, mut duplicate) = (None, false);
        if let Some(caches) = self.system.caches.lock(machine) {
            // SAFETY: the list's lock is held.
            duplicate = unique && unsafe { caches.has_named(spec.name) };
            self.walk(&caches, &mut |cache| {
                let first = rules.search == MergeSearch::NewestFirst && found.is_some();
                if !first && serves(&cache.body.head) {
                    found = Some(cache.body);
                }
            });
            if let Some(body) = found.filter(|_| !duplicate) {
                // SAFETY: `new_alias` made it just now, and no other code knows it.
                unsafe { Self::add_alias(&body.head, alias, spec.object_size) };
            }
        }
        if found.is_none() || duplicate {
            // SAFETY: `new_alias` made it just now, and it was not added.
            unsafe { self.free_alias(alias) };
        }
        if duplicate {
            return Err(CreateError::Duplicate);
        }
        Ok(found)
    }

    fn new_alias(&self, name: &str) -> Result<NonNull<Alias>, CreateError> {
        let alias = self
            .system
            .pages
            .meta()
            .alloc(self.machine(), size_of::<Alias>())
            .ok_or(CreateError::NoRoom)?
            .cast::<Alias>();
        let name = Name::new(name);
        let next = core::ptr::null_mut();
        // SAFETY: the block is fresh, large enough and aligned to at least 64 bytes (Region).
        unsafe { alias.write(Alias { next, name }) };
        Ok(alias)
    }

    /// Gives a cache one more name and reference. The list of caches is locked.
    ///
    /// # Safety
    ///
    /// The alias is initialised and no other code's.
    unsafe fn add_alias(head: &CacheHead, mut alias: NonNull<Alias>, object_size: u32) {
        let merged = &head.merged;
        merged.references.fetch_add(1, Ordering::Relaxed);
        merged.object_size.fetch_max(object_size, Ordering::Relaxed);
        // SAFETY: the alias is initialised and no other code's: the caller says so.
        unsafe { alias.as_mut() }.next = merged.aliases.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `Merged::for_each`. The lock keeps others from adding.
        merged.aliases.store(alias.as_ptr(), Ordering::Release);
    }

    /// # Safety
    ///
    /// `new_alias` made it, and no code uses it any more.
    unsafe fn free_alias(&self, alias: NonNull<Alias>) {
        // SAFETY: `new_alias` took the block for these bytes; no code uses the alias, as the caller says.
        unsafe { self.system.free_meta(alias.cast(), size_of::<Alias>()) };
    }

    /// Returns the aliases of a cache.
    ///
    /// # Safety
    ///
    /// The cache has no user left.
    pub(super) unsafe fn free_aliases(&self, head: &CacheHead) {
        let aliases = &head.merged.aliases;
        let mut next = aliases.swap(core::ptr::null_mut(), Ordering::Acquire);
        while let Some(alias) = NonNull::new(next) {
            // SAFETY: an alias of this cache, which the caller keeps others away from.
            next = unsafe { alias.as_ref() }.next;
            // SAFETY: the alias is off the list, and the caller keeps others away from the cache.
            unsafe { self.free_alias(alias) };
        }
    }

    /// Gives up one of several references to a cache. `false` if it is the only one. The list of
    /// caches is locked.
    pub(super) fn drop_reference(head: &CacheHead) -> bool {
        let references = &head.merged.references;
        let several = references.load(Ordering::Relaxed) > 1;
        if several {
            references.fetch_sub(1, Ordering::Relaxed);
        }
        several
    }
}

impl<M: Machine, D: Design> CacheView<'_, M, D> {
    /// Number of caches that became aliases of this one and were not destroyed (sysfs `aliases`).
    pub fn aliases(&self) -> u32 {
        self.body.head.merged.references.load(Ordering::Relaxed) - 1
    }

    /// Calls `f` for the names of all caches that ever became aliases of this one, newest first.
    pub fn for_each_alias(&self, f: impl FnMut(&str)) {
        // SAFETY: by the contract of `destroy` no handle is used while a cache is destroyed.
        unsafe { self.body.head.merged.for_each(f) };
    }

    /// The name of the cache's directory in sysfs if it can be merged with others; `None` if it
    /// cannot, or the design and era merge none: then it goes by its own name.
    pub fn unique_id(&self) -> Option<UniqueId> {
        let head = &self.body.head;
        let mergeable = D::merge_rules(self.heap.system.era)?.takes_others(head.flags);
        mergeable.then_some(UniqueId {
            flags: head.flags,
            slab_size: head.geometry.layout.size,
        })
    }
}
