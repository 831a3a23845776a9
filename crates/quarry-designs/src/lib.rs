//! The designs by name, with an era each, and the tunables that users set on them.
//!
//! [`DESIGNS`] has all designs of the core, with their functions made concrete. [`DesignSpec`] is a design in an era,
//! such as `slub@6.18`. Work that is generic over the design goes through [`ForDesign`]. [`Setting`] is one value that a
//! user sets, and [`resolve`] makes of them a [`Tuning`] for each design of an experiment.
//!
//! ```
//! use quarry_designs::{DesignSpec, Setting, resolve};
//!
//! let slub = DesignSpec::parse("slub@6.1")?;
//! let tuning = resolve(&[Setting::parse("cpu_partial=0")?], &[slub])?;
//! assert_eq!(tuning[0].cache.len(), 1);
//! # Ok::<(), quarry_designs::DesignError>(())
//! ```

#![forbid(unsafe_code)]

mod design;
mod policy;
mod setting;
mod tuning;

use std::fmt;

pub mod units;

pub use design::{DESIGNS, DesignEntry, DesignSpec, ForDesign, parse_era};
pub use policy::PagePolicy;
pub use setting::{Setting, combinations, resolve};
pub use tuning::{Refused, Tuning};

/// A design, era or setting that does not exist or is out of range. The message says what there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DesignError(pub String);

/// The name that differs from another one by the fewest letters, for messages about a name that does not exist.
pub fn nearest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut names: Vec<&str> = among.into_iter().collect();
    names.sort_unstable();
    names
        .into_iter()
        .min_by_key(|other| strsim::levenshtein(name, other))
}

/// The value with this name, of those that have one; `what` is what messages call them.
///
/// # Errors
///
/// [`DesignError`] with all names if it is none of them.
pub fn named<T: Copy>(what: &str, all: &[(T, &str)], name: &str) -> Result<T, DesignError> {
    match all.iter().find(|(_, known)| *known == name) {
        Some((value, _)) => Ok(*value),
        None => Err(DesignError(format!(
            "there is no {what} {name:?}; there are {}",
            list(all.iter().map(|(_, known)| known))
        ))),
    }
}

/// Joins items with commas: `a, b, c`.
pub fn list(items: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}
