//! Tunables of a run.

use quarry_core::design::Design;
use quarry_core::geometry::BootParams;
use quarry_core::tunables::Tunable;
use quarry_sim::driver::{CacheView, Driver};

use crate::error::WorkError;

/// Values of tunables, checked against their ranges. None by default.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// Boot parameters.
    pub boot: BootParams,
    /// Tunables of every cache, in the order in which they are set.
    pub cache: Vec<(&'static Tunable, u64)>,
    /// Sysctls of the page allocator.
    pub pages: Vec<(&'static Tunable, u64)>,
}

impl Tuning {
    /// Sets the sysctls.
    pub(crate) fn set_pages<D: Design>(
        &self,
        driver: &Driver<'_, D>,
        run: &dyn Fn() -> String,
    ) -> Result<(), WorkError> {
        for (tunable, value) in &self.pages {
            let set = driver.pages().set_sysctl(tunable.name, *value);
            set.map_err(|error| WorkError::Usage(format!("{}: {error}", run())))?;
        }
        Ok(())
    }

    /// Sets the tunables of a cache.
    pub(crate) fn set_cache<D: Design>(
        &self,
        cache: &CacheView<'_, D>,
        run: &dyn Fn() -> String,
    ) -> Result<(), WorkError> {
        for (tunable, value) in &self.cache {
            if !cache.set_attribute(tunable.name, *value) {
                return Err(WorkError::Refused {
                    run: run(),
                    name: tunable.name,
                    value: *value,
                });
            }
        }
        Ok(())
    }
}
