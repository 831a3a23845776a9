//! The page allocator: zones of buddy lists, per-CPU page lists, bulk calls.
//!
//! # Idea and source
//!
//! Linux's page allocator as the slab designs see it. Blocks have 2^order pages, orders 0..=10. They are split
//! and merged in pairs of buddies (Knowlton 1965) under one lock per zone. Per-CPU lists of recently freed
//! blocks stand in front of that lock. Each folder stands on the next: `front` has the calls, `pcp` the per-CPU
//! lists, `zone` and `buddy` the lists behind the lock, `memmap` the descriptors. Sizes of the per-CPU lists by
//! era are in [`geometry`], their rules in `rules.rs`. `boot.rs` sets all up from `config.rs`; `initial.rs`
//! makes the state of a machine that has run for a while.
//!
//! # Objects
//!
//! ```text
//!   zone                                          CPU 0      CPU 1
//!   +----------------------------------------+   +------+   +------+
//!   | lock | free lists, orders 0 1 2 ... 10 |<=>| pcp  |   | pcp  |   high, batch
//!   |      | by migrate type      | frontier |   +------+   +------+
//!   +----------------------------------------+
//!        |                                          ^ alloc / free of orders the lists hold
//!   [page][page][page][page] ... descriptors, one per page
//! ```
//!
//! # States of a block
//!
//! untouched -> buddy -> (pcp) -> allocated | owned | slab | large kmalloc | pool -> (pcp) -> buddy.
//! A free by number claims its block by one compare-and-swap on the descriptor, so the second of two
//! frees is refused; blocks of the other kinds only their owners free. A caller that takes a block for
//! another kind claims it as well, since any thread can free an allocated one by its number.
//! An allocated block may have several users, who count as references: the last one frees it.
//!
//! # Locks and their order
//!
//! per-CPU slot (tried, never waited for) -> zone lock. A zone lock that its own thread holds is
//! not waited for either: an allocation fails, a free is deferred to the next holder. A sysctl is
//! written under a lock of its own, outside of these.
//!
//! # Invariants
//!
//! * **P1** Every page is in exactly one place: untouched, in a free block on a buddy list, in a
//!   block on one CPU's list, deferred, allocated, or in the hand of a thread. Such a thread is taking
//!   it from a list or putting it there. [`PageAllocator::check_consistency`] walks all of them.
//! * **P2** Two free buddies of one order are never both on buddy lists, whatever their types.
//! * **P3** A zone starts at a multiple of 2^10 pages, so a buddy is never in another zone.
//! * **P4** A free block's descriptor names the list that it is on, whose type may be another than
//!   its pageblock's.
//!
//! # Departures from the kernel
//!
//! * Memory that was never handed out is on no list; it is taken from the frontier, lowest address
//!   first, and counts as free blocks of movable pageblocks, behind those that are on the lists.
//! * There is no reclaim, so no list is shortened because of it. Only [`PageAllocator::set_boost`] raises
//!   watermarks, for good.
//! * The reserve, high-atomic, isolated and CMA types do not exist. A machine that is too small for types has
//!   them nevertheless.
//! * No call asks for cold pages (`__GFP_COLD`, until 4.14). The cold lists of releases before 2.6.25 are
//!   reported with their limits, and stay empty.
//! * The sysctls `lowmem_reserve_ratio`, `watermark_scale_factor` and `numa_stat` are constants;
//!   pages are not interleaved over nodes.
//! * Refills and drains move runs of blocks under a hold; lists and costs are as if one by one
//! (`buddy/`). In a process holds have other bounds ([`PageConfig::in_process`]).

mod boot;
mod buddy;
mod check;
mod config;
mod front;
pub mod geometry;
mod initial;
mod memmap;
mod pcp;
mod report;
mod rules;
mod sysctl;
mod trim;
mod types;
mod zone;

pub use boot::BootError;
pub use buddy::FreeBlockCounts;
pub use check::{PageCensus, PageInconsistency};
pub use config::{CACHE_SHARE_BYTES, MinFree, PageConfig, ZoneLayout};
pub use front::{OwnedBlock, SharedBlock};
pub(crate) use memmap::MemMap;
pub(crate) use memmap::list::{Links, PageList};
pub(crate) use memmap::page::Page;
pub(crate) use pcp::array::entry_of;
pub use pcp::{PcpStats, PcpStock};
pub use report::{NumaStats, PageStats, PagesetReport, ZoneReport};
pub use sysctl::{SYSCTLS, SysctlError};
pub use trim::{Residency, TrimPolicy, Trimmed};
pub use types::{
    AllocOptions, MAX_ORDER, MIGRATE_TYPES, MigrateType, ORDERS, PageError, PageKind, Pfn,
    ZONE_TYPES, ZoneId, ZoneType,
};

