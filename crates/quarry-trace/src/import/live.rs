//! Live objects and blocks: addresses (or page frame numbers) to recycled slots.
//!
//! Invariant L1: unless addresses are hashed, the ranges in the map are disjoint. It makes the overlap
//! question one descent: only the last range that starts below the new end can reach into the new one.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::event::Kind;

/// One live object or page block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    /// Address, or page frame number.
    pub(crate) start: u64,
    /// Bytes (or pages) from `start` that are proved to be its own.
    pub(crate) length: u64,
    /// When it was allocated.
    pub(crate) time_ns: u64,
    /// The kind that allocated it.
    pub(crate) kind: Kind,
    pub(crate) order: u8,
    pub(crate) cache: u16,
    pub(crate) bytes_req: u32,
    pub(crate) bytes_alloc: u32,
}

/// One space of object ids: slab objects, or page blocks.
#[derive(Debug, Default)]
pub(crate) struct Space {
    by_start: BTreeMap<u64, u32>,
    slots: Vec<Live>,
    /// Free slots, the last freed on top: the ids of hot objects stay small and close.
    free: Vec<u32>,
}

impl Space {
    /// Number of live entries.
    pub(crate) fn live(&self) -> usize {
        self.by_start.len()
    }

    /// True if a live entry starts at `start`.
    pub(crate) fn has(&self, start: u64) -> bool {
        self.by_start.contains_key(&start)
    }

    /// The live entry that starts at `start`.
    pub(crate) fn at(&self, start: u64) -> Option<&Live> {
        self.by_start.get(&start).map(|slot| self.get(*slot))
    }

    /// Starts of the live entries that start in a range.
    pub(crate) fn starts_in(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        self.by_start.range(range).map(|(start, _)| *start)
    }

    /// Number of slots ever needed: the most that were alive at once.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Something alive that `[start, start + length)` overlaps. With `exact`, only equal starts count.
    pub(crate) fn overlap(&self, start: u64, length: u64, exact: bool) -> Option<u32> {
        if exact {
            return self.by_start.get(&start).copied();
        }
        // Last addresses, not ends: the end of what lies at the top of the address space is no address.
        let (_, slot) = self.by_start.range(..=last(start, length)).next_back()?;
        let other = &self.slots[*slot as usize];
        (last(other.start, other.length) >= start).then_some(*slot)
    }

    /// Adds what the caller proved not to overlap (L1). The slot is a recycled one if there is any.
    pub(crate) fn insert(&mut self, live: Live) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = live;
                slot
            }
            None => {
                self.slots.push(live);
                u32::try_from(self.slots.len() - 1)
                    .expect("fewer than 2^32 live objects fit in memory")
            }
        };
        let previous = self.by_start.insert(live.start, slot);
        debug_assert!(
            previous.is_none(),
            "L1: {:#x} was already alive",
            live.start
        );
        slot
    }

    /// Ends what starts at `start`, if something does.
    pub(crate) fn remove(&mut self, start: u64) -> Option<(u32, Live)> {
        let slot = self.by_start.remove(&start)?;
        self.free.push(slot);
        Some((slot, self.slots[slot as usize]))
    }

    /// The entry of a live slot.
    pub(crate) fn get(&self, slot: u32) -> &Live {
        &self.slots[slot as usize]
    }
}

/// The last address of `[start, start + length)`; what would go beyond the top of the space ends there.
fn last(start: u64, length: u64) -> u64 {
    start.saturating_add(length.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(start: u64, length: u64) -> Live {
        Live {
            start,
            length,
            time_ns: 0,
            kind: Kind::Kmalloc,
            order: 0,
            cache: 0,
            bytes_req: 1,
            bytes_alloc: 1,
        }
    }

    #[test]
    fn slots_are_recycled_last_freed_first() {
        let mut space = Space::default();
        assert_eq!(
            [
                space.insert(live(10, 2)),
                space.insert(live(20, 2)),
                space.insert(live(30, 2))
            ],
            [0, 1, 2]
        );
        assert_eq!(space.remove(10).map(|r| r.0), Some(0));
        assert_eq!(space.remove(30).map(|r| r.0), Some(2));
        assert_eq!(space.remove(30), None);
        assert_eq!(
            [
                space.insert(live(40, 2)),
                space.insert(live(50, 2)),
                space.insert(live(60, 2))
            ],
            [2, 0, 3]
        );
        assert_eq!((space.live(), space.slots()), (4, 4));
    }

    #[test]
    fn the_last_address_is_an_address() {
        for (start, length) in [(u64::MAX, 1), (u64::MAX, 8), (u64::MAX - 7, 8)] {
            let mut space = Space::default();
            let slot = space.insert(live(start, length));
            for (from, bytes) in [(start, length), (u64::MAX, 1), (u64::MAX - 20, 100)] {
                let found = space.overlap(from, bytes, false);
                assert_eq!(found, Some(slot), "{start:#x}+{length}: {from:#x}+{bytes}");
            }
            assert_eq!(space.overlap(start - 8, 8, false), None);
        }
    }

    #[test]
    fn overlap_sees_every_side() {
        let mut space = Space::default();
        let slot = space.insert(live(100, 50));
        for (start, length, exact, expect) in [
            (100, 50, false, true),
            (90, 10, false, false),
            (90, 11, false, true),
            (149, 1, false, true),
            (150, 8, false, false),
            (120, 4, false, true),
            (50, 500, false, true),
            (120, 4, true, false),
            (100, 1, true, true),
            (u64::MAX, 8, false, false),
        ] {
            let found = space.overlap(start, length, exact);
            assert_eq!(
                found,
                expect.then_some(slot),
                "{start}+{length} exact={exact}"
            );
        }
    }
}
