//! An object of a cache, in one word.
//!
//! The word is the object's address, with the number of the cache's entry in the upper 16 bits. Addresses of
//! this machine do not have these ([`Entry::claim`]). So a free needs no look at page descriptors, and a
//! dereference costs one instruction.

mod traits;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;

use quarry_core::design::Design;

use super::entry::{ADDRESS_BITS, Entry};
use crate::DefaultDesign;

/// An object of a [`Cache`](crate::Cache); goes back when dropped, on whichever thread that is.
///
/// It is one word, as a `Box`, and an `Option` of it too. It borrows nothing, so structures can keep it, and it
/// keeps its cache and heap alive. If it is the last object of a dropped cache its drop ends that, and never sleeps
/// for it ([`Cache`](crate::Cache) says who ends what was busy).
///
/// # Examples
///
/// ```
/// use quarry::{Cache, HostHeap, Owned};
///
/// struct Session {
///     state: Owned<[u64; 8]>,
/// }
///
/// let heap = HostHeap::new()?;
/// let states = Cache::new(&heap, "state")?;
/// let mut session = Session { state: states.alloc([0; 8])? };
/// session.state[3] = 7;
/// // Cache and heap go with the last object.
/// drop((states, heap));
/// std::thread::spawn(move || assert_eq!(session.state.iter().sum::<u64>(), 7)).join().unwrap();
/// assert_eq!(size_of::<Option<Owned<[u64; 8]>>>(), size_of::<usize>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What cannot go to another thread cannot in an object:
///
/// ```compile_fail,E0277
/// # use quarry::{Cache, HostHeap};
/// let heap = HostHeap::new().unwrap();
/// let cells = Cache::new(&heap, "cell").unwrap();
/// let cell = cells.alloc(std::rc::Rc::new(1)).unwrap();
/// std::thread::spawn(move || drop(cell));
/// ```
///
/// A borrow of a value ends before its object:
///
/// ```compile_fail,E0505
/// # use quarry::{Cache, HostHeap};
/// let heap = HostHeap::new().unwrap();
/// let cache = Cache::new(&heap, "number").unwrap();
/// let number = cache.alloc(1_u64).unwrap();
/// let borrow = &*number;
/// drop(number);
/// assert_eq!(*borrow, 1);
/// ```
///
/// # Unsized values
///
/// [`unsize!`](crate::unsize) makes an object of a trait or a slice: two words, as a `Box` of it.
///
/// # Pinned values
///
/// An object never moves: [`Owned::into_pin`] and [`Cache::alloc_pin`](crate::Cache::alloc_pin) say so.
pub struct Owned<T: ?Sized, D: Design = DefaultDesign> {
    word: NonNull<T>,
    value: PhantomData<Box<T>>,
    design: PhantomData<fn() -> D>,
}

// SAFETY: an `Owned` is the only way to its value, as a box is, and caches can be used from all threads; so
// moving it moves a `T`.
unsafe impl<T: ?Sized + Send, D: Design> Send for Owned<T, D> {}
// SAFETY: a shared `Owned` gives shared access to the value and nothing else.
unsafe impl<T: ?Sized + Sync, D: Design> Sync for Owned<T, D> {}

impl<T, D: Design> Owned<T, D> {
    /// # Safety
    ///
    /// A live object of the entry's cache, of design `D`, that holds a value and has no other owner.
    #[inline]
    pub(super) unsafe fn new(entry: &'static Entry, object: NonNull<T>) -> Self {
        let word = object.as_ptr().wrapping_byte_add(entry.tag());
        Self {
            // SAFETY: the bits of the two are disjoint (`Entry::claim`), and the object's are not all 0.
            word: unsafe { NonNull::new_unchecked(word) },
            value: PhantomData,
            design: PhantomData,
        }
    }

    /// Moves the value out and frees the object.
    #[must_use]
    pub fn into_inner(this: Self) -> T {
        let entry = this.entry();
        let object = Self::into_raw(this);
        // SAFETY: a live object of the entry's cache, whose owner is gone.
        let _free = unsafe { FreeOnDrop::<D>::new(entry, object.cast()) };
        // SAFETY: the object holds a value, and its owner is gone; the value is not dropped there.
        unsafe { object.read() }
    }

    /// For [`unsize!`](crate::unsize).
    ///
    /// # Safety
    ///
    /// `coerce` does nothing but an unsizing coercion.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn unsize_by<U: ?Sized>(this: Self, coerce: fn(*mut T) -> *mut U) -> Owned<U, D> {
        let word = coerce(ManuallyDrop::new(this).word.as_ptr());
        Owned {
            // SAFETY: a coercion leaves the address as it is, which is not 0.
            word: unsafe { NonNull::new_unchecked(word) },
            value: PhantomData,
            design: PhantomData,
        }
    }
}

