//! Blocks of a reserved range, for structures that live long: caches, nodes, per-CPU slots.
//!
//! Sizes are rounded up to powers of two; a freed block waits on the list of its size. That wastes
//! up to half of a block and never searches, which suits a few thousand structures that come and
//! go rarely.

use core::ptr::NonNull;

use super::{LockClass, Machine, RawRange, SpinLock};

/// Smallest block in bytes: one cache line, so that blocks never share one.
const MIN_BLOCK_SHIFT: u32 = 6;
const CLASSES: usize = 32;

/// A range that hands out blocks.
pub(crate) struct Region {
    range: RawRange,
    state: SpinLock<State>,
}

struct State {
    /// Bytes handed out so far from the start of the range.
    used: usize,
    /// Heads of the lists of freed blocks by class; the link is the block's first word.
    free: [Option<NonNull<u8>>; CLASSES],
}

// SAFETY: the pointers are addresses inside a range that the region alone hands out; they are
// only followed under the region's lock.
unsafe impl Send for State {}
// SAFETY: the range is fixed, all mutable state is behind the lock.
unsafe impl Sync for Region {}
// SAFETY: the range is fixed and not bound to a thread; the state is `Send`.
unsafe impl Send for Region {}

impl Region {
    /// A region over a zero-filled range that no other code uses.
    ///
    /// # Safety
    ///
    /// M2 holds for the range, and this is the only region over it.
    pub(crate) unsafe fn new(range: RawRange) -> Self {
        let state = State {
            used: 0,
            free: [None; CLASSES],
        };
        Self {
            range,
            state: SpinLock::new(LockClass::Region, state),
        }
    }

    /// The first byte of the range.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.range.base
    }

    fn class(bytes: usize) -> (usize, usize) {
        let shift = bytes
            .next_power_of_two()
            .trailing_zeros()
            .max(MIN_BLOCK_SHIFT);
        ((shift - MIN_BLOCK_SHIFT) as usize, 1 << shift)
    }

    /// A zero-filled block of at least `bytes`, aligned to its size up to 4096. `None` when full.
    pub(crate) fn alloc<M: Machine>(&self, machine: &M, bytes: usize) -> Option<NonNull<u8>> {
        let (class, block_bytes) = Self::class(bytes);
        let mut state = self.state.lock(machine)?;
        if let Some(block) = *state.free.get(class)? {
            let link = block.cast::<Option<NonNull<u8>>>();
            // SAFETY: a block on the list is at least 64 bytes, aligned to that, and its first
            // word is the link that `free` wrote.
            state.free[class] = unsafe { link.read() };
            // SAFETY: the block's first word is this call's, now that the block is off the list; zeroing it restores
            // the all-zero promise.
            unsafe { block.write_bytes(0, size_of::<usize>()) };
            return Some(block);
        }
        let start = state.used.next_multiple_of(block_bytes.min(4096));
        let end = start.checked_add(block_bytes)?;
        if end > self.range.bytes {
            return None;
        }
        state.used = end;
        // SAFETY: start < range.bytes.
        Some(unsafe { self.range.base.byte_add(start) })
    }

    /// Takes back a block.
    ///
    /// # Safety
    ///
    /// `alloc` returned it for the same number of bytes, no code uses it any more, and all its
    /// bytes are zero.
    pub(crate) unsafe fn free<M: Machine>(&self, machine: &M, block: NonNull<u8>, bytes: usize) {
        let (class, _) = Self::class(bytes);
        // On re-entry the block is lost, which only a signal handler that destroys caches can
        // bring about.
        let Some(mut state) = self.state.lock(machine) else {
            return;
        };
        // SAFETY: the caller hands over a block of at least 64 bytes, aligned to that.
        unsafe { block.cast::<Option<NonNull<u8>>>().write(state.free[class]) };
        state.free[class] = Some(block);
    }

    /// Bytes handed out so far, freed blocks included.
    pub(crate) fn used_bytes<M: Machine>(&self, machine: &M) -> usize {
        self.state.lock(machine).map_or(0, |state| state.used)
    }
}
