//! Allocation beyond the shortest way: by the lists of the zone that is tried first, by the other
//! zones and their watermarks; and once more when all CPUs have given their lists back.

use crate::machine::{Machine, NodeId};
use crate::page::buddy::{Mixing, Wanted};
use crate::page::pcp::{Pageset, Pagesets};
use crate::page::zone::Mark;
use crate::page::{AllocOptions, MigrateType, PageAllocator, PageKind, Pfn, ZoneId, ZoneType};
use crate::sync::Ordering;

impl<M: Machine> PageAllocator<M> {
    /// [`PageAllocator::alloc`] for pages of any mobility, below an address, or in an emergency.
    #[inline]
    pub fn alloc_with(&self, options: &AllocOptions) -> Option<Pfn> {
        let node = self.pick_node(options.node)?;
        if let Some(pfn) = self.alloc_first(options, node) {
            return Some(pfn);
        }
        let _pass = self.gate.enter(&self.machine);
        self.alloc_slow(options, node, false)
    }

    /// A block of the first zone's lists, if they may serve the request without a further look.
    #[inline(always)]
    pub(super) fn alloc_first(&self, options: &AllocOptions, node: NodeId) -> Option<Pfn> {
        if self.keeps_back() || options.highest_zone != ZoneType::Normal {
            return None;
        }
        self.alloc_pcp(self.first_pagesets(node)?, options, Mixing::Allowed)
            .flatten()
    }

    /// `None` if the per-CPU lists cannot be used, `Some(None)` if the zone has nothing left.
    #[inline(always)]
    fn alloc_pcp(
        &self,
        sets: &Pagesets,
        options: &AllocOptions,
        mixing: Mixing,
    ) -> Option<Option<Pfn>> {
        let zone = &sets.zone;
        let order = options.order;
        let shape = zone.shape(order, zone.rules.group(options.migratetype))?;
        let lists = Pageset {
            mixing,
            ..sets.at(self.map_on())
        };
        lists.with(|pcp, cpu| {
            let pfn = pcp.alloc(&lists, cpu, shape)?;
            self.map.page(pfn).set_kind(PageKind::Allocated, order);
            self.note_contents(pfn, options);
            pcp.numa_other += u64::from(zone.is_remote(&self.machine, cpu));
            Some(pfn)
        })
    }

    #[inline(always)]
    fn note_contents(&self, pfn: Pfn, options: &AllocOptions) {
        let movable = options.migratetype == MigrateType::Movable;
        self.map.contents().note(pfn, movable);
    }

    /// Claims a block that `block` hands out as one of a kind that no free by number accepts. Takes
    /// another block if a free by a number that is not its caller's was faster.
    ///
    /// The first claim succeeds, unless code without a right to the block used its number in the moment since
    /// it left its list. Such code loses: a stray reference is dropped by the claim. If it freed the block, the
    /// block is on a list again and another caller's next.
    pub(crate) fn claimed_as(
        &self,
        kind: PageKind,
        order: u32,
        mut block: impl FnMut() -> Option<Pfn>,
    ) -> Option<Pfn> {
        loop {
            let pfn = block()?;
            if self.map.page(pfn).claim_as(kind, order) {
                return Some(pfn);
            }
        }
    }

    /// Allocation of unmovable pages for callers that hold a per-CPU slot or are inside the gate.
    pub(crate) fn alloc_block(&self, order: u32, node: Option<NodeId>) -> Option<Pfn> {
        self.alloc_block_with(&AllocOptions {
            order,
            node,
            ..AllocOptions::default()
        })
    }

    /// [`PageAllocator::alloc_with`] for callers that hold a per-CPU slot or are inside the gate.
    pub(crate) fn alloc_block_with(&self, options: &AllocOptions) -> Option<Pfn> {
        let node = self.pick_node(options.node)?;
        self.alloc_first(options, node)
            .or_else(|| self.alloc_slow(options, node, false))
    }

    /// [`PageAllocator::alloc_block_with`] from the preferred node or not at all, without emptying
    /// other CPUs' lists for it.
    pub(crate) fn alloc_block_there(&self, options: &AllocOptions) -> Option<Pfn> {
        let node = self.pick_node(options.node)?;
        self.alloc_slow(options, node, true)
    }

