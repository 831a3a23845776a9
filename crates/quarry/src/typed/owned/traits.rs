//! Traits that an object has through its value, as a `Box` has.

use std::borrow::{Borrow, BorrowMut};
use std::cmp::Ordering;
use std::error::Error;
use std::fmt::{self, Debug, Display, Pointer};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use quarry_core::design::Design;

use super::Owned;

// A panic unwinds through a cache only in user code, which runs while no lock or slot is held; so an object is as
// whole afterwards as its value.
impl<T: ?Sized + UnwindSafe, D: Design> UnwindSafe for Owned<T, D> {}
impl<T: ?Sized + RefUnwindSafe, D: Design> RefUnwindSafe for Owned<T, D> {}

// The value does not move with its handle.
impl<T: ?Sized, D: Design> Unpin for Owned<T, D> {}

impl<T: ?Sized + Debug, D: Design> Debug for Owned<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + Display, D: Design> Display for Owned<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized, D: Design> Pointer for Owned<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Pointer::fmt(&std::ptr::from_ref(&**self), f)
    }
}

impl<T: ?Sized + PartialEq, D: Design> PartialEq for Owned<T, D> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq, D: Design> Eq for Owned<T, D> {}

impl<T: ?Sized + PartialOrd, D: Design> PartialOrd for Owned<T, D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: ?Sized + Ord, D: Design> Ord for Owned<T, D> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: ?Sized + Hash, D: Design> Hash for Owned<T, D> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: ?Sized, D: Design> Borrow<T> for Owned<T, D> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized, D: Design> BorrowMut<T> for Owned<T, D> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized, D: Design> AsRef<T> for Owned<T, D> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized, D: Design> AsMut<T> for Owned<T, D> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Error, D: Design> Error for Owned<T, D> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        (**self).source()
    }
}

impl<F: ?Sized + Future + Unpin, D: Design> Future for Owned<F, D> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut **self).poll(context)
    }
}

impl<T: ?Sized, D: Design> From<Owned<T, D>> for Pin<Owned<T, D>> {
    fn from(object: Owned<T, D>) -> Self {
        Owned::into_pin(object)
    }
}
