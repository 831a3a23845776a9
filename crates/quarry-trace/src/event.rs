//! One event: its kind, its flags, and the two forms that it has in memory.
//!
//! [`RawEvent`] borrows from the text (or from the maker of the events) and still carries addresses.
//! [`ReplayEvent`] is what a replay reads: 24 bytes, no address, only dense object ids.

use serde::{Deserialize, Serialize};

/// Stands for "no object" in [`ReplayEvent::object`]: a free of something that was never seen allocated.
pub const NO_OBJECT: u32 = u32::MAX;
/// Stands for "no cache" in [`ReplayEvent::cache`]: page events, and frees of unknown memory.
pub const NO_CACHE: u16 = u16::MAX;
/// Stands for "no page frame number" in a row.
pub(crate) const NO_PFN: u64 = u64::MAX;
/// Stands for "no page that is known" in a row.
pub(crate) const NO_PAGE: u32 = u32::MAX;
/// Ids of the pages of a block of at most this order follow each other, from a multiple of their number
/// on: `id >> order` tells blocks of an order apart. For pages from before the recording, whose blocks
/// were never seen, that holds for every block they may be part of. Pages of larger blocks that the
/// recording allocates have the id of the first of them.
///
/// It is the order that SLUB does not exceed unless there is no other way.
pub const PAGE_GROUP_ORDER: u32 = 3;

/// Position of an object in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Id of its page; of a page event, of the first page of the block.
    pub page: u32,
    /// On an allocation: no earlier event of the recording was about an object there.
    pub fresh: bool,
}

impl Place {
    /// The place as the column `page` holds it.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.page << 1 | self.fresh as u32
    }

    pub(crate) const fn decode(value: u32) -> Place {
        Place {
            page: value >> 1,
            fresh: value & 1 != 0,
        }
    }
}

/// Largest page order that is believed.
///
/// Kernels stop at order 10 with 4K pages, but 64K pages with huge zones reach 13 and more.
pub const ORDER_MAX: u8 = 20;

/// The tracepoint that an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `kmem:kmalloc`.
    Kmalloc = 0,
    /// `kmem:kmalloc_node`, which newer kernels fold into `kmalloc`.
    KmallocNode = 1,
    /// `kmem:kfree`.
    Kfree = 2,
    /// `kmem:kmem_cache_alloc`.
    KmemCacheAlloc = 3,
    /// `kmem:kmem_cache_alloc_node`, which newer kernels fold into `kmem_cache_alloc`.
    KmemCacheAllocNode = 4,
    /// `kmem:kmem_cache_free`.
    KmemCacheFree = 5,
    /// `kmem:mm_page_alloc`.
    MmPageAlloc = 6,
    /// `kmem:mm_page_free`.
    MmPageFree = 7,
}

impl Kind {
    /// Every kind, in the order of its code.
    pub const ALL: [Kind; 8] = [
        Kind::Kmalloc,
        Kind::KmallocNode,
        Kind::Kfree,
        Kind::KmemCacheAlloc,
        Kind::KmemCacheAllocNode,
        Kind::KmemCacheFree,
        Kind::MmPageAlloc,
        Kind::MmPageFree,
    ];

    /// The tracepoint's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Kmalloc => "kmalloc",
            Kind::KmallocNode => "kmalloc_node",
            Kind::Kfree => "kfree",
            Kind::KmemCacheAlloc => "kmem_cache_alloc",
            Kind::KmemCacheAllocNode => "kmem_cache_alloc_node",
            Kind::KmemCacheFree => "kmem_cache_free",
            Kind::MmPageAlloc => "mm_page_alloc",
            Kind::MmPageFree => "mm_page_free",
        }
    }

    /// The kind with this code, as the file's `kind` column holds it.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Kind> {
        if (code as usize) < Kind::ALL.len() {
            Some(Kind::ALL[code as usize])
        } else {
            None
        }
    }

    /// The kind of a tracepoint, by name without its `kmem:`.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Kind> {
        match name {
            b"kmalloc" => Some(Kind::Kmalloc),
            b"kmalloc_node" => Some(Kind::KmallocNode),
            b"kfree" => Some(Kind::Kfree),
            b"kmem_cache_alloc" => Some(Kind::KmemCacheAlloc),
            b"kmem_cache_alloc_node" => Some(Kind::KmemCacheAllocNode),
            b"kmem_cache_free" => Some(Kind::KmemCacheFree),
            b"mm_page_alloc" => Some(Kind::MmPageAlloc),
            b"mm_page_free" => Some(Kind::MmPageFree),
            _ => None,
        }
    }

    /// True for the three tracepoints that take something back.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Kind::Kfree | Kind::KmemCacheFree | Kind::MmPageFree)
    }

    /// True for the events of the page allocator, whose object ids are a space of their own.
    #[must_use]
    pub const fn is_page(self) -> bool {
        matches!(self, Kind::MmPageAlloc | Kind::MmPageFree)
    }

    /// True for `kmalloc` and `kmalloc_node`.
    #[must_use]
    pub const fn is_kmalloc(self) -> bool {
        matches!(self, Kind::Kmalloc | Kind::KmallocNode)
    }

    /// The kind that frees what this kind allocates; a free kind is its own.
    #[must_use]
    pub const fn freed_by(self) -> Kind {
        match self {
            Kind::Kmalloc | Kind::KmallocNode | Kind::Kfree => Kind::Kfree,
            Kind::MmPageAlloc | Kind::MmPageFree => Kind::MmPageFree,
            _ => Kind::KmemCacheFree,
        }
    }
}

