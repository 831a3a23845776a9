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

/// Pages of a block, and of the largest free block.
pub(crate) const BLOCK: u32 = 512;
const LARGEST: u32 = 10;
/// Pages of the zone DMA.
const DMA: u32 = 4096;

/// The guest at its first event, under the rules of a release.
pub(crate) fn machine(guest: &Guest, era: Era) -> PageAllocator<VirtualMachine> {
    let machine = VirtualMachine::new(Config {
        cpus: guest.cpus,
        memory_bytes: u64::from(guest.pages()) << 12,
        ..Config::default()
    });
    let [dma, dma32] = guest.managed;
    let config = PageConfig {
        zones: ZoneLayout::Kernel,
        min_free: MinFree::Kbytes(guest.min_pages * 4),
        absent: [DMA - dma, guest.pages() - DMA - dma32, 0],
        tracks_contents: true,
        ..PageConfig::new(era)
    };
    let pages = PageAllocator::with_config(machine.unwrap(), &config).unwrap();
    assert!(pages.use_all());
    let (free, labels) = (free_at_start(guest), labels(guest));
    let mut at = 0;
    while at < guest.pages() {
        if !free[at as usize] {
            at += 1;
            continue;
        }
        let is_free = |order: &u32| free.get(at as usize..(at + (1 << order)) as usize);
        let whole = |order: &u32| is_free(order).is_some_and(|it| it.iter().all(|&free| free));
        let largest = at.trailing_zeros().min(LARGEST);
        let order = (0..=largest).rev().find(whole).unwrap();
        let label = labels.get(&(at / BLOCK)).copied();
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

/// Labels of blocks that are not movable.
fn labels(guest: &Guest) -> HashMap<u32, BlockType> {
    let (mut labels, mut taken) = (HashMap::new(), HashSet::new());
    for event in &guest.events[..guest.until("boot")] {
        match event {
            Event::Fallback(block) => {
                taken.extend(block.pages().map(|page| page / BLOCK));
            }
            Event::Alloc { block, of, .. } if *of != MigrateType::Movable => {
                // The first requests took blocks of the largest order: two at a time.
                let first = (block.pfn / BLOCK) & !1;
                for at in [first, first + 1] {
                    if !taken.contains(&at) {
                        labels.entry(at).or_insert((*of).into());
                    }
                }
            }
            _ => {}
        }
    }
    labels
}
