//! State of a line: the caches that have it.

/// A set of CPUs or clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Few(u128);

impl Few {
    pub(super) fn one(number: u32) -> Self {
        Self(1 << number)
    }

    pub(super) fn has(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    pub(super) fn without(self, number: u32) -> Self {
        Self(self.0 & !(1 << number))
    }

    pub(super) fn with(self, number: u32) -> Self {
        Self(self.0 | 1 << number)
    }

    pub(super) fn each(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(number)
        })
    }

    /// The only one, plus one; 0 if there is none, and `None` if there are several.
    fn at_most_one(self) -> Option<u32> {
        match self.0 {
            0 => Some(0),
            few => few.is_power_of_two().then(|| few.trailing_zeros() + 1),
        }
    }

    fn of_at_most_one(number: u32) -> Self {
        number.checked_sub(1).map_or(Self::default(), Self::one)
    }
}

/// A line, which no cache has at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The CPUs that have it.
    pub(super) holders: Few,
    /// The clusters whose last-level caches have it.
    pub(super) clusters: Few,
    /// The only holder may write.
    pub(super) exclusive: bool,
}

impl Line {
    /// True if one cluster's cache has it, and no CPU.
    pub(super) fn is_left_over(&self) -> bool {
        self.holders == Few::default() && self.clusters.at_most_one().is_some_and(|one| one > 0)
    }

    /// In one word, if at most one CPU and one cluster have it: their numbers plus one in a byte each.
    pub(super) fn packed(&self) -> Option<Packed> {
        let holder = self.holders.at_most_one()?;
        let cluster = self.clusters.at_most_one()?;
        Some(Packed(
            holder | cluster << 8 | u32::from(self.exclusive) << 16,
        ))
    }
}

/// A line in one word, or the number of its entry among those that need more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(u32);

impl Packed {
    const WIDE: u32 = 1 << 31;

    /// A line that no cache has.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn wide(number: u32) -> Self {
        Self(Self::WIDE | number)
    }

    /// Its entry, if it needs one.
    pub(super) fn entry(self) -> Option<u32> {
        (self.0 & Self::WIDE != 0).then_some(self.0 & !Self::WIDE)
    }

    /// The line of one that needs no entry.
    pub(super) fn line(self) -> Line {
        Line {
            holders: Few::of_at_most_one(self.0 & 0xff),
            clusters: Few::of_at_most_one(self.0 >> 8 & 0xff),
            exclusive: self.0 >> 16 & 1 == 1,
        }
    }

    /// True if a CPU is the only holder, and, if it has to be, may write.
    pub(super) fn is_held_by(self, cpu: u32, exclusive: bool) -> bool {
        self.0 & 0xff == cpu + 1 && self.0 & Self::WIDE == 0 && (!exclusive || self.0 >> 16 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_one_cpu_and_one_cluster_is_one_word() {
        let line = |holders: &[u32], clusters: &[u32], exclusive| Line {
            holders: holders.iter().fold(Few::default(), |all, &n| all.with(n)),
            clusters: clusters.iter().fold(Few::default(), |all, &n| all.with(n)),
            exclusive,
        };
        for line in [
            Line::default(),
            line(&[0], &[], true),
            line(&[127], &[127], false),
            line(&[], &[3], false),
        ] {
            let packed = line.packed().unwrap();
            assert_eq!((packed.line(), packed.entry()), (line, None));
        }
        assert_eq!(line(&[0, 1], &[], false).packed(), None);
        assert_eq!(line(&[0], &[2, 5], false).packed(), None);
        assert_eq!(Packed::wide(7).entry(), Some(7));
    }

    #[test]
    fn a_word_tells_whether_a_cpu_has_the_line_to_itself() {
        let mut line = Line {
            holders: Few::one(3),
            clusters: Few::one(0),
            exclusive: true,
        };
        let held = |line: Line, cpu, exclusive| line.packed().unwrap().is_held_by(cpu, exclusive);
        assert!(held(line, 3, true) && held(line, 3, false) && !held(line, 2, false));
        line.exclusive = false;
        assert!(!held(line, 3, true) && held(line, 3, false));
        // Entries say nothing by their numbers.
        assert!(!Packed::wide(4).is_held_by(3, false));
    }
}
