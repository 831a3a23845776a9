//! One cache: how its objects lie in the snapshot, and what they need elsewhere.

pub(crate) mod brought;
pub(crate) mod demand;
mod freed;
pub(crate) mod kept;
pub(crate) mod pinned;
pub(crate) mod places;
pub(crate) mod possible;
pub(crate) mod sheaves;
pub(crate) mod users;

use std::sync::Arc;

use quarry_core::geometry::Geometry;

use crate::lay::sheaves::Sheaves;
use quarry_snapshot::{CacheAttributes, HiddenCache, SlabinfoRow};

use crate::kernel::KernelModel;
use crate::lay::brought::Brought;
use crate::lay::demand::{Demand, pinned};
use crate::lay::pinned::occupied;
use crate::lay::users::Cpus;
use crate::unknown::{Level, Point, Range, Unknown};

/// Distribution of a cache's objects over its slabs.
#[derive(Clone, Debug)]
pub(crate) struct Lay {
    /// Objects of a slab.
    pub(crate) slots: f64,
    pub(crate) slabs: f64,
    /// Objects that CPUs have taken.
    pub(crate) demand: Demand,
    /// Slabs on the CPUs' partial lists, and their objects; as expected if they were not counted.
    pub(crate) cpu_partial: f64,
    pub(crate) cpu_partial_objects: f64,
    /// Slabs there at most.
    pub(crate) cpu_partial_most: f64,
    /// Slabs on the nodes' partial lists, and their objects.
    pub(crate) partial: f64,
    pub(crate) partial_objects: f64,
    /// Slabs of both by the objects in use, where a debugger read them: `[objects, slabs]`.
    pub(crate) open: Arc<[[f64; 2]]>,
    /// The partial slabs were not counted: as many as are half full with the free objects.
    pub(crate) half_full: bool,
    /// A debugger read what CPUs, sheaves and barns hold; else it is estimated.
    pub(crate) is_exact: bool,
    /// Objects that a burst has left in sheaves, in full slabs and partial ones; or those that were read there.
    pub(crate) kept: Range,
    /// Objects that each CPU brings.
    pub(crate) brought: Brought,
    /// A shrink of all caches has emptied what CPUs held.
    pub(crate) is_shrunk: bool,
    /// Sheaves beside the main ones of the CPUs.
    pub(crate) beside_main: f64,
}

/// The geometry as far as memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Bytes of a slab.
    pub(crate) slab_bytes: f64,
    /// Objects of a slab.
    pub(crate) slots: f64,
    /// Objects that a CPU takes at once: a slab of SLUB, a batch of designs with queues, a sheaf.
    pub(crate) grain: f64,
    /// A CPU allocates from a slab of its own (SLUB).
    pub(crate) cpu_slabs: bool,
    pub(crate) sheaves: Sheaves,
    /// Slabs hold objects of all caches (SLOB).
    pub(crate) shared: bool,
    /// Slabs on a CPU's partial list at most.
    pub(crate) cpu_partial: f64,
    /// Empty slabs that a node keeps.
    pub(crate) min_partial: f64,
}

/// Slabs on a CPU's partial list at most.
pub(crate) fn longest_list(geometry: &Geometry) -> f64 {
    f64::from(match geometry.cpu_partial_slabs {
        // Eras that count objects: a list of slabs that were full, with one free object each.
        0 => geometry.cpu_partial,
        slabs => slabs,
    })
}

impl Shape {
    /// Shape by computed geometry in a kernel. With shared slabs no cache and no CPU has slabs of its own.
    pub(crate) fn of(geometry: &Geometry, kernel: &KernelModel) -> Self {
        let (page_bytes, shared) = (kernel.page_bytes, kernel.is_shared());
        let sheaves = kernel.sheaves(geometry.sheaf_capacity);
        let slab_bytes = (page_bytes << geometry.order) as f64;
        let slots = if shared {
            // What is left over at the end serves other caches.
            slab_bytes / f64::from(geometry.layout.size.max(1))
        } else {
            f64::from(geometry.objects.max(1))
        };
        let grain = if shared {
            1.0
        } else if sheaves.capacity > 0 {
            sheaves.capacity as f64
        } else if !kernel.has_cpu_slabs() {
            // Every object comes from the nodes' partial slabs.
            1.0
        } else if geometry.queue > 0 {
            // A queue is filled from one new slab at a time.
            f64::from(geometry.batch.clamp(1, geometry.queue)).min(slots)
        } else {
            slots
        };
        Self {
            slab_bytes,
            slots,
            grain,
            cpu_slabs: !shared && kernel.has_cpu_slabs() && geometry.queue == 0,
            sheaves,
            shared,
            cpu_partial: longest_list(geometry),
            min_partial: f64::from(geometry.min_partial),
        }
    }

