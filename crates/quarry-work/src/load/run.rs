//! Loads with their designs, and changes of tunables as users write them.

use quarry_core::design::Design;
use quarry_core::tunables::Scope;
use quarry_designs::units::{nanoseconds, parse_duration};
use quarry_designs::{DesignSpec, ForDesign};

use super::host::{self, HostReport, HostSpec};
use super::{Change, LoadReport, LoadSpec};
use crate::error::WorkError;
use crate::progress::Progress;
use crate::start::{Empty, Start};

/// Memory of a virtual machine if nothing is asked for.
pub const MEMORY_BYTES: u64 = 16 << 30;

/// A load in simulated time on a design.
#[derive(Clone, Debug)]
pub struct LoadRun {
    /// The design.
    pub design: DesignSpec,
    /// All else.
    pub spec: LoadSpec,
}

/// A load on real threads with a design.
#[derive(Clone, Debug)]
pub struct HostRun {
    /// The design.
    pub design: DesignSpec,
    /// All else.
    pub spec: HostSpec,
}

impl LoadRun {
    /// Runs it, as [`super::run`] does.
    ///
    /// # Errors
    ///
    /// As [`super::run`].
    pub fn run(&self, progress: &dyn Progress) -> Result<LoadReport, WorkError> {
        self.run_from(&Empty, progress)
    }

    /// Runs it on a heap that begins as `start` says, as [`super::run_from`] does.
    ///
    /// # Errors
    ///
    /// As [`super::run_from`].
    pub fn run_from(
        &self,
        start: &impl Start,
        progress: &dyn Progress,
    ) -> Result<LoadReport, WorkError> {
        struct Run<'a, S>(&'a LoadSpec, &'a S, &'a dyn Progress);
        impl<S: Start> ForDesign for Run<'_, S> {
            type Output = Result<LoadReport, WorkError>;

            fn run<D: Design>(self) -> Self::Output {
                super::run_from::<D>(self.0, self.1, self.2)
            }
        }
        self.design.design.run(Run(&self.spec, start, progress))
    }
}

impl HostRun {
    /// Runs it, as [`host::run`] does.
    ///
    /// # Errors
    ///
    /// As [`host::run`].
    pub fn run(&self) -> Result<HostReport, WorkError> {
        struct Run<'a>(&'a HostSpec);
        impl ForDesign for Run<'_> {
            type Output = Result<HostReport, WorkError>;

            fn run<D: Design>(self) -> Self::Output {
                host::run::<D>(self.0)
            }
        }
        self.design.design.run(Run(&self.spec))
    }
}

/// Parses `TIME:CACHE.NAME=VALUE`: a change of one cache while a load runs.
///
/// # Errors
///
/// [`WorkError::Usage`] if it has another form, or the design does not have the tunable.
pub fn change(text: &str, design: &DesignSpec) -> Result<Change, WorkError> {
    let wrong = |problem: String| {
        WorkError::Usage(format!(
            "at {text:?}: {problem}; write TIME:CACHE.NAME=VALUE, for example 2s:kmalloc-4096.cpu_partial=8"
        ))
    };
    let parts = text.split_once(':').and_then(|(time, rest)| {
        let (left, value) = rest.split_once('=')?;
        let (cache, name) = left.rsplit_once('.')?;
        Some((time, cache, name, value))
    });
    let (time, cache, name, value) =
        parts.ok_or_else(|| wrong("it does not have this form".to_string()))?;
    let time = parse_duration(time).map_err(wrong)?;
    let value = value
        .parse()
        .map_err(|_| wrong(format!("{value:?} is not a number from 0 on")))?;
    let tunable = design.design.tunables.check(design.era, name, value);
    let tunable = tunable.map_err(|error| wrong(format!("{design}: {error}")))?;
    if !matches!(tunable.scope, Scope::Cache | Scope::Own) {
        return Err(wrong(format!(
            "{name} is set for all caches, before they are made"
        )));
    }
    Ok(Change {
        at_ns: nanoseconds(time),
        cache: cache.to_string(),
        name: tunable.name,
        value,
    })
}
