//! Free memory over time, at intervals of a fixed number of events.

use quarry_core::page::{ORDERS, PageStats};
use schemars::JsonSchema;
use serde::Serialize;

/// Most samples of a run.
pub const SAMPLES_MAX: u64 = 64;

/// Free memory over time.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Fragmentation {
    /// Events of the trace from one sample to the next; the first and the last may be closer.
    pub interval: u64,
    /// At most 64 samples: at the beginning of the replay, at every interval, and at the end.
    pub samples: Vec<Sample>,
    #[serde(skip)]
    page_bytes: u64,
}

/// Use of all pages at one moment.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Sample {
    /// Events of the trace so far.
    pub event: u64,
    /// Nanoseconds after the trace's first event.
    pub time_ns: u64,
    /// Bytes of slabs.
    pub slab_bytes: u64,
    /// Bytes of page events' blocks.
    pub block_bytes: u64,
    /// Bytes of blocks from before that the recording frees later.
    pub initial_bytes: u64,
    /// Bytes of free blocks on per-CPU lists, which no other CPU can use.
    pub pcp_bytes: u64,
    /// Bytes of free blocks in the zones; memory that was never used is among them.
    pub free_bytes: u64,
    /// Free blocks in the zones by order (`/proc/buddyinfo`).
    pub free_blocks: [u64; ORDERS],
    /// Unusable free space index by order: the part of the free memory that cannot serve the order, from 0
    /// to 1.
    pub unusable_index: [f64; ORDERS],
}

impl Sample {
    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.slab_bytes + self.block_bytes + self.initial_bytes
    }
}

/// The unusable free space index of an order: the part of the free memory that cannot serve it,
/// from 0 to 1: (free - sum over k >= order of 2^k * blocks of order k) / free; 0 if nothing is
/// free. Gorman and Whitcroft, "The What, The Why and the Where To of Anti-Fragmentation", Ottawa
/// Linux Symposium 2006; debugfs has it as `extfrag/unusable_index`.
#[must_use]
pub fn unusable_index(free_blocks: &[u64; ORDERS]) -> [f64; ORDERS] {
    let pages = |(order, blocks): (usize, &u64)| blocks << order;
    let free: u64 = free_blocks.iter().enumerate().map(pages).sum();
    let mut below = 0;
    let mut index = [0.0; ORDERS];
    for (order, (at, blocks)) in index.iter_mut().zip(free_blocks).enumerate() {
        *at = below as f64 / free.max(1) as f64;
        below += blocks << order;
    }
    index
}

/// State that a sample is taken of.
pub(super) struct Moment<'a> {
    pub(super) event: u64,
    pub(super) time_ns: u64,
    pub(super) slab_pages: u64,
    pub(super) block_pages: u64,
    pub(super) initial_pages: u64,
    pub(super) stats: &'a PageStats,
}

impl Fragmentation {
    pub(super) fn new(rows: u64, page_bytes: u64) -> Self {
        Self {
            // One sample at the beginning and one at the end.
            interval: rows.div_ceil(SAMPLES_MAX - 2).max(1),
            samples: Vec::new(),
            page_bytes,
        }
    }

    /// Events until the next sample is due.
    pub(super) fn due_in(&self, event: u64) -> u64 {
        self.interval - event % self.interval
    }

    /// Takes a sample, unless there is one of this event.
    pub(super) fn take(&mut self, moment: &Moment<'_>) {
        if self
            .samples
            .last()
            .is_some_and(|last| last.event == moment.event)
        {
            return;
        }
        let stats = moment.stats;
        let blocks = stats.free_blocks.iter().zip(0..);
        let free_pages: u64 = blocks
            .map(|(blocks, order): (_, u32)| blocks << order)
            .sum();
        self.samples.push(Sample {
            event: moment.event,
            time_ns: moment.time_ns,
            slab_bytes: moment.slab_pages * self.page_bytes,
            block_bytes: moment.block_pages * self.page_bytes,
            initial_bytes: moment.initial_pages * self.page_bytes,
            pcp_bytes: (stats.free_pages - free_pages) * self.page_bytes,
            free_bytes: free_pages * self.page_bytes,
            free_blocks: stats.free_blocks,
            unusable_index: unusable_index(&stats.free_blocks),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_by_hand() {
        let mut blocks = [0; ORDERS];
        assert_eq!(unusable_index(&blocks), [0.0; ORDERS]);
        // 2 pages in single ones, 6 in pairs, 8 in one block of order 3: 16 in all.
        (blocks[0], blocks[1], blocks[3]) = (2, 3, 1);
        let index = unusable_index(&blocks);
        assert_eq!(index[..5], [0.0, 0.125, 0.5, 0.5, 1.0]);
        assert_eq!(index[10], 1.0);
    }

    #[test]
    fn samples_are_bounded_and_evenly_spaced() {
        for rows in [0, 1, 2, 61, 62, 63, 64, 1000, 123_456] {
            let mut fragmentation = Fragmentation::new(rows, 4096);
            let stats = PageStats::default();
            let mut take = |event| {
                fragmentation.take(&Moment {
                    event,
                    time_ns: 0,
                    slab_pages: 1,
                    block_pages: 2,
                    initial_pages: 3,
                    stats: &stats,
                });
                event + fragmentation.due_in(event)
            };
            let mut next = take(0);
            while next <= rows {
                next = take(next);
            }
            take(rows);
            let samples = &fragmentation.samples;
            assert!(samples.len() as u64 <= SAMPLES_MAX, "{rows}");
            assert!(
                samples.len() as u64 >= SAMPLES_MAX.min(rows + 1) / 2,
                "{rows}"
            );
            assert_eq!(samples.last().unwrap().event, rows);
            assert_eq!(samples[0].used_bytes(), 6 * 4096);
            assert!(samples.is_sorted_by(|a, b| a.event < b.event));
        }
    }
}
