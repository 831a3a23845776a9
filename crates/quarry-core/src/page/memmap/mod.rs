//! From addresses to page numbers to descriptors, and back (`virt_to_page` and its kin).

pub(crate) mod blocks;
pub(crate) mod contents;
pub(crate) mod list;
mod on;
mod owners;
pub(crate) mod page;

use core::ptr::NonNull;

use crate::machine::{DESCRIPTOR_BYTES, Machine, RawRange, Region};
use crate::page::types::Pfn;
use blocks::{PageBlocks, Tag};
use contents::Contents;
pub(crate) use on::MapOn;
use owners::Owners;
use page::Page;

/// See [`MemMap::page_scale`].
const fn scale(page_shift: u32) -> u64 {
    1 << (u64::BITS - page_shift)
}

/// The pages of a machine and their descriptors.
#[derive(Clone, Copy)]
pub(crate) struct MemMap {
    base: NonNull<u8>,
    descriptors: NonNull<Page>,
    blocks: PageBlocks,
    contents: Contents,
    owners: Owners,
    bytes: usize,
    pages: u32,
    page_shift: u32,
    /// Pages for each byte, in 2^-64.
    page_scale: u64,
}

// SAFETY: the map holds addresses that never change (M3); descriptors are all atomics.
unsafe impl Send for MemMap {}
// SAFETY: a shared map gives out addresses and shared descriptors, which are all atomics.
unsafe impl Sync for MemMap {}

impl MemMap {
    /// The map of a machine, with pageblocks of an order; `None` when the range for structures is too small.
    pub(crate) fn new<M: Machine>(
        machine: &M,
        meta: &Region,
        block_order: u32,
        tracks_contents: bool,
    ) -> Option<Self> {
        let ranges = machine.ranges();
        let page_shift = machine.topology().page_shift;
        // Modelled atomics are larger than real ones.
        let bytes = if cfg!(loom) {
            size_of::<Page>()
        } else {
            DESCRIPTOR_BYTES
        };
        let described = ranges.descriptors.bytes / bytes;
        let pages = (ranges.pages.bytes >> page_shift)
            .min(described)
            .min(u32::MAX as usize - 1);
        #[cfg(loom)]
        for page in 0..pages {
            // SAFETY: the range has room for this many descriptors.
            let descriptor = unsafe { ranges.descriptors.base.cast::<Page>().add(page) };
            // SAFETY: no code uses it yet (M2).
            unsafe { descriptor.write(Page::new()) };
        }
        Some(Self {
            base: ranges.pages.base,
            descriptors: ranges.descriptors.base.cast(),
            blocks: PageBlocks::new(machine, meta, pages as u32, block_order)?,
            contents: match tracks_contents {
                true => Contents::new(machine, meta, pages as u32)?,
                false => Contents::NONE,
            },
            owners: Owners::new(machine, meta, pages as u32)?,
            bytes: pages << page_shift,
            pages: pages as u32,
            page_shift,
            page_scale: scale(page_shift),
        })
    }

