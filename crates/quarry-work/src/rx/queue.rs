//! One receive queue: posted buffers, what its driver does with pages, refill.

use quarry_core::machine::Cpus as _;
use std::collections::VecDeque;

use quarry_core::page::{PageAllocator, SharedBlock};
use quarry_core::pool::PoolParams;
use quarry_sim::{PoolDriver, PoolHome, PoolRef, VirtualMachine};

use super::counts::RecycleCounts;
use super::driver::{PerPage, Source};
use super::recycle::{CACHE_ENTRIES, HEADROOM_BYTES, RxBuffer, RxCache, RxPage};
use super::spec::RxSpec;

/// A packet on its way to its reader.
pub(super) struct RxFrame<'p> {
    page: Held<'p>,
    /// Offset of the packet's buffer in the page.
    offset: u32,
}

/// A packet's claim to its page.
enum Held<'p> {
    /// A reference.
    Block(SharedBlock<'p, VirtualMachine>),
    /// A page of the queue's pool.
    Pool(PoolRef<'p>),
}

impl RxFrame<'_> {
    /// Address to which the card wrote the packet.
    pub(super) fn address(&self, pages: &PageAllocator<VirtualMachine>) -> Option<*const u8> {
        let pfn = match &self.page {
            Held::Block(block) => block.pfn(),
            Held::Pool(page) => page.pfn(),
        };
        let at = pages.address(pfn)?.as_ptr().cast_const();
        Some(at.wrapping_add((self.offset + HEADROOM_BYTES) as usize))
    }
}

/// The way home for the pages of a queue's packets, for readers on any CPU.
pub(super) struct RxHome<'p>(Option<PoolHome<'p>>);

impl<'p> RxHome<'p> {
    /// A reader has finished with a packet, on whichever CPU runs now. It is a process, so pages of
    /// the pool take the way by the ring even on the queue's own CPU.
    pub(super) fn read(&self, frame: RxFrame<'p>) {
        match (frame.page, &self.0) {
            (Held::Block(block), _) => drop(block),
            (Held::Pool(page), Some(home)) => {
                let put = home.put(page);
                debug_assert!(put.is_ok(), "a packet has its page: {put:?}");
            }
            (Held::Pool(_), None) => {
                debug_assert!(false, "a queue without a pool has no such packet")
            }
        }
    }
}

/// A buffer for the card.
enum Posted<'p> {
    /// In a page that packets may share.
    Page(RxPage<'p, VirtualMachine>),
    /// A whole page of the queue's pool.
    Pool(PoolRef<'p>),
}

/// Source of a queue's pages, with its state.
enum Pages<'p> {
    Allocator,
    Cache(Box<RxCache<'p, VirtualMachine>>),
    Pool(Box<PoolDriver<'p>>),
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

/// Counts of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueCounts {
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
                let pool = PoolDriver::create(pages, spec.era, &params).ok()?;
                Pages::Pool(Box::new(pool))
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
        self.posted.pop_front().and_then(|posted| {
            let mut page = match posted {
                // The page itself goes with the packet, which is marked for recycling.
                Posted::Pool(page) => {
                    self.used.push_back(None);
                    let page = Held::Pool(page);
                    return Some(RxFrame { page, offset: 0 });
                }
                Posted::Page(page) => page,
            };
            let offset = page.offset();
            let packet = page.receive(self.frame_bytes).ok()?;
            let kept = if self.reuses && page.reusable(self.pages, &self.buffer) {
                Some(page)
            } else {
                self.release(page.into_block());
                None
            };
            self.used.push_back(kept);
            let page = Held::Block(packet);
            Some(RxFrame { page, offset })
        })
    }

    /// The driver has finished with a page.
    fn release(&mut self, block: SharedBlock<'p, VirtualMachine>) {
        if let Pages::Cache(cache) = &mut self.source {
            cache.put(block);
        }
    }

    /// Posts a buffer for every used work entry, until no page is available.
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
            Pages::Pool(pool) => return pool.alloc().map(Posted::Pool),
        };
        let block = cached.or_else(|| self.pages.alloc_shared(self.buffer.order()))?;
        Some(Posted::Page(RxPage::new(block)))
    }

    /// The way home for pages from its packets' readers.
    pub(super) fn home(&self) -> RxHome<'p> {
        RxHome(match &self.source {
            Pages::Pool(pool) => Some(pool.home()),
            Pages::Allocator | Pages::Cache(_) => None,
        })
    }

    /// Buffers that the card may write to.
    pub(super) fn posted(&self) -> usize {
        self.posted.len()
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
            Pages::Pool(pool) => {
                let stats = pool.stats();
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
            if let (Posted::Pool(page), Pages::Pool(pool)) = (posted, &mut self.source) {
                let put = pool.put(page);
                debug_assert!(put.is_ok(), "the page was the driver's: {put:?}");
            }
        }
        self.used.clear();
    }
}
