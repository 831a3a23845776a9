//! State in which the recording found the kernel, as its events show it.
//!
//! The trace tells which page an object lies on, whether its place is used for the first time; and
//! which slabs were made in the part. In the others,
//!
//! * a place that is used for the first time by an allocation of the part was free when the part began;
//! * of the places that were used before, n were free: the most by which the part's allocations
//!   are ahead of its frees;
//! * an object from before the part that is freed lay in the slab that its page tells.

use std::collections::HashMap;

use quarry_trace::{Flags, Kind, NO_CACHE, PAGE_GROUP_ORDER, Place, ReplayEvent};

use super::{CLASSES, KMALLOC_KINDS, NORMAL, Preparation, kmalloc_kind};
use crate::error::LabError;
use crate::replay::objects::NONE;
use crate::replay::part::{Phase, Window};
use quarry_snapshot::SlabinfoRow;

/// A slab from before the part.
#[derive(Clone, Debug, Default)]
pub(super) struct SlabSeen {
    /// Least number of places that were free when the part began.
    pub(super) free: u32,
    /// Objects that were alive then and are freed in the part.
    pub(super) died: u32,
    /// The CPU that took the first free place.
    pub(super) cpu: u16,
    /// Something was allocated from it.
    pub(super) used: bool,
    /// A CPU that allocated from it went on to another slab: it had no more free places.
    pub(super) used_up: bool,
    /// Allocations in places that were used before, less frees.
    ahead: i64,
    /// The most that it was; not below 0.
    ahead_max: i64,
}

/// A CPU that allocates from a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) cpu: u16,
    /// The slab of its first allocation; `None` if that was made in the part, or is not known.
    pub(super) first: Option<usize>,
    /// The slab of its last allocation so far.
    pub(super) last: Option<usize>,
}

/// Objects that passed through a CPU's sheaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// Objects freed less objects allocated so far.
    pub(super) net: i64,
    /// Their number when the CPU first allocated from a slab that it had made: just before, it had none.
    pub(super) net_when_empty: Option<i64>,
}

/// A free of an object from before the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    /// Its row in the trace, from 1.
    pub(super) row: u64,
    /// Index of the slab that it lay in, if that is known.
    pub(super) slab: Option<usize>,
}

/// An object that the part allocates and whose free has no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silent {
    /// Its number in the trace.
    pub(super) object: u32,
    /// Index of its cache among the report's rows.
    pub(super) row: u16,
    /// When it was allocated.
    pub(super) from_ns: u64,
    /// When its memory was used again, or when the part ended.
    pub(super) until_ns: u64,
}

/// Observations of the cache of one row of the report.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSeen {
    /// CPUs that allocate from it, in the order of their first allocation.
    pub(super) users: Vec<User>,
    pub(super) slabs: Vec<SlabSeen>,
    /// Indexes of slabs with free places, in the order in which the first place of each was taken.
    pub(super) taken: Vec<usize>,
    pub(super) orphans: Vec<Orphan>,
    /// Places that were free when the part began, in the order in which they were taken: the CPU that
    /// took each, and the index of its slab.
    pub(super) fresh: Vec<(u16, usize)>,
    /// True if the part allocates from slabs that were made in it.
    pub(super) grew: bool,
    /// By CPU.
    pub(super) flows: HashMap<u16, Flow>,
    slab_of: HashMap<u32, usize>,
}

/// Observations of a report's caches, in the order of its rows.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) rows: Vec<RowSeen>,
    /// True if the trace records pages at all.
    pub(super) tells_pages: bool,
    /// Objects of the part whose memory was used again, with no event of their free, in the order of that use.
    pub(super) ended: Vec<Silent>,
    /// Objects of the part that no event ends.
    pub(super) alive: Vec<Silent>,
}

/// An object while it is alive.
#[derive(Clone, Copy)]
struct Alive {
    row: u16,
    page: Option<u32>,
    before: bool,
    from_ns: u64,
}

impl Alive {
    fn silent(&self, object: u32, until_ns: u64) -> Silent {
        Silent {
            object,
            row: self.row,
            from_ns: self.from_ns,
            until_ns,
        }
    }
}

/// Rows by what events say.
struct Routes {
    of_group: Vec<u16>,
    of_kmalloc: [[u16; CLASSES]; KMALLOC_KINDS.len() + 1],
    /// Order of the row's slabs.
    orders: Vec<u32>,
}

struct Scan<'a> {
    preparation: &'a Preparation<'a>,
    routes: Routes,
    seen: Seen,
    /// By object id.
    alive: Vec<Option<Alive>>,
    /// Row by page.
    row_of_page: HashMap<u32, u16>,
    /// Rows of the trace that free objects of an unknown cache, by page.
    unknown: HashMap<u32, Vec<u64>>,
    /// Pages of slabs that were made in the part, and the CPU that made them.
    made: HashMap<u32, u16>,
}

