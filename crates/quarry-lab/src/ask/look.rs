//! First questions about snapshots.

use quarry_ask::{Axis, question};
use quarry_snapshot::Snapshot;

use super::answers::{Answer, Answers, Cost, How, InputSize, OfInput, Ready};
use super::source::no_snapshot;
use super::{At, Known, Source};
use crate::error::LabError;
use crate::look;

question! {
    /// Amount of slab memory that a kernel has, its causes, and what would change it.
    pub struct Look {
        /// Stage of a recorded boot; the first by default. A list has a snapshot for each.
        stage: Axis<String>, value("NAME"), inner();
        /// Snapshot of a trace: what the kernel held at the begin or at the end of the load; by default
        /// the last it has, and what grew since the first.
        at: Axis<At>, value("WHEN"), not_with(&["stage"]);
        /// Facts that the file lacks.
        known: Known;
    }
}

impl Look {
    /// The snapshots of a file, oldest first: of each stage that is asked for, or all its moments. `open` opens the file.
    ///
    /// # Errors
    ///
    /// The error of `open`; [`LabError`] if it has no such snapshot, or other facts.
    pub fn snapshots<E: From<LabError>>(
        &self,
        open: impl Fn(Option<&str>) -> Result<Source, E>,
    ) -> Result<Vec<Snapshot>, E> {
        let stages = self.stage.all().iter().map(|name| Some(name.as_str()));
        let mut stages: Vec<Option<&str>> = stages.collect();
        if stages.is_empty() {
            stages.push(None);
        }
        let mut snapshots = Vec::new();
        for stage in stages {
            snapshots.extend(self.moments(open(stage)?)?);
        }
        Ok(snapshots)
    }

    /// The moments of a file, with the facts that are given.
    fn moments(&self, source: Source) -> Result<Vec<Snapshot>, LabError> {
        let moments = match source {
            source if !self.at.is_empty() => {
                vec![source.into_snapshot(self.at.one().copied())?]
            }
            Source::Snapshots(mut moments) => {
                for moment in &mut moments {
                    if let Some(stage) = &moment.stage {
                        moment.file = format!("{}, stage {stage}", moment.file);
                    }
                }
                moments
            }
            Source::Trace(input) => {
                let found = input.snapshots()?;
                if found.is_empty() {
                    return Err(no_snapshot(&input.name, ""));
                }
                found
            }
        };
        let known = moments.into_iter().map(|one| self.known.applied(one));
        known.collect()
    }
}

impl Answers for Look {
    fn of_input(&self) -> OfInput {
        OfInput {
            stage: self.stage.one().cloned(),
            at: self.at.one().copied(),
            known: self.known.clone(),
        }
    }

    /// A snapshot of some thousand caches with its state.
    fn cost(&self, _: InputSize) -> Cost {
        Cost {
            reading_ms: 40,
            ms: 4,
            bytes: 32 << 20,
        }
    }

    fn answer(&self, ready: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
        let Ready::Snapshot(snapshot, state) = ready else {
            return Err(LabError::Usage("look needs a snapshot".to_string()));
        };
        // Predictions of other kernels are lists, which rows do not have: what-if asks for them.
        let look = look::Look::now(snapshot, state)?;
        Answer::apart(vec![look], |look| std::mem::take(&mut look.caches), how)
    }
}
