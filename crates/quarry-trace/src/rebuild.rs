//! Rows to a new trace: those that a filter keeps, or those that another program wrote.
//!
//! The rule of the crate's documentation holds for what crosses the cut, as if only the rows that are kept
//! had been recorded: a free of an object whose allocation is not kept is unknown, an object whose free is
//! not kept stays alive. Beyond the rule, a free that happened within the cut but is not kept itself proves
//! a kept object gone: it stays, as an implied one.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use crate::error::Result;
use crate::event::{
    Flags, FullRow, Kind, NO_CACHE, NO_OBJECT, NO_PAGE, NO_PFN, Place, ReplayEvent,
};
use crate::intern::NO_TEXT;
use crate::meta::{KindCounts, Orphans, TraceMeta};
use crate::write::{Row, Texts, TraceWriter};

/// An object or block of the new trace that is alive.
#[derive(Clone, Copy, Debug)]
struct Live {
    slot: u32,
    cache: u16,
    bytes_req: u32,
    bytes_alloc: u32,
    order: u8,
    page: Option<u32>,
}

/// An object or block that is alive and whose allocation is not kept.
#[derive(Clone, Copy, Debug)]
struct Outside {
    page: Option<u32>,
    order: u8,
    migratetype: i32,
}

/// Objects, or blocks of pages, by their slot in the rows that come.
#[derive(Debug, Default)]
struct Slots {
    live: HashMap<u32, Live>,
    outside: HashMap<u32, Outside>,
    free: Vec<u32>,
    count: u32,
}

/// A trace that is made of rows.
pub(crate) struct Rebuild<W: Write + Send> {
    out: TraceWriter<W>,
    texts: Texts,
    slots: [Slots; 2],
    /// Places of each page that were freed and not given again.
    reusable: HashMap<u32, u64>,
    live_bytes_req: u64,
    live_bytes_alloc: u64,
    live_pages: u64,
    cpus: u32,
    last_time_ns: u64,
    rows: u64,
    meta: TraceMeta,
}

impl<W: Write + Send> Rebuild<W> {
    /// Starts a trace; `meta` is what is known of the rows' origin and holds their cache table.
    pub(crate) fn new(
        out: W,
        name: &Path,
        zstd_level: i32,
        mut meta: TraceMeta,
    ) -> Result<Rebuild<W>> {
        meta.recorded = Kind::ALL
            .into_iter()
            .filter(|kind| meta.has_recorded(*kind))
            .collect();
        meta.events = KindCounts::default();
        meta.orphans = Orphans::default();
        (meta.null_frees, meta.failed_allocs) = (0, 0);
        (meta.time_regressions, meta.first_time_ns, meta.last_time_ns) = (0, 0, 0);
        (meta.peak_bytes_req, meta.peak_bytes_alloc, meta.peak_pages) = (0, 0, 0);
        for cache in &mut meta.caches {
            (cache.allocs, cache.frees) = (0, 0);
        }
        if let Some(found) = &mut meta.slab_memory {
            (found.allocs, found.frees) = (0, 0);
        }
        Ok(Rebuild {
            out: TraceWriter::new(out, name, zstd_level)?,
            texts: Texts::default(),
            slots: Default::default(),
            reusable: HashMap::new(),
            live_bytes_req: 0,
            live_bytes_alloc: 0,
            live_pages: 0,
            cpus: 0,
            last_time_ns: 0,
            rows: 0,
            meta,
        })
    }

    /// A row of the new trace.
    pub(crate) fn keep(&mut self, row: &FullRow) -> Result<()> {
        let event = &row.event;
        let space = usize::from(event.kind.is_page());
        if !event.kind.is_free() {
            return self.alloc(row);
        }
        if let Some(live) = self.slots[space].live.remove(&event.object) {
            return self.free(row, live, event.flags);
        }
        let outside = self.slots[space].outside.remove(&event.object);
        if event.flags.has(Flags::IMPLIED) {
            // What proved the object gone does not say that there was one.
            return Ok(());
        }
        self.unknown_free(row, outside)
    }

    /// A row from before the new trace.
    pub(crate) fn before(&mut self, row: &FullRow) {
        let slots = &mut self.slots[usize::from(row.event.kind.is_page())];
        if row.event.kind.is_free() {
            slots.outside.remove(&row.event.object);
        } else {
            let outside = Outside {
                page: row.place.map(|place| place.page),
                order: row.event.order,
                migratetype: row.migratetype,
            };
            slots.outside.insert(row.event.object, outside);
        }
    }

