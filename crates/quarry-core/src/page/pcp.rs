//! Per-CPU page lists of one zone: recently freed blocks, refilled and trimmed by the batch.

use super::list::PageList;
use super::map::MemMap;
use super::types::{PageKind, Pfn};
use super::zone::Zone;
use crate::machine::{Access, Line, Machine, touch};

/// Orders that a list may hold (0..=3).
const PCP_ORDERS: usize = 4;

/// Counters of the per-CPU lists, summed over CPUs in [`super::PageStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpStats {
    /// Blocks handed out.
    pub allocs: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Times a list was empty and was refilled from the zone.
    pub refills: u64,
    /// Blocks that refills brought.
    pub refilled: u64,
    /// Times the lists overflowed and were trimmed.
    pub trims: u64,
    /// Blocks that trims gave back to the zone.
    pub trimmed: u64,
}

impl PcpStats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.refills += other.refills;
        self.refilled += other.refilled;
        self.trims += other.trims;
        self.trimmed += other.trimmed;
    }
}

/// One CPU's lists; all-zero is empty.
pub(crate) struct Pcp {
    pages: u32,
    lists: [PageList; PCP_ORDERS],
    pub(crate) stats: PcpStats,
}

impl Pcp {
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes a block, refilling from the zone if the list is empty.
    #[inline]
    pub(crate) fn alloc<M: Machine>(
        &mut self,
        machine: &M,
        map: &MemMap,
        zone: &Zone,
        order: u32,
    ) -> Option<Pfn> {
        touch(
            machine,
            Line::Pcp,
            Access::Write,
            core::ptr::from_ref(self).addr(),
        );
        let list = self.lists.get_mut(order as usize)?;
        let pfn = match list.pop_front(map) {
            Some(pfn) => pfn,
            None => self.refill(machine, map, zone, order)?,
        };
        touch(machine, Line::PageDescriptor, Access::Write, pfn.0 as usize);
        self.pages -= 1 << order;
        self.stats.allocs += 1;
        Some(pfn)
    }

    /// Fills the list under one hold of the zone lock and returns its first block.
    #[cold]
    fn refill<M: Machine>(
        &mut self,
        machine: &M,
        map: &MemMap,
        zone: &Zone,
        order: u32,
    ) -> Option<Pfn> {
        let batch = zone.batch();
        let blocks = if batch > 1 {
            (batch >> order).max(2)
        } else {
            1
        };
        let mut area = zone.lock(machine, map)?;
        let list = &mut self.lists[order as usize];
        for _ in 0..blocks {
            let Some(pfn) = area.alloc(machine, map, order, PageKind::Pcp) else {
                break;
            };
            // In the order of allocation, so that neighbours come out one after the other.
            list.push_back(map, pfn);
            self.pages += 1 << order;
            self.stats.refilled += 1;
        }
        self.stats.refills += 1;
        list.pop_front(map)
    }

    /// Takes back a block whose descriptor already says [`PageKind::Pcp`].
    #[inline]
    pub(crate) fn free<M: Machine>(
        &mut self,
        machine: &M,
        map: &MemMap,
        zone: &Zone,
        pfn: Pfn,
        order: u32,
    ) {
        touch(
            machine,
            Line::Pcp,
            Access::Write,
            core::ptr::from_ref(self).addr(),
        );
        touch(machine, Line::PageDescriptor, Access::Write, pfn.0 as usize);
        self.lists[order as usize].push_front(map, pfn);
        self.pages += 1 << order;
        self.stats.frees += 1;
        if self.pages >= zone.high() {
            self.stats.trims += 1;
            self.trim(machine, map, zone, zone.batch());
        }
    }

    /// Gives at least `pages` pages back to the zone, oldest first, as far as there are any.
    /// Nothing happens if the zone lock is re-entered: the lists then stay longer until the next
    /// free.
    pub(crate) fn trim<M: Machine>(&mut self, machine: &M, map: &MemMap, zone: &Zone, pages: u32) {
        let Some(mut area) = zone.lock(machine, map) else {
            return;
        };
        let target = self.pages.saturating_sub(pages);
        let mut order = 0;
        while self.pages > target {
            if let Some(pfn) = self.lists[order].pop_back(map) {
                area.free(machine, map, pfn, order as u32);
                self.pages -= 1 << order;
                self.stats.trimmed += 1;
            }
            order = (order + 1) % PCP_ORDERS;
        }
    }

    /// All blocks with their orders, for the consistency walker.
    pub(crate) fn blocks<'a>(&'a self, map: &'a MemMap) -> impl Iterator<Item = (Pfn, u32)> + 'a {
        self.lists
            .iter()
            .zip(0..)
            .flat_map(|(list, order)| list.iter(map).map(move |p| (p, order)))
    }
}
