//! The page pool: pages that one CPU receives into and any CPU gives back.
//!
//! # 1 Idea and source
//!
//! Linux's `page_pool` (`net/core/page_pool.c`, 4.18 and later), written from the published facts.
//! A receiver allocates a page per packet on one CPU; the packet's consumer gives it back on
//! another, much later. The page allocator's per-CPU lists cannot serve that: the receiver's are
//! always empty, the consumer's always full, and both go to the zone lock. A pool gives such pages
//! a way back to where they are needed.
//!
//! # 2 Objects
//!
//! ```text
//!                  owner                          other threads
//!         alloc |        ^ put                        | put
//!               v        |                            v
//!         +------------------+    refill 64    +-------------+
//!         | alloc cache: 128 |<-------+--------| lane: 992  |  one for each CPU that puts, where
//!         +------------------+        |        +-------------+  the machine has single steps
//!               ^                     |               | full, held
//!               |                     |        +------v------+
//!               |                     +--------| ring: 1024  |  many producers, one consumer
//!               |                              +-------------+
//!               | bulk 64                             | full; other users; other node
//!         ------+-------- page allocator -------------v------
//! ```
//!
//! The [`PoolOwner`] alone allocates. Its methods take `&mut self`, so the alloc cache, which it keeps itself,
//! and the reading ends of lanes and ring need no lock. [`PagePool`] handles are for all threads. A pool's page
//! has two words in its descriptor. One has its pool and whether it is home, so that one comparison decides
//! whether a put is right. The other has, in flight, to which call site and CPU it was handed out, and when.
//! The first page of a [`PageBatch`] says so for all of its pages.
//!
//! # 3 States of a page
//!
//! outside -> home -> in flight -> home -> ... -> outside. Home is the alloc cache, a lane or the
//! ring. In flight it is whole, in pieces (`pieces`) or in a batch (`batch`).
//!
//! # 4 Paths
//!
//! *Allocation*: pop the alloc cache (`fast`); else take up to 64 pages from the lanes, each in its
//! turn, and the ring while they are on the preferred node (`refill`; the first that is not is
//! released, `waive`); else, the ring being empty (`empty`), ask the page allocator for 64 in one
//! call (`slow`; one before 6.1, one block at a time for orders above 0, `slow_high_order`). *Put
//! by the owner*: push the alloc cache (`cached`), if it is full (`cache_full`) into the ring.
//! *Put*: into the running CPU's lane or the ring (`ring`), out of the pool if it is full
//! (`ring_full`). A page that has other users (`get_page`), and is not in a batch, leaves the pool
//! when it is put (`released_refcnt`); its last user frees it.
//!
//! A bulk call for n pages is n single ones in the same order, at less cost. It takes one look at the
//! call site, the CPU and the alloc cache's length. For up to 64 pages it holds the CPU's lane once, or
//! reserves the ring's slots once. A batch is one look at one descriptor, and copies. Counters
//! count pages.
//!
//! # 5 Locks
//!
//! None, but when a CPU's first put makes its lane: that enters the gate and takes the lock of the
//! machine's structure range. A put into a lane is a step of the machine, or tries the CPU's slot
//! once. A producer reserves slots of the ring in one atomic step and fills them (`ring`). So no
//! put waits for a preempted thread, for the thread that its signal handler interrupted, or for one
//! that a fork left behind. But for as long as a reserved slot is not filled, the owner does not
//! see what is behind it. A put would wait for the owner in one case only: the ring is full, and
//! more than a thousand threads at once were interrupted between their look at it and their step.
//!
//! # 6 Invariants
//!
//! * **I1** Every page of a pool is in exactly one place, which its state names.
//! * **I2** The alloc cache, the heads of the lanes and the ring and the owner's counters are written
//!   by the owner alone; there is one owner, or after [`PoolOwner::destroy`] one [`Pending`].
//! * **I3** An allocation by number hands out an entry only if the page is this pool's and home. It is
//!   in flight from then on. A second put is refused. Two of a page at the same moment break the puts'
//!   contract, as nothing ties a put's look at the state to its store: both may be accepted and make
//!   two entries (the owner drops the one that it meets while the page is in flight, `stale`; a batch
//!   takes its entries as they are), or one releases the page and the other writes to what is no more
//!   the pool's.
//! * **I4** The pool's memory goes back when it has neither handles nor pages. The holder of a page
//!   in flight may use the pool until the page is put. A put touches the pool no more once the
//!   page may have gone on, except for the word of the lane's slot, which it frees. The closing of the
//!   ring waits for producers, and that of a lane takes its slot, for that reason; the memory of a
//!   lane whose slot stayed held is never given back.
//!
//! # 7 Departures from the kernel
//!
//! Pages have no `pfmemalloc` mark. At most 63 pieces of a page are handed out at a time. They start in
//! different sixty-fourths of the page, so that a put of a wrong or returned piece is
//! an error. Call sites and CPUs of pages in flight are always kept, so that a pool that cannot be
//! destroyed names its pages' holders. Linux has neither lanes nor batches: its ring is the only way home, and
//! its producers take a lock. The ring's producers here have no lock. A bulk put by the owner goes
//! into the alloc cache like a single one. Lanes add to what the ring can hold: up to `pool_size` or
//! 992 pages for each CPU that puts, whichever is less; machines without single steps, the virtual one
//! among them, have none. Pages in lanes are counted as in the ring. A refill on a machine with one
//! node does not read the descriptors of what it moves.
//!
//! # 8 Cost
//!
//! An allocation and a put by the owner: the alloc cache's line and the page's descriptor, no
//! atomic read-modify-write; counters of the fast paths are worked out when they are asked for. A put
//! from elsewhere: a step, or one, the reservation; a bulk put one for up to 64 pages. The descriptor's
//! line then goes to the CPU that puts and back to the owner's; of a batch only the first page's.

