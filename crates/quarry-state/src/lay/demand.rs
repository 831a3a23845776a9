//! Number of objects that a cache's CPUs have taken, by the slabs they took them in.
//!
//! A CPU takes objects in *grains*: SLUB's whole slabs, other designs' batches. Of `users` CPUs
//! that hold a grain each, `full` further grains have been used up. What the last grain of a CPU
//! has been used for is hidden: the kernel counts all of it as in use.
//!
//! The demand of a CPU is taken as memoryless: each object after the first is followed by another
//! with the same chance, so the number of used-up grains is geometric. The used part of the last
//! one is of the same law, cut off at the grain's end. The demand's mean is unknown. Its prior
//! prefers no scale (Jeffreys' for this law, which is flat in the logarithm of the mean) and is
//! weighed by what is seen: `full` grains used up, `users` not. So "none of 16 CPUs has filled its
//! slab of 8" says that the demand is far below 8, without saying that it is nothing.
//!
//! A debugger may have read what CPUs use of their last grains; then nothing of this is needed.

use std::sync::{Arc, Mutex, PoisonError};

use crate::unknown::Level;

/// The demand on a cache.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Objects of a grain.
    pub(crate) grain: f64,
    /// Grains that have been used up.
    pub(crate) full: f64,
    /// CPUs that hold one.
    pub(crate) users: f64,
    last: Last,
}

/// Use of the last grain of each CPU.
#[derive(Clone, Debug)]
enum Last {
    /// Likely demands.
    Likely(Arc<Posterior>),
    /// Objects that were read, of each CPU that was seen.
    Known(Arc<[f64]>),
}

/// Likely demands.
#[derive(Debug)]
struct Posterior {
    /// One at least.
    likely: Vec<Likely>,
    /// Expected grains that were asked for last, with the grain and the demand: other unknowns leave them as they are.
    known: Mutex<([f64; 3], f64)>,
}

/// A demand with its weight.
#[derive(Clone, Copy, Debug)]
struct Likely {
    /// Logarithm of the chance of another object.
    ln_s: f64,
    /// Weight; all together are 1.
    weight: f64,
    /// Chance of another object to the power of the grain, less 1.
    end: f64,
}

impl Likely {
    /// The chance of more than `objects` of a grain: (s^objects - s^grain) / (1 - s^grain), also where s is next to 1.
    fn above(&self, objects: f64) -> f64 {
        1.0 - (self.ln_s * objects).exp_m1() / self.end
    }

    /// The demand that is not exceeded with this likelihood; demands grow with their place.
    fn at(all: &[Self], part: f64) -> Self {
        let mut sum = 0.0;
        let reached = all.iter().position(|likely| {
            sum += likely.weight;
            sum >= part
        });
        all[reached.unwrap_or(all.len() - 1)]
    }
}

/// Terms of a sum after which the rest is what a smooth demand would give.
const TERMS: u32 = 512;
/// Objects that may be left of a grain and are remembered.
const RESTS: usize = 4096;
/// Points of the grid of demands, evenly in the logarithm of the mean.
const POINTS: u32 = 160;
/// The smallest mean that is considered; the chance of a second object is then next to nothing.
const MEAN_MIN: f64 = 0.1;
/// The largest, in what has been seen per CPU.
const MEAN_MAX: f64 = 100.0;

/// The posterior weights of the demands.
fn likely(grain: f64, full: f64, users: f64) -> Arc<Posterior> {
    let mean_max = grain * (full / users.max(1.0) + 1.0) * MEAN_MAX;
    let steps = (mean_max / MEAN_MIN).ln() / f64::from(POINTS);
    let mut points: Vec<Likely> = (0..POINTS)
        .map(|point| {
            let mean = MEAN_MIN * (f64::from(point) * steps).exp();
            // Another object follows with the chance s.
            let ln_s = -1.0 / mean;
            // s^(-1/2) / (1 - s) ds, where ds is s / mean times a step of the logarithm.
            let prior = (0.5 * ln_s).exp() / -ln_s.exp_m1() / mean;
            let end = (ln_s * grain).exp_m1();
            let seen = ln_s * grain * full + users * (-end).ln();
            // Its logarithm first.
            let weight = prior.ln() + seen;
            Likely { ln_s, weight, end }
        })
        .collect();
    let top = points.iter().map(|point| point.weight);
    let top = top.fold(f64::MIN, f64::max);
    for point in &mut points {
        point.weight = (point.weight - top).exp();
    }
    // The likeliest has the weight 1 here; the others are not missed.
    points.retain(|point| point.weight > 1e-6);
    let sum: f64 = points.iter().map(|point| point.weight).sum();
    points.iter_mut().for_each(|point| point.weight /= sum);
    Arc::new(Posterior {
        likely: points,
        known: Mutex::new(([f64::NAN; 3], 0.0)),
    })
}

impl Demand {
    pub(crate) fn new(grain: f64, full: f64, users: f64) -> Self {
        Self {
            grain,
            full,
            users,
            last: Last::Likely(likely(grain, full, users)),
        }
    }

