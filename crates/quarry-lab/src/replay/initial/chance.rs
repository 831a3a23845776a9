//! Facts of a state that no report contains: assumed, or drawn.

use quarry_sim::Rng;

/// Answers to what a snapshot leaves open. State 0 takes the assumption of each question; every other state draws from
/// all answers that the snapshot allows, as likely one as the other. Where each of many objects lies is drawn in all.
pub(super) struct Chance {
    rng: Rng,
    is_assumed: bool,
}

impl Chance {
    /// The answers of a state.
    pub(super) fn of_state(state: u32) -> Self {
        Self {
            rng: Rng::new(state.into()),
            is_assumed: state == 0,
        }
    }

    /// The assumed number, or one of `low..=high`.
    pub(super) fn pick(&mut self, low: u64, assumed: u64, high: u64) -> u64 {
        match self.is_assumed {
            true => assumed,
            false if low < high => low + self.rng.below(high - low + 1),
            false => low.max(high.min(assumed)),
        }
    }

    /// The assumed sum of some numbers, or that of numbers up to `most`.
    pub(super) fn sum(&mut self, count: u64, assumed: u64, most: u64) -> u64 {
        match self.is_assumed {
            true => assumed,
            false => (0..count).map(|_| self.pick(0, 0, most)).sum(),
        }
    }

    /// One of this many, in all states.
    pub(super) fn one_of(&mut self, count: u64) -> u64 {
        self.rng.below(count)
    }

    /// The assumed number, or one from 0 to 1.
    pub(super) fn fraction(&mut self, assumed: f64) -> f64 {
        match self.is_assumed {
            true => assumed,
            false => self.part(),
        }
    }

    /// True if something happens that does so with this likelihood.
    pub(super) fn happens(&mut self, likelihood: f64) -> bool {
        self.part() < likelihood
    }

    /// A part of a whole, if only the mean over many wholes is known: objects that were allocated together die
    /// together, so that a slab is as likely nearly empty as nearly full. With a mean of 1/2 all parts are as likely.
    pub(super) fn share(&mut self, mean: f64) -> f64 {
        // The mean of u^k is 1 / (k + 1).
        let mean = mean.clamp(0.001, 1.0);
        self.part().powf((1.0 - mean) / mean)
    }

    /// True in state 0.
    pub(super) fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Free places of the next of `others + 1` slabs that have `left` together: `most` each at most, and one at least if
    /// they can.
    pub(super) fn next_part(&mut self, left: u64, others: u64, most: u64) -> u64 {
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
            let mut chance = Chance::of_state(state);
            [0; 8].map(|_| chance.pick(3, 5, 1000))
        };
        assert_eq!(draw(0), [5; 8]);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(7).iter().all(|n| (3..=1000).contains(n)));
        assert_eq!(Chance::of_state(1).pick(4, 4, 4), 4);
        for mean in [0.1, 0.5, 0.9] {
            let mut chance = Chance::of_state(0);
            let sum: f64 = (0..10_000).map(|_| chance.share(mean)).sum();
            assert!((sum / 10_000.0 - mean).abs() < 0.01, "{sum}");
        }
        assert_eq!(Chance::of_state(0).share(1.0), 1.0);
    }
}
