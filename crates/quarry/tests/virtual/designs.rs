//! Every design against the model, by random scripts on random virtual machines.

use crate::model::cases::check_property;
use crate::model::design::{check_debug, check_design};
use crate::model::script::scripts;
use crate::model::setup::setups;
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

/// Scripts that a soak tries a property on.
const CASES: u32 = 250;
/// Operations in a script at most.
const OPS: usize = 120;

fn agrees_with_the_model<D: Design>(name: &str, era: Era) {
    check_property(name, CASES, (setups(), scripts(OPS)), |(setup, script)| {
        check_design::<D>(&setup, era, &script).map(|_| ())
    });
}

/// A few scripts in each release that has the design.
#[test]
fn every_release_agrees_with_the_model() {
    fn of<D: Design>() {
        let releases = Era::ALL.into_iter();
        for era in releases.filter(|era| D::RELEASES.contains(era)) {
            let inputs = (setups(), scripts(OPS));
            check_property(
                "every_release_agrees_with_the_model",
                2,
                inputs,
                |(setup, script)| check_design::<D>(&setup, era, &script).map(|_| ()),
            );
        }
    }
    of::<SlabCache>();
    of::<Slub>();
    of::<Slubq>();
    of::<Slob>();
    of::<SheafCache>();
}

#[test]
fn slub_2_6_22_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_2_6_22_agrees_with_the_model", Era::V2_6_22);
}

#[test]
fn slub_2_6_24_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_2_6_24_agrees_with_the_model", Era::V2_6_24);
}

#[test]
fn slub_2_6_35_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_2_6_35_agrees_with_the_model", Era::V2_6_35);
}

#[test]
fn slub_4_13_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_4_13_agrees_with_the_model", Era::V4_13);
}

#[test]
fn slab_2_6_24_agrees_with_the_model() {
    agrees_with_the_model::<SlabCache>("slab_2_6_24_agrees_with_the_model", Era::V2_6_24);
}

#[test]
fn slab_6_1_agrees_with_the_model() {
    agrees_with_the_model::<SlabCache>("slab_6_1_agrees_with_the_model", Era::V6_1);
}

#[test]
fn slub_5_9_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_5_9_agrees_with_the_model", Era::V5_9);
}

#[test]
fn slub_6_1_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_6_1_agrees_with_the_model", Era::V6_1);
}

#[test]
fn slub_6_18_agrees_with_the_model() {
    agrees_with_the_model::<Slub>("slub_6_18_agrees_with_the_model", Era::V6_18);
}

#[test]
fn slubq_2_6_35_agrees_with_the_model() {
    agrees_with_the_model::<Slubq>("slubq_2_6_35_agrees_with_the_model", Era::V2_6_35);
}

#[test]
fn slob_2_6_24_agrees_with_the_model() {
    agrees_with_the_model::<Slob>("slob_2_6_24_agrees_with_the_model", Era::V2_6_24);
}

#[test]
fn slob_6_1_agrees_with_the_model() {
    agrees_with_the_model::<Slob>("slob_6_1_agrees_with_the_model", Era::V6_1);
}

#[test]
fn sheaf_7_0_agrees_with_the_model() {
    agrees_with_the_model::<SheafCache>("sheaf_7_0_agrees_with_the_model", Era::V7_0);
}

#[test]
fn sheaf_6_18_agrees_with_the_model() {
    agrees_with_the_model::<SheafCache>("sheaf_6_18_agrees_with_the_model", Era::V6_18);
}

/// The same script twice: the same counts, down to each cache line touched.
fn repeats<D: Design>(name: &str, era: Era) {
    check_property(
        name,
        CASES / 4,
        (setups(), scripts(OPS / 2)),
        |(setup, script)| {
            let first = check_design::<D>(&setup, era, &script)?;
            let second = check_design::<D>(&setup, era, &script)?;
            crate::model::ensure_eq!(first, second, "two runs of one script");
            Ok(())
        },
    );
}

#[test]
fn slab_repeats() {
    repeats::<SlabCache>("slab_repeats", Era::V2_6_24);
    repeats::<SlabCache>("slab_repeats", Era::V6_1);
}

#[test]
fn slub_repeats() {
    repeats::<Slub>("slub_repeats", Era::V6_18);
    repeats::<Slub>("slub_repeats", Era::V5_9);
    repeats::<Slub>("slub_repeats", Era::V2_6_24);
}

#[test]
fn slubq_repeats() {
    repeats::<Slubq>("slubq_repeats", Era::V2_6_35);
}

#[test]
fn slob_repeats() {
    repeats::<Slob>("slob_repeats", Era::V6_1);
}

#[test]
fn sheaf_repeats() {
    repeats::<SheafCache>("sheaf_repeats", Era::V7_0);
    repeats::<SheafCache>("sheaf_repeats", Era::V6_18);
}

/// With debugging the same scripts give the same answers, and no report.
fn agrees_with_debugging<D: Design>(name: &str, era: Era) {
    for letters in ["FZPU", "Z", "PU", "F"] {
        check_property(
            name,
            CASES / 10,
            (setups(), scripts(OPS / 2)),
            |(setup, script)| check_debug::<D>(&setup, era, &script, letters),
        );
    }
}

#[test]
fn slub_agrees_with_debugging() {
    for era in [Era::V5_9, Era::V6_1, Era::V6_18] {
        agrees_with_debugging::<Slub>("slub_agrees_with_debugging", era);
    }
}

#[test]
fn slubq_agrees_with_debugging() {
    agrees_with_debugging::<Slubq>("slubq_agrees_with_debugging", Era::V2_6_35);
}

#[test]
fn slab_agrees_with_debugging() {
    for era in [Era::V2_6_24, Era::V6_1] {
        agrees_with_debugging::<SlabCache>("slab_agrees_with_debugging", era);
    }
}
