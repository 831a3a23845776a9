//! The recycler: a ring of pages that the driver still has a reference to, oldest first.

use std::collections::VecDeque;

use quarry_core::era::Era;
use quarry_core::machine::Machine;
use quarry_core::page::{PageAllocator, Pfn, SharedBlock};

use super::page::is_local;

/// Entries of the ring of mlx5 [4.13, 4.14]: 4 times the larger of the 64 pages of a striding work
/// entry and the NAPI budget of 64. One of them always stays empty.
pub const CACHE_ENTRIES: u32 = 256;

/// Counters by the driver's names (`ethtool -S`: `rx_cache_reuse` and so on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCacheStats {
    /// The oldest page was idle and was taken.
    pub cache_reuse: u64,
    /// The ring was empty.
    pub cache_empty: u64,
    /// Another user still had the oldest page; younger ones are not looked at.
    pub cache_busy: u64,
    /// The ring was full, and a page was given up.
    pub cache_full: u64,
    /// A page of another node was given up.
    pub cache_waive: u64,
}

impl RxCacheStats {
    /// Times that a page was wanted.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.cache_reuse + self.cache_empty + self.cache_busy
    }
}

/// See the [module's documentation](super).
pub struct RxCache<'p, M: Machine> {
    pages: &'p PageAllocator<M>,
    /// Oldest first.
    ring: VecDeque<SharedBlock<'p, M>>,
    capacity: usize,
    waives_remote: bool,
    stats: RxCacheStats,
}

impl<'p, M: Machine> RxCache<'p, M> {
    /// An empty ring of `entries`, a power of two from 2 on; all but one can be used. Eras
    /// after 4.13 keep no pages of other nodes. `None` if the number is none of these.
    pub fn new(pages: &'p PageAllocator<M>, era: Era, entries: u32) -> Option<Self> {
        if entries < 2 || !entries.is_power_of_two() {
            return None;
        }
        Some(Self {
            pages,
            ring: VecDeque::new(),
            capacity: entries as usize - 1,
            waives_remote: era > Era::V4_13,
            stats: RxCacheStats::default(),
        })
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> RxCacheStats {
        self.stats
    }

    /// Pages in the ring, idle or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Pages that the ring can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The pages in the ring, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.ring.iter().map(SharedBlock::pfn)
    }

    /// The oldest page, with the driver's reference, if no other code has one. If other code has, the
    /// younger pages behind it are not looked at (head-of-line blocking).
    pub fn get(&mut self) -> Option<SharedBlock<'p, M>> {
        let Some(oldest) = self.ring.front() else {
            self.stats.cache_empty += 1;
            return None;
        };
        if oldest.count() != 1 {
            self.stats.cache_busy += 1;
            return None;
        }
        self.stats.cache_reuse += 1;
        self.ring.pop_front()
    }

    /// Takes over the driver's reference to a page, which others may use still. If the ring is full,
    /// or does not keep pages of that node, the reference is dropped.
    pub fn put(&mut self, block: SharedBlock<'p, M>) {
        if self.ring.len() == self.capacity {
            self.stats.cache_full += 1;
        } else if self.waives_remote && !is_local(self.pages, block.pfn()) {
            self.stats.cache_waive += 1;
        } else {
            self.ring.push_back(block);
        }
    }
}