impl<T: ?Sized, D: Design> Owned<T, D> {
    #[inline]
    pub(super) fn entry(&self) -> &'static Entry {
        Entry::of_number(self.word.addr().get() >> ADDRESS_BITS)
    }

    #[inline]
    fn object(&self) -> NonNull<T> {
        let object = self
            .word
            .as_ptr()
            .map_addr(|word| word & ((1 << ADDRESS_BITS) - 1));
        // SAFETY: the address of an object, as `new` got it, is not 0.
        unsafe { NonNull::new_unchecked(object) }
    }

    /// Gives the object out as its address. [`Cache::from_raw`](crate::Cache::from_raw) takes it back; until then
    /// it stays allocated.
    #[must_use = "the object is leaked if the address is lost"]
    pub fn into_raw(this: Self) -> NonNull<T> {
        ManuallyDrop::new(this).object()
    }

    /// Gives the value up for good: it is never dropped, and its cache and heap live until the process ends.
    pub fn leak<'a>(this: Self) -> &'a mut T
    where
        T: 'a,
        D: 'a,
    {
        // SAFETY: the object holds a value, stays allocated for ever and has no other owner.
        unsafe { Self::into_raw(this).as_mut() }
    }

    /// Pins the value: it stays where it is until it is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Cache, HostHeap, Owned};
    ///
    /// let heap = HostHeap::new()?;
    /// let cache = Cache::new(&heap, "task")?;
    /// let task = Owned::into_pin(cache.alloc(async { 7 })?);
    /// # let mut task = task;
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert_eq!(task.as_mut().poll(&mut context), std::task::Poll::Ready(7));
    /// # use std::future::Future;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_pin(this: Self) -> Pin<Self> {
        // SAFETY: the value is in the object, which does not move with its handle, and only `drop` frees it after the
        // value's own drop. A pinned handle gives neither `&mut T` nor itself out.
        unsafe { Pin::new_unchecked(this) }
    }
}

impl<T: ?Sized, D: Design> Deref for Owned<T, D> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` got an object with a value, and only `drop` ends it.
        unsafe { self.object().as_ref() }
    }
}

impl<T: ?Sized, D: Design> DerefMut for Owned<T, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; no other code has the object.
        unsafe { self.object().as_mut() }
    }
}

impl<T: ?Sized, D: Design> Drop for Owned<T, D> {
    #[inline]
    fn drop(&mut self) {
        let object = self.object();
        if const { !std::mem::needs_drop::<T>() } {
            // Without a guard in memory, which would keep the compiler from passing its parts in registers.
            // SAFETY: `new` got a live object of the entry's cache, which this was the owner of.
            return unsafe { self.entry().free::<D>(object.cast()) };
        }
        // It frees the memory also if the value's drop panics.
        // SAFETY: `new` got a live object of the entry's cache, which this was the owner of.
        let _free = unsafe { FreeOnDrop::<D>::new(self.entry(), object.cast()) };
        // SAFETY: the value is whole and is used no more.
        unsafe { object.drop_in_place() };
    }
}

/// Makes an [`Owned`] of a trait object or a slice of one of a sized type, as `Box` does by itself: that is not stable
/// for other types. The new handle has two words.
///
/// # Examples
///
/// ```
/// use std::fmt::Display;
///
/// use quarry::{Cache, HostHeap, Owned};
///
/// let heap = HostHeap::new()?;
/// let numbers = Cache::new(&heap, "number")?;
/// let bytes = Cache::new(&heap, "bytes")?;
/// let shown: [Owned<dyn Display + Send>; 2] = [
///     quarry::unsize!(numbers.alloc(7)?, dyn Display + Send),
///     quarry::unsize!(Cache::new(&heap, "word")?.alloc("seven")?, dyn Display + Send),
/// ];
/// assert_eq!(format!("{} {}", shown[0], shown[1]), "7 seven");
/// let bytes: Owned<[u8]> = quarry::unsize!(bytes.alloc([1_u8; 100])?, [u8]);
/// assert_eq!(bytes.len(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Nothing but such a conversion compiles:
///
/// ```compile_fail,E0277
/// # use quarry::{Cache, HostHeap, Owned};
/// let heap = HostHeap::new().unwrap();
/// let cache = Cache::new(&heap, "cell").unwrap();
/// // What the value does not implement, its object does not.
/// let cell: Owned<dyn Send> = quarry::unsize!(cache.alloc(std::rc::Rc::new(1)).unwrap(), dyn Send);
/// ```
#[macro_export]
macro_rules! unsize {
    ($object:expr, $to:ty) => {{
        let object = $object;
        // SAFETY: returning a pointer as another type is a coercion of pointers, and nothing else.
        unsafe { $crate::Owned::unsize_by(object, |value| -> *mut $to { value }) }
    }};
}

/// Frees an object when dropped.
pub(super) struct FreeOnDrop<D: Design> {
    entry: &'static Entry,
    object: NonNull<u8>,
    design: PhantomData<fn() -> D>,
}

impl<D: Design> FreeOnDrop<D> {
    /// # Safety
    ///
    /// A live object of the entry's cache, of design `D`, which is without user when this is dropped.
    #[inline]
    pub(super) unsafe fn new(entry: &'static Entry, object: NonNull<u8>) -> Self {
        Self {
            entry,
            object,
            design: PhantomData,
        }
    }
}

impl<D: Design> Drop for FreeOnDrop<D> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the caller of `new` gave a live object of this entry's cache, whose last user ends with this value.
        unsafe { self.entry.free::<D>(self.object) };
    }
}
