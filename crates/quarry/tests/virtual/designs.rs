//! Every design against the model, by random scripts on random virtual machines.

use crate::model::design::{check_debug, check_design};
use crate::prelude::*;

/// Scripts that a soak tries a property on.
const CASES: u32 = 250;
/// Operations in a script at most.
const OPS: usize = 120;
/// One script in this many runs twice.
const TWICE: u64 = 4;

/// The answers of a design are the model's, and the same script counts the same twice, down to each cache line
/// touched.
fn agrees_with_the_model<D: Design>(name: &str, era: Era) {
    check_property(name, CASES, (setups(), scripts(OPS)), |(setup, script)| {
        let first = check_design::<D>(&setup, era, &script)?;
        if setup.seed.is_multiple_of(TWICE) {
            let second = check_design::<D>(&setup, era, &script)?;
            ensure_eq!(first, second, "two runs of one script");
        }
        Ok(())
    });
}

design_tests!(agrees: agrees_with_the_model);

/// A few scripts in each release that has the design.
#[test]
fn every_release_agrees_with_the_model() {
    fn of<D: Design>() {
        let name = "every_release_agrees_with_the_model";
        let releases = Era::ALL.into_iter();
        for era in releases.filter(|era| D::RELEASES.contains(era)) {
            let inputs = (setups(), scripts(OPS));
            check_property(name, 2, inputs, |(setup, script)| {
                check_design::<D>(&setup, era, &script).map(|_| ())
            });
        }
    }
    for_all_designs!(D => of::<D>());
}

/// With debugging the same scripts give the same answers, and no report.
fn agrees_with_debugging<D: Design>(name: &str, era: Era) {
    if D::debug_rules(era).is_none() {
        return;
    }
    for letters in ["FZPU", "Z", "PU", "F"] {
        let inputs = (setups(), scripts(OPS / 2));
        check_property(name, CASES / 10, inputs, |(setup, script)| {
            check_debug::<D>(&setup, era, &script, letters)
        });
    }
}

design_tests!(agrees_checked: agrees_with_debugging);
