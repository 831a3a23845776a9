//! Freed slots that stay slots for a while, for designs whose memory is otherwise anybody's at once.

use core::ptr::NonNull;

use crate::machine::{LockClass, Machine, SpinLock};

/// Slots that a cache keeps at most; another one drives the oldest out.
const KEPT_MAX: usize = 64;

struct Slots {
    /// Oldest first.
    slots: [Option<NonNull<u8>>; KEPT_MAX],
    len: usize,
}

// SAFETY: the addresses are of slots that nobody else uses (`Kept::put`).
unsafe impl Send for Slots {}

impl Slots {
    fn remove(&mut self, at: usize) -> Option<NonNull<u8>> {
        let slot = self.slots.get(at).copied().flatten()?;
        self.slots.copy_within(at + 1..self.len, at);
        self.len -= 1;
        self.slots[self.len] = None;
        Some(slot)
    }
}

/// See the [module's documentation](self).
pub(crate) struct Kept(SpinLock<Slots>);

impl Kept {
    pub(super) fn new() -> Self {
        let slots = Slots {
            slots: [None; KEPT_MAX],
            len: 0,
        };
        Self(SpinLock::new(LockClass::DebugState, slots))
    }

    /// Keeps a free slot that nobody uses. Gives the oldest one back if there are too many, or this
    /// very one if the lock is re-entered.
    pub(crate) fn put<M: Machine>(&self, machine: &M, slot: NonNull<u8>) -> Option<NonNull<u8>> {
        let Some(mut kept) = self.0.lock(machine) else {
            return Some(slot);
        };
        let oldest = match kept.len {
            KEPT_MAX => kept.remove(0),
            _ => None,
        };
        let len = kept.len;
        kept.slots[len] = Some(slot);
        kept.len += 1;
        oldest
    }

    /// Takes the newest slot that fits.
    pub(crate) fn take_newest<M: Machine>(
        &self,
        machine: &M,
        fits: impl Fn(NonNull<u8>) -> bool,
    ) -> Option<NonNull<u8>> {
        let mut kept = self.0.lock(machine)?;
        let at = kept
            .slots
            .iter()
            .rposition(|slot| slot.is_some_and(&fits))?;
        kept.remove(at)
    }

    /// Takes the oldest slot.
    pub(crate) fn take_oldest<M: Machine>(&self, machine: &M) -> Option<NonNull<u8>> {
        self.0.lock(machine)?.remove(0)
    }

    pub(crate) fn contains<M: Machine>(&self, machine: &M, slot: NonNull<u8>) -> bool {
        let kept = self.0.lock(machine);
        kept.is_some_and(|kept| kept.slots.contains(&Some(slot)))
    }

    pub(crate) fn len<M: Machine>(&self, machine: &M) -> usize {
        self.0.lock(machine).map_or(0, |kept| kept.len)
    }
}