    /// Nothing is kept per CPU: each object comes from the nodes' slabs, as with debugging.
    pub(crate) fn bypass_cpus(&mut self) {
        self.sheaves = Sheaves::default();
        self.cpu_slabs = false;
        self.cpu_partial = 0.0;
        self.grain = 1.0;
    }

    /// Takes other sheaves.
    pub(crate) fn set_sheaves(&mut self, sheaves: Sheaves) {
        if self.sheaves.capacity > 0 || sheaves.capacity > 0 {
            self.grain = sheaves.capacity.max(1) as f64;
        }
        self.sheaves = sheaves;
    }

    /// Takes over the slabs that the kernel reports.
    pub(crate) fn reshape(&mut self, row: &SlabinfoRow, page_bytes: u64) {
        let slots = row.objperslab.max(1) as f64;
        if self.grain == self.slots && self.sheaves.capacity == 0 {
            self.grain = slots;
        }
        self.slots = slots;
        self.slab_bytes = row.pagesperslab.saturating_mul(page_bytes) as f64;
    }
}

/// Part of the places that are free in slabs on CPUs' partial lists: a debugger read 0.72, 0.64 and 0.69 of 333, 204 and 242
/// slabs of 5.10, 6.1 and 6.12 (`quarry-snapshot/tests/data/drgn`).
const LISTED_FREE: f64 = 2.0 / 3.0;

impl Lay {
    /// A cache all of whose slabs are full.
    fn full(row: &SlabinfoRow, demand: Demand) -> Self {
        Self {
            slots: row.objperslab.max(1) as f64,
            slabs: row.num_slabs as f64,
            demand,
            cpu_partial: 0.0,
            cpu_partial_most: 0.0,
            cpu_partial_objects: 0.0,
            partial: 0.0,
            partial_objects: 0.0,
            open: Arc::default(),
            half_full: false,
            is_exact: false,
            kept: [0.0; 3],
            brought: Brought::default(),
            is_shrunk: false,
            beside_main: 0.0,
        }
    }

    /// From what the kernel reports. Without counts of sysfs, every CPU that can hold a slab does,
    /// and the free objects that slabinfo shows are in half-full slabs. They came there when the lists of CPUs, of
    /// `longest` slabs, overflowed. These were emptied then and fill again: half of the limit is expected.
    pub(crate) fn of(
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
        cpus: u32,
        longest: f64,
        sheaves: &Sheaves,
        hidden: Option<&HiddenCache>,
        is_shrunk: bool,
    ) -> Self {
        match hidden {
            // On the lists of 6.18 and 6.19 are slabs, too.
            Some(hidden) if sheaves.capacity > 0 && hidden.cpu_slabs().next().is_none() => {
                return Self::of_known_sheaves(row, sheaves, hidden);
            }
            Some(hidden) => return Self::of_known_slabs(row, hidden),
            None if sheaves.capacity > 0 => {
                return Self::of_sheaves(row, sysfs, sheaves, is_shrunk);
            }
            None if row.limit > 0 => return Self::of_arrays(row, cpus),
            None => {}
        }
        let slots = (row.objperslab.max(1)) as f64;
        let slabs = row.num_slabs as f64;
        let counts = sysfs.filter(|sysfs| sysfs.number("slabs").is_some());
        let free = row.num_objs.saturating_sub(row.active_objs) as f64;
        let (held, partial, partial_objects, listed) = match counts {
            Some(sysfs) => {
                // Without the file each CPU holds one, and the others are on lists.
                let of_cpus = sysfs.number("cpu_slabs").unwrap_or(0) as f64;
                let listed = sysfs.cpu_partial_slabs().map_or_else(
                    || (of_cpus - f64::from(cpus)).max(0.0),
                    |listed| listed as f64,
                );
                let partial = sysfs.number("partial").unwrap_or(0) as f64;
                // Some forms leave them out; slabinfo tells what is free there.
                let objects = sysfs.number("objects_partial").map(|n| n as f64);
                let objects = objects.unwrap_or_else(|| (partial * slots - free).max(0.0));
                ((of_cpus - listed).max(0.0), partial, objects, [listed; 2])
            }
            None => {
                let partial = (2.0 * free / slots).ceil().min(slabs);
                let taken = slabs - partial;
                let users = if is_shrunk { 0 } else { cpus };
                let held = f64::from(users).min(taken);
                let most = if partial > 0.0 { held * longest } else { 0.0 };
                (held, partial, partial * slots - free, [most / 2.0, most])
            }
        };
        let partial = partial.min(slabs);
        // On machines with more nodes CPUs may hold slabs that were counted twice; never more than
        // there are.
        let [cpu_partial, cpu_partial_most] = match counts {
            Some(_) => listed.map(|listed| listed.min(slabs - partial)),
            None => listed.map(|listed| listed.min(slabs - partial - held)),
        };
        let held = held.min(slabs - partial - cpu_partial);
        let full = slabs - partial - cpu_partial - held;
        Self {
            cpu_partial,
            cpu_partial_most,
            cpu_partial_objects: cpu_partial * slots * (1.0 - LISTED_FREE),
            partial,
            partial_objects: partial_objects.min(partial * slots),
            half_full: counts.is_none(),
            is_shrunk,
            ..Self::full(row, Demand::new(slots, full, held))
        }
    }

