//! Free places of a row's slabs, those that the recording shows among them.

use quarry_core::geometry::Geometry;
use quarry_snapshot::SlabinfoRow;
use quarry_state::{Draw, Holding, Places, known_free, spread};

use super::lists::{decide, nodes_order, takes};
use super::seen::{RowSeen, SlabSeen};

/// Free places of a row.
#[derive(Default)]
pub(super) struct Shape {
    /// Slabs of the nodes' lists, in the order of the lists.
    pub(super) on_nodes: Vec<Slab>,
    pub(super) on_cpus: Vec<OnCpu>,
    /// Free objects in the array of each CPU, and in the one that they share.
    pub(super) in_arrays: [u64; 2],
}

/// A slab with free places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slab {
    /// Its index among those that are seen, if it is one of them.
    pub(super) seen: Option<usize>,
    /// Free places.
    pub(super) free: u64,
}

impl Slab {
    fn unseen(free: u64) -> Self {
        Self { seen: None, free }
    }

    pub(super) fn seen(at: usize, free: u32) -> Self {
        Self {
            seen: Some(at),
            free: free.into(),
        }
    }
}

/// State of a CPU.
#[derive(Default)]
pub(super) struct OnCpu {
    pub(super) cpu: u16,
    /// The slab that it allocates from; without free places if there is none.
    pub(super) slab: Slab,
    /// Slabs of its list, first the one that it uses first.
    pub(super) listed: Vec<Slab>,
}

impl Shape {
    /// Shape of places that nothing else tells of. `cpus` are those of the machine, first those that use the cache first.
    pub(super) fn of(places: Places, cpus: &[u16]) -> Self {
        let mut first = cpus.iter().copied();
        let on_cpus = places.on_cpus.into_iter().map(|held| OnCpu {
            // CPUs that the run has not are those that it has.
            cpu: match held.cpu {
                Some(cpu) => (cpu as usize % cpus.len().max(1)) as u16,
                None => first.next().unwrap_or(0),
            },
            slab: Slab::unseen(held.free),
            listed: held.listed.into_iter().map(Slab::unseen).collect(),
        });
        Self {
            on_cpus: on_cpus.collect(),
            on_nodes: places.on_nodes.into_iter().map(Slab::unseen).collect(),
            in_arrays: places.in_arrays,
        }
    }

    /// Shape of a row whose slabs are those of the geometry, where the recording shows in which slabs free places were. `lists`
    /// has the slabs on each CPU's own list; it is empty if that is not told.
    pub(super) fn seen(
        row: &SlabinfoRow,
        geometry: &Geometry,
        seen: &RowSeen,
        holding: &Holding,
        lists: &[u64],
        draw: &mut Draw,
    ) -> Self {
        let (objects, known_free) = (row.objperslab, known_free(row));
        let partial = holding.open;
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
                let more = match slab.used_up {
                    true => 0,
                    false => draw.pick(0, (unknown / 2).into(), unknown.into()),
                };
                // No more than a slab has.
                Slab::seen(at, slab.free + more as u32)
            });
            shape.on_cpus.push(OnCpu {
                cpu: user.cpu,
                slab: slab.unwrap_or_default(),
                listed: Vec::new(),
            });
        }
        let listed_max = (2 * u64::from(geometry.cpu_partial)).div_ceil(objects) as usize;
        let mut takes = takes(seen, &placed);
        let is_heeded = decide(&mut takes, listed_max, lists, known_free);
        for (of_cpu, takes) in shape.on_cpus.iter_mut().zip(&takes) {
            of_cpu.listed = takes.slabs[..takes.listed].to_vec();
        }
        // As kernels take that count these lists in slabs; none if there are no such lists.
        let more_max = match listed_max {
            0 => 0,
            most => most / 2 + 1,
        };
        shape.on_nodes = nodes_order(&seen.taken, &takes, more_max);
        let unseen = row.num_slabs.saturating_sub(seen.slabs.len() as u64);
        let left = known_free.saturating_sub(shape.free_on_nodes());
        shape.scatter(seen, &placed, (unseen, objects, left), partial, draw);
        let whole = shape.on_nodes.iter().filter(|slab| slab.free >= objects);
        let kept_free = u64::from(geometry.min_partial).saturating_sub(whole.count() as u64);
        let unseen_free = known_free
            .saturating_sub(shape.free_on_nodes())
            .min(unseen.saturating_mul(objects));
        let known = shape.on_nodes.len() as u64;
        let others = partial.map(|told| told.saturating_sub(known));
        let others = spread(unseen_free, unseen, objects, kept_free, others, draw);
        if is_heeded {
            let homeless = seen.orphans.iter().filter(|orphan| orphan.slab.is_none());
            let needed = (homeless.count() as u64).div_ceil(objects);
            let left = unseen.saturating_sub(others.len() as u64 + needed);
            shape.list_unseen(lists, holding.listed_free(draw), listed_max as u64, left);
        }
        shape.on_nodes.extend(others.into_iter().map(Slab::unseen));
        shape
    }

    fn free_on_nodes(&self) -> u64 {
        self.on_nodes.iter().map(|slab| slab.free).sum()
    }

    /// Scatters free places over slabs that the recording shows by frees alone: as likely there as in the slabs that it
    /// does not show. These are `unseen` slabs of `objects` each, with `free` free ones in all of both kinds.
    fn scatter(
        &mut self,
        seen: &RowSeen,
        placed: &[bool],
        (unseen, objects, free): (u64, u64, u64),
        partial: Option<u64>,
        draw: &mut Draw,
    ) {
        let is_untold = |(at, slab): &(usize, &SlabSeen)| {
            !slab.used && !placed[*at] && u64::from(slab.died) < objects
        };
        let untold = || seen.slabs.iter().enumerate().filter(is_untold);
        let slabs = (unseen + untold().count() as u64) as f64;
        let known = self.on_nodes.len() as u64;
        let partial = partial.map_or(slabs, |told| slabs.min(told.saturating_sub(known) as f64));
        if partial == 0.0 {
            return;
        }
        let share = (free as f64 / (partial * objects as f64)).min(1.0);
        for (at, slab) in untold() {
            if draw.happens(partial / slabs) {
                let others = objects - u64::from(slab.died);
                // At most a slab's objects.
                let free = (others as f64 * draw.share(share)).round() as u32;
                self.on_nodes.push(Slab::seen(at, free));
            }
        }
        self.on_nodes.retain(|slab| slab.free > 0);
    }

    /// Fills the CPUs' lists up to their reported lengths, beyond the slabs that are seen, with slabs that are not: at most
    /// `slabs` of them, with `free` free places each.
    pub(super) fn list_unseen(
        &mut self,
        lists: &[u64],
        free: u64,
        listed_max: u64,
        mut slabs: u64,
    ) {
        // A machine has at most 4096 CPUs.
        for (cpu, told_slabs) in (0_u16..).zip(lists) {
            let at = self.on_cpus.iter().position(|seen| seen.cpu == cpu);
            let at = at.unwrap_or_else(|| {
                self.on_cpus.push(OnCpu {
                    cpu,
                    ..OnCpu::default()
                });
                self.on_cpus.len() - 1
            });
            let listed = &mut self.on_cpus[at].listed;
            let more = (*told_slabs).min(listed_max);
            let more = more.saturating_sub(listed.len() as u64).min(slabs);
            listed.extend((0..more).map(|_| Slab::unseen(free)));
            slabs -= more;
        }
    }
}
