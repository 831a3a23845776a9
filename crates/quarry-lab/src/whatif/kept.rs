//! The slabs of a cache with sheaves, from how its objects lie in the snapshot (`pinned.rs` has the
//! assumptions), and back.

use crate::sheaves::Sheaves;
use quarry_snapshot::{CacheAttributes, HiddenCache, SlabinfoRow};

use super::cache::{HIDDEN, Lay, Shape};
use super::demand::{Demand, Hidden, thinned};
use super::pinned::{Beyond, occupied};
use super::users::{Cpus, Range};

/// Predicted state of a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) slabs: Range,
    /// Objects in sheaves and barns, as expected.
    pub(super) kept: f64,
    /// Sheaves beside the main ones of the CPUs.
    pub(super) sheaves: f64,
}

/// A cache after a burst in SLUB, in slabs of the snapshot.
struct Burst {
    /// Slabs that CPUs have used up.
    full: f64,
    /// Slabs with free objects, those that CPUs hold included.
    open: f64,
    /// Those of them that stay although nothing may need them.
    idle: f64,
    /// Objects in the open slabs.
    objects: f64,
    /// Free objects that count as free, and those of the CPUs' partial lists.
    free: f64,
    /// Slabs of the nodes' lists are there because of objects in them: beyond `min_partial` a node
    /// gives back each slab that becomes empty.
    is_pinned: bool,
}

impl Lay {
    /// A cache whose CPUs have sheaves. Refills empty partial slabs first. So free objects beyond
    /// those of one slab were freed to their slabs, which happens when the barn is full.
    pub(super) fn of_sheaves(
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
        sheaves: &Sheaves,
        reclaim: bool,
    ) -> Self {
        let slots = row.objperslab.max(1) as f64;
        let slabs = row.num_slabs as f64;
        let active = (row.active_objs as f64).min(slabs * slots);
        let free = slabs * slots - active;
        let has_burst = free > slots;
        let number = |file| sysfs.and_then(|sysfs| sysfs.number(file));
        let partial = match number("partial") {
            _ if !has_burst => 0.0,
            Some(partial) => partial as f64,
            None => (2.0 * free / slots).ceil(),
        };
        let partial = partial.clamp(0.0, slabs);
        let partial_objects = (partial * slots - free).clamp(0.0, active);
        let capacity = sheaves.capacity as f64;
        let grains = (active - partial_objects) / capacity;
        let users = (sheaves.cpus as f64).min(grains.ceil());
        Self {
            slots,
            slabs,
            demand: Demand::new(capacity, (grains - users).max(0.0), users),
            cpu_partial: 0.0,
            cpu_partial_objects: 0.0,
            partial,
            partial_objects,
            half_full: number("partial").is_none(),
            is_exact: false,
            reclaim,
            kept: f64::from(has_burst) * (sheaves.after_load() as f64).min(active),
            beside_main: f64::from(has_burst) * sheaves.beside_main() as f64,
        }
    }

    /// The same if a debugger read what the sheaves hold.
    pub(super) fn of_known_sheaves(
        row: &SlabinfoRow,
        sheaves: &Sheaves,
        reclaim: bool,
        hidden: &HiddenCache,
    ) -> Self {
        let slots = row.objperslab.max(1) as f64;
        let capacity = sheaves.capacity as f64;
        let partial = hidden.partial_slabs() as f64;
        let partial_objects = partial * slots - hidden.partial_free() as f64;
        let mut left = (row.active_objs as f64 - partial_objects).max(0.0);
        // The CPUs that use it have something in a sheaf. Of the last one that each took, the rest is in use.
        let users = hidden.cpus.values().filter(|cpu| cpu.in_sheaves() > 0);
        let used: Vec<f64> = users
            .map(|cpu| {
                let used = (capacity - cpu.main.unwrap_or(0) as f64).clamp(0.0, left);
                left -= used;
                used
            })
            .collect();
        Self {
            slots,
            slabs: row.num_slabs as f64,
            demand: Demand::known(capacity, left / capacity, used),
            cpu_partial: 0.0,
            cpu_partial_objects: 0.0,
            partial,
            partial_objects,
            half_full: false,
            is_exact: true,
            reclaim,
            kept: hidden.in_sheaves() as f64,
            beside_main: hidden.sheaves_beside_main() as f64,
        }
    }

