//! Blocks that are mappings of their own, as the machine's users have them.

use core::ptr::NonNull;

use quarry_core::machine::Clock as _;

use super::HostMachine;
use crate::blocks::{Block, KEPT_NS, Keep};
use crate::os;

impl HostMachine {
    /// Maps a block of its own, of at least these bytes, aligned to `align`, a power of two. It is zero-filled if that is
    /// asked for; else it may be one that was freed before ([`HostMachine::keep_blocks`]), with bytes of any value. `None` if
    /// the system has no address space or memory for it, or if the caller is a signal handler that interrupted such a call.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry_host::HostMachine;
    ///
    /// let machine = HostMachine::builder().memory_bytes(64 << 20).build()?;
    /// let block = machine.map_block(5_000_000, 4096, true).expect("address space");
    /// assert!(machine.block_bytes(block).is_some_and(|bytes| bytes >= 5_000_000));
    /// // SAFETY: no code uses the block.
    /// assert!(unsafe { machine.unmap_block(block) });
    /// # Ok::<(), quarry_host::HostError>(())
    /// ```
    #[must_use]
    pub fn map_block(&self, bytes: usize, align: usize, zeroed: bool) -> Option<NonNull<u8>> {
        let page = os::page_bytes();
        let bytes = bytes.max(1).checked_next_multiple_of(page)?;
        let now_ns = self.now_ns();
        if !zeroed
            && let Some(block) = self.blocks.reuse(bytes, align, now_ns)
            && self.open(block)
        {
            return NonNull::new(core::ptr::with_exposed_provenance_mut(block.address));
        }
        self.return_old_blocks(now_ns);
        let guard = self.blocks.guard();
        let mapped = if guard != 0 {
            os::map_guarded(bytes, align.max(page), guard)?
        } else if align <= page {
            os::map(bytes)?
        } else {
            os::map_aligned(bytes, align, page)?
        };
        let address = mapped.expose_provenance().get();
        let block = Block { address, bytes };
        if self.blocks.add(block) {
            return Some(mapped);
        }
        // SAFETY: mapped just now, and no code has seen it.
        unsafe { self.blocks.unmap(block) };
        None
    }

    /// Makes a block that was kept accessible again; takes it out of the table if the system refuses.
    fn open(&self, block: Block) -> bool {
        let opened = self.blocks.guard() == 0 || os::protect(block.address, block.bytes, false);
        if !opened && self.blocks.remove(block.address).is_some() {
            self.unmap_freed(block);
        }
        opened
    }

    /// Puts a page that cannot be accessed on either side of each block. Nor can freed blocks that are kept. Only for a
    /// machine that has mapped no block.
    pub fn guard_blocks(&self) {
        debug_assert_eq!(self.mapped_blocks().0, 0, "blocks without guards");
        self.blocks.set_guard(os::page_bytes());
    }

    /// Bytes of a block of [`HostMachine::map_block`]; `None` if the address begins none of this machine's.
    #[must_use]
    pub fn block_bytes(&self, block: NonNull<u8>) -> Option<usize> {
        let found = self.blocks.find(block.addr().get());
        found.map(|block| block.bytes)
    }

    /// Returns a block to the system, or keeps it ([`HostMachine::keep_blocks`]); `false` if the address begins none.
    ///
    /// # Safety
    ///
    /// The block has no user left.
    pub unsafe fn unmap_block(&self, block: NonNull<u8>) -> bool {
        let Some(removed) = self.blocks.remove(block.addr().get()) else {
            return false;
        };
        let now_ns = self.now_ns();
        self.return_old_blocks(now_ns);
        if self.blocks.guard() != 0 && !os::protect(removed.address, removed.bytes, true) {
            self.unmap_freed(removed);
            return true;
        }
        let refused = loop {
            match self.blocks.keep(removed, now_ns) {
                Keep::Done => return true,
                Keep::After(older) => self.unmap_freed(older),
                Keep::Refused => break removed,
            }
        };
        self.unmap_freed(refused);
        true
    }

    /// Returns blocks that were kept for long and not used: what the program does now needs other ones.
    fn return_old_blocks(&self, now_ns: u64) {
        if let Some(until_ns) = now_ns.checked_sub(KEPT_NS) {
            self.return_blocks_freed(until_ns);
        }
    }

    /// Returns the kept blocks that were freed by then to the system. Returns their bytes.
    fn return_blocks_freed(&self, until_ns: u64) -> usize {
        let freed = core::iter::from_fn(|| self.blocks.forget_kept(until_ns));
        freed
            .map(|block| {
                self.unmap_freed(block);
                block.bytes
            })
            .sum()
    }

