//! Pages of a machine's memory by kind, for each 2 MiB.
//!
//! ```text
//!   /proc/kpageflags (8 bytes a page) --> fold.rs: a kind for each page --> BlockMap: six counts for each 2 MiB
//!   /proc/iomem, offline memory       --> read.rs: which pages are memory
//!   BlockMap --> text.rs: a text of about 15 bytes a block, which a snapshot keeps
//!            --> sums by blocks of any size (BlockMap::spread)
//!   two of one boot --> change.rs: blocks that became tainted, or clean
//!   a debugger --> slabs.rs: which caches the pages of slabs are of
//! ```
//!
//! A page without any flag is the kernel's (stacks, vmalloc, buffers of drivers), or lies free on a CPU's list: flags do not tell
//! these two apart, so they have a count of their own.

mod change;
mod fold;
mod read;
mod slabs;
mod text;

use schemars::JsonSchema;
use serde::Serialize;

pub use change::SpreadChange;
pub use slabs::{CacheSpread, SlabBlocks};
pub(crate) use text::{begins, goes_on};

/// Bytes of a block of a map.
pub const BLOCK_BYTES: u64 = 2 << 20;

/// Pages of a block, or of more, by kind; the rest of a block is no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Free pages, in the page allocator's lists.
    pub free: u16,
    /// Pages of users and files, which can be moved or reclaimed.
    pub movable: u16,
    /// Pages of slabs.
    pub slab: u16,
    /// Pages of page tables.
    pub page_tables: u16,
    /// Other pages of the kernel, by their flags.
    pub kernel: u16,
    /// Pages without a flag: of the kernel, or on a CPU's list of free pages.
    pub untold: u16,
    /// Movable pages that are clean, of files, and mapped by no program: `drop_caches` frees them.
    pub cached: u16,
}

impl Pages {
    /// All counts, in the order of the members. The last is a part of the movable pages.
    #[must_use]
    pub fn counts(self) -> [u16; 7] {
        let Self {
            free,
            movable,
            slab,
            page_tables,
            kernel,
            untold,
            cached,
        } = self;
        [free, movable, slab, page_tables, kernel, untold, cached]
    }

    fn of_counts(counts: [u16; 7]) -> Self {
        let [free, movable, slab, page_tables, kernel, untold, cached] = counts;
        Self {
            free,
            movable,
            slab,
            page_tables,
            kernel,
            untold,
            cached,
        }
    }

    fn add(&mut self, other: Self) {
        let (mut sums, others) = (self.counts(), other.counts());
        for (sum, other) in sums.iter_mut().zip(others) {
            *sum = sum.saturating_add(other);
        }
        *self = Self::of_counts(sums);
    }
}

/// A block with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address divided by [`BLOCK_BYTES`].
    pub index: u32,
    /// Its pages.
    pub pages: Pages,
}

/// Pages of all memory by blocks of 2 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMap {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages on the CPUs' lists at that time, by zoneinfo; they are among the pages without a flag.
    pub on_cpu_lists: Option<u64>,
    /// True if the kernel flags the first page of a free block alone, as before 4.6: the rest of these blocks is a guess.
    pub is_free_guessed: bool,
    /// Blocks that have memory, by ascending index.
    pub blocks: Vec<Block>,
}

/// Pages of all blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PageSums {
    /// Free pages, in the page allocator's lists.
    pub free: u64,
    /// Pages of users and files, which can be moved or reclaimed.
    pub movable: u64,
    /// Pages of slabs.
    pub slab: u64,
    /// Pages of page tables.
    pub page_tables: u64,
    /// Other pages of the kernel, by their flags.
    pub kernel: u64,
    /// Pages without a flag: of the kernel, or free on a CPU's list.
    pub untold: u64,
    /// Movable pages that are clean, of files, and mapped by no program: `drop_caches` frees them.
    pub cached: u64,
}

impl PageSums {
    fn add(&mut self, pages: Pages) {
        self.free += u64::from(pages.free);
        self.movable += u64::from(pages.movable);
        self.slab += u64::from(pages.slab);
        self.page_tables += u64::from(pages.page_tables);
        self.kernel += u64::from(pages.kernel);
        self.untold += u64::from(pages.untold);
        self.cached += u64::from(pages.cached);
    }

    /// All pages.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.free + self.movable + self.kernels() + self.untold
    }

    /// Pages that are surely the kernel's and stay where they are.
    #[must_use]
    pub fn kernels(&self) -> u64 {
        self.slab + self.page_tables + self.kernel
    }
}

/// Blocks of one size by what lies in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Spread {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that have memory.
    pub blocks: u64,
    /// Blocks whose memory is all free.
    pub free: u64,
    /// Blocks whose memory is all free once `drop_caches` frees clean pages of files, at least.
    pub free_if_dropped: u64,
    /// The same at most: if all slabs there are freed as well, and pages without a flag are free.
    pub free_if_dropped_at_most: u64,
    /// Blocks with a page of the kernel: slab, page table or another that flags tell. None of them can become a huge page.
    pub tainted: u64,
    /// The same, and blocks where only pages without a flag are: these are the kernel's, or free on a CPU's list.
    pub tainted_at_most: u64,
    /// Blocks with slabs.
    pub with_slab: u64,
    /// Blocks in which slabs are the only pages of the kernel.
    pub slab_only: u64,
    /// Blocks with slabs and with pages that could be moved away.
    pub slab_and_movable: u64,
    /// Blocks that the slabs' pages would fill if they lay together.
    pub packed: u64,
}

