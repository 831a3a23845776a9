//! Numbers of full, half free and free slabs of a row.

use quarry_core::geometry::Geometry;

use super::chance::Chance;
use super::lists::{decide, nodes_order, takes};
use super::seen::{RowSeen, SlabSeen};
use quarry_snapshot::{HiddenCache, SlabinfoRow, SlabsByFree};

/// Distribution of a row's free objects.
#[derive(Default)]
pub(super) struct Shape {
    /// Slabs of the nodes that are free as a whole.
    pub(super) free_slabs: u64,
    /// Free objects of each other slab on the lists of the nodes.
    pub(super) partial: Vec<u64>,
    /// CPUs that have a stock.
    pub(super) owners: u32,
    /// Slabs on the own list of each of them.
    pub(super) listed_slabs: u64,
    /// Free places in each slab of the lists that is not seen: all, if nothing else is assumed.
    pub(super) listed_free: u64,
    /// Free objects beside that in the slab, or the array, of each of them.
    pub(super) stock: u64,
    /// Free objects in the array that CPUs share.
    pub(super) shared_objects: u64,
    /// Slabs of the nodes' lists whose free places are seen, in the order of the lists.
    pub(super) seen_on_nodes: Vec<SeenSlab>,
    /// State of each CPU that allocates, or whose list sysfs reported.
    pub(super) seen_on_cpus: Vec<SeenCpu>,
    /// State of each CPU that a debugger read.
    pub(super) known_on_cpus: Vec<KnownCpu>,
}

/// State of a CPU that a debugger read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownCpu {
    pub(super) cpu: u16,
    /// Free places in the slab that it allocates from.
    pub(super) free: u64,
    /// Free places in each slab of its list.
    pub(super) listed: Vec<u64>,
}

