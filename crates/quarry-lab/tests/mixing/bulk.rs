//! Pages that were allocated without an event: bulk allocations have none, by which kernels up to 6.18 get stacks.
//!
//! Such a page came to a CPU's list, and is freed without having been allocated. Or it has no further event, and is no
//! free block in any later report; the last reports do not tell, as it may still be on the list.

use std::collections::HashMap;

use quarry_core::page::MigrateType;

use crate::guest::{Block, Event, Moment, STAGES};

/// Reports that have to follow without a free block.
const REPORTS: usize = 3;

/// A page that came to a CPU's list.
#[derive(Clone, Copy)]
struct Listed {
    /// Index of the event.
    at: usize,
    on: Moment,
    of: MigrateType,
    refill: bool,
    /// Number of stages before.
    stage: usize,
}

/// Inserts these allocations, each behind the refill or free that put the page on a list. `last_free` has the last stage
/// whose report says that a page is free.
pub(crate) fn insert(events: Vec<Event>, last_free: &[Option<usize>]) -> Vec<Event> {
    let mut listed: HashMap<u32, Listed> = HashMap::new();
    let mut found = Vec::new();
    let mut stage = 0;
    for (at, event) in events.iter().enumerate() {
        let put = |on: &Moment, of, refill| Listed { at, on: *on, of, refill, stage };
        match event {
            Event::Stage(_) => stage += 1,
            Event::Refill { on, block, of } => {
                listed.insert(block.pfn, put(on, *of, true));
            }
            Event::Free { on, block, .. } => {
                found.extend(block.pages().filter_map(|page| listed.remove_entry(&page)));
                listed.insert(block.pfn, put(on, MigrateType::Unmovable, false));
            }
            Event::Alloc { block, .. } | Event::Drain(block) => {
                block.pages().for_each(|page| drop(listed.remove(&page)));
            }
            Event::Fallback(_) => {}
        }
    }
    let stays = |(page, it): &(u32, Listed)| {
        let is_used = last_free[*page as usize].is_none_or(|last| last < it.stage);
        it.refill && it.stage + REPORTS <= STAGES.len() && is_used
    };
    found.extend(listed.into_iter().filter(stays));
    found.sort_by_key(|(page, it)| (it.at, *page));
    let mut found = found.into_iter().peekable();
    let mut all = Vec::with_capacity(events.len());
    for (at, event) in events.into_iter().enumerate() {
        // Behind all of a refill.
        while !matches!(event, Event::Refill { .. })
            && let Some((pfn, Listed { on, of, .. })) = found.next_if(|(_, it)| it.at < at)
        {
            let block = Block { pfn, order: 0 };
            all.push(Event::Alloc { on, block, of, atomic: false, dma: false });
        }
        all.push(event);
    }
    all
}