impl Spread {
    fn add(&mut self, pages: &PageSums) {
        let counted = [
            (&mut self.blocks, true),
            (&mut self.free, pages.free == pages.all()),
            (
                &mut self.free_if_dropped,
                pages.free + pages.cached == pages.all(),
            ),
            (
                &mut self.free_if_dropped_at_most,
                pages.free + pages.cached + pages.slab + pages.untold == pages.all(),
            ),
            (&mut self.tainted, pages.kernels() > 0),
            (
                &mut self.tainted_at_most,
                pages.kernels() + pages.untold > 0,
            ),
            (&mut self.with_slab, pages.slab > 0),
            (
                &mut self.slab_only,
                pages.slab > 0 && pages.slab == pages.kernels() + pages.untold,
            ),
            (
                &mut self.slab_and_movable,
                pages.slab > 0 && pages.movable > 0,
            ),
        ];
        for (count, is_such) in counted {
            *count += u64::from(is_such);
        }
    }
}

impl BlockMap {
    /// The pages of both maps.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.blocks.extend(&other.blocks);
        self.blocks.sort_by_key(|block| block.index);
        self.blocks.dedup_by(|block, first| {
            let is_same = block.index == first.index;
            if is_same {
                first.pages.add(block.pages);
            }
            is_same
        });
        self.blocks.retain(|block| block.pages != Pages::default());
        self
    }

    /// Pages of all memory by kind.
    #[must_use]
    pub fn sums(&self) -> PageSums {
        let mut sums = PageSums::default();
        self.blocks.iter().for_each(|block| sums.add(block.pages));
        sums
    }

    /// Pages without a flag in blocks of [`BLOCK_BYTES`] that have no page of the kernel.
    #[must_use]
    pub fn untold_alone(&self) -> u64 {
        let each = self.by(BLOCK_BYTES).map(|(_, pages)| pages);
        let alone = each.filter(|pages| pages.kernels() == 0);
        alone.map(|pages| pages.untold).sum()
    }

    /// Pages by blocks of a size, which is a multiple of [`BLOCK_BYTES`]: the index of each that has memory, and its pages.
    pub fn by(&self, block_bytes: u64) -> impl Iterator<Item = (u64, PageSums)> {
        let each = (block_bytes / BLOCK_BYTES).max(1);
        let larger = move |block: &Block| u64::from(block.index) / each;
        let parts = self.blocks.chunk_by(move |a, b| larger(a) == larger(b));
        parts.map(move |part| {
            let mut sums = PageSums::default();
            part.iter().for_each(|block| sums.add(block.pages));
            (larger(&part[0]), sums)
        })
    }

    /// Pages of the block with this index, of a size that is a multiple of [`BLOCK_BYTES`]; `None` if it has no memory.
    #[must_use]
    pub fn block(&self, block_bytes: u64, index: u64) -> Option<PageSums> {
        let each = (block_bytes / BLOCK_BYTES).max(1);
        let larger = |block: &Block| u64::from(block.index) / each;
        let first = self.blocks.partition_point(|block| larger(block) < index);
        let blocks = self.blocks[first..].iter();
        let mut blocks = blocks.take_while(|block| larger(block) == index).peekable();
        blocks.peek()?;
        let mut sums = PageSums::default();
        blocks.for_each(|block| sums.add(block.pages));
        Some(sums)
    }

    /// Blocks of a size, a multiple of [`BLOCK_BYTES`], by what lies in them.
    #[must_use]
    pub fn spread(&self, block_bytes: u64) -> Spread {
        let mut spread = Spread {
            block_bytes,
            ..Spread::default()
        };
        let mut slab = 0;
        for (_, pages) in self.by(block_bytes) {
            spread.add(&pages);
            slab += pages.slab;
        }
        let pages = block_bytes.checked_div(self.page_bytes).unwrap_or(0).max(1);
        spread.packed = slab.div_ceil(pages);
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn map(counts: &[(u32, [u16; 6])]) -> BlockMap {
        let pages = |[free, movable, slab, page_tables, kernel, untold]: [u16; 6]| Pages {
            free,
            movable,
            slab,
            page_tables,
            kernel,
            untold,
            // Half of the movable pages.
            cached: movable / 2,
        };
        let blocks = counts.iter().map(|&(index, counts)| Block {
            index,
            pages: pages(counts),
        });
        BlockMap {
            page_bytes: 4096,
            blocks: blocks.collect(),
            ..BlockMap::default()
        }
    }

    #[test]
    fn a_spread_counts_blocks_by_what_lies_in_them() {
        let map = map(&[
            (0, [512, 0, 0, 0, 0, 0]),
            (1, [500, 0, 12, 0, 0, 0]),
            (2, [0, 500, 10, 2, 0, 0]),
            (3, [511, 0, 0, 0, 0, 1]),
            (512, [0, 0, 400, 0, 0, 3]),
        ]);
        let small = map.spread(BLOCK_BYTES);
        let expected = Spread {
            block_bytes: BLOCK_BYTES,
            blocks: 5,
            free: 1,
            free_if_dropped: 1,
            free_if_dropped_at_most: 4,
            tainted: 3,
            tainted_at_most: 4,
            with_slab: 3,
            slab_only: 1,
            slab_and_movable: 1,
            packed: 1,
        };
        assert_eq!(small, expected);
        let large = map.spread(1 << 30);
        assert_eq!((large.blocks, large.free, large.with_slab), (2, 0, 2));
        assert_eq!((large.slab_only, large.packed), (0, 1));
        for size in [BLOCK_BYTES, 1 << 30] {
            for (index, pages) in map.by(size) {
                assert_eq!(map.block(size, index), Some(pages));
            }
            assert_eq!(map.block(size, 4), None);
        }
        assert_eq!(map.sums().slab, 422);
    }
}
