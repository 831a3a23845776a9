//! Share of objects that the replay takes from the slabs that the kernel took them from.
//!
//! A total can be right by chance, every slab cannot. The trace tells the slab of an allocation by
//! the page of its object, the driver by its own page. If neither of the two slabs has a
//! counterpart yet, they become each other's; from then on an allocation comes from both, or it
//! departs from the recording. The pair ends when the recorded slab is given back. After one
//! departure slabs lie on other lists than in the kernel, so others follow from it: the first one
//! of a cache is where to look for a cause.

use std::collections::{BTreeMap, HashMap};

use quarry_core::design::Design;
use quarry_sim::driver::{CacheView, Driver, ObjectRef};
use quarry_trace::{Flags, Kind, PAGE_GROUP_ORDER, Place, ReplayEvent};
use schemars::JsonSchema;
use serde::Serialize;

/// Allocations of a cache compared with the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct SameSlabs {
    /// Allocations whose slab the recording states.
    pub told: u64,
    /// Allocations among `told` that took an object of the slab that the kernel took one of.
    pub same: u64,
    /// Event of the first allocation in `told` that took another slab, from 1.
    pub first_departure: Option<u64>,
}

/// A slab: its order, and the number of its first page by that order.
type SlabCache = (u32, u32);

/// The comparison under way.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    places: Vec<Option<Place>>,
    /// Events of the chunk so far.
    at: usize,
    /// The replay's slab by the recorded one, and the other way round.
    replayed: HashMap<SlabCache, SlabCache>,
    recorded: HashMap<SlabCache, SlabCache>,
    caches: BTreeMap<String, SameSlabs>,
}

impl Comparison {
    /// Takes the places of the next chunk of events.
    pub(super) fn begin(&mut self, places: &mut Vec<Option<Place>>) {
        std::mem::swap(&mut self.places, places);
        self.at = 0;
    }

    /// Goes on to an event.
    #[inline(never)]
    pub(super) fn next(&mut self, event: &ReplayEvent) {
        self.at += 1;
        if event.kind == Kind::MmPageFree
            && event.flags.has(Flags::SLAB)
            && let Some(slab) = self.recorded_slab(event.order.into())
            && let Some(replayed) = self.replayed.remove(&slab)
        {
            self.recorded.remove(&replayed);
        }
    }

    /// The slab that the event's object, or its first page, lies on in the recording.
    fn recorded_slab(&self, order: u32) -> Option<SlabCache> {
        let place = self.places.get(self.at.checked_sub(1)?).copied()??;
        (order <= PAGE_GROUP_ORDER).then_some((order, place.page >> order))
    }

    /// The event allocated this object from a cache.
    #[inline(never)]
    pub(super) fn allocated<'h, D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        cache: &CacheView<'h, D>,
        object: &ObjectRef<'h>,
        row: u64,
    ) {
        let order = cache.head().geometry().order;
        let replayed = driver.page_of(object).map(|page| (order, page >> order));
        let (Some(recorded), Some(replayed)) = (self.recorded_slab(order), replayed) else {
            return;
        };
        self.count(cache.head().name(), recorded, replayed, row);
    }

    fn count(&mut self, cache: &str, recorded: SlabCache, replayed: SlabCache, row: u64) {
        let known = (self.replayed.get(&recorded), self.recorded.get(&replayed));
        let same = match known {
            (None, None) => {
                self.replayed.insert(recorded, replayed);
                self.recorded.insert(replayed, recorded);
                true
            }
            (slab, _) => slab == Some(&replayed),
        };
        if !self.caches.contains_key(cache) {
            self.caches.insert(cache.to_string(), SameSlabs::default());
        }
        if let Some(counts) = self.caches.get_mut(cache) {
            counts.told += 1;
            counts.same += u64::from(same);
            if !same {
                counts.first_departure.get_or_insert(row);
            }
        }
    }

    pub(super) fn finish(self) -> BTreeMap<String, SameSlabs> {
        self.caches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_made_once_and_end_with_the_recorded_slab() {
        let event = |kind, flags| ReplayEvent {
            time_ns: 0,
            object: 0,
            bytes_req: 0,
            cache: 0,
            cpu: 0,
            kind,
            flags,
            order: 1,
            place: -1,
        };
        let (page, fresh) = (6, false);
        let mut comparison = Comparison::default();
        comparison.begin(&mut vec![Some(Place { page, fresh }); 4]);
        let alloc = event(Kind::KmemCacheAlloc, Flags::default());
        let mut step = |event: &ReplayEvent, replayed: Option<u32>, row| {
            comparison.next(event);
            if let Some(first) = replayed {
                comparison.count("box", (1, 3), (1, first), row);
            }
            comparison.caches.get("box").copied().unwrap_or_default()
        };
        assert_eq!(step(&alloc, Some(50), 1).same, 1);
        assert_eq!(step(&alloc, Some(51), 2).same, 1);
        step(&event(Kind::MmPageFree, Flags::SLAB), None, 3);
        let counts = step(&alloc, Some(51), 4);
        let expected = SameSlabs {
            told: 3,
            same: 2,
            first_departure: Some(2),
        };
        assert_eq!(counts, expected);
    }
}
