//! The page allocator itself: its parts, and what all of its layers ask of them.

use core::ptr::NonNull;

use super::config::{MAX_ZONES, PageConfig};
use super::geometry::PcpParams;
use super::memmap::{MapOn, MemMap};
use super::pcp::{Pageset, Pagesets, Pcp, Zones};
use super::trim::Trimmer;
use super::types::{BlockType, Pfn, ZoneId, ZoneType};
use super::zone::Zone;
use crate::era::Era;
use crate::machine::{CpuId, Gate, MAX_NODES, Machine, NodeId, PerCpu, RawLock, Region, SpinLock};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

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
    pub(super) machine: M,
    pub(super) map: MemMap,
    pub(super) meta: Region,
    pub(super) percpu: Region,
    pub(super) gate: Gate,
    /// The number of nodes; 0 while watermarks keep pages back.
    pub(super) plain_nodes: AtomicU32,
    /// For each node the per-CPU lists of the zone that is tried first.
    pub(super) near: [PerCpu<Pcp>; MAX_NODES],
    /// For each node the zones that an allocation tries, first to last.
    pub(super) zonelists: [[u8; MAX_ZONES]; MAX_NODES],
    pub(super) zones: Zones,
    pub(super) slab_pages: AtomicU64,
    pub(super) config: SpinLock<PageConfig>,
    pub(super) max_order: u32,
    pub(super) bulk_free_hold: usize,
    pub(super) trimmer: Trimmer,
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

    /// Number of pages; those between zones ([`ZoneLayout::Sized`](super::ZoneLayout::Sized)), which no zone has, included.
    pub fn pages(&self) -> u32 {
        self.map.pages()
    }

    /// log2 of the pages of the largest block: no request gets more.
    pub fn max_order(&self) -> u32 {
        self.max_order
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

    /// Descriptor of a page, as an address, and its lock: for workloads that keep pages on lists of their own.
    pub fn descriptor(&self, pfn: Pfn) -> Option<(*const u8, &RawLock)> {
        let page = self.map.get(pfn)?;
        Some((core::ptr::from_ref(page).cast(), &page.lock))
    }

    /// Number of the page at an address; `None` for an address outside the machine's pages.
    pub fn pfn_of(&self, address: NonNull<u8>) -> Option<Pfn> {
        self.map.pfn_of(address)
    }

    pub(crate) fn map(&self) -> &MemMap {
        &self.map
    }

    /// The map on the allocator's machine.
    #[inline(always)]
    pub(crate) fn map_on(&self) -> MapOn<'_, M> {
        self.map.on(&self.machine)
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

    pub(super) fn pagesets(&self) -> impl DoubleEndedIterator<Item = &Pagesets> {
        self.zones.iter()
    }

    /// Zones in the order in which an allocation tries them: the preferred node's from high to
    /// low, then the following nodes', round.
    pub(super) fn zonelist(
        &self,
        node: NodeId,
        highest: ZoneType,
    ) -> impl Iterator<Item = &Pagesets> {
        self.zonelists[node.0 as usize]
            .iter()
            .map_while(|&at| self.zones.get(usize::from(at)))
            .filter(move |sets| sets.zone.id.zone <= highest)
    }

    /// The zone that an allocation tries first.
    #[inline(always)]
    pub(super) fn first_pagesets(&self, node: NodeId) -> Option<&Pagesets> {
        let first = self.zonelists[node.0 as usize][0];
        self.zones.get(usize::from(first))
    }

    #[inline(always)]
    pub(super) fn pagesets_of(&self, pfn: Pfn) -> &Pagesets {
        let zone = self.zones.get(self.map.blocks().tag(pfn).zone());
        zone.expect("every pageblock is in a zone")
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
    pub fn block_type_of(&self, pfn: Pfn) -> Option<BlockType> {
        (pfn.0 < self.pages()).then(|| self.map.blocks().block_type(pfn))
    }

    /// True if watermarks keep pages back.
    #[inline(always)]
    pub(super) fn keeps_back(&self) -> bool {
        self.plain_nodes.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    pub(super) fn pick_node(&self, node: Option<NodeId>) -> Option<NodeId> {
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
    pub(super) fn drain_lists(&self) -> u32 {
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
    pub(super) fn each_pcp(&self, mut f: impl FnMut(CpuId, &Pageset<'_, M>, &mut Pcp)) -> u32 {
        let mut busy = 0;
        for sets in self.pagesets() {
            let at = sets.at(self.map_on());
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

    /// Takes all per-CPU slots of the page allocator (see [`Gate`]), those that are held only if it shall wait for them; returns
    /// the number it missed.
    pub(crate) fn quiesce(&self, wait: bool) -> u32 {
        self.pagesets()
            .map(|sets| sets.slots.quiesce(&self.machine, wait))
            .sum()
    }

    pub(crate) fn resume(&self) {
        for sets in self.pagesets() {
            sets.slots.resume(&self.machine);
        }
    }
}
