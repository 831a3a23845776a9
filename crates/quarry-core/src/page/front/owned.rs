//! Blocks whose owner is known to the compiler: freed when they are dropped, once, by no other code.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::free::Claim;
use crate::machine::Machine;
use crate::page::{AllocOptions, PageAllocator, PageKind, Pfn};

/// A block of 2^order pages that is its owner's alone.
///
/// A page number is a name that can be copied, so [`PageAllocator::free`] is unsafe. It claims the page by
/// a compare-and-swap, to refuse the second of two frees. This handle needs neither: all other calls refuse
/// its pages ([`PageKind::Owned`]), so that nothing but its drop can free them.
///
/// ```
/// # use quarry_core::page::PageAllocator;
/// # fn demo<M: quarry_core::machine::Machine>(pages: &PageAllocator<M>) {
/// let mut block = pages.alloc_owned(0).unwrap();
/// block.as_uninit_bytes_mut()[0].write(7);
/// // SAFETY: the block is not held by its number, so the call refuses it.
/// assert!(unsafe { pages.free(block.pfn(), 0) }.is_err());
/// drop(block); // and now it is free
/// # }
/// ```
pub struct OwnedBlock<'p, M: Machine> {
    pages: &'p PageAllocator<M>,
    pfn: Pfn,
    order: u32,
}

impl<M: Machine> OwnedBlock<'_, M> {
    /// The block's first page.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// log2 of its pages.
    #[inline]
    pub fn order(&self) -> u32 {
        self.order
    }

    /// Its first byte. The memory is valid as long as the handle lives.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        self.pages.map().address(self.pfn)
    }

    /// Its memory, which holds whatever it held before. On machines whose memory is the process's
    /// that is a value for every byte, but the type does not promise one: what a former owner copied
    /// there may have had none by the letter of the language, such as padding.
    #[inline]
    pub fn as_uninit_bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes = 1 << (self.pages.map().page_shift() + self.order);
        // SAFETY: the block is memory of the machine (M2) and only its owner's, who is borrowed;
        // `MaybeUninit` asks for no initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.address().cast().as_ptr(), bytes) }
    }
}

impl<M: Machine> Drop for OwnedBlock<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let page = self.pages.map().page(self.pfn);
        debug_assert!(page.is_block(PageKind::Owned, self.order));
        // SAFETY: the handle alone has the block, and ends here.
        let freed = unsafe {
            self.pages
                .free_claimed(page, self.pfn, self.order, Claim::Owned)
        };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

impl<M: Machine> fmt::Debug for OwnedBlock<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBlock")
            .field("pfn", &self.pfn)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> PageAllocator<M> {
    /// A block of unmovable pages of the running CPU's node that is its handle's alone. `None` as
    /// for [`PageAllocator::alloc`].
    #[inline(always)]
    pub fn alloc_owned(&self, order: u32) -> Option<OwnedBlock<'_, M>> {
        if order == 0
            && let Some(pfn) = self.alloc_step(None, PageKind::Owned)
        {
            return Some(self.owned(pfn, 0));
        }
        self.alloc_owned_with(&AllocOptions {
            order,
            ..AllocOptions::default()
        })
    }

    /// [`PageAllocator::alloc_with`], as a block that is its handle's alone.
    pub fn alloc_owned_with(&self, options: &AllocOptions) -> Option<OwnedBlock<'_, M>> {
        let order = options.order;
        let pfn = self.claimed_as(PageKind::Owned, order, || self.alloc_with(options))?;
        Some(self.owned(pfn, order))
    }

    /// The handle of a block whose descriptor says already that it has one.
    #[inline(always)]
    pub(crate) fn owned(&self, pfn: Pfn, order: u32) -> OwnedBlock<'_, M> {
        OwnedBlock {
            pages: self,
            pfn,
            order,
        }
    }
}
