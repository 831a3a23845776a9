//! Events to rows: addresses become object ids, and the orphan rule is applied.
//!
//! The rule is stated in the crate's documentation; this is the only place that knows it.

use std::collections::HashMap;
use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};

use crate::addresses::{Addresses, has_several_page_sizes, page_bytes_of};
use crate::error::{Result, TraceError};
use crate::event::{Flags, Kind, NO_CACHE, NO_OBJECT, NO_PAGE, NO_PFN, RawEvent, ReplayEvent};
use crate::import::caches::{CACHES_MAX, Caches, KMALLOC};
use crate::import::held::{Held, Sort};
use crate::import::live::{Live, Space};
use crate::intern::NO_TEXT;
use crate::meta::TraceMeta;
use crate::pages::{HELD_ROWS, Pages};
use crate::recorded::HASHED_POINTERS;
use crate::waiting::Waiting;
use crate::write::{Row, Texts, TraceWriter};

/// Page size that a trace gets if its source names none.
pub const PAGE_SIZE_ASSUMED: u32 = 4096;
/// Return value of `kmalloc(0)`.
const ZERO_SIZE_PTR: u64 = 16;

/// The time of the last event.
#[derive(Debug, Default)]
struct Moment {
    time_ns: u64,
    /// CPU of its first event.
    cpu: u16,
    /// Other CPUs have events of it.
    is_shared: bool,
}

/// A block of pages that the kernel gave back or took, so that no object is in it.
struct Emptied {
    /// The event of the block.
    proof: Held,
    /// First addresses of the objects that seemed alive in it then.
    objects: Vec<u64>,
}

/// Makes a trace from events in the order of their time.
///
/// Memory: what is alive, the distinct strings, and one row group.
///
/// ```
/// use quarry_trace::{Kind, RawEvent, TraceBuilder, TraceFile};
///
/// let mut file = Vec::new();
/// let mut trace = TraceBuilder::new(&mut file, "example".as_ref(), 3)?;
/// let alloc = RawEvent { bytes_req: 100, bytes_alloc: 128, ..RawEvent::new(Kind::Kmalloc, 0xffff_8881_0000_0000) };
/// trace.push(&alloc)?;
/// trace.push(&RawEvent { time_ns: 7, ..RawEvent::new(Kind::Kfree, 0xffff_8881_0000_0000) })?;
/// trace.meta_mut().source = "example".to_string();
/// trace.finish()?;
///
/// let trace = TraceFile::from_bytes(file)?;
/// assert_eq!((trace.meta().rows, trace.meta().object_slots), (2, 1));
/// # Ok::<(), quarry_trace::TraceError>(())
/// ```
pub struct TraceBuilder<W: Write + Send> {
    out: TraceWriter<W>,
    held: Pages,
    texts: Texts,
    caches: Caches,
    objects: Space,
    pages: Space,
    gfp_bits: HashMap<u32, Flags>,
    live_bytes_req: u64,
    live_bytes_alloc: u64,
    live_pages: u64,
    cpu_max: u16,
    last_time_ns: u64,
    first_row: bool,
    addresses: Addresses,
    /// Low addresses are those of a 64-bit kernel.
    has_hashed_pointers: bool,
    /// Blocks that were empty at the time of the last event, though objects in them seem alive.
    emptied: Vec<Emptied>,
    moment: Moment,
    waiting: Waiting,
    meta: TraceMeta,
}

impl<W: Write + Send> TraceBuilder<W> {
    /// Starts a trace. `name` is what errors call the output; `zstd_level` is 1 to 22.
    ///
    /// # Errors
    /// If `out` does not take the first bytes, or the level is out of range.
    pub fn new(out: W, name: &Path, zstd_level: i32) -> Result<TraceBuilder<W>> {
        let mut texts = Texts::default();
        let kmalloc_name = texts.caches.id(b"kmalloc");
        Ok(TraceBuilder {
            out: TraceWriter::new(out, name, zstd_level)?,
            held: Pages::new(HELD_ROWS),
            texts,
            caches: Caches::new(kmalloc_name),
            objects: Space::default(),
            pages: Space::default(),
            gfp_bits: HashMap::new(),
            live_bytes_req: 0,
            live_bytes_alloc: 0,
            live_pages: 0,
            cpu_max: 0,
            last_time_ns: 0,
            first_row: true,
            addresses: Addresses::default(),
            has_hashed_pointers: false,
            emptied: Vec::new(),
            moment: Moment::default(),
            waiting: Waiting::default(),
            meta: TraceMeta::default(),
        })
    }

