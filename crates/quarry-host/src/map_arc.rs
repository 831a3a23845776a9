//! A counted reference whose memory is a mapping of its own: it never calls the process's allocator, so that it may
//! hold what that allocator is made of.

use core::fmt;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::error::HostError;
use crate::os;

/// [`std::sync::Arc`] in a mapping: clones share a value, and the last one drops it.
///
/// # Examples
///
/// ```
/// use quarry_host::MapArc;
///
/// let number = MapArc::new(7)?;
/// let again = MapArc::clone(&number);
/// drop(number);
/// assert_eq!(*again, 7);
/// # Ok::<(), quarry_host::HostError>(())
/// ```
pub struct MapArc<T>(NonNull<Inner<T>>);

struct Inner<T> {
    users: AtomicUsize,
    value: T,
}

// SAFETY: as for `std::sync::Arc`: clones on any thread give shared access, and the last one drops the value there.
unsafe impl<T: Send + Sync> Send for MapArc<T> {}
// SAFETY: as for `Send`; a shared reference can be cloned.
unsafe impl<T: Send + Sync> Sync for MapArc<T> {}
impl<T: RefUnwindSafe> UnwindSafe for MapArc<T> {}
impl<T: RefUnwindSafe> RefUnwindSafe for MapArc<T> {}

impl<T> MapArc<T> {
    fn bytes() -> usize {
        size_of::<Inner<T>>().next_multiple_of(os::page_bytes())
    }

    /// Moves a value into a mapping, of whole pages.
    ///
    /// # Errors
    ///
    /// [`HostError::AddressSpace`]; the value is dropped.
    pub fn new(value: T) -> Result<Self, HostError> {
        const { assert!(align_of::<Inner<T>>() <= 4096, "no page has this alignment") };
        let bytes = Self::bytes();
        let errno = libc::ENOMEM;
        let place = os::map(bytes).ok_or(HostError::AddressSpace { bytes, errno })?;
        let place = place.cast::<Inner<T>>();
        let users = AtomicUsize::new(1);
        // SAFETY: the mapping is fresh, large enough, and aligned to a page.
        unsafe { place.write(Inner { users, value }) };
        Ok(Self(place))
    }

    /// Gives the reference up as an address, for [`MapArc::from_raw`].
    #[must_use]
    pub fn into_raw(self) -> NonNull<()> {
        let place = self.0.cast();
        core::mem::forget(self);
        place
    }

    /// The reference that [`MapArc::into_raw`] gave up.
    ///
    /// # Safety
    ///
    /// `into_raw` of the same type returned the address, and this is called once for it.
    #[must_use]
    pub unsafe fn from_raw(place: NonNull<()>) -> Self {
        Self(place.cast())
    }

    /// The value of a reference that was given up for good.
    ///
    /// # Safety
    ///
    /// [`MapArc::into_raw`] of the same type returned the address, and no reference is made of it again.
    #[must_use]
    #[inline(always)]
    pub unsafe fn as_static<'a>(place: NonNull<()>) -> &'a T
    where
        T: 'a,
    {
        // SAFETY: `new` initialised it, and a reference that is never dropped keeps it, as the caller says.
        unsafe { &(*place.cast::<Inner<T>>().as_ptr()).value }
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: `new` initialised it, and it is unmapped after the last reference.
        unsafe { self.0.as_ref() }
    }

    /// True if both are references to one value.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }
}

impl<T> Deref for MapArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `new` initialised it, and it is unmapped after the last reference.
        unsafe { &(*self.0.as_ptr()).value }
    }
}

impl<T> Clone for MapArc<T> {
    fn clone(&self) -> Self {
        // Relaxed: this reference keeps the value meanwhile.
        let before = self.inner().users.fetch_add(1, Ordering::Relaxed);
        // Only references that were forgotten lead here, 2^63 of them; a count that wraps would free the value early.
        assert!(before <= isize::MAX as usize, "too many references");
        Self(self.0)
    }
}

impl<T> Drop for MapArc<T> {
    fn drop(&mut self) {
        // Release: what this reference's user did happens before the value is dropped.
        if self.inner().users.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Pairs with the Release of all other drops.
        fence(Ordering::Acquire);
        // SAFETY: no reference is left, and the value is dropped once.
        unsafe { self.0.drop_in_place() };
        // SAFETY: `new` mapped these bytes, which no code uses any more.
        unsafe { os::unmap(self.0.cast(), Self::bytes()) };
    }
}

impl<T: fmt::Debug> fmt::Debug for MapArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    struct Counts(Arc<AtomicU64>, [u8; 10_000]);

    impl Drop for Counts {
        fn drop(&mut self) {
            self.0
                .fetch_add(u64::from(self.1[9_999]), Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_reference_drops_the_value_on_any_thread() {
        let drops = Arc::new(AtomicU64::new(0));
        let shared = MapArc::new(Counts(Arc::clone(&drops), [1; 10_000])).expect("memory");
        let threads = [(); 4].map(|()| {
            let shared = MapArc::clone(&shared);
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    drop(MapArc::clone(&shared));
                }
            })
        });
        let place = shared.into_raw();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        // SAFETY: `into_raw` returned the address just now.
        let shared = unsafe { MapArc::<Counts>::from_raw(place) };
        drop(shared);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }
}
