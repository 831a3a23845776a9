//! The page allocator: zones of buddy lists, per-CPU page lists, bulk calls.
//!
//! # Idea and source
//!
//! Linux's page allocator as the slab designs see it: blocks of 2^order pages, orders 0..=10,
//! split and merged in pairs of buddies (Knowlton 1965) under one lock per zone, and per-CPU lists
//! of recently freed blocks in front of that lock. Sizes of those lists by era: [`geometry`].
//!
//! # Objects
//!
//! ```text
//!   zone (one per node)                           CPU 0      CPU 1
//!   +----------------------------------------+   +------+   +------+
//!   | lock | free lists 0 1 2 ... 10 |frontier|<=>| pcp  |   | pcp  |   high, batch
//!   +----------------------------------------+   +------+   +------+
//!        |                                          ^ alloc / free of orders the lists hold
//!   [page][page][page][page] ... descriptors, one per page
//! ```
//!
//! # States of a block
//!
//! untouched -> buddy -> (pcp) -> allocated | slab | large kmalloc -> (pcp) -> buddy. A free claims
//! its block by one compare-and-swap on the descriptor, so the second of two frees is refused.
//!
//! # Locks and their order
//!
//! per-CPU slot (tried, never waited for) -> zone lock. A zone lock that its own thread holds is
//! not waited for either: an allocation fails, a free is deferred to the next holder.
//!
//! # Invariants
//!
//! * **P1** Every page is in exactly one place: untouched, in a free block on a buddy list, in a
//!   block on one CPU's list, deferred, or allocated. [`PageAllocator::check_consistency`] walks
//!   all of them.
//! * **P2** Two free buddies of one order never both lie on buddy lists.
//! * **P3** A zone starts at a multiple of 2^10 pages, so a buddy is never in another zone.
//!
//! # Departures from the kernel
//!
//! Memory that was never handed out is on no list; it is taken from the frontier, lowest address
//! first, when the lists are empty. Migrate types, watermark checks, the self-tuning of `high`, the
//! factors by which 6.1 and later refill and trim more than a batch, and the lists of huge pages are
//! not modelled yet.

mod buddy;
mod bulk;
mod check;
pub mod geometry;
mod list;
mod map;
mod pcp;
mod types;
mod zone;

pub use check::{PageCensus, PageInconsistency};
pub(crate) use list::PageList;
pub(crate) use map::MemMap;
pub use pcp::PcpStats;
pub(crate) use types::Page;
pub use types::{MAX_ORDER, ORDERS, PageError, PageKind, Pfn, ZoneId, ZoneType};

use core::ptr::NonNull;

use crate::era::Era;
use crate::machine::{Gate, MAX_NODES, Machine, NodeId, PerCpu, RawRange, Region};
use crate::sync::{AtomicU64, Ordering};
use geometry::PcpParams;
use zone::Zone;

/// Why a page allocator could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// The machine's pages do not even make one page per node.
    NoPages,
    /// The per-CPU or structure ranges are too small for the first structures.
    NoRoom,
}

impl core::fmt::Display for BootError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoPages => "the machine has no pages to allocate from",
            Self::NoRoom => "the machine's per-CPU or structure ranges are too small",
        })
    }
}

impl core::error::Error for BootError {}

/// Counters of the page allocator, summed over zones and CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Requests that the per-CPU lists served or took.
    pub pcp: PcpStats,
    /// Allocations that went to a zone directly.
    pub direct_allocs: u64,
    /// Frees that went to a zone directly.
    pub direct_frees: u64,
    /// Buddy splits.
    pub splits: u64,
    /// Buddy merges.
    pub merges: u64,
    /// Pages that are free in zones or on per-CPU lists.
    pub free_pages: u64,
    /// Free blocks in the zones by order (`/proc/buddyinfo`).
    pub free_blocks: [u64; ORDERS],
}

impl PageStats {
    /// Calls to allocate a block.
    #[must_use]
    pub fn allocs(&self) -> u64 {
        self.pcp.allocs + self.direct_allocs
    }

    /// Calls to free a block.
    #[must_use]
    pub fn frees(&self) -> u64 {
        self.pcp.frees + self.direct_frees
    }
}

