//! Parts of a pool, and the words it keeps in the descriptors of its pages.

use core::ptr::NonNull;

use super::lanes::Lanes;
use super::map::Mapper;
use super::ring::Ring;
use super::rules::{PoolRules, pool_rules};
use super::stats::{OwnerStats, SharedStats};
use crate::debug::SiteTable;
use crate::era::Era;
use crate::machine::{CpuId, MAX_CPUS, NodeId};
use crate::page::{Page, PageKind, Pfn};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Pages that the alloc cache holds (`PP_ALLOC_CACHE_SIZE`).
pub const CACHE_PAGES: usize = if cfg!(loom) { 4 } else { 128 };
/// Bytes of a pool's name, without the rest of a longer one.
const NAME_BYTES: usize = 16;

/// Pages that a ring holds if the parameters give no number (`page_pool_init()`).
pub(super) const DEFAULT_POOL_SIZE: u32 = 1024;

/// Parameters of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolParams<'a> {
    /// Names it in reports; 16 bytes are kept.
    pub name: &'a str,
    /// Its blocks have 2^order pages, no more than the page allocator's largest.
    pub order: u32,
    /// Pages that the ring can hold, and each lane as many again up to 992: those that the owner keeps
    /// in use; 0 is the kernel's default, 1024. The limit is the era's ([`PoolRules::ring_limit`]).
    pub pool_size: u32,
    /// Node whose pages are preferred; `None` is that of whichever CPU the owner runs on.
    pub node: Option<NodeId>,
}

impl Default for PoolParams<'_> {
    fn default() -> Self {
        Self {
            name: "page_pool",
            order: 0,
            pool_size: DEFAULT_POOL_SIZE,
            node: None,
        }
    }
}

impl PoolParams<'_> {
    /// Refuses a ring that the era would cut to its limit (6.18 and later): for programs, which get the pool that they ask for
    /// or none.
    ///
    /// # Errors
    ///
    /// [`PoolCreateError::PoolSize`].
    pub fn check_size(&self, era: Era) -> Result<(), PoolCreateError> {
        // Rings have one limit for all page sizes.
        let limit = pool_rules(era, 12).ring_limit;
        match self.pool_size {
            pool_size if pool_size > limit => Err(PoolCreateError::PoolSize { pool_size, limit }),
            _ => Ok(()),
        }
    }
}

/// State of a page with respect to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PoolState {
    /// Not in a pool.
    Outside = 0,
    /// In the alloc cache, a lane or the ring; or in a batch, for which its first page stands.
    InPool = 1,
    /// Handed out whole.
    InFlight = 2,
    /// Handed out in pieces, or about to be.
    InPieces = 3,
    /// Handed out with others, as the first page of their batch.
    InBatch = 4,
}

/// Holder and time of a page in flight, as its descriptor keeps them: in the word of one that is handed out
/// whole or first in a batch, in the place of the links of one in pieces.
#[derive(Clone, Copy)]
pub(super) struct Receipt(pub(super) u64);

const SITE_BITS: u32 = 10;
const CPU_BITS: u32 = 12;
const STAMP_SHIFT: u32 = SITE_BITS + CPU_BITS;
const _: () = assert!(MAX_CPUS <= 1 << CPU_BITS && SiteTable::LEN < 1 << SITE_BITS);

impl Receipt {
    /// For a call site, by its number in the pool's table, and no CPU yet.
    pub(super) const fn new(site: u32) -> Self {
        Self((site as u64) << CPU_BITS)
    }

    /// The same with a CPU.
    #[inline(always)]
    pub(super) fn on(self, cpu: CpuId) -> Self {
        Self(self.0 | u64::from(cpu.0))
    }

    /// The same with the lower 42 bits of the pool's clock.
    #[inline(always)]
    pub(super) fn stamped(self, clock: u64) -> Self {
        Self(self.0 | clock << STAMP_SHIFT)
    }

    /// That of the next page.
    #[inline(always)]
    pub(super) fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << STAMP_SHIFT))
    }

    /// For the call site and CPU of another one, with the stamp that it has.
    pub(super) fn renewed(self, newer: Self) -> Self {
        newer.stamped(self.0 >> STAMP_SHIFT)
    }

    /// Number of the call site in the pool's table, 0 if unknown.
    pub(super) fn site(self) -> u32 {
        (self.0 >> CPU_BITS) as u32 & ((1 << SITE_BITS) - 1)
    }

    pub(super) fn cpu(self) -> CpuId {
        CpuId(self.0 as u32 & ((1 << CPU_BITS) - 1))
    }

    /// Allocations since the stamp, less than 2^41; 0 for a page of a bulk allocation whose end the clock has
    /// not seen.
    pub(super) fn age(self, clock: u64) -> u64 {
        let past = (clock << STAMP_SHIFT).wrapping_sub(self.0 >> STAMP_SHIFT << STAMP_SHIFT);
        u64::from(past.leading_zeros() > 0) * (past >> STAMP_SHIFT)
    }
}