/// Free places of each slab.
fn each(slabs: &SlabsByFree) -> impl Iterator<Item = u64> {
    let slabs = slabs.iter();
    slabs.flat_map(|(free, slabs)| std::iter::repeat_n(*free, *slabs as usize))
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
    /// `partial` is the number of slabs on the nodes' lists, if it is known.
    pub(super) fn of(
        row: &SlabinfoRow,
        geometry: &Geometry,
        cpus: u32,
        partial: Option<u64>,
        chance: &mut Chance,
    ) -> Self {
        let objects = row.objperslab;
        let known_free = known_free(row);
        let kept_free = if row.active_slabs < row.num_slabs {
            row.num_slabs - row.active_slabs
        } else {
            geometry.min_partial.into()
        };
        let mut shape = Self {
            listed_free: listed_free(row, partial, chance),
            ..Self::default()
        };
        shape.spread(
            known_free,
            row.num_slabs,
            objects,
            kept_free,
            partial,
            chance,
        );
        if row.limit > 0 {
            // Of the objects that count as active, arrays take no more than half.
            let in_arrays = row.active_objs.saturating_sub(row.sharedavail) / 2;
            shape.owners = cpus;
            shape.stock = (row.limit / 2).min(in_arrays / u64::from(cpus));
            shape.shared_objects = row.sharedavail;
            return shape;
        }
        let on_nodes = shape.free_slabs + shape.partial.len() as u64;
        let mut left = row.num_slabs.saturating_sub(on_nodes);
        let owners = left.min(cpus.into());
        left -= owners;
        let listed = match known_free {
            0 => 0,
            _ => (u64::from(geometry.cpu_partial) + objects / 2) / objects,
        };
        shape.owners = owners as u32;
        shape.listed_slabs = left.checked_div(owners).unwrap_or(0).min(listed);
        shape.stock = chance.pick(0, objects / 2, objects.saturating_sub(1));
        shape
    }

    /// Shape of slabs of `objects` places that a debugger read. CPUs that the run has not are those that it has.
    pub(super) fn known(hidden: &HiddenCache, objects: u64, cpus: u32) -> Self {
        let of_nodes = hidden.nodes.values().flat_map(|node| each(&node.partial));
        let (free, partial): (Vec<u64>, Vec<u64>) = of_nodes.partition(|free| *free >= objects);
        let known_on_cpus = hidden.cpus.iter().map(|(cpu, held)| KnownCpu {
            cpu: (cpu % cpus.max(1)) as u16,
            free: held.slab_free.unwrap_or(0),
            listed: each(&held.partial).collect(),
        });
        Self {
            free_slabs: free.len() as u64,
            partial,
            known_on_cpus: known_on_cpus.collect(),
            ..Self::default()
        }
    }

    /// The same where the recording shows in which slabs free places were.
    /// `lists` tells how many slabs were on each CPU's own list; it is empty if that is not told.
    pub(super) fn seen(
        row: &SlabinfoRow,
        geometry: &Geometry,
        seen: &RowSeen,
        lists: &[u64],
        partial: Option<u64>,
        chance: &mut Chance,
    ) -> Self {
        let (objects, known_free) = (row.objperslab, known_free(row));
        let mut shape = Self {
            listed_free: listed_free(row, partial, chance),
            ..Self::default()
        };
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
                let more = match slab.used_up {
                    true => 0,
                    false => chance.pick(0, (unknown / 2).into(), unknown.into()),
                };
                // No more than a slab has.
                let free = slab.free + more as u32;
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
        let unseen_slabs = row.num_slabs.saturating_sub(seen.slabs.len() as u64);
        let on_nodes = |shape: &Self| -> u64 {
            let free = shape.seen_on_nodes.iter().map(|slab| u64::from(slab.free));
            free.sum()
        };
        let left = known_free.saturating_sub(on_nodes(&shape));
        shape.scatter(
            seen,
            &placed,
            (unseen_slabs, objects, left),
            partial,
            chance,
        );
        let free_seen = on_nodes(&shape);
        let whole = shape.seen_on_nodes.iter();
        let whole = whole.filter(|slab| u64::from(slab.free) >= objects).count() as u64;
        let kept_free = u64::from(geometry.min_partial).saturating_sub(whole);
        let unseen_free = known_free
            .saturating_sub(free_seen)
            .min(unseen_slabs.saturating_mul(objects));
        let known = shape.seen_on_nodes.len() as u64;
        let others = partial.map(|told| told.saturating_sub(known));
        shape.spread(
            unseen_free,
            unseen_slabs,
            objects,
            kept_free,
            others,
            chance,
        );
        if told {
            let homeless = seen.orphans.iter().filter(|orphan| orphan.slab.is_none());
            let needed = (homeless.count() as u64).div_ceil(objects);
            let taken = shape.free_slabs + shape.partial.len() as u64 + needed;
            shape.list_free(lists, listed_max as u64, unseen_slabs.saturating_sub(taken));
        }
        shape
    }

    /// Scatters free places over slabs that the recording shows by frees alone: as likely there as in the slabs that it
    /// does not show. These are `unseen_slabs` of `objects` each, with `free` free ones in all of both kinds.
    fn scatter(
        &mut self,
        seen: &RowSeen,
        placed: &[bool],
        (unseen_slabs, objects, free): (u64, u64, u64),
        partial: Option<u64>,
        chance: &mut Chance,
    ) {
        let is_untold = |(at, slab): &(usize, &SlabSeen)| {
            !slab.used && !placed[*at] && u64::from(slab.died) < objects
        };
        let untold = || seen.slabs.iter().enumerate().filter(is_untold);
        let slabs = (unseen_slabs + untold().count() as u64) as f64;
        let known = self.seen_on_nodes.len() as u64;
        let partial = partial.map_or(slabs, |told| slabs.min(told.saturating_sub(known) as f64));
        if partial == 0.0 {
            return;
        }
        let share = (free as f64 / (partial * objects as f64)).min(1.0);
        for (at, slab) in untold() {
            if chance.happens(partial / slabs) {
                let others = objects - u64::from(slab.died);
                // At most a slab's objects.
                let free = (others as f64 * chance.share(share)).round() as u32;
                self.seen_on_nodes.push(SeenSlab { at, free });
            }
        }
        self.seen_on_nodes.retain(|slab| slab.free > 0);
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
    /// `kept_free` of them, then over `partial` slabs, or over slabs that are half free if their number is not told.
    pub(super) fn spread(
        &mut self,
        free: u64,
        slabs: u64,
        objects: u64,
        kept_free: u64,
        partial: Option<u64>,
        chance: &mut Chance,
    ) {
        let most = kept_free.min(free / objects);
        let told = partial.filter(|told| *told <= slabs.min(free) && *told > 0);
        if let Some(told) = told
            && free <= told.saturating_mul(objects)
        {
            // Each of the slabs has a free place, and those that are not free as a whole have an object.
            let others = objects.saturating_sub(1).max(1);
            let least = free.saturating_sub(told.saturating_mul(others));
            let most = most.min((free - told) / others).max(least);
            // A list with more slabs than it keeps gives back each one that becomes free.
            let assumed = if told > kept_free { least } else { most };
            self.free_slabs = chance.pick(least, assumed, most);
            let left = free - self.free_slabs * objects;
            self.partial = parts(left, told - self.free_slabs, others, chance);
            return;
        }
        self.free_slabs = chance.pick(0, most, most);
        let left = free - self.free_slabs * objects;
        let slabs = (2 * left)
            .div_ceil(objects)
            .min(slabs.saturating_sub(self.free_slabs));
        self.partial = (0..slabs).map(|at| (left + at) / slabs).collect();
    }
}

/// Free objects of each of `slabs` slabs that have `free` together, and `most` each at most, one at least if they can.
fn parts(free: u64, slabs: u64, most: u64, chance: &mut Chance) -> Vec<u64> {
    let mut left = free;
    let part = |others: u64| {
        let part = chance.next_part(left, others, most);
        left -= part;
        part
    };
    (0..slabs).rev().map(part).collect()
}

/// Free objects of a slab on a CPU's own list, which counts as used up: as many as slabs of the nodes' lists have, which
/// came there when CPUs' lists overflowed. Where these are not told they are all taken to be free.
pub(super) fn listed_free(row: &SlabinfoRow, partial: Option<u64>, chance: &mut Chance) -> u64 {
    let mean = partial.and_then(|partial| (known_free(row) + partial / 2).checked_div(partial));
    let objects = row.objperslab;
    let assumed = mean.map_or(objects, |mean| mean.clamp(1, objects.max(1)));
    chance.pick(1, assumed, objects)
}

/// Free objects of the nodes' lists, which the row tells.
pub(super) fn known_free(row: &SlabinfoRow) -> u64 {
    row.num_objs
        .saturating_sub(row.active_objs)
        .min(row.num_slabs.saturating_mul(row.objperslab))
}
