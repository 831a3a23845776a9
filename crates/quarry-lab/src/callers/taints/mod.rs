//! Who spoils blocks of memory: each first page of the kernel in a block that had none, and what became of it.
//!
//! One pass over a recording's rows; nothing is replayed. A block is spoiled while a page that cannot be moved lies in it:
//! one that was allocated as unmovable or reclaimable. Whether a block was clean at the beginning is known from the map of
//! memory that the recording has ([`quarry_snapshot::blocks`]); without one, and where pages without a flag leave it
//! open, the block's state is unknown until an allocation takes all of it.
//!
//! A page's cache is that of the first object seen on it, as the importer places objects; its call site is the object's if
//! the same task allocated both, else the caller of the page allocator on the page's stack.
//!
//! Memory is an entry for each block that an event touches, for each block of pages that may be alive at once, and for each of
//! the first [`TAINTS_MAX`] taints.

mod answer;
mod blocks;
mod perfetto;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;

use quarry_snapshot::Snapshot;
use quarry_snapshot::blocks::{BLOCK_BYTES, BlockMap};
use quarry_trace::{Flags, FullRow, PAGE_GROUP_ORDER, TraceFile, TraceMeta};

use super::names::{KmallocNames, Names};
use crate::error::LabError;
use blocks::{Blocks, Fallbacks};

pub(crate) use answer::reclaim;
pub use answer::{Cause, Changed, OfBlocks, Share, Taint, Taints};
pub use perfetto::perfetto;
pub use view::{TABLES, TAINTS, view};

/// Most taints that are kept; further ones are only counted.
pub const TAINTS_MAX: usize = 1_000_000;
/// Bytes of the largest huge page that machines have.
const GIGABYTE: u64 = 1 << 30;
/// Migrate type of pages that can be moved.
const MOVABLE: u8 = 1;
/// Number of a name that is not known.
const UNNAMED: u32 = u32::MAX;

/// Use of a slot of the recording's page blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    /// Free, or allocated before the recording.
    #[default]
    Unknown,
    Movable,
    Kernel,
}

/// A block of pages that is alive.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    pfn: u64,
    /// Number of its cache's name, or [`UNNAMED`].
    cache: u32,
    order: u8,
    used_as: Use,
}

/// A taint as the pass notes it: texts are numbers of names.
#[derive(Clone, Copy, Debug)]
struct Found {
    size: u8,
    order: u8,
    migratetype: u8,
    /// True if the block surely was clean.
    was_clean: bool,
    is_slab: bool,
    fallback: bool,
    index: u64,
    pfn: u64,
    time_ns: u64,
    pid: i32,
    process: u32,
    cache: u32,
    site: u32,
    gfp: u32,
    /// When the block was clean again.
    until_ns: Option<u64>,
    /// Cache of the page that left last.
    last: u32,
}

/// A pass over the rows.
struct Pass<'a> {
    meta: &'a TraceMeta,
    /// Moments between which taints count.
    counted: std::ops::Range<u64>,
    sizes: Vec<Blocks<'a>>,
    fallbacks: Fallbacks,
    pages: Vec<Page>,
    /// Slots of slabs without a name yet, by the ids of their pages.
    by_page: HashMap<u32, u32>,
    /// Taints whose page has no name yet, by its slot.
    unnamed: HashMap<u32, Vec<u32>>,
    kmallocs: KmallocNames,
    names: Names,
    found: Vec<Found>,
    omitted: u64,
    untyped: u64,
    without_frame: u64,
}

impl Taints {
    /// Reads a trace; `snapshots` are those of the recording, the oldest first.
    ///
    /// # Errors
    ///
    /// [`LabError::Trace`] if the trace cannot be read, [`LabError::Usage`] if it has no page events with frame numbers.
    pub fn of(file: &TraceFile, snapshots: &[Snapshot]) -> Result<Self, LabError> {
        let meta = file.meta();
        let missing = |what: &str| {
            Err(LabError::Usage(format!(
                "--taints: the recording has no {what}; `quarry record` keeps them"
            )))
        };
        if meta.events.mm_page_alloc == 0 {
            return missing("events of pages (mm_page_alloc, mm_page_free)");
        }
        let [first, last] = maps(snapshots, meta);
        let counted = moments(meta, first.is_some());
        let mut pass = Pass::new(meta, first, counted);
        let (mut rows, mut chunk) = (file.rows(), Vec::new());
        while rows.next_chunk(&mut chunk)? {
            chunk.iter().for_each(|row| pass.take(row));
        }
        if pass.without_frame > 0 && pass.sizes.iter().all(Blocks::is_untouched) {
            return missing("frame numbers of pages");
        }
        Ok(answer::of(pass, first.zip(last)))
    }
}

