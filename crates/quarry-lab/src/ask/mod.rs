//! Requests as users state them: texts of designs, releases and tunables, and all that is filled in where they say
//! nothing. The command, sweeps and Python ask the lab through these, so that they mean the same and get the same
//! answers.

mod replay;
mod source;
mod what_if;

pub use quarry_work::load::MEMORY_BYTES;
pub use replay::{DEFAULT_DESIGNS, Replay, Start};
pub use source::{At, Source};
pub use what_if::{WhatIf, check_slabs};

use quarry_designs::Setting;

use crate::error::LabError;

/// Settings of one value, and those with a list of values.
fn settings(texts: &[String]) -> Result<(Vec<Setting>, Vec<Vec<Setting>>), LabError> {
    let parsed = texts.iter().map(|text| Setting::parse_list(text));
    let parsed: Vec<Vec<Setting>> = parsed.collect::<Result<_, _>>()?;
    let (single, lists): (Vec<_>, Vec<_>) = parsed.into_iter().partition(|list| list.len() == 1);
    Ok((single.concat(), lists))
}
