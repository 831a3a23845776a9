//! Page descriptors: what is known of each page, and of each slab.

#[cfg(not(loom))]
use crate::machine::DESCRIPTOR_BYTES;
use crate::machine::{NodeId, RawLock};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Largest order of a block: 2^10 pages (`MAX_PAGE_ORDER`).
pub const MAX_ORDER: u32 = 10;
/// Number of orders.
pub const ORDERS: usize = MAX_ORDER as usize + 1;

/// Number of a page within its machine, counted from 0 (page frame number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl Pfn {
    /// As a link: 0 is "none", so that zero-filled descriptors are valid.
    #[inline(always)]
    pub(crate) fn link(page: Option<Pfn>) -> u32 {
        page.map_or(0, |pfn| pfn.0 + 1)
    }

    /// From a link.
    #[inline(always)]
    pub(crate) fn from_link(link: u32) -> Option<Pfn> {
        link.checked_sub(1).map(Pfn)
    }
}

/// Mobility of a block's contents, by which the zone groups blocks against fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MigrateType {
    /// Stays where it is until it is freed: slabs and other memory of a kernel.
    Unmovable = 0,
    /// Can be moved: what user programs use.
    Movable = 1,
    /// Can be freed on demand: caches with [`CacheFlags::RECLAIM`](crate::geometry::CacheFlags).
    Reclaimable = 2,
}

/// Number of migrate types.
pub const MIGRATE_TYPES: usize = 3;

impl MigrateType {
    /// All types, in the order of their numbers.
    pub const ALL: [MigrateType; MIGRATE_TYPES] =
        [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The name that `/proc/pagetypeinfo` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
        }
    }

    #[inline(always)]
    pub(crate) fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            1 => Self::Movable,
            2 => Self::Reclaimable,
            _ => Self::Unmovable,
        }
    }
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Above the part of its zone that has been used so far.
    Untouched = 0,
    /// First page of a free block on a buddy list.
    Buddy = 1,
    /// First page of a block on a per-CPU list.
    Pcp = 2,
    /// First page of an allocated block.
    Allocated = 3,
    /// First page of a slab.
    Slab = 4,
    /// First page of a kmalloc that is too large for a slab.
    LargeKmalloc = 5,
    /// A page of any of these blocks that is not the first.
    Tail = 6,
    /// First page of a block that belongs to a page pool, wherever it is.
    Pool = 7,
    /// First page of an allocated block that only its [`OwnedBlock`](super::OwnedBlock) frees.
    Owned = 8,
}

impl PageKind {
    /// Whether the references to a block of this kind are counted.
    pub(super) fn counts_references(self) -> bool {
        matches!(self, Self::Allocated | Self::Pool)
    }

    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        match bits & 0xff {
            1 => Self::Buddy,
            2 => Self::Pcp,
            3 => Self::Allocated,
            4 => Self::Slab,
            5 => Self::LargeKmalloc,
            6 => Self::Tail,
            7 => Self::Pool,
            8 => Self::Owned,
            _ => Self::Untouched,
        }
    }
}

/// In `state`, above kind, order and the type of a free block's list: a slab is on its node's
/// partial list.
const ON_LIST: u64 = 1 << 24;

/// In `state`, above all else: one reference beyond the owner's.
const REFERENCE: u64 = 1 << 32;

/// Places between a block and the one that [`Page::set_ahead`] notes: with the work on each block between
/// them. It is somewhat less than the misses that a core has under way (10 to 16 line fill buffers on
/// x86-64).
pub(super) const AHEAD: usize = 6;
/// Pages that the array in front of a CPU's list of single unmovable pages holds: two batches of large zones
/// (63). So what a batch brings or takes does not move pages between the array and the list each time.
pub(super) const FRONT_PAGES: usize = if cfg!(loom) { 4 } else { 128 };

