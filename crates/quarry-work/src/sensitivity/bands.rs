//! Figures in all arms, and the bands that they fill.

use quarry_machines::Key;
use schemars::JsonSchema;
use serde::Serialize;

use super::Figure;
use super::arms::ArmKind;

/// Figures of each run, in all arms.
#[derive(Clone, Debug)]
pub struct Samples {
    /// The values first, then the arms in the order of their study.
    pub(super) arms: Vec<(ArmKind, Vec<Vec<Figure>>)>,
    unused: Vec<Key>,
}

/// A run of many goes by chance at most this many standard deviations of the seeds from their mean: Student's t with 8 degrees
/// of freedom and 5 % for 44 runs, two for each of 22 constants, and the uncertainty of a mean of nine.
const CHANCE_DEVIATIONS: f64 = 5.2;
/// States vary more than chance if their variance is this many times that of the seeds: F with 8 and 8 degrees of freedom, 5 %.
const STATE_VARIANCE: f64 = 3.44;

/// Kind of arm that moves a figure farthest, beyond what chance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decides {
    /// A constant of the machine.
    Constant,
    /// The state in which the heap begins.
    State,
    /// The seed: no constant and no state goes beyond what it does.
    Chance,
    /// No arm moves the figure.
    Nothing,
}

/// A figure of a run with its bands.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct FigureBand {
    /// Number of the run, from 0.
    pub run: usize,
    /// Figure. `run micro` has `alloc_ns`, `free_ns`, `pair_ns` and `mops` (millions of objects per
    /// second); `run pages` has `fault_ns`, `free_ns`, `mpages` (millions of pages per second) and
    /// `zone_wait`; `run rx` has `mbit` (megabits of user data per second) and `zone_lock_share`; `replay
    /// --time` has `operation_ns`, `alloc_ns`, `free_ns` and `lock_wait_ns`.
    pub name: &'static str,
    /// Value with all constants at their own values.
    pub value: f64,
    /// Least and most with one constant at an end of its range.
    pub one: [f64; 2],
    /// Constant that moves the figure farthest; null if none moves it farther than chance.
    pub most: Option<String>,
    /// Farthest that chance takes a run from the mean of all seeds: 5.2 of their standard deviations.
    pub chance: f64,
    /// Kind of arm that moves the figure farthest.
    pub decides: Decides,
    /// Least and most over draws of all constants at once.
    pub drawn: [f64; 2],
    /// Least and most over all seeds, `--seed` included: chance alone.
    pub seeds: [f64; 2],
    /// Least and most over all states of the heap; null if it begins empty.
    pub states: Option<[f64; 2]>,
    /// Effect of each constant.
    pub constants: Vec<Effect>,
}

/// A figure with a constant at the ends of its range.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Effect {
    /// Constant, as in `quarry machines NAME`.
    pub constant: String,
    /// Figure with the constant at its low end.
    pub low: f64,
    /// Figure with the constant at its high end.
    pub high: f64,
}

impl Samples {
    pub(super) fn new(arms: Vec<(ArmKind, Vec<Vec<Figure>>)>, unused: Vec<Key>) -> Self {
        Self { arms, unused }
    }

    /// Constants with a range that cost no run any time; no arm changes them alone.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        self.unused.iter().map(|key| key.path()).collect()
    }

    /// The bands of each figure of each run.
    #[must_use]
    pub fn bands(&self) -> Vec<FigureBand> {
        let values = self.arms.first().map_or(&[][..], |(_, values)| values);
        let figures = values.iter().enumerate().flat_map(|(run, figures)| {
            let places = figures.iter().enumerate();
            places.map(move |(place, &(name, value))| (run, place, name, value))
        });
        figures
            .map(|(run, place, name, value)| self.band((run, place), name, value))
            .collect()
    }

    fn band(&self, place: (usize, usize), name: &'static str, value: f64) -> FigureBand {
        let (mut one, mut drawn, mut seeds) = ([value; 2], None, [value; 2]);
        let mut states = None;
        let (mut by_seed, mut by_state) = (vec![value], vec![value]);
        let mut constants: Vec<(Key, [f64; 2])> = Vec::new();
        for (kind, runs) in &self.arms {
            let figure = runs.get(place.0).and_then(|figures| figures.get(place.1));
            let Some(&(_, figure)) = figure else { continue };
            match *kind {
                ArmKind::Value => {}
                ArmKind::End { key, high } => {
                    widen(&mut one, figure);
                    if constants.last().is_none_or(|(last, _)| *last != key) {
                        constants.push((key, [value; 2]));
                    }
                    if let Some((_, ends)) = constants.last_mut() {
                        ends[usize::from(high)] = figure;
                    }
                }
                ArmKind::Draw => widen(drawn.get_or_insert([figure; 2]), figure),
                ArmKind::Seed => {
                    widen(&mut seeds, figure);
                    by_seed.push(figure);
                }
                ArmKind::State => {
                    widen(states.get_or_insert([value; 2]), figure);
                    by_state.push(figure);
                }
            }
        }
        let (mean, variance) = moments(&by_seed);
        let chance = CHANCE_DEVIATIONS * variance.sqrt();
        let far = |ends: &[f64; 2]| (ends[0] - mean).abs().max((ends[1] - mean).abs());
        let most = constants
            .iter()
            .filter(|(_, ends)| far(ends) > chance)
            .max_by(|(_, a), (_, b)| far(a).total_cmp(&far(b)));
        let (_, of_states) = moments(&by_state);
        let state = states.filter(|_| of_states > STATE_VARIANCE * variance);
        let decides = match (most.map(|(_, ends)| far(ends)), state.as_ref().map(far)) {
            (Some(constant), Some(state)) if state > constant => Decides::State,
            (Some(_), _) => Decides::Constant,
            (None, Some(_)) => Decides::State,
            (None, None) if variance > 0.0 => Decides::Chance,
            (None, None) => Decides::Nothing,
        };
        FigureBand {
            run: place.0,
            name,
            value,
            one,
            most: most.map(|(key, _)| key.path()),
            chance,
            decides,
            drawn: drawn.unwrap_or([value; 2]),
            seeds,
            states,
            constants: constants
                .iter()
                .map(|(key, [low, high])| Effect {
                    constant: key.path(),
                    low: *low,
                    high: *high,
                })
                .collect(),
        }
    }
}

/// Mean and variance.
fn moments(figures: &[f64]) -> (f64, f64) {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let squares = figures.iter().map(|figure| (figure - mean).powi(2));
    (mean, squares.sum::<f64>() / (count - 1.0).max(1.0))
}

fn widen(band: &mut [f64; 2], figure: f64) {
    *band = [band[0].min(figure), band[1].max(figure)];
}
