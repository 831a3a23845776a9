//! Blocks of address space of their own, for requests that no block of pages holds.
//!
//! # Idea
//!
//! A block is a mapping of the system's, and a table finds its length by its address: nothing in front of a block, nor
//! any other memory that an address leads to, is read to tell a block from a mistake. The table is open addressing in a
//! mapping of its own, which doubles; a removal moves later entries up, so that no place is wasted. One lock is enough: a
//! block is mostly millions of bytes, whose page faults cost more than any wait here. System calls for blocks are made
//! without it.
//!
//! A machine may keep freed blocks ([`Blocks::keep`]), since mapping one and touching its pages costs milliseconds. They are
//! in a list of their own, the oldest first, and go when newer ones need their room, or when a block is mapped or freed a
//! while later. A program that has shrunk should not hold them: beyond an eighth of the bytes in use, blocks are kept only
//! while requests are *missed*, that is when they have the size of a block that was returned just before.
//!
//! # Invariants
//!
//! * **B1** The table's memory is used by the lock's owner alone. No code under the lock allocates,
//!   waits or calls back.
//! * **B2** An entry is a mapping of this table's machine, of that address and length, from before it is returned until it
//!   is taken out; who takes it out unmaps it. So is a kept block, which is no entry.

use core::cell::UnsafeCell;
use core::ops::RangeInclusive;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::os;
use crate::thread_lock::ThreadLock;

/// Entries of a new table: a page of them.
const ENTRIES_MIN: usize = 256;

/// Freed blocks that a machine keeps at most.
const KEPT: usize = 32;
/// Part of the bytes in use that freed blocks may have where it is more than what was missed.
const KEPT_PART: usize = 8;
/// Longest time that a block is kept while others are mapped and freed, and that a miss counts, in nanoseconds.
pub(crate) const KEPT_NS: u64 = 1_000_000_000;

/// A block; free if its address is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// Outcome of [`Blocks::keep`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The block is kept.
    Done,
    /// An older one, which is the caller's to unmap, has gone in its favour: to be tried again.
    After(Block),
    /// It is the caller's to unmap: it is larger than all that may be kept now, or the calling thread has the table.
    Refused,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Blocks {
    lock: ThreadLock,
    /// The lock's owner has it for a fork.
    held: AtomicBool,
    /// Bytes on either side of each block that cannot be accessed; set while there is none.
    guard: AtomicUsize,
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
    /// Freed blocks, the oldest first, and then none.
    kept: [Block; KEPT],
    /// The times at which they were freed, in nanoseconds.
    kept_since: [u64; KEPT],
    /// Sum of their lengths.
    kept_bytes: usize,
    /// Bound of that sum where it is more than an eighth of the bytes in use; 0 if none is to be kept.
    kept_most: usize,
    /// Lengths of freed blocks that were not kept; the next overwrites that of `next_returned`.
    returned: [usize; KEPT],
    next_returned: usize,
    /// Bytes of requests that would have had a block which was returned, and the time of the last, in nanoseconds.
    missed_bytes: usize,
    missed_ns: u64,
}

impl Block {
    const NONE: Self = Self {
        address: 0,
        bytes: 0,
    };

    fn is_some(&self) -> bool {
        self.address != 0
    }
}

impl Table {
    const NEW: Self = Self {
        entries: NonNull::dangling(),
        room: 0,
        used: 0,
        pledged: 0,
        bytes: 0,
        kept: [Block::NONE; KEPT],
        kept_since: [0; KEPT],
        kept_bytes: 0,
        kept_most: 0,
        returned: [0; KEPT],
        next_returned: 0,
        missed_bytes: 0,
        missed_ns: 0,
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
        while self.entries()[at].address != address && self.entries()[at].is_some() {
            at = (at + 1) & (self.room - 1);
        }
        Some(at)
    }

