//! Costs of a machine with a clock.

use quarry_core::machine::{LockClass, Work};

use super::{LineCosts, LockKind};

/// The costs of a machine, in picoseconds where no other unit is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeModel {
    /// Accesses to memory.
    pub lines: LineCosts,
    /// Work without memory, in the order of [`Work::ALL`].
    pub work: [u64; Work::COUNT],
    /// 1024 bytes filled with zeros, or copied; fetching the lines is extra.
    pub fill_kib: u64,
    /// Kind of its spin locks. The lock of one slab ([`LockClass::Slab`]) is a bit in a word of its descriptor, so it
    /// is [`LockKind::TestAndSet`] with all of them.
    pub locks: LockKind,
    /// Decides what is left to chance: in which order spinners fetch a line.
    pub seed: u64,
}

impl TimeModel {
    /// Kind of the locks of a class.
    #[must_use]
    pub fn lock_kind(&self, class: LockClass) -> LockKind {
        match class {
            LockClass::Slab => LockKind::TestAndSet,
            _ => self.locks,
        }
    }
}
