//! Slabs that the objects in sheaves and barns pin (`crate::sheaves` has their number).
//!
//! *How far a load went* no snapshot of SLUB tells: it frees all slabs but some that stay idle (on
//! CPUs, on their partial lists, and up to `min_partial` empty ones on a node's list). What is left
//! over is taken as equally likely to be any part of what there was at most. With Jeffreys' prior
//! of a scale for the most, the chance that there were more than x times as many slabs is 1/x.
//!
//! *Where the kept objects lie.* Kept are the objects freed last. Free objects in slabs that are
//! still there were freed later than those of slabs that are gone. So the kept objects fill these
//! first; only the rest lies in slabs that SLUB has given back, and pins them: at random places, or in slabs of its own.
//!
//! *A load that only grows* takes objects in whole sheaves. That is a demand of this grain (`demand.rs`).

use crate::unknown::{Level, Point, Unknown};

/// Largest ratio of the load at most to that seen, for the upper bound: the chance of more, 1/x, is
/// that of two standard deviations to one side.
const TIMES_MAX: f64 = 44.0;
/// Steps of the integral over the size of the load, and their size. They reach 2^20 times as large.
const STEPS: u32 = 80;
const STEP: f64 = 20.0 * std::f64::consts::LN_2 / STEPS as f64;

/// The load at most, in times of what is seen of it.
fn times(went: Level) -> f64 {
    match went {
        Level::Least | Level::Expected => 1.0,
        Level::At(part) => (1.0 / (1.0 - part)).min(TIMES_MAX),
        Level::Most => TIMES_MAX,
    }
}

/// Slabs that `kept` objects of slabs that are gone pin where the load was larger than the `idle` slabs that stay, by how far
/// it went and how they lie. Those expected are the mean over all sizes of the load: the integral of dx / x^2 from 1 on, in
/// even steps of t = ln x.
pub(crate) fn beyond(idle: f64, kept: f64, slots: f64, at: &Point) -> f64 {
    let (went, placed) = (at[Unknown::Went], at[Unknown::Placed]);
    let pinned_at = |times: f64| placed_in((times - 1.0) * idle, 0.0, kept, slots, placed);
    if went != Level::Expected || idle <= 0.0 || kept <= 0.0 {
        return pinned_at(times(went));
    }
    let middle = |step: u32| (f64::from(step) + 0.5) * STEP;
    let points = (0..STEPS).map(middle);
    points.map(|t| pinned_at(t.exp()) * (-t).exp() * STEP).sum()
}

/// Slabs that a load leaves idle, `most` at most and no more than it had: `seen` of it are seen, and it was larger by the
/// law above, whose mean is an integral of 1/x.
pub(crate) fn idle_of(seen: f64, most: f64, went: Level) -> f64 {
    match went {
        _ if seen <= 0.0 => 0.0,
        Level::Least => 0.0,
        Level::Expected if most > seen => seen * (1.0 + (most / seen).ln()),
        went => most.min(seen * times(went)),
    }
}

/// Slabs of `slabs` that hold `objects` at random places, or `kept` others, which were freed one after the other: from slabs
/// apart or from the same.
pub(crate) fn placed_in(slabs: f64, objects: f64, kept: f64, slots: f64, placed: Level) -> f64 {
    let apart = occupied(slabs, objects + kept, slots);
    between(
        occupied(slabs, objects, slots) + kept / slots,
        apart,
        placed,
    )
}

/// Slabs of objects that lie together, or apart, which are not fewer slabs: nothing speaks for either.
pub(crate) fn between(together: f64, apart: f64, placed: Level) -> f64 {
    let together = together.min(apart);
    placed.of([together, (apart + together) / 2.0, apart])
}

/// Slabs that hold an object if `objects` lie at random in `slabs` slabs.
pub(crate) fn occupied(slabs: f64, objects: f64, slots: f64) -> f64 {
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
        let of = |idle, kept, went| {
            let at = Point::all(Level::Most).with(Unknown::Went, went);
            beyond(idle, kept, 16.0, &at)
        };
        let expected = |idle, kept| of(idle, kept, Level::Expected);
        assert_eq!(expected(7.0, 0.0), 0.0);
        assert_eq!(expected(0.0, 100.0), 0.0);
        let (more, most) = (expected(7.0, 100.0), of(7.0, 100.0, Level::Most));
        assert!(expected(7.0, 50.0) < more);
        assert!(expected(3.0, 100.0) < more);
        assert!(more < most && most < 100.0);
        // Of very many objects all slabs of a load are pinned: the mean of x - 1, cut off by nothing
        // else, grows with the logarithm.
        let [hundred, thousand] = [1e4, 1e5].map(|kept| expected(1.0, kept));
        assert!(
            (1.8..2.5).contains(&(thousand - hundred)),
            "{hundred} {thousand}"
        );
    }

    #[test]
    fn a_load_leaves_no_more_than_it_had() {
        assert_eq!(idle_of(0.0, 30.0, Level::Most), 0.0);
        assert_eq!(idle_of(40.0, 30.0, Level::Expected), 30.0);
        assert_eq!(idle_of(10.0, 30.0, Level::At(0.5)), 20.0);
        let expected = idle_of(10.0, 30.0, Level::Expected);
        assert!((20.9..21.0).contains(&expected), "{expected}");
        assert_eq!(idle_of(10.0, 30.0, Level::Most), 30.0);
    }
}
