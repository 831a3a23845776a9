//! Figures that were measured several times.

/// Effort of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some seconds.
    Full,
    /// A fraction of that, for a first look: ranges are wider, and caches larger than 8 MiB count as 8 MiB.
    Quick,
}

impl Effort {
    /// Rounds of each figure.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Full => 7,
            Self::Quick => 3,
        }
    }

    /// Bursts of a round.
    pub(crate) fn bursts(self) -> usize {
        match self {
            Self::Full => 5,
            Self::Quick => 2,
        }
    }

    /// A number of repetitions that suits the effort.
    pub(crate) fn times(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => (full / 8).max(1),
        }
    }
}

/// A figure that was measured in rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The median of the rounds.
    pub value: f64,
    /// The least of them.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl Sample {
    /// Sample of a figure that is known.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    /// Sample of times, each measured by a burst: a round is the fastest of its bursts.
    pub fn measure(effort: Effort, mut burst: impl FnMut() -> f64) -> Self {
        let bursts = effort.rounds() * effort.bursts();
        Self::of_bursts(effort, &(0..bursts).map(|_| burst()).collect::<Vec<f64>>())
    }

    /// Sample of the times of bursts, in their order.
    pub(crate) fn of_bursts(effort: Effort, bursts: &[f64]) -> Self {
        let fastest = |round: &[f64]| round.iter().copied().fold(f64::INFINITY, f64::min);
        let rounds = bursts.chunks(effort.bursts()).map(fastest);
        Self::of_rounds(rounds.collect())
    }

    /// Sample of rounds.
    pub(crate) fn of_rounds(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let at = |place: usize| rounds.get(place).copied().unwrap_or(0.0);
        Self {
            value: at(rounds.len() / 2),
            low: at(0),
            high: at(rounds.len().saturating_sub(1)),
        }
    }

    /// The same in another unit; a function that falls swaps the ends.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (low, high) = (f(self.low), f(self.high));
        Self {
            value: f(self.value),
            low: low.min(high),
            high: low.max(high),
        }
    }

    /// The rest without another figure: at least 0.
    #[must_use]
    pub fn less(self, other: Sample) -> Self {
        Self {
            value: (self.value - other.value).max(0.0),
            low: (self.low - other.high).max(0.0),
            high: (self.high - other.low).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_its_fastest_burst_and_the_value_their_median() {
        let bursts = [9.0, 5.0, 3.0, 8.0, 4.0, 400.0];
        let sample = Sample::of_bursts(Effort::Quick, &bursts);
        assert_eq!((sample.low, sample.value, sample.high), (3.0, 4.0, 5.0));
        let mut calls = 0;
        Sample::measure(Effort::Full, || {
            calls += 1;
            1.0
        });
        assert_eq!(calls, 35);
    }

    #[test]
    fn a_range_stays_a_range() {
        let times = Sample::of_rounds(vec![4.0, 2.0, 1.0]);
        let rates = times.map(|ns| 8.0 / ns);
        assert_eq!((rates.low, rates.value, rates.high), (2.0, 4.0, 8.0));
        let rest = times.less(Sample::of_rounds(vec![3.0]));
        assert_eq!((rest.low, rest.value, rest.high), (0.0, 0.0, 1.0));
    }
}
