//! Flags of pages, folded into counts by block.

use super::{BLOCK_BYTES, Block, Pages};

/// Bits of `/proc/kpageflags` (Documentation/admin-guide/mm/pagemap.rst).
mod bit {
    pub(super) const UPTODATE: u64 = 1 << 3;
    pub(super) const DIRTY: u64 = 1 << 4;
    pub(super) const LRU: u64 = 1 << 5;
    pub(super) const SLAB: u64 = 1 << 7;
    pub(super) const WRITEBACK: u64 = 1 << 8;
    pub(super) const BUDDY: u64 = 1 << 10;
    pub(super) const MMAP: u64 = 1 << 11;
    pub(super) const ANON: u64 = 1 << 12;
    pub(super) const SWAPCACHE: u64 = 1 << 13;
    pub(super) const SWAPBACKED: u64 = 1 << 14;
    pub(super) const COMPOUND_TAIL: u64 = 1 << 16;
    pub(super) const HUGE: u64 = 1 << 17;
    pub(super) const UNEVICTABLE: u64 = 1 << 18;
    pub(super) const HWPOISON: u64 = 1 << 19;
    pub(super) const NOPAGE: u64 = 1 << 20;
    pub(super) const OFFLINE: u64 = 1 << 23;
    pub(super) const ZERO_PAGE: u64 = 1 << 24;
    pub(super) const PGTABLE: u64 = 1 << 26;
}

/// Pages of users and files. A page on its way to the LRU lists has no LRU bit, but `UPTODATE`.
const MOVABLE: u64 = bit::LRU
    | bit::ANON
    | bit::SWAPCACHE
    | bit::SWAPBACKED
    | bit::HUGE
    | bit::UNEVICTABLE
    | bit::UPTODATE;

/// Movable pages that `drop_caches` leaves: not of files, mapped, or not clean.
const KEPT: u64 = bit::ANON
    | bit::SWAPCACHE
    | bit::SWAPBACKED
    | bit::HUGE
    | bit::UNEVICTABLE
    | bit::MMAP
    | bit::DIRTY
    | bit::WRITEBACK;

/// Pages of the kernel that have a bit of their own: the zero pages, those of a balloon, and broken ones.
const KERNEL: u64 = bit::HWPOISON | bit::OFFLINE | bit::ZERO_PAGE;

/// Kinds of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Movable,
    Slab,
    PageTables,
    Kernel,
    Untold,
    /// Movable pages that `drop_caches` frees.
    Cached,
    Hole,
}

/// The kind by the page's own bits; `None` if it has none that says. Slabs come before movable pages: their fields show as `ANON` and
/// `KSM` on 6.18.
fn own_kind(flags: u64) -> Option<Kind> {
    let any = |bits| flags & bits != 0;
    if any(bit::NOPAGE) {
        Some(Kind::Hole)
    } else if any(bit::BUDDY) {
        Some(Kind::Free)
    } else if any(bit::SLAB) {
        Some(Kind::Slab)
    } else if any(bit::PGTABLE) {
        Some(Kind::PageTables)
    } else if any(KERNEL) {
        Some(Kind::Kernel)
    } else if any(MOVABLE) {
        Some(if any(KEPT) {
            Kind::Movable
        } else {
            Kind::Cached
        })
    } else {
        None
    }
}

/// True where flags say that all pages of a free block have `BUDDY`, as since 4.6, not its first page alone. An even page and the next
/// are never two free blocks of one page: the allocator merges them.
pub(super) fn flags_all_of_free(first: u64, flags: &[u64]) -> bool {
    let skipped = usize::from(!first.is_multiple_of(2));
    let pairs = flags.get(skipped..).unwrap_or_default().chunks_exact(2);
    pairs
        .into_iter()
        .any(|pair| pair.iter().all(|flags| flags & bit::BUDDY != 0))
}

/// Number of pages with `BUDDY`.
pub(super) fn free_heads(flags: &[u64]) -> usize {
    let heads = flags.iter().filter(|flags| **flags & bit::BUDDY != 0);
    heads.count()
}

/// Order of the largest free block.
const FREE_ORDER_MAX: u32 = 10;

/// Folds the flags of pages, in the order of their numbers. Parts may be missing; the first page of what is given after a gap
/// must not be inside a compound page.
pub(super) struct Fold {
    block_pages: u64,
    /// True if only the first page of a free block has `BUDDY`.
    heads_only: bool,
    /// Page that comes next.
    next: u64,
    /// Kind of the last page that was not the tail of another.
    head: Kind,
    /// End of a free block whose first page alone has a bit.
    free_end: u64,
    pub(super) blocks: Vec<Block>,
}

impl Fold {
    pub(super) fn new(page_bytes: u64, heads_only: bool) -> Self {
        Self {
            block_pages: BLOCK_BYTES / page_bytes,
            heads_only,
            next: 0,
            head: Kind::Untold,
            free_end: 0,
            blocks: Vec::new(),
        }
    }

    /// Goes on at a page.
    pub(super) fn seek(&mut self, page: u64) {
        self.next = page;
        self.head = Kind::Untold;
        self.free_end = 0;
    }