    /// Predicts the cache.
    pub(super) fn outcome(&self, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        if self.kept > 0.0 {
            return self.rescaled(from, to, cpus);
        }
        if to.sheaves.capacity == 0 {
            let slabs = self.slabs_in(from, to, cpus);
            return Outcome {
                slabs,
                ..Outcome::default()
            };
        }
        if self.partial > 0.0 {
            self.after_burst(from, to, cpus)
        } else {
            self.grown(to, cpus)
        }
    }

    /// No CPU's list has overflown: the load only grew, or what it freed was taken again.
    fn grown(&self, to: &Shape, cpus: &Cpus) -> Outcome {
        let users = cpus.users(self.demand.users);
        let listed = self.cpu_partial * self.slots / self.demand.grain;
        let mut outcome = Outcome::default();
        for (end, hidden) in HIDDEN.into_iter().enumerate() {
            let full = self.full_with(end, users[end], cpus) + listed;
            let demand = self.demand.with(full, users[end]);
            let taken = demand.grains(to.grain, hidden) * to.grain;
            // Slabs are whole; numbers of sheaves and of slots are, but for rounding.
            let slabs = (taken / to.slots - 1e-9).ceil();
            outcome.slabs[end] = slabs.max(f64::from(self.slabs > 0.0));
            if hidden == Hidden::Expected {
                outcome.kept = (taken - demand.objects()).max(0.0);
            }
        }
        outcome
    }

    /// A load has come and gone.
    fn after_burst(&self, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        let users = cpus.users(self.demand.users);
        let ratio = self.slots / to.slots;
        let kept = to.sheaves.after_load() as f64;
        let burst = |end| self.burst(end, users[end], from, cpus);
        let beyond = |burst: &Burst, kept: f64| Beyond {
            idle: burst.idle * ratio,
            kept,
            slots: to.slots,
        };
        let least = burst(0);
        let live = self.full_with(0, users[0], cpus) * self.demand.grain + self.partial_objects;
        let low = (live / to.slots).min((least.full + least.open) * ratio);
        let middle = burst(1);
        let kept_here = kept.min(middle.free);
        let kept_beyond = kept - kept_here;
        let open = middle.open * ratio;
        let open = if middle.is_pinned {
            // Objects of a sheaf were freed one after the other, from slabs apart or from the same.
            let apart = occupied(open, middle.objects + kept_here, to.slots);
            let together = occupied(open, middle.objects, to.slots) + kept_here / to.slots;
            (apart + together.min(apart)) / 2.0
        } else {
            open
        };
        let expected = middle.full * ratio + open + beyond(&middle, kept_beyond).expected();
        let worst = burst(2);
        let most = to.sheaves.max() as f64;
        let high = (worst.full + worst.open) * ratio + beyond(&worst, most).most();
        Outcome {
            slabs: [low.ceil().min(expected), expected, high.max(expected)],
            kept: kept_here + kept_beyond * f64::from(middle.idle > 0.0),
            sheaves: to.sheaves.beside_main() as f64,
        }
    }

