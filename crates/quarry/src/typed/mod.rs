//! Caches of one Rust type, safe to use.
//!
//! | module | content |
//! |---|---|
//! | `mod` | [`Cache`]: makes objects |
//! | `look` | the view of a cache from outside |
//! | `owned` | [`Owned`]: one object, in one word |
//! | `shared` | [`Shared`]: an object with several owners |
//! | `constructed` | [`ConstructedCache`]: objects that keep their state between users |
//! | `lazy` | [`LazyCache`]: a cache in a static |
//! | `entry` | what an object finds its cache by, and what ends a cache that its objects outlive |
//! | `stack` | which entries are free, and which wait |
//! | `error` | why a cache or an object was not made |

#![allow(
    clippy::result_large_err,
    reason = "`DestroyError` names objects, and is rare"
)]

mod constructed;
mod entry;
mod error;
mod lazy;
mod look;
mod owned;
mod shared;
mod stack;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;

use quarry_core::design::{CacheSpec, Design, FreeError};
use quarry_core::geometry::CacheFlags;
use quarry_core::heap::{self, CreateError, DestroyError};
use quarry_core::machine::Cpus as _;
use quarry_core::name;
use quarry_host::HostMachine;

use crate::{DefaultDesign, HostHeap};
pub use constructed::{Constructed, ConstructedCache};
use entry::Entry;
pub(crate) use entry::{after_fork, before_fork, settle};
pub use error::{AllocError, CacheError};
pub use lazy::LazyCache;
use owned::FreeOnDrop;
pub use owned::Owned;
pub use shared::{Counted, Shared, SharedCache};

type RawCache<D> = heap::Cache<'static, HostMachine, D>;

/// A cache of objects of one type (`kmem_cache`).
///
/// Any thread allocates from it and frees its objects. It keeps its heap alive. Objects may outlive it: the
/// last of them takes the cache out of the heap, and returns the heap's memory if no handle to that is left.
/// No destructor waits for that: if a CPU is busy at that moment, or a free of another thread has not returned, the cache
/// ends with that free, or with the next making, drop or shrink of any cache, or [`HostHeap::reap`].
/// [`Cache::destroy`] is for programs that expect no object to be left.
///
/// # Names
///
/// A name is a label, for slabinfo, reports and [`Builder::slub_debug`](crate::Builder::slub_debug). Caches of a heap may have
/// the same one, in Rust, in C and in statics alike, as parts of a program that know nothing of each other choose them. Each
/// has its row in slabinfo; a search by name finds the newest.
///
/// ```
/// use quarry::{Cache, HostHeap};
///
/// let heap = HostHeap::new()?;
/// let (first, second) = (Cache::new(&heap, "session")?, Cache::new(&heap, "session")?);
/// let (number, text) = (first.alloc(7)?, second.alloc("seven")?);
/// assert_eq!((first.live()?, second.live()?), (1, 1));
/// let mut slabinfo = String::new();
/// heap.write_slabinfo(&mut slabinfo)?;
/// assert_eq!(slabinfo.matches("\nsession ").count(), 2);
/// # drop((number, text));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Examples
///
/// ```
/// use quarry::{Cache, HostHeap};
///
/// struct Task {
///     number: u64,
///     name: String,
/// }
///
/// let heap = HostHeap::new()?;
/// let tasks = Cache::new(&heap, "task")?;
/// let task = tasks.alloc(Task { number: 1, name: "init".into() })?;
/// assert_eq!((task.number, task.name.as_str()), (1, "init"));
/// drop(task);
/// tasks.destroy()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A cache makes objects of its type alone:
///
/// ```compile_fail,E0308
/// # use quarry::{Cache, HostHeap};
/// let heap = HostHeap::new().unwrap();
/// let numbers = Cache::<u64>::new(&heap, "number").unwrap();
/// numbers.alloc("one").unwrap();
/// ```
pub struct Cache<T, D: Design = DefaultDesign> {
    raw: RawCache<D>,
    entry: &'static Entry,
    heap: ManuallyDrop<HostHeap<D>>,
    objects: PhantomData<fn(T) -> T>,
}

