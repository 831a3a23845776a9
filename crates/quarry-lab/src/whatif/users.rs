//! How many CPUs use a cache on a machine with another number of CPUs.
//!
//! Work comes to CPUs at random: after `visits` of them, each on one of N CPUs, a cache is used by
//! `N (1 - (1 - 1/N)^visits)` CPUs. A cache that not all CPUs use thereby tells its visits. A cache
//! that all use had many; how many is not seen. Its visits are taken from the law that the other
//! caches of the snapshot follow: uniform in the logarithm, up to a number that explains how many
//! of the caches all CPUs use.

/// Most visits that are considered.
const VISITS_MAX: f64 = 10_000.0;
/// Points of the logarithmic grid up to [`VISITS_MAX`].
const POINTS: u32 = 400;

fn reached(visits: f64, cpus: f64) -> f64 {
    if cpus <= 1.0 {
        return 1.0;
    }
    cpus * (1.0 - (1.0 - 1.0 / cpus).powf(visits))
}

/// The chance that all CPUs are reached, as if they were reached independently.
fn all_reached(visits: f64, cpus: f64) -> f64 {
    (reached(visits, cpus) / cpus).powf(cpus)
}

/// The CPUs of a snapshot, and what its caches tell about who uses them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    cpus: f64,
    new_cpus: f64,
    /// Expected users on the new machine of a cache that all CPUs use.
    of_all: f64,
}

impl Users {
    /// From the number of CPUs that use each cache, for caches that any CPU uses.
    pub(super) fn new(cpus: u32, new_cpus: u32, used_by: &[f64]) -> Self {
        let (cpus, new_cpus) = (f64::from(cpus), f64::from(new_cpus));
        let all = used_by.iter().filter(|users| **users >= cpus).count() as f64;
        let share = all / (used_by.len() as f64).max(1.0);
        let mut sums = (0.0, 0.0, 0.0);
        for point in 0..POINTS {
            let visits = VISITS_MAX.powf(f64::from(point) / f64::from(POINTS));
            let chance = all_reached(visits, cpus);
            sums.0 += 1.0;
            sums.1 += chance;
            sums.2 += chance * reached(visits, new_cpus);
            if sums.1 >= share * sums.0 && visits > cpus {
                break;
            }
        }
        let of_all = if sums.1 > 0.0 {
            sums.2 / sums.1
        } else {
            new_cpus
        };
        Self {
            cpus,
            new_cpus,
            of_all,
        }
    }

    /// The CPUs that use a cache which `users` use now: fewest, expected, most.
    pub(super) fn scale(&self, users: f64) -> [f64; 3] {
        let users = users.min(self.cpus);
        if users <= 0.0 || self.cpus == self.new_cpus {
            return [users; 3];
        }
        let expected = if users >= self.cpus {
            if self.new_cpus < self.cpus {
                self.new_cpus
            } else {
                self.of_all.max(users)
            }
        } else {
            let visits = (1.0 - users / self.cpus).ln() / (1.0 - 1.0 / self.cpus).ln();
            reached(visits, self.new_cpus)
        };
        let proportional = users * self.new_cpus / self.cpus;
        let (fewest, most) = if self.new_cpus < self.cpus {
            (proportional.max(1.0), users.min(self.new_cpus))
        } else {
            (users, proportional)
        };
        let expected = expected.clamp(fewest.min(most), fewest.max(most));
        [fewest, expected, most]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_cpus() {
        let users = Users::new(16, 4, &[16.0, 10.0, 5.0, 1.0]);
        assert_eq!(users.scale(16.0), [4.0; 3]);
        let [fewest, expected, most] = users.scale(10.0);
        assert_eq!((fewest, most), (2.5, 4.0));
        assert!((3.9..4.0).contains(&expected), "{expected}");
        let [_, expected, most] = users.scale(1.0);
        assert_eq!((expected, most), (1.0, 1.0));
        assert_eq!(users.scale(0.0), [0.0; 3]);
    }

    #[test]
    fn more_cpus() {
        let few = Users::new(4, 16, &[4.0, 3.0, 2.0, 1.0, 1.0, 2.0]).scale(4.0);
        let many = Users::new(4, 16, &[4.0, 4.0, 4.0, 4.0, 4.0, 1.0]).scale(4.0);
        assert_eq!((few[0], few[2]), (4.0, 16.0));
        assert!(
            4.0 < few[1] && few[1] < many[1] && many[1] < 16.0,
            "{few:?} {many:?}"
        );
        assert_eq!(Users::new(4, 4, &[4.0]).scale(3.0), [3.0; 3]);
        // From one CPU on, nothing is known but the bounds.
        let [fewest, expected, most] = Users::new(1, 4, &[1.0]).scale(1.0);
        assert_eq!((fewest, most), (1.0, 4.0));
        assert!((1.0..=4.0).contains(&expected));
    }
}
