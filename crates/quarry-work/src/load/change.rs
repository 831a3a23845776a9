//! Tunables that are set while a load runs.

use quarry_core::design::Design;
use quarry_core::heap::Heap;
use quarry_host::HostMachine;
use quarry_sim::driver::Driver;

use crate::error::WorkError;

/// A tunable that is set while a load runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, in nanoseconds since the run began. What is set at 0 is set before.
    pub at_ns: u64,
    /// Name of the cache.
    pub cache: String,
    /// The tunable, by its sysfs name.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

impl Change {
    /// Sets it in all caches of the name. `false` if there is none, or one refuses.
    pub(super) fn set<D: Design>(&self, driver: &Driver<'_, D>) -> bool {
        let (mut any, mut all) = (false, true);
        driver.for_each_cache(|cache| {
            if cache.head().name() == self.cache {
                any = true;
                all &= cache.set_attribute(self.name, self.value);
            }
        });
        any && all
    }

    /// The same on real CPUs.
    pub(super) fn set_on_host<D: Design>(&self, heap: &Heap<HostMachine, D>) -> bool {
        let (mut any, mut all) = (false, true);
        heap.for_each_cache(|cache| {
            if cache.name() == self.cache {
                any = true;
                all &= cache.set_attribute(self.name, self.value);
            }
        });
        any && all
    }

    /// The error of a run whose cache refuses it.
    pub(super) fn refused(&self, run: &str) -> WorkError {
        WorkError::Refused {
            run: format!("{run}, {}", self.cache),
            name: self.name,
            value: self.value,
        }
    }
}
