//! Heaps that runs begin on.

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_sim::Config;
use quarry_sim::driver::Driver;

use crate::error::WorkError;
use crate::setup::Setup;

/// A heap's caches, objects and slabs before a run begins.
///
/// A machine that has run for a while has long-lived objects. They pin slabs that are not full, so that a slab that comes
/// from a list has few free places; on an empty heap it has all of them.
pub trait Start: Sync {
    /// Makes caches, with their objects and slabs. No time passes meanwhile.
    ///
    /// # Errors
    ///
    /// [`WorkError`]: the machine has no room, or the state cannot be that of the run's kernel.
    fn fill<D: Design>(
        &self,
        setup: &Setup,
        config: &Config,
        driver: &mut Driver<'_, D>,
    ) -> Result<(), WorkError>;

    /// The state in words, for a run of a design on a machine; `None` for an empty heap. Others have several states, which
    /// [`Setup::state`] numbers.
    fn about(&self, design: &str, era: Era, config: &Config) -> Option<String>;
}

/// Nothing: a heap that was made a moment ago.
#[derive(Clone, Copy, Debug)]
pub struct Empty;

impl Start for Empty {
    fn fill<D: Design>(
        &self,
        _setup: &Setup,
        _config: &Config,
        _driver: &mut Driver<'_, D>,
    ) -> Result<(), WorkError> {
        Ok(())
    }

    fn about(&self, _design: &str, _era: Era, _config: &Config) -> Option<String> {
        None
    }
}

impl<S: Start> Start for Option<S> {
    fn fill<D: Design>(
        &self,
        setup: &Setup,
        config: &Config,
        driver: &mut Driver<'_, D>,
    ) -> Result<(), WorkError> {
        self.as_ref()
            .map_or(Ok(()), |start| start.fill(setup, config, driver))
    }

    fn about(&self, design: &str, era: Era, config: &Config) -> Option<String> {
        self.as_ref()?.about(design, era, config)
    }
}