    /// A row that happened during the new trace and is not kept.
    pub(crate) fn leave_out(&mut self, row: &FullRow) -> Result<()> {
        let space = usize::from(row.event.kind.is_page());
        if row.event.kind.is_free()
            && let Some(live) = self.slots[space].live.remove(&row.event.object)
        {
            return self.free(row, live, row.event.flags.with(Flags::IMPLIED));
        }
        self.before(row);
        Ok(())
    }

    fn alloc(&mut self, row: &FullRow) -> Result<()> {
        let event = &row.event;
        let space = usize::from(event.kind.is_page());
        self.slots[space].outside.remove(&event.object);
        if let Some(live) = self.slots[space].live.remove(&event.object) {
            // The free of the object that had the slot was taken out of the rows.
            let mut gone = row.clone();
            gone.event.kind = event.kind.freed_by();
            gone.place = None;
            (gone.gfp_flags, gone.call_site, gone.stack) = (None, None, None);
            self.free(&gone, live, Flags::IMPLIED)?;
        }
        let slots = &mut self.slots[space];
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.count += 1;
            slots.count - 1
        });
        let live = Live {
            slot,
            cache: event.cache,
            bytes_req: event.bytes_req,
            bytes_alloc: row.bytes_alloc,
            order: event.order,
            page: row.place.map(|place| place.page),
        };
        slots.live.insert(event.object, live);
        let mut written = self.row(row, event.flags);
        written.event.object = slot;
        if event.kind.is_page() {
            self.live_pages += 1 << event.order;
            self.meta.peak_pages = self.meta.peak_pages.max(self.live_pages);
        } else {
            written.page = self.placed(row.place);
            self.live_bytes_req += u64::from(event.bytes_req);
            self.live_bytes_alloc += u64::from(row.bytes_alloc);
            self.meta.peak_bytes_req = self.meta.peak_bytes_req.max(self.live_bytes_req);
            self.meta.peak_bytes_alloc = self.meta.peak_bytes_alloc.max(self.live_bytes_alloc);
        }
        if let Some(cache) = self.meta.caches.get_mut(usize::from(event.cache)) {
            cache.allocs += 1;
        }
        self.emit(written)
    }

    /// The column `page` of an allocation. A place is fresh unless an object on its page was freed before:
    /// which place of the page it is, the rows do not tell, and how many are fresh is what matters.
    fn placed(&mut self, place: Option<Place>) -> u32 {
        let Some(Place { page, mut fresh }) = place else {
            return NO_PAGE;
        };
        if !fresh {
            match self.reusable.get_mut(&page).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => fresh = true,
            }
        }
        Place { page, fresh }.encode()
    }

    fn free(&mut self, row: &FullRow, live: Live, flags: Flags) -> Result<()> {
        let space = usize::from(row.event.kind.is_page());
        self.slots[space].free.push(live.slot);
        let mut written = self.row(row, flags);
        written.event.object = live.slot;
        written.event.cache = live.cache;
        written.event.bytes_req = live.bytes_req;
        written.event.order = live.order;
        written.bytes_alloc = live.bytes_alloc;
        let implied = flags.has(Flags::IMPLIED);
        if space == 1 {
            self.live_pages -= 1 << live.order;
            self.meta.orphans.implied_page_frees += u64::from(implied);
        } else {
            self.live_bytes_req -= u64::from(live.bytes_req);
            self.live_bytes_alloc -= u64::from(live.bytes_alloc);
            self.meta.orphans.implied_object_frees += u64::from(implied);
            if let Some(page) = live.page {
                *self.reusable.entry(page).or_default() += 1;
            }
        }
        if let Some(cache) = self.meta.caches.get_mut(usize::from(live.cache)) {
            cache.frees += 1;
        }
        self.emit(written)
    }

    /// A free of what is not known to live; `outside` is what its allocation said if that was left out.
    fn unknown_free(&mut self, row: &FullRow, outside: Option<Outside>) -> Result<()> {
        let orphans = &mut self.meta.orphans;
        match row.event.kind {
            Kind::MmPageFree => orphans.unknown_page_free += 1,
            Kind::KmemCacheFree => orphans.unknown_kmem_cache_free += 1,
            _ => orphans.unknown_kfree += 1,
        }
        let slab = Flags(row.event.flags.0 & Flags::SLAB.0);
        let mut written = self.row(row, slab.with(Flags::UNKNOWN));
        written.event.object = NO_OBJECT;
        written.event.bytes_req = 0;
        written.bytes_alloc = 0;
        // A kfree tells no cache: that of an object came from its allocation.
        if row.event.kind != Kind::KmemCacheFree {
            written.event.cache = NO_CACHE;
            written.cache_name = NO_TEXT;
        } else if let Some(cache) = self.meta.caches.get_mut(usize::from(row.event.cache)) {
            cache.frees += 1;
        }
        if row.event.kind.is_page() {
            // A replay allocates such a block before the part begins, with the type that it had.
            if let Some(outside) = outside {
                written.event.order = outside.order;
                written.migratetype = i8::try_from(outside.migratetype).unwrap_or(-1);
                written.event.place = written.migratetype;
            }
        } else {
            let page = row.place.map(|place| place.page);
            if let Some(page) = page.or(outside.and_then(|outside| outside.page)) {
                *self.reusable.entry(page).or_default() += 1;
                let fresh = false;
                written.page = Place { page, fresh }.encode();
            }
        }
        self.emit(written)
    }

    /// A row as it is to be written, but for what follows from its object.
    fn row(&mut self, row: &FullRow, flags: Flags) -> Row {
        let id = |text: &Option<String>, table: &mut crate::intern::Interner| {
            text.as_ref()
                .map_or(NO_TEXT, |text| table.id(text.as_bytes()))
        };
        let comm = self.texts.comms.id(row.comm.as_bytes());
        *self.texts.tasks.entry((row.pid, comm)).or_default() += 1;
        Row {
            event: ReplayEvent { flags, ..row.event },
            pid: row.pid,
            comm,
            cache_name: id(&row.cache, &mut self.texts.caches),
            bytes_alloc: row.bytes_alloc,
            gfp_flags: id(&row.gfp_flags, &mut self.texts.gfp_flags),
            node: i16::try_from(row.node).unwrap_or(-1),
            migratetype: i8::try_from(row.migratetype).unwrap_or(-1),
            call_site: id(&row.call_site, &mut self.texts.call_sites),
            page: row.place.map_or(NO_PAGE, Place::encode),
            stack: id(&row.stack, &mut self.texts.stacks),
            pfn: row.pfn.unwrap_or(NO_PFN),
        }
    }

    fn emit(&mut self, row: Row) -> Result<()> {
        let event = &row.event;
        let meta = &mut self.meta;
        if self.rows == 0 {
            meta.first_time_ns = event.time_ns;
        }
        meta.time_regressions += u64::from(event.time_ns < self.last_time_ns);
        self.last_time_ns = event.time_ns;
        meta.last_time_ns = meta.last_time_ns.max(event.time_ns);
        if !event.flags.has(Flags::IMPLIED) {
            *meta.events.get_mut(event.kind) += 1;
        }
        if event.flags.has(Flags::SLAB)
            && let Some(found) = &mut meta.slab_memory
        {
            if event.kind.is_free() {
                found.frees += 1;
            } else {
                found.allocs += 1;
            }
        }
        self.cpus = self.cpus.max(u32::from(event.cpu) + 1);
        self.rows += 1;
        self.out.push(row, &self.texts)
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The metadata that will be written, for what the caller has to say.
    pub(crate) fn meta_mut(&mut self) -> &mut TraceMeta {
        &mut self.meta
    }

    /// Writes the footer.
    pub(crate) fn finish(self) -> Result<TraceMeta> {
        let mut meta = self.meta;
        meta.cpus = meta.cpus.max(self.cpus).max(1);
        if meta.page_size == 0 {
            meta.page_size = crate::build::PAGE_SIZE_ASSUMED;
            meta.page_size_assumed = true;
        }
        meta.complete_assumptions();
        let [objects, pages] = self.slots;
        (meta.object_slots, meta.page_slots) = (objects.count, pages.count);
        meta.orphans.never_freed_objects = objects.live.len() as u64;
        meta.orphans.never_freed_pages = pages.live.len() as u64;
        self.out.finish(&mut meta, &self.texts)?;
        Ok(meta)
    }
}