/// The page allocator of a machine; it owns the machine and its ranges.
pub struct PageAllocator<M: Machine> {
    machine: M,
    map: MemMap,
    meta: Region,
    percpu: Region,
    gate: Gate,
    zones: [Option<Zone>; MAX_NODES],
    slab_pages: AtomicU64,
}

impl<M: Machine> PageAllocator<M> {
    /// Takes over a machine whose memory nobody has used yet; `era` sizes the per-CPU lists.
    ///
    /// # Errors
    ///
    /// [`BootError`] if the machine's ranges are too small.
    pub fn new(machine: M, era: Era) -> Result<Self, BootError> {
        let ranges = *machine.ranges();
        let area = RawRange {
            base: ranges.percpu.base,
            bytes: 1 << M::PERCPU_SHIFT,
        };
        // SAFETY: M2 - the ranges are zero-filled and unused; the allocator owns the machine, so
        // these are the only regions over them.
        let meta = unsafe { Region::new(ranges.meta) };
        // SAFETY: as above; the region hands out offsets of CPU 0's area that hold for all areas.
        let percpu = unsafe { Region::new(area) };
        let map = MemMap::new(&machine);
        let mut zones = [const { None }; MAX_NODES];
        for (node, pages) in node_ranges(map.pages(), machine.topology().nodes) {
            // SAFETY: all-zero is a valid `Pcp`: empty lists and zero counters.
            let pcp = unsafe { PerCpu::new(&machine, &percpu) }.ok_or(BootError::NoRoom)?;
            let cpus = machine.topology().cpus / machine.topology().nodes;
            let present = u64::from(pages.end - pages.start);
            let params = geometry::pcp_params(era, present, map.page_shift(), cpus);
            let id = ZoneId {
                node,
                zone: ZoneType::Normal,
            };
            zones[node.0 as usize] = Some(Zone::new(id, pages, pcp, params));
        }
        if map.pages() == 0 {
            return Err(BootError::NoPages);
        }
        Ok(Self {
            machine,
            map,
            meta,
            percpu,
            gate: Gate::new(),
            zones,
            slab_pages: AtomicU64::new(0),
        })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.map.pages()
    }

    /// Bytes taken so far for the allocators' own structures, per-CPU slots included.
    pub fn overhead_bytes(&self) -> usize {
        let _pass = self.gate.enter(&self.machine);
        let cpus = self.machine.topology().cpus as usize;
        self.meta.used_bytes(&self.machine) + cpus * self.percpu.used_bytes(&self.machine)
    }

    /// Pages that are slabs now, of all caches.
    #[inline]
    pub fn slab_pages(&self) -> u64 {
        self.slab_pages.load(Ordering::Relaxed)
    }

    /// Notes that a block has become a slab.
    pub(crate) fn slab_made(&self, order: u32) {
        self.slab_pages.fetch_add(1 << order, Ordering::Relaxed);
    }

    /// Notes that a slab becomes a free block again.
    pub(crate) fn slab_gone(&self, order: u32) {
        self.slab_pages.fetch_sub(1 << order, Ordering::Relaxed);
    }

    /// Limits of the per-CPU lists of a node's zone.
    pub fn pcp_params(&self, node: NodeId) -> Option<PcpParams> {
        Some(self.zones.get(node.0 as usize)?.as_ref()?.params())
    }

    /// First byte of a block's first page.
    pub fn address(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.map.get(pfn).map(|_| self.map.address(pfn))
    }

    /// The page that an address lies in, if it is one of this machine's.
    pub fn pfn_of(&self, address: NonNull<u8>) -> Option<Pfn> {
        self.map.pfn_of(address)
    }

    pub(crate) fn map(&self) -> &MemMap {
        &self.map
    }

    pub(crate) fn meta(&self) -> &Region {
        &self.meta
    }

    pub(crate) fn percpu(&self) -> &Region {
        &self.percpu
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn zones(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().flatten()
    }

    /// Zones in the order in which an allocation tries them: the preferred node's, then the
    /// following nodes', round.
    fn zonelist(&self, node: NodeId) -> impl Iterator<Item = &Zone> {
        let nodes = self.machine.topology().nodes;
        (0..nodes).filter_map(move |i| self.zones[((node.0 + i) % nodes) as usize].as_ref())
    }

    fn zone_of(&self, pfn: Pfn) -> &Zone {
        let mut zones = self.zones();
        let found = zones.find(|zone| pfn.0 < zone.end);
        found.expect("the zones cover all pages of the map")
    }

    /// Node whose memory a page is.
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        if self.machine.topology().nodes == 1 {
            NodeId(0)
        } else {
            self.zone_of(pfn).id.node
        }
    }