    fn find(&self, address: usize) -> Option<Block> {
        let block = self.entries()[self.place(address)?];
        block.is_some().then_some(block)
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
        let old = Self {
            entries: self.entries,
            room: self.room,
            ..Self::NEW
        };
        (self.entries, self.room) = (entries.cast(), room);
        (self.used, self.bytes) = (0, 0);
        for block in old.entries().iter().filter(|block| block.is_some()) {
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
            if !block.is_some() {
                break;
            }
            let from_first = at.wrapping_sub(self.first_place(block.address)) & mask;
            if from_first >= at.wrapping_sub(gap) & mask {
                self.entries_mut()[gap] = block;
                gap = at;
            }
        }
        self.entries_mut()[gap] = Block::NONE;
        self.used -= 1;
        self.bytes -= removed.bytes;
        Some(removed)
    }

    /// Takes a kept block out.
    fn take_kept(&mut self, at: usize) -> Block {
        self.kept[at..].rotate_left(1);
        self.kept_since[at..].rotate_left(1);
        let taken = core::mem::replace(&mut self.kept[KEPT - 1], Block::NONE);
        self.kept_bytes -= taken.bytes;
        taken
    }

    /// Notes the length of a freed block that is not kept.
    fn note_returned(&mut self, bytes: usize) {
        self.returned[self.next_returned] = bytes;
        self.next_returned = (self.next_returned + 1) % KEPT;
    }

    /// Notes that no kept block has one of these lengths, if one that was returned had.
    fn note_miss(&mut self, lengths: &RangeInclusive<usize>, now_ns: u64) {
        let missed = self.missed(now_ns);
        let mut returned = self.returned.iter_mut();
        if let Some(bytes) = returned.find(|bytes| lengths.contains(bytes)) {
            self.missed_bytes = missed.saturating_add(*bytes);
            (*bytes, self.missed_ns) = (0, now_ns);
        }
    }

    /// Bytes that were missed of late.
    fn missed(&self, now_ns: u64) -> usize {
        match now_ns.saturating_sub(self.missed_ns) <= KEPT_NS {
            true => self.missed_bytes,
            false => 0,
        }
    }

