//! Numbers, kinds, types and errors of pages, blocks and zones.

use crate::machine::NodeId;

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

    #[inline(always)]
    pub(crate) fn from_link(link: u32) -> Option<Pfn> {
        link.checked_sub(1).map(Pfn)
    }
}

/// Mobility of what a request is for, by which the zone groups blocks against fragmentation.
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
}

/// Type of a pageblock, and of the lists that its free blocks go on: an index. The first ones are those that
/// requests name, [`MigrateType`]; kernels and policies have further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockType(u8);

/// Number of block types that there is room for.
pub const BLOCK_TYPES: usize = 8;

impl BlockType {
    /// [`MigrateType::Unmovable`] requests'.
    pub const UNMOVABLE: Self = Self(MigrateType::Unmovable as u8);
    /// [`MigrateType::Movable`] requests'.
    pub const MOVABLE: Self = Self(MigrateType::Movable as u8);
    /// [`MigrateType::Reclaimable`] requests'.
    pub const RECLAIMABLE: Self = Self(MigrateType::Reclaimable as u8);
    /// Reserved for requests of several pages that cannot wait (`MIGRATE_HIGHATOMIC`), from 4.4 on.
    pub const HIGH_ATOMIC: Self = Self(MIGRATE_TYPES as u8);

    /// All types, in the order of their numbers.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..BLOCK_TYPES as u8).map(Self)
    }

    /// Its number.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name that `/proc/pagetypeinfo` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => MigrateType::Unmovable.name(),
            1 => MigrateType::Movable.name(),
            2 => MigrateType::Reclaimable.name(),
            3 => "HighAtomic",
            4 => "Type 4",
            5 => "Type 5",
            6 => "Type 6",
            _ => "Type 7",
        }
    }

    /// The type with the number in the lowest bits.
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self((bits % BLOCK_TYPES as u32) as u8)
    }

    /// The requests whose per-CPU lists take its pages. Those of other blocks than requests name count as movable
    /// there, until they are drained to their own lists.
    #[inline(always)]
    pub(crate) const fn of_requests(self) -> MigrateType {
        match self.0 {
            0 => MigrateType::Unmovable,
            2 => MigrateType::Reclaimable,
            _ => MigrateType::Movable,
        }
    }
}

impl From<MigrateType> for BlockType {
    #[inline(always)]
    fn from(of: MigrateType) -> Self {
        Self(of as u8)
    }
}

impl PartialEq<MigrateType> for BlockType {
    fn eq(&self, of: &MigrateType) -> bool {
        *self == Self::from(*of)
    }
}

/// Place of a page.
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
    /// True if the references to a block of this kind are counted.
    pub(super) fn counts_references(self) -> bool {
        matches!(self, Self::Allocated | Self::Pool)
    }

    #[inline(always)]
    pub(super) fn from_bits(bits: u32) -> Self {
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

/// Pages that the array in front of a CPU's list of single unmovable pages holds: two batches of large zones
/// (63). So what a batch brings or takes does not move pages between the array and the list each time.
pub(super) const FRONT_PAGES: usize = if cfg!(loom) { 4 } else { 128 };

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

/// A request to the page allocator (`gfp_t`, order and node of the kernel's calls).
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
    /// The request cannot wait for memory (`GFP_ATOMIC`): pageblocks are reserved for such requests of several
    /// pages ([`BlockType::HIGH_ATOMIC`]).
    pub atomic: bool,
}

impl Default for AllocOptions {
    fn default() -> Self {
        Self {
            order: 0,
            migratetype: MigrateType::Unmovable,
            node: None,
            highest_zone: ZoneType::Normal,
            no_watermarks: false,
            atomic: false,
        }
    }
}

/// Reason that pages could not be freed, or a reference not counted.
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
