//! A cache in a static.

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use quarry_core::geometry::CacheFlags;
use quarry_core::name;

use super::{AllocError, Cache, CacheError, Owned};
use crate::{DefaultDesign, HostHeap, Kmalloc};

/// The heap of such caches.
fn process_heap() -> Result<&'static HostHeap, CacheError> {
    Kmalloc::heap().map_err(|_| CacheError::Process)
}

/// A cache that is made at its first use, on the heap of the process ([`Kmalloc::heap`]).
///
/// No thread waits for another that makes it, so a signal handler and the child of a fork may be the first to use it: of
/// several caches made at once one stays. Others may have its [name](Cache#names).
///
/// # Examples
///
/// ```
/// use quarry::LazyCache;
///
/// struct Session { user: u32 }
///
/// static SESSIONS: LazyCache<Session> = LazyCache::new("session");
///
/// let session = SESSIONS.alloc(Session { user: 7 })?;
/// assert_eq!(session.user, 7);
/// assert_eq!(SESSIONS.get()?.live()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LazyCache<T> {
    name: &'static str,
    /// A boxed cache, or null.
    cache: AtomicPtr<Cache<T>>,
}

impl<T> LazyCache<T> {
    /// A cache that is not made yet.
    ///
    /// # Panics
    ///
    /// At compile time in a static: the name is empty, has more than 48 bytes, or has a space, `/` or control character.
    ///
    /// ```compile_fail,E0080
    /// static SESSIONS: quarry::LazyCache<u64> = quarry::LazyCache::new("my sessions");
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        // Refused here what can be: `alloc` has no error that could say it.
        assert!(
            name::is_plain(name),
            "a cache's name has 1 to 48 bytes, and no space, '/' or control character"
        );
        Self {
            name,
            cache: AtomicPtr::new(null_mut()),
        }
    }

    /// The cache, made now if it is not yet.
    ///
    /// # Errors
    ///
    /// As [`Cache::new`]; [`CacheError::Process`]. The next call tries again.
    #[inline]
    pub fn get(&self) -> Result<&Cache<T>, CacheError> {
        // Acquire: pairs with the Release in `make`.
        match NonNull::new(self.cache.load(Ordering::Acquire)) {
            // SAFETY: `make` stored a cache, which only `drop` ends.
            Some(cache) => Ok(unsafe { cache.as_ref() }),
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> Result<&Cache<T>, CacheError> {
        let made = Cache::make(process_heap()?, self.name, CacheFlags::NONE, false)?;
        let made = Box::into_raw(Box::new(made));
        // Release: publishes the cache. Acquire: pairs with the Release of another thread's.
        let order = (Ordering::Release, Ordering::Acquire);
        let stored = self
            .cache
            .compare_exchange(null_mut(), made, order.0, order.1);
        let cache = match stored {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: `into_raw` gave it out just now, and no other code has it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: a cache that this or another thread stored, which only `drop` ends.
        Ok(unsafe { &*cache })
    }

    /// [`Cache::alloc`]; an error also if the cache cannot be made ([`LazyCache::get`]).
    ///
    /// # Errors
    ///
    /// [`AllocError`] has the value.
    #[inline]
    #[track_caller]
    pub fn alloc(&self, value: T) -> Result<Owned<T, DefaultDesign>, AllocError<T>> {
        match self.get() {
            Ok(cache) => cache.alloc(value),
            Err(_) => Err(AllocError(value)),
        }
    }
}

impl<T> Drop for LazyCache<T> {
    fn drop(&mut self) {
        if let Some(cache) = NonNull::new(*self.cache.get_mut()) {
            // SAFETY: `make` stored what `Box::into_raw` gave out, and no reference outlives `self`.
            drop(unsafe { Box::from_raw(cache.as_ptr()) });
        }
    }
}

impl<T> fmt::Debug for LazyCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Acquire: pairs with the Release in `make`.
        match NonNull::new(self.cache.load(Ordering::Acquire)) {
            // SAFETY: `make` stored a cache, which only `drop` ends.
            Some(cache) => unsafe { cache.as_ref() }.fmt(f),
            None => f
                .debug_struct("LazyCache")
                .field("name", &self.name)
                .finish_non_exhaustive(),
        }
    }
}