    /// Bytes that freed blocks may have together now.
    fn may_keep(&self, now_ns: u64) -> usize {
        match self.kept_most {
            0 => 0,
            most => self.missed(now_ns).min(most).max(self.bytes / KEPT_PART),
        }
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
            guard: AtomicUsize::new(0),
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

    /// Puts bytes that cannot be accessed, whole pages, on either side of each later block.
    pub(crate) fn set_guard(&self, bytes: usize) {
        self.guard.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of a guard; 0 for none.
    pub(crate) fn guard(&self) -> usize {
        self.guard.load(Ordering::Relaxed)
    }

    /// Returns a block that is in no table to the system, with its guards.
    ///
    /// # Safety
    ///
    /// The block was mapped with the guards of this table (B2), and has no user left.
    pub(crate) unsafe fn unmap(&self, block: Block) {
        let guard = self.guard();
        let start = core::ptr::with_exposed_provenance_mut(block.address.wrapping_sub(guard));
        if let Some(start) = NonNull::new(start) {
            // SAFETY: the caller vouches for the block; its guards are mapped with it.
            unsafe { os::unmap(start, block.bytes + 2 * guard) };
        }
    }

    /// Notes a mapping; `false` if there is no room, or if the calling thread has the table.
    pub(crate) fn add(&self, block: Block) -> bool {
        let added = self.with(|table| table.reserve().then(|| table.insert(block)));
        added.is_some()
    }

    /// The block that begins at an address.
    pub(crate) fn find(&self, address: usize) -> Option<Block> {
        self.with(|table| table.find(address))
    }

    /// Takes a block out: the caller's to unmap.
    pub(crate) fn remove(&self, address: usize) -> Option<Block> {
        self.with(|table| table.remove(address))
    }

    /// Takes a block out that comes back: [`Blocks::put_back`].
    pub(crate) fn borrow(&self, address: usize) -> Option<Block> {
        self.with(|table| {
            let block = table.remove(address)?;
            table.pledged += 1;
            Some(block)
        })
    }

    /// Notes what a borrowed block has become, for which there is room.
    pub(crate) fn put_back(&self, block: Block) {
        let back = self.with(|table| {
            table.pledged -= 1;
            table.insert(block);
            Some(())
        });
        debug_assert!(back.is_some(), "this thread does not have the table");
    }

    /// Bounds the bytes of freed blocks that are kept as they were missed; 0 keeps none at all.
    pub(crate) fn set_kept_most(&self, bytes: usize) {
        let set = self.with(|table| {
            table.kept_most = bytes;
            Some(())
        });
        debug_assert!(set.is_some(), "this thread does not have the table");
    }

    /// Makes a kept block of at least these bytes, and a quarter more at most, one of the table's again: the smallest. Without
    /// one, notes what is missed.
    pub(crate) fn reuse(&self, bytes: usize, align: usize, now_ns: u64) -> Option<Block> {
        // Behind a longer one the guard would be too far away.
        let more = if self.guard() == 0 { bytes / 4 } else { 0 };
        self.with(|table| {
            let lengths = bytes..=bytes.saturating_add(more);
            let fits = |block: &Block| {
                lengths.contains(&block.bytes) && block.address.is_multiple_of(align)
            };
            let found = table
                .kept
                .iter()
                .enumerate()
                .filter(|(_, block)| fits(block));
            let Some((at, _)) = found.min_by_key(|(_, block)| block.bytes) else {
                table.note_miss(&lengths, now_ns);
                return None;
            };
            table.reserve().then(|| {
                let block = table.take_kept(at);
                table.insert(block);
                block
            })
        })
    }

    /// Keeps a block that was taken out of the table, or says what has to go first.
    pub(crate) fn keep(&self, block: Block, now_ns: u64) -> Keep {
        let answer = self.with(|table| {
            let most = table.may_keep(now_ns);
            if block.bytes > most {
                table.note_returned(block.bytes);
                return None;
            }
            if table.kept[KEPT - 1].is_some() || table.kept_bytes + block.bytes > most {
                let older = table.take_kept(0);
                table.note_returned(older.bytes);
                return Some(Keep::After(older));
            }
            let place = table.kept.iter().position(|place| !place.is_some())?;
            (table.kept[place], table.kept_since[place]) = (block, now_ns);
            table.kept_bytes += block.bytes;
            Some(Keep::Done)
        });
        answer.unwrap_or(Keep::Refused)
    }

    /// Takes the oldest kept block out, if it was freed by then: the caller's to unmap.
    pub(crate) fn forget_kept(&self, until_ns: u64) -> Option<Block> {
        self.with(|table| {
            let is_due = table.kept[0].is_some() && table.kept_since[0] <= until_ns;
            is_due.then(|| table.take_kept(0))
        })
    }

    /// Number of blocks, and their bytes together.
    pub(crate) fn totals(&self) -> Option<(usize, usize)> {
        self.with(|table| Some((table.used, table.bytes)))
    }

    /// Keeps other threads from the table for a fork; `false` if the calling thread has it.
    pub(crate) fn hold(&self) -> bool {
        let taken = self.lock.take();
        if taken {
            // Relaxed: of this thread, and its copy in a child.
            self.held.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Ends what [`Blocks::hold`] began, by the same thread or its copy in a child; nothing if it returned `false`.
    pub(crate) fn release(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            self.lock.give_back();
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let table = core::mem::replace(self.table.get_mut(), Table::NEW);
        let all = table.entries().iter().chain(&table.kept);
        for block in all.filter(|block| block.is_some()) {
            // SAFETY: B2; the machine's owner, who drops it, promises that nothing uses its memory any more.
            unsafe { self.unmap(*block) };
        }
        table.unmap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: usize, bytes: usize) -> Block {
        Block {
            address: number << 21,
            bytes,
        }
    }

    /// A table that has missed this number of bytes at time 7.
    fn that_missed(bytes: usize) -> core::mem::ManuallyDrop<Blocks> {
        let blocks = core::mem::ManuallyDrop::new(Blocks::new());
        blocks.set_kept_most(1000);
        assert_eq!(blocks.keep(block(99, bytes), 7), Keep::Refused);
        assert_eq!(blocks.reuse(bytes, 1, 7), None);
        blocks
    }

    fn unmap_table(blocks: &Blocks) {
        blocks.with(|table| {
            table.unmap();
            Some(())
        });
    }

    /// The oldest blocks go for newer ones; a block serves requests of its size and a fifth less, and only one at a time.
    #[test]
    fn freed_blocks_are_kept_within_a_bound() {
        let blocks = that_missed(2000);
        assert_eq!(blocks.keep(block(1, 1001), 7), Keep::Refused);
        for number in 1..=4 {
            assert_eq!(blocks.keep(block(number, 250), 7), Keep::Done);
        }
        assert_eq!(blocks.keep(block(5, 300), 7), Keep::After(block(1, 250)));
        assert_eq!(blocks.keep(block(5, 300), 7), Keep::After(block(2, 250)));
        assert_eq!(blocks.keep(block(5, 300), 7), Keep::Done);
        for (bytes, align) in [(199, 1), (301, 1), (260, 1 << 30)] {
            assert_eq!(blocks.reuse(bytes, align, 7), None, "{bytes}");
        }
        assert_eq!(blocks.reuse(240, 1, 7), Some(block(3, 250)));
        assert_eq!(blocks.reuse(240, 1 << 21, 7), Some(block(4, 250)));
        assert_eq!(blocks.reuse(240, 1, 7), Some(block(5, 300)));
        assert_eq!(blocks.reuse(240, 1, 7), None);
        assert_eq!(blocks.totals(), Some((3, 800)));
        let taken = [3, 4, 5].map(|number| blocks.remove(number << 21));
        assert!(taken.iter().all(Option::is_some));
        // Many small ones: the bound of their number.
        for number in 0..KEPT {
            assert_eq!(blocks.keep(block(number + 1, 1), 7), Keep::Done);
        }
        assert_eq!(blocks.keep(block(99, 1), 7), Keep::After(block(1, 1)));
        assert_eq!(blocks.forget_kept(6), None);
        let rest = core::iter::from_fn(|| blocks.forget_kept(7));
        assert_eq!(rest.count(), KEPT - 1);
        unmap_table(&blocks);
    }

    /// A block that a program frees for good goes back; one that it asks for again is kept the next time, while that lasts.
    #[test]
    fn only_missed_blocks_are_kept() {
        let blocks = that_missed(250);
        assert_eq!(blocks.keep(block(1, 250), 8), Keep::Done);
        // Of the same size, which nothing missed.
        assert_eq!(blocks.keep(block(2, 250), 8), Keep::After(block(1, 250)));
        assert_eq!(blocks.keep(block(2, 250), 8), Keep::Done);
        assert_eq!(blocks.reuse(250, 1, 9), Some(block(2, 250)));
        // The block that went is missed: there is room for two now.
        assert_eq!(blocks.reuse(250, 1, 9), None);
        for number in [2, 3] {
            blocks.remove(number << 21);
            assert_eq!(blocks.keep(block(number, 250), 10), Keep::Done);
        }
        // No size of what was returned.
        assert_eq!(blocks.reuse(400, 1, 11), None);
        assert_eq!(blocks.keep(block(4, 600), 12), Keep::Refused);
        // A second without a miss forgets.
        let later = 10 + KEPT_NS;
        assert_eq!(blocks.keep(block(5, 100), later), Keep::Refused);
        unmap_table(&blocks);
    }

    /// An eighth of the bytes in use is kept without a miss.
    #[test]
    fn a_large_program_keeps_an_eighth() {
        let blocks = core::mem::ManuallyDrop::new(Blocks::new());
        blocks.set_kept_most(1);
        assert!(blocks.add(block(1, 8000)));
        assert_eq!(blocks.keep(block(2, 1001), 7), Keep::Refused);
        assert_eq!(blocks.keep(block(2, 1000), 7), Keep::Done);
        blocks.set_kept_most(0);
        assert_eq!(blocks.keep(block(3, 1), 7), Keep::Refused);
        unmap_table(&blocks);
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
