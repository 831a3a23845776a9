//! Places of a cache's objects in whole slabs, as a heap can be made to have them.
//!
//! A state elsewhere is a mean over what is unknown, so its slabs are a fraction. A heap begins with the nearest whole number,
//! and with the objects in use: in the slabs that CPUs allocate from, in slabs with free places, and in full ones. Every slab
//! that no CPU holds has an object that pins it, or the heap would give it back.

use std::collections::BTreeMap;

use quarry_snapshot::{HiddenCache, SlabinfoRow, SlabsByFree, Snapshot};

use super::{Lay, Shape};
use crate::draw::Draw;
use crate::lay::users::Cpus;
use crate::state::CacheState;
use crate::unknown::{Level, Point, Range};

/// Counts of a cache's slabs and free places.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    /// The slabs are those that the kernel reported; else a heap has to come near to what is expected.
    pub is_observed: bool,
    /// Slabs.
    pub slabs: u64,
    /// Objects in use.
    pub objects: u64,
    /// Free objects in sheaves and barns; they pin slabs as objects in use do.
    pub kept: u64,
    /// Slabs on the list of each CPU, if they were counted.
    pub lists: Option<BTreeMap<u32, u64>>,
    /// Places of a slab.
    slots: u64,
    /// Slabs that CPUs allocate from, one each, and free places of one of them.
    held: u64,
    held_free: Range,
    /// Slabs on CPUs' lists.
    listed: u64,
    /// Slabs on nodes' lists, if they are known or expected.
    pub open: Option<u64>,
    /// Free places in all of them.
    open_free: u64,
    /// Free slabs among these that a node keeps at most.
    empty_most: u64,
    /// Free objects in the array of each CPU, and in the one that they share.
    in_arrays: [u64; 2],
    /// All of it, if a debugger read it.
    known: Option<Places>,
}

/// Free places of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Free places of each slab on nodes' lists.
    pub on_nodes: Vec<u64>,
    /// Slabs of CPUs, first those that use the cache first.
    pub on_cpus: Vec<OnCpu>,
    /// Free objects in the array of each CPU, and in the one that they share.
    pub in_arrays: [u64; 2],
}

/// Slabs of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnCpu {
    /// Its number, if it is known.
    pub cpu: Option<u32>,
    /// Free places in the slab that it allocates from.
    pub free: u64,
    /// Free places of each slab on its list.
    pub listed: Vec<u64>,
}

/// Free places of each slab.
fn each(slabs: &SlabsByFree) -> impl Iterator<Item = u64> {
    let slabs = slabs.iter();
    slabs.flat_map(|(free, slabs)| std::iter::repeat_n(*free, *slabs as usize))
}

impl Places {
    /// Places that a debugger read.
    fn known(hidden: &HiddenCache) -> Self {
        let of_nodes = hidden.nodes.values().flat_map(|node| each(&node.partial));
        let on_cpus = hidden.cpus.iter().map(|(cpu, held)| OnCpu {
            cpu: Some(*cpu),
            free: held.slab_free.unwrap_or(0),
            listed: each(&held.partial).collect(),
        });
        Self {
            on_nodes: of_nodes.collect(),
            on_cpus: on_cpus.collect(),
            in_arrays: [0; 2],
        }
    }
}

/// Free objects of the nodes' lists, which a row tells.
#[must_use]
pub fn known_free(row: &SlabinfoRow) -> u64 {
    row.num_objs
        .saturating_sub(row.active_objs)
        .min(row.num_slabs.saturating_mul(row.objperslab))
}

