//! State of a line: the caches that have it.

/// Most CPUs of a machine with clocks.
pub const TIMED_CPUS_MAX: u32 = 512;

const WORDS: usize = TIMED_CPUS_MAX.div_ceil(u64::BITS) as usize;

/// A set of CPUs or clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Few([u64; WORDS]);

/// The word of a number, and its bit.
const fn place(number: u32) -> (usize, u64) {
    ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
}

impl Few {
    pub(super) fn one(number: u32) -> Self {
        Self::default().with(number)
    }

    pub(super) fn has(self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.0[word] & bit != 0
    }

    pub(super) fn without(mut self, number: u32) -> Self {
        let (word, bit) = place(number);
        self.0[word] &= !bit;
        self
    }

    pub(super) fn with(mut self, number: u32) -> Self {
        let (word, bit) = place(number);
        self.0[word] |= bit;
        self
    }

    pub(super) fn each(self) -> impl Iterator<Item = u32> {
        let mut words = (0..).step_by(u64::BITS as usize).zip(self.0);
        let (mut first, mut left) = (0, 0_u64);
        std::iter::from_fn(move || {
            while left == 0 {
                (first, left) = words.next()?;
            }
            let number = first + left.trailing_zeros();
            left &= left - 1;
            Some(number)
        })
    }

    /// The only one, plus one; 0 if there is none, and `None` if there are several.
    fn at_most_one(self) -> Option<u32> {
        let mut each = self.each();
        match (each.next(), each.next()) {
            (None, _) => Some(0),
            (Some(only), None) => Some(only + 1),
            _ => None,
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

    /// In one word, if at most one CPU and one cluster have it: their numbers plus one in [`NUMBER_BITS`] each.
    pub(super) fn packed(&self) -> Option<Packed> {
        let holder = self.holders.at_most_one()?;
        let cluster = self.clusters.at_most_one()?;
        let exclusive = u32::from(self.exclusive);
        Some(Packed(
            holder | cluster << NUMBER_BITS | exclusive << (2 * NUMBER_BITS),
        ))
    }
}

/// Bits of a number plus one.
const NUMBER_BITS: u32 = 10;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;
const _: () = assert!(TIMED_CPUS_MAX <= NUMBER);

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
            holders: Few::of_at_most_one(self.0 & NUMBER),
            clusters: Few::of_at_most_one(self.0 >> NUMBER_BITS & NUMBER),
            exclusive: self.0 >> (2 * NUMBER_BITS) & 1 == 1,
        }
    }

    /// True if a CPU is the only holder, and, if it has to be, may write.
    pub(super) fn is_held_by(self, cpu: u32, exclusive: bool) -> bool {
        let may_write = self.0 >> (2 * NUMBER_BITS) == 1;
        self.0 & NUMBER == cpu + 1 && self.0 & Self::WIDE == 0 && (!exclusive || may_write)
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
            line(&[TIMED_CPUS_MAX - 1], &[300], true),
            line(&[], &[3], false),
        ] {
            let packed = line.packed().unwrap();
            assert_eq!((packed.line(), packed.entry()), (line, None));
        }
        assert_eq!(line(&[0, 1], &[], false).packed(), None);
        assert_eq!(line(&[63, 64], &[], false).packed(), None);
        assert_eq!(line(&[0], &[2, 5], false).packed(), None);
        assert_eq!(Packed::wide(7).entry(), Some(7));
    }

    #[test]
    fn a_set_has_what_was_added_in_order() {
        let numbers = [0, 63, 64, 127, 128, TIMED_CPUS_MAX - 1];
        let few = numbers
            .iter()
            .rev()
            .fold(Few::default(), |few, &n| few.with(n));
        assert_eq!(few.each().collect::<Vec<_>>(), numbers);
        let without = few.without(64);
        assert!(few.has(64) && !few.has(65) && !without.has(64) && without.has(128));
        assert_eq!(without.with(64), few);
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
