//! Page reuse: several packets in one page, one behind the other.

use quarry_core::machine::Machine;
use quarry_core::page::{PageAllocator, PageError, Pfn};

use super::buffer::{RxBuffer, footprint_bytes};

/// A page that a driver has posted for receiving, and how far it is used up. The driver's own
/// reference goes with it.
#[derive(Debug, PartialEq, Eq)]
pub struct RxPage {
    pfn: Pfn,
    offset: u32,
}

impl RxPage {
    /// A page of which nothing is used; the driver holds one reference to it.
    #[must_use]
    pub fn new(pfn: Pfn) -> Self {
        Self { pfn, offset: 0 }
    }

    /// The page.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Where in the page the next buffer begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// A frame has been written: takes the reference that its packet carries to the stack, and moves
    /// on by what the frame took, which is less than was posted if the frame was short.
    ///
    /// # Errors
    ///
    /// [`PageError`] if no reference can be taken; nothing has changed then.
    pub fn receive<M: Machine>(
        &mut self,
        pages: &PageAllocator<M>,
        frame_bytes: u32,
    ) -> Result<(), PageError> {
        pages.get_page(self.pfn)?;
        self.offset = self.offset.saturating_add(footprint_bytes(frame_bytes));
        Ok(())
    }

    /// Whether the rest can be posted again (`page_reuse`): another buffer fits, and the page is of
    /// the node that the running CPU belongs to.
    #[must_use]
    pub fn reusable<M: Machine>(&self, pages: &PageAllocator<M>, buffer: &RxBuffer) -> bool {
        buffer.fits(self.offset) && is_local(pages, self.pfn)
    }
}

/// Whether a page is memory of the running CPU's node.
pub(super) fn is_local<M: Machine>(pages: &PageAllocator<M>, pfn: Pfn) -> bool {
    let machine = pages.machine();
    pages.node_of(pfn) == Some(machine.current_node())
}