/// Free objects of each slab of the nodes' lists, of `free` ones in at most `slabs` slabs: first slabs that are free as a
/// whole, at most `empty_most` of them, then `partial` slabs in all, or as many as are half free if their number is not told.
#[must_use]
pub fn spread(
    free: u64,
    slabs: u64,
    slots: u64,
    empty_most: u64,
    partial: Option<u64>,
    draw: &mut Draw,
) -> Vec<u64> {
    let most = empty_most.min(free.checked_div(slots).unwrap_or(0));
    let told = partial.filter(|told| *told <= slabs.min(free) && *told > 0);
    let (empty, others, room) = match told.filter(|told| free <= told.saturating_mul(slots)) {
        Some(told) => {
            // Each of the slabs has a free place, and those that are not free as a whole have an object.
            let room = slots.saturating_sub(1).max(1);
            let least = free.saturating_sub(told.saturating_mul(room));
            let most = most.min((free - told) / room).max(least);
            // A list with more slabs than it keeps gives back each one that becomes free.
            let expected = if told > empty_most { least } else { most };
            let empty = draw.pick(least, expected, most);
            (empty, told - empty, room)
        }
        None => {
            let empty = draw.pick(0, most, most);
            let left = free - empty * slots;
            let most = slabs.saturating_sub(empty);
            let half_free = left.saturating_mul(2).div_ceil(slots.max(1));
            (empty, draw.share_of_slabs(left, slots, half_free, most), 0)
        }
    };
    let mut left = free - empty * slots;
    let part = |after: u64| {
        let part = match room {
            0 => left / (after + 1),
            room => draw.next_part(left, after, room),
        };
        left -= part;
        part
    };
    let others: Vec<u64> = (0..others).rev().map(part).collect();
    std::iter::repeat_n(slots, empty as usize)
        .chain(others)
        .collect()
}

impl Holding {
    /// A cache as it was reported of a machine with `cpus` CPUs.
    pub(crate) fn observed(
        cache: &CacheState<'_>,
        snapshot: &Snapshot,
        cpus: u32,
        at: &Point,
    ) -> Self {
        let (row, lay) = (cache.row, &cache.lay);
        let slots = row.objperslab;
        let mut held = Self {
            is_observed: true,
            slabs: row.num_slabs,
            slots,
            objects: lay.objects().round() as u64,
            kept: lay.kept_at(at).round() as u64,
            lists: snapshot.cpu_partial_lists(row),
            open: cache.partial,
            open_free: known_free(row),
            // A SLAB tells how many slabs are free as a whole.
            empty_most: match row.num_slabs.saturating_sub(row.active_slabs) {
                0 => cache.min_partial,
                free => free,
            },
            known: cache.hidden.map(Places::known),
            ..Self::default()
        };
        let last = slots.saturating_sub(1) as f64;
        if row.limit > 0 {
            // Of the objects that count as active, arrays take no more than half.
            let most = row.active_objs.saturating_sub(row.sharedavail) / 2;
            let cpus = u64::from(cpus.max(1));
            held.in_arrays = [(row.limit / 2).min(most / cpus), row.sharedavail];
        } else if cache.sheaf_capacity == 0 {
            held.held = lay.demand.users.round() as u64;
            held.held_free = [0.0, (lay.slots - lay.demand.used()).clamp(0.0, last), last];
            held.listed = lay.listed(at).round() as u64;
        }
        held
    }