use core::ptr::NonNull;

use crate::era::Era;
use crate::machine::{CpuId, Gate, MAX_NODES, Machine, NodeId, PerCpu, Region, SpinLock};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use config::MAX_ZONES;
use geometry::PcpParams;
use pcp::{Pageset, Pagesets, Pcp};
use trim::Trimmer;
use zone::Zone;

/// The page allocator of a machine; it owns the machine and its ranges.
///
/// # Handles and numbers
///
/// A block of [`PageAllocator::alloc_owned`] is its handle's alone: no call that takes a page number frees
/// it. So are slabs, large kmallocs and pages of pools. [`PageAllocator::alloc_shared`] gives a handle for each
/// user of a block. A block of [`PageAllocator::alloc`] is held by its number, which says nothing about its
/// owner: to free it by that number is unsafe. A mistake that the descriptor shows (a free page, another
/// order, a block of another kind) is refused, and harms nothing.
///
/// # Examples
///
/// ```
/// # use quarry_core::machine::Machine;
/// use quarry_core::era::Era;
/// use quarry_core::page::PageAllocator;
///
/// # fn demo<M: Machine>(machine: M) -> Result<(), Box<dyn std::error::Error>> {
/// let pages = PageAllocator::new(machine, Era::V6_18)?;
///
/// // A block of 2^3 pages of the running CPU's node, which its handle frees.
/// let block = pages.alloc_owned(3).ok_or("out of memory")?;
/// assert_eq!(pages.address(block.pfn()), Some(block.address()));
/// drop(block);
///
/// // It waits on the CPU's list until that is emptied.
/// assert_eq!(pages.drain_all(), 0);
/// assert_eq!(pages.check_consistency()?.allocated, 0);
/// # Ok(())
/// # }
/// ```
pub struct PageAllocator<M: Machine> {
    machine: M,
    map: MemMap,
    meta: Region,
    percpu: Region,
    gate: Gate,
    /// The number of nodes; 0 while watermarks keep pages back.
    plain_nodes: AtomicU32,
    /// For each node the per-CPU lists of the zone that is tried first.
    near: [PerCpu<Pcp>; MAX_NODES],
    /// For each node the zones that an allocation tries, first to last.
    zonelists: [[u8; MAX_ZONES]; MAX_NODES],
    zones: [Option<Pagesets>; MAX_ZONES],
    slab_pages: AtomicU64,
    config: SpinLock<PageConfig>,
    bulk_free_hold: usize,
    trimmer: Trimmer,
}

impl<M: Machine> PageAllocator<M> {
    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Release whose rules the lists follow; `None` if the calling thread is writing a sysctl.
    pub fn era(&self) -> Option<Era> {
        let _pass = self.gate.enter(&self.machine);
        Some(self.config.lock(&self.machine)?.era)
    }

    /// Number of pages; those between zones ([`ZoneLayout::Sized`]), which no zone has, included.
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

    /// Limits of the per-CPU lists of a node's highest zone.
    pub fn pcp_params(&self, node: NodeId) -> Option<PcpParams> {
        let mut zones = self.zones().filter(|zone| zone.id.node == node);
        zones.next_back().map(Zone::params)
    }

    /// First byte of a block's first page.
    pub fn address(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.map.get(pfn).map(|_| self.map.address(pfn))
    }

    /// Number of the page at an address; `None` for an address outside the machine's pages.
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

    pub(crate) fn zones(&self) -> impl DoubleEndedIterator<Item = &Zone> {
        self.pagesets().map(|sets| &sets.zone)
    }

    fn pagesets(&self) -> impl DoubleEndedIterator<Item = &Pagesets> {
        self.zones.iter().flatten()
    }

    /// Zones in the order in which an allocation tries them: the preferred node's from high to
    /// low, then the following nodes', round.
    fn zonelist(&self, node: NodeId, highest: ZoneType) -> impl Iterator<Item = &Pagesets> {
        self.zonelists[node.0 as usize]
            .iter()
            .map_while(|&at| self.zones.get(usize::from(at))?.as_ref())
            .filter(move |sets| sets.zone.id.zone <= highest)
    }

