//! Memory of objects whose free has no event: how much at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most intervals of time that are told apart.
const INTERVALS: usize = 1024;

/// Memory of objects whose free has no event ([`Waiting`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UnseenFrees {
    /// Bytes in the mean over the recording, or the load's part of it.
    pub mean_bytes: u64,
    /// Most bytes at once, to about a thousandth of the time.
    pub most_bytes: u64,
}

/// Bytes over time of objects that ended without an event, each from its allocation to the event that proved its end.
///
/// Within that time the object was used, then waited for a grace period, and then lay free: nothing tells when. So the
/// bytes are at most those that wait. The memory is `INTERVALS` numbers, whatever the length of the recording.
///
/// ```
/// use quarry_trace::Waiting;
///
/// let mut waiting = Waiting::default();
/// waiting.add(100, 0, 1_000);
/// waiting.add(50, 500, 2_000);
/// let found = waiting.within(0, 2_000);
/// assert_eq!((found.mean_bytes, found.most_bytes), ((100 * 1_000 + 50 * 1_500) / 2_000, 150));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    /// Bytes that begin in each interval, less those that ended in the one before.
    changes: Vec<i64>,
    /// Start of the first interval.
    from_ns: u64,
    /// Length of an interval as a power of two.
    shift: u32,
    /// Sum of bytes times nanoseconds.
    byte_ns: u128,
}

impl Waiting {
    /// Adds an object that was allocated at one time and whose memory was used again at another.
    pub fn add(&mut self, bytes: u32, from_ns: u64, until_ns: u64) {
        if self.changes.is_empty() {
            self.changes = vec![0; INTERVALS];
            self.from_ns = from_ns;
        }
        let until_ns = until_ns.max(from_ns);
        self.byte_ns += u128::from(bytes) * u128::from(until_ns - from_ns);
        // Objects come in the order of their ends: one that was made before the first counts from there.
        let [from, until] = [from_ns, until_ns].map(|at_ns| at_ns.saturating_sub(self.from_ns));
        while until >> self.shift >= INTERVALS as u64 - 1 {
            self.widen();
        }
        let bytes = i64::from(bytes);
        self.changes[(from >> self.shift) as usize] += bytes;
        self.changes[(until >> self.shift) as usize + 1] -= bytes;
    }

    /// Makes intervals twice as long.
    fn widen(&mut self) {
        self.shift += 1;
        // What ended with an interval that has become half of one ends with the whole.
        for at in 0..INTERVALS / 2 {
            self.changes[at] = self.changes[2 * at] + self.changes[2 * at + 1];
        }
        self.changes[INTERVALS / 2..].fill(0);
    }

    /// The mean over a time, and the most at once.
    #[must_use]
    pub fn within(&self, from_ns: u64, until_ns: u64) -> UnseenFrees {
        let length_ns = u128::from(until_ns.saturating_sub(from_ns).max(1));
        let sums = self.changes.iter().scan(0_i64, |sum, change| {
            *sum += change;
            Some(*sum)
        });
        UnseenFrees {
            mean_bytes: u64::try_from(self.byte_ns / length_ns).unwrap_or(u64::MAX),
            most_bytes: sums.max().unwrap_or(0).max(0).unsigned_abs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added() {
        assert_eq!(Waiting::default().within(0, 9), UnseenFrees::default());
    }

    #[test]
    fn long_recordings_keep_mean_and_most() {
        let mut waiting = Waiting::default();
        // One after the other, each for a second; an interval has 2^33 ns, in which ten begin or end.
        for second in 0..5_000_u64 {
            waiting.add(64, second * 1_000_000_000, (second + 1) * 1_000_000_000 - 1);
        }
        let found = waiting.within(0, 5_000_000_000_000);
        assert_eq!(found.mean_bytes, 63, "64, less a nanosecond of each second");
        assert!((64..=64 * 10).contains(&found.most_bytes), "{found:?}");
    }

    #[test]
    fn clocks_may_step_back() {
        let mut waiting = Waiting::default();
        waiting.add(8, 1_000, 900);
        waiting.add(8, 10, 1_000);
        assert_eq!(waiting.within(0, 1_000).most_bytes, 16);
        waiting.add(1, 0, u64::MAX);
        assert!(waiting.within(0, u64::MAX).most_bytes >= 1);
    }
}