    /// Slabs of CPUs that a debugger read; what lies in sheaves beside them is free.
    fn of_known_slabs(row: &SlabinfoRow, hidden: &HiddenCache) -> Self {
        let slots = row.objperslab.max(1) as f64;
        let slabs = row.num_slabs as f64;
        let of_held = hidden.cpu_slabs().map(|free| slots - free as f64).collect();
        let cpu_partial = hidden.listed_slabs() as f64;
        let partial = hidden.partial_slabs() as f64;
        let held = hidden.cpu_slabs().count() as f64;
        let used = |(free, slabs): (u64, u64)| [(slots - free as f64).max(0.0), slabs as f64];
        let of_cpus = hidden.cpus.values().flat_map(|cpu| &cpu.partial);
        let of_nodes = hidden.nodes.values().flat_map(|node| &node.partial);
        let open = of_cpus
            .chain(of_nodes)
            .map(|(free, slabs)| used((*free, *slabs)));
        let full = (slabs - partial - cpu_partial - held).max(0.0);
        Self {
            open: open.collect(),
            cpu_partial,
            cpu_partial_most: cpu_partial,
            cpu_partial_objects: cpu_partial * slots - hidden.listed_free() as f64,
            partial,
            partial_objects: partial * slots - hidden.partial_free() as f64,
            is_exact: true,
            kept: [hidden.in_sheaves() as f64; 3],
            beside_main: hidden.sheaves_beside_main() as f64,
            ..Self::full(row, Demand::known(slots, full, of_held))
        }
    }

    /// SLAB: CPUs take batches from slabs that all share. What lies in their arrays counts as active,
    /// but for what lies in the shared arrays, which slabinfo counts.
    fn of_arrays(row: &SlabinfoRow, cpus: u32) -> Self {
        let slots = row.objperslab.max(1) as f64;
        let slabs = row.num_slabs as f64;
        // A refill takes from one new slab at a time.
        let batch = row.batchcount.clamp(1, row.objperslab.max(1)) as f64;
        let active = row.active_objs.saturating_sub(row.sharedavail) as f64;
        let free = row.num_objs as f64 - active;
        let partial = (2.0 * free / slots).ceil().min(slabs);
        let partial_objects = (partial * slots - free).clamp(0.0, active);
        let batches = (active - partial_objects) / batch;
        let held = f64::from(cpus).min(batches.ceil());
        Self {
            partial,
            partial_objects,
            half_full: true,
            ..Self::full(row, Demand::new(batch, (batches - held).max(0.0), held))
        }
    }

    /// Objects that are in use: those that were read, or as estimated.
    pub(crate) fn objects(&self) -> f64 {
        let taken = self.demand.objects() + self.partial_objects;
        (taken + self.cpu_partial_objects - self.kept[1]).max(0.0)
    }

    /// Objects that are in use at least.
    pub(crate) fn objects_at_least(&self) -> f64 {
        let taken = self.demand.full * self.demand.grain + self.demand.users.min(1.0);
        (taken + self.partial_objects - self.kept[2]).max(0.0)
    }