    /// A map of nothing but descriptors, which must outlive it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn of_descriptors(descriptors: &[Page]) -> Self {
        Self {
            base: NonNull::dangling(),
            descriptors: NonNull::from(descriptors).cast(),
            blocks: PageBlocks::none(),
            contents: Contents::NONE,
            owners: Owners::none(),
            bytes: descriptors.len() << 12,
            pages: descriptors.len() as u32,
            page_shift: 12,
            page_scale: scale(12),
        }
    }

    /// The same map with room to note which CPU owns a pageblock; `None` when the range for structures is full.
    pub(crate) fn with_owners<M: Machine>(self, machine: &M, meta: &Region) -> Option<Self> {
        Some(Self {
            blocks: self.blocks.with_owners(machine, meta)?,
            ..self
        })
    }

    /// Tags of the pageblocks.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> &PageBlocks {
        &self.blocks
    }

    /// Contents of blocks in use.
    #[inline(always)]
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// Descriptor of a page that is known to exist.
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> &Page {
        debug_assert!(pfn.0 < self.pages, "page {} of {}", pfn.0, self.pages);
        // SAFETY: page numbers come from this map, and each has a descriptor in the range:
        // `pfn_of` checks the bounds, the zones stay below `pages`, links only hold such numbers.
        let page = unsafe { self.descriptors.add(pfn.0 as usize) };
        // SAFETY: a descriptor is valid from the start, because all its fields are atomics and
        // the range is zero-filled (M2); it is never written but through them.
        unsafe { page.as_ref() }
    }

    /// Like [`MemMap::page`], for numbers that come from outside.
    pub(crate) fn get(&self, pfn: Pfn) -> Option<&Page> {
        (pfn.0 < self.pages).then(|| self.page(pfn))
    }

    /// Number of the page at an address; `None` for a foreign address.
    #[inline(always)]
    pub(crate) fn pfn_of(&self, address: NonNull<u8>) -> Option<Pfn> {
        let offset = address.addr().get().wrapping_sub(self.base.addr().get());
        (offset < self.bytes).then_some(Pfn((offset >> self.page_shift) as u32))
    }

    /// Number and descriptor of the page at an address; `None` for a foreign address.
    #[inline(always)]
    pub(crate) fn page_of(&self, address: NonNull<u8>) -> Option<(Pfn, &Page)> {
        let pfn = self.pfn_of(address)?;
        Some((pfn, self.page(pfn)))
    }

    /// [`MemMap::owner`] of the page at an address; null for a foreign address.
    #[inline(always)]
    pub(crate) fn owner_of(&self, address: NonNull<u8>) -> *mut () {
        let offset = address.addr().get().wrapping_sub(self.base.addr().get());
        if offset >= self.bytes {
            return core::ptr::null_mut();
        }
        // `offset >> page_shift` as the high half of a product: one step, a shift by a number that the compiler does not know takes
        // three on x86-64.
        let page = match cfg!(loom) {
            true => offset >> self.page_shift,
            false => ((offset as u128 * u128::from(self.page_scale)) >> 64) as usize,
        };
        // SAFETY: the address is in a page, and the table has a word for each.
        unsafe { self.owners.of(page) }
    }

    /// The cache of the slab that a page is in, null if there is none.
    #[inline(always)]
    pub(crate) fn owner(&self, pfn: Pfn) -> *mut () {
        debug_assert!(pfn.0 < self.pages, "page {} of {}", pfn.0, self.pages);
        // SAFETY: the page exists (as in `page`), and the table has a word for each.
        unsafe { self.owners.of(pfn.0 as usize) }
    }

    #[inline(always)]
    pub(crate) fn set_owner(&self, pfn: Pfn, owner: *mut ()) {
        debug_assert!(pfn.0 < self.pages, "page {} of {}", pfn.0, self.pages);
        // SAFETY: as in `owner`.
        unsafe { self.owners.set(pfn.0 as usize, owner) };
    }

    /// The tag of a page's pageblock; `None` for a foreign page.
    #[inline(always)]
    pub(in crate::page) fn tag_of(&self, pfn: Pfn) -> Option<Tag> {
        (pfn.0 < self.pages).then(|| self.blocks.tag(pfn))
    }

    /// First byte of a page.
    #[inline(always)]
    pub(crate) fn address(&self, pfn: Pfn) -> NonNull<u8> {
        debug_assert!(pfn.0 < self.pages);
        // SAFETY: `pfn` is below `pages` (as in `page`), so the address is inside the range.
        unsafe { self.base.add((pfn.0 as usize) << self.page_shift) }
    }

    /// The memory of a range of pages that is not empty and ends with the last page at most.
    pub(crate) fn range(&self, pages: &core::ops::Range<u32>) -> RawRange {
        debug_assert!(pages.start < pages.end && pages.end <= self.pages);
        RawRange {
            base: self.address(Pfn(pages.start)),
            bytes: ((pages.end - pages.start) as usize) << self.page_shift,
        }
    }
}