    pub(super) fn add(&mut self, mut flags: &[u64]) {
        while !flags.is_empty() {
            let left = self.block_pages - self.next % self.block_pages;
            let count = usize::try_from(left).map_or(flags.len(), |left| left.min(flags.len()));
            let (of_block, rest) = flags.split_at(count);
            let index = self.next / self.block_pages;
            let mut counts = [0_u16; 8];
            for &flags in of_block {
                let kind = self.kind(flags);
                counts[kind as usize] += 1;
                self.next += 1;
            }
            self.close(index, counts);
            flags = rest;
        }
    }

    fn kind(&mut self, flags: u64) -> Kind {
        if let Some(kind) = own_kind(flags) {
            self.head = kind;
            if self.heads_only && kind == Kind::Free {
                let order = self.next.trailing_zeros().min(FREE_ORDER_MAX);
                self.free_end = self.next + (1 << order);
            } else {
                self.free_end = 0;
            }
            return kind;
        }
        // Kernels that flag the first page of a compound alone say of the others that they are tails.
        if flags & bit::COMPOUND_TAIL != 0 {
            return self.head;
        }
        self.head = match flags {
            0 if self.next < self.free_end => Kind::Free,
            0 => Kind::Untold,
            _ => Kind::Kernel,
        };
        self.head
    }

    /// Adds the counts of a part of a block.
    fn close(&mut self, index: u64, counts: [u16; 8]) {
        let [counts @ .., _holes] = counts;
        let mut pages = Pages::of_counts(counts);
        pages.movable += pages.cached;
        let Ok(index) = u32::try_from(index) else {
            return;
        };
        match self.blocks.last_mut() {
            _ if pages == Pages::default() => {}
            Some(last) if last.index == index => last.pages.add(pages),
            _ => self.blocks.push(Block { index, pages }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: u64 = bit::COMPOUND_TAIL;
    const HEAD: u64 = 1 << 15;

    fn folded(first: u64, flags: &[u64], heads_only: bool) -> Vec<(u32, [u16; 7])> {
        let mut fold = Fold::new(4096, heads_only);
        fold.seek(first);
        fold.add(flags);
        let blocks = fold.blocks.iter();
        blocks.map(|it| (it.index, it.pages.counts())).collect()
    }

    #[test]
    fn a_page_is_of_the_kind_that_its_bits_say() {
        let flags = [
            bit::BUDDY,
            bit::LRU | bit::UPTODATE,
            bit::UPTODATE,
            bit::LRU | bit::DIRTY,
            bit::LRU | bit::MMAP,
            // A slab on 6.18, whose fields show as other bits.
            bit::SLAB | bit::ANON | 1 << 21,
            bit::PGTABLE,
            bit::HWPOISON | bit::LRU,
            // Reserved.
            1 << 32,
            0,
            bit::NOPAGE,
        ];
        assert_eq!(folded(512, &flags, false), [(1, [1, 4, 1, 1, 2, 1, 2])]);
    }

    #[test]
    fn tails_without_bits_are_of_their_heads_kind() {
        let flags = [
            bit::SLAB | HEAD,
            TAIL,
            TAIL,
            HEAD,
            TAIL,
            0,
            bit::LRU | HEAD,
            TAIL,
        ];
        assert_eq!(folded(0, &flags, false), [(0, [0, 2, 3, 0, 2, 1, 2])]);
    }

    #[test]
    fn a_free_block_whose_head_alone_has_a_bit_ends_at_its_alignment_or_another_page() {
        let flags = [bit::BUDDY, 0, 0, bit::SLAB, 0, bit::BUDDY, 0, 0];
        // 8 to 10 and 13; 14 is past the alignment of 13.
        assert_eq!(folded(8, &flags, true), [(0, [4, 0, 1, 0, 0, 3, 0])]);
        assert_eq!(folded(8, &flags, false), [(0, [2, 0, 1, 0, 0, 5, 0])]);
    }

    #[test]
    fn two_pages_that_would_have_merged_say_that_all_have_bits() {
        let pair = [bit::BUDDY, bit::BUDDY];
        assert!(flags_all_of_free(2, &pair));
        assert!(!flags_all_of_free(3, &pair));
        assert!(!flags_all_of_free(2, &[bit::BUDDY, 0, 0, bit::BUDDY]));
    }

    #[test]
    fn parts_of_a_block_are_added_and_holes_leave_no_block() {
        let mut fold = Fold::new(65536, false);
        fold.seek(0);
        fold.add(&[bit::SLAB; 3]);
        fold.seek(30);
        fold.add(&[bit::LRU; 4]);
        fold.seek(320);
        fold.add(&[bit::NOPAGE; 32]);
        let counts: Vec<_> = fold
            .blocks
            .iter()
            .map(|it| (it.index, it.pages.counts()))
            .collect();
        assert_eq!(
            counts,
            [(0, [0, 2, 3, 0, 0, 0, 2]), (1, [0, 2, 0, 0, 0, 0, 2])]
        );
    }
}