    /// Objects of a slab on a CPU's partial list, in the mean.
    pub(crate) fn per_listed(&self) -> f64 {
        match self.cpu_partial > 0.0 {
            true => self.cpu_partial_objects / self.cpu_partial,
            false => 0.0,
        }
    }

    /// Takes this many objects out of what has been used up.
    pub(crate) fn drop_full(&mut self, objects: f64) {
        let full = (self.demand.full - objects / self.demand.grain).max(0.0);
        self.demand = self.demand.with(full, self.demand.users);
    }

    /// True if an unknown may change the slabs.
    pub(crate) fn leaves_open(
        &self,
        unknown: Unknown,
        from: &Shape,
        to: &Shape,
        cpus: &Cpus,
    ) -> bool {
        let has_kept = self.kept[1] > 0.0 || to.sheaves.capacity > 0 && self.partial > 0.0;
        match unknown {
            Unknown::Hidden => self.demand.users > 0.0 && (to.grain != from.grain || has_kept),
            Unknown::Placed => self.partial > 0.0 || self.cpu_partial > 0.0,
            Unknown::Kept | Unknown::Went => has_kept && !self.is_shrunk,
            Unknown::Lists => {
                has_kept
                    || to.cpu_partial != from.cpu_partial
                    || self.cpu_partial_most > self.cpu_partial
            }
            Unknown::Users => !cpus.stay(),
            Unknown::Objects => !cpus.are_same() && self.brought != Brought::default(),
        }
    }

    /// Slabs of the shape `to`, without sheaves, that the same objects need in place of `from`.
    pub(crate) fn slabs_in(&self, at: &Point, from: &Shape, to: &Shape, cpus: &Cpus) -> f64 {
        let users = self.users(at, cpus);
        let demand = self.demand.with(self.full_with(at, users, cpus), users);
        let slabs = self.taken(at, &demand, to) + self.scattered(at, &demand, from, to);
        if at[Unknown::Users] != Level::Most || to.grain != to.slots || to.slots <= self.slots {
            return slabs;
        }
        // What CPUs share between each other need not fit into whole slabs of one CPU.
        let concentrated = self.demand.full * self.demand.grain / to.slots + users;
        slabs.max(concentrated + self.scattered(at, &self.demand, from, to))
    }

    /// Slabs for a part of what CPUs have taken of this cache, as objects of another one.
    pub(crate) fn demand_in(&self, at: &Point, to: &Shape, cpus: &Cpus, part: f64) -> f64 {
        let users = self.users(at, cpus);
        let full = self.full_with(at, users, cpus) * part;
        self.taken(at, &self.demand.with(full, users), to)
    }

    /// CPUs that use the cache.
    pub(crate) fn users(&self, at: &Point, cpus: &Cpus) -> f64 {
        cpus.users(at[Unknown::Users], self.demand.users, self.brought.by_all)
    }

    /// Slabs on the lists of CPUs.
    pub(crate) fn listed(&self, at: &Point) -> f64 {
        at[Unknown::Lists].of([
            self.cpu_partial
                .min(2.0 * self.cpu_partial - self.cpu_partial_most),
            self.cpu_partial,
            self.cpu_partial_most,
        ])
    }

    /// Grains that have been used up if `users` CPUs use the cache. On another machine the objects are the same, but for
    /// those that CPUs bring.
    pub(crate) fn full_with(&self, at: &Point, users: f64, cpus: &Cpus) -> f64 {
        let grain = self.demand.grain;
        let listed = (self.cpu_partial - self.listed(at)) * self.slots;
        let used = match cpus.stay() {
            true => 0.0,
            false => self.demand.used() * (self.demand.users - users),
        };
        let moved = used + cpus.brought(at[Unknown::Objects], &self.brought);
        (self.demand.full + (listed + moved) / grain).max(0.0)
    }

    /// Slabs for what CPUs take.
    pub(crate) fn taken(&self, at: &Point, demand: &Demand, to: &Shape) -> f64 {
        let taken = demand.grains(to.grain, at[Unknown::Hidden]) * to.grain / to.slots;
        // Batches come out of slabs that all CPUs share; there is one at least.
        taken.max(f64::from(taken > 0.0 && !to.shared))
    }

