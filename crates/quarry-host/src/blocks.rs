//! Blocks of address space of their own, for requests that no block of pages holds.
//!
//! # Idea
//!
//! A block is a mapping of the system's, and a table finds its length by its address: nothing in front of a block, nor
//! any other memory that an address leads to, is read to tell a block from a mistake. The table is open addressing in a
//! mapping of its own, which doubles; a removal moves later entries up, so that no place is wasted. One lock is enough: a
//! block is at least millions of bytes, whose page faults cost more than any wait here. System calls for blocks are made
//! without it.
//!
//! # Invariants
//!
//! * **B1** The table's memory is used by the lock's owner alone. No code under the lock allocates,
//!   waits or calls back.
//! * **B2** An entry is a mapping of this table's machine, of that address and length, from before it is returned until it
//!   is taken out; who takes it out unmaps it.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::machine::HostMachine;
use crate::os;
use crate::thread_lock::ThreadLock;

/// Entries of a new table: a page of them.
const ENTRIES_MIN: usize = 256;

/// A block; free if its address is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    address: usize,
    bytes: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Blocks {
    lock: ThreadLock,
    /// The lock's owner has it for a fork.
    held: AtomicBool,
    table: UnsafeCell<Table>,
}

// SAFETY: `table` is only reached by the lock's owner (B1); the addresses in it are passed on, never followed.
unsafe impl Sync for Blocks {}
// SAFETY: as for `Sync`.
unsafe impl Send for Blocks {}

#[derive(Debug)]
struct Table {
    /// A power of two of entries, in a mapping; dangling with none.
    entries: NonNull<Block>,
    room: usize,
    used: usize,
    /// Entries that are out while their blocks move, and come back.
    pledged: usize,
    /// Sum of the entries' lengths.
    bytes: usize,
}

impl Table {
    const NEW: Self = Self {
        entries: NonNull::dangling(),
        room: 0,
        used: 0,
        pledged: 0,
        bytes: 0,
    };

    fn entries(&self) -> &[Block] {
        // SAFETY: `grow` mapped this many entries, zero-filled, which are all blocks; with none the pointer dangles,
        // aligned.
        unsafe { core::slice::from_raw_parts(self.entries.as_ptr(), self.room) }
    }

    fn entries_mut(&mut self) -> &mut [Block] {
        // SAFETY: as in `entries`; the table is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.entries.as_ptr(), self.room) }
    }

    /// The place at which a search begins. There is room.
    fn first_place(&self, address: usize) -> usize {
        // Fibonacci hashing: blocks begin at pages, mostly at large powers of two.
        let hash = (address as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.room - 1)
    }

    /// The place of a block, or the free one where its search ends.
    fn place(&self, address: usize) -> Option<usize> {
        let mut at = (self.room > 0).then(|| self.first_place(address))?;
        // A quarter of the places is free.
        while self.entries()[at].address != address && self.entries()[at].address != 0 {
            at = (at + 1) & (self.room - 1);
        }
        Some(at)
    }

    fn find(&self, address: usize) -> Option<Block> {
        let block = self.entries()[self.place(address)?];
        (block.address != 0).then_some(block)
    }

    /// Makes room for one more. `false` if the system has no memory for it.
    fn reserve(&mut self) -> bool {
        if (self.used + self.pledged + 1) * 4 <= self.room * 3 {
            return true;
        }
        let room = (self.room * 2).max(ENTRIES_MIN);
        let Some(entries) = os::map(room * size_of::<Block>()) else {
            return false;
        };
        let larger = Self {
            entries: entries.cast(),
            room,
            pledged: self.pledged,
            ..Self::NEW
        };
        let old = core::mem::replace(self, larger);
        for block in old.entries().iter().filter(|block| block.address != 0) {
            self.insert(*block);
        }
        old.unmap();
        true
    }

    /// Adds a block for which there is room.
    fn insert(&mut self, block: Block) {
        if let Some(at) = self.place(block.address) {
            debug_assert_eq!(self.entries()[at].address, 0, "a mapping twice");
            self.entries_mut()[at] = block;
            self.used += 1;
            self.bytes += block.bytes;
        }
    }

    fn remove(&mut self, address: usize) -> Option<Block> {
        let removed = self.find(address)?;
        let mut gap = self.place(address)?;
        let mask = self.room - 1;
        let mut at = gap;
        // Later entries of the same run move up if the gap is not in front of their own first place.
        loop {
            at = (at + 1) & mask;
            let block = self.entries()[at];
            if block.address == 0 {
                break;
            }
            let from_first = at.wrapping_sub(self.first_place(block.address)) & mask;
            if from_first >= at.wrapping_sub(gap) & mask {
                self.entries_mut()[gap] = block;
                gap = at;
            }
        }
        self.entries_mut()[gap] = Block {
            address: 0,
            bytes: 0,
        };
        self.used -= 1;
        self.bytes -= removed.bytes;
        Some(removed)
    }

    /// Returns the table's own memory.
    fn unmap(&self) {
        if self.room > 0 {
            // SAFETY: `reserve` mapped these bytes for this table, which is used no more.
            unsafe { os::unmap(self.entries.cast(), self.room * size_of::<Block>()) };
        }
    }
}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self {
            lock: ThreadLock::new(),
            held: AtomicBool::new(false),
            table: UnsafeCell::new(Table::NEW),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Table) -> Option<R>) -> Option<R> {
        if !self.lock.take() {
            return None;
        }
        // SAFETY: B1 - `take` made this thread the table's only user, and a second use by the same thread is refused.
        let result = f(unsafe { &mut *self.table.get() });
        self.lock.give_back();
        result
    }

    /// Notes a mapping; `false` if there is no room.
    fn add(&self, block: Block) -> bool {
        let added = self.with(|table| table.reserve().then(|| table.insert(block)));
        added.is_some()
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let table = self.table.get_mut();
        for block in table.entries().iter().filter(|block| block.address != 0) {
            if let Some(address) =
                NonNull::new(core::ptr::with_exposed_provenance_mut(block.address))
            {
                // SAFETY: B2; the machine's owner, who drops it, promises that nothing uses its memory any more.
                unsafe { os::unmap(address, block.bytes) };
            }
        }
        table.unmap();
    }
}

