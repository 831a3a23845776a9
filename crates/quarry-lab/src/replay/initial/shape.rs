//! Numbers of full, half free and free slabs of a row.

use quarry_core::geometry::Geometry;

use super::lists::{decide, nodes_order, takes};
use super::seen::RowSeen;
use crate::kernel::SlabinfoRow;

/// Distribution of a row's free objects.
#[derive(Default)]
pub(super) struct Shape {
    /// Slabs of the nodes that are free as a whole.
    pub(super) free_slabs: u64,
    /// Other slabs with free objects on the lists of the nodes.
    pub(super) partial_slabs: u64,
    /// Free objects in these.
    pub(super) partial_objects: u64,
    /// CPUs that have a stock.
    pub(super) owners: u32,
    /// Slabs, free as a whole, on the own list of each of them.
    pub(super) listed_slabs: u64,
    /// Free objects beside that in the slab, or the array, of each of them.
    pub(super) stock: u64,
    /// Free objects in the array that CPUs share.
    pub(super) shared_objects: u64,
    /// Slabs of the nodes' lists whose free places are seen, in the order of the lists.
    pub(super) seen_on_nodes: Vec<SeenSlab>,
    /// State of each CPU that allocates, or whose list sysfs reported.
    pub(super) seen_on_cpus: Vec<SeenCpu>,
}

/// Observed state of a CPU.
pub(super) struct SeenCpu {
    pub(super) cpu: u16,
    /// The slab that it allocates from.
    pub(super) slab: Option<SeenSlab>,
    /// Slabs of its list, first the one that it uses first.
    pub(super) listed: Vec<SeenSlab>,
    /// Slabs of its list, free as a whole, that it uses after these.
    pub(super) listed_free: u64,
}

/// A slab that is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenSlab {
    /// Its index among those that are seen.
    pub(super) at: usize,
    /// Free places.
    pub(super) free: u32,
}

impl Shape {
    /// Shape of a row whose slabs are those of the geometry.
    pub(super) fn of(row: &SlabinfoRow, geometry: &Geometry, cpus: u32) -> Self {
        let objects = row.objperslab;
        let known_free = known_free(row);
        let kept_free = if row.active_slabs < row.num_slabs {
            row.num_slabs - row.active_slabs
        } else {
            geometry.min_partial.into()
        };
        let mut shape = Self::default();
        shape.spread(known_free, row.num_slabs, objects, kept_free);
        if row.limit > 0 {
            // Of the objects that count as active, arrays take no more than half.
            let in_arrays = row.active_objs.saturating_sub(row.sharedavail) / 2;
            shape.owners = cpus;
            shape.stock = (row.limit / 2).min(in_arrays / u64::from(cpus));
            shape.shared_objects = row.sharedavail;
            return shape;
        }
        let on_nodes = shape.free_slabs + shape.partial_slabs;
        let mut left = row.num_slabs.saturating_sub(on_nodes);
        let owners = left.min(cpus.into());
        left -= owners;
        let listed = match known_free {
            0 => 0,
            _ => (u64::from(geometry.cpu_partial) + objects / 2) / objects,
        };
        shape.owners = owners as u32;
        shape.listed_slabs = left.checked_div(owners).unwrap_or(0).min(listed);
        shape.stock = objects / 2;
        shape
    }