    /// A demand of whose users is known how many objects of the last grain are in use.
    pub(crate) fn known(grain: f64, full: f64, used: Vec<f64>) -> Self {
        Self {
            grain,
            full,
            users: used.len() as f64,
            last: Last::Known(used.into()),
        }
    }

    /// The chance that a CPU has taken more than `objects` of its last grain; of one object at the least, of all at the
    /// most.
    fn hidden_above(&self, objects: f64, hidden: Level) -> f64 {
        match (hidden, &self.last) {
            // A CPU may hold a grain that it uses nothing of.
            (_, Last::Known(_)) if objects < 1.0 => 1.0,
            (_, Last::Known(used)) => {
                let above = used.iter().filter(|used| **used > objects).count();
                above as f64 / used.len().max(1) as f64
            }
            (Level::Least, _) => f64::from(objects < 1.0),
            (Level::Most, _) => 1.0,
            (Level::Expected, Last::Likely(posterior)) => posterior
                .likely
                .iter()
                .map(|likely| likely.weight * likely.above(objects))
                .sum(),
            (Level::At(part), Last::Likely(posterior)) => {
                Likely::at(&posterior.likely, part).above(objects)
            }
        }
    }

    /// Grains of `grain` objects that the same demand takes, of all users. A user takes one at
    /// least.
    pub(crate) fn grains(&self, grain: f64, hidden: Level) -> f64 {
        let (Level::Expected, Last::Likely(posterior)) = (hidden, &self.last) else {
            return self.computed_grains(grain, hidden);
        };
        let asked = [grain, self.full, self.users];
        let known = posterior.known.lock();
        // What a panic left there is whole: both are written at once.
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if known.0 != asked {
            *known = (asked, self.computed_grains(grain, hidden));
        }
        known.1
    }

    fn computed_grains(&self, grain: f64, hidden: Level) -> f64 {
        if self.users <= 0.0 {
            return self.full * self.grain / grain;
        }
        let q = self.full / (self.full + self.users);
        let mut per_user = 0.0;
        // Grains are whole objects, so terms differ in few ways in what is left of the last: by its place here.
        let mut rests: Vec<Option<f64>> = vec![None; (self.grain as usize).min(RESTS)];
        // Of small grains many terms lie in one of the other's.
        let (mut before, mut reached) = (0.0, 1.0);
        for k in 0..TERMS {
            let objects = f64::from(k) * grain;
            let used_up = (objects / self.grain).floor();
            if used_up > before {
                (before, reached) = (used_up, q.powf(used_up));
            }
            if reached < 1e-9 {
                return self.users * per_user;
            }
            let left = objects - used_up * self.grain;
            let place = rests.get_mut(left as usize);
            let rest = match place.filter(|_| left.fract() == 0.0) {
                Some(place) => *place.get_or_insert_with(|| self.hidden_above(left, hidden)),
                None => self.hidden_above(left, hidden),
            };
            per_user += reached * (q + (1.0 - q) * rest);
        }
        // Far beyond a grain of either size: what is left is spread evenly.
        let objects = f64::from(TERMS) * grain;
        let left = q.powf(objects / self.grain) * self.grain / (1.0 - q);
        self.users * (per_user + left / grain)
    }

    /// Objects taken, those of the hidden part as estimated.
    pub(crate) fn objects(&self) -> f64 {
        self.full * self.grain + self.users * self.used()
    }

    /// Objects of a user's last grain that are in use, in the mean.
    pub(crate) fn used(&self) -> f64 {
        let likely = match &self.last {
            Last::Known(used) => return used.iter().sum::<f64>() / used.len().max(1) as f64,
            Last::Likely(posterior) => &posterior.likely,
        };
        let hidden: f64 = likely
            .iter()
            // The mean of the law that is cut off at the end of the grain.
            .map(|Likely { ln_s, weight, end }| {
                let reached = (ln_s * self.grain).exp();
                weight * (-1.0 / ln_s.exp_m1() - self.grain * reached / -end)
            })
            .sum();
        hidden.clamp(1.0, self.grain.max(1.0))
    }

    /// The same law with other CPUs.
    pub(crate) fn with(&self, full: f64, users: f64) -> Self {
        Self {
            full,
            users,
            ..self.clone()
        }
    }
}

/// Slabs that scattered objects pin.
///
/// `slabs` slabs of `slots` slots hold `objects` objects, none is empty: those that became empty
/// are gone. Taking the objects as what is left of many that were freed at random, the number in a
/// slab is Poisson's, zero left out; its mean says how many slabs became empty. The same objects
/// at the same places pin this many slabs of `new_slots` slots.
pub(crate) fn pinned(slabs: f64, objects: f64, slots: f64, new_slots: f64) -> f64 {
    if slabs <= 0.0 || objects <= 0.0 {
        return slabs * slots / new_slots;
    }
    let mean = mean_with_zeros(objects / slabs);
    let before = slabs / -(-mean).exp_m1();
    let new_mean = mean * new_slots / slots;
    before * slots / new_slots * -(-new_mean).exp_m1()
}

