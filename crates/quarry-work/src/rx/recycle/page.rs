//! Page reuse: several packets in one page, one behind the other.

use quarry_core::machine::Machine;
use quarry_core::page::{PageAllocator, PageError, Pfn, SharedBlock};

use super::buffer::{RxBuffer, footprint_bytes};

/// A page that a driver has posted for receiving, and how far it is used up. The driver's own
/// reference goes with it.
#[derive(Debug)]
pub struct RxPage<'p, M: Machine> {
    block: SharedBlock<'p, M>,
    offset: u32,
}

impl<'p, M: Machine> RxPage<'p, M> {
    /// A page with nothing in use, and the driver's reference to it.
    #[must_use]
    pub fn new(block: SharedBlock<'p, M>) -> Self {
        Self { block, offset: 0 }
    }

    /// The page.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.block.pfn()
    }

    /// The driver's reference, of a driver that has finished with the page.
    #[must_use]
    pub fn into_block(self) -> SharedBlock<'p, M> {
        self.block
    }

    /// Offset of the next buffer in the page, in bytes.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// A frame has been written: returns the reference that its packet carries to the stack, and moves
    /// on by what the frame took. That is less than was posted if the frame was short.
    ///
    /// # Errors
    ///
    /// [`PageError`] if no reference can be taken; nothing has changed then.
    pub fn receive(&mut self, frame_bytes: u32) -> Result<SharedBlock<'p, M>, PageError> {
        let packet = self.block.share()?;
        self.offset = self.offset.saturating_add(footprint_bytes(frame_bytes));
        Ok(packet)
    }

    /// True if the rest can be posted again (`page_reuse`): another buffer fits, and the page is of the node that the
    /// running CPU belongs to.
    #[must_use]
    pub fn reusable(&self, pages: &PageAllocator<M>, buffer: &RxBuffer) -> bool {
        buffer.fits(self.offset) && is_local(pages, self.pfn())
    }
}

/// True if a page is memory of the running CPU's node.
pub(super) fn is_local<M: Machine>(pages: &PageAllocator<M>, pfn: Pfn) -> bool {
    let machine = pages.machine();
    pages.node_of(pfn) == Some(machine.current_node())
}
