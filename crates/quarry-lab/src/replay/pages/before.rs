//! Blocks from before the part that is replayed, which it frees: found by reading the trace once,
//! and allocated before the replay begins.
//!
//! Their frees tell what they are: the order, the CPU, and mostly the migrate type
//! ([`quarry_trace::ReplayEvent::migratetype`]). Frees without a type get the types of the part's
//! other blocks of that order, in their proportions.

use std::collections::HashMap;

use quarry_core::page::MigrateType;
use quarry_trace::{Flags, ORDER_MAX, ReplayEvent};

use super::super::by_type::{ByType, next_type};
use super::super::part::{Phase, Window};
use super::{Input, LabError, named_type};

/// A block that the part frees and did not allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) recorded_order: u8,
    pub(super) migratetype: MigrateType,
}

/// Page events outside slabs.
#[derive(Debug)]
pub(super) struct Found {
    /// The blocks, in the order of their frees.
    pub(super) blocks: Vec<Block>,
    /// Frame numbers of their first pages; none if they were not asked for.
    pub(super) frames: Vec<Option<u64>>,
    /// All blocks of single pages with a known type.
    pub(super) singles: ByType,
}

/// A block of the trace before the part.
#[derive(Clone, Copy)]
enum Slot {
    /// Not allocated, or allocated in the part.
    Other,
    /// Left out: a slab of the recorded kernel.
    Slab,
    Old {
        order: u8,
        migratetype: MigrateType,
    },
}

struct Scan {
    slots: Vec<Slot>,
    skip_slabs: bool,
    /// Order, and the type if the free has one.
    found: Vec<(u8, Option<MigrateType>)>,
    told: Vec<ByType>,
    frames: Vec<Option<u64>>,
}

impl Scan {
    fn before(&mut self, event: &ReplayEvent) {
        if event.flags.has(Flags::UNKNOWN) {
            return;
        }
        self.slots[event.object as usize] = match event.kind.is_free() {
            true => Slot::Other,
            false if self.skip_slabs && event.flags.has(Flags::SLAB) => Slot::Slab,
            false => Slot::Old {
                order: event.order,
                migratetype: named_type(event).unwrap_or(MigrateType::Unmovable),
            },
        };
    }

    fn within(&mut self, event: &ReplayEvent) {
        let left_out = self.skip_slabs && event.flags.has(Flags::SLAB);
        if !event.kind.is_free() {
            if let Some(migratetype) = named_type(event).filter(|_| !left_out) {
                self.tell(event.order, migratetype);
            }
            return;
        }
        let old = if event.flags.has(Flags::UNKNOWN) {
            (!left_out).then(|| (event.order, named_type(event)))
        } else {
            match std::mem::replace(&mut self.slots[event.object as usize], Slot::Other) {
                Slot::Old { order, migratetype } => Some((order, Some(migratetype))),
                Slot::Slab | Slot::Other => None,
            }
        };
        if let Some((order, migratetype)) = old {
            self.found.push((order, migratetype));
            if let Some(migratetype) = migratetype {
                self.tell(order, migratetype);
            }
        }
    }

    fn tell(&mut self, order: u8, migratetype: MigrateType) {
        self.told[usize::from(order.min(ORDER_MAX))][migratetype as usize] += 1;
    }

    fn finish(self) -> Found {
        let mut all = ByType::default();
        for told in &self.told {
            for (sum, blocks) in all.iter_mut().zip(told) {
                *sum += blocks;
            }
        }
        let known = |by_type: &ByType| by_type.iter().any(|blocks| *blocks > 0);
        let mut given = vec![ByType::default(); self.told.len()];
        let blocks = self.found.iter().map(|&(recorded_order, migratetype)| {
            let at = usize::from(recorded_order.min(ORDER_MAX));
            let weights = if known(&self.told[at]) {
                &self.told[at]
            } else {
                &all
            };
            Block {
                recorded_order,
                migratetype: migratetype.unwrap_or_else(|| next_type(weights, &mut given[at])),
            }
        });
        Found {
            blocks: blocks.collect(),
            frames: self.frames,
            singles: self.told[0],
        }
    }
}

/// Reads the trace once, with the frame numbers if they are wanted.
pub(super) fn find(input: &Input, skip_slabs: bool, frames: bool) -> Result<Found, LabError> {
    let meta = input.file.meta();
    let mut scan = Scan {
        slots: input.table(meta.page_slots, || Slot::Other)?,
        skip_slabs,
        found: Vec::new(),
        told: vec![ByType::default(); usize::from(ORDER_MAX) + 1],
        frames: Vec::new(),
    };
    let mut window = Window::new(input.part);
    if frames {
        let mut at = HashMap::new();
        let (mut rows, mut chunk) = (input.file.rows(), Vec::new());
        'rows: while rows.next_chunk(&mut chunk)? {
            for row in chunk.iter().filter(|row| row.event.kind.is_page()) {
                let event = &row.event;
                match window.phase(event.time_ns) {
                    Phase::After => break 'rows,
                    Phase::Before => {
                        at.insert(event.object, row.pfn);
                        scan.before(event);
                    }
                    Phase::In => {
                        let found = scan.found.len();
                        scan.within(event);
                        if scan.found.len() > found {
                            let before = at.get(&event.object).copied().flatten();
                            scan.frames.push(row.pfn.or(before));
                        }
                    }
                }
            }
        }
        return Ok(scan.finish());
    }
    let (mut events, mut chunk) = (input.file.page_events(), Vec::new());
    'trace: while events.next_chunk(&mut chunk)? {
        for event in &chunk {
            let phase = window.phase(event.time_ns);
            if phase == Phase::After {
                break 'trace;
            }
            if !event.kind.is_page() {
                continue;
            }
            match phase {
                Phase::Before => scan.before(event),
                _ => scan.within(event),
            }
        }
    }
    Ok(scan.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundled::Bundled;

    /// The column-subset scan agrees with a full read.
    #[test]
    fn page_events_are_those_of_the_whole_trace() {
        let trace = Bundled::find("tbench").unwrap().open().unwrap();
        let (mut all, mut pages) = (trace.events(), trace.page_events());
        let (mut event_chunk, mut page_chunk, mut seen) = (Vec::new(), Vec::new(), 0);
        while all.next_chunk(&mut event_chunk).unwrap() {
            assert!(pages.next_chunk(&mut page_chunk).unwrap());
            assert_eq!(event_chunk.len(), page_chunk.len());
            for (event, page) in event_chunk.iter().zip(&page_chunk) {
                assert_eq!((event.time_ns, event.kind), (page.time_ns, page.kind));
                if event.kind.is_page() {
                    let cpu = page.cpu;
                    assert_eq!(ReplayEvent { cpu, ..*event }, *page);
                    seen += 1;
                }
            }
        }
        assert!(!pages.next_chunk(&mut page_chunk).unwrap());
        assert!(seen > 9000, "{seen}");
    }
}
