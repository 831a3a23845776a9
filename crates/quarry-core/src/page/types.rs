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
}

impl PageKind {
    fn from_bits(bits: u32) -> Self {
        match bits & 0xff {
            1 => Self::Buddy,
            2 => Self::Pcp,
            3 => Self::Allocated,
            4 => Self::Slab,
            5 => Self::LargeKmalloc,
            6 => Self::Tail,
            _ => Self::Untouched,
        }
    }
}

/// Descriptor of one page.
///
/// All fields are atomics, so reading a descriptor is always sound; who may *write* a field
/// depends on the page's kind:
///
/// | field | buddy, pcp | slab |
/// |---|---|---|
/// | `kind_order` | zone lock; pcp word | whoever allocated the block |
/// | `next`, `prev` | the list's lock or word | node list lock, or the CPU that holds the slab |
/// | `word` | - | free list and counters, by compare-and-swap or under `lock` |
/// | `lock` | - | slab lock |
/// | `cache`, `head`, `objects` | - | set before the slab is used, constant while it lives |
/// | `on_list` | - | node list lock |
#[repr(C, align(64))]
pub(crate) struct Page {
    /// SLUB: free list, objects in use, frozen (`slub::word`). SLUB+Q: bitmap of free objects.
    pub(crate) word: AtomicU64,
    /// The owning cache, null if none; the same in all pages of a slab.
    pub(crate) cache: AtomicPtr<()>,
    pub(crate) lock: RawLock,
    next: AtomicU32,
    prev: AtomicU32,
    /// Link to the first page of the block.
    head: AtomicU32,
    kind_order: AtomicU32,
    /// Objects of the slab. On a cpu partial list of 5.9: see `slub::partial`.
    pub(crate) objects: AtomicU32,
    /// 1 while the slab is on its node's partial list.
    on_list: AtomicU32,
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
            lock: RawLock::new(),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            head: AtomicU32::new(0),
            kind_order: AtomicU32::new(0),
            objects: AtomicU32::new(0),
            on_list: AtomicU32::new(0),
            private: AtomicU64::new(0),
            private2: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> PageKind {
        PageKind::from_bits(self.kind_order.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn order(&self) -> u32 {
        (self.kind_order.load(Ordering::Relaxed) >> 8) & 0xff
    }

    #[inline]
    pub(crate) fn set_kind(&self, kind: PageKind, order: u32) {
        self.kind_order
            .store(kind as u32 | order << 8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_block(&self, kind: PageKind, order: u32) -> bool {
        self.kind_order.load(Ordering::Relaxed) == kind as u32 | order << 8
    }

    /// Changes the kind of the first page of a block if it is `from`: of two that try, one wins.
    #[inline]
    pub(crate) fn claim_kind(&self, from: PageKind, to: PageKind, order: u32) -> bool {
        // Relaxed: the block's contents are handed over by the caller's own ordering; this only
        // decides who of two frees of one block is the mistaken one.
        self.kind_order
            .compare_exchange(
                from as u32 | order << 8,
                to as u32 | order << 8,
                Ordering::Relaxed,
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
        self.on_list.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn set_on_list(&self, on: bool) {
        self.on_list.store(u32::from(on), Ordering::Relaxed);
    }
}

/// Which zone of a node a page belongs to. One zone per node exists so far: memory in user space
/// has no addressing limits, so the kernel's DMA zones have no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneType {
    /// Memory without restrictions.
    Normal,
}

/// Names a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneId {
    /// The node.
    pub node: NodeId,
    /// The zone within the node.
    pub zone: ZoneType,
}

/// Why pages could not be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl core::fmt::Display for PageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Foreign(pfn) => write!(f, "page {} is outside the machine's memory", pfn.0),
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
        }
    }
}

impl core::error::Error for PageError {}