    /// Unmaps a block that was freed and taken out of the table.
    fn unmap_freed(&self, block: Block) {
        // SAFETY: B2 of `blocks`; the block was freed, so it has no user left.
        unsafe { self.blocks.unmap(block) };
    }

    /// Keeps freed blocks instead of returning them to the system: 32 of them, of at most these bytes together, or of an
    /// eighth of those in use if that is more. Beyond that eighth, as many bytes are kept as were missed within a second: a
    /// request missed that would have had a block that was returned. 0, which keeps none, is the default.
    ///
    /// A block is used again for a request of its size or up to a fifth less that needs no zeros. One that was kept
    /// for a second is returned when the next is mapped or freed, and [`HostMachine::return_kept_blocks`] returns all.
    pub fn keep_blocks(&self, bytes: usize) {
        self.blocks.set_kept_most(bytes);
    }

    /// Returns all kept blocks to the system. Returns their bytes.
    pub fn return_kept_blocks(&self) -> usize {
        self.return_blocks_freed(u64::MAX)
    }

    /// Changes a block's length, and its address if it has to: its pages move, and no byte is copied. What is new is
    /// zero. The new place is aligned to a page; a block that needs more has to be copied by its user. `None` if the system
    /// refuses or the address begins no block; the old block stays.
    ///
    /// # Safety
    ///
    /// Only the caller uses the block. If the result is `Some`, only that is used from then on.
    #[must_use]
    pub unsafe fn remap_block(&self, block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.max(1).checked_next_multiple_of(os::page_bytes())?;
        // Out of the table meanwhile: the old address may be another mapping's as soon as the system has moved this one.
        let old = self.blocks.borrow(block.addr().get())?;
        let moved = match self.blocks.guard() {
            // SAFETY: B2 of `blocks`, and only the caller uses the block.
            0 => unsafe { os::remap(block, old.bytes, bytes) },
            // SAFETY: as above; blocks have such guards.
            guard => unsafe { os::remap_guarded(block, old.bytes, bytes, guard) },
        };
        let (now, new) = match moved {
            Some(moved) => {
                let address = moved.expose_provenance().get();
                (Block { address, bytes }, Some(moved))
            }
            None => (old, None),
        };
        self.blocks.put_back(now);
        new
    }

    /// Number of blocks, and their bytes together; zeros for a signal handler that interrupted a call about them.
    #[must_use]
    pub fn mapped_blocks(&self) -> (usize, usize) {
        self.blocks.totals().unwrap_or_default()
    }

    /// Keeps other threads from the table of blocks, for a fork; `false` if the calling thread is inside a call about
    /// blocks, which it interrupted. [`HostMachine::release_blocks`] ends it.
    pub fn hold_blocks(&self) -> bool {
        self.blocks.hold()
    }