mod alloc;
mod batch;
mod cache;
mod destroy;
mod inflight;
mod lanes;
mod map;
mod pieces;
mod put;
mod raw;
mod release;
mod ring;
mod rules;
mod stats;
mod types;

pub use batch::{BATCH_PAGES, PageBatch};
pub use destroy::Pending;
pub use inflight::{HOLDERS_MAX, Holder, InFlight, InFlightReport};
pub use map::{Mapper, NoMapper};
pub use pieces::{PIECES_MAX, Piece, PieceError};
pub use raw::{RawPool, ThinPool};
pub use rules::{PoolRules, REFILL_PAGES, pool_rules};
pub use stats::PoolStats;
pub use types::{CACHE_PAGES, PoolCreateError, PoolError, PoolParams, PoolState, Put};

use core::ptr::NonNull;

use crate::debug::{CallSite, SiteTable};
use crate::era::Era;
use crate::machine::{CpuId, Machine, RawRange, Region};
use crate::page::{PageAllocator, Pfn};
use crate::sync::{AtomicU64, Ordering};
use cache::AllocCache;
use lanes::Lanes;
use ring::Ring;
use types::{Body, BodyPtr, DEFAULT_POOL_SIZE, HANDLE, OwnerPart, Receipt};

/// A shared handle to a pool: puts pages from anywhere and shows what the pool does.
pub struct PagePool<'p, M: Machine, H: Mapper = NoMapper> {
    pages: &'p PageAllocator<M>,
    /// Lives as long as this handle, which it counts (I4).
    body: BodyPtr<H>,
}

// SAFETY: the body is made of atomics, of data behind a lock, of constants and of the mapper. `H: Send + Sync`
// lets several threads call the mapper at once and any of them drop it; the page allocator is shared.
unsafe impl<M: Machine + Sync, H: Mapper + Send + Sync> Send for PagePool<'_, M, H> {}
// SAFETY: the same parts are shared by reference, and handles only share them.
unsafe impl<M: Machine + Sync, H: Mapper + Send + Sync> Sync for PagePool<'_, M, H> {}

/// The only handle that allocates from a pool (I2). When it is dropped the pool is destroyed as by
/// [`PoolOwner::destroy`], and goes when its last page in flight comes home.
///
/// ```
/// use quarry_core::{era::Era, machine::Machine, page::PageAllocator};
/// use quarry_core::pool::{PoolOwner, PoolParams, Put};
///
/// fn receive<M: Machine>(pages: &PageAllocator<M>) {
///     let params = PoolParams { name: "rx0", ..PoolParams::default() };
///     let mut owner = PoolOwner::create(pages, Era::V6_18, &params).unwrap();
///     let pool = owner.handle();
///     let (first, second) = (owner.alloc().unwrap(), owner.alloc().unwrap());
///     // SAFETY: no other code knows the page.
///     assert_eq!(unsafe { owner.put(first) }, Ok(Put::Cached));
///     // SAFETY: no other code knows the page.
///     assert_eq!(unsafe { pool.put(second) }, Ok(Put::Ring));
///     // SAFETY: no other code knows the page, which is not in flight any more: it is refused.
///     assert!(unsafe { pool.put(second) }.is_err());
///     drop(pool);
///     assert!(owner.destroy().is_ok());
/// }
/// ```
pub struct PoolOwner<'p, M: Machine, H: Mapper = NoMapper> {
    pool: PagePool<'p, M, H>,
    cache: AllocCache,
    /// CPU whose lane the last refill looked at.
    turn: CpuId,
    /// The call site that allocated last, and the receipt that its pages get.
    last_site: (CallSite, Receipt),
}