/// Descriptor of one page.
///
/// All fields are atomics, so reading a descriptor is always sound; who may *write* a field
/// depends on the page's kind:
///
/// | field | buddy, pcp | slab | allocated | pool |
/// |---|---|---|---|---|
/// | `state`: kind and order, with the list of a free block | zone lock; pcp word; between list and owner, the thread that made the step | the block's owner | likewise | likewise |
/// | in the upper half of `state` | 0 | 0 | references beyond the owner's (`page::refs`): the holder of one, by compare-and-swap | likewise |
/// | `next`, `prev` | the list's lock or word | node list lock, or the CPU that holds the slab | - | of a page in pieces, the owner: who has it (`pool::types`) |
/// | `word` | - | free list and counters, by compare-and-swap or under `lock` | - | of a whole page, the owner: who has it (`pool::types`); else pieces in use: the owner adds, a put takes one away; 0 again before the page leaves |
/// | `lock` | - | slab lock | - | - |
/// | `cache` | null | set before the slab is used, constant while it lives | null | the pool and the page's state: the page's holder |
/// | `head` | - | likewise | - | - |
/// | `objects` | where the list may go on ([`Page::set_ahead`]): the code that puts the block there | likewise | - | - |
/// | `private` | - | the design's | - | the mapping; 0 again before the page leaves |
/// | `private2` | - | the design's | - | untouched: SLOB keeps a page's table here for good |
///
/// In `state` the holder of the node list lock notes as well whether a slab is on the partial list.
/// The slab leaves that list before its pages go back. Kind and references are one word, so that one
/// comparison tells whether a block may be freed. So no code counts references to a block that was
/// freed.
#[repr(C, align(64))]
pub(crate) struct Page {
    /// SLUB: free list, objects in use, frozen (`slub::word`). SLUB+Q: bitmap of free objects.
    pub(crate) word: AtomicU64,
    /// The owning cache, null if none; the same in all pages of a slab.
    pub(crate) cache: AtomicPtr<()>,
    state: AtomicU64,
    pub(crate) lock: RawLock,
    next: AtomicU32,
    prev: AtomicU32,
    /// Link to the first page of the block.
    head: AtomicU32,
    /// Objects of the slab. Of free blocks: [`Page::set_ahead`].
    pub(crate) objects: AtomicU32,
    /// Free for the design's use.
    pub(crate) private: AtomicU64,
    pub(crate) private2: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() == DESCRIPTOR_BYTES);

impl Page {
    /// A descriptor as zero-filled memory would be, if modelled atomics could be all zero.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            cache: AtomicPtr::new(core::ptr::null_mut()),
            state: AtomicU64::new(0),
            lock: RawLock::new(),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            head: AtomicU32::new(0),
            objects: AtomicU32::new(0),
            private: AtomicU64::new(0),
            private2: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> PageKind {
        PageKind::from_bits(self.state() as u32)
    }

    #[inline(always)]
    pub(crate) fn order(&self) -> u32 {
        (self.state() as u32 >> 8) & 0xff
    }

    /// Makes it the first page of a block, with its owner's reference alone.
    #[inline]
    pub(crate) fn set_kind(&self, kind: PageKind, order: u32) {
        let state = Self::sole_state(kind, order);
        self.state.store(state, Ordering::Relaxed);
    }

    /// Changes what its owner has from one kind to another, while others may count their references.
    #[inline]
    pub(crate) fn change_kind(&self, from: PageKind, to: PageKind) {
        // Relaxed: a free of the block reads what its owner gave back after this, and acquires that.
        let change = from as u64 ^ to as u64;
        let before = self.state.fetch_xor(change, Ordering::Relaxed);
        debug_assert_eq!(PageKind::from_bits(before as u32), from);
    }

    /// Makes it the first page of a free block and notes the block's list, without a block further on
    /// ([`Page::set_ahead`]).
    #[inline]
    pub(crate) fn set_free(&self, kind: PageKind, order: u32, list: MigrateType) {
        self.set_ahead(None);
        let state = Self::sole_state(kind, order) | (list as u64) << 16;
        self.state.store(state, Ordering::Relaxed);
    }

    /// Notes which block came [`AHEAD`] places further on a list when this one was put there. It may
    /// have left since: it is good for [`MemMap::prefetch_ahead`](super::memmap::MemMap::prefetch_ahead)
    /// and nothing else. Code that puts a block on a list stores at least `None`: the field may hold what
    /// a slab left there, which would name a page that another CPU may be using.
    #[inline(always)]
    pub(super) fn set_ahead(&self, further: Option<Pfn>) {
        self.objects.store(Pfn::link(further), Ordering::Relaxed);
    }

    /// What [`Page::set_ahead`] noted.
    #[inline(always)]
    pub(super) fn ahead(&self) -> Option<Pfn> {
        Pfn::from_link(self.objects.load(Ordering::Relaxed))
    }

    /// Type of the list that a free block is on, as [`Page::set_free`] noted it.
    #[inline(always)]
    pub(crate) fn listed_as(&self) -> MigrateType {
        MigrateType::from_bits(self.state() as u32 >> 16)
    }

    /// Whether it is the first page of such a block. The order may be any number: a caller's mistake.
    #[inline]
    pub(crate) fn is_block(&self, kind: PageKind, order: u32) -> bool {
        self.state() & 0xffff == Self::sole_state(kind, order)
    }