    /// The same where the recording shows in which slabs free places were.
    /// `lists` tells how many slabs were on each CPU's own list; it is empty if that is not told.
    pub(super) fn seen(
        row: &SlabinfoRow,
        geometry: &Geometry,
        seen: &RowSeen,
        lists: &[u64],
    ) -> Self {
        let (objects, known_free) = (row.objperslab, known_free(row));
        let mut shape = Self::default();
        let mut placed = vec![false; seen.slabs.len()];
        for user in &seen.users {
            let first = user
                .first
                .filter(|at| !std::mem::replace(&mut placed[*at], true));
            let slab = first.map(|at| {
                let slab = &seen.slabs[at];
                let known = slab.free.saturating_add(slab.died);
                let unknown = (objects as u32).saturating_sub(known);
                // Half, as of any slab that a CPU allocates from.
                let more = if slab.used_up { 0 } else { unknown / 2 };
                let free = slab.free + more;
                SeenSlab { at, free }
            });
            shape.seen_on_cpus.push(SeenCpu {
                cpu: user.cpu,
                slab,
                listed: Vec::new(),
                listed_free: 0,
            });
        }
        let listed_max = (2 * u64::from(geometry.cpu_partial)).div_ceil(objects) as usize;
        let mut takes = takes(seen, &placed);
        let told = decide(&mut takes, listed_max, lists, known_free);
        for (of_cpu, takes) in shape.seen_on_cpus.iter_mut().zip(&takes) {
            of_cpu.listed = takes.listed().to_vec();
        }
        // As kernels take that count these lists in slabs; none if there are no such lists.
        let more_max = if listed_max == 0 {
            0
        } else {
            listed_max / 2 + 1
        };
        shape.seen_on_nodes = nodes_order(&seen.taken, &takes, more_max);
        let on_nodes = || shape.seen_on_nodes.iter().map(|slab| u64::from(slab.free));
        let free_seen = on_nodes().sum();
        let whole = on_nodes().filter(|free| *free >= objects).count() as u64;
        let unseen_slabs = row.num_slabs.saturating_sub(seen.slabs.len() as u64);
        let kept_free = u64::from(geometry.min_partial).saturating_sub(whole);
        let unseen_free = known_free
            .saturating_sub(free_seen)
            .min(unseen_slabs.saturating_mul(objects));
        shape.spread(unseen_free, unseen_slabs, objects, kept_free);
        if told {
            let homeless = seen.orphans.iter().filter(|orphan| orphan.slab.is_none());
            let needed = (homeless.count() as u64).div_ceil(objects);
            let taken = shape.free_slabs + shape.partial_slabs + needed;
            shape.list_free(lists, listed_max as u64, unseen_slabs.saturating_sub(taken));
        }
        shape
    }

    /// Fills the CPUs' lists up to their reported lengths, beyond the slabs that are seen, with slabs
    /// that are free as a whole: at most `slabs` of them.
    fn list_free(&mut self, lists: &[u64], listed_max: u64, mut slabs: u64) {
        // A machine has at most 4096 CPUs.
        for (cpu, told) in (0_u16..).zip(lists) {
            let at = self.seen_on_cpus.iter().position(|seen| seen.cpu == cpu);
            let at = at.unwrap_or_else(|| {
                self.seen_on_cpus.push(SeenCpu {
                    cpu,
                    slab: None,
                    listed: Vec::new(),
                    listed_free: 0,
                });
                self.seen_on_cpus.len() - 1
            });
            let seen = &mut self.seen_on_cpus[at];
            let more = (*told)
                .min(listed_max)
                .saturating_sub(seen.listed.len() as u64);
            seen.listed_free = more.min(slabs);
            slabs -= seen.listed_free;
        }
    }

    /// Spreads free objects on the nodes' lists: first over slabs that are free as a whole, at most
    /// `kept_free` of them, then over slabs that are half free.
    pub(super) fn spread(&mut self, free: u64, slabs: u64, objects: u64, kept_free: u64) {
        self.free_slabs = kept_free.min(free / objects);
        self.partial_objects = free - self.free_slabs * objects;
        self.partial_slabs = (2 * self.partial_objects)
            .div_ceil(objects)
            .min(slabs.saturating_sub(self.free_slabs));
    }
}

/// Free objects of the nodes' lists, which the row tells.
pub(super) fn known_free(row: &SlabinfoRow) -> u64 {
    row.num_objs
        .saturating_sub(row.active_objs)
        .min(row.num_slabs.saturating_mul(row.objperslab))
}