impl Seen {
    /// Reads the trace up to the end of the replayed part once.
    pub(super) fn scan(
        preparation: &Preparation<'_>,
        rows: &[SlabinfoRow],
    ) -> Result<Self, LabError> {
        let mut seen = Self {
            rows: vec![RowSeen::default(); rows.len()],
            ..Self::default()
        };
        let Some(input) = preparation.input else {
            return Ok(seen);
        };
        let meta = input.file.meta();
        seen.tells_pages = meta.slab_memory.is_some();
        let mut scan = Scan {
            preparation,
            routes: Routes::new(preparation, rows),
            seen,
            alive: vec![None; meta.object_slots as usize],
            row_of_page: HashMap::new(),
            unknown: HashMap::new(),
            made: HashMap::new(),
        };
        let mut window = Window::new(input.part);
        let mut events = input.file.events_with_pages();
        let (mut chunk, mut places, mut number) = (Vec::new(), Vec::new(), 0);
        'read: while events.next_chunk(&mut chunk, &mut places)? {
            for (event, place) in chunk.iter().zip(&places) {
                let page = place.map(|place| place.page);
                number += 1;
                let phase = window.phase(event.time_ns);
                if phase == Phase::After {
                    break 'read;
                }
                match event.kind {
                    Kind::MmPageAlloc | Kind::MmPageFree => scan.slab_pages(event, page, phase),
                    kind if kind.is_free() => scan.free(number, event, page, phase),
                    _ => scan.alloc(event, *place, phase),
                }
            }
        }
        let mut seen = scan.seen;
        for row in &mut seen.rows {
            row.orphans.sort_by_key(|orphan| orphan.row);
        }
        let (_, until_ns) = input.part_bounds();
        let alive = (0..).zip(&scan.alive);
        let alive = alive.filter_map(|(object, alive)| {
            let alive = alive.filter(|alive| !alive.before)?;
            Some(alive.silent(object, until_ns))
        });
        seen.alive = alive.collect();
        Ok(seen)
    }
}

impl Routes {
    fn new(preparation: &Preparation<'_>, rows: &[SlabinfoRow]) -> Self {
        let mut routes = Self {
            of_group: vec![NONE; preparation.recorded().len()],
            of_kmalloc: [[NONE; CLASSES]; KMALLOC_KINDS.len() + 1],
            orders: Vec::with_capacity(rows.len()),
        };
        for (at, row) in (0_u16..).zip(rows) {
            if let Some((kind, class)) = preparation.class_of(row) {
                routes.of_kmalloc[kind][class.index as usize] = at;
            }
            for group in preparation.groups_of(row) {
                routes.of_group[group] = at;
            }
            routes.orders.push(row.pagesperslab.max(1).ilog2());
        }
        routes
    }

    /// The row that serves an allocation.
    fn of_alloc(&self, preparation: &Preparation<'_>, event: &ReplayEvent) -> Option<u16> {
        let row = if event.kind.is_kmalloc() {
            let class = preparation.kmalloc.class(event.bytes_req)?.index as usize;
            match self.of_kmalloc[kmalloc_kind(event.flags)][class] {
                NONE => self.of_kmalloc[NORMAL][class],
                typed => typed,
            }
        } else {
            self.of_cache(preparation, event.cache)?
        };
        Some(row).filter(|row| *row != NONE)
    }

    fn of_cache(&self, preparation: &Preparation<'_>, cache: u16) -> Option<u16> {
        let group = preparation.input?.cache_of.get(usize::from(cache))?;
        let row = self.of_group.get(usize::from(*group)).copied();
        row.filter(|row| *row != NONE)
    }
}

