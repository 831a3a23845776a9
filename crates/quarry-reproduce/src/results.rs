//! What experiments found.

use std::collections::BTreeMap;

/// Figures of an experiment, by their names.
pub(crate) type Figures = Vec<(String, f64)>;

/// Figures of all experiments in all arms.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Of each arm, the values first: figures by the experiment's name.
    arms: Vec<BTreeMap<String, Figures>>,
}

impl Results {
    pub(crate) fn put(&mut self, arm: usize, experiment: &str, figures: Figures) {
        if self.arms.len() <= arm {
            self.arms.resize_with(arm + 1, BTreeMap::new);
        }
        self.arms[arm].insert(experiment.to_string(), figures);
    }

    /// The arms that have something.
    pub(crate) fn arms(&self) -> impl Iterator<Item = Arm<'_>> {
        (0..self.arms.len()).map(|arm| Arm { all: self, arm })
    }

    /// The arm with all constants as their values say.
    pub(crate) fn values(&self) -> Arm<'_> {
        Arm { all: self, arm: 0 }
    }
}

/// The figures of one arm.
#[derive(Clone, Copy)]
pub(crate) struct Arm<'a> {
    all: &'a Results,
    arm: usize,
}

impl Arm<'_> {
    /// A figure of an experiment; `None` if that did not run in the arm.
    pub(crate) fn get(self, experiment: &str, figure: &str) -> Option<f64> {
        let of = |arm: usize| self.all.arms.get(arm)?.get(experiment);
        let figures = of(self.arm)?;
        let found = figures.iter().find(|(name, _)| name == figure);
        found.map(|(_, value)| *value)
    }

    /// By how many per cent a figure of one experiment is above that of another.
    pub(crate) fn change(self, of: &str, against: &str, figure: &str) -> Option<f64> {
        let (of, against) = (self.get(of, figure)?, self.get(against, figure)?);
        Some(100.0 * (of / against - 1.0))
    }
}
