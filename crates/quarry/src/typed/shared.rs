//! An object with several owners, in one word.

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::error::Error;
use std::fmt::{self, Debug, Display, Pointer};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use quarry_core::design::Design;

use super::{AllocError, Cache, Owned};
use crate::DefaultDesign;

/// A value with the number of its owners: an object of a [`SharedCache`].
pub struct Counted<T> {
    owners: AtomicUsize,
    value: T,
}

impl<T: Debug> Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted")
            .field("owners", &self.owners)
            .field("value", &self.value)
            .finish()
    }
}

/// A cache that gives out [`Shared`] objects, by its type: its objects have room for the number of owners, which those of
/// a `Cache<T>` do not.
///
/// # Examples
///
/// ```
/// use quarry::{Cache, HostHeap, Shared, SharedCache};
///
/// struct Router {
///     routes: SharedCache<[u8; 4]>,
///     default: Shared<[u8; 4]>,
/// }
///
/// let heap = HostHeap::new()?;
/// let routes: SharedCache<[u8; 4]> = Cache::new(&heap, "route")?;
/// let default = routes.alloc_shared([10, 0, 0, 1])?;
/// let router = Router { routes, default };
/// assert_eq!(Shared::clone(&router.default)[0], 10);
/// assert_eq!(router.routes.live()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type SharedCache<T, D = DefaultDesign> = Cache<Counted<T>, D>;

impl<T, D: Design> Cache<Counted<T>, D> {
    /// Moves a value into a new object with one owner, which can be cloned. The type of such a cache is
    /// [`SharedCache<T>`](SharedCache), for fields and annotations.
    ///
    /// # Errors
    ///
    /// As [`Cache::alloc`].
    #[inline]
    #[track_caller]
    pub fn alloc_shared(&self, value: T) -> Result<Shared<T, D>, AllocError<T>> {
        let owners = AtomicUsize::new(1);
        let object = self.alloc(Counted { owners, value });
        let object = object.map_err(|AllocError(counted)| AllocError(counted.value))?;
        Ok(Shared {
            object: ManuallyDrop::new(object),
            threads: PhantomData,
        })
    }
}

/// One of several owners of an object of a cache: an [`Arc`](std::sync::Arc) whose memory comes from a
/// [`SharedCache`]. It is one word, and there are no weak ones.
///
/// The last owner drops the value, on whichever thread that is.
///
/// # Examples
///
/// ```
/// use quarry::{Cache, HostHeap, Shared};
///
/// let heap = HostHeap::new()?;
/// let routes = Cache::new(&heap, "route")?;
/// let mut route = routes.alloc_shared([10_u8, 0, 0, 1])?;
/// let other = Shared::clone(&route);
/// std::thread::spawn(move || assert_eq!(other[0], 10)).join().unwrap();
/// // It is the only owner again.
/// Shared::get_mut(&mut route).ok_or("shared")?[3] = 2;
/// assert_eq!(*route, [10, 0, 0, 2]);
/// assert_eq!(size_of_val(&route), size_of::<usize>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A value that threads cannot share has no shared owners:
///
/// ```compile_fail,E0277
/// # use quarry::{Cache, HostHeap};
/// let heap = HostHeap::new().unwrap();
/// let cells = Cache::new(&heap, "cell").unwrap();
/// let cell = cells.alloc_shared(std::cell::Cell::new(1)).unwrap();
/// std::thread::spawn(move || cell.set(2));
/// ```
pub struct Shared<T, D: Design = DefaultDesign> {
    object: ManuallyDrop<Owned<Counted<T>, D>>,
    /// Threads: see the implementations of `Send` and `Sync`.
    threads: PhantomData<*const T>,
}

// SAFETY: as for `Arc`: owners on several threads have shared access to the value, which the last of them drops or
// moves out.
unsafe impl<T: Send + Sync, D: Design> Send for Shared<T, D> {}
// SAFETY: a shared owner gives shared access to the value, and clones.
unsafe impl<T: Send + Sync, D: Design> Sync for Shared<T, D> {}
// As for `Arc`: other owners see what a panic left.
impl<T: RefUnwindSafe, D: Design> UnwindSafe for Shared<T, D> {}
impl<T: RefUnwindSafe, D: Design> RefUnwindSafe for Shared<T, D> {}