    /// A snapshot's objects in the shape `to`, before the slabs are known; `slabs` are expected of it.
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
        let last = (to.slots - 1.0).max(0.0);
        let used = lay.demand.used().min(to.slots);
        Self {
            objects: objects.max(0.0).round() as u64,
            kept: kept.round() as u64,
            held: if holds_slabs { users.round() as u64 } else { 0 },
            held_free: match lay.is_exact {
                true => [to.slots - used; 3],
                false => [0.0, to.slots / 2.0, last],
            },
            open: Some(open.round() as u64),
            ..Self::default()
        }
    }

    /// The same with `objects` more, or less.
    pub(crate) fn add(&mut self, objects: i64) {
        self.objects = self.objects.saturating_add_signed(objects);
    }

    /// Places the objects in a number of slabs of `slots` places.
    pub(crate) fn settle(&mut self, slabs: u64, slots: u64) {
        (self.slabs, self.slots) = (slabs, slots);
        self.held = self.held.min(slabs);
    }

    /// Free places of the slabs on CPUs' lists, which have one history. As expected they are like the nodes' slabs, which came
    /// there when CPUs' lists overflowed; without such slabs they have no object, which is the commonest.
    pub fn listed_free(&self, draw: &mut Draw) -> u64 {
        let of_nodes = self.open.filter(|open| *open > 0);
        let of_nodes = of_nodes.map(|open| (self.open_free + open / 2) / open);
        let most = self.slots.max(1);
        let expected = of_nodes.map_or(most, |free| free.clamp(1, most));
        draw.of([1, expected, most].map(|free| free as f64))
    }

    /// Free places, those of slabs that CPUs allocate from apart. Those elsewhere are what is left of all.
    #[must_use]
    pub fn places(&self, draw: &mut Draw) -> Places {
        if let Some(known) = &self.known {
            return known.clone();
        }
        match self.is_observed {
            true => self.observed_places(draw),
            false => self.settled_places(draw),
        }
    }

    fn observed_places(&self, draw: &mut Draw) -> Places {
        let on_nodes = spread(
            self.open_free,
            self.slabs,
            self.slots,
            self.empty_most,
            self.open,
            draw,
        );
        let left = self.slabs.saturating_sub(on_nodes.len() as u64);
        let held = self.held.min(left);
        let most = (left - held).checked_div(held).unwrap_or(0);
        let each = match self.lists {
            None => self.listed.checked_div(held).unwrap_or(0).min(most),
            Some(_) => 0,
        };
        let free = self.listed_free(draw);
        let listed = |count| vec![free; count as usize];
        let counted = self.lists.iter().flatten().map(|(cpu, slabs)| OnCpu {
            cpu: Some(*cpu),
            free: 0,
            listed: listed(*slabs),
        });
        let held = (0..held).map(|_| OnCpu {
            cpu: None,
            free: draw.of(self.held_free),
            listed: listed(each),
        });
        let on_cpus = counted.chain(held).collect();
        Places {
            on_nodes,
            on_cpus,
            in_arrays: self.in_arrays,
        }
    }

    fn settled_places(&self, draw: &mut Draw) -> Places {
        let all = self.slabs.saturating_mul(self.slots);
        let free = all.saturating_sub(self.objects.saturating_add(self.kept));
        let others = self.slabs - self.held;
        // Each slab that no CPU holds has an object, so that no more can be free there.
        let room = self.slots.saturating_sub(1);
        let pinned = others.saturating_mul(room);
        let mut least = free.saturating_sub(pinned);
        let mut left = free;
        let on_cpus = (1..=self.held).rev().map(|cpus| {
            let most = self.slots.min(left);
            let of_cpu = draw.of(self.held_free);
            let of_cpu = of_cpu.max(least.div_ceil(cpus)).min(most);
            least = least.saturating_sub(of_cpu);
            left -= of_cpu;
            OnCpu {
                free: of_cpu,
                ..OnCpu::default()
            }
        });
        let on_cpus = on_cpus.collect();
        let left = left.min(pinned);
        let fewest = left.div_ceil(room.max(1));
        let most = others.min(left).max(fewest);
        let open = self.open.unwrap_or(0).clamp(fewest, most);
        let open = draw.partial_slabs(fewest, open, most);
        Places {
            on_nodes: spread(left, others, self.slots, 0, Some(open), draw),
            on_cpus,
            in_arrays: [0; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use quarry_snapshot::Slabinfo;

    use super::*;
    use crate::state::State;

    fn settled(objects: u64, held: u64, open: u64, slabs: u64, slots: u64) -> Places {
        let mut holding = Holding {
            objects,
            held,
            held_free: [0.0, slots as f64 / 2.0, slots as f64 - 1.0],
            open: Some(open),
            ..Holding::default()
        };
        holding.settle(slabs, slots);
        holding.places(&mut Draw::of_state(0))
    }

    /// Free places in CPUs' slabs; slabs on nodes' lists and free places there.
    fn counts(places: &Places) -> (u64, usize, u64) {
        let on_cpus = places.on_cpus.iter().map(|cpu| cpu.free);
        let on_nodes = &places.on_nodes;
        (on_cpus.sum(), on_nodes.len(), on_nodes.iter().sum())
    }

    #[test]
    fn free_places_are_in_slabs_of_cpus_and_in_open_ones() {
        assert_eq!(counts(&settled(150, 2, 3, 10, 20)), (20, 3, 30));
        // Three slabs cannot have 130 free places: seven have, with an object each.
        assert_eq!(counts(&settled(50, 2, 3, 10, 20)), (20, 7, 130));
        // Full slabs have none.
        assert_eq!(counts(&settled(200, 2, 3, 10, 20)), (0, 0, 0));
    }

    #[test]
    fn every_slab_has_what_pins_it() {
        // Ten slabs cannot be pinned by four objects: six more are allocated.
        assert_eq!(counts(&settled(4, 0, 10, 10, 20)), (0, 10, 190));
        // A CPU's slab may be empty.
        assert_eq!(counts(&settled(0, 1, 0, 1, 20)), (20, 0, 0));
        for (slabs, slots) in [(0, 8), (3, 1), (1, 1), (7, 0)] {
            let (on_cpus, _, on_nodes) = counts(&settled(5, 2, 4, slabs, slots));
            assert!(on_cpus + on_nodes <= slabs * slots);
        }
    }

    /// The cache of a row on two CPUs of a kernel 6.1.
    fn holding(row: SlabinfoRow) -> Holding {
        let snapshot = Snapshot {
            release: Some("6.1.0".to_string()),
            page_bytes: 4096,
            present_cpus: Some(2),
            slabinfo: Slabinfo { rows: vec![row] },
            ..Snapshot::default()
        };
        let state = State::of(&snapshot).unwrap();
        Holding::observed(
            &state.caches()[0],
            &snapshot,
            2,
            &Point::all(Level::Expected),
        )
    }

    /// Counts of a row of 21 objects a slab, with 5 slabs kept free: empty slabs, others with free places and these places,
    /// CPUs with a slab and slabs on the list of each.
    fn observed(row: SlabinfoRow) -> ((usize, usize, u64), (usize, usize)) {
        let places = holding(row).places(&mut Draw::of_state(0));
        let (empty, others): (Vec<u64>, Vec<u64>) =
            places.on_nodes.iter().partition(|free| **free >= 21);
        let listed = places.on_cpus.first().map_or(0, |cpu| cpu.listed.len());
        (
            (empty.len(), others.len(), others.iter().sum()),
            (places.on_cpus.len(), listed),
        )
    }

    fn row(slabs: u64, free: u64) -> SlabinfoRow {
        SlabinfoRow {
            name: "box".to_string(),
            active_objs: slabs * 21 - free,
            num_objs: slabs * 21,
            objsize: 192,
            objperslab: 21,
            pagesperslab: 1,
            active_slabs: slabs,
            num_slabs: slabs,
            ..SlabinfoRow::default()
        }
    }

    #[test]
    fn reported_caches() {
        // 12 slabs on a CPU's list.
        let of = |slabs, free| observed(row(slabs, free));
        assert_eq!(of(0, 0), ((0, 0, 0), (0, 0)));
        assert_eq!(of(1, 0), ((0, 0, 0), (1, 0)));
        assert_eq!(of(100, 0), ((0, 0, 0), (2, 0)));
        // Two slabs and a half: the list of each CPU has half of what it may hold.
        assert_eq!(of(100, 52), ((2, 1, 10), (2, 6)));
        // Beyond five free slabs the rest is in slabs that are half free.
        assert_eq!(of(100, 21 * 7), ((5, 4, 42), (2, 6)));
        // No slab is used twice.
        assert_eq!(of(3, 52), ((2, 1, 10), (0, 0)));
        // Not more slabs than there are: they are more than half free then.
        assert_eq!(of(9, 21 * 9 - 4), ((5, 4, 80), (0, 0)));
        // SLAB tells how many slabs are free.
        let slab = SlabinfoRow {
            active_slabs: 92,
            limit: 1,
            ..row(100, 21 * 9)
        };
        assert_eq!(observed(slab).0, (8, 2, 21));
        // Arrays are half full, the shared one has what is reported.
        let arrays = |objects: u64| {
            let row = SlabinfoRow {
                limit: 54,
                sharedavail: 189,
                ..row(objects / 21, 0)
            };
            holding(row).in_arrays
        };
        assert_eq!(arrays(2100), [27, 189]);
        assert_eq!(arrays(210), [5, 189]);
    }
}