/// The maps of memory at both ends, of the page size of the recording.
fn maps<'a>(snapshots: &'a [Snapshot], meta: &TraceMeta) -> [Option<&'a BlockMap>; 2] {
    let map = |snapshot: &'a Snapshot| {
        let map = snapshot.blocks.as_ref();
        map.filter(|map| map.page_bytes == u64::from(meta.page_size))
    };
    match snapshots {
        [] => [None, None],
        [only] => [map(only), None],
        [first, .., last] => [map(first), map(last)],
    }
}

/// The part between the maps: vmstat is read next to them.
fn moments(meta: &TraceMeta, has_map: bool) -> std::ops::Range<u64> {
    let times = |name: &str| {
        let reports = meta.reports.iter().filter(|report| report.name == name);
        let times: Vec<u64> = reports.map(|report| report.time_ns).collect();
        Some(times).filter(|times| has_map && !times.is_empty())
    };
    match times("vmstat").or_else(|| times("snapshot")).as_deref() {
        Some([from_ns, .., until_ns]) => *from_ns..*until_ns,
        Some([from_ns]) => *from_ns..u64::MAX,
        _ => 0..u64::MAX,
    }
}

impl<'a> Pass<'a> {
    fn new(meta: &'a TraceMeta, map: Option<&'a BlockMap>, counted: std::ops::Range<u64>) -> Self {
        let page_bytes = u64::from(meta.page_size).max(1);
        // A page of tables has entries of 8 bytes: 4 KiB give blocks of 2 MiB, and 64 KiB such of 512 MiB.
        let own = (page_bytes / 8 * page_bytes).max(BLOCK_BYTES);
        let mut sizes = vec![own, GIGABYTE];
        sizes.dedup();
        let blocks = |size: &u64| Blocks::new(*size, page_bytes, map);
        Self {
            meta,
            counted,
            fallbacks: Fallbacks::new(&meta.moves, own / page_bytes),
            sizes: sizes.iter().map(blocks).collect(),
            pages: vec![Page::default(); meta.page_slots as usize],
            by_page: HashMap::new(),
            unnamed: HashMap::new(),
            kmallocs: KmallocNames::of(meta),
            names: Names::default(),
            found: Vec::new(),
            omitted: 0,
            untyped: 0,
            without_frame: 0,
        }
    }

    fn take(&mut self, row: &FullRow) {
        match (row.event.kind.is_page(), row.event.kind.is_free()) {
            (true, false) => self.alloc(row),
            (true, true) => self.free(row),
            (false, false) => self.object(row),
            (false, true) => {}
        }
    }

    fn alloc(&mut self, row: &FullRow) {
        let event = &row.event;
        let Some(pfn) = row.pfn else {
            self.without_frame += 1;
            return;
        };
        let migratetype = event.migratetype();
        self.untyped += u64::from(migratetype.is_none());
        let is_kernel = migratetype.is_some_and(|migratetype| migratetype != MOVABLE);
        let mut page = Page {
            pfn,
            cache: UNNAMED,
            order: event.order,
            used_as: if is_kernel { Use::Kernel } else { Use::Movable },
        };
        if is_kernel && !is_slab(row) {
            let flags = row.gfp_flags.as_deref().unwrap_or("unknown flags");
            page.cache = self.names.number(&format!("pages ({flags})"));
        }
        let counts = self.counted.contains(&event.time_ns);
        let mut begun = Vec::new();
        for (size, blocks) in self.sizes.iter_mut().enumerate() {
            for (index, was_clean) in blocks.alloc(pfn, event.order, is_kernel, counts) {
                begun.push((size as u8, index, was_clean));
            }
        }
        for (size, index, was_clean) in begun {
            self.begin(row, page, (size, index, was_clean));
        }
        if is_kernel {
            for id in ids(row) {
                self.by_page.insert(id, event.object);
            }
        }
        if let Some(of_slot) = self.pages.get_mut(event.object as usize) {
            *of_slot = page;
        }
    }

