//! Blocks of one size: whether they are clean, and who spoils them.

use std::collections::HashMap;
use std::ops::Range;

use quarry_snapshot::blocks::BlockMap;
use quarry_trace::PageMoves;

/// Number of a taint that is not kept.
const NONE: u32 = u32::MAX;
/// Migrate type of pages that can be moved.
const MOVABLE: i8 = super::MOVABLE as i8;

/// State of a block without the pages that the recording allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Clean,
    /// A page of the kernel lies in it. Surely none does once this number of pages of any kind left.
    Spoiled(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    before: Before,
    /// Pages of the kernel that the recording allocated.
    pages: u64,
    /// Taint that lasts, if it is kept.
    taint: u32,
    /// True while a taint lasts.
    is_counted: bool,
    /// Times that it was clean and spoiled.
    times: u32,
    /// True if it was spoiled while its state was unknown.
    is_seen: bool,
    /// Time at which it was clean last, if that is known.
    clean_ns: u64,
}

/// Blocks of one size.
pub(super) struct Blocks<'a> {
    pub(super) bytes: u64,
    page_bytes: u64,
    map: Option<&'a BlockMap>,
    blocks: HashMap<u64, Block>,
    /// Times that a clean block was spoiled.
    pub(super) spoiled: u64,
    /// Times that one was clean again.
    pub(super) cleaned: u64,
    /// Blocks of unknown state that got a page of the kernel.
    pub(super) unknown: u64,
    /// Blocks spoiled before the recording whose pages all left.
    pub(super) cleaned_before: u64,
    /// Taints of clean blocks whose page came from a block of another type.
    pub(super) fallbacks: u64,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(bytes: u64, page_bytes: u64, map: Option<&'a BlockMap>) -> Self {
        Self {
            bytes,
            page_bytes,
            map,
            blocks: HashMap::new(),
            spoiled: 0,
            cleaned: 0,
            unknown: 0,
            cleaned_before: 0,
            fallbacks: 0,
        }
    }

    /// True if a map says which blocks were clean.
    pub(super) fn has_map(&self) -> bool {
        self.map.is_some()
    }

    /// True if no event touched a block.
    pub(super) fn is_untouched(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that were spoiled at least once.
    pub(super) fn spoiled_blocks(&self) -> u64 {
        let spoiled = self.blocks.values().filter(|block| block.times > 0);
        spoiled.count() as u64
    }

    /// Pages of a block.
    fn pages(&self) -> u64 {
        (self.bytes / self.page_bytes).max(1)
    }

    /// The blocks that pages lie in, and how many in each.
    fn parts(&self, pfn: u64, order: u8) -> impl Iterator<Item = (u64, u64)> + use<> {
        let pages = self.pages();
        let end = pfn.saturating_add(1 << order);
        let parts = pfn / pages..end.div_ceil(pages);
        parts.map(move |index| {
            let begin = (index * pages).max(pfn);
            (index, (index + 1).saturating_mul(pages).min(end) - begin)
        })
    }

    fn block(&mut self, index: u64) -> &mut Block {
        let (map, bytes) = (self.map, self.bytes);
        self.blocks.entry(index).or_insert_with(|| Block {
            before: map.map_or(Before::Unknown, |map| before(map, bytes, index)),
            pages: 0,
            taint: NONE,
            is_counted: false,
            times: 0,
            is_seen: false,
            clean_ns: 0,
        })
    }

    /// Pages are allocated. Returns the blocks that they spoil, and whether these surely were clean; none unless it `counts`.
    pub(super) fn alloc(
        &mut self,
        pfn: u64,
        order: u8,
        is_kernel: bool,
        counts: bool,
    ) -> Vec<(u64, bool)> {
        let whole = self.pages();
        let (mut begun, mut cleaned) = (Vec::new(), 0);
        for (index, pages) in self.parts(pfn, order) {
            let block = self.block(index);
            if pages == whole && block.pages == 0 && block.before != Before::Clean {
                // All of it was free.
                cleaned += u64::from(counts && block.before != Before::Unknown);
                block.before = Before::Clean;
            }
            if !is_kernel {
                continue;
            }
            if counts && block.pages == 0 {
                match block.before {
                    Before::Clean => begun.push((index, true)),
                    Before::Unknown if !block.is_seen => begun.push((index, false)),
                    _ => {}
                }
            }
            block.pages += pages;
        }
        self.cleaned_before += cleaned;
        begun
    }

    /// Counts a taint that [`Self::alloc`] returned.
    pub(super) fn count(&mut self, index: u64, was_clean: bool, fallback: bool) {
        let block = self.block(index);
        if was_clean {
            block.is_counted = true;
            block.times += 1;
            self.spoiled += 1;
            self.fallbacks += u64::from(fallback);
        } else {
            block.is_seen = true;
            self.unknown += 1;
        }
    }

    /// When a block was clean last.
    pub(super) fn clean_since(&self, index: u64) -> u64 {
        self.blocks.get(&index).map_or(0, |block| block.clean_ns)
    }

    /// Keeps the number of the taint that lasts.
    pub(super) fn set_taint(&mut self, index: u64, taint: u32) {
        let block = self.block(index);
        block.taint = if block.is_counted { taint } else { NONE };
    }

    /// Pages of the kernel are freed. Returns the taints that end.
    pub(super) fn free(
        &mut self,
        pfn: u64,
        order: u8,
        time_ns: u64,
        counted: &Range<u64>,
    ) -> Vec<u32> {
        let mut ended = Vec::new();
        for (index, pages) in self.parts(pfn, order) {
            let block = self.block(index);
            block.pages = block.pages.saturating_sub(pages);
            if block.pages > 0 || time_ns >= counted.end {
                continue;
            }
            block.clean_ns = time_ns;
            let taint = std::mem::replace(&mut block.taint, NONE);
            if std::mem::take(&mut block.is_counted) {
                self.cleaned += 1;
                ended.extend((taint != NONE).then_some(taint));
            }
        }
        ended
    }

    /// Pages from before the recording are freed.
    pub(super) fn free_old(&mut self, pfn: u64, order: u8, time_ns: u64) {
        for (index, pages) in self.parts(pfn, order) {
            let block = self.block(index);
            let Before::Spoiled(left) = &mut block.before else {
                continue;
            };
            *left = left.saturating_sub(pages);
            if *left == 0 {
                block.before = Before::Clean;
                block.clean_ns = time_ns;
                self.cleaned_before += 1;
            }
        }
    }
}

