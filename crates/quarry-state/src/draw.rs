//! Draws of a state: facts that no report contains are as expected, or drawn.

use quarry_ask::choice;
use quarry_sim::Rng;

use crate::unknown::{Level, Point, Range, Unknown};

/// Number of slabs that share a cache's free places, where no report tells it: between the fewest and the most that there
/// can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialSlabs {
    /// As many as are expected; states other than 0 draw it.
    #[default]
    Expected,
    /// The fewest: each is nearly empty.
    Few,
    /// The most: each has one free place, or as few as can be.
    Many,
}

impl PartialSlabs {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Expected, "expected"),
        (Self::Few, "few"),
        (Self::Many, "many"),
    ];
}

choice!(PartialSlabs, PartialSlabs::ALL);

/// Answers to what a snapshot leaves open. State 0 takes what is expected; every other state draws from what the snapshot
/// allows. Where each of many objects lies is drawn in all.
#[derive(Clone, Debug)]
pub struct Draw {
    rng: Rng,
    is_expected: bool,
    partial_slabs: PartialSlabs,
}

impl Draw {
    /// The answers of a state, by its number.
    #[must_use]
    pub fn of_state(state: u32) -> Self {
        Self {
            rng: Rng::new(state.into()),
            is_expected: state == 0,
            partial_slabs: PartialSlabs::Expected,
        }
    }

    /// The same answers, but for the slabs that have free places.
    #[must_use]
    pub fn with_partial_slabs(self, partial_slabs: PartialSlabs) -> Self {
        Self {
            partial_slabs,
            ..self
        }
    }

    /// Number of slabs that have free places.
    pub(crate) fn partial_slabs(&mut self, fewest: u64, expected: u64, most: u64) -> u64 {
        match self.partial_slabs {
            PartialSlabs::Expected => self.pick(fewest, expected, most),
            PartialSlabs::Few => fewest,
            PartialSlabs::Many => most,
        }
    }

    /// The expected number, or one of `low..=high`.
    pub fn pick(&mut self, low: u64, expected: u64, high: u64) -> u64 {
        match self.is_expected {
            true => expected,
            false if low < high => low + self.rng.below(high - low + 1),
            false => low.max(high.min(expected)),
        }
    }

    /// A point of the distributions of what is unknown of a cache. What it has in common with others is as in `common`.
    pub(crate) fn point(&mut self, common: Option<&Point>) -> Point {
        let mut point = Point::all(Level::Expected);
        if self.is_expected {
            return point;
        }
        for unknown in Unknown::ALL {
            let level = match common.filter(|_| self.happens(unknown.common())) {
                Some(common) => common[unknown],
                None => self.level(),
            };
            point = point.with(unknown, level);
        }
        point
    }

    /// A quantity that lies evenly on each side of what is expected.
    pub(crate) fn of(&mut self, range: Range) -> u64 {
        self.level().of(range).round() as u64
    }

    fn level(&mut self) -> Level {
        match self.is_expected {
            true => Level::Expected,
            false => Level::At(self.part()),
        }
    }

    /// One of this many, in all states.
    pub fn one_of(&mut self, count: u64) -> u64 {
        self.rng.below(count)
    }

    /// Number of slabs among at most this many that have `free` places, where the expected number is the same in all states.
    pub(crate) fn share_of_slabs(&self, free: u64, slots: u64, expected: u64, most: u64) -> u64 {
        let slabs = match self.partial_slabs {
            PartialSlabs::Expected => expected,
            PartialSlabs::Few => free.div_ceil(slots.saturating_sub(1).max(1)),
            PartialSlabs::Many => free,
        };
        slabs.min(most)
    }

    /// The expected number, or one from 0 to 1.
    pub fn fraction(&mut self, expected: f64) -> f64 {
        match self.is_expected {
            true => expected,
            false => self.part(),
        }
    }

    /// True if something happens that does so with this likelihood.
    pub fn happens(&mut self, likelihood: f64) -> bool {
        self.part() < likelihood
    }

    /// A part of a whole, if only the mean over many wholes is known: objects that were allocated together die
    /// together, so that a slab is as likely nearly empty as nearly full. With a mean of 1/2 all parts are as likely.
    pub fn share(&mut self, mean: f64) -> f64 {
        // The mean of u^k is 1 / (k + 1).
        let mean = mean.clamp(0.001, 1.0);
        self.part().powf((1.0 - mean) / mean)
    }

    /// Free places of the next of `others + 1` slabs that have `left` together: `most` each at most, and one at least if
    /// they can.
    pub(crate) fn next_part(&mut self, left: u64, others: u64, most: u64) -> u64 {
        let least = left.saturating_sub(most.saturating_mul(others)).max(1);
        let highest = left.saturating_sub(others).min(most);
        let mean = left as f64 / (others + 1) as f64 / most.max(1) as f64;
        let drawn = (self.share(mean) * most as f64).round() as u64;
        drawn.min(highest).max(least).min(left)
    }

    /// A number from 0 to 1.
    fn part(&mut self) -> f64 {
        const PARTS: u64 = 1 << 32;
        self.rng.below(PARTS) as f64 / PARTS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_differ_and_repeat() {
        let draw = |state| {
            let mut chance = Draw::of_state(state);
            [0; 8].map(|_| chance.pick(3, 5, 1000))
        };
        assert_eq!(draw(0), [5; 8]);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(7).iter().all(|n| (3..=1000).contains(n)));
        assert_eq!(Draw::of_state(1).pick(4, 4, 4), 4);
        for mean in [0.1, 0.5, 0.9] {
            let mut chance = Draw::of_state(0);
            let sum: f64 = (0..10_000).map(|_| chance.share(mean)).sum();
            assert!((sum / 10_000.0 - mean).abs() < 0.01, "{sum}");
        }
        assert_eq!(Draw::of_state(0).share(1.0), 1.0);
    }
}
