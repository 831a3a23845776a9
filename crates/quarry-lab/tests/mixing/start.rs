//! The free memory that a guest began to record with.
//!
//! A page whose first event is an allocation was free. One without an event was free if a stage's report says so: it
//! may be on a CPU's list at others. A
//! block that requests for pages of the kernel used before a fallback took it was already labelled for them.

use std::collections::{HashMap, HashSet};

use quarry_core::era::Era;
use quarry_core::page::{
    BlockType, MigrateType, MinFree, PageAllocator, PageConfig, Pfn, ZoneLayout,
};
use quarry_sim::{Config, VirtualMachine};

use crate::guest::{Event, Guest};

/// Pages of the zone DMA.
const DMA: u32 = 4096;

/// The guest at its first event, under the rules of a release.
pub(crate) fn machine(guest: &Guest, era: Era) -> PageAllocator<VirtualMachine> {
    let machine = VirtualMachine::new(Config {
        cpus: guest.cpus,
        page_bytes: guest.page_bytes,
        memory_bytes: u64::from(guest.pages()) * guest.page_bytes,
        ..Config::default()
    });
    let (zones, absent) = match guest.managed[..] {
        [dma, dma32] => (
            ZoneLayout::Kernel,
            [DMA - dma, guest.pages() - DMA - dma32, 0],
        ),
        [all] => (ZoneLayout::Normal, [0, 0, guest.pages() - all]),
        _ => panic!("zones of another machine: {:?}", guest.managed),
    };
    let config = PageConfig {
        zones,
        min_free: MinFree::Kbytes(guest.min_pages * (guest.page_bytes >> 10)),
        absent,
        max_order: guest.max_order,
        tracks_contents: true,
        ..PageConfig::new(era)
    };
    let pages = PageAllocator::with_config(machine.unwrap(), &config).unwrap();
    assert!(pages.use_all());
    let (free, labels) = (free_at_start(guest), labels(guest));
    // Memory in use that is freed later goes to lists of its block's type, too.
    for (&at, &label) in &labels {
        assert!(pages.label_block(Pfn(at << guest.block_order()), label));
    }
    let mut at = 0;
    while at < guest.pages() {
        if !free[at as usize] {
            at += 1;
            continue;
        }
        let is_free = |order: &u32| free.get(at as usize..(at + (1 << order)) as usize);
        let whole = |order: &u32| is_free(order).is_some_and(|it| it.iter().all(|&free| free));
        let largest = at.trailing_zeros().min(guest.max_order);
        let order = (0..=largest).rev().find(whole).unwrap();
        let label = labels.get(&(at >> guest.block_order())).copied();
        assert!(pages.lay_free(Pfn(at), order, label.unwrap_or(BlockType::MOVABLE)));
        at += 1 << order;
    }
    pages
}

fn free_at_start(guest: &Guest) -> Vec<bool> {
    let mut free = guest.seen_free.clone();
    let mut seen = HashSet::new();
    for event in &guest.events {
        let (block, was_free) = match event {
            Event::Alloc { block, .. } => (block, true),
            Event::Free { block, .. } => (block, false),
            _ => continue,
        };
        for page in block.pages() {
            if seen.insert(page) {
                free[page as usize] = was_free;
            }
        }
    }
    free
}

/// Labels of blocks: of those that a fallback took, the list that they were on, and of others the first request that is
/// not movable. Blocks without either have the label of others around them: the first requests of all took blocks of
/// the largest order.
fn labels(guest: &Guest) -> HashMap<u32, BlockType> {
    let (mut labels, mut first_used) = (HashMap::new(), Vec::new());
    let order = guest.block_order();
    for event in &guest.events[..guest.until("boot")] {
        match event {
            Event::Fallback { block, from } => {
                for at in block.pages().map(|page| page >> order) {
                    labels.entry(at).or_insert(BlockType::from(*from));
                }
            }
            Event::Alloc { block, of, .. } | Event::Refill { block, of, .. } => {
                let at = block.pfn >> order;
                labels.entry(at).or_insert_with(|| {
                    first_used.push((at, *of));
                    (*of).into()
                });
            }
            _ => {}
        }
    }
    let together = 1 << (guest.max_order - order);
    let pinned = first_used
        .into_iter()
        .filter(|(_, of)| *of != MigrateType::Movable);
    for (at, of) in pinned {
        let first = at & !(together - 1);
        for at in first..first + together {
            labels.entry(at).or_insert(of.into());
        }
    }
    labels
}
