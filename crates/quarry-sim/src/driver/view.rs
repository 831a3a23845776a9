//! A driver's cache, to look at and to set.

use std::fmt::Write;

use quarry_core::design::{CacheHead, CheckError, Design, Usage};
use quarry_core::heap;
use quarry_core::inspect::{Attribute, SysfsError};
use quarry_core::stats::Stats;

use crate::machine::VirtualMachine;

/// View of a cache for drivers: its state can be read and its tunables set, but it cannot allocate.
pub struct CacheView<'h, D: Design> {
    cache: heap::CacheView<'h, VirtualMachine, D>,
}

impl<'h, D: Design> CacheView<'h, D> {
    pub(super) fn new(cache: heap::CacheView<'h, VirtualMachine, D>) -> Self {
        Self { cache }
    }

    /// Name, geometry and flags.
    #[must_use]
    pub fn head(&self) -> &CacheHead {
        self.cache.head()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// Empties all per-CPU state into the slabs. Returns how many CPUs were busy and kept theirs.
    pub fn flush(&self) -> u32 {
        self.cache.flush()
    }

    /// Gives back slabs that are empty, with what CPUs have in them. Returns how many CPUs were busy and kept theirs.
    pub fn shrink(&self) -> u32 {
        self.cache.shrink()
    }

    /// Use of the cache's memory. Costs time proportional to the pages ever used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// Objects that users have. Costs time proportional to the pages ever used. `None` if another CPU is in the middle
    /// of an operation.
    #[must_use]
    pub fn live_objects(&self) -> Option<u64> {
        let mut live = 0;
        self.cache.for_each_live(|_| live += 1).ok()?;
        Some(live)
    }

    /// Checks lists and counters.
    ///
    /// # Errors
    ///
    /// The first contradiction.
    pub fn check_consistency(&self) -> Result<(), CheckError> {
        self.cache.check_consistency()
    }

    /// Value of a tunable or attribute by its sysfs name.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<u64> {
        self.cache.attribute(name)
    }

    /// Sets a tunable by its sysfs name; `false` if the cache refuses.
    pub fn set_attribute(&self, name: &str, value: u64) -> bool {
        self.cache.set_attribute(name, value)
    }

    /// The attributes that the cache has in sysfs.
    pub fn sysfs_attributes(&self) -> impl Iterator<Item = Attribute> + use<D> {
        self.cache.sysfs_attributes()
    }

    /// Writes what reading an attribute's file shows.
    ///
    /// # Errors
    ///
    /// [`SysfsError`].
    pub fn sysfs_read(&self, name: &str, out: &mut impl Write) -> Result<(), SysfsError> {
        self.cache.sysfs_read(name, out)
    }
}
