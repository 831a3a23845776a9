//! What sheaves and barns keep of a cache, and which slabs that pins.
//!
//! *What they keep.* A CPU has a main and a spare sheaf, a node's barn keeps full ones up to its
//! limit. Objects in them count as active, and stay while memory lasts. When a load goes, frees
//! fill the main sheaf, then the spare one, then the barn, and only then slabs. So after it barns and
//! spare sheaves are full, and a main sheaf holds any number: half. Most is all of them full.
//!
//! *How far a load went* no snapshot of SLUB tells: it frees all slabs but some that stay idle (on
//! CPUs, on their partial lists, and up to `min_partial` empty ones on a node's list). What is left
//! over is taken as equally likely to be any part of what there was at most. With Jeffreys' prior
//! of a scale for the most, the chance that there were more than x times as many slabs is 1/x.
//!
//! *Where the kept objects lie.* Kept are the objects freed last. Free objects in slabs that are
//! still there were freed later than those of slabs that are gone. So the kept objects fill these
//! first; only the rest lies in slabs that SLUB has given back, at random, and pins them.
//!
//! *A load that only grows* takes objects in whole sheaves. That is a demand of this grain (`demand.rs`).

/// Sheaves that a cache can fill.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sheaves {
    /// Objects of a sheaf; 0 if the cache has none.
    pub(super) capacity: f64,
    /// CPUs at work.
    pub(super) cpus: f64,
    /// Full sheaves in all barns at most.
    pub(super) in_barns: f64,
}

/// Of SLUB's idle slabs and the objects that sheaves keep beyond the free ones in the slabs that
/// are there: what they pin where the load was larger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beyond {
    /// Slabs that stay idle.
    pub(super) idle: f64,
    /// Objects of slabs that are gone.
    pub(super) kept: f64,
    /// Objects of a slab.
    pub(super) slots: f64,
}

/// Sheaves of each CPU: main and spare.
const OF_A_CPU: f64 = 2.0;
/// Sheaves of a CPU that are filled after a load: the spare one and half of the main one.
const FILLED_OF_A_CPU: f64 = 1.5;
/// How many times as large the load was at most, for the upper bound: the chance of more, 1/x, is
/// that of two standard deviations to one side.
const TIMES_MAX: f64 = 44.0;
/// Steps of the integral over the size of the load, and their size. They reach 2^20 times as large.
const STEPS: u32 = 320;
const STEP: f64 = 20.0 * std::f64::consts::LN_2 / STEPS as f64;

impl Sheaves {
    /// Objects in all of them when they are full.
    pub(super) fn objects_max(&self) -> f64 {
        self.capacity * (OF_A_CPU * self.cpus + self.in_barns)
    }

    /// Objects that are expected in them when a load has gone.
    pub(super) fn objects_kept(&self) -> f64 {
        self.capacity * (FILLED_OF_A_CPU * self.cpus + self.in_barns)
    }

    /// Sheaves that exist after a burst, beside the main ones that each cache has from its creation.
    pub(super) fn beside_main(&self) -> f64 {
        (OF_A_CPU - 1.0) * self.cpus + self.in_barns
    }
}

impl Beyond {
    /// Slabs that the objects pin if the load was `times` as large as what is idle.
    fn pinned(&self, times: f64) -> f64 {
        occupied((times - 1.0) * self.idle, self.kept, self.slots)
    }

    /// The slabs that are expected, over all sizes of the load: the integral of dx / x^2 from 1 on, in
    /// even steps of t = ln x.
    pub(super) fn expected(&self) -> f64 {
        let middle = |step: u32| (f64::from(step) + 0.5) * STEP;
        let points = (0..STEPS).map(middle);
        points
            .map(|t| self.pinned(t.exp()) * (-t).exp() * STEP)
            .sum()
    }

    /// The slabs at the upper bound.
    pub(super) fn most(&self) -> f64 {
        self.pinned(TIMES_MAX)
    }
}

/// Slabs that hold an object if `objects` lie at random in `slabs` slabs.
pub(super) fn occupied(slabs: f64, objects: f64, slots: f64) -> f64 {
    let places = slabs * slots;
    if places <= 0.0 || objects <= 0.0 {
        return 0.0;
    }
    let part = (objects / places).min(1.0);
    slabs * (1.0 - (1.0 - part).powf(slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_bounds_what_is_kept() {
        let sheaves = |capacity, cpus| Sheaves {
            capacity,
            cpus,
            in_barns: 10.0,
        };
        // kmalloc-cg-2k on two CPUs, kernel 7.0: about 180 objects active, 22 of them live.
        assert_eq!(sheaves(12.0, 2.0).objects_max(), 168.0);
        assert_eq!(sheaves(12.0, 2.0).objects_kept(), 156.0);
        assert_eq!(sheaves(12.0, 8.0).objects_max(), 312.0);
        assert_eq!(sheaves(0.0, 8.0).objects_max(), 0.0);
        assert_eq!(sheaves(60.0, 2.0).beside_main(), 12.0);
    }

    #[test]
    fn objects_pin_slabs() {
        assert_eq!(occupied(10.0, 160.0, 16.0), 10.0);
        assert_eq!(occupied(10.0, 1e9, 16.0), 10.0);
        assert_eq!(occupied(10.0, 0.0, 16.0), 0.0);
        assert_eq!(occupied(0.0, 5.0, 16.0), 0.0);
        // Objects far apart pin a slab each.
        let apart = occupied(1e6, 100.0, 16.0);
        assert!((99.9..=100.0).contains(&apart), "{apart}");
    }

    #[test]
    fn larger_loads_are_less_likely() {
        let beyond = |idle, kept| Beyond {
            idle,
            kept,
            slots: 16.0,
        };
        assert_eq!(beyond(7.0, 0.0).expected(), 0.0);
        assert_eq!(beyond(0.0, 100.0).expected(), 0.0);
        let (few, more) = (beyond(7.0, 50.0), beyond(7.0, 100.0));
        assert!(few.expected() < more.expected());
        assert!(beyond(3.0, 100.0).expected() < more.expected());
        assert!(more.expected() < more.most() && more.most() < 100.0);
        // Of very many objects all slabs of a load are pinned: the mean of x - 1, cut off by nothing
        // else, grows with the logarithm.
        let [hundred, thousand] = [1e4, 1e5].map(|kept| beyond(1.0, kept).expected());
        assert!(
            (1.8..2.5).contains(&(thousand - hundred)),
            "{hundred} {thousand}"
        );
    }
}
