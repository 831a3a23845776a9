//! Effects of the number of CPUs: the users of a cache, and the number of its objects.
//!
//! *Users.* Work comes to CPUs at random: after `visits` of them, each on one of N CPUs, a cache is
//! used by `N (1 - (1 - 1/N)^visits)` CPUs. A cache that not all CPUs use thereby tells its visits,
//! and so its users on another machine. A cache that all use does not.
//!
//! The users of caches that all CPUs use are taken to grow with the CPUs to the power of an exponent. 0 means that they do
//! not depend on them, 1 that each CPU uses it. The expected value takes the middle, 1/2: nothing speaks for either end,
//! and a prediction for more CPUs and back again comes out where it began.
//!
//! *Objects.* Of what CPUs do not hold each CPU brings a number: `brought.rs`, and `possible.rs` of those that may come.

use crate::kernel::KernelModel;
use crate::lay::brought::Brought;
use crate::unknown::Level;

/// The CPUs of the snapshot and of the other machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    old: f64,
    new: f64,
    /// CPUs that are only possible there beyond those here.
    only_possible: f64,
}

/// CPUs that a number of visits reach, each at random.
pub(crate) fn reached(visits: f64, cpus: f64) -> f64 {
    if cpus <= 1.0 {
        return 1.0;
    }
    cpus * (1.0 - (1.0 - 1.0 / cpus).powf(visits))
}

/// The variance of the number of CPUs reached, whose mean is `mean`: both of two CPUs are missed with
/// the chance `(1 - 2/N)^visits`.
fn variance(mean: f64, cpus: f64) -> f64 {
    if mean >= cpus || cpus <= 2.0 {
        return 0.0;
    }
    let missed = 1.0 - mean / cpus;
    let visits = missed.ln() / (1.0 - 1.0 / cpus).ln();
    let both = (1.0 - 2.0 / cpus).powf(visits);
    let variance = cpus * missed + cpus * (cpus - 1.0) * both - (cpus * missed).powi(2);
    variance.max(0.0)
}

impl Cpus {
    pub(crate) fn new(old: u32, new: u32) -> Self {
        Self {
            old: f64::from(old.max(1)),
            new: f64::from(new.max(1)),
            only_possible: 0.0,
        }
    }

    /// Those of two kernels.
    pub(crate) fn of(old: &KernelModel, new: &KernelModel) -> Self {
        let only_possible =
            |kernel: &KernelModel| f64::from(kernel.nr_cpu_ids) - f64::from(kernel.cpus);
        Self {
            only_possible: only_possible(new) - only_possible(old),
            ..Self::new(old.cpus, new.cpus)
        }
    }

    /// True if the number at work stays.
    pub(crate) fn stay(&self) -> bool {
        self.old == self.new
    }

    /// True if the number of possible ones stays, too.
    pub(crate) fn are_same(&self) -> bool {
        self.stay() && self.only_possible == 0.0
    }

    /// Objects that the other machine's CPUs bring beyond those of this one; negative if it has fewer.
    pub(crate) fn brought(&self, level: Level, each: &Brought) -> f64 {
        let of = |more: f64, likely, most| {
            let level = if more < 0.0 { level.reversed() } else { level };
            more * match level {
                Level::Least => 0.0,
                Level::Most => most,
                level => level.of(likely),
            }
        };
        of(self.new - self.old, each.likely, each.most)
            + of(self.only_possible, each.possible, each.possible_most)
    }

    /// The CPUs that use a cache which `users` use now; `by_all` if all do on any machine.
    pub(crate) fn users(&self, level: Level, users: f64, by_all: bool) -> f64 {
        let users = users.min(self.old);
        if users <= 0.0 || self.stay() {
            return users;
        }
        let ratio = self.new / self.old;
        let fewest = (users * ratio.min(1.0)).max(1.0);
        let most = (users * ratio.max(1.0)).min(self.new).max(fewest);
        let expected = if users < self.old {
            let visits = (1.0 - users / self.old).ln() / (1.0 - 1.0 / self.old).ln();
            reached(visits, self.new).clamp(fewest, most)
        } else if self.new < self.old {
            self.new
        } else {
            (users * ratio.sqrt()).clamp(fewest, most)
        };
        match (level, by_all) {
            (Level::Least, _) => fewest,
            (_, true) => self.new,
            (level, false) => level.of([fewest, expected, most]),
        }
    }