/// Fields that the owner alone writes and others read: atomics, changed by a load and a store.
#[repr(C, align(64))]
pub(super) struct OwnerPart {
    /// Pages in the alloc cache.
    pub(super) cached: AtomicUsize,
    /// State of the pool's blocks without other users ([`Page::sole_state`]).
    sole: u64,
    /// Allocations so far, in which the age of a page in flight is counted.
    pub(super) clock: AtomicU64,
    /// Pages that came into the alloc cache otherwise than by a put.
    pub(super) filled: AtomicU64,
    /// Pages that left it otherwise than by an allocation.
    pub(super) dropped: AtomicU64,
    /// The page that pieces are cut from, as a link.
    pub(super) open: AtomicU32,
    /// Offset at which its next piece may begin.
    pub(super) open_offset: AtomicU32,
    pub(super) stats: OwnerStats,
}

/// A pool, in the machine's structure range.
pub(super) struct Body<H> {
    pub(super) owner: OwnerPart,
    pub(super) ring: Ring,
    pub(super) lanes: Lanes,
    pub(super) shared: SharedStats,
    /// Handles in the upper half, pages that came from the page allocator and have not gone back in
    /// the lower: at 0 the pool is no more.
    pub(super) alive: AtomicU64,
    /// The page allocator; the handles' types name its machine.
    pub(super) pages: NonNull<()>,
    pub(super) mapper: H,
    pub(super) order: u32,
    pub(super) block_bytes: u32,
    pub(super) node: Option<NodeId>,
    pub(super) rules: PoolRules,
    pub(super) name: [u8; NAME_BYTES],
    pub(super) sites: SiteTable,
}

/// One handle in [`Body::alive`].
pub(super) const HANDLE: u64 = 1 << 32;

impl OwnerPart {
    pub(super) fn new(order: u32) -> Self {
        Self {
            cached: AtomicUsize::new(0),
            sole: Page::sole_state(PageKind::Pool, order),
            clock: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            open: AtomicU32::new(0),
            open_offset: AtomicU32::new(0),
            stats: OwnerStats::new(),
        }
    }
}

impl<H: Mapper> Body<H> {
    /// Identity of the pool in the descriptors of its pages; [`Body::mark`] adds the state.
    #[inline(always)]
    pub(super) fn id(&self) -> *mut () {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Word in the descriptor of this pool's page in this state: one comparison checks pool and state.
    #[inline(always)]
    fn mark(&self, state: PoolState) -> *mut () {
        const {
            assert!(align_of::<OwnerPart>() > PoolState::InBatch as usize);
        }
        let beyond = (state as usize).wrapping_sub(PoolState::InPool as usize);
        self.id().wrapping_byte_add(beyond)
    }

    /// True if a page has this pool's mark for this state. That is enough for the owner and for puts: a page
    /// that left its pool has no mark.
    #[inline(always)]
    pub(super) fn is_marked(&self, page: &Page, state: PoolState) -> bool {
        page.pool.load(Ordering::Relaxed) == self.mark(state)
    }

    /// True if an entry's page is home and the pool's. Two puts of the same moment may have left one that one
    /// of them released (I3).
    #[inline(always)]
    pub(super) fn is_good(&self, page: &Page) -> bool {
        self.is_marked(page, PoolState::InPool) && page.is_block_word(self.owner.sole as u32)
    }

    /// True if a page of this pool has its owner's reference alone; for the pool's owner.
    #[inline(always)]
    pub(super) fn is_sole(&self, page: &Page) -> bool {
        page.has_state(self.owner.sole)
    }

    #[inline(always)]
    pub(super) fn set_state(&self, page: &Page, state: PoolState) {
        // Relaxed: a page changes hands with a lane's top, the ring's slot or by its user's own ordering.
        page.pool.store(self.mark(state), Ordering::Relaxed);
    }

    /// State of a page; [`PoolState::Outside`] if it is not this pool's.
    pub(super) fn state_of(&self, page: &Page) -> PoolState {
        let mark = page.pool.load(Ordering::Relaxed).addr();
        let beyond = mark.wrapping_sub(self.id().addr());
        let state = match beyond.wrapping_add(PoolState::InPool as usize) {
            1 => PoolState::InPool,
            2 => PoolState::InFlight,
            3 => PoolState::InPieces,
            4 => PoolState::InBatch,
            _ => return PoolState::Outside,
        };
        if page.is_block_word(self.owner.sole as u32) {
            state
        } else {
            PoolState::Outside
        }
    }

    /// True if a page is this pool's, in any state.
    pub(super) fn owns(&self, page: &Page) -> bool {
        self.state_of(page) != PoolState::Outside
    }

    /// Pages that came from the page allocator and have not gone back.
    pub(super) fn held(&self) -> u64 {
        self.alive.load(Ordering::Relaxed) & (HANDLE - 1)
    }

    pub(super) fn name(&self) -> &str {
        let end = self.name.iter().position(|&byte| byte == 0);
        let bytes = &self.name[..end.unwrap_or(NAME_BYTES)];
        core::str::from_utf8(bytes).unwrap_or("?")
    }
}

/// The first bytes of a name, whole characters only.
pub(super) fn short_name(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
    bytes
}

/// Reason that a pool cannot be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PoolCreateError {
    /// The era refuses a ring of more pages than `limit`.
    PoolSize {
        /// Pages asked for.
        pool_size: u32,
        /// Most that there may be.
        limit: u32,
    },
    /// The page allocator has no blocks of this order.
    Order {
        /// The pool's order.
        order: u32,
        /// The largest that there is ([`PageAllocator::max_order`](crate::page::PageAllocator::max_order)).
        limit: u32,
    },
    /// The machine has no such node.
    Node(NodeId),
    /// The machine's structure range or its per-CPU area is full.
    NoRoom,
}

