//! Events of all CPUs in the order of their times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use super::ring::{RingLayout, RingPage};

/// Events that were read from a ring and not yet given out.
struct Lane<L> {
    cpu: L,
    pages: VecDeque<RingPage>,
    /// The next event, which lies in the first page.
    next: Option<(u64, Range<usize>)>,
    /// Every event up to this time was read.
    known_ns: u64,
}

/// Result of one pass over the rings.
pub(crate) struct Round {
    /// Every event up to this time was read from a ring that was read to its end.
    pub(crate) known_ns: u64,
    /// By ring: its pages, and whether it was read to its end. A page with room is no end: it may be the rest of
    /// one that the CPU wrote to when it was read before, with full pages behind it.
    pub(crate) rings: Vec<(Vec<Vec<u8>>, bool)>,
}

/// Merges rounds; `L` names a ring. Events of one time come by CPU.
pub(crate) struct Merge<L> {
    layout: RingLayout,
    lanes: Vec<Lane<L>>,
    /// The time of each lane's next event.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// The lane whose event was given out: its page stays until the next is asked for.
    given: Option<usize>,
}

impl<L: Copy> Merge<L> {
    pub(crate) fn new(layout: RingLayout, cpus: impl Iterator<Item = L>) -> Self {
        let lanes = cpus.map(|cpu| Lane {
            cpu,
            pages: VecDeque::new(),
            next: None,
            known_ns: 0,
        });
        Self {
            layout,
            lanes: lanes.collect(),
            heads: BinaryHeap::new(),
            given: None,
        }
    }

    /// Adds what a round found.
    pub(crate) fn add(&mut self, round: Round) {
        let rings = round.rings.into_iter().enumerate();
        for (at, (pages, at_end)) in rings {
            let Some(lane) = self.lanes.get_mut(at) else {
                continue;
            };
            let pages = pages.into_iter();
            let pages = pages.filter_map(|page| RingPage::new(&self.layout, page));
            lane.pages.extend(pages);
            if at_end {
                lane.known_ns = lane.known_ns.max(round.known_ns);
            }
            if lane.next.is_none() {
                self.advance(at);
            }
        }
    }

    /// The next event before which no other can come: its ring, time and sample.
    pub(crate) fn next_event(&mut self) -> Option<(L, u64, &[u8])> {
        if let Some(at) = self.given.take() {
            self.advance(at);
        }
        let Reverse((time_ns, at)) = *self.heads.peek()?;
        let empty = self.lanes.iter().filter(|lane| lane.next.is_none());
        if empty
            .map(|lane| lane.known_ns)
            .min()
            .is_some_and(|known_ns| known_ns < time_ns)
        {
            return None;
        }
        self.heads.pop();
        self.given = Some(at);
        let lane = &self.lanes[at];
        let (_, range) = lane.next.clone()?;
        Some((lane.cpu, time_ns, lane.pages.front()?.bytes().get(range)?))
    }

    /// Finds the next event of a lane.
    fn advance(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if let Some((time_ns, _)) = lane.next.take() {
            lane.known_ns = lane.known_ns.max(time_ns);
        }
        while let Some(page) = lane.pages.front_mut() {
            lane.next = page.next_event();
            if let Some((time_ns, _)) = lane.next {
                self.heads.push(Reverse((time_ns, at)));
                return;
            }
            lane.pages.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> RingLayout {
        let text = "field: u64 timestamp; offset:0; size:8;\nfield: local_t commit; offset:8; size:8;\n\
            field: char data; offset:16; size:4080;";
        RingLayout::parse(text).unwrap()
    }

    /// A page with an event of one word at each time.
    fn page(times: &[u64]) -> Vec<u8> {
        let begin = times[0];
        let commit = times.len() as u64 * 8;
        let mut bytes = [begin.to_ne_bytes(), commit.to_ne_bytes()].concat();
        let mut before = begin;
        for time in times {
            let word = 1 | ((time - before) as u32) << 5;
            bytes.extend(
                [word, *time as u32]
                    .iter()
                    .flat_map(|word| word.to_ne_bytes()),
            );
            before = *time;
        }
        bytes
    }

    fn take(merge: &mut Merge<u16>) -> Vec<(u16, u64)> {
        let mut found = Vec::new();
        while let Some((cpu, time_ns, sample)) = merge.next_event() {
            assert_eq!(sample, (time_ns as u32).to_ne_bytes());
            found.push((cpu, time_ns));
        }
        found
    }

    #[test]
    fn events_wait_for_those_that_may_come_before() {
        let mut merge = Merge::new(layout(), [0, 3].into_iter());
        merge.add(Round {
            known_ns: 50,
            rings: vec![(vec![page(&[10, 30]), page(&[60])], true), (vec![], true)],
        });
        // CPU 3 may still have events from 50 on.
        assert_eq!(take(&mut merge), [(0, 10), (0, 30)]);
        merge.add(Round {
            known_ns: 100,
            rings: vec![(vec![], true), (vec![page(&[55, 70])], false)],
        });
        // The ring of CPU 3 was not read to its end: its next event comes after 70.
        assert_eq!(take(&mut merge), [(3, 55), (0, 60), (3, 70)]);
        merge.add(Round {
            known_ns: 200,
            rings: vec![(vec![page(&[110])], true), (vec![page(&[90])], true)],
        });
        assert_eq!(take(&mut merge), [(3, 90), (0, 110)]);
    }
}
