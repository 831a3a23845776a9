//! Figures of experiments.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Figures of an experiment, by their names.
pub(crate) type Figures = Vec<(String, f64)>;

/// Figures of all experiments in all arms.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Figures of each arm, the values first, by the experiment's name; `None` if it is due and did not run.
    arms: Vec<BTreeMap<String, Option<Figures>>>,
    /// The values with each of the thread's single changes, where they ran.
    elsewhere: Vec<Results>,
}

impl Results {
    /// Notes an experiment that is due in an arm, with its figures if it ran.
    pub(crate) fn put(&mut self, arm: usize, experiment: &str, figures: Option<Figures>) {
        if self.arms.len() <= arm {
            self.arms.resize_with(arm + 1, BTreeMap::new);
        }
        self.arms[arm].insert(experiment.to_string(), figures);
    }

    /// Notes an experiment that ran with one of the thread's single changes.
    pub(crate) fn put_elsewhere(
        &mut self,
        other: usize,
        experiment: &str,
        figures: Option<Figures>,
    ) {
        if self.elsewhere.len() <= other {
            self.elsewhere.resize_with(other + 1, Self::default);
        }
        self.elsewhere[other].put(0, experiment, figures);
    }

    /// The values with each of the thread's single changes.
    pub(crate) fn elsewhere(&self) -> &[Results] {
        &self.elsewhere
    }

    /// Runs that ended, and all that are due.
    #[must_use]
    pub fn runs(&self) -> [usize; 2] {
        let runs = || self.arms.iter().flat_map(BTreeMap::values);
        let elsewhere = self.elsewhere.iter().map(Self::runs);
        let here = [runs().flatten().count(), runs().count()];
        elsewhere.fold(here, |[done, due], [more_done, more_due]| {
            [done + more_done, due + more_due]
        })
    }

    /// The arms that have something, or are due.
    pub(crate) fn arms(&self) -> impl Iterator<Item = Arm<'_>> {
        (0..self.arms.len()).map(|arm| self.arm(arm))
    }

    /// The arm with all constants as their values say.
    pub(crate) fn values(&self) -> Arm<'_> {
        self.arm(0)
    }

    fn arm(&self, arm: usize) -> Arm<'_> {
        Arm {
            all: self,
            arm,
            is_assumed: false,
            asked: None,
        }
    }

    /// The experiments that a figure is made of.
    pub(crate) fn asked(figure: impl Fn(Arm<'_>) -> Option<f64>) -> BTreeSet<String> {
        let asked = RefCell::default();
        figure(Arm {
            asked: Some(&asked),
            ..Self::default().values()
        });
        asked.into_inner()
    }

    /// In how many arms a figure is due, whether its experiments ran or not.
    pub(crate) fn due(&self, figure: impl Fn(Arm<'_>) -> Option<f64>) -> usize {
        let arms = self.arms().map(|arm| Arm {
            is_assumed: true,
            ..arm
        });
        arms.filter_map(figure).count()
    }
}

/// The figures of one arm.
#[derive(Clone, Copy)]
pub(crate) struct Arm<'a> {
    all: &'a Results,
    arm: usize,
    /// Experiments that are due and did not run have some number, so that a figure of them is not missing.
    is_assumed: bool,
    /// Takes the names of experiments, which then all have some number.
    asked: Option<&'a RefCell<BTreeSet<String>>>,
}

impl Arm<'_> {
    /// A figure of an experiment; `None` if that did not run in the arm.
    pub(crate) fn get(self, experiment: &str, figure: &str) -> Option<f64> {
        if let Some(asked) = self.asked {
            asked.borrow_mut().insert(experiment.to_string());
            return Some(1.0);
        }
        let of = |arm: usize| self.all.arms.get(arm)?.get(experiment);
        let Some(figures) = of(self.arm)? else {
            return self.is_assumed.then_some(1.0);
        };
        let found = figures.iter().find(|(name, _)| name == figure);
        found.map(|(_, value)| *value)
    }

    /// By how many per cent a figure of one experiment is above that of another.
    pub(crate) fn change(self, of: &str, against: &str, figure: &str) -> Option<f64> {
        let (of, against) = (self.get(of, figure)?, self.get(against, figure)?);
        Some(100.0 * (of / against - 1.0))
    }
}