impl<T, D: Design> Cache<T, D> {
    /// Makes a cache whose objects have the size and alignment of `T`. Others may have its [name](Cache#names).
    ///
    /// # Errors
    ///
    /// [`CacheError`]: the name, the type's layout, or no room.
    pub fn new(heap: &HostHeap<D>, name: &str) -> Result<Self, CacheError> {
        Self::with_flags(heap, name, CacheFlags::NONE)
    }

    /// [`Cache::new`] with flags, such as [`CacheFlags::HWCACHE_ALIGN`].
    ///
    /// # Errors
    ///
    /// As [`Cache::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Cache, CacheFlags, HostHeap};
    ///
    /// let heap = HostHeap::new()?;
    /// let cache = Cache::with_flags(&heap, "counter", CacheFlags::HWCACHE_ALIGN)?;
    /// let counter = cache.alloc([0_u8; 40])?;
    /// assert!(std::ptr::from_ref(&*counter).addr().is_multiple_of(64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_flags(
        heap: &HostHeap<D>,
        name: &str,
        flags: CacheFlags,
    ) -> Result<Self, CacheError> {
        Self::make(heap, name, flags, true)
    }

    /// Makes a cache; one that `waits` only after those of its name that are about to end.
    fn make(
        heap: &HostHeap<D>,
        name: &str,
        flags: CacheFlags,
        waits: bool,
    ) -> Result<Self, CacheError> {
        name::check(name).map_err(CacheError::Name)?;
        let page_size = heap.machine().topology().page_size();
        let align = align_of::<T>();
        if align > page_size {
            return Err(CacheError::Alignment { align, page_size });
        }
        let spec = CacheSpec {
            align: align as u32,
            flags,
            // A size beyond 32 bits is beyond every geometry too.
            ..CacheSpec::new(
                name,
                u32::try_from(size_of::<T>().max(1)).unwrap_or(u32::MAX),
            )
        };
        // A thread that makes and drops caches of one name waits for their ends: thousands of caches that are about to end
        // would fill the heap. It also gets their entries.
        let create = || match waits {
            true => heap.create_unique_cache(&spec),
            false => heap.create_cache(&spec),
        };
        let raw = entry::while_caches_end(|| match create() {
            Err(CreateError::Duplicate) => None,
            made => Some(made),
        });
        // The other cache of this name stays.
        let raw = raw.unwrap_or_else(|| heap.create_cache(&spec));
        let raw = raw.map_err(CacheError::Create)?;
        // SAFETY: the handle is used by this cache and its objects, which keep the heap: `heap` below, and
        // `Entry::orphan` behind that.
        let raw = unsafe { entry::unbound(raw) };
        let Some(entry) = Entry::claim(raw) else {
            // SAFETY: the cache was made above, and nothing else has the handle. Empty caches are destroyed.
            let _ = unsafe { raw.destroy() };
            return Err(CacheError::TooMany);
        };
        Ok(Self {
            raw,
            entry,
            heap: ManuallyDrop::new(heap.clone()),
            objects: PhantomData,
        })
    }

    /// Moves a value into a new object.
    ///
    /// # Errors
    ///
    /// [`AllocError`] has the value if memory is exhausted, or if the caller is a signal handler that
    /// interrupted the allocator.
    #[inline]
    #[track_caller]
    pub fn alloc(&self, value: T) -> Result<Owned<T, D>, AllocError<T>> {
        match self.raw.alloc() {
            // SAFETY: the object is fresh and of this cache.
            Some(object) => Ok(unsafe { self.own(object, value) }),
            None => Err(AllocError(value)),
        }
    }

    /// Makes a value in a new object; `value` is called only if there is one.
    ///
    /// # Errors
    ///
    /// As [`Cache::alloc`], with the function.
    ///
    /// # Examples
    ///
    /// ```
    /// # use quarry::{Cache, HostHeap};
    /// let heap = HostHeap::new()?;
    /// let buffers = Cache::new(&heap, "buffer")?;
    /// let buffer = buffers.alloc_with(|| [0_u8; 4000])?;
    /// assert_eq!(buffer.len(), 4000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn alloc_with<F: FnOnce() -> T>(&self, value: F) -> Result<Owned<T, D>, AllocError<F>> {
        let Some(object) = self.raw.alloc() else {
            return Err(AllocError(value));
        };
        // SAFETY: a fresh object of this cache, which holds nothing while `value` runs.
        let free = unsafe { FreeOnDrop::<D>::new(self.entry, object) };
        let value = value();
        std::mem::forget(free);
        // SAFETY: the object is fresh and of this cache.
        Ok(unsafe { self.own(object, value) })
    }

    /// Moves a value into a new object that is pinned.
    ///
    /// # Errors
    ///
    /// As [`Cache::alloc`].
    #[inline]
    #[track_caller]
    pub fn alloc_pin(&self, value: T) -> Result<Pin<Owned<T, D>>, AllocError<T>> {
        self.alloc(value).map(Owned::into_pin)
    }

    /// Moves all values into new objects, at less than the cost of single calls, or none.
    ///
    /// # Errors
    ///
    /// As [`Cache::alloc`], with all values.
    ///
    /// # Examples
    ///
    /// ```
    /// # use quarry::{Cache, HostHeap};
    /// let heap = HostHeap::new()?;
    /// let cache = Cache::new(&heap, "number")?;
    /// let numbers = cache.alloc_bulk([1_u64, 2, 3])?;
    /// assert_eq!(numbers.iter().map(|number| **number).sum::<u64>(), 6);
    /// cache.free_bulk(numbers);
    /// cache.destroy()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn alloc_bulk<const N: usize>(
        &self,
        values: [T; N],
    ) -> Result<[Owned<T, D>; N], AllocError<[T; N]>> {
        let mut slots = [None; N];
        if !self.raw.alloc_bulk(&mut slots) {
            return Err(AllocError(values));
        }
        let mut slots = slots.into_iter().flatten();
        Ok(values.map(|value| {
            let object = slots.next().expect("a full bulk call fills every slot");
            // SAFETY: the object is fresh and of this cache.
            unsafe { self.own(object, value) }
        }))
    }

    /// Drops objects and frees their memory, at less than the cost of dropping each. Those of other caches
    /// are dropped as well.
    #[track_caller]
    pub fn free_bulk(&self, objects: impl IntoIterator<Item = Owned<T, D>>) {
        /// Objects that are freed at once.
        const BATCH: usize = 32;
        let mut objects = objects.into_iter().filter(|object| self.owns(object));
        loop {
            let mut slots = [None; BATCH];
            let mut filled = 0;
            for (slot, object) in slots.iter_mut().zip(&mut objects) {
                let object = Owned::into_raw(object);
                // SAFETY: an object of this cache, whose owner is gone.
                let free = unsafe { FreeOnDrop::<D>::new(self.entry, object.cast()) };
                // SAFETY: the value is whole, and its owner is gone.
                unsafe { object.drop_in_place() };
                std::mem::forget(free);
                *slot = Some(object.cast::<u8>());
                filled += 1;
            }
            // SAFETY: the objects are of this cache and have no user left.
            check_freed(unsafe { self.raw.free_bulk(&mut slots[..filled]) });
            if filled < BATCH {
                return;
            }
        }
    }

    /// Frees an object when every read-side section that runs now has ended
    /// ([`HostMachine::rcu_read_lock`]). Until then it counts as allocated. Its type must need no `drop`. A cache that
    /// is dropped while such objects wait stays in its heap; [`Cache::check_unused`] says when none does.
    ///
    /// Readers get at an object by its address ([`Owned::into_raw`]), which is unsafe.
    ///
    /// # Errors
    ///
    /// The object, if there is no memory to note the free, or if it is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # use quarry::{Cache, HostHeap};
    /// let heap = HostHeap::new()?;
    /// let routes = Cache::new(&heap, "route")?;
    /// let route = routes.alloc([10_u8, 0, 0, 1])?;
    /// let reader = heap.machine().rcu_read_lock();
    /// routes.free_rcu(route).map_err(|_| "no memory")?;
    /// assert!(routes.check_unused().is_err(), "a reader may still look");
    /// drop(reader);
    /// routes.destroy()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// ```compile_fail,E0080
    /// # use quarry::{Cache, HostHeap};
    /// # let heap = HostHeap::new().unwrap();
    /// let names = Cache::new(&heap, "name").unwrap();
    /// // A String needs its drop.
    /// let _ = names.free_rcu(names.alloc(String::new()).unwrap());
    /// ```
    pub fn free_rcu(&self, object: Owned<T, D>) -> Result<(), Owned<T, D>> {
        const { assert!(!std::mem::needs_drop::<T>(), "the type needs its drop") };
        if !self.owns(&object) {
            return Err(object);
        }
        let raw = Owned::into_raw(object);
        // SAFETY: the owner is gone, so only readers that run already have the object.
        match unsafe { self.raw.free_rcu(raw.cast()) } {
            Ok(()) => Ok(()),
            // SAFETY: nothing was freed, and `into_raw` gave the object out just now.
            Err(_) => Err(unsafe { self.from_raw(raw) }),
        }
    }

    /// True if an object is of this cache.
    #[must_use]
    pub fn owns(&self, object: &Owned<T, D>) -> bool {
        std::ptr::eq(object.entry(), self.entry)
    }

    /// Makes an object of what [`Owned::into_raw`] gave out.
    ///
    /// # Safety
    ///
    /// `into_raw` of an object of this cache returned the address, and nothing was made of it since.
    #[must_use]
    pub unsafe fn from_raw(&self, object: NonNull<T>) -> Owned<T, D> {
        // SAFETY: `into_raw` ended the object's owner and left its value, and this is the first owner since, as the caller
        // says; the object is of this cache and was never freed.
        unsafe { Owned::new(self.entry, object) }
    }

    /// # Safety
    ///
    /// The object is fresh and of this cache.
    #[inline]
    unsafe fn own(&self, object: NonNull<u8>, value: T) -> Owned<T, D> {
        let object = object.cast::<T>();
        // SAFETY: the object is fresh, of the size of `T`, and aligned for it: slabs begin at a page; `T` is
        // aligned to at most that (`with_flags`); geometry keeps the alignment from one object to the next.
        unsafe { object.write(value) };
        // SAFETY: a live object of this cache, whose value was just written.
        unsafe { Owned::new(self.entry, object) }
    }

    /// Takes the cache out of its heap and returns all its memory.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] if objects are left: its message names them. The cache then goes with the last of
    /// them, as a dropped one does.
    pub fn destroy(self) -> Result<(), DestroyError> {
        ManuallyDrop::new(self).end(true)
    }

    /// Ends the cache, now or with its last object. Called once, by what ends `self`.
    fn end(&mut self, wait: bool) -> Result<(), DestroyError> {
        // SAFETY: called once, and `self` is not used afterwards.
        let heap = unsafe { ManuallyDrop::take(&mut self.heap) };
        // SAFETY: the entry was claimed for this cache, whose handle is used no more.
        unsafe { self.entry.orphan(heap, wait) }
    }
}

impl<T, D: Design> Drop for Cache<T, D> {
    fn drop(&mut self) {
        // Objects that are left end the cache later.
        let _ = self.end(false);
    }
}

// A panic unwinds through a cache only in user code, which runs while no lock or slot is held: a cache is as whole
// afterwards as before. What the objects hold is theirs ([`Owned`]).
impl<T, D: Design> UnwindSafe for Cache<T, D> {}
impl<T, D: Design> RefUnwindSafe for Cache<T, D> {}

/// Ends a debug build if a free failed that cannot fail.
fn check_freed(freed: Result<(), FreeError>) {
    debug_assert!(freed.is_ok(), "{freed:?}");
}