    /// The zone that an allocation tries first.
    #[inline(always)]
    fn first_pagesets(&self, node: NodeId) -> Option<&Pagesets> {
        let first = self.zonelists[node.0 as usize][0];
        self.zones.get(usize::from(first))?.as_ref()
    }

    #[inline(always)]
    fn pagesets_of(&self, pfn: Pfn) -> &Pagesets {
        let zone = self.zones.get(self.map.blocks().tag(pfn).zone());
        zone.and_then(Option::as_ref)
            .expect("every pageblock is in a zone")
    }

    /// Node whose memory a page is; `None` for a foreign page.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        (pfn.0 < self.pages()).then(|| self.node_of_page(pfn))
    }

    /// [`PageAllocator::node_of`] for a page that is known to exist.
    #[inline]
    pub(crate) fn node_of_page(&self, pfn: Pfn) -> NodeId {
        if self.machine.topology().nodes == 1 {
            NodeId(0)
        } else {
            self.pagesets_of(pfn).zone.id.node
        }
    }

    /// Zone that a page is in; none for a page between zones.
    pub fn zone_id_of(&self, pfn: Pfn) -> Option<ZoneId> {
        if pfn.0 >= self.pages() {
            return None;
        }
        let zone = &self.pagesets_of(pfn).zone;
        (zone.start..zone.end).contains(&pfn.0).then_some(zone.id)
    }

    /// Type of the pageblock that a page is in: those of its blocks that are freed go on lists of
    /// this type.
    pub fn migratetype_of(&self, pfn: Pfn) -> Option<MigrateType> {
        (pfn.0 < self.pages()).then(|| self.map.blocks().migratetype(pfn))
    }

    /// True if watermarks keep pages back.
    #[inline(always)]
    fn keeps_back(&self) -> bool {
        self.plain_nodes.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    fn pick_node(&self, node: Option<NodeId>) -> Option<NodeId> {
        let nodes = self.machine.topology().nodes;
        match node {
            Some(node) => (node.0 < nodes).then_some(node),
            None if nodes == 1 => Some(NodeId(0)),
            None => Some(self.machine.current_node()),
        }
    }

    /// Gives the blocks of all per-CPU lists back to their zones, and the zones' excess back to the machine
    /// ([`PageAllocator::set_auto_trim`]). Returns the number of busy CPUs, which kept theirs.
    pub fn drain_all(&self) -> u32 {
        let busy = self.drain_lists();
        self.auto_trim();
        busy
    }

    /// Gives the blocks of all per-CPU lists back to their zones.
    fn drain_lists(&self) -> u32 {
        self.each_pcp(|cpu, at, pcp| {
            if pcp.pages() > 0 {
                at.zone.rules.pcp_reach().tell(&self.machine, cpu);
            }
            pcp.flush(at);
        })
    }

    /// The periodic work of all CPUs, which a kernel does each second (`vm.stat_interval`): the `high` of 6.7
    /// and later decays, and lists of another node's zone that were idle for three intervals give a batch back.
    /// Returns the number of busy CPUs, which were left out.
    pub fn vmstat_update(&self) -> u32 {
        self.each_pcp(|cpu, at, pcp| {
            pcp.interval(at, at.zone.is_remote(&self.machine, cpu));
        })
    }

    /// Calls `f` for all per-CPU lists but the busy ones; returns the number of those.
    fn each_pcp(&self, mut f: impl FnMut(CpuId, &Pageset<'_, M>, &mut Pcp)) -> u32 {
        let mut busy = 0;
        for sets in self.pagesets() {
            let at = sets.at(&self.machine, &self.map);
            for cpu in (0..self.machine.topology().cpus).map(CpuId) {
                let done = at.with_remote(cpu, |pcp| {
                    at.account_protection(pcp);
                    f(cpu, &at, pcp);
                });
                busy += u32::from(done.is_none());
            }
        }
        busy
    }

    /// Takes all per-CPU slots of the page allocator (see [`Gate`]); returns the number it missed.
    pub(crate) fn quiesce(&self) -> u32 {
        self.pagesets()
            .map(|sets| sets.slots.quiesce(&self.machine))
            .sum()
    }

    pub(crate) fn resume(&self) {
        for sets in self.pagesets() {
            sets.slots.resume(&self.machine);
        }
    }
}