impl<T, D: Design> Shared<T, D> {
    /// Number of owners at this moment; other threads may change it at any time.
    #[must_use]
    pub fn strong_count(this: &Self) -> usize {
        this.object.owners.load(Ordering::Relaxed)
    }

    /// True if both own the same object.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::ptr::eq(&**this, &**other)
    }

    /// True if this is the only owner.
    fn is_alone(this: &Self) -> bool {
        // Acquire: pairs with the Release of the owners that have gone.
        this.object.owners.load(Ordering::Acquire) == 1
    }

    /// The value, if this is its only owner.
    #[must_use]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // No other owner is made meanwhile: that takes a reference to this one.
        Self::is_alone(this).then(|| &mut this.object.value)
    }

    /// Moves the value out and frees the object, if this is its only owner.
    ///
    /// # Errors
    ///
    /// The owner, if there are others.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        if !Self::is_alone(&this) {
            return Err(this);
        }
        let mut this = ManuallyDrop::new(this);
        // SAFETY: `this`, which is not dropped, was the only owner, so the handle is the only one and is taken once.
        let object = unsafe { ManuallyDrop::take(&mut this.object) };
        Ok(Owned::into_inner(object).value)
    }
}

impl<T, D: Design> Clone for Shared<T, D> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: this owner keeps the object meanwhile, and others get the new one from this thread.
        let before = self.object.owners.fetch_add(1, Ordering::Relaxed);
        // Only owners that were forgotten lead here; a count that wraps would free the object under the others.
        if before > isize::MAX as usize {
            std::process::abort();
        }
        Self {
            // SAFETY: a copy of the handle, which is used for shared access alone until the count says that it is the
            // only one.
            object: unsafe { std::ptr::read(&raw const self.object) },
            threads: PhantomData,
        }
    }
}

impl<T, D: Design> Drop for Shared<T, D> {
    #[inline]
    fn drop(&mut self) {
        // The only owner needs no atomic step: no other can be made without a reference to it.
        if !Self::is_alone(self) {
            // Release: what this owner did happens before the value is dropped.
            if self.object.owners.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // Pairs with the Release of the other owners.
            fence(Ordering::Acquire);
        }
        // SAFETY: no owner is left, so this is the only handle, and it is dropped once.
        unsafe { ManuallyDrop::drop(&mut self.object) };
    }
}

impl<T, D: Design> Deref for Shared<T, D> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object.value
    }
}

impl<T, D: Design> AsRef<T> for Shared<T, D> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T, D: Design> Borrow<T> for Shared<T, D> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: Debug, D: Design> Debug for Shared<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Display, D: Design> Display for Shared<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, D: Design> Pointer for Shared<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Pointer::fmt(&std::ptr::from_ref(&**self), f)
    }
}

impl<T: PartialEq, D: Design> PartialEq for Shared<T, D> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, D: Design> Eq for Shared<T, D> {}

impl<T: PartialOrd, D: Design> PartialOrd for Shared<T, D> {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Ord, D: Design> Ord for Shared<T, D> {
    fn cmp(&self, other: &Self) -> Order {
        (**self).cmp(&**other)
    }
}

impl<T: Hash, D: Design> Hash for Shared<T, D> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Error, D: Design> Error for Shared<T, D> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        (**self).source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostHeap;

    #[test]
    fn owners_are_shown() {
        let owners = AtomicUsize::new(2);
        let text = format!("{:?}", Counted { owners, value: 7 });
        assert_eq!(text, "Counted { owners: 2, value: 7 }");
    }

    /// A count that wraps would free the object under its owners.
    #[test]
    fn too_many_owners_end_the_process() {
        let heap = HostHeap::new().expect("a heap");
        let cache = Cache::new(&heap, "number").expect("a cache");
        let number = cache.alloc_shared(7).expect("memory");
        // SAFETY: the child uses atomics alone, and aborts or leaves by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let owners = isize::MAX as usize + 1;
            number.object.owners.store(owners, Ordering::Relaxed);
            std::mem::forget(Shared::clone(&number));
            // SAFETY: ends the child without running destructors.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: the status is valid for writes.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
    }
}
