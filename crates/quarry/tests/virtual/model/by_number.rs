//! Frees by number that tests may make by mistake.

use quarry_core::machine::Machine;
use quarry_core::page::{PageAllocator, PageError, Pfn};

/// Safe frees of blocks that are held by their numbers.
pub(crate) trait ByNumber {
    /// [`PageAllocator::free`].
    fn free_number(&self, pfn: Pfn, order: u32) -> Result<(), PageError>;
    /// [`PageAllocator::free_bulk`].
    fn free_numbers(&self, slots: &mut [Option<Pfn>]) -> Result<(), PageError>;
    /// [`PageAllocator::get_page`].
    fn get_number(&self, pfn: Pfn) -> Result<(), PageError>;
    /// [`PageAllocator::put_page`].
    fn put_number(&self, pfn: Pfn) -> Result<bool, PageError>;
}

impl<M: Machine> ByNumber for PageAllocator<M> {
    fn free_number(&self, pfn: Pfn, order: u32) -> Result<(), PageError> {
        // SAFETY: a test of this binary allocates what it frees, on one thread, and uses the memory of such
        // a block before it frees it only. What it frees by mistake is no block that it holds by a number.
        unsafe { self.free(pfn, order) }
    }

    fn free_numbers(&self, slots: &mut [Option<Pfn>]) -> Result<(), PageError> {
        // SAFETY: as in `free_number`.
        unsafe { self.free_bulk(slots) }
    }

    fn get_number(&self, pfn: Pfn) -> Result<(), PageError> {
        // SAFETY: as in `free_number`.
        unsafe { self.get_page(pfn) }
    }

    fn put_number(&self, pfn: Pfn) -> Result<bool, PageError> {
        // SAFETY: as in `free_number`.
        unsafe { self.put_page(pfn) }
    }
}