impl<'p, M: Machine> PoolOwner<'p, M> {
    /// Makes a pool whose pages are not mapped.
    ///
    /// # Errors
    ///
    /// [`PoolCreateError`].
    pub fn create(
        pages: &'p PageAllocator<M>,
        era: Era,
        params: &PoolParams<'_>,
    ) -> Result<Self, PoolCreateError> {
        Self::create_mapped(pages, era, params, NoMapper)
    }
}

impl<'p, M: Machine, H: Mapper> PoolOwner<'p, M, H> {
    /// Makes a pool whose pages `mapper` maps while they are in it or in flight.
    ///
    /// # Errors
    ///
    /// [`PoolCreateError`].
    pub fn create_mapped(
        pages: &'p PageAllocator<M>,
        era: Era,
        params: &PoolParams<'_>,
        mapper: H,
    ) -> Result<Self, PoolCreateError> {
        const {
            assert!(
                align_of::<Body<H>>() <= 4096,
                "a mapper of extreme alignment"
            )
        };
        let rules = pool_rules(era, pages.map().page_shift());
        let size = ring_size(&rules, params.pool_size)?;
        let (order, limit) = (params.order, pages.max_order());
        if order > limit {
            return Err(PoolCreateError::Order { order, limit });
        }
        let topology = pages.machine().topology();
        if let Some(node) = params.node.filter(|node| node.0 >= topology.nodes) {
            return Err(PoolCreateError::Node(node));
        }
        let machine = pages.machine();
        let _pass = pages.gate().enter(machine);
        let bytes = size_of::<Body<H>>().max(align_of::<Body<H>>());
        let place = pages.meta().alloc(machine, bytes);
        let body = place.ok_or(PoolCreateError::NoRoom)?.cast::<Body<H>>();
        let Some((ring, lanes)) = ring_and_lanes(pages, size) else {
            let base = body.cast();
            // SAFETY: no code knows the block.
            unsafe { give_back(machine, pages.meta(), RawRange { base, bytes }) };
            return Err(PoolCreateError::NoRoom);
        };
        let new = Body {
            owner: OwnerPart::new(params.order),
            ring,
            lanes,
            shared: stats::SharedStats::new(),
            alive: AtomicU64::new(HANDLE),
            pages: NonNull::from(pages).cast(),
            mapper,
            order: params.order,
            block_bytes: (topology.page_size() << params.order) as u32,
            node: params.node,
            rules,
            name: types::short_name(params.name),
            sites: SiteTable::new(),
        };
        // SAFETY: the block is fresh and large enough, and a region aligns blocks to their size up
        // to 4096 bytes.
        unsafe { body.write(new) };
        Ok(Self {
            pool: PagePool { pages, body },
            cache: AllocCache::new(),
            turn: CpuId(0),
            last_site: (CallSite::UNKNOWN, Receipt::new(0)),
        })
    }

    /// One more handle to the pool, for those who put pages.
    #[must_use]
    pub fn handle(&self) -> PagePool<'p, M, H> {
        self.pool.clone()
    }

    /// The pool, for what every handle can do.
    #[must_use]
    pub fn pool(&self) -> &PagePool<'p, M, H> {
        &self.pool
    }
}

/// The ring and the lanes of a new pool; without room for both, neither.
fn ring_and_lanes<M: Machine>(pages: &PageAllocator<M>, size: u32) -> Option<(Ring, Lanes)> {
    let (machine, meta, percpu) = (pages.machine(), pages.meta(), pages.percpu());
    match (
        Ring::new(machine, meta, size),
        Lanes::new(machine, percpu, size),
    ) {
        (Some(ring), Some(lanes)) => Some((ring, lanes)),
        (ring, lanes) => {
            if let Some(lanes) = lanes {
                // SAFETY: no code knows them.
                unsafe { lanes.free(machine, meta, percpu) };
            }
            if let Some(ring) = ring {
                // SAFETY: no code knows the block.
                unsafe { give_back(machine, meta, ring.range()) };
            }
            None
        }
    }
}

/// Slots of the ring for what was asked.
fn ring_size(rules: &PoolRules, pool_size: u32) -> Result<u32, PoolCreateError> {
    let limit = rules.ring_limit;
    match pool_size {
        0 => Ok(DEFAULT_POOL_SIZE),
        size if size <= limit => Ok(size),
        _ if rules.clamps => Ok(limit),
        _ => Err(PoolCreateError::PoolSize { pool_size, limit }),
    }
}

