//! Questions about a snapshot.

use quarry_designs::{DesignSpec, Setting, parse_era};
use quarry_snapshot::{Detail, Snapshot};

use super::settings;
use crate::error::LabError;
use crate::plan::combinations;
use crate::whatif::{Baseline, Config, Fit, Prediction, Question};

/// Every release and design with every page size, number of CPUs and combination of listed values; an empty list is the
/// snapshot's own.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// Releases of Linux, each with the design that it has.
    pub releases: Vec<String>,
    /// Designs, `DESIGN[@ERA]`.
    pub designs: Vec<String>,
    /// Bytes of a page.
    pub page_bytes: Vec<u64>,
    /// Numbers of CPUs.
    pub cpus: Vec<u32>,
    /// Possible CPUs.
    pub possible_cpus: Option<u32>,
    /// Tunables, `[DESIGN[@ERA].]NAME=VALUE[,...]`, and `slub_debug`.
    pub set: Vec<String>,
    /// Options of the configuration, `NAME=y` or `NAME=n`.
    pub config: Vec<String>,
    /// Answer although the formulas explain few caches.
    pub force: bool,
}

impl WhatIf {
    /// The questions, in the order of the answers.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a design, a release, a tunable or an option does not exist.
    pub fn questions(&self) -> Result<Vec<Question>, LabError> {
        let (debug, set) = debugging(&self.set)?;
        let configs = self.config.iter().map(|text| Config::parse(text));
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        let (settings, lists) = settings(&set)?;
        let designs = self.designs.iter().map(|text| DesignSpec::parse(text));
        let designs = designs.collect::<Result<Vec<_>, _>>()?;
        let releases = self.releases.iter().map(|text| parse_era(text));
        let releases = releases.collect::<Result<Vec<_>, _>>()?;
        let mut questions = Vec::new();
        for (release, design) in pairs(&or_none(&releases), &or_none(&designs)) {
            for (page_bytes, cpus) in pairs(&or_none(&self.page_bytes), &or_none(&self.cpus)) {
                for listed in combinations(&lists) {
                    let names: Vec<String> = listed.iter().map(Setting::short).collect();
                    questions.push(Question {
                        design,
                        release,
                        page_bytes,
                        cpus,
                        possible_cpus: self.possible_cpus,
                        set: match names.is_empty() {
                            true if lists.is_empty() => String::new(),
                            true => "default".to_string(),
                            false => names.join(" "),
                        },
                        settings: [settings.as_slice(), &listed].concat(),
                        debug: debug.clone(),
                        configs: configs.clone(),
                    });
                }
            }
        }
        Ok(questions)
    }

    /// Answers all questions.
    ///
    /// # Errors
    ///
    /// As [`Self::questions`] and [`Baseline::predict`]; [`LabError::Usage`] if the snapshot has no slabs, or, unless it is
    /// forced, if the formulas explain too few of its caches.
    pub fn ask(&self, snapshot: &Snapshot) -> Result<Vec<Prediction>, LabError> {
        check_slabs(snapshot, "a prediction")?;
        let questions = self.questions()?;
        let baseline = Baseline::of(snapshot)?;
        let ask = |question| self.answer(&baseline, snapshot, question);
        questions.iter().map(ask).collect()
    }

    /// Answers one of the questions about a snapshot with its baseline.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn answer(
        &self,
        baseline: &Baseline<'_>,
        snapshot: &Snapshot,
        question: &Question,
    ) -> Result<Prediction, LabError> {
        let prediction = baseline.predict(question)?;
        if let (false, Fit::Bad(cause)) = (self.force, prediction.fit(snapshot)) {
            return Err(LabError::Usage(format!(
                "{}: the formulas of {} give {} of {} caches their slabs: {cause}; --force answers all the same",
                snapshot.file,
                prediction.snapshot_design,
                prediction.explained_caches,
                snapshot.slabinfo.rows.len()
            )));
        }
        Ok(prediction)
    }
}

/// Refuses a snapshot that has bytes of caches alone; `what` names the answer that needs slabs.
///
/// # Errors
///
/// [`LabError::NoSlabs`].
pub fn check_slabs(snapshot: &Snapshot, what: &'static str) -> Result<(), LabError> {
    match snapshot.detail() {
        Detail::Bytes => Err(LabError::NoSlabs {
            file: snapshot.file.clone(),
            form: snapshot.form.name(),
            lacks: snapshot.form.lacks().unwrap_or_default(),
            what,
        }),
        _ => Ok(()),
    }
}

/// The value of `slub_debug` among settings, whose value is no number, and the others.
fn debugging(settings: &[String]) -> Result<(Option<String>, Vec<String>), LabError> {
    let value = |text: &String| {
        let (name, value) = text.split_once('=')?;
        matches!(name, "slub_debug" | "slab_debug").then(|| value.to_string())
    };
    let asked: Vec<String> = settings.iter().filter_map(value).collect();
    let others = settings.iter().filter(|text| value(text).is_none());
    match asked.as_slice() {
        [] | [_] => Ok((asked.first().cloned(), others.cloned().collect())),
        [first, second, ..] => Err(LabError::Usage(format!(
            "--set slub_debug={first} and slub_debug={second}: a kernel has one; name several caches as in FZ,kmalloc-*;U,dentry"
        ))),
    }
}

/// The values, or that there are none.
fn or_none<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() {
        vec![None]
    } else {
        values.iter().copied().map(Some).collect()
    }
}

/// Every value of the first list with every one of the second.
fn pairs<T: Copy, U: Copy>(first: &[T], second: &[U]) -> Vec<(T, U)> {
    let with = |one: &T| {
        second
            .iter()
            .map(|other| (*one, *other))
            .collect::<Vec<_>>()
    };
    first.iter().flat_map(with).collect()
}
