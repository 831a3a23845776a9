//! The slabs of a cache with sheaves, from how its objects lie in the snapshot (`pinned.rs` has the
//! assumptions), and back.

use crate::lay::sheaves::Sheaves;
use quarry_snapshot::{CacheAttributes, HiddenCache, SlabinfoRow};

use crate::lay::demand::{Demand, thinned};
use crate::lay::pinned::{between, beyond, idle_of, placed_in};
use crate::lay::users::{Cpus, reached};
use crate::lay::{Lay, Shape};
use crate::unknown::{Level, Point, Range, Unknown};

/// Predicted state of a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) slabs: f64,
    /// Objects in sheaves and barns.
    pub(crate) kept: f64,
    /// Sheaves beside the main ones of the CPUs.
    pub(crate) sheaves: f64,
}

/// Objects that sheaves and barns keep after a load.
fn after_load(sheaves: &Sheaves, level: Level) -> f64 {
    let (full_barns, expected) = (sheaves.in_barns * sheaves.capacity, sheaves.after_load());
    match level {
        Level::Least => 0.0,
        level => level.of([full_barns, expected, sheaves.max()].map(|objects| objects as f64)),
    }
}

/// The same where `active` objects lie in sheaves or are in use. If these are fewer than full barns and spare sheaves hold,
/// something else has freed objects to their slabs: any part of them may be in use.
fn left_in(sheaves: &Sheaves, active: f64) -> Range {
    let in_barns = sheaves.in_barns * sheaves.capacity;
    let full = (in_barns + sheaves.cpus * sheaves.capacity) as f64;
    let (expected, most) = (sheaves.after_load() as f64, sheaves.max() as f64);
    match full <= active {
        true => [in_barns as f64, expected.min(active), most.min(active)],
        false => [0.0, active / 2.0, active],
    }
}

impl Lay {
    /// A cache whose CPUs have sheaves. Refills empty partial slabs first. So free objects beyond
    /// those of one slab were freed to their slabs, which happens when the barn is full.
    pub(crate) fn of_sheaves(
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
        sheaves: &Sheaves,
        is_shrunk: bool,
    ) -> Self {
        let slots = row.objperslab.max(1) as f64;
        let slabs = row.num_slabs as f64;
        let active = (row.active_objs as f64).min(slabs * slots);
        let free = slabs * slots - active;
        let has_burst = free > slots;
        let counted = sysfs.and_then(|sysfs| sysfs.number("partial"));
        let partial = match counted {
            _ if !has_burst => 0.0,
            Some(partial) => partial as f64,
            None => (2.0 * free / slots).ceil(),
        };
        let partial = partial.clamp(0.0, slabs);
        let partial_objects = (partial * slots - free).clamp(0.0, active);
        let capacity = sheaves.capacity as f64;
        let grains = (active - partial_objects) / capacity;
        let users = match is_shrunk {
            true => 0.0,
            false => reached(grains, sheaves.cpus as f64).min(grains),
        };
        let has_kept = has_burst && !is_shrunk;
        let demand = Demand::new(capacity, (grains - users).max(0.0), users);
        Self {
            partial,
            partial_objects,
            half_full: counted.is_none(),
            kept: match has_kept {
                true => left_in(sheaves, active),
                false => [0.0; 3],
            },
            is_shrunk,
            beside_main: f64::from(has_kept) * sheaves.beside_main() as f64,
            ..Self::full(row, demand)
        }
    }

