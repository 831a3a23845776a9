//! Fail injection: allocations that fail on purpose.

/// When allocations of caches with the letter A fail. The names are those of the kernel's
/// `failslab` settings; all conditions must hold for an allocation to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailSlab {
    /// How likely an allocation fails, in percent; 0 switches injection off.
    pub probability: u32,
    /// Only one in `interval` allocations may fail; with 0 or 1, each may.
    pub interval: u32,
    /// How many may fail; `None` for any number.
    pub times: Option<u32>,
    /// Bytes that can be allocated before the first failure.
    pub space: u64,
    /// Where the random numbers start: the same seed fails the same allocations.
    pub seed: u64,
}

impl FailSlab {
    /// Nothing fails.
    pub const OFF: Self = FailSlab {
        probability: 0,
        interval: 1,
        times: None,
        space: 0,
        seed: 0,
    };
}

impl Default for FailSlab {
    fn default() -> Self {
        Self::OFF
    }
}

/// The settings, and how far they are used up.
pub(super) struct Injector {
    settings: FailSlab,
    left: Option<u32>,
    space: u64,
    calls: u32,
    random: u64,
    failed: u64,
}

impl Injector {
    pub(super) const fn new(settings: FailSlab) -> Self {
        Self {
            settings,
            left: settings.times,
            space: settings.space,
            calls: 0,
            random: settings.seed,
            failed: 0,
        }
    }

    /// Allocations that failed since the settings were made.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Whether an allocation of `bytes` bytes fails.
    pub(super) fn should_fail(&mut self, bytes: u64) -> bool {
        if self.settings.probability == 0 || self.left == Some(0) {
            return false;
        }
        if self.space > bytes {
            self.space -= bytes;
            return false;
        }
        self.space = 0;
        self.calls = self.calls.wrapping_add(1);
        if self.settings.interval > 1 && !self.calls.is_multiple_of(self.settings.interval) {
            return false;
        }
        if self.next_percent() >= self.settings.probability {
            return false;
        }
        self.left = self.left.map(|left| left - 1);
        self.failed += 1;
        true
    }

    /// A number of 0..100: the counter steps, the rest mixes it (splitmix64).
    fn next_percent(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % 100) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn run(settings: FailSlab, bytes: u64, calls: usize) -> Vec<bool> {
        let mut injector = Injector::new(settings);
        (0..calls).map(|_| injector.should_fail(bytes)).collect()
    }

    #[test]
    fn all_conditions_must_hold() {
        let always = FailSlab {
            probability: 100,
            ..FailSlab::OFF
        };
        assert!(run(always, 64, 50).iter().all(|failed| *failed));
        assert!(!run(FailSlab::OFF, 64, 50).contains(&true));
        let thirds = run(
            FailSlab {
                interval: 3,
                ..always
            },
            64,
            9,
        );
        let expected: Vec<bool> = (1..=9).map(|call| call % 3 == 0).collect();
        assert_eq!(thirds, expected);
        let twice = run(
            FailSlab {
                times: Some(2),
                ..always
            },
            64,
            9,
        );
        assert_eq!(twice.iter().filter(|failed| **failed).count(), 2);
        let later = run(
            FailSlab {
                space: 200,
                ..always
            },
            64,
            5,
        );
        assert_eq!(later, [false, false, false, true, true]);
    }

    #[test]
    fn a_seed_repeats() {
        let some = |seed| FailSlab {
            probability: 30,
            seed,
            ..FailSlab::OFF
        };
        let first = run(some(7), 64, 1000);
        assert_eq!(first, run(some(7), 64, 1000));
        assert_ne!(first, run(some(8), 64, 1000));
        let failed = first.iter().filter(|failed| **failed).count();
        assert!((230..370).contains(&failed), "{failed} of 1000 at 30 %");
    }
}