/// Slabs that hold `left` objects when of `slabs` slabs with `objects` objects others were freed at
/// random, as [`pinned`] takes them to lie.
pub(crate) fn thinned(slabs: f64, objects: f64, left: f64) -> f64 {
    if slabs <= 0.0 || objects <= 0.0 {
        return 0.0;
    }
    let mean = mean_with_zeros(objects / slabs);
    let before = slabs / -(-mean).exp_m1();
    before * -(-mean * left / objects).exp_m1()
}

/// The mean of Poisson's law from its mean where zeros are left out.
fn mean_with_zeros(mean_without: f64) -> f64 {
    // x / (1 - exp(-x)) grows with x from 1 on; a mean of one object means scattered singles.
    let target = mean_without.max(1.001);
    // Newton's method from above: the function is convex, so no step goes below the solution, and its slope is from a half
    // to 1, so few steps are left once they are small.
    let mut x: f64 = target;
    for _ in 0..60 {
        let zeros = (-x).exp();
        let some = -(-x).exp_m1();
        let slope = (some - x * zeros) / (some * some);
        let next = x - (x / some - target) / slope;
        if (next - x).abs() <= x * 1e-15 {
            return next;
        }
        x = next;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        let error = (found - expected).abs() / expected.max(1.0);
        assert!(error < 0.01, "{found} is not {expected}");
    }

    #[test]
    fn the_same_grain_changes_nothing() {
        for (full, users) in [(0.0, 16.0), (4.0, 6.0), (77.0, 1.0), (100_000.0, 2.0)] {
            for hidden in [Level::Least, Level::Expected, Level::Most] {
                let demand = Demand::new(21.0, full, users);
                close(demand.grains(21.0, hidden), full + users);
            }
        }
        close(
            Demand::new(21.0, 3.0, 0.0).grains(7.0, Level::Expected),
            9.0,
        );
    }

    #[test]
    fn smaller_grains_show_the_hidden_part() {
        // No CPU has filled a grain of 8: at least one object each, at most 8.
        let demand = Demand::new(8.0, 0.0, 16.0);
        close(demand.grains(2.0, Level::Least), 16.0);
        close(demand.grains(2.0, Level::Most), 64.0);
        let expected = demand.grains(2.0, Level::Expected);
        assert!((18.0..32.0).contains(&expected), "{expected}");
        assert!((16.0..64.0).contains(&demand.objects()));
        // Much has been used up: half of the last grain is in use, and half of the new one.
        let demand = Demand::new(8.0, 1000.0, 1.0);
        close(demand.grains(2.0, Level::Expected), 4002.5);
        close(demand.objects(), 8004.0);
    }

    #[test]
    fn what_was_read_is_not_estimated() {
        let demand = Demand::known(8.0, 3.0, vec![0.0, 1.0, 5.0, 8.0]);
        close(demand.objects(), 24.0 + 14.0);
        close(demand.used(), 3.5);
        for hidden in [Level::Least, Level::Expected, Level::Most] {
            // Each CPU holds a grain, also where it uses nothing of it.
            close(demand.grains(8.0, hidden), 7.0);
        }
        let fresh = Demand::known(8.0, 0.0, vec![1.0, 5.0, 8.0]);
        let halves = [Level::Least, Level::Most].map(|hidden| fresh.grains(4.0, hidden));
        assert_eq!(halves, [5.0; 2]);
    }

    #[test]
    fn larger_grains_hold_more() {
        let demand = Demand::new(10.0, 1000.0, 10.0);
        // Ten CPUs with 1005 objects each on average, spread widely.
        close(
            demand.grains(1000.0, Level::Expected),
            10.0 / -(-1000.0 / 1005.0f64).exp_m1(),
        );
        close(Demand::new(10.0, 0.0, 3.0).grains(80.0, Level::Most), 3.0);
    }

    #[test]
    fn scattered_objects_pin_slabs() {
        close(pinned(10.0, 37.0, 16.0, 16.0), 10.0);
        // Single survivors pin a slab of any size.
        close(pinned(10.0, 10.0, 16.0, 8.0), 10.0);
        close(pinned(10.0, 10.0, 16.0, 32.0), 10.0);
        // Nearly full slabs are cut and joined.
        close(pinned(10.0, 150.0, 16.0, 8.0), 20.0);
        close(pinned(10.0, 150.0, 16.0, 32.0), 5.0);
        close(pinned(4.0, 0.0, 16.0, 8.0), 8.0);
    }

    #[test]
    fn fewer_objects_pin_fewer_slabs() {
        close(thinned(10.0, 37.0, 37.0), 10.0);
        assert_eq!(thinned(10.0, 37.0, 0.0), 0.0);
        assert_eq!(thinned(0.0, 0.0, 0.0), 0.0);
        // Scattered objects each have a slab of their own, crowded ones share.
        close(thinned(10.0, 10.0, 5.0), 5.0);
        let crowded = thinned(10.0, 100.0, 50.0);
        assert!((9.5..10.0).contains(&crowded), "{crowded}");
    }
}
