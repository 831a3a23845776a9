//! Machines that take fast operations in one step: the designs agree with the model there too, and
//! count exactly what they count without.

#[allow(dead_code, reason = "each test file uses its part of the model")]
mod model;

use model::Check;
use model::cases::check_property;
use model::design::{Driver, check_design};
use model::script::{Script, scripts};
use model::setup::{Setup, setups};
use model::steps::{OnSteps, Stepping};
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::heap::Heap;
use quarry_core::sheaf::Sheaf;
use quarry_core::slab::Slab;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;
use quarry_core::stats::Stats;

/// Scripts that a property is tried on by default.
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
            model::ensure_eq!(with, without.caches, "counters with and without steps");
        }
        Ok(())
    });
}

#[test]
fn slab_agrees_in_steps() {
    steps_change_nothing::<Slab>("slab_agrees_in_steps", Era::V2_6_24);
    steps_change_nothing::<Slab>("slab_agrees_in_steps", Era::V6_1);
}

#[test]
fn slub_agrees_in_steps() {
    steps_change_nothing::<Slub>("slub_agrees_in_steps", Era::V6_18);
    steps_change_nothing::<Slub>("slub_agrees_in_steps", Era::V5_9);
    steps_change_nothing::<Slub>("slub_agrees_in_steps", Era::V2_6_35);
}

#[test]
fn slubq_agrees_in_steps() {
    steps_change_nothing::<Slubq>("slubq_agrees_in_steps", Era::V2_6_35);
}

#[test]
fn sheaf_agrees_in_steps() {
    steps_change_nothing::<Sheaf>("sheaf_agrees_in_steps", Era::V7_0);
    steps_change_nothing::<Sheaf>("sheaf_agrees_in_steps", Era::V6_18);
}
