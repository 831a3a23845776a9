//! Which caches have a line.

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
}

/// A line, which no cache has at first.
#[derive(Default)]
pub(super) struct Line {
    /// The CPUs that have it.
    pub(super) holders: Few,
    /// The clusters whose last-level caches have it.
    pub(super) clusters: Few,
    /// Whether the only holder may write.
    pub(super) exclusive: bool,
    /// When its last transfer ends.
    busy_until_ps: u64,
}

impl Line {
    /// Moves for a time, once its last transfer has ended. Returns the moment at which it has come.
    pub(super) fn move_for(&mut self, ps: u64, now_ps: u64) -> u64 {
        self.busy_until_ps = self.busy_until_ps.max(now_ps) + ps;
        self.busy_until_ps
    }
}