impl core::fmt::Display for PoolCreateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::PoolSize { pool_size, limit } => write!(
                f,
                "pool_size is {pool_size}: this era's rings hold at most {limit} pages"
            ),
            Self::Order { order, limit } => {
                write!(f, "order is {order}: the largest is {limit}")
            }
            Self::Node(node) => write!(f, "the machine has no node {}", node.0),
            Self::NoRoom => f.write_str("the machine's structure range or per-CPU area is full"),
        }
    }
}

crate::error::debug_is_display!(PoolCreateError);

impl core::error::Error for PoolCreateError {}

/// Reason that a page could not be put into a pool. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PoolError {
    /// The page number is outside the machine's memory.
    Foreign(Pfn),
    /// The page is not the first of a block of this pool: another pool's, or no pool's.
    NotOfPool(Pfn),
    /// The page is not handed out by itself: it was put before, or it is in a batch.
    NotInFlight(Pfn),
    /// The page was handed out in pieces, which come back one by one.
    InPieces(Pfn),
    /// The page was handed out whole.
    Whole(Pfn),
    /// No piece of the page begins at this offset, or it has come back already.
    NoPiece {
        /// The page.
        pfn: Pfn,
        /// Bytes from its start.
        offset: u32,
    },
}

impl core::fmt::Display for PoolError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Foreign(pfn) => write!(f, "page {} is outside the machine's memory", pfn.0),
            Self::NotOfPool(pfn) => write!(
                f,
                "page {} is not the first page of a block of this pool: free it where it came from",
                pfn.0
            ),
            Self::NotInFlight(pfn) => {
                write!(
                    f,
                    "page {} is not handed out by itself: it was put before, or is in a batch",
                    pfn.0
                )
            }
            Self::InPieces(pfn) => write!(
                f,
                "page {} was handed out in pieces: put each of them with its offset",
                pfn.0
            ),
            Self::Whole(pfn) => {
                write!(
                    f,
                    "page {} was handed out whole: put it without an offset",
                    pfn.0
                )
            }
            Self::NoPiece { pfn, offset } => write!(
                f,
                "no piece of page {} that begins at byte {offset} is handed out",
                pfn.0
            ),
        }
    }
}

crate::error::debug_is_display!(PoolError);

impl core::error::Error for PoolError {}

/// Destination of a put page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Into the alloc cache.
    Cached,
    /// Into the running CPU's lane or the ring.
    Ring,
    /// Out of the pool: to the page allocator, or to the page's last user.
    Released,
    /// Nowhere yet: other pieces of the page are still in use.
    Piece,
}

/// Address of a body, which marks the pool's pages.
pub(super) type BodyPtr<H> = NonNull<Body<H>>;
