//! Effects of the number of CPUs: the users of a cache, and the number of its objects.
//!
//! *Users.* Work comes to CPUs at random: after `visits` of them, each on one of N CPUs, a cache is
//! used by `N (1 - (1 - 1/N)^visits)` CPUs. A cache that not all CPUs use thereby tells its visits,
//! and so its users on another machine. A cache that all use does not.
//!
//! *Exponent.* What the snapshot does not tell is taken to grow with the CPUs to the power of an
//! exponent. 0 means that it does not depend on them, 1 that each CPU has its own. The expected value
//! takes the middle, 1/2: nothing speaks for either end, and a prediction for more CPUs and back
//! again comes out where it began. This holds for the users of caches that all CPUs use. It holds for
//! the objects in full slabs, unless the cache's objects can be reclaimed: those stand for files and
//! names, not for CPUs.

/// Fewest, expected and most.
pub(super) type Range = [f64; 3];

/// The CPUs of the snapshot and of the other machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpus {
    old: f64,
    new: f64,
}

fn reached(visits: f64, cpus: f64) -> f64 {
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
    pub(super) fn new(old: u32, new: u32) -> Self {
        Self {
            old: f64::from(old.max(1)),
            new: f64::from(new.max(1)),
        }
    }

    /// CPUs of the snapshot.
    pub(super) fn old(&self) -> f64 {
        self.old
    }

    /// Factors of what depends on CPUs in an unknown way.
    pub(super) fn factors(&self) -> Range {
        let ratio = self.new / self.old;
        [ratio.min(1.0), ratio.sqrt(), ratio.max(1.0)]
    }

    /// The CPUs that use a cache which `users` use now.
    pub(super) fn users(&self, users: f64) -> Range {
        let users = users.min(self.old);
        if users <= 0.0 || self.old == self.new {
            return [users; 3];
        }
        let [least, middle, most] = self.factors();
        let fewest = (users * least).max(1.0);
        let most = (users * most).min(self.new);
        let expected = if users < self.old {
            let visits = (1.0 - users / self.old).ln() / (1.0 - 1.0 / self.old).ln();
            reached(visits, self.new)
        } else if self.new < self.old {
            self.new
        } else {
            users * middle
        };
        [
            fewest,
            expected.clamp(fewest, most.max(fewest)),
            most.max(fewest),
        ]
    }

    /// Returns the number of CPUs of the new machine that `visits` visits reach.
    pub(super) fn reached(&self, visits: f64) -> f64 {
        reached(visits, self.new)
    }

    /// The variance of the users on the new machine.
    pub(super) fn users_variance(&self, users: f64) -> f64 {
        variance(self.users(users)[1], self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_cpus() {
        let cpus = Cpus::new(16, 4);
        assert_eq!(cpus.users(16.0), [4.0; 3]);
        let [fewest, expected, most] = cpus.users(10.0);
        assert_eq!((fewest, most), (2.5, 4.0));
        assert!((3.9..4.0).contains(&expected), "{expected}");
        assert_eq!(cpus.users(1.0), [1.0; 3]);
        assert_eq!(cpus.users(0.0), [0.0; 3]);
        assert_eq!(cpus.factors(), [0.25, 0.5, 1.0]);
        assert_eq!(Cpus::new(16, 1).users(7.0), [1.0; 3]);
    }

    #[test]
    fn users_differ_by_chance() {
        // One visit reaches one CPU, many reach all.
        assert!(variance(1.0, 16.0) < 1e-9);
        assert_eq!(variance(16.0, 16.0), 0.0);
        assert_eq!(variance(1.0, 1.0), 0.0);
        // Two visits reach one CPU with the chance 1/4, else two.
        assert!((variance(1.75, 4.0) - 3.0 / 16.0).abs() < 1e-9);
        assert_eq!(Cpus::new(16, 4).users_variance(16.0), 0.0);
    }

    #[test]
    fn more_cpus() {
        let cpus = Cpus::new(4, 16);
        assert_eq!(cpus.users(4.0), [4.0, 8.0, 16.0]);
        let [fewest, expected, most] = cpus.users(3.0);
        assert_eq!((fewest, most), (3.0, 12.0));
        assert!((4.0..5.0).contains(&expected), "{expected}");
        assert_eq!(cpus.factors(), [1.0, 2.0, 4.0]);
        assert_eq!(Cpus::new(4, 4).users(3.0), [3.0; 3]);
        assert_eq!(Cpus::new(1, 4).users(1.0), [1.0, 2.0, 4.0]);
    }
}