    /// Metadata so far; the caller fills in kernel, command, page size and the like.
    ///
    /// `cpus` and `page_size` of 0 are replaced when the trace is finished.
    pub fn meta_mut(&mut self) -> &mut TraceMeta {
        &mut self.meta
    }

    /// Objects and page blocks alive now.
    #[must_use]
    pub fn live(&self) -> (usize, usize) {
        (self.objects.live(), self.pages.live())
    }

    /// True if a live object starts at this address, or a live block at this page frame number.
    pub(crate) fn is_live(&self, page: bool, address: u64) -> bool {
        if page {
            self.pages.has(address)
        } else {
            self.objects.has(address)
        }
    }

    /// True if an object at this address may be of this cache: none is known there, or one of this sort is.
    pub(crate) fn may_be(&self, address: u64, sort: Sort) -> bool {
        self.objects.at(address).is_none_or(|live| {
            (live.kind.is_kmalloc(), live.bytes_alloc) == (sort.kmalloc, sort.bytes_alloc)
        })
    }

    /// The page frame that an address lies in, as far as it is known where pages are.
    pub(crate) fn page_of(&self, address: u64) -> Option<u64> {
        self.held.page_of(address)
    }

    /// Addresses of the objects alive in a block of pages, as far as it is known where pages are.
    pub(crate) fn objects_in(&self, page: u64, order: u8) -> impl Iterator<Item = u64> {
        let block = self.held.addresses(page, order);
        self.objects.starts_in(block.unwrap_or_default())
    }

    /// Says that low addresses are those of a 64-bit kernel: hashes, or memory at low addresses.
    pub(crate) fn set_hashed_pointers(&mut self) {
        self.has_hashed_pointers = true;
    }

