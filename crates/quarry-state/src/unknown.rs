//! Unknown quantities of a cache, as points of distributions.
//!
//! A cache's slabs elsewhere are a function of a [`Point`]: a [`Level`] for each [`Unknown`]. All at their least, as
//! expected and all at their most give what can be excluded and what is expected. Where the total lies nine times in ten
//! follows from one unknown at a time: the distances from the expected value to where it is 5 and 95 % likely to be lower.
//! Distances of what is independent of each other are added as squares, those of what is common to all caches as they
//! are: [`Spread`].

use std::ops::Index;

/// Least, expected and most.
pub(crate) type Range = [f64; 3];

/// Adds the ends, and what is expected, of ranges that have one cause.
pub(crate) fn sum(ranges: impl Iterator<Item = Range>) -> Range {
    ranges.fold([0.0; 3], |sum, range| {
        std::array::from_fn(|end| sum[end] + range[end])
    })
}

/// A point of the distribution of one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Level {
    /// Nothing less can be excluded.
    Least,
    /// It is lower with this likelihood.
    At(f64),
    /// The mean.
    Expected,
    /// Nothing more can be excluded.
    Most,
}

/// Likelihoods between which a quantity lies nine times in ten.
const NINE_IN_TEN: [f64; 2] = [0.05, 0.95];
/// Half of the width of nine in ten of a normal distribution, in standard deviations.
pub(crate) const NORMAL: f64 = 1.645;

impl Level {
    /// The ends of what can be excluded, and what is expected between them: as a [`Range`] has them.
    pub(crate) const OF_RANGE: [Self; 3] = [Level::Least, Level::Expected, Level::Most];

    /// A quantity that nothing is known of but its ends and what is expected: as likely below that as above, and evenly
    /// on each side.
    pub(crate) fn of(self, [least, expected, most]: Range) -> f64 {
        match self {
            Level::Least => least,
            Level::Expected => expected,
            Level::Most => most,
            Level::At(part) if part < 0.5 => least + (expected - least) * 2.0 * part,
            Level::At(part) => expected + (most - expected) * (2.0 * part - 1.0),
        }
    }

    /// The level of a quantity that takes away.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Level::Least => Level::Most,
            Level::At(part) => Level::At(1.0 - part),
            Level::Expected => Level::Expected,
            Level::Most => Level::Least,
        }
    }
}

/// Quantities of a cache that a snapshot does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Objects in use of what CPUs took last.
    Hidden,
    /// Places of objects in slabs that are not full.
    Placed,
    /// Objects in sheaves.
    Kept,
    /// Size of the load that has gone.
    Went,
    /// Slabs on the lists of CPUs.
    Lists,
    /// CPUs that use the cache on a machine with another number of them.
    Users,
    /// Objects that exist because of a CPU.
    Objects,
}

impl Unknown {
    pub(crate) const ALL: [Self; 7] = [
        Self::Hidden,
        Self::Placed,
        Self::Kept,
        Self::Went,
        Self::Lists,
        Self::Users,
        Self::Objects,
    ];

    /// Part of its variance that all caches have in common: a configuration's CPUs bring many objects to all of them or few.
    /// How many CPUs use a cache is half the load's, half the cache's.
    pub(crate) fn common(self) -> f64 {
        match self {
            Self::Objects => 1.0,
            Self::Users => 0.5,
            _ => 0.0,
        }
    }
}

/// A level of each unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point([Level; Unknown::ALL.len()]);

impl Point {
    /// All at one level.
    pub(crate) const fn all(level: Level) -> Self {
        Self([level; Unknown::ALL.len()])
    }

    /// One at another level.
    pub(crate) fn with(mut self, unknown: Unknown, level: Level) -> Self {
        self.0[unknown as usize] = level;
        self
    }
}

impl Index<Unknown> for Point {
    type Output = Level;

    fn index(&self, unknown: Unknown) -> &Level {
        &self.0[unknown as usize]
    }
}

/// Distances from an expected value to the ends of nine in ten, neither below 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) less: f64,
    pub(crate) more: f64,
}

impl Spread {
    /// The same on both sides.
    pub(crate) fn even(width: f64) -> Self {
        Self {
            less: width,
            more: width,
        }
    }

    /// From an expected value to those at the ends of nine in ten, whichever way they lie.
    pub(crate) fn around(expected: f64, value: impl Fn(Level) -> f64) -> Self {
        let [a, b] = NINE_IN_TEN.map(|part| value(Level::At(part)));
        Self {
            less: (expected - a.min(b)).max(0.0),
            more: (a.max(b) - expected).max(0.0),
        }
    }

    /// The spread of a quantity that lies evenly on each side of what is expected: [`Level::of`].
    pub(crate) fn of([least, expected, most]: Range) -> Self {
        Self::around(0.0, |level| {
            level.of([least - expected, 0.0, most - expected])
        })
    }

    /// The spread of a quantity that lies evenly between `less` below and `more` above what is expected.
    pub(crate) fn evenly(less: f64, more: f64) -> Self {
        // The middle is expected of what lies evenly, and what is expected here need not be there.
        let middle = (more - less) / 2.0;
        Self::around(0.0, |level| level.of([-less, middle, more]))
    }

    /// Both together, if they have nothing to do with each other.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            less: self.less.hypot(other.less),
            more: self.more.hypot(other.more),
        }
    }

    /// Both together, if they have one cause.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            less: self.less + other.less,
            more: self.more + other.more,
        }
    }

    /// In other units.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            less: self.less * factor,
            more: self.more * factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_quantiles() {
        let range = [0.0, 10.0, 100.0];
        let at = |part| Level::At(part).of(range);
        assert_eq!(
            [at(0.0), at(0.25), at(0.5), at(1.0)],
            [0.0, 5.0, 10.0, 100.0]
        );
        assert_eq!(Level::Least.of(range), 0.0);
        assert_eq!(Level::Expected.of(range), 10.0);
        assert_eq!(Level::Most.of(range), 100.0);
    }

    #[test]
    fn independent_spreads_add_as_squares() {
        let (three, four) = (Spread::even(3.0), Spread::even(4.0));
        assert_eq!(three.beside(four), Spread::even(5.0));
        assert_eq!(three.with(four), Spread::even(7.0));
        // A quantity that can only be less, evenly: one time in twenty by almost nothing.
        let only_less = Spread::evenly(100.0, 0.0);
        assert_eq!((only_less.less, only_less.more), (95.0, 0.0));
    }
}