impl Scan<'_> {
    fn slab_pages(&mut self, event: &ReplayEvent, page: Option<u32>, phase: Phase) {
        let Some(first) = page.filter(|_| event.flags.has(Flags::SLAB)) else {
            return;
        };
        let pages = first..first + (1 << u32::from(event.order).min(PAGE_GROUP_ORDER));
        if event.kind.is_free() {
            pages.for_each(|page| _ = self.made.remove(&page));
        } else if phase == Phase::In {
            let cpu = self.cpu(event);
            self.made.extend(pages.map(|page| (page, cpu)));
        }
    }

    fn alloc(&mut self, event: &ReplayEvent, place: Option<Place>, phase: Phase) {
        let Some(row) = self.routes.of_alloc(self.preparation, event) else {
            return;
        };
        let maker = place.and_then(|place| self.made.get(&place.page).copied());
        let place = place.filter(|_| maker.is_none());
        let page = place.map(|place| place.page);
        let before = phase == Phase::Before;
        self.alive[event.object as usize] = Some(Alive {
            row,
            page,
            before,
            from_ns: event.time_ns,
        });
        if let Some(page) = page
            && self.row_of_page.insert(page, row).is_none()
        {
            for number in self.unknown.remove(&page).into_iter().flatten() {
                self.orphan(number, row, Some(page));
            }
        }
        if before {
            return;
        }
        let cpu = self.cpu(event);
        let slab = self.slab(row, page);
        let seen = &mut self.seen.rows[usize::from(row)];
        seen.grew |= maker.is_some();
        let flow = seen.flows.entry(cpu).or_default();
        if maker == Some(cpu) {
            flow.net_when_empty.get_or_insert(flow.net);
        }
        flow.net -= 1;
        match seen.users.iter_mut().find(|user| user.cpu == cpu) {
            None => seen.users.push(User {
                cpu,
                first: slab,
                last: slab,
            }),
            Some(user) if user.last != slab => {
                let left = std::mem::replace(&mut user.last, slab);
                if let Some(at) = left {
                    seen.slabs[at].used_up = true;
                }
            }
            Some(_) => {}
        }
        if let Some(at) = slab {
            let slab = &mut seen.slabs[at];
            slab.used = true;
            let mut free = place.is_some_and(|place| place.fresh);
            if !free {
                slab.ahead += 1;
                free = slab.ahead > slab.ahead_max;
                slab.ahead_max = slab.ahead_max.max(slab.ahead);
            }
            if free && slab.free == 0 {
                slab.cpu = cpu;
                seen.taken.push(at);
            }
            slab.free += u32::from(free);
            if free {
                seen.fresh.push((cpu, at));
            }
        }
    }

    fn free(&mut self, number: u64, event: &ReplayEvent, page: Option<u32>, phase: Phase) {
        let cpu = self.cpu(event);
        let known = self.alive.get_mut(event.object as usize);
        let known = known.and_then(Option::take);
        if phase == Phase::Before {
            return;
        }
        if let Some(alive) = known {
            self.flow(alive.row, cpu).net += 1;
            if alive.before {
                self.orphan(number, alive.row, alive.page);
                return;
            }
            self.shrink(alive.row, alive.page);
            if event.flags.has(Flags::IMPLIED) {
                self.seen
                    .ended
                    .push(alive.silent(event.object, event.time_ns));
            }
            return;
        }
        let page = page.filter(|page| !self.made.contains_key(page));
        let by_cache = match event.cache {
            NO_CACHE => None,
            cache => self.routes.of_cache(self.preparation, cache),
        };
        let by_page = || self.row_of_page.get(&page?).copied();
        match (by_cache.or_else(by_page), page) {
            (Some(row), page) => {
                if let Some(page) = page {
                    self.row_of_page.insert(page, row);
                }
                self.flow(row, cpu).net += 1;
                self.orphan(number, row, page);
            }
            (None, Some(page)) => self.unknown.entry(page).or_default().push(number),
            (None, None) => {}
        }
    }

    fn flow(&mut self, row: u16, cpu: u16) -> &mut Flow {
        let flows = &mut self.seen.rows[usize::from(row)].flows;
        flows.entry(cpu).or_default()
    }

    /// The virtual CPU of an event. A machine has at most 4096 CPUs.
    fn cpu(&self, event: &ReplayEvent) -> u16 {
        event.cpu % self.preparation.spec.config.cpus as u16
    }

    fn orphan(&mut self, number: u64, row: u16, page: Option<u32>) {
        let slab = self.shrink(row, page);
        if let Some(at) = slab {
            self.seen.rows[usize::from(row)].slabs[at].died += 1;
        }
        let orphan = Orphan { row: number, slab };
        self.seen.rows[usize::from(row)].orphans.push(orphan);
    }

    /// An object of a slab is gone.
    fn shrink(&mut self, row: u16, page: Option<u32>) -> Option<usize> {
        let slab = self.slab(row, page)?;
        self.seen.rows[usize::from(row)].slabs[slab].ahead -= 1;
        Some(slab)
    }

    /// Index of the slab that a page belongs to.
    fn slab(&mut self, row: u16, page: Option<u32>) -> Option<usize> {
        let order = self.routes.orders[usize::from(row)];
        let id = page.filter(|_| order <= PAGE_GROUP_ORDER)? >> order;
        let seen = &mut self.seen.rows[usize::from(row)];
        let next = seen.slabs.len();
        let at = *seen.slab_of.entry(id).or_insert(next);
        if at == next {
            seen.slabs.push(SlabSeen::default());
        }
        Some(at)
    }
}

impl RowSeen {
    /// All CPUs: first those that allocate, in the order in which they do.
    pub(super) fn cpus_first(&self, machine_cpus: u32) -> Vec<u16> {
        // A machine has at most 4096 CPUs.
        let users = || self.users.iter().map(|user| user.cpu);
        let others = (0..machine_cpus as u16).filter(|cpu| users().all(|user| user != *cpu));
        users().chain(others).collect()
    }
}