/// State of a block by a map.
fn before(map: &BlockMap, bytes: u64, index: u64) -> Before {
    match map.block(bytes, index) {
        Some(pages) if pages.kernels() > 0 => Before::Spoiled(pages.all() - pages.free),
        Some(pages) if pages.untold == 0 => Before::Clean,
        _ => Before::Unknown,
    }
}

/// Fallbacks of requests for pages that cannot be moved, by the place that they took.
pub(super) struct Fallbacks {
    /// Pages of the blocks below.
    pages: u64,
    /// Time, and the frames of the free block, by the blocks that it lies in.
    by_block: HashMap<u64, Vec<(u64, Range<u64>)>>,
}

impl Fallbacks {
    pub(super) fn new(moves: &PageMoves, pages: u64) -> Self {
        let pages = pages.max(1);
        let mut by_block = HashMap::<u64, Vec<_>>::new();
        for event in &moves.extfrags {
            let order = event.fallback_order.min(quarry_trace::ORDER_MAX);
            let frames = event.pfn..event.pfn.saturating_add(1 << order);
            if event.alloc_type == MOVABLE {
                continue;
            }
            for index in frames.start / pages..frames.end.div_ceil(pages) {
                let of_block = by_block.entry(index).or_default();
                of_block.push((event.time_ns, frames.clone()));
            }
        }
        Self { pages, by_block }
    }

    /// True if a fallback took the free block that this page is of, after the page's block was clean last.
    pub(super) fn explain(&self, pfn: u64, time_ns: u64, clean_ns: u64) -> bool {
        let events = self.by_block.get(&(pfn / self.pages));
        let mut events = events.into_iter().flatten();
        events.any(|(at_ns, frames)| (clean_ns..=time_ns).contains(at_ns) && frames.contains(&pfn))
    }
}