    /// Notes that a block is spoiled by this page.
    fn begin(&mut self, row: &FullRow, page: Page, (size, index, was_clean): (u8, u64, bool)) {
        let event = &row.event;
        let blocks = &mut self.sizes[usize::from(size)];
        let fallback = self
            .fallbacks
            .explain(page.pfn, event.time_ns, blocks.clean_since(index));
        blocks.count(index, was_clean, fallback);
        if self.found.len() == TAINTS_MAX {
            self.omitted += 1;
            return;
        }
        let at = self.found.len() as u32;
        blocks.set_taint(index, at);
        let site = row.stack.as_deref().and_then(caller);
        self.found.push(Found {
            size,
            order: event.order,
            migratetype: event.migratetype().unwrap_or_default(),
            was_clean,
            is_slab: is_slab(row),
            fallback,
            index,
            pfn: page.pfn,
            time_ns: event.time_ns,
            pid: row.pid,
            process: self.names.number(&row.comm),
            cache: page.cache,
            site: site.map_or(UNNAMED, |site| self.names.number(site)),
            gfp: self
                .names
                .number(row.gfp_flags.as_deref().unwrap_or_default()),
            until_ns: None,
            last: UNNAMED,
        });
        if page.cache == UNNAMED {
            self.unnamed.entry(event.object).or_default().push(at);
        }
    }

    /// An object tells the cache of the slab that it lies on.
    fn object(&mut self, row: &FullRow) {
        let Some(slot) = row.place.and_then(|place| self.by_page.remove(&place.page)) else {
            return;
        };
        let Some(page) = self.pages.get_mut(slot as usize) else {
            return;
        };
        if page.used_as != Use::Kernel || page.cache != UNNAMED {
            return;
        }
        let event = &row.event;
        let cache = match self.meta.cache(event.cache) {
            _ if event.kind.is_kmalloc() => self.kmallocs.name(event.bytes_req),
            Some(cache) => cache.name.as_str(),
            None => row.cache.as_deref().unwrap_or("unknown"),
        };
        page.cache = self.names.number(cache);
        for at in self.unnamed.remove(&slot).into_iter().flatten() {
            let taint = &mut self.found[at as usize];
            taint.cache = page.cache;
            if let Some(site) = row.call_site.as_deref().filter(|_| taint.pid == row.pid) {
                taint.site = self.names.number(site);
            }
        }
    }

    fn free(&mut self, row: &FullRow) {
        let event = &row.event;
        let slot = self.pages.get_mut(event.object as usize);
        let page = slot.map(std::mem::take).unwrap_or_default();
        self.unnamed.remove(&event.object);
        for id in ids(row) {
            self.by_page.remove(&id);
        }
        match page.used_as {
            Use::Movable => {}
            Use::Kernel => {
                for blocks in &mut self.sizes {
                    for at in blocks.free(page.pfn, page.order, event.time_ns, &self.counted) {
                        let taint = &mut self.found[at as usize];
                        taint.until_ns = Some(event.time_ns);
                        taint.last = page.cache;
                    }
                }
            }
            Use::Unknown => match row.pfn {
                Some(pfn) if self.counted.contains(&event.time_ns) => {
                    let blocks = self.sizes.iter_mut();
                    blocks.for_each(|blocks| blocks.free_old(pfn, event.order, event.time_ns));
                }
                Some(_) => {}
                None => self.without_frame += 1,
            },
        }
    }
}

/// The function on a stack that called the page allocator: the innermost that is none of it.
fn caller(stack: &str) -> Option<&str> {
    const OWN: [&str; 5] = [
        "alloc_pages",
        "frozen_pages",
        "folio_alloc",
        "get_free_page",
        "get_zeroed_page",
    ];
    let mut functions = stack.rsplit(';');
    functions.find(|function| !OWN.iter().any(|own| function.contains(own)))
}

/// Ids of the pages of a slab's page event; none of another's.
fn ids(row: &FullRow) -> std::ops::Range<u32> {
    let Some(place) = row.place.filter(|_| is_slab(row)) else {
        return 0..0;
    };
    let pages = match u32::from(row.event.order) {
        order if order <= PAGE_GROUP_ORDER => 1 << order,
        _ => 1,
    };
    place.page..place.page.saturating_add(pages)
}

/// True if objects lie in the block of a page event.
fn is_slab(row: &FullRow) -> bool {
    row.event.flags.has(Flags::SLAB)
}
