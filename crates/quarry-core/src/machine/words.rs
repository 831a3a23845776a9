//! The words of locks and slots, which machines themselves read and write.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// The calling thread already holds the lock: it runs in a signal handler that interrupted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// A lock word: 0 when free, else a value that identifies the owner to its machine.
#[derive(Debug)]
#[repr(transparent)]
pub struct RawLock {
    owner: AtomicUsize,
}

impl RawLock {
    /// A free lock.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
        }
    }

    /// A free lock.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
        }
    }

    /// Takes the lock for `owner` (not 0) if it is free.
    #[inline]
    pub fn acquire(&self, owner: usize) -> bool {
        // Acquire: pairs with the Release in `release`.
        self.owner
            .compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// The owner at this moment, 0 if free.
    #[inline]
    pub fn owner(&self) -> usize {
        self.owner.load(Ordering::Relaxed)
    }

    /// Frees the lock.
    #[inline]
    pub fn release(&self) {
        // Release: pairs with the Acquire in `acquire`.
        self.owner.store(0, Ordering::Release);
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

/// Value of a free slot word.
pub const PERCPU_FREE: u32 = 0;
/// Value of a slot word held by code that runs on the slot's own CPU.
pub const PERCPU_OWNER: u32 = 1;
/// Value of a slot word held by another CPU.
pub const PERCPU_REMOTE: u32 = 2;
/// Value of a slot word held so that the process can fork.
pub const PERCPU_QUIESCED: u32 = 3;
/// Value of a slot word held as [`PERCPU_OWNER`] says, for which another CPU waits.
pub const PERCPU_WAITED: u32 = 4;

/// The lock word at the head of every per-CPU slot.
#[derive(Debug)]
#[repr(transparent)]
pub struct SlotLock {
    word: AtomicU32,
}

impl SlotLock {
    /// A free word. Without loom all bytes of it are zero, as is the memory that slots are made in.
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU32::new(PERCPU_FREE),
        }
    }

    /// The atomic itself, for the machines that implement the protocol.
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Stores that the slot is free, for the machines that implement the protocol; all others call
    /// [`Slots::percpu_unlock`](super::Slots::percpu_unlock).
    #[inline]
    pub fn release(&self) {
        // Release: pairs with the acquisition (an Acquire load or an ordered sequence) by which
        // the next holder takes the word.
        self.word.store(PERCPU_FREE, Ordering::Release);
    }
}
