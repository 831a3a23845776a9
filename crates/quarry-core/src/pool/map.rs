//! Mappings, by which a device reaches a page.

use core::ptr::NonNull;

/// Maps a pool's blocks for the device (DMA) or the process that fills them. A block is
/// mapped when it comes from the page allocator and stays so while it is the pool's
/// (`PP_FLAG_DMA_MAP`), in flight or not. The pool may call from any thread that puts pages.
///
/// A mapper must not panic: the pages that the call was about, and those behind them in the ring,
/// would be lost to the pool, which then never ends.
pub trait Mapper: 'static {
    /// False leaves all calls out of the pool's code.
    const MAPS: bool = true;

    /// Maps a block. The number is what devices know it by. `None` if mapping fails: the block then goes back
    /// to the page allocator.
    fn map(&self, block: NonNull<u8>, bytes: usize) -> Option<u64>;

    /// Ends a mapping.
    fn unmap(&self, mapping: u64, bytes: usize);

    /// Makes the first `bytes` ready to be written by the device again, before the block goes back
    /// into the pool (`PP_FLAG_DMA_SYNC_DEV`): only what was used costs time.
    fn sync_for_device(&self, mapping: u64, bytes: usize) {
        let _ = (mapping, bytes);
    }
}

/// The mapper of pools whose user maps nothing, or maps by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoMapper;

impl Mapper for NoMapper {
    const MAPS: bool = false;

    fn map(&self, _block: NonNull<u8>, _bytes: usize) -> Option<u64> {
        Some(0)
    }

    fn unmap(&self, _mapping: u64, _bytes: usize) {}
}