    /// True if a row has this thread id.
    pub(crate) fn has_pid(&self, pid: i32) -> bool {
        self.texts.tasks.keys().any(|(known, _)| *known == pid)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// If the output cannot be written or the cache table is full.
    pub fn push(&mut self, event: &RawEvent<'_>) -> Result<()> {
        *self.meta.events.get_mut(event.kind) += 1;
        self.cpu_max = self.cpu_max.max(event.cpu);
        if self.leads_nowhere(event) {
            return Ok(());
        }
        self.step(event)?;
        if !event.kind.is_page() {
            self.addresses.note(event.address);
        }
        match event.kind {
            Kind::MmPageAlloc => self.page_alloc(event),
            Kind::MmPageFree => self.page_free(event),
            Kind::Kfree | Kind::KmemCacheFree => self.object_free(event),
            _ => self.object_alloc(event),
        }
    }

    /// Counts the frees of nothing and the allocations that failed: they have no row.
    fn leads_nowhere(&mut self, event: &RawEvent<'_>) -> bool {
        let nothing = match event.kind {
            kind if kind.is_page() => event.address == u64::MAX,
            _ => event.address == 0 || event.address == ZERO_SIZE_PTR,
        };
        if nothing && event.kind.is_free() {
            self.meta.null_frees += 1;
        } else if nothing {
            self.meta.failed_allocs += 1;
        }
        nothing
    }

    fn object_alloc(&mut self, event: &RawEvent<'_>) -> Result<()> {
        let site = self.site(event);
        let name = event
            .cache
            .map_or(NO_TEXT, |name| self.texts.caches.id(name));
        let cache = if event.kind.is_kmalloc() {
            Some(KMALLOC)
        } else if name == NO_TEXT {
            self.caches
                .provisional(site, event.bytes_req, event.bytes_alloc)
        } else {
            self.caches
                .named_alloc(name, event.bytes_req, event.bytes_alloc)
        };
        let cache = cache.ok_or_else(|| self.too_many_caches())?;
        // Only the bytes asked for are surely the object's own: SLOB counts its header, which lies
        // before the address, and debugging red zones lie on both sides.
        let length = u64::from(event.bytes_req).max(1);
        let exact = self.addresses.are_hashed();
        // Mostly nothing is there. If something is, its free had no event (a bulk call) or was lost, and it must end
        // before the new object gets a slot: a replay would refuse a slot that is allocated twice.
        while let Some(slot) = self.objects.overlap(event.address, length, exact) {
            self.imply_object_free(event, slot)?;
        }
        let object = self.objects.insert(Live {
            start: event.address,
            length,
            time_ns: event.time_ns,
            kind: event.kind,
            order: 0,
            cache,
            bytes_req: event.bytes_req,
            bytes_alloc: event.bytes_alloc,
        });
        self.live_bytes_req += u64::from(event.bytes_req);
        self.live_bytes_alloc += u64::from(event.bytes_alloc);
        self.meta.peak_bytes_req = self.meta.peak_bytes_req.max(self.live_bytes_req);
        self.meta.peak_bytes_alloc = self.meta.peak_bytes_alloc.max(self.live_bytes_alloc);
        let mut row = self.row(event, site);
        row.event.object = object;
        row.event.cache = cache;
        row.event.bytes_req = event.bytes_req;
        row.event.place = i8::try_from(event.node).unwrap_or(-1);
        row.bytes_alloc = event.bytes_alloc;
        row.cache_name = self.caches.name_now(cache);
        self.caches
            .count_alloc(cache, row.event.flags.has(Flags::ACCOUNTED));
        self.emit(row, event.address)
    }

    fn object_free(&mut self, event: &RawEvent<'_>) -> Result<()> {
        let site = self.site(event);
        let name = event
            .cache
            .map_or(NO_TEXT, |name| self.texts.caches.id(name));
        let mut row = self.row(event, site);
        if let Some((object, live)) = self.objects.remove(event.address) {
            if name != NO_TEXT {
                self.caches.vote(live.cache, name);
            }
            self.gone(&live);
            row.event.object = object;
            row.event.cache = live.cache;
            row.event.bytes_req = live.bytes_req;
            row.bytes_alloc = live.bytes_alloc;
            row.cache_name = if name == NO_TEXT {
                self.caches.name_now(live.cache)
            } else {
                name
            };
        } else {
            row.event.flags = row.event.flags.with(Flags::UNKNOWN);
            row.cache_name = name;
            if event.kind == Kind::Kfree {
                self.meta.orphans.unknown_kfree += 1;
            } else {
                self.meta.orphans.unknown_kmem_cache_free += 1;
            }
            if name != NO_TEXT {
                row.event.cache = self
                    .caches
                    .named_free(name)
                    .ok_or_else(|| self.too_many_caches())?;
                self.caches.count_free(row.event.cache);
            }
        }
        self.emit(row, event.address)
    }

    /// A later event proved that the object in `slot` is gone: its free comes just before that event.
    fn imply_object_free(&mut self, proof: &RawEvent<'_>, slot: u32) -> Result<()> {
        let live = *self.objects.get(slot);
        self.objects.remove(live.start);
        self.gone(&live);
        self.meta.orphans.implied_object_frees += 1;
        self.waiting
            .add(live.bytes_alloc, live.time_ns, proof.time_ns);
        let mut row = self.implied_row(proof, live.kind.freed_by());
        row.event.object = slot;
        row.event.cache = live.cache;
        row.event.bytes_req = live.bytes_req;
        row.bytes_alloc = live.bytes_alloc;
        row.cache_name = self.caches.name_now(live.cache);
        self.emit(row, live.start)
    }

    fn gone(&mut self, live: &Live) {
        self.live_bytes_req -= u64::from(live.bytes_req);
        self.live_bytes_alloc -= u64::from(live.bytes_alloc);
        self.caches.count_free(live.cache);
    }

    fn page_alloc(&mut self, event: &RawEvent<'_>) -> Result<()> {
        let site = self.site(event);
        self.imply_page_frees(event)?;
        self.emptied(event);
        let object = self.pages.insert(Live {
            start: event.address,
            length: 1 << event.order,
            time_ns: event.time_ns,
            kind: event.kind,
            order: event.order,
            cache: NO_CACHE,
            bytes_req: 0,
            bytes_alloc: 0,
        });
        self.live_pages += 1 << event.order;
        self.meta.peak_pages = self.meta.peak_pages.max(self.live_pages);
        let mut row = self.row(event, site);
        row.event.object = object;
        row.event.place = event.migratetype;
        self.emit(row, event.address)
    }

    fn page_free(&mut self, event: &RawEvent<'_>) -> Result<()> {
        let site = self.site(event);
        let mut row = self.row(event, site);
        if let Some((object, live)) = self.pages.remove(event.address) {
            self.live_pages -= live.length;
            row.event.object = object;
            // A replay gives back what was taken; the event's own order is only counted.
            row.event.order = live.order;
            self.meta.orphans.page_order_mismatches += u64::from(live.order != event.order);
        } else {
            row.event.flags = row.event.flags.with(Flags::UNKNOWN);
            self.meta.orphans.unknown_page_free += 1;
        }
        // A free of a part (or of more) proves that the blocks it touches are gone. The block itself is removed above, so
        // that it does not get an implied free, too.
        self.imply_page_frees(event)?;
        self.emptied(event);
        self.emit(row, event.address)
    }

    /// Notes that no object is left in a block, which the kernel gives back or takes: see [`Self::settle`].
    fn emptied(&mut self, proof: &RawEvent<'_>) {
        let objects: Vec<u64> = self.objects_in(proof.address, proof.order).collect();
        if !objects.is_empty() {
            let proof = Held::new(proof, Vec::new());
            self.emptied.push(Emptied { proof, objects });
        }
    }

    /// Notes the time and the CPU of the next event.
    fn step(&mut self, event: &RawEvent<'_>) -> Result<()> {
        if self.moment.time_ns == event.time_ns {
            self.moment.is_shared |= self.moment.cpu != event.cpu;
            return Ok(());
        }
        self.settle()?;
        self.moment = Moment {
            time_ns: event.time_ns,
            cpu: event.cpu,
            is_shared: false,
        };
        Ok(())
    }

    /// Ends what is alive of the objects in blocks that were empty at a time that is over.
    ///
    /// Objects that came at that time may lie in the next slab there. Where several CPUs have events of one
    /// time their order is a guess, and nothing is concluded.
    fn settle(&mut self) -> Result<()> {
        let emptied = mem::take(&mut self.emptied);
        if self.moment.is_shared {
            return Ok(());
        }
        // An object's own free may have come at that time, and a new object may have taken its place: only what is still
        // there and older than the block's event has ended without an event.
        for Emptied { proof, objects } in emptied {
            let proof = proof.whole();
            for start in objects {
                if let Some(slot) = self.objects.overlap(start, 1, true)
                    && self.objects.get(slot).time_ns < proof.time_ns
                {
                    self.imply_object_free(&proof, slot)?;
                }
            }
        }
        Ok(())
    }

    fn imply_page_frees(&mut self, proof: &RawEvent<'_>) -> Result<()> {
        while let Some(slot) = self.pages.overlap(proof.address, 1 << proof.order, false) {
            let live = *self.pages.get(slot);
            self.pages.remove(live.start);
            self.live_pages -= live.length;
            self.meta.orphans.implied_page_frees += 1;
            let mut row = self.implied_row(proof, Kind::MmPageFree);
            row.event.object = slot;
            row.event.order = live.order;
            self.emit(row, live.start)?;
        }
        Ok(())
    }

    fn site(&mut self, event: &RawEvent<'_>) -> u32 {
        event
            .call_site
            .map_or(NO_TEXT, |site| self.texts.call_sites.id(site))
    }

    /// The columns that every row has; the object's are filled in by the caller.
    fn row(&mut self, event: &RawEvent<'_>, call_site: u32) -> Row {
        let mut flags = Flags::default();
        let mut gfp_flags = NO_TEXT;
        if let Some(text) = event.gfp_flags {
            gfp_flags = self.texts.gfp_flags.id(text);
            flags = *self
                .gfp_bits
                .entry(gfp_flags)
                .or_insert_with(|| Flags::from_gfp(text));
        }
        if event.accounted {
            flags = flags.with(Flags::ACCOUNTED);
        }
        let mut row = self.bare_row(event, event.kind, flags);
        row.event.order = event.order;
        row.gfp_flags = gfp_flags;
        row.node = event.node;
        row.migratetype = event.migratetype;
        row.call_site = call_site;
        row.stack = event
            .stack
            .map_or(NO_TEXT, |stack| self.texts.stacks.id(stack));
        row
    }

    fn implied_row(&mut self, proof: &RawEvent<'_>, kind: Kind) -> Row {
        self.bare_row(proof, kind, Flags::IMPLIED)
    }

    fn bare_row(&mut self, event: &RawEvent<'_>, kind: Kind, flags: Flags) -> Row {
        if mem::take(&mut self.first_row) {
            self.meta.first_time_ns = event.time_ns;
        }
        self.meta.time_regressions += u64::from(event.time_ns < self.last_time_ns);
        self.last_time_ns = event.time_ns;
        self.meta.last_time_ns = self.meta.last_time_ns.max(event.time_ns);
        let comm = self.texts.comms.id(event.comm);
        *self.texts.tasks.entry((event.pid, comm)).or_default() += 1;
        Row {
            event: ReplayEvent {
                time_ns: event.time_ns,
                object: NO_OBJECT,
                bytes_req: 0,
                cache: NO_CACHE,
                cpu: event.cpu,
                kind,
                flags,
                order: 0,
                place: -1,
            },
            pid: event.pid,
            comm,
            cache_name: NO_TEXT,
            bytes_alloc: 0,
            gfp_flags: NO_TEXT,
            node: -1,
            migratetype: -1,
            call_site: NO_TEXT,
            page: NO_PAGE,
            stack: NO_TEXT,
            pfn: NO_PFN,
        }
    }

    /// Sends a row on its way; `place` is the address of its object, or the start of its block.
    fn emit(&mut self, mut row: Row, place: u64) -> Result<()> {
        if row.event.kind.is_page() {
            row.pfn = place;
        }
        match self.held.push(row, place, self.meta.page_size) {
            Some(row) => self.out.push(row, &self.texts),
            None => Ok(()),
        }
    }

    fn too_many_caches(&self) -> TraceError {
        let path = PathBuf::from(self.out.path());
        TraceError::TooMany {
            path,
            what: "caches",
            limit: CACHES_MAX as u64,
        }
    }

    /// Resolves the caches and writes the footer.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> Result<TraceMeta> {
        self.settle()?;
        while let Some(row) = self.held.pop() {
            self.out.push(row, &self.texts)?;
        }
        let mut meta = self.meta;
        meta.slab_memory = self.held.found();
        meta.cpus = meta.cpus.max(u32::from(self.cpu_max) + 1);
        let slab_rows = meta.events.total() - meta.events.mm_page_alloc - meta.events.mm_page_free;
        meta.hashed_addresses = slab_rows > 0 && self.addresses.are_hashed();
        if meta.hashed_addresses && self.has_hashed_pointers {
            meta.assumptions.push(HASHED_POINTERS.to_string());
        }
        infer_machine(
            &mut meta,
            &self.addresses,
            self.held.page_bytes(),
            self.out.path(),
        )?;
        meta.complete_assumptions();
        meta.object_slots = self.objects.slots() as u32;
        meta.page_slots = self.pages.slots() as u32;
        let (from_ns, until_ns) = (meta.first_time_ns, meta.last_time_ns);
        meta.unseen_frees = Some(self.waiting.within(from_ns, until_ns));
        meta.orphans.never_freed_objects = self.objects.live() as u64;
        meta.orphans.never_freed_pages = self.pages.live() as u64;
        (meta.caches, meta.cache_resolution) = self
            .caches
            .resolve(&self.texts.caches, &self.texts.call_sites);
        self.out.finish(&mut meta, &self.texts)?;
        Ok(meta)
    }
}

