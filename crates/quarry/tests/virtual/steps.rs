//! Machines that take fast operations in one step: the designs agree with the model there too, and
//! count exactly what they count without.

use crate::model::design::{Driver, check_design};
use crate::model::script::Script;
use crate::model::steps::OnSteps;
use crate::prelude::*;
use quarry_core::stats::Stats;

/// Scripts that a soak tries a property on.
const CASES: u32 = 120;

/// Runs a script and gives the counters of all caches.
fn check_steps<D: Design>(setup: &Setup, era: Era, script: &Script) -> Check<Vec<(String, Stats)>> {
    let machine = Stepping(setup.machine());
    let heap =
        Heap::<Stepping, D>::new(machine, era, setup.boot()).map_err(|error| error.to_string())?;
    Driver::new(&heap, OnSteps, setup.limits()).run(script)?;
    let mut caches = Vec::new();
    heap.for_each_cache(|cache| caches.push((cache.name().to_owned(), cache.stats())));
    Ok(caches)
}

fn steps_change_nothing<D: Design>(name: &str, era: Era) {
    check_property(name, CASES, (setups(), scripts(100)), |(setup, script)| {
        let with = check_steps::<D>(&setup, era, &script)?;
        // Failing try-locks come in another order, as a step that fails is tried again slowly.
        let comparable = setup.slot_per_mille == 0 && setup.remote_per_mille == 0;
        if comparable {
            let without = check_design::<D>(&setup, era, &script)?;
            crate::model::ensure_eq!(with, without.caches, "counters with and without steps");
        }
        Ok(())
    });
}

design_tests!(agrees: steps_change_nothing);
