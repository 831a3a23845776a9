//! A question of `quarry geometry` about a cache, from options or from a row of a file.

use quarry_core::geometry::{CacheParams, Geometry, MachineParams};
use quarry_designs::{DesignSpec, Setting, Tuning, resolve};

use crate::error::usage;

/// A question: one cache on one machine.
pub(crate) struct Query {
    /// Design and era.
    pub(crate) design: DesignSpec,
    /// The machine.
    pub(crate) machine: MachineParams,
    /// The cache.
    pub(crate) cache: CacheParams,
    /// Tunables.
    pub(crate) settings: Tuning,
}

impl Query {
    /// The answer.
    pub(crate) fn answer(&self) -> anyhow::Result<Geometry> {
        let compute = self.design.design.geometry;
        let mut geometry = compute(
            self.design.era,
            &self.machine,
            &self.settings.boot,
            &self.cache,
        )
        .map_err(|error| usage(format!("{}: {error}", self.design)))?;
        self.settings.adjust(&mut geometry);
        Ok(geometry)
    }
}

/// Settings of a single design.
pub(crate) fn settings_of(design: DesignSpec, settings: &[Setting]) -> anyhow::Result<Tuning> {
    let mut resolved = resolve(settings, &[design])?;
    Ok(resolved.pop().unwrap_or_default())
}