/// Bits that say more about an event: the `flags` column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The importer inserted this free: a later event proved the object, or the block of pages, gone.
    pub const IMPLIED: Flags = Flags(1);
    /// A free of something that is not known to live; it has no object.
    pub const UNKNOWN: Flags = Flags(1 << 1);
    /// Charged to a memory control group.
    pub const ACCOUNTED: Flags = Flags(1 << 2);
    /// The memory was asked for zeroed.
    pub const ZERO: Flags = Flags(1 << 3);
    /// `__GFP_RECLAIMABLE`: kmalloc serves it from its reclaimable caches.
    pub const RECLAIMABLE: Flags = Flags(1 << 4);
    /// `__GFP_DMA` or `__GFP_DMA32`.
    pub const DMA: Flags = Flags(1 << 5);
    /// The caller could not sleep (no direct reclaim), and did not renounce what is kept back for such requests
    /// (`__GFP_NOMEMALLOC`).
    pub const ATOMIC: Flags = Flags(1 << 6);
    /// On page events: objects lay in the block, so it was a slab or a large kmalloc. What happened to it
    /// follows from the events of these objects. Only where [`crate::TraceMeta::slab_memory`] is known.
    pub const SLAB: Flags = Flags(1 << 7);

    /// True if every bit of `other` is set.
    #[must_use]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The bits that a symbolic flag list (`GFP_KERNEL|__GFP_ZERO`) implies.
    ///
    /// A numeric list gives none: the bit values differ between kernels.
    #[must_use]
    pub fn from_gfp(text: &[u8]) -> Flags {
        let mut flags = Flags::default();
        let mut sleeps = false;
        let mut renounces = false;
        let mut symbolic = false;
        for token in text.split(|b| *b == b'|') {
            symbolic |= token.first().is_some_and(|b| !b.is_ascii_digit());
            let bit = match token {
                b"__GFP_ZERO" => Flags::ZERO,
                b"__GFP_RECLAIMABLE" | b"GFP_TEMPORARY" => Flags::RECLAIMABLE,
                b"__GFP_DMA" | b"GFP_DMA" | b"__GFP_DMA32" | b"GFP_DMA32" => Flags::DMA,
                b"__GFP_ACCOUNT" | b"GFP_KERNEL_ACCOUNT" => Flags::ACCOUNTED,
                _ => Flags::default(),
            };
            flags = flags.with(bit);
            renounces |= token == b"__GFP_NOMEMALLOC";
            sleeps |= matches!(
                token,
                b"__GFP_DIRECT_RECLAIM" | b"__GFP_RECLAIM" | b"__GFP_WAIT" | b"GFP_WAIT"
            ) || matches!(
                token,
                b"GFP_NOFS" | b"GFP_NOIO" | b"GFP_TRANSHUGE" | b"GFP_TEMPORARY"
            ) || token.starts_with(b"GFP_KERNEL")
                || token.starts_with(b"GFP_USER")
                || token.starts_with(b"GFP_HIGHUSER");
        }
        if symbolic && !sleeps && !renounces {
            flags.with(Flags::ATOMIC)
        } else {
            flags
        }
    }
}

