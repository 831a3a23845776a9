//! Caches of one Rust type.

use std::fmt::Write;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use quarry_core::design::{CacheSpec, Design, Usage};
use quarry_core::heap;
use quarry_core::inspect::{Attribute, SysfsError};
use quarry_core::stats::Stats;
use quarry_host::HostMachine;

use crate::HostHeap;

type RawCache<D> = heap::Cache<'static, HostMachine, D>;

/// A cache of objects of one type.
///
/// A dropped cache stays in its heap; [`Cache::destroy`] takes it out.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, Cache, Slub};
///
/// struct Task {
///     number: u64,
///     name: String,
/// }
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?;
/// let tasks = Cache::<Task, Slub>::new(heap, "task")?;
/// let task = tasks.alloc(Task { number: 1, name: "init".into() }).ok_or("out of memory")?;
/// assert_eq!((task.number, task.name.as_str()), (1, "init"));
/// drop(task);
/// tasks.destroy()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cache<T, D: Design> {
    raw: RawCache<D>,
    objects: PhantomData<fn(T) -> T>,
}

impl<T, D: Design> Cache<T, D> {
    /// Makes a cache whose objects have the size and alignment of `T`.
    ///
    /// # Errors
    ///
    /// [`CreateError`](heap::CreateError) if there is no geometry for `T`, or no room.
    ///
    /// # Panics
    ///
    /// If `T` is aligned to more than a page of the heap.
    pub fn new(heap: &'static HostHeap<D>, name: &str) -> Result<Self, heap::CreateError> {
        let page = quarry_core::machine::Cpus::topology(heap.machine()).page_size();
        assert!(align_of::<T>() <= page, "aligned to more than a page");
        // A size beyond 32 bits is beyond every geometry too.
        let object_size = u32::try_from(size_of::<T>().max(1)).unwrap_or(u32::MAX);
        let raw = heap.create_cache(&CacheSpec {
            align: align_of::<T>() as u32,
            ..CacheSpec::new(name, object_size)
        })?;
        Ok(Self {
            raw,
            objects: PhantomData,
        })
    }

    /// Moves a value into a new object. `None`, and the value is dropped, if memory is exhausted
    /// or if the caller is a signal handler that interrupted the allocator.
    #[track_caller]
    pub fn alloc(&self, value: T) -> Option<Owned<'_, T, D>> {
        let object = self.raw.alloc()?.cast::<T>();
        // SAFETY: the object is fresh, of the size of `T`, and aligned for it: slabs begin at a
        // page, `T` is aligned to at most that (`new`), and geometry keeps the alignment asked for
        // from one object to the next.
        unsafe { object.write(value) };
        Some(Owned {
            object,
            cache: self,
            value: PhantomData,
        })
    }

    /// Counters; those of CPUs that are busy at this moment are missing.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// How the cache's memory is used. Costs time proportional to the pages ever used.
    pub fn usage(&self) -> Usage {
        self.raw.usage()
    }

    /// Gives empty slabs back; returns how many CPUs were busy and kept theirs.
    pub fn shrink(&self) -> u32 {
        self.raw.shrink()
    }

    /// Sets a tunable by its sysfs name. `false` if the design has none of that name.
    pub fn set_attribute(&self, name: &str, value: u64) -> bool {
        self.raw.set_attribute(name, value)
    }

    /// The attributes that the cache has in sysfs.
    pub fn sysfs_attributes(&self) -> impl Iterator<Item = Attribute> + use<T, D> {
        self.raw.sysfs_attributes()
    }

    /// Writes what reading an attribute's file in `/sys/kernel/slab/<cache>/` would show.
    ///
    /// # Errors
    ///
    /// [`SysfsError`].
    pub fn sysfs_read<'a>(
        &self,
        name: &'a str,
        out: &mut impl Write,
    ) -> Result<(), SysfsError<'a>> {
        self.raw.sysfs_read(name, out)
    }

    /// Does what writing to that file would do: sets a tunable, clears a counter (`0`), shrinks or
    /// validates the cache (`1`).
    ///
    /// # Errors
    ///
    /// [`SysfsError`].
    pub fn sysfs_write<'a>(&self, name: &'a str, text: &'a str) -> Result<(), SysfsError<'a>> {
        self.raw.sysfs_write(name, text)
    }

    /// Takes the cache out of its heap and returns all its memory.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] if objects were forgotten: its message names them.
    pub fn destroy(self) -> Result<(), DestroyError<T, D>> {
        let objects = self.objects;
        // SAFETY: the handle is not copied anywhere, objects borrow it, and `self` is consumed.
        let destroyed = unsafe { self.raw.destroy() };
        destroyed.map_err(|error| DestroyError {
            cache: Self {
                raw: error.cache,
                objects,
            },
            live: error.live,
            busy_cpus: error.busy_cpus,
        })
    }
}

/// A cache still has objects and was not destroyed.
pub struct DestroyError<T, D: Design> {
    /// The cache, as it was.
    pub cache: Cache<T, D>,
    /// Objects that are still allocated.
    pub live: u64,
    /// CPUs whose private objects could not be seen because they were busy.
    pub busy_cpus: u32,
}

impl<T, D: Design> std::fmt::Display for DestroyError<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let error = heap::DestroyError {
            cache: self.cache.raw,
            live: self.live,
            busy_cpus: self.busy_cpus,
        };
        std::fmt::Display::fmt(&error, f)
    }
}

impl<T, D: Design> std::fmt::Debug for DestroyError<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl<T, D: Design> std::error::Error for DestroyError<T, D> {}

/// An object of a [`Cache`]; goes back when dropped, on whichever thread that is.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, Cache, Slubq};
///
/// let heap = Builder::<Slubq>::new().memory_bytes(64 << 20).build()?;
/// let cache = Cache::<[u64; 8], Slubq>::new(heap, "numbers")?;
/// let mut numbers = cache.alloc([0; 8]).ok_or("out of memory")?;
/// numbers[3] = 7;
/// std::thread::scope(|scope| {
///     scope.spawn(move || assert_eq!(numbers.iter().sum::<u64>(), 7));
/// });
/// cache.destroy()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Owned<'c, T, D: Design> {
    object: NonNull<T>,
    cache: &'c Cache<T, D>,
    value: PhantomData<T>,
}

// SAFETY: an `Owned` is the only way to its value, as a box is, and the cache can be used from all
// threads; so moving it moves a `T`.
unsafe impl<T: Send, D: Design> Send for Owned<'_, T, D> {}
// SAFETY: a shared `Owned` gives shared access to the value and nothing else.
unsafe impl<T: Sync, D: Design> Sync for Owned<'_, T, D> {}

impl<T, D: Design> Deref for Owned<'_, T, D> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `alloc` wrote the value, and only `drop` ends it.
        unsafe { self.object.as_ref() }
    }
}

impl<T, D: Design> DerefMut for Owned<'_, T, D> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; no other code has the object.
        unsafe { self.object.as_mut() }
    }
}

impl<T, D: Design> Drop for Owned<'_, T, D> {
    fn drop(&mut self) {
        // SAFETY: the value is whole and is used no more.
        unsafe { self.object.drop_in_place() };
        // SAFETY: the object came from this cache, which the borrow keeps, and is used no more.
        let freed = unsafe { self.cache.raw.free(self.object.cast()) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}
