//! The table of the trace's objects, as counting replays and those in simulated time keep it.

use quarry_core::design::{Design, FreeError};
use quarry_core::machine::CpuId;
use quarry_sim::driver::{CacheIndex, Driver, ObjectRef};

/// [`Entry::cache`] of an entry without an object, and of a cache that is not made yet.
pub(super) const NONE: u16 = u16::MAX;
/// [`Entry::cache`] of an object of kmalloc.
pub(super) const KMALLOC: u16 = u16::MAX - 1;
/// [`Entry::cache`] of an object that the era's kmalloc does not serve.
pub(super) const UNSERVED: u16 = u16::MAX - 2;
/// [`Entry::cache`] of an object that was allocated before the part that is replayed.
pub(super) const BEFORE: u16 = u16::MAX - 3;
/// [`Entry::cache`] of an entry without an object, whose free waits on CPU [`Entry::cpu`].
pub(super) const AWAITED: u16 = u16::MAX - 4;
/// Index of the first cache that no entry can name.
pub(super) const CACHES_MAX: u16 = AWAITED;

/// An object of the trace while it is alive.
pub(super) struct Entry<'h> {
    /// The object to free.
    pub(super) object: Option<ObjectRef<'h>>,
    /// Bytes asked for.
    pub(super) bytes: u32,
    /// The driver's cache, or one of the constants.
    pub(super) cache: u16,
    /// The virtual CPU that allocated it.
    pub(super) cpu: u16,
}

const _: () = assert!(size_of::<Entry<'_>>() == 16);

impl Entry<'_> {
    pub(super) const EMPTY: Self = Self {
        object: None,
        bytes: 0,
        cache: NONE,
        cpu: 0,
    };
}

/// Allocates from the cache of an entry.
#[inline(always)]
pub(super) fn alloc<'h, D: Design>(
    driver: &Driver<'h, D>,
    cache: u16,
    bytes: u32,
) -> Option<ObjectRef<'h>> {
    match cache {
        KMALLOC => driver.kmalloc(bytes),
        index => driver.alloc(CacheIndex(index)),
    }
}

/// Frees an object of the cache of an entry.
#[inline(always)]
pub(super) fn free<'h, D: Design>(
    driver: &Driver<'h, D>,
    cache: u16,
    object: ObjectRef<'h>,
    allocated_on: u16,
) -> Result<(), FreeError> {
    let allocated_on = CpuId(allocated_on.into());
    match cache {
        KMALLOC => driver.kfree(object, allocated_on),
        index => driver.free(CacheIndex(index), object, allocated_on),
    }
}