    /// Allocates a block of 2^order pages, on the running CPU's node unless another is preferred.
    /// The pages hold whatever they held before. `None` when no zone has such a block, or when
    /// the order is above [`MAX_ORDER`].
    pub fn alloc(&self, order: u32, node: Option<NodeId>) -> Option<Pfn> {
        if order > MAX_ORDER {
            return None;
        }
        let node = self.pick_node(node)?;
        if let Some(zone) = self.zones[node.0 as usize].as_ref()
            && let Some(pfn) = self.alloc_pcp(zone, order).flatten()
        {
            return Some(pfn);
        }
        let _pass = self.gate.enter(&self.machine);
        self.alloc_slow(order, node)
    }

    /// Frees a block.
    ///
    /// # Errors
    ///
    /// [`PageError`] if `pfn` is not the first page of an allocated block of this order; nothing
    /// has changed then.
    pub fn free(&self, pfn: Pfn, order: u32) -> Result<(), PageError> {
        let page = self.map.get(pfn).ok_or(PageError::Foreign(pfn))?;
        let (kind, allocated) = (page.kind(), page.order());
        if kind != PageKind::Allocated {
            return Err(PageError::NotAllocated(pfn, kind));
        }
        if order != allocated {
            return Err(PageError::WrongOrder {
                pfn,
                given: order,
                allocated,
            });
        }
        let zone = self.zone_of(pfn);
        let claim = || page.claim_kind(PageKind::Allocated, PageKind::Pcp, order);
        // The claim is made where a fork waits for its end, or the child would miss the block.
        let claimed = self.free_pcp(zone, pfn, order, claim).unwrap_or_else(|| {
            let _pass = self.gate.enter(&self.machine);
            let claimed = claim();
            if claimed {
                zone.free_direct(&self.machine, &self.map, pfn, order);
            }
            claimed
        });
        if claimed {
            Ok(())
        } else {
            Err(PageError::NotAllocated(pfn, page.kind()))
        }
    }

    fn pick_node(&self, node: Option<NodeId>) -> Option<NodeId> {
        let topology = self.machine.topology();
        let node = node.unwrap_or_else(|| topology.node_of(self.machine.current_cpu()));
        (node.0 < topology.nodes).then_some(node)
    }

    /// `None` if the per-CPU lists cannot be used, `Some(None)` if the zone has nothing left.
    #[inline]
    fn alloc_pcp(&self, zone: &Zone, order: u32) -> Option<Option<Pfn>> {
        if !zone.lists_hold(order) {
            return None;
        }
        zone.pcp.try_with(&self.machine, |pcp, _| {
            let pfn = pcp.alloc(&self.machine, &self.map, zone, order)?;
            self.map.page(pfn).set_kind(PageKind::Allocated, order);
            Some(pfn)
        })
    }

    /// `None` if the per-CPU lists cannot be used, else whether `claim` gave the block.
    #[inline]
    fn free_pcp(
        &self,
        zone: &Zone,
        pfn: Pfn,
        order: u32,
        claim: impl FnOnce() -> bool,
    ) -> Option<bool> {
        if !zone.lists_hold(order) {
            return None;
        }
        zone.pcp.try_with(&self.machine, |pcp, _| {
            let claimed = claim();
            if claimed {
                pcp.free(&self.machine, &self.map, zone, pfn, order);
            }
            claimed
        })
    }

    /// Allocation for callers that hold a per-CPU slot or are inside the gate.
    pub(crate) fn alloc_block(&self, order: u32, node: Option<NodeId>) -> Option<Pfn> {
        if order > MAX_ORDER {
            return None;
        }
        let node = self.pick_node(node)?;
        let zone = self.zones[node.0 as usize].as_ref();
        if let Some(pfn) = zone.and_then(|zone| self.alloc_pcp(zone, order)).flatten() {
            return Some(pfn);
        }
        self.alloc_slow(order, node)
    }