    /// Slabs that a burst has left in SLUB. Lists that overflowed were emptied and fill again: where
    /// sysfs does not tell how long they are, half of the limit is expected. One CPU's list to all
    /// have overflown: the geometric middle.
    fn burst(&self, end: usize, users: f64, from: &Shape, cpus: &Cpus) -> Burst {
        let full = self.full_with(end, users, cpus) * self.demand.grain / self.slots;
        let part = users / self.demand.users.max(1.0);
        let lists = if self.half_full {
            (cpus.old().sqrt() * part.min(1.0) * from.cpu_partial / 2.0).min(full)
        } else {
            self.cpu_partial * part
        };
        let full = if self.half_full { full - lists } else { full };
        // A CPU holds a slab, or what else it takes at once.
        let held = users * (self.demand.grain / self.slots).min(1.0);
        let free = self.partial * self.slots - self.partial_objects;
        let is_pinned = free > from.min_partial * self.slots;
        let idle = if is_pinned {
            0.0
        } else {
            self.partial.min(from.min_partial)
        };
        let (per_listed, per_held) = match self.is_exact {
            true => (self.per_listed(), self.demand.used().min(self.slots)),
            // What CPUs use of their slabs is hidden: half.
            false => (self.slots / 2.0, self.slots / 2.0),
        };
        let on_cpus = lists * per_listed + held * per_held;
        Burst {
            full,
            open: self.partial + lists + held,
            idle: idle + lists + held,
            objects: self.partial_objects + on_cpus,
            free: free + lists * (self.slots - per_listed),
            is_pinned,
        }
    }

    /// Free places on the lists of CPUs that take the place of sheaves: fewest, expected and most. What sheaves kept is
    /// free there, half of lists that are as long as after any burst; at most all of the lists. Without the hidden state it
    /// is not known what sheaves kept.
    fn listed_places(&self, gone: f64, to: &Shape, users: &Range, cpus: &Cpus) -> Range {
        if !self.is_exact || to.sheaves.capacity > 0 {
            return [0.0; 3];
        }
        let expected = cpus.old().sqrt() * to.cpu_partial / 2.0 * to.slots / 2.0;
        let most = users[2] * to.cpu_partial * to.slots;
        [0.0, expected.min(gone), most.min(gone)]
    }

    /// From sheaves after a burst to larger or smaller ones, or to none. What no longer fits is free;
    /// as it lies at random, so does what is left.
    fn rescaled(&self, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        let users = cpus.users(self.demand.users);
        let ratio = self.slots / to.slots;
        let before = from.sheaves.after_load() as f64;
        let most = to.sheaves.after_load() as f64;
        let gone = self.kept * (1.0 - (most / before).min(1.0));
        let gone_partial = gone.min(self.partial_objects);
        let left = self.partial_objects - gone_partial;
        let partial = thinned(self.partial, self.partial_objects, left);
        let free = self.partial * self.slots - self.partial_objects;
        let more = Beyond {
            idle: self.partial.min(from.min_partial) * ratio,
            kept: (most - before - free).max(0.0),
            slots: to.slots,
        };
        let listed = self.listed_places(gone, to, &users, cpus);
        // A design without sheaves keeps empty slabs, none to all that it may.
        let may_keep = if most > 0.0 { 0.0 } else { to.min_partial };
        let kept_empty = (self.partial - partial).clamp(0.0, may_keep);
        let mut slabs = [0.0; 3];
        for (end, hidden) in HIDDEN.into_iter().enumerate() {
            let full = self.full_with(end, users[end], cpus);
            let full = (full - (gone - gone_partial) / self.demand.grain).max(0.0);
            let taken = self.taken(&self.demand.with(full, users[end]), to, hidden);
            slabs[end] = taken
                + match hidden {
                    Hidden::Least => left / to.slots,
                    Hidden::Expected => {
                        partial * ratio + kept_empty / 2.0 + more.expected() + listed[1] / to.slots
                    }
                    Hidden::Most => self.partial * ratio + more.most() + listed[2] / to.slots,
                };
        }
        Outcome {
            slabs: [slabs[0].min(slabs[1]), slabs[1], slabs[2].max(slabs[1])],
            kept: (self.kept - gone + more.kept).min(most),
            sheaves: if most > 0.0 {
                to.sheaves.beside_main() as f64
            } else {
                0.0
            },
        }
    }
}