    /// The same if a debugger read what the sheaves hold.
    pub(crate) fn of_known_sheaves(
        row: &SlabinfoRow,
        sheaves: &Sheaves,
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
            partial,
            partial_objects,
            is_exact: true,
            kept: [hidden.in_sheaves() as f64; 3],
            beside_main: hidden.sheaves_beside_main() as f64,
            ..Self::full(row, Demand::known(capacity, left / capacity, used))
        }
    }

    /// Predicts the cache at a point of what is unknown.
    pub(crate) fn outcome(&self, at: &Point, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        if self.kept[1] > 0.0 {
            return match to.sheaves.capacity {
                0 => self.without_sheaves(at, from, to, cpus),
                _ => self.rescaled(at, from, to, cpus),
            };
        }
        if to.sheaves.capacity == 0 || self.is_shrunk {
            let slabs = self.slabs_in(at, from, to, cpus);
            return Outcome {
                slabs,
                ..Outcome::default()
            };
        }
        if self.partial > 0.0 {
            self.after_burst(at, from, to, cpus)
        } else {
            self.grown(at, to, cpus)
        }
    }

    /// No CPU's list has overflown: the load only grew, or what it freed was taken again.
    fn grown(&self, at: &Point, to: &Shape, cpus: &Cpus) -> Outcome {
        let users = self.users(at, cpus);
        let listed = self.cpu_partial * self.slots / self.demand.grain;
        let full = self.full_with(at, users, cpus) + listed;
        let demand = self.demand.with(full, users);
        let taken = demand.grains(to.grain, at[Unknown::Hidden]) * to.grain;
        // Slabs are whole; numbers of sheaves and of slots are, but for rounding.
        let slabs = (taken / to.slots - 1e-9).ceil();
        Outcome {
            slabs: slabs.max(f64::from(self.slabs > 0.0)),
            kept: (taken - demand.objects()).max(0.0),
            sheaves: 0.0,
        }
    }

    /// A load has come and gone.
    fn after_burst(&self, at: &Point, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        let users = self.users(at, cpus);
        // Slabs of the snapshot that CPUs have used up.
        let full = self.full_with(at, users, cpus) * self.demand.grain / self.slots;
        let part = users / self.demand.users.max(1.0);
        let lists = self.listed(at) * part;
        // A CPU holds a slab, or what else it takes at once.
        let held = users * (self.demand.grain / self.slots).min(1.0);
        let free = self.partial * self.slots - self.partial_objects;
        // Slabs of the nodes' lists are there because of objects in them: beyond `min_partial` a node gives back each slab
        // that becomes empty. The others stay although nothing may need them.
        let is_pinned = free > from.min_partial * self.slots;
        let idle = match is_pinned {
            true => 0.0,
            false => self.partial.min(from.min_partial),
        };
        let idle = idle + lists + held;
        // What CPUs use of their slabs is hidden: half.
        let half = at[Unknown::Hidden].of([0.0, 0.5, 1.0]) * self.slots;
        let (per_listed, per_held) = match self.is_exact {
            true => (self.per_listed(), self.demand.used().min(self.slots)),
            false => (half, half),
        };
        let objects = self.partial_objects + (lists * per_listed + held * per_held);
        let kept = after_load(&to.sheaves, at[Unknown::Kept]);
        let kept_here = kept.min(free + lists * (self.slots - per_listed));
        let kept_beyond = kept - kept_here;
        let ratio = self.slots / to.slots;
        let open = (self.partial + lists + held) * ratio;
        let mut pinned = match at[Unknown::Placed] {
            Level::Least => (objects / to.slots).min(open),
            level => placed_in(open, objects, kept_here, to.slots, level),
        };
        if !is_pinned {
            // Nodes keep slabs that nothing needs.
            let empty = (open - pinned).clamp(0.0, to.min_partial);
            pinned += at[Unknown::Lists].of([0.0, empty, empty]);
        }
        Outcome {
            slabs: full * ratio + pinned + beyond(idle * ratio, kept_beyond, to.slots, at),
            kept: kept_here + kept_beyond * f64::from(idle > 0.0),
            sheaves: to.sheaves.beside_main() as f64,
        }
    }

    /// Objects in sheaves: the more, the fewer are in use.
    pub(crate) fn kept_at(&self, at: &Point) -> f64 {
        match at[Unknown::Kept].reversed() {
            Level::Least if !self.is_exact => 0.0,
            level => level.of(self.kept),
        }
    }

    /// The objects in use once `gone` of those that sheaves keep are free, in full slabs and partial ones. They were at
    /// random places, so that what is left is, too; or in slabs of their own, as many as their part is.
    fn without(&self, gone: f64, placed: Level) -> Self {
        let gone_partial = gone.min(self.partial_objects);
        let left = self.partial_objects - gone_partial;
        let full = self.demand.full - (gone - gone_partial) / self.demand.grain;
        let apart = thinned(self.partial, self.partial_objects, left);
        let together = self.partial * left / self.partial_objects.max(1.0);
        Self {
            partial: between(together, apart, placed),
            partial_objects: left,
            demand: self.demand.with(full.max(0.0), self.demand.users),
            ..self.clone()
        }
    }

    /// From sheaves after a burst to a design without: what they held is free. A load as large would have left lists that
    /// are half full on CPUs, and empty slabs on a node, but no more slabs than it had.
    fn without_sheaves(&self, at: &Point, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        let kept = self.kept_at(at);
        let slabs = self
            .without(kept, at[Unknown::Placed])
            .slabs_in(at, from, to, cpus);
        let longest = self.users(at, cpus) * to.cpu_partial;
        let listed = at[Unknown::Lists].of([0.0, longest / 2.0, longest]);
        let idle = idle_of(kept / to.slots, listed + to.min_partial, at[Unknown::Went]);
        Outcome {
            slabs: slabs + idle,
            ..Outcome::default()
        }
    }

    /// From sheaves after a burst to larger or smaller ones. What no longer fits is free.
    fn rescaled(&self, at: &Point, from: &Shape, to: &Shape, cpus: &Cpus) -> Outcome {
        let kept = self.kept_at(at);
        let [before, most] = [from, to].map(|shape| shape.sheaves.after_load() as f64);
        let gone = kept * (1.0 - (most / before.max(1.0)).min(1.0));
        let left = self.without(gone, at[Unknown::Placed]);
        let free = self.partial * self.slots - self.partial_objects;
        let idle = self.partial.min(from.min_partial) * self.slots / to.slots;
        let more = (most - before - free).max(0.0);
        Outcome {
            slabs: left.slabs_in(at, from, to, cpus) + beyond(idle, more, to.slots, at),
            kept: (kept - gone + more).min(most),
            sheaves: to.sheaves.beside_main() as f64,
        }
    }
}