    /// Slabs for `objects` objects in `slabs` partial slabs.
    fn placed(&self, at: &Point, slabs: f64, objects: f64, to: &Shape) -> f64 {
        if slabs <= 0.0 {
            return 0.0;
        }
        if to.shared {
            // What is free between them serves other caches.
            return objects / to.slots;
        }
        if to.slots == self.slots {
            return slabs;
        }
        let likely = pinned(slabs, objects, self.slots, to.slots);
        if to.slots < self.slots && !self.open.is_empty() {
            return self.cut(at[Unknown::Placed], slabs, to);
        }
        let packed = (objects / to.slots).max(objects.min(1.0));
        let apart = match to.slots > self.slots {
            true => slabs,
            false => (slabs * self.slots / to.slots).min(objects),
        };
        at[Unknown::Placed].of([packed.min(likely), likely, apart.max(likely)])
    }

    /// Smaller slabs for the objects in `slabs` of the open ones; it is known how many each has.
    fn cut(&self, placed: Level, slabs: f64, to: &Shape) -> f64 {
        let parts = self.slots / to.slots;
        let all: f64 = self.open.iter().map(|[_, slabs]| slabs).sum();
        let needed = self.open.iter().map(|[objects, slabs]| {
            let likely = occupied(parts, *objects, to.slots);
            let packed = (objects / to.slots).ceil().min(likely);
            slabs * placed.of([packed, likely, parts.min(*objects).max(likely)])
        });
        needed.sum::<f64>() * slabs / all.max(1.0)
    }

    /// Slabs that hold what was left when others were freed.
    fn scattered(&self, at: &Point, demand: &Demand, from: &Shape, to: &Shape) -> f64 {
        let lists = at[Unknown::Lists];
        let per_cpu = demand.users / self.demand.users.max(1.0);
        let limit = match from.cpu_partial > 0.0 {
            true => to.cpu_partial / from.cpu_partial,
            false => 1.0,
        };
        let listed = self.listed(at) * per_cpu.max(f64::from(lists == Level::Most));
        // A shorter list gives slabs to the node, where other CPUs fill them up.
        let private = listed * limit.min(1.0);
        let shared = lists.of([0.0, 0.5, 1.0]) * (listed - private);
        let listed = private + shared;
        let longer = (to.cpu_partial - from.cpu_partial).max(0.0)
            * demand.users
            * f64::from(self.cpu_partial > 0.0 || self.partial > 0.0);
        let empty = (to.min_partial - from.min_partial.max(self.partial)).max(0.0)
            * f64::from(self.slabs > 0.0);
        self.placed(at, listed, listed * self.per_listed(), to)
            + self.placed(at, self.partial, self.partial_objects, to)
            + lists.of([0.0, 0.0, longer + empty])
    }

    /// The same objects in the shape of the snapshot: what the estimate gives where the answer is
    /// known. 1 if it is right.
    pub(crate) fn calibration(&self, from: &Shape) -> f64 {
        let grain = self.demand.grain;
        let mut taken = self.demand.grains(grain, Level::Expected) * grain / self.slots;
        if from.sheaves.capacity > 0 {
            // A sheaf can be smaller than a slab, and slabs are whole.
            taken = (taken - 1e-9).ceil();
        }
        let model = taken + self.scattered(&Point::all(Level::Expected), &self.demand, from, from);
        if model > 0.0 { self.slabs / model } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slabs of CPUs that no file divides: 4 CPUs hold one each, the other 7 are on their lists. The counts are of
    /// task_struct in `slabinfo -X`.
    #[test]
    fn lists_are_what_cpus_cannot_hold() {
        let row = SlabinfoRow {
            active_objs: 174,
            num_objs: 180,
            objperslab: 6,
            num_slabs: 30,
            ..SlabinfoRow::default()
        };
        let mut sysfs = CacheAttributes::default();
        for (file, count) in [("slabs", "30"), ("partial", "3"), ("cpu_slabs", "11")] {
            sysfs.set(file, count);
        }
        let lay = |sysfs: &CacheAttributes, cpus| {
            let sheaves = Sheaves::default();
            let lay = Lay::of(&row, Some(sysfs), cpus, 5.0, &sheaves, None, false);
            [lay.partial, lay.cpu_partial, lay.demand.users]
        };
        assert_eq!(lay(&sysfs, 4), [3.0, 7.0, 4.0]);
        assert_eq!(lay(&sysfs, 16), [3.0, 0.0, 11.0]);
        sysfs.set("slabs_cpu_partial", "10(2)");
        assert_eq!(lay(&sysfs, 4), [3.0, 2.0, 9.0]);
    }
}
