//! Caches: made at their first use, and tuned.

use quarry_core::design::{CacheSpec, Design};
use quarry_core::geometry::CacheParams;
use quarry_core::heap::CreateError;
use quarry_core::sheaf::geometry::{asked_capacity, own_flags};
use quarry_core::slab::geometry::early_flag;
use quarry_designs::Refused;
use quarry_sim::driver::{CacheIndex, CacheView, Driver};
use quarry_trace::ReplayEvent;

use super::super::input::RecordedCache;
use super::super::objects::CACHES_MAX;
use super::Engine;
use crate::error::LabError;
use crate::infer::Inferred;
use crate::run::RunSpec;

impl<D: Design> Engine<'_, '_, D> {
    /// Makes the cache of an event.
    #[cold]
    pub(super) fn first_use(&mut self, event: &ReplayEvent) -> Result<u16, LabError> {
        let group = self.input.cache_of[usize::from(event.cache)];
        let cache = &self.input.caches[usize::from(group)];
        let Some(inferred) = cache.inferred else {
            return Err(self.bad_row(&format!(
                "an object of cache {} is allocated, which has no size",
                cache.name
            )));
        };
        let has_run = self.input.booted.is_some();
        let index = recorded(self.driver, self.spec, has_run, self.row, cache, &inferred)?;
        for (into, other) in self.cache_of.iter_mut().zip(&self.input.cache_of) {
            if *other == group {
                *into = index.0;
            }
        }
        Ok(index.0)
    }
}

/// Gives all caches that there are the run's settings.
pub(in super::super) fn tune_all<D: Design>(
    driver: &Driver<'_, D>,
    spec: &RunSpec,
) -> Result<(), LabError> {
    let mut result = Ok(());
    driver.for_each_cache(|cache| {
        if result.is_ok() {
            result = tune(spec, &cache);
        }
    });
    result
}

/// The cache of a cache of the trace, which `row` needs. A machine that has run may have it; else it is made and tuned.
pub(in super::super) fn recorded<D: Design>(
    driver: &mut Driver<'_, D>,
    spec: &RunSpec,
    has_run: bool,
    row: u64,
    cache: &RecordedCache,
    inferred: &Inferred,
) -> Result<CacheIndex, LabError> {
    let known = has_run.then(|| driver.find_cache(&cache.name)).flatten();
    known.map_or_else(|| create_recorded(driver, spec, row, cache, inferred), Ok)
}

/// Makes a cache of the trace, which `row` needs, and tunes it.
fn create_recorded<D: Design>(
    driver: &mut Driver<'_, D>,
    spec: &RunSpec,
    row: u64,
    cache: &RecordedCache,
    inferred: &Inferred,
) -> Result<CacheIndex, LabError> {
    let index =
        create(driver, &cache.name, &inferred.params()).map_err(|source| LabError::Cache {
            run: spec.label(),
            row,
            cache: cache.name.clone(),
            object_size: inferred.object_size,
            source,
        })?;
    if let Some(view) = driver.cache(index) {
        tune(spec, &view)?;
    }
    Ok(index)
}

/// Makes a cache of a kernel, whose name tells what the kernel asks for beside `params`.
pub(in super::super) fn create<D: Design>(
    driver: &mut Driver<'_, D>,
    name: &str,
    params: &CacheParams,
) -> Result<CacheIndex, CreateError> {
    let spec = CacheSpec {
        name,
        object_size: params.object_size,
        align: params.align,
        flags: params.flags | early_flag(name) | own_flags(name),
        sheaf_capacity: asked_capacity(name),
        ctor: None,
    };
    match driver.create_cache(&spec) {
        Ok(index) if index.0 < CACHES_MAX => Ok(index),
        Ok(_) => Err(CreateError::NoRoom),
        Err(error) => Err(error),
    }
}

/// Gives a cache the run's settings.
pub(in super::super) fn tune<D: Design>(
    spec: &RunSpec,
    cache: &CacheView<'_, D>,
) -> Result<(), LabError> {
    let set = spec.settings.set_cache(cache);
    set.map_err(|Refused { name, value }| LabError::Refused {
        run: spec.label(),
        cache: cache.head().name().to_string(),
        name,
        value,
    })
}