    /// What the descriptor of a block's first page says while the block is on no list and has no
    /// reference but its owner's. That of an order that no block has matches no descriptor.
    #[inline(always)]
    pub(crate) const fn sole_state(kind: PageKind, order: u32) -> u64 {
        let order = if order <= MAX_ORDER { order } else { 0xff };
        kind as u64 | (order as u64) << 8
    }

    /// [`Page::is_block`] for a word that was made before.
    #[inline(always)]
    pub(crate) fn is_block_word(&self, word: u32) -> bool {
        self.state() as u32 == word
    }

    /// Whether it says that ([`Page::sole_state`]), as it looks now.
    #[inline(always)]
    pub(crate) fn has_state(&self, sole: u64) -> bool {
        // Acquire: as in `claim_kind`, for those who only look.
        self.state.load(Ordering::Acquire) == sole
    }

    /// Changes the kind of the first page of a block that has no reference but its owner's, if the kind
    /// is `from`: of two callers that try, one wins.
    #[inline]
    pub(crate) fn claim_kind(&self, from: PageKind, to: PageKind, order: u32) -> bool {
        // Acquire: pairs with the Release by which others gave their references back: what they did
        // with the block happens before what its next owner does. Nothing is released: the list that
        // the block goes on is held, or handed over, by an ordering of its own.
        self.state
            .compare_exchange(
                Self::sole_state(from, order),
                Self::sole_state(to, order),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> Option<Pfn> {
        Pfn::from_link(self.head.load(Ordering::Relaxed))
    }

    /// [`Page::head`] as a link, 0 for none.
    #[inline(always)]
    pub(crate) fn head_link(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_head(&self, head: Option<Pfn>) {
        self.head.store(Pfn::link(head), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Pfn> {
        Pfn::from_link(self.next.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_next(&self, page: Option<Pfn>) {
        self.next.store(Pfn::link(page), Ordering::Relaxed);
    }

    /// Where the links are, for accounting.
    #[inline(always)]
    pub(crate) fn links(&self) -> *const [u32; 2] {
        core::ptr::from_ref(&self.next).cast()
    }

    #[inline]
    pub(crate) fn prev(&self) -> Option<Pfn> {
        Pfn::from_link(self.prev.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_prev(&self, page: Option<Pfn>) {
        self.prev.store(Pfn::link(page), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn on_list(&self) -> bool {
        self.state() & ON_LIST != 0
    }

    #[inline]
    pub(crate) fn set_on_list(&self, on: bool) {
        // A load and a store: no other code changes the word of a slab.
        let rest = self.state() & !ON_LIST;
        let state = if on { rest | ON_LIST } else { rest };
        self.state.store(state, Ordering::Relaxed);
    }

    /// Kind, order, and references beyond the owner's, all of one moment.
    #[inline]
    pub(crate) fn seen(&self) -> (PageKind, u32, u32) {
        // Acquire: as in `claim_kind`, for a caller who finds that others have left.
        let state = self.state.load(Ordering::Acquire);
        let (block, extra) = (state as u32, (state / REFERENCE) as u32);
        (PageKind::from_bits(block), (block >> 8) & 0xff, extra)
    }

    /// Whether the caller, who has a reference, has the only one.
    #[inline(always)]
    pub(crate) fn is_sole_reference(&self) -> bool {
        // Acquire: as in `claim_kind`.
        self.state.load(Ordering::Acquire) < REFERENCE
    }

    /// Changes the references beyond the owner's as long as it is the first page of a block whose
    /// references are counted. What it is if it is none, or if `change` refuses.
    pub(super) fn change_references(
        &self,
        set: Ordering,
        fetch: Ordering,
        change: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), PageKind> {
        let changed = self.state.fetch_update(set, fetch, |state| {
            if !PageKind::from_bits(state as u32).counts_references() {
                return None;
            }
            let extra = change((state / REFERENCE) as u32)?;
            Some(state % REFERENCE + u64::from(extra) * REFERENCE)
        });
        let kind = |state| PageKind::from_bits(state as u32);
        changed.map(drop).map_err(kind)
    }

    /// Makes an allocated block one of a kind that no free by number accepts, with its owner's
    /// reference alone. Code without a right to the block may have taken another reference in the moment
    /// between the list and the owner. Returns `false` if such code was faster and freed the block by
    /// its number.
    pub(crate) fn claim_as(&self, kind: PageKind, order: u32) -> bool {
        let allocated = Self::sole_state(PageKind::Allocated, order);
        let claimed = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                let sole = Self::sole_state(kind, order);
                (state % REFERENCE == allocated).then_some(sole)
            });
        claimed.is_ok()
    }

    /// A number that the block's owner keeps in the place of the links, which a block on no list does
    /// not need.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        let (low, high) = (&self.next, &self.prev);
        u64::from(low.load(Ordering::Relaxed)) | u64::from(high.load(Ordering::Relaxed)) << 32
    }

    #[inline(always)]
    pub(crate) fn set_stamp(&self, stamp: u64) {
        self.next.store(stamp as u32, Ordering::Relaxed);
        self.prev.store((stamp >> 32) as u32, Ordering::Relaxed);
    }
}

/// A zone of a node, by the addresses that reach it, lowest first. Addresses are counted from the
/// machine's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ZoneType {
    /// The first 16 MiB.
    Dma = 0,
    /// The rest of the first 4 GiB.
    Dma32 = 1,
    /// Everything else; all memory of a machine without such limits.
    Normal = 2,
}

/// Number of zone types.
pub const ZONE_TYPES: usize = 3;

impl ZoneType {
    /// All types, lowest first.
    pub const ALL: [ZoneType; ZONE_TYPES] = [Self::Dma, Self::Dma32, Self::Normal];

    /// The name that `/proc/zoneinfo` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
        }
    }

    /// First byte above the zone, `u64::MAX` if it has no limit.
    pub(crate) const fn limit(self) -> u64 {
        match self {
            Self::Dma => 16 << 20,
            Self::Dma32 => 4 << 30,
            Self::Normal => u64::MAX,
        }
    }
}

/// Names a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneId {
    /// The node.
    pub node: NodeId,
    /// The zone within the node.
    pub zone: ZoneType,
}

/// What is asked of the page allocator (`gfp_t`, order and node of the kernel's calls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocOptions {
    /// log2 of the number of pages, at most [`MAX_ORDER`].
    pub order: u32,
    /// Mobility of what the pages will hold.
    pub migratetype: MigrateType,
    /// The preferred node; `None` for the running CPU's.
    pub node: Option<NodeId>,
    /// The highest zone that will do (`__GFP_DMA`, `__GFP_DMA32`).
    pub highest_zone: ZoneType,
    /// The pages that watermarks keep back may be used (`ALLOC_NO_WATERMARKS`).
    pub no_watermarks: bool,
}

impl Default for AllocOptions {
    fn default() -> Self {
        Self {
            order: 0,
            migratetype: MigrateType::Unmovable,
            node: None,
            highest_zone: ZoneType::Normal,
            no_watermarks: false,
        }
    }
}

/// Why pages could not be freed, or their references not counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageError {
    /// The page number is outside the machine's memory.
    Foreign(Pfn),
    /// The page is not the first of an allocated block: it is free, or inside a block.
    NotAllocated(Pfn, PageKind),
    /// The block was allocated with another order.
    WrongOrder {
        /// The block.
        pfn: Pfn,
        /// Order that was given.
        given: u32,
        /// Order that it was allocated with.
        allocated: u32,
    },
    /// Others have references to the block: give yours back (`put_page`) instead of freeing it.
    Referenced {
        /// The block.
        pfn: Pfn,
        /// References, the first owner's included.
        count: u32,
    },
    /// The block has as many references as can be counted.
    TooManyReferences(Pfn),
}

impl core::fmt::Display for PageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Foreign(pfn) => write!(f, "page {} is outside the machine's memory", pfn.0),
            Self::NotAllocated(pfn, PageKind::Pool) => {
                write!(f, "page {} belongs to a page pool: put it there", pfn.0)
            }
            Self::NotAllocated(pfn, PageKind::Owned) => {
                write!(f, "page {} is an owner's: drop the OwnedBlock", pfn.0)
            }
            Self::NotAllocated(pfn, kind) => {
                write!(
                    f,
                    "page {} is not the first page of an allocated block ({kind:?})",
                    pfn.0
                )
            }
            Self::WrongOrder {
                pfn,
                given,
                allocated,
            } => write!(
                f,
                "page {} was allocated with order {allocated} and freed with order {given}",
                pfn.0
            ),
            Self::Referenced { pfn, count } => write!(
                f,
                "page {} has {count} references and cannot be freed: give yours back with put_page",
                pfn.0
            ),
            Self::TooManyReferences(pfn) => {
                write!(
                    f,
                    "page {} has {} references, no more can be counted",
                    pfn.0,
                    u32::MAX
                )
            }
        }
    }
}

crate::error::debug_is_display!(PageError);

impl core::error::Error for PageError {}