    /// [`PageAllocator::alloc_block`] from this node or not at all, without emptying other CPUs'
    /// lists for it.
    pub(crate) fn alloc_block_on(&self, order: u32, node: NodeId) -> Option<Pfn> {
        if order > MAX_ORDER {
            return None;
        }
        let zone = self.zones.get(node.0 as usize)?.as_ref()?;
        let listed = self.alloc_pcp(zone, order).flatten();
        listed.or_else(|| zone.alloc_direct(&self.machine, &self.map, order))
    }

    #[cold]
    fn alloc_slow(&self, order: u32, node: NodeId) -> Option<Pfn> {
        let direct = || {
            self.zonelist(node)
                .find_map(|zone| zone.alloc_direct(&self.machine, &self.map, order))
        };
        direct().or_else(|| {
            if self.zones_reentered() {
                return None;
            }
            self.drain_all();
            direct()
        })
    }

    /// Whether the caller interrupted the holder of a zone lock. The per-CPU lists are of no help
    /// then, and waiting for the slot that the interrupted thread holds would take long.
    fn zones_reentered(&self) -> bool {
        self.zones()
            .any(|zone| zone.lock(&self.machine, &self.map).is_none())
    }

    /// Free for callers that hold a per-CPU slot or are inside the gate: changes a block of kind
    /// `from` into a free one.
    pub(crate) fn free_block(&self, pfn: Pfn, order: u32, from: PageKind) {
        let page = self.map.page(pfn);
        debug_assert!(
            page.is_block(from, order),
            "{:?} order {}",
            page.kind(),
            page.order()
        );
        page.set_kind(PageKind::Pcp, order);
        let zone = self.zone_of(pfn);
        if self.free_pcp(zone, pfn, order, || true).is_none() {
            zone.free_direct(&self.machine, &self.map, pfn, order);
        }
    }

    /// Gives the blocks of all per-CPU lists back to their zones. Returns how many CPUs were busy
    /// and kept theirs.
    pub fn drain_all(&self) -> u32 {
        let mut busy = 0;
        for zone in self.zones() {
            for cpu in (0..self.machine.topology().cpus).map(crate::machine::CpuId) {
                let drained = zone.pcp.try_with_remote(&self.machine, cpu, |pcp| {
                    let pages = pcp.pages();
                    if pages > 0 {
                        pcp.trim(&self.machine, &self.map, zone, pages);
                    }
                });
                busy += u32::from(drained.is_none());
            }
        }
        busy
    }

    /// Counters, exact if no CPU is busy; a busy CPU's part is missing.
    pub fn stats(&self) -> PageStats {
        let _pass = self.gate.enter(&self.machine);
        let mut stats = PageStats::default();
        for zone in self.zones() {
            for cpu in (0..self.machine.topology().cpus).map(crate::machine::CpuId) {
                zone.pcp.try_with_remote(&self.machine, cpu, |pcp| {
                    stats.pcp.add(&pcp.stats);
                    stats.free_pages += u64::from(pcp.pages());
                });
            }
            stats.direct_allocs += zone.direct_allocs.load(Ordering::Relaxed);
            stats.direct_frees += zone.direct_frees.load(Ordering::Relaxed);
            if let Some(area) = zone.lock(&self.machine, &self.map) {
                stats.splits += area.splits;
                stats.merges += area.merges;
                stats.free_pages += area.free_pages();
                for (sum, blocks) in stats.free_blocks.iter_mut().zip(area.free_blocks()) {
                    *sum += blocks;
                }
            }
        }
        stats
    }

    /// Takes all per-CPU slots of the page allocator (see [`Gate`]); returns how many it missed.
    pub(crate) fn quiesce(&self) -> u32 {
        self.zones()
            .map(|zone| zone.pcp.quiesce(&self.machine))
            .sum()
    }

    pub(crate) fn resume(&self) {
        self.zones().for_each(|zone| zone.pcp.resume(&self.machine));
    }
}

/// Page ranges of the nodes: equal shares, starting at multiples of the largest block (P3).
fn node_ranges(pages: u32, nodes: u32) -> impl Iterator<Item = (NodeId, core::ops::Range<u32>)> {
    let block = 1u64 << MAX_ORDER;
    let start = move |node: u32| {
        if node == nodes {
            return pages;
        }
        let share = u64::from(pages) * u64::from(node) / u64::from(nodes);
        (share / block * block) as u32
    };
    (0..nodes)
        .map(move |node| (NodeId(node), start(node)..start(node + 1)))
        .filter(|(_, range)| !range.is_empty())
}