    /// Ends what [`HostMachine::hold_blocks`] began, in the parent and in the child; nothing if it returned `false`.
    ///
    /// # Safety
    ///
    /// The calling thread, or the one that forked it, has called `hold_blocks`.
    pub unsafe fn release_blocks(&self) {
        self.blocks.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> HostMachine {
        let builder = HostMachine::builder().memory_bytes(64 << 20);
        builder.build().expect("address space")
    }

    fn fill(block: NonNull<u8>, bytes: usize, value: u8) {
        // SAFETY: the test's own block has this many bytes.
        unsafe { block.write_bytes(value, bytes) };
    }

    fn last(block: NonNull<u8>, bytes: usize) -> u8 {
        // SAFETY: as in `fill`; the block is zero-filled or written.
        unsafe { block.as_ptr().wrapping_add(bytes - 1).read() }
    }

    #[test]
    fn blocks_come_aligned_and_go() {
        let machine = machine();
        let mut blocks = Vec::new();
        for align_shift in [0, 12, 13, 16, 21, 22] {
            let align = 1 << align_shift;
            let block = machine
                .map_block(300_001, align, true)
                .expect("address space");
            assert!(block.addr().get().is_multiple_of(align));
            let bytes = machine.block_bytes(block).expect("a block");
            assert!((300_001..300_001 + os::page_bytes()).contains(&bytes));
            assert_eq!(last(block, bytes), 0);
            fill(block, bytes, 1);
            blocks.push(block);
        }
        assert_eq!(machine.mapped_blocks().0, blocks.len());
        for block in blocks {
            let inside = NonNull::new(block.as_ptr().wrapping_add(4096)).expect("an address");
            // SAFETY: an address inside a block begins none, so nothing is unmapped.
            assert!(!unsafe { machine.unmap_block(inside) });
            // SAFETY: the block is the test's, and not used any more.
            assert!(unsafe { machine.unmap_block(block) });
            // SAFETY: nothing is unmapped: the address begins no block any more.
            assert!(!unsafe { machine.unmap_block(block) });
        }
        assert_eq!(machine.mapped_blocks(), (0, 0));
    }

    /// A kept block serves again as it is, but not where zeros are asked for.
    #[test]
    fn kept_blocks_serve_again() {
        let machine = machine();
        machine.keep_blocks(1 << 20);
        let bytes = 100 * os::page_bytes();
        let _in_use = machine
            .map_block(20 * bytes, 1, true)
            .expect("address space");
        let in_use = machine.mapped_blocks();
        let block = machine.map_block(bytes, 1, false).expect("address space");
        fill(block, bytes, 3);
        // SAFETY: the block is the test's, and not used any more.
        assert!(unsafe { machine.unmap_block(block) });
        assert_eq!(machine.mapped_blocks(), in_use);
        let zeros = machine.map_block(bytes, 1, true).expect("address space");
        assert_eq!(last(zeros, bytes), 0);
        assert_eq!(machine.map_block(bytes, 1, false), Some(block));
        assert_eq!(last(block, bytes), 3);
        for block in [block, zeros] {
            // SAFETY: as above.
            assert!(unsafe { machine.unmap_block(block) });
        }
        assert_eq!(machine.return_kept_blocks(), 2 * bytes);
        assert_eq!(machine.return_kept_blocks(), 0);
    }

    /// True if a byte can be read: the system says so without a signal.
    fn is_open(address: usize) -> bool {
        let mut ends = [0; 2];
        // SAFETY: the array can be written.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let byte = core::ptr::without_provenance(address);
        // SAFETY: the system refuses what cannot be read.
        let written = unsafe { libc::write(ends[1], byte, 1) };
        for end in ends {
            // SAFETY: the test's own.
            unsafe { libc::close(end) };
        }
        written == 1
    }

    /// The bytes on either side cannot be read, nor a block that was freed and is kept.
    #[test]
    fn guards_surround_blocks() {
        let machine = machine();
        machine.guard_blocks();
        let page = os::page_bytes();
        machine.keep_blocks(100 * page);
        let _in_use = machine.map_block(800 * page, 1, true).expect("space");
        let in_use = machine.mapped_blocks();
        for align in [1, page, 16 * page] {
            let block = machine
                .map_block(3 * page, align, true)
                .expect("address space");
            assert!(block.addr().get().is_multiple_of(align));
            fill(block, 3 * page, 7);
            let start = block.addr().get();
            let all = [start - 1, start, start + 3 * page - 1, start + 3 * page];
            assert_eq!(all.map(is_open), [false, true, true, false]);
            // SAFETY: the test uses the new block only.
            let longer = unsafe { machine.remap_block(block, 5 * page) }.expect("space");
            let start = longer.addr().get();
            let all = [start - 1, start, start + 5 * page - 1, start + 5 * page];
            assert_eq!(all.map(is_open), [false, true, true, false]);
            assert_eq!((last(longer, 3 * page), last(longer, 5 * page)), (7, 0));
            // SAFETY: the block is not used any more.
            assert!(unsafe { machine.unmap_block(longer) });
            assert!(!is_open(start));
            // Others are too long or too short.
            for pages in [4, 6] {
                let other = machine.map_block(pages * page, 1, false).expect("space");
                assert_ne!(other, longer);
                // SAFETY: as above.
                assert!(unsafe { machine.unmap_block(other) });
            }
            assert_eq!(machine.map_block(5 * page, 1, false), Some(longer));
            fill(longer, 5 * page, 1);
            // SAFETY: as above.
            assert!(unsafe { machine.unmap_block(longer) });
            machine.return_kept_blocks();
        }
        assert_eq!(machine.mapped_blocks(), in_use);
    }

    #[test]
    fn a_block_grows_and_keeps_its_bytes() {
        let machine = machine();
        let page = os::page_bytes();
        let block = machine.map_block(page, 1, true).expect("address space");
        fill(block, page, 7);
        // SAFETY: the block is the test's, which uses the new one only.
        let block = unsafe { machine.remap_block(block, 100 * page) }.expect("address space");
        assert_eq!((last(block, page), last(block, 100 * page)), (7, 0));
        // SAFETY: as above.
        let block = unsafe { machine.remap_block(block, page) }.expect("less");
        assert_eq!(last(block, page), 7);
        assert_eq!(machine.mapped_blocks(), (1, page));
        // SAFETY: a size that no system has changes nothing.
        assert_eq!(unsafe { machine.remap_block(block, usize::MAX / 2) }, None);
        assert_eq!(machine.block_bytes(block), Some(page));
    }
}
