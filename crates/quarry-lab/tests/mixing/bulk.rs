//! Pages that were allocated without an event: bulk allocations have none. Guests up to 6.17 have 1300 of them
//! when their load begins, those from 7.0 on none.
//!
//! Such a page came to a CPU's list, and is freed without having been allocated. Or it came there before the first
//! report, has no further event, and is free in no report. Of one that came later this could not be told: it may be on
//! the list still.

use std::collections::HashMap;

use quarry_core::page::MigrateType;

use crate::guest::{Block, Event, Moment};

/// A page that came to a CPU's list.
#[derive(Clone, Copy)]
struct Listed {
    /// Index of the event.
    at: usize,
    on: Moment,
    of: MigrateType,
    /// A refill brought it, before the first stage.
    early: bool,
}

/// Inserts these allocations, each behind the refill or free that put the page on a list. `seen_free` says
/// which pages are free in a report.
pub(crate) fn insert(events: Vec<Event>, seen_free: &[bool]) -> Vec<Event> {
    let mut listed: HashMap<u32, Listed> = HashMap::new();
    let mut found = Vec::new();
    let mut early = true;
    for (at, event) in events.iter().enumerate() {
        let put = |on: &Moment, of, early| Listed {
            at,
            on: *on,
            of,
            early,
        };
        match event {
            Event::Stage(_) => early = false,
            Event::Refill { on, block, of } => {
                listed.insert(block.pfn, put(on, *of, early));
            }
            Event::Free { on, block, .. } => {
                found.extend(block.pages().filter_map(|page| listed.remove_entry(&page)));
                listed.insert(block.pfn, put(on, MigrateType::Unmovable, false));
            }
            Event::Alloc { block, .. } | Event::Drain(block) => {
                for page in block.pages() {
                    listed.remove(&page);
                }
            }
            Event::Fallback { .. } => {}
        }
    }
    let never_free = |(page, it): &(u32, Listed)| it.early && !seen_free[*page as usize];
    found.extend(listed.into_iter().filter(never_free));
    found.sort_by_key(|(page, it)| (it.at, *page));
    let mut found = found.into_iter().peekable();
    let mut all = Vec::with_capacity(events.len());
    for (at, event) in events.into_iter().enumerate() {
        // Behind all of a refill.
        while !matches!(event, Event::Refill { .. })
            && let Some((pfn, Listed { on, of, .. })) = found.next_if(|(_, it)| it.at < at)
        {
            let block = Block { pfn, order: 0 };
            all.push(Event::Alloc {
                on,
                block,
                of,
                atomic: false,
                dma: false,
            });
        }
        all.push(event);
    }
    all
}