    /// The variance of the users on the new machine: their number differs from boot to boot.
    pub(crate) fn users_variance(&self, users: f64, by_all: bool) -> f64 {
        variance(self.users(Level::Expected, users, by_all), self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(cpus: &Cpus, users: f64) -> [f64; 3] {
        Level::OF_RANGE.map(|level| cpus.users(level, users, false))
    }

    #[test]
    fn fewer_cpus() {
        let cpus = Cpus::new(16, 4);
        assert_eq!(users(&cpus, 16.0), [4.0; 3]);
        let [fewest, expected, most] = users(&cpus, 10.0);
        assert_eq!((fewest, most), (2.5, 4.0));
        assert!((3.9..4.0).contains(&expected), "{expected}");
        assert_eq!(users(&cpus, 1.0), [1.0; 3]);
        assert_eq!(users(&cpus, 0.0), [0.0; 3]);
        assert_eq!(users(&Cpus::new(16, 1), 7.0), [1.0; 3]);
    }

    #[test]
    fn users_differ_by_chance() {
        // One visit reaches one CPU, many reach all.
        assert!(variance(1.0, 16.0) < 1e-9);
        assert_eq!(variance(16.0, 16.0), 0.0);
        assert_eq!(variance(1.0, 1.0), 0.0);
        // Two visits reach one CPU with the chance 1/4, else two.
        assert!((variance(1.75, 4.0) - 3.0 / 16.0).abs() < 1e-9);
        assert_eq!(Cpus::new(16, 4).users_variance(16.0, false), 0.0);
    }

    #[test]
    fn more_cpus() {
        let cpus = Cpus::new(4, 16);
        assert_eq!(users(&cpus, 4.0), [4.0, 8.0, 16.0]);
        let [fewest, expected, most] = users(&cpus, 3.0);
        assert_eq!((fewest, most), (3.0, 12.0));
        assert!((4.0..5.0).contains(&expected), "{expected}");
        assert_eq!(users(&Cpus::new(4, 4), 3.0), [3.0; 3]);
        assert_eq!(users(&Cpus::new(1, 4), 1.0), [1.0, 2.0, 4.0]);
        assert_eq!(cpus.users(Level::Expected, 2.0, true), 16.0);
    }

    #[test]
    fn what_cpus_bring() {
        let each = Brought::of("kernfs_node_cache", 20_000.0, 4);
        let cpus = Cpus::new(4, 16);
        assert_eq!(cpus.brought(Level::Expected, &each), 12.0 * 162.0);
        let back = Cpus::new(16, 4);
        assert_eq!(back.brought(Level::Expected, &each), -12.0 * 162.0);
        assert!(back.brought(Level::Least, &each) < back.brought(Level::Most, &each));
        // Nothing is known that a CPU brings to it.
        let leak = Brought::of("ebitmap_node", 7e8, 16);
        assert_eq!(Cpus::new(16, 32).brought(Level::Expected, &leak), 0.0);
        assert_eq!(Cpus::new(16, 32).brought(Level::Most, &leak), 16.0 * 4096.0);
    }

    #[test]
    fn what_possible_cpus_bring() {
        let each = Brought {
            possible: [23.0, 46.0, 92.0],
            possible_most: 100.0,
            ..Brought::of("inode_cache", 20_000.0, 16)
        };
        let more = Cpus {
            only_possible: 48.0,
            ..Cpus::new(16, 16)
        };
        assert!(more.stay() && !more.are_same());
        let brought = Level::OF_RANGE.map(|level| more.brought(level, &each));
        assert_eq!(brought, [0.0, 48.0 * 46.0, 4800.0]);
        let fewer = Cpus {
            only_possible: -48.0,
            ..more
        };
        assert_eq!(fewer.brought(Level::Least, &each), -4800.0);
    }
}