/// Fills in architecture and page size where nothing told them: from addresses, from page frame numbers,
/// from the architecture, or else 4096, unless its kernels come with several.
fn infer_machine(
    meta: &mut TraceMeta,
    addresses: &Addresses,
    page_bytes: Option<u32>,
    path: &Path,
) -> Result<()> {
    if meta.arch.is_none()
        && let Some(arch) = addresses.arch()
    {
        meta.arch = Some(arch.to_string());
        meta.assumptions.push(format!(
            "the architecture is {arch} by the addresses of objects; name it with quarry import --arch"
        ));
    }
    if meta.page_size != 0 {
        return Ok(());
    }
    let arch = meta.arch.as_deref().unwrap_or_default();
    if let Some(bytes) = page_bytes {
        meta.page_size = bytes;
        if page_bytes_of(arch) != Some(bytes) {
            meta.assumptions.push(format!(
                "pages have {bytes} bytes by addresses and page frame numbers; name the size with quarry \
                 import --page-size"
            ));
        }
    } else if let Some(bytes) = page_bytes_of(arch) {
        meta.page_size = bytes;
    } else if has_several_page_sizes(arch) {
        return Err(TraceError::PageSizeUnknown {
            path: path.to_path_buf(),
            arch: arch.to_string(),
        });
    } else {
        meta.page_size = PAGE_SIZE_ASSUMED;
        meta.page_size_assumed = true;
    }
    Ok(())
}
