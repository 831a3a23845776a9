//! One receive queue: posted buffers, what its driver does with pages, refill.

use quarry_core::machine::Cpus as _;
use std::collections::VecDeque;

use quarry_core::page::{PageAllocator, Pfn};
use quarry_core::pool::{PoolOwner, PoolParams};
use quarry_sim::{LonePut, VirtualMachine};

use super::driver::{PerPage, Source};
use super::recycle::{CACHE_ENTRIES, RxBuffer, RxCache, RxPage};
use super::report::RecycleCounts;
use super::spec::RxSpec;

/// Where a queue's pages come from, with its state.
enum Pages<'p> {
    Allocator,
    Cache(Box<RxCache<'p, VirtualMachine>>),
    Pool(Box<PoolOwner<'p, VirtualMachine>>),
}

/// A receive queue. It is worked on by its own CPU only.
pub(super) struct RxQueue<'p> {
    pages: &'p PageAllocator<VirtualMachine>,
    source: Pages<'p>,
    buffer: RxBuffer,
    frame_bytes: u32,
    reuses: bool,
    /// Work entries that the card may write to, oldest first.
    posted: VecDeque<RxPage>,
    /// Work entries that the card has written to, oldest first, with the pages that they keep.
    used: VecDeque<Option<RxPage>>,
    counts: QueueCounts,
}

/// What a queue counts itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueCounts {
    pub(super) dropped: u64,
    pub(super) alloc_failures: u64,
    pub(super) buffers: u64,
    pub(super) page_reuse: u64,
}

impl<'p> RxQueue<'p> {
    /// A queue with nothing posted. `None` if there is no room for its cache or pool.
    pub(super) fn new(pages: &'p PageAllocator<VirtualMachine>, spec: &RxSpec) -> Option<Self> {
        let page_shift = pages.machine().topology().page_shift;
        let buffer = RxBuffer::linear(spec.mtu, page_shift)?;
        let cache = |entries| RxCache::new(pages, spec.era, entries).map(Box::new);
        let source = match spec.driver.source {
            Source::Pages => Pages::Allocator,
            Source::SmallCache => Pages::Cache(cache(CACHE_ENTRIES)?),
            Source::HugeCache => Pages::Cache(cache(spec.cache_entries)?),
            Source::Pool => {
                let params = PoolParams {
                    name: "rx",
                    order: buffer.order(),
                    pool_size: spec.descriptors,
                    node: None,
                };
                let owner = PoolOwner::create(pages, spec.era, &params).ok()?;
                Pages::Pool(Box::new(owner))
            }
        };
        Some(Self {
            pages,
            source,
            buffer,
            frame_bytes: spec.frame_bytes(),
            reuses: spec.driver.per_page == PerPage::Footprint,
            posted: VecDeque::with_capacity(spec.descriptors as usize),
            used: (0..spec.descriptors).map(|_| None).collect(),
            counts: QueueCounts::default(),
        })
    }

    /// A packet arrives: the page that it is in, with a reference for whoever reads it. `None` if
    /// nothing is posted: the packet is dropped.
    pub(super) fn receive(&mut self) -> Option<Pfn> {
        let received = self.posted.pop_front().and_then(|mut page| {
            let pfn = page.pfn();
            if let Pages::Pool(_) = self.source {
                // The page itself goes with the packet, which is marked for recycling.
                self.used.push_back(None);
                return Some(pfn);
            }
            page.receive(self.pages, self.frame_bytes).ok()?;
            let kept = if self.reuses && page.reusable(self.pages, &self.buffer) {
                Some(page)
            } else {
                self.release(pfn);
                None
            };
            self.used.push_back(kept);
            Some(pfn)
        });
        self.counts.dropped += u64::from(received.is_none());
        received
    }

    /// The driver has finished with a page.
    fn release(&mut self, pfn: Pfn) {
        let released = match &mut self.source {
            Pages::Allocator => self.pages.put_page(pfn).map(drop),
            Pages::Cache(cache) => cache.put(pfn),
            Pages::Pool(_) => Ok(()),
        };
        debug_assert_eq!(released, Ok(()), "the driver had a reference");
    }

    /// Posts a buffer for every used work entry, as far as there are pages.
    pub(super) fn refill(&mut self) {
        while let Some(kept) = self.used.pop_front() {
            let page = if let Some(page) = kept {
                self.counts.page_reuse += 1;
                page
            } else {
                let Some(pfn) = self.page() else {
                    self.counts.alloc_failures += 1;
                    self.used.push_front(None);
                    return;
                };
                RxPage::new(pfn)
            };
            self.counts.buffers += 1;
            self.posted.push_back(page);
        }
    }

    fn page(&mut self) -> Option<Pfn> {
        let cached = match &mut self.source {
            Pages::Allocator => None,
            Pages::Cache(cache) => cache.get(),
            Pages::Pool(owner) => return owner.alloc(),
        };
        cached.or_else(|| self.pages.alloc(self.buffer.order(), None))
    }

    /// A reader has finished with a packet, on whichever CPU runs now. It is a process, so pages of
    /// the pool take the way by the ring even on the queue's own CPU.
    pub(super) fn read(&self, pfn: Pfn) {
        if let Pages::Pool(owner) = &self.source {
            let put = owner.pool().lone_put(pfn);
            debug_assert!(put.is_ok(), "a packet has its page: {put:?}");
            return;
        }
        let released = self.pages.put_page(pfn);
        debug_assert!(released.is_ok(), "a packet has a reference: {released:?}");
    }

    pub(super) fn counts(&self) -> QueueCounts {
        self.counts
    }

    pub(super) fn recycling(&self) -> RecycleCounts {
        let mut counts = RecycleCounts {
            buffers: self.counts.buffers,
            page_reuse: self.counts.page_reuse,
            ..RecycleCounts::default()
        };
        match &self.source {
            Pages::Allocator => {}
            Pages::Cache(cache) => {
                let stats = cache.stats();
                counts.cache_reuse = stats.cache_reuse;
                counts.cache_empty = stats.cache_empty;
                counts.cache_busy = stats.cache_busy;
                counts.cache_full = stats.cache_full;
                counts.cache_waive = stats.cache_waive;
            }
            Pages::Pool(owner) => {
                let stats = owner.pool().stats();
                counts.pool_fast = stats.fast;
                counts.pool_refill = stats.refill;
                counts.pool_slow = stats.slow + stats.slow_high_order;
                counts.pool_ring = stats.ring;
                counts.pool_ring_full = stats.ring_full;
            }
        }
        counts
    }

    /// The driver is unloaded: gives back everything that is posted or kept.
    pub(super) fn close(mut self) {
        let kept = self.used.drain(..).flatten();
        for page in self.posted.drain(..).chain(kept) {
            if let Pages::Pool(owner) = &mut self.source {
                let put = owner.lone_put(page.pfn());
                debug_assert!(put.is_ok(), "the page was the driver's: {put:?}");
                continue;
            }
            let released = self.pages.put_page(page.pfn());
            debug_assert!(released.is_ok(), "the driver had a reference: {released:?}");
        }
    }
}