    /// A block of the first zone that is above its low watermark, or else above the lowest; or, when the
    /// CPUs have given their lists back, above the one that the request may go down to. With
    /// `only_there` of the preferred node alone, and the lists are left.
    #[cold]
    pub(super) fn alloc_slow(
        &self,
        options: &AllocOptions,
        node: NodeId,
        only_there: bool,
    ) -> Option<Pfn> {
        if options.order > self.max_order {
            return None;
        }
        let above = |mark, mixing, only_there| {
            let mark = if self.keeps_back() { mark } else { Mark::None };
            self.alloc_from(options, node, (mark, mixing), only_there)
        };
        // Each pass is a rung down, and most requests end on the first. The order is the kernel's: a zone of a
        // lower type before mixed types in this one, both before the reserve below the low mark, that before
        // the lists of other CPUs, which costs an interrupt or a lock of each. Only then is the reserve open to
        // those who may use all of it.
        let mut got = None;
        if self.keeps_back() {
            if self.spreads(options, node) {
                got = above(Mark::Low, Mixing::WholeBlocks, true);
            }
            got = got.or_else(|| above(Mark::Low, Mixing::Allowed, only_there));
        }
        got = got.or_else(|| above(Mark::Min, Mixing::Allowed, only_there));
        if got.is_some() || only_there || self.zones_reentered() {
            return got;
        }
        self.drain_lists();
        let least = match options.no_watermarks {
            true => Mark::None,
            false => Mark::Min,
        };
        loop {
            let got = above(least, Mixing::Allowed, false);
            // Reserves are released before a request fails.
            let released =
                |sets: &Pagesets| sets.zone.unreserve(self.map_on(), options.migratetype);
            if got.is_some() || !self.zonelist(node, options.highest_zone).any(released) {
                return got;
            }
        }
    }

    /// True if a request tries the node's zones before it mixes types in the first: one that prefers Normal, on
    /// a machine of several nodes only if the node has DMA32.
    fn spreads(&self, options: &AllocOptions, node: NodeId) -> bool {
        let mut zones = self.zonelist(node, options.highest_zone);
        let here = |sets: Option<&Pagesets>, of: ZoneType| {
            sets.is_some_and(|sets| sets.zone.id == ZoneId { node, zone: of })
        };
        let first = zones.next();
        let knows = first.is_some_and(|sets| sets.zone.rules.spreads());
        let one_node = self.machine.topology().nodes == 1;
        knows && here(first, ZoneType::Normal) && (one_node || here(zones.next(), ZoneType::Dma32))
    }

    /// A block of the first zone that is above its mark and has one: of the running CPU's lists, or, if
    /// they cannot be used, of the zone.
    fn alloc_from(
        &self,
        options: &AllocOptions,
        node: NodeId,
        (mark, mixing): (Mark, Mixing),
        only_there: bool,
    ) -> Option<Pfn> {
        let order = options.order;
        let highest = options.highest_zone;
        let preferred = &self.zonelist(node, highest).next()?.zone;
        let zones = self.zonelist(node, highest);
        let zones = zones.filter(|sets| sets.zone.is_above(mark, options));
        for sets in zones.filter(|sets| !only_there || sets.zone.id.node == node) {
            let zone = &sets.zone;
            let by_lists = self.alloc_pcp(sets, options, mixing);
            let wanted = Wanted {
                order,
                migratetype: zone.rules.group(options.migratetype),
                kind: PageKind::Allocated,
                mixing,
                reserved: false,
            };
            let reserved = Wanted {
                reserved: true,
                ..wanted
            };
            let reserves = options.atomic && order > 0 && mark != Mark::Low;
            let direct = || zone.alloc_direct(self.map_on(), wanted);
            let kept = || match reserves {
                true => zone.alloc_direct(self.map_on(), reserved),
                false => None,
            };
            let Some(pfn) = by_lists.unwrap_or_else(direct).or_else(kept) else {
                continue;
            };
            if by_lists.flatten().is_none() {
                self.note_contents(pfn, options);
            }
            if reserves {
                zone.reserve(self.map_on(), pfn);
            }
            let numa = &zone.shared.numa;
            if by_lists.is_none() && self.machine.current_node() != zone.id.node {
                numa.other.fetch_add(1, Ordering::Relaxed);
            }
            if zone.id.node != preferred.id.node {
                numa.miss.fetch_add(1, Ordering::Relaxed);
                let foreign = &preferred.shared.numa.foreign;
                foreign.fetch_add(1, Ordering::Relaxed);
            }
            return Some(pfn);
        }
        None
    }

    /// True if the caller interrupted the holder of a zone lock. The per-CPU lists are of no help then, and
    /// waiting for the slot that the interrupted thread holds would take long.
    fn zones_reentered(&self) -> bool {
        self.zones().any(|zone| zone.lock(self.map_on()).is_none())
    }
}