/// One event as a replay needs it.
///
/// Object ids are recycled slots: an id is given again after its object was freed, so a table of
/// [`crate::TraceMeta::object_slots`] (or `page_slots` for page events) entries is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEvent {
    /// Nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The object's slot, or [`NO_OBJECT`].
    pub object: u32,
    /// Bytes asked for; of the object itself for a free; 0 for page events and unknown frees.
    pub bytes_req: u32,
    /// Index into [`crate::TraceMeta::caches`], or [`NO_CACHE`].
    pub cache: u16,
    /// The CPU that it happened on.
    pub cpu: u16,
    /// The tracepoint.
    pub kind: Kind,
    /// Further properties.
    pub flags: Flags,
    /// Page order; 0 for slab events.
    pub order: u8,
    /// The node asked for (slab events) or the migratetype (page events); see the accessors.
    pub place: i8,
}

const _: () = assert!(size_of::<ReplayEvent>() == 24);

impl ReplayEvent {
    /// The node that a slab allocation asked for; `None` means any.
    #[must_use]
    pub const fn node(&self) -> Option<u8> {
        if self.kind.is_page() || self.place < 0 {
            None
        } else {
            Some(self.place as u8)
        }
    }

    /// The migratetype of a page allocation. Of a block from before the recording that is freed,
    /// the migratetype of its surroundings, if that is known; `None` for everything else.
    #[must_use]
    pub const fn migratetype(&self) -> Option<u8> {
        let told = matches!(self.kind, Kind::MmPageAlloc)
            || matches!(self.kind, Kind::MmPageFree) && self.flags.has(Flags::UNKNOWN);
        if told && self.place >= 0 {
            Some(self.place as u8)
        } else {
            None
        }
    }
}

/// A time as recorders print it: seconds with nine decimals.
#[must_use]
pub fn seconds(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

/// One row with everything that the file holds about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullRow {
    /// The part that a replay reads.
    pub event: ReplayEvent,
    /// The running thread.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// The cache's name as the event told it, or as it was known at that moment.
    pub cache: Option<String>,
    /// Bytes that the allocator set aside.
    pub bytes_alloc: u32,
    /// Allocation flags as printed.
    pub gfp_flags: Option<String>,
    /// The node asked for, -1 for any.
    pub node: i32,
    /// Migratetype, -1 where there is none.
    pub migratetype: i32,
    /// The caller as printed.
    pub call_site: Option<String>,
    /// Functions on the kernel's stack, the outermost first, with semicolons between.
    pub stack: Option<String>,
    /// Position of the object in memory.
    pub place: Option<Place>,
    /// Frame number of the first page of a page event, if the trace has it.
    pub pfn: Option<u64>,
}

/// One event as it is observed, before addresses become object ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// Nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The CPU that it happened on.
    pub cpu: u16,
    /// The running thread.
    pub pid: i32,
    /// Its name.
    pub comm: &'a [u8],
    /// The tracepoint.
    pub kind: Kind,
    /// The object's address; the page frame number for page events, [`u64::MAX`] if that failed.
    pub address: u64,
    /// The cache's name, where the kernel tells it.
    pub cache: Option<&'a [u8]>,
    /// Bytes asked for.
    pub bytes_req: u32,
    /// Bytes that the allocator set aside.
    pub bytes_alloc: u32,
    /// Allocation flags as printed.
    pub gfp_flags: Option<&'a [u8]>,
    /// The node asked for, -1 for any.
    pub node: i16,
    /// Page order.
    pub order: u8,
    /// Migratetype, -1 where there is none.
    pub migratetype: i8,
    /// The `accounted=` field, false where there is none.
    pub accounted: bool,
    /// The caller as printed.
    pub call_site: Option<&'a [u8]>,
    /// Functions on the kernel's stack, the outermost first, with semicolons between.
    pub stack: Option<&'a [u8]>,
}

impl<'a> RawEvent<'a> {
    /// An event of `kind` at `address` with everything else empty.
    #[must_use]
    pub const fn new(kind: Kind, address: u64) -> RawEvent<'a> {
        RawEvent {
            time_ns: 0,
            cpu: 0,
            pid: 0,
            comm: b"",
            kind,
            address,
            cache: None,
            bytes_req: 0,
            bytes_alloc: 0,
            gfp_flags: None,
            node: -1,
            order: 0,
            migratetype: -1,
            accounted: false,
            call_site: None,
            stack: None,
        }
    }
}
