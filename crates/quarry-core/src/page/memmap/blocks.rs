//! Pageblocks: the type and the zone of every run of pages that are grouped by type.
//!
//! A tag is one byte; the holder of the zone lock may change its type, any thread may read it. The value read
//! decides on which list a page goes, never whether it may be used.
//!
//! In front of the tags is a byte for each node: the tag of those pages that a free may put into the
//! array of a CPU of this node without looking at anything else ([`PageBlocks::near`]).

use core::ptr::NonNull;

use crate::machine::{CpuId, MAX_NODES, Machine, NodeId, Region};
use crate::page::types::{BLOCK_TYPES, BlockType, Pfn};
use crate::sync::{AtomicU8, AtomicU32, Ordering};

/// Bits of the type; the zone's number is above them.
const TYPE_BITS: u8 = BLOCK_TYPES.ilog2() as u8;

/// The tags of all pageblocks of a machine.
#[derive(Clone, Copy)]
pub(crate) struct PageBlocks {
    tags: NonNull<AtomicU8>,
    /// CPU that owns each pageblock, and one; 0 for none.
    owners: Option<NonNull<AtomicU32>>,
    count: u32,
    order: u32,
}

/// Zone and type of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u8);

impl Tag {
    /// Tag of no pageblock: there are fewer zones.
    const NONE: Self = Self(u8::MAX);

    /// The tag of a pageblock of a zone, given the zone's number.
    pub(crate) fn new(zone: usize, of: BlockType) -> Self {
        Self((zone as u8) << TYPE_BITS | of.index() as u8)
    }

    #[inline(always)]
    pub(crate) fn block_type(self) -> BlockType {
        BlockType::from_bits(self.0.into())
    }

    /// The number of the type.
    #[inline(always)]
    pub(crate) fn type_bits(self) -> u8 {
        self.0 & ((1 << TYPE_BITS) - 1)
    }

    /// Number of the zone in the page allocator's table.
    #[inline(always)]
    pub(crate) fn zone(self) -> usize {
        usize::from(self.0 >> TYPE_BITS)
    }
}

impl PageBlocks {
    /// Tags for `pages` pages in pageblocks of an order. `None` when the range for structures is full.
    pub(crate) fn new<M: Machine>(
        machine: &M,
        meta: &Region,
        pages: u32,
        order: u32,
    ) -> Option<Self> {
        let count = pages.div_ceil(1 << order).max(1);
        let bytes = meta.alloc(machine, MAX_NODES + count as usize)?;
        // SAFETY: the block has this many bytes and more.
        let tags = unsafe { bytes.add(MAX_NODES) }.cast();
        let owners = None;
        let blocks = Self {
            tags,
            owners,
            count,
            order,
        };
        for node in (0..MAX_NODES as u32).map(NodeId) {
            blocks.set_near(node, None);
        }
        Some(blocks)
    }

    /// No tags; no code may ask for one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn none() -> Self {
        Self {
            tags: NonNull::dangling(),
            owners: None,
            count: 0,
            order: 0,
        }
    }

    /// log2 of the pages of a pageblock.
    pub(crate) fn order(&self) -> u32 {
        self.order
    }

    #[inline(always)]
    fn word(&self, pfn: Pfn) -> &AtomicU8 {
        // A shift of a word is one instruction, of its half two.
        let block = u64::from(pfn.0) >> self.order;
        debug_assert!(block < self.count.into());
        // SAFETY: page numbers are below the number of pages (`MemMap::page`), for all of whose
        // pageblocks `new` reserved a byte.
        let word = unsafe { self.tags.add(block as usize) };
        // SAFETY: the byte is in a zero-filled range that lives as long as the machine (M2, M3) and is only
        // accessed through this atomic.
        unsafe { word.as_ref() }
    }

    /// The same blocks with room to note who owns each. `None` when the range for structures is full.
    pub(crate) fn with_owners<M: Machine>(self, machine: &M, meta: &Region) -> Option<Self> {
        let bytes = meta.alloc(machine, self.count as usize * size_of::<u32>())?;
        Some(Self {
            owners: Some(bytes.cast()),
            ..self
        })
    }

    fn owner_word(&self, pfn: Pfn) -> Option<&AtomicU32> {
        let block = pfn.0 >> self.order;
        debug_assert!(block < self.count);
        // SAFETY: page numbers are below the number of pages, for all of whose pageblocks `with_owners` reserved a word.
        let word = unsafe { self.owners?.add(block as usize) };
        // SAFETY: the word is in a zero-filled range that lives as long as the machine (M2, M3) and is only
        // accessed through this atomic.
        Some(unsafe { word.as_ref() })
    }

    /// The CPU that took the pageblock of a page for itself.
    #[inline]
    pub(crate) fn owner(&self, pfn: Pfn) -> Option<CpuId> {
        let owner = self.owner_word(pfn)?.load(Ordering::Relaxed);
        owner.checked_sub(1).map(CpuId)
    }

    /// Notes the CPU that took a pageblock for itself, where owners are noted.
    pub(crate) fn set_owner(&self, pfn: Pfn, cpu: CpuId) {
        if let Some(word) = self.owner_word(pfn) {
            word.store(cpu.0 + 1, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn near_word(&self, node: NodeId) -> &AtomicU8 {
        debug_assert!((node.0 as usize) < MAX_NODES);
        // SAFETY: `new` reserved `MAX_NODES` bytes in front of the tags.
        let word = unsafe { self.tags.sub(MAX_NODES - node.0 as usize) };
        // SAFETY: the byte is in the same zero-filled block as the tags, lives as long (M2, M3) and is only
        // accessed through this atomic.
        unsafe { word.as_ref() }
    }

    /// Tag of the pages that a free may put into the array of this node's CPUs without any other check.
    #[inline(always)]
    pub(crate) fn near(&self, node: NodeId) -> Tag {
        Tag(self.near_word(node).load(Ordering::Relaxed))
    }

    /// Sets that tag; `None` lets no page pass.
    pub(crate) fn set_near(&self, node: NodeId, tag: Option<Tag>) {
        let Tag(tag) = tag.unwrap_or(Tag::NONE);
        self.near_word(node).store(tag, Ordering::Relaxed);
    }

    /// Tag of a page's pageblock.
    #[inline(always)]
    pub(crate) fn tag(&self, pfn: Pfn) -> Tag {
        Tag(self.word(pfn).load(Ordering::Relaxed))
    }

    /// Type of a page's pageblock.
    #[inline]
    pub(crate) fn block_type(&self, pfn: Pfn) -> BlockType {
        self.tag(pfn).block_type()
    }

    /// Gives a pageblock to a zone, before its pages are used.
    pub(crate) fn assign(&self, pfn: Pfn, zone: usize, of: BlockType) {
        debug_assert!(zone < 1 << (u8::BITS as u8 - TYPE_BITS));
        let Tag(tag) = Tag::new(zone, of);
        self.word(pfn).store(tag, Ordering::Relaxed);
    }

    /// Changes the type of a pageblock; the caller holds the zone lock.
    pub(crate) fn retag(&self, pfn: Pfn, of: BlockType) {
        let zone = self.tag(pfn).zone();
        self.assign(pfn, zone, of);
    }
}
