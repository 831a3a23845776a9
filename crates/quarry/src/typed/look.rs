//! The view of a cache from outside: counters, usage, statistics.

use std::fmt;

use quarry_core::design::{Busy, Design, Usage};
use quarry_core::heap::DestroyError;
use quarry_core::inspect::{Attribute, SysfsError};
use quarry_core::machine::Cpus as _;
use quarry_core::stats::Stats;

use super::{Cache, settle};
use crate::HostHeap;

impl<T, D: Design> Cache<T, D> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.raw.name()
    }

    /// The heap.
    #[must_use]
    pub fn heap(&self) -> &HostHeap<D> {
        &self.heap
    }

    /// Counters; those of CPUs that are busy at this moment are missing.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// Use of the cache's memory. Costs time proportional to the pages ever used.
    pub fn usage(&self) -> Usage {
        self.raw.usage()
    }

    /// Number of objects that are allocated. Others' operations on the cache wait meanwhile; CPUs keep what they hold.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a CPU's part could not be looked at in bounded time.
    pub fn live(&self) -> Result<u64, Busy> {
        self.raw.live()
    }

    /// Gives empty slabs back; returns how many CPUs were busy and kept theirs.
    pub fn shrink(&self) -> u32 {
        settle();
        self.raw.shrink()
    }

    /// Gives empty slabs back, and checks that no object is left.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] names the first objects.
    pub fn check_unused(&self) -> Result<(), DestroyError> {
        self.raw.check_unused()
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
    pub fn sysfs_read(&self, name: &str, out: &mut impl std::fmt::Write) -> Result<(), SysfsError> {
        self.raw.sysfs_read(name, out)
    }

    /// Does what writing to that file would do: sets a tunable, clears a counter (`0`), shrinks or
    /// validates the cache (`1`).
    ///
    /// # Errors
    ///
    /// [`SysfsError`].
    pub fn sysfs_write(&self, name: &str, text: &str) -> Result<(), SysfsError> {
        self.raw.sysfs_write(name, text)
    }
}

/// Objects that are allocated, and what else of the cache's memory is held where: `held_by_cpus` are free objects that
/// CPUs, and queues they share, keep for the next allocation, and those of slabs that CPUs allocate from; the kernel counts
/// them as active ([`Usage::active_objs`]). `free_in_slabs` are those that the nodes' lists offer. If CPUs are busy, `live` is
/// what it can be at most.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, Cache, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?;
/// let cache = Cache::new(&heap, "number")?;
/// let numbers = cache.alloc_bulk([1_u64, 2, 3])?;
/// assert_eq!(
///     format!("{cache:?}"),
///     "Cache { name: \"number\", design: \"slub\", live: 3, held_by_cpus: 509, free_in_slabs: 0, \
///      slabs: 1, bytes: 4096 }"
/// );
/// # drop(numbers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<T, D: Design> fmt::Debug for Cache<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usage, live) = (self.usage(), self.live());
        let mut show = f.debug_struct("Cache");
        show.field("name", &self.name()).field("design", &D::NAME);
        match live {
            // Saturating: a cache in use may change between the two looks.
            Ok(live) => show
                .field("live", &live)
                .field("held_by_cpus", &usage.active_objs.saturating_sub(live)),
            Err(_) => show.field("live", &format_args!("{} at most", usage.active_objs)),
        };
        let free = usage.num_objs.saturating_sub(usage.active_objs);
        let page_size = self.heap().machine().topology().page_size() as u64;
        show.field("free_in_slabs", &free)
            .field("slabs", &usage.slabs)
            .field("bytes", &(usage.pages * page_size + usage.shared_bytes))
            .finish()
    }
}
