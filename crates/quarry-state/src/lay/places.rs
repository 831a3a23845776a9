//! A cache's slabs as a heap can be made to hold them: whole slabs, and how full they are.
//!
//! A prediction is a mean over what is unknown, so its slabs are a fraction. A heap begins with the nearest whole number,
//! and with the estimated objects: in the slabs that CPUs allocate from, in slabs with free objects, and in full ones.
//! Every slab that no CPU holds has an object that pins it, or the heap would give it back.

use crate::lay::users::Cpus;
use crate::lay::{Lay, Shape};
use crate::unknown::{Level, Point};

/// Places of a cache's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The slabs are those that the kernel reported: its own counts say where objects are.
    pub is_observed: bool,
    /// Slabs.
    pub slabs: u64,
    /// Objects in use.
    pub objects: u64,
    /// Free objects in sheaves and barns; they pin slabs as objects in use do.
    pub kept: u64,
    /// Slabs that CPUs allocate from, one each.
    pub held: u64,
    /// Objects in use of each of these, if it is known of the snapshot's; else half of them are.
    pub held_used: Option<u64>,
    /// Free places in these.
    pub held_free: u64,
    /// Slabs with free places that no CPU allocates from.
    pub open: u64,
    /// Free places in these.
    pub open_free: u64,
}

impl Holding {
    /// The snapshot's objects in the shape `to`, before the slabs are known; `slabs` are expected of it.
    pub(crate) fn of(lay: &Lay, to: &Shape, cpus: &Cpus, kept: f64, slabs: f64) -> Self {
        let expected = Point::all(Level::Expected);
        let users = lay.users(&expected, cpus);
        let full = lay.full_with(&expected, users, cpus);
        let demand = lay.demand.with(full, users);
        let per_cpu = users / lay.demand.users.max(1.0);
        let listed = lay.cpu_partial_objects * per_cpu;
        let objects = match to.shared {
            // Slabs of all caches have no places of one.
            true => slabs * to.slots,
            false => demand.objects() + lay.partial_objects + listed - lay.kept[1],
        };
        let holds_slabs = to.cpu_slabs && to.sheaves.capacity == 0;
        let open = (lay.partial + lay.cpu_partial) * lay.slots / to.slots.max(1.0);
        Self {
            is_observed: false,
            objects: objects.max(0.0).round() as u64,
            kept: kept.round() as u64,
            held: if holds_slabs { users.round() as u64 } else { 0 },
            held_used: lay.is_exact.then(|| lay.demand.used().round() as u64),
            open: open.round() as u64,
            ..Self::default()
        }
    }

    /// The same with `objects` more, or less.
    pub(crate) fn add(&mut self, objects: i64) {
        self.objects = self.objects.saturating_add_signed(objects);
    }

    /// Places the objects in a number of slabs of `slots` places.
    pub(crate) fn settle(&mut self, slabs: u64, slots: u64) {
        let places = slabs.saturating_mul(slots);
        let objects = self.objects.saturating_add(self.kept).min(places);
        self.slabs = slabs;
        self.held = self.held.min(slabs);
        let rest = slabs - self.held;
        let free = places - objects;
        let in_held = self.held.saturating_mul(slots);
        let used = self.held_used.map(|used| used.min(slots));
        let likely = match used {
            Some(used) => self.held.saturating_mul(slots - used),
            None => in_held / 2,
        };
        // Each of the other slabs has an object, so that no more can be free there.
        let pinned = rest.saturating_mul(slots.saturating_sub(1));
        self.held_free = likely
            .max(free.saturating_sub(pinned))
            .min(free)
            .min(in_held);
        self.open_free = (free - self.held_free).min(pinned);
        let least = self.open_free.div_ceil(slots.saturating_sub(1).max(1));
        let most = rest.min(self.open_free).max(least);
        self.open = self.open.clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(objects: u64, held: u64, open: u64, slabs: u64, slots: u64) -> Holding {
        let mut holding = Holding {
            objects,
            held,
            open,
            ..Holding::default()
        };
        holding.settle(slabs, slots);
        holding
    }

    #[test]
    fn free_places_are_in_slabs_of_cpus_and_in_open_ones() {
        let holding = settled(150, 2, 3, 10, 20);
        assert_eq!((holding.held, holding.held_free), (2, 20));
        assert_eq!((holding.open, holding.open_free), (3, 30));
        // Three slabs cannot have 130 free places: seven have, with an object each.
        let holding = settled(50, 2, 3, 10, 20);
        assert_eq!((holding.open, holding.open_free), (7, 130));
        // Full slabs have none.
        let holding = settled(200, 2, 3, 10, 20);
        assert_eq!(
            (holding.held_free, holding.open, holding.open_free),
            (0, 0, 0)
        );
    }

    #[test]
    fn every_slab_has_what_pins_it() {
        // Ten slabs cannot be pinned by four objects: six more are allocated.
        let holding = settled(4, 0, 10, 10, 20);
        assert_eq!((holding.open, holding.open_free), (10, 190));
        // A CPU's slab may be empty.
        let holding = settled(0, 1, 0, 1, 20);
        assert_eq!((holding.held_free, holding.open_free), (20, 0));
        for (slabs, slots) in [(0, 8), (3, 1), (1, 1), (7, 0)] {
            let holding = settled(5, 2, 4, slabs, slots);
            assert!(holding.held_free + holding.open_free <= slabs * slots);
        }
    }
}
