//! An object of a cache, in one word.
//!
//! The word is the object's address, with the number of the cache's entry in the upper 16 bits. Addresses of
//! this machine do not have these ([`Entry::claim`]). So a free needs no look at page descriptors, and a
//! dereference costs one instruction.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
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
pub struct Owned<T, D: Design = DefaultDesign> {
    word: NonNull<T>,
    value: PhantomData<(T, fn() -> D)>,
}

// SAFETY: an `Owned` is the only way to its value, as a box is, and caches can be used from all threads; so
// moving it moves a `T`.
unsafe impl<T: Send, D: Design> Send for Owned<T, D> {}
// SAFETY: a shared `Owned` gives shared access to the value and nothing else.
unsafe impl<T: Sync, D: Design> Sync for Owned<T, D> {}

impl<T, D: Design> Owned<T, D> {
    /// # Safety
    ///
    /// A live object of the entry's cache, of design `D`, that holds a value and has no other owner.
    #[inline]
    pub(super) unsafe fn new(entry: &'static Entry, object: NonNull<T>) -> Self {
        let tag = entry.number() << ADDRESS_BITS;
        Self {
            word: object.map_addr(|address| address | tag),
            value: PhantomData,
        }
    }

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
}

impl<T, D: Design> Deref for Owned<T, D> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` got an object with a value, and only `drop` ends it.
        unsafe { self.object().as_ref() }
    }
}

impl<T, D: Design> DerefMut for Owned<T, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; no other code has the object.
        unsafe { self.object().as_mut() }
    }
}

impl<T, D: Design> Drop for Owned<T, D> {
    #[inline]
    fn drop(&mut self) {
        let object = self.object();
        // It frees the memory also if the value's drop panics.
        // SAFETY: `new` got a live object of the entry's cache, which this was the owner of.
        let _free = unsafe { FreeOnDrop::<D>::new(self.entry(), object.cast()) };
        // SAFETY: the value is whole and is used no more.
        unsafe { object.drop_in_place() };
    }
}

impl<T: std::fmt::Debug, D: Design> std::fmt::Debug for Owned<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: std::fmt::Display, D: Design> std::fmt::Display for Owned<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, D: Design> AsRef<T> for Owned<T, D> {
    fn as_ref(&self) -> &T {
        self
    }
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
