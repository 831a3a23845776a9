//! Bulk calls in the form of one step per page, while the running CPU's array ([`crate::page::pcp::array`]) has
//! pages or room. They need the slot, as a step must not be interrupted by another. They leave out what a hold
//! of the lists begins and ends with. The lists' next holder takes them into account as steps.

use super::free::Claim;
use crate::machine::{Machine, NodeId, PerCpu};
use crate::page::memmap::MapOn;
use crate::page::memmap::blocks::Tag;
use crate::page::pcp::array::{Entry, slots_to_vacant};
use crate::page::pcp::{Pcp, fill_slots};
use crate::page::{Page, PageAllocator, PageKind, Pfn};
use crate::sync::Ordering;

impl<M: Machine> PageAllocator<M> {
    /// The lists that steps take single unmovable pages from, if a node is preferred or none, and the
    /// node.
    #[inline(always)]
    pub(super) fn near_for(&self, node: Option<NodeId>) -> Option<(&PerCpu<Pcp>, NodeId)> {
        match self.plain_nodes.load(Ordering::Relaxed) {
            1 if node.is_none_or(|node| node.0 == 0) => Some((&self.near[0], NodeId(0))),
            0 | 1 => None,
            // Of a node that was asked for it would have to be known whether it is the CPU's.
            _ if node.is_some() => None,
            _ => {
                let own = self.machine.current_node();
                let near = self.near.get(own.0 as usize);
                near.filter(|near| near.exists()).map(|near| (near, own))
            }
        }
    }

    /// The lists that steps put pages on, and the tag of the pageblocks of these pages.
    #[inline(always)]
    pub(super) fn near_of_running(&self) -> Option<(&PerCpu<Pcp>, Tag)> {
        // Which lists these are follows from a comparison and not from what was loaded, so that the
        // next allocation need not wait for it.
        let (near, own) = match self.machine.topology().nodes {
            1 => (&self.near[0], NodeId(0)),
            _ => {
                let own = self.machine.current_node();
                (self.near.get(own.0 as usize)?, own)
            }
        };
        Some((near, self.map.blocks().near(own)))
    }

    /// Fills slots from the first on, up to one that is filled already, with pages of the running CPU's array.
    /// Returns the number filled.
    ///
    /// Not inlined, so that all of the loop is in registers.
    #[inline(never)]
    pub(super) fn alloc_stepped(&self, node: Option<NodeId>, slots: &mut [Option<Pfn>]) -> usize {
        let near = self.near_for(node).filter(|_| self.machine.has_steps());
        let taken = near.and_then(|(near, node)| {
            near.try_with(&self.machine, |pcp, cpu| {
                // The thread may have moved since `near_for` looked. Pages of the node it left would not be
                // counted as another node's (`numa_other`).
                let one_node = self.machine.topology().nodes == 1;
                if !one_node && self.machine.node_of_cpu(cpu) != node {
                    return 0;
                }
                let newest = pcp.front_mut().entries();
                let taken = fill_slots(self.map_on(), newest, slots);
                pcp.front_mut().popped_in_bulk(taken);
                taken
            })
        });
        taken.unwrap_or(0)
    }

    /// Frees the pages of slots from the first on. Ends at one that is empty, cannot be freed, belongs
    /// elsewhere or finds no room in the running CPU's array. Returns the number filled.
    ///
    /// Not inlined, so that all of the loop is in registers.
    #[inline(never)]
    pub(super) fn free_stepped(&self, slots: &mut [Option<Pfn>]) -> usize {
        let near = self.near_of_running().filter(|_| self.machine.has_steps());
        let freed = near.and_then(|(near, tag)| {
            near.try_with(&self.machine, |pcp, _| {
                // Not armed again afterwards: the limit stays that of the last hold, and the pages count as
                // steps until the next one.
                let room = pcp.front_mut().room();
                let freed = empty_slots(self.map_on(), tag, slots, room);
                pcp.front_mut().pushed(freed);
                freed
            })
        });
        freed.unwrap_or(0)
    }
}

/// Moves the pages of slots, from the first on, into free entries while there is room. Stops at a slot that is
/// empty or whose page cannot be freed, or has no such tag. Returns the number moved.
#[inline(always)]
pub(super) fn empty_slots<M: Machine>(
    map: MapOn<'_, M>,
    tag: Tag,
    slots: &mut [Option<Pfn>],
    vacant: &mut [Entry],
) -> usize {
    // A copy, or the map's fields would be loaded again for each page.
    let own = *map.map;
    let map = own.on(map.machine);
    let most = slots.len().min(vacant.len());
    let allocated = Page::sole_state(PageKind::Allocated, 0);
    slots_to_vacant(&mut slots[..most], &mut vacant[..most], |slot, entry| {
        let Some(pfn) = *slot else { return false };
        if map.tag_of(pfn) != Some(tag) {
            return false;
        }
        let page = map.page(pfn);
        if !page.has_state(allocated) || !Claim::Allocated.make(page, 0) {
            return false;
        }
        map.page_to_write(pfn);
        *entry = Entry::new(pfn);
        *slot = None;
        true
    })
}
