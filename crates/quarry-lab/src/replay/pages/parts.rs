//! User and page-cache pages at another page size: they keep their bytes, not their number.
//!
//! A kernel with larger pages maps a file or a heap with fewer of them, so several recorded pages become
//! one; with smaller pages one becomes several. Such pages are movable, which their events tell. Which of
//! them share a page, a recording does not tell. A program touches its memory mostly in order. So a part
//! goes to the page of the last part on its CPU, until that is full. The page is freed with the last of its
//! parts.

use quarry_sim::driver::PageRef;

/// Fit of a recorded block at the replayed page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Fit {
    /// The smallest block that holds its bytes, of this order.
    Block(u32),
    /// Parts of a page.
    Parts(u32),
    /// Single pages.
    Pages(u32),
}

impl Fit {
    /// Fit of a block of this recorded order, between these log2 of page sizes.
    pub(in super::super) fn new(
        recorded_shift: u32,
        page_shift: u32,
        order: u8,
        movable: bool,
    ) -> Self {
        let shift = u32::from(order) + recorded_shift;
        let blocks = shift.saturating_sub(page_shift);
        if movable && shift < page_shift {
            return Self::Parts(1 << order);
        }
        if movable && order == 0 && blocks > 0 {
            return Self::Pages(1 << blocks);
        }
        Self::Block(blocks)
    }

    /// Order of the blocks that are allocated for it.
    pub(in super::super) fn order(self) -> u32 {
        match self {
            Self::Block(order) => order,
            Self::Parts(_) | Self::Pages(_) => 0,
        }
    }
}

/// A page with parts.
struct Shared<'h> {
    page: PageRef<'h>,
    /// Parts that were handed out.
    used: u32,
    /// Those of them that are not freed.
    live: u32,
}

/// Index of the page that a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PartOf(u32);

/// Index of the pages of a split block.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct SplitInto(u32);

/// All pages with parts, and all blocks that were split into pages.
pub(in super::super) struct Parts<'h> {
    /// Parts of a page.
    capacity: u32,
    shared: Vec<Option<Shared<'h>>>,
    unused: Vec<u32>,
    /// By virtual CPU, the page whose parts are handed out.
    open: Vec<Option<u32>>,
    split: Vec<Vec<PageRef<'h>>>,
    split_unused: Vec<u32>,
}

impl<'h> Parts<'h> {
    /// Pages of `page_bytes` on `cpus` CPUs; a part has the bytes of a recorded page.
    pub(in super::super) fn new(recorded_bytes: u32, page_bytes: u64, cpus: u32) -> Self {
        Self {
            capacity: (page_bytes / u64::from(recorded_bytes.max(1))).max(1) as u32,
            shared: Vec::new(),
            unused: Vec::new(),
            open: vec![None; cpus as usize],
            split: Vec::new(),
            split_unused: Vec::new(),
        }
    }

    /// Parts of a page.
    pub(in super::super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Takes `parts` parts of the CPU's open page, if it has them.
    pub(in super::super) fn take(&mut self, cpu: u16, parts: u32) -> Option<PartOf> {
        let at = self.open[usize::from(cpu)]?;
        let shared = self.shared[at as usize].as_mut()?;
        if shared.used + parts > self.capacity {
            return None;
        }
        shared.used += parts;
        shared.live += parts;
        Some(PartOf(at))
    }

    /// Takes the first parts of a page, which becomes the CPU's open one.
    pub(in super::super) fn open(&mut self, cpu: u16, page: PageRef<'h>, parts: u32) -> PartOf {
        let shared = Some(Shared {
            page,
            used: parts,
            live: parts,
        });
        let at = store(&mut self.shared, &mut self.unused, shared);
        self.open[usize::from(cpu)] = Some(at);
        PartOf(at)
    }

    /// Gives parts back; returns the page if they were its last.
    pub(in super::super) fn give_back(&mut self, part: PartOf, parts: u32) -> Option<PageRef<'h>> {
        let slot = &mut self.shared[part.0 as usize];
        let shared = slot.as_mut()?;
        shared.live -= parts;
        if shared.live > 0 {
            return None;
        }
        let page = slot.take()?.page;
        self.unused.push(part.0);
        for open in &mut self.open {
            if *open == Some(part.0) {
                *open = None;
            }
        }
        Some(page)
    }

    /// Keeps the pages that a block was split into; returns what they are found by.
    pub(in super::super) fn keep(&mut self, pages: Vec<PageRef<'h>>) -> SplitInto {
        SplitInto(store(&mut self.split, &mut self.split_unused, pages))
    }

    /// The pages that a block was split into.
    pub(in super::super) fn take_split(&mut self, SplitInto(at): SplitInto) -> Vec<PageRef<'h>> {
        self.split_unused.push(at);
        std::mem::take(&mut self.split[at as usize])
    }
}

/// Stores a value where there is room; returns its index. A trace has fewer than 2^32 blocks.
fn store<T>(values: &mut Vec<T>, unused: &mut Vec<u32>, value: T) -> u32 {
    match unused.pop() {
        Some(at) => {
            values[at as usize] = value;
            at
        }
        None => {
            values.push(value);
            (values.len() - 1) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movable_blocks_keep_their_bytes() {
        for (recorded_shift, page_shift, order, movable, fit) in [
            (12, 12, 0, true, Fit::Block(0)),
            (12, 16, 0, true, Fit::Parts(1)),
            (12, 16, 3, true, Fit::Parts(8)),
            (12, 16, 4, true, Fit::Block(0)),
            (12, 16, 9, true, Fit::Block(5)),
            (12, 16, 0, false, Fit::Block(0)),
            (16, 12, 0, true, Fit::Pages(16)),
            (16, 12, 0, false, Fit::Block(4)),
            (16, 12, 2, true, Fit::Block(6)),
        ] {
            assert_eq!(Fit::new(recorded_shift, page_shift, order, movable), fit);
        }
    }
}