impl<'p, M: Machine, H: Mapper> PagePool<'p, M, H> {
    #[inline(always)]
    fn body(&self) -> &Body<H> {
        // SAFETY: I4 - this handle counts in `alive`, so the body is there; it is only shared.
        unsafe { self.body.as_ref() }
    }

    /// The pool for users that know by other means that it lives.
    #[inline(always)]
    #[must_use]
    pub fn raw(&self) -> RawPool<'p, M, H> {
        RawPool {
            pages: self.pages,
            body: self.body,
        }
    }

    /// The page allocator below.
    #[must_use]
    pub fn pages(&self) -> &'p PageAllocator<M> {
        self.pages
    }

    /// The name it was created with, or its first 16 bytes.
    #[must_use]
    pub fn name(&self) -> &str {
        self.body().name()
    }

    /// Order of its blocks.
    #[must_use]
    pub fn order(&self) -> u32 {
        self.body().order
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.body().block_bytes as usize
    }

    /// Pages that the ring can hold.
    #[must_use]
    pub fn ring_size(&self) -> u32 {
        self.body().ring.size()
    }

    /// The mapper of its pages.
    #[must_use]
    pub fn mapper(&self) -> &H {
        &self.body().mapper
    }

    /// The mapping of a page of this pool, wherever it is (`page_pool_get_dma_addr()`).
    #[must_use]
    pub fn mapping_of(&self, pfn: Pfn) -> Option<u64> {
        let page = self.pages.map().get(pfn)?;
        let mapped = H::MAPS && self.body().owns(page);
        mapped.then(|| page.private.load(Ordering::Relaxed))
    }

    /// State of a page; [`PoolState::Outside`] if it is not this pool's.
    #[must_use]
    pub fn state_of(&self, pfn: Pfn) -> PoolState {
        match self.pages.map().get(pfn) {
            Some(page) => self.body().state_of(page),
            None => PoolState::Outside,
        }
    }

    /// Counters; exact if no code uses the pool at this moment.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let body = self.body();
        let [put, taken] = body.lanes.traffic::<M>();
        let mut stats = PoolStats {
            ring: body.ring.produced() + put,
            pages_cached: body.owner.cached.load(Ordering::Relaxed) as u64,
            ..PoolStats::default()
        };
        body.owner.stats.add_to(&mut stats);
        body.shared.add_to(&mut stats);
        // What was handed out and not on a slow path: the fast one counts no more than that.
        let slow = stats.refill + stats.slow + stats.slow_high_order;
        let handed_out = body.owner.clock.load(Ordering::Relaxed);
        stats.fast = handed_out.saturating_sub(slow);
        // Nor does a put: what is in the alloc cache or was, and came there in no other way.
        let dropped = body.owner.dropped.load(Ordering::Relaxed);
        let filled = body.owner.filled.load(Ordering::Relaxed);
        stats.cached = (stats.pages_cached + handed_out + dropped).saturating_sub(filled);
        stats.pages_ring = stats.ring.saturating_sub(body.ring.consumed() + taken);
        let kept = stats.pages_cached + stats.pages_ring + self.idle_open();
        stats.inflight = body.held().saturating_sub(kept);
        stats
    }
}

impl<M: Machine, H: Mapper> Clone for PagePool<'_, M, H> {
    fn clone(&self) -> Self {
        // Relaxed: this handle keeps the pool alive meanwhile.
        let before = self.body().alive.fetch_add(HANDLE, Ordering::Relaxed);
        // Handles that were forgotten could make the count wrap, and the pool go under the others.
        if before >= u64::MAX / 2 {
            self.body().alive.fetch_sub(HANDLE, Ordering::Relaxed);
            panic!("too many handles to a page pool");
        }
        Self {
            pages: self.pages,
            body: self.body,
        }
    }
}

impl<M: Machine, H: Mapper> Drop for PagePool<'_, M, H> {
    fn drop(&mut self) {
        self.raw().drop_alive(HANDLE);
    }
}

/// Gives a block back to the region that it is from.
///
/// # Safety
///
/// The region handed it out for these bytes, and no code uses it any more.
unsafe fn give_back<M: Machine>(machine: &M, meta: &Region, block: RawRange) {
    // SAFETY: the block has this many bytes.
    unsafe { NonNull::write_bytes(block.base, 0, block.bytes) };
    // SAFETY: the region handed the block out for these bytes and it has no user, by the caller's promise; it was
    // zeroed above.
    unsafe { meta.free(machine, block.base, block.bytes) };
}