impl HostMachine {
    /// Maps a zero-filled block of its own, of at least these bytes, aligned to `align`, a power of two. `None` if the
    /// system has no address space or memory for it, or if the caller is a signal handler that interrupted such a call.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry_host::HostMachine;
    ///
    /// let machine = HostMachine::builder().memory_bytes(64 << 20).build()?;
    /// let block = machine.map_block(5_000_000, 4096).expect("address space");
    /// assert!(machine.block_bytes(block).is_some_and(|bytes| bytes >= 5_000_000));
    /// // SAFETY: no code uses the block.
    /// assert!(unsafe { machine.unmap_block(block) });
    /// # Ok::<(), quarry_host::HostError>(())
    /// ```
    #[must_use]
    pub fn map_block(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let page = os::page_bytes();
        let bytes = bytes.max(1).checked_next_multiple_of(page)?;
        let mapped = if align <= page {
            os::map(bytes)?
        } else {
            os::map_aligned(bytes, align, page)?
        };
        let address = mapped.expose_provenance().get();
        if self.blocks.add(Block { address, bytes }) {
            return Some(mapped);
        }
        // SAFETY: mapped just now, and no code has seen it.
        unsafe { os::unmap(mapped, bytes) };
        None
    }

    /// Bytes of a block of [`HostMachine::map_block`]; `None` if the address begins none of this machine's.
    #[must_use]
    pub fn block_bytes(&self, block: NonNull<u8>) -> Option<usize> {
        let address = block.addr().get();
        self.blocks
            .with(|table| table.find(address))
            .map(|block| block.bytes)
    }

    /// Returns a block to the system; `false` if the address begins none.
    ///
    /// # Safety
    ///
    /// The block has no user left.
    pub unsafe fn unmap_block(&self, block: NonNull<u8>) -> bool {
        let address = block.addr().get();
        let Some(removed) = self.blocks.with(|table| table.remove(address)) else {
            return false;
        };
        // SAFETY: B2, and the caller vouches that the block has no user left.
        unsafe { os::unmap(block, removed.bytes) };
        true
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
        let address = block.addr().get();
        // Out of the table meanwhile: the old address may be another mapping's as soon as the system has moved this one.
        let old = self.blocks.with(|table| {
            let old = table.remove(address)?;
            table.pledged += 1;
            Some(old)
        })?;
        // SAFETY: B2, and only the caller uses the block.
        let moved = unsafe { os::remap(block, old.bytes, bytes) };
        let (now, new) = match moved {
            Some(moved) => {
                let address = moved.expose_provenance().get();
                (Block { address, bytes }, Some(moved))
            }
            None => (old, None),
        };
        let back = self.blocks.with(|table| {
            table.pledged -= 1;
            table.insert(now);
            Some(())
        });
        debug_assert!(back.is_some(), "this thread does not have the table");
        new
    }

    /// Number of blocks, and their bytes together; zeros for a signal handler that interrupted a call about them.
    #[must_use]
    pub fn mapped_blocks(&self) -> (usize, usize) {
        let counted = self.blocks.with(|table| Some((table.used, table.bytes)));
        counted.unwrap_or_default()
    }

    /// Keeps other threads from the table of blocks, for a fork; `false` if the calling thread is inside a call about
    /// blocks, which it interrupted. [`HostMachine::release_blocks`] ends it.
    pub fn hold_blocks(&self) -> bool {
        let taken = self.blocks.lock.take();
        if taken {
            // Relaxed: of this thread, and its copy in a child.
            self.blocks.held.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Ends what [`HostMachine::hold_blocks`] began, in the parent and in the child; nothing if it returned `false`.
    ///
    /// # Safety
    ///
    /// The calling thread, or the one that forked it, has called `hold_blocks`.
    pub unsafe fn release_blocks(&self) {
        if self.blocks.held.swap(false, Ordering::Relaxed) {
            self.blocks.lock.give_back();
        }
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
            let block = machine.map_block(300_001, align).expect("address space");
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

    #[test]
    fn a_block_grows_and_keeps_its_bytes() {
        let machine = machine();
        let page = os::page_bytes();
        let block = machine.map_block(page, 1).expect("address space");
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

    /// More blocks than a table begins with, taken out in another order: each is found until it goes.
    #[test]
    fn the_table_grows_and_closes_its_gaps() {
        let mut table = Table::NEW;
        let mut seed = 1_u64;
        let mut known = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let address = ((seed >> 40) as usize % 3000 + 1) << 12;
            match known.remove(&address) {
                Some(bytes) => assert_eq!(table.remove(address), Some(Block { address, bytes })),
                None => {
                    assert_eq!(table.remove(address), None);
                    let bytes = (seed >> 20) as usize % 100;
                    assert!(table.reserve());
                    table.insert(Block { address, bytes });
                    known.insert(address, bytes);
                }
            }
            assert_eq!(table.used, known.len());
        }
        assert_eq!(table.bytes, known.values().sum::<usize>());
        for (&address, &bytes) in &known {
            assert_eq!(table.find(address), Some(Block { address, bytes }));
        }
        assert!(table.room >= 2048, "{}", table.room);
        table.unmap();
    }
}
