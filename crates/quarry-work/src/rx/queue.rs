//! One receive queue: posted buffers, what its driver does with pages, refill.

use quarry_core::machine::Cpus as _;
use std::collections::VecDeque;

use quarry_core::page::{PageAllocator, Pfn, SharedBlock};
use quarry_core::pool::{PoolOwner, PoolParams};
use quarry_sim::{LonePut, VirtualMachine};

use super::driver::{PerPage, Source};
use super::recycle::{CACHE_ENTRIES, RxBuffer, RxCache, RxPage};
use super::report::RecycleCounts;
use super::spec::RxSpec;

/// What a packet carries to its reader.
pub(super) enum RxFrame<'p> {
    /// A reference to a page.
    Block(SharedBlock<'p, VirtualMachine>),
    /// A page of the queue's pool.
    Pool(Pfn),
}

impl RxFrame<'_> {
    /// The page that the packet lies in.
    pub(super) fn pfn(&self) -> Pfn {
        match self {
            Self::Block(block) => block.pfn(),
            Self::Pool(pfn) => *pfn,
        }
    }
}

/// A buffer for the card.
enum Posted<'p> {
    /// In a page that packets may share.
    Page(RxPage<'p, VirtualMachine>),
    /// A whole page of the queue's pool.
    Pool(Pfn),
}

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
    posted: VecDeque<Posted<'p>>,
    /// Work entries that the card has written to, oldest first, with the pages that they keep.
    used: VecDeque<Option<RxPage<'p, VirtualMachine>>>,
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

    /// A packet arrives: the page that it is in, with a reference for its reader. `None` if
    /// nothing is posted: the packet is dropped.
    pub(super) fn receive(&mut self) -> Option<RxFrame<'p>> {
        let received = self.posted.pop_front().and_then(|posted| {
            let mut page = match posted {
                // The page itself goes with the packet, which is marked for recycling.
                Posted::Pool(pfn) => {
                    self.used.push_back(None);
                    return Some(RxFrame::Pool(pfn));
                }
                Posted::Page(page) => page,
            };
            let packet = page.receive(self.frame_bytes).ok()?;
            let kept = if self.reuses && page.reusable(self.pages, &self.buffer) {
                Some(page)
            } else {
                self.release(page.into_block());
                None
            };
            self.used.push_back(kept);
            Some(RxFrame::Block(packet))
        });
        self.counts.dropped += u64::from(received.is_none());
        received
    }

    /// The driver has finished with a page.
    fn release(&mut self, block: SharedBlock<'p, VirtualMachine>) {
        if let Pages::Cache(cache) = &mut self.source {
            cache.put(block);
        }
    }

    /// Posts a buffer for every used work entry, as far as there are pages.
    pub(super) fn refill(&mut self) {
        while let Some(kept) = self.used.pop_front() {
            let page = if let Some(page) = kept {
                self.counts.page_reuse += 1;
                Posted::Page(page)
            } else {
                let Some(page) = self.page() else {
                    self.counts.alloc_failures += 1;
                    self.used.push_front(None);
                    return;
                };
                page
            };
            self.counts.buffers += 1;
            self.posted.push_back(page);
        }
    }

    fn page(&mut self) -> Option<Posted<'p>> {
        let cached = match &mut self.source {
            Pages::Allocator => None,
            Pages::Cache(cache) => cache.get(),
            Pages::Pool(owner) => return owner.alloc().map(Posted::Pool),
        };
        let block = cached.or_else(|| self.pages.alloc_shared(self.buffer.order()))?;
        Some(Posted::Page(RxPage::new(block)))
    }

    /// A reader has finished with a packet, on whichever CPU runs now. It is a process, so pages of
    /// the pool take the way by the ring even on the queue's own CPU.
    pub(super) fn read(&self, frame: RxFrame<'p>) {
        match frame {
            RxFrame::Block(block) => drop(block),
            RxFrame::Pool(pfn) => {
                let Pages::Pool(owner) = &self.source else {
                    return;
                };
                let put = owner.pool().lone_put(pfn);
                debug_assert!(put.is_ok(), "a packet has its page: {put:?}");
            }
        }
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
        for posted in self.posted.drain(..) {
            if let (Posted::Pool(pfn), Pages::Pool(owner)) = (posted, &mut self.source) {
                let put = owner.lone_put(pfn);
                debug_assert!(put.is_ok(), "the page was the driver's: {put:?}");
            }
        }
        self.used.clear();
    }
}
