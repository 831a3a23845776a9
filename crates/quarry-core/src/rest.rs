//! Bringing a cache to rest, so that a walk over its lists and objects is alone with them.
//!
//! A walk holds the slots of all CPUs of the cache and then stops the gate, so that no other thread is in
//! the middle of an operation on the cache, nor begins one. Others wait meanwhile, so a walk takes no lock
//! but the cache's own, allocates and frees nothing, and calls no code of users: who waits may hold
//! any other lock.
//!
//! A signal handler of the walking thread cannot wait. It finds the slots held and passes the gate, so
//! who follows links through objects holds the lock of the slab's node: the handler's allocation fails
//! then and its free is deferred.

use crate::design::{Env, SlabInconsistency};
use crate::machine::{HeldSlots, Machine, PerCpu, Stopped};

/// A cache could not be brought to rest in bounded time: other threads hold a CPU's slot or work
/// without one, or the calling thread itself is in the middle of an operation. Nothing was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the cache is busy and was not looked at; try again")
    }
}

impl core::error::Error for Busy {}

/// Why a walk over a cache does not say that all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The cache could not be brought to rest.
    Busy,
    /// The first contradiction.
    Inconsistent(SlabInconsistency),
}

impl CheckError {
    /// The contradiction; `None` if nothing was looked at.
    #[must_use]
    pub const fn found(&self) -> Option<&SlabInconsistency> {
        match self {
            Self::Busy => None,
            Self::Inconsistent(found) => Some(found),
        }
    }
}

impl core::fmt::Display for CheckError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Busy => Busy.fmt(f),
            Self::Inconsistent(found) => found.fmt(f),
        }
    }
}

impl core::error::Error for CheckError {}

impl From<Busy> for CheckError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

/// A cache at rest; ends when dropped. The gate opens before the slots are free.
pub(crate) struct Rest<'a, M: Machine, T> {
    stopped: Stopped<'a>,
    slots: HeldSlots<'a, M, T>,
}

impl<'a, M: Machine, T> Rest<'a, M, T> {
    /// Brings a cache with these slots to rest. Slots come first: who waits at a stopped gate may hold
    /// one.
    pub(crate) fn of(env: Env<'a, M>, cpu: &'a PerCpu<T>) -> Result<Self, Busy> {
        let slots = cpu.hold_all(env.pages.machine()).ok_or(Busy)?;
        let stopped = env.pages.stop().ok_or(Busy)?;
        Ok(Self { stopped, slots })
    }

    /// The slots that are held.
    pub(crate) fn slots(&self) -> &HeldSlots<'a, M, T> {
        &self.slots
    }

    /// What a check may say: of a cache that a signal handler changed meanwhile, nothing.
    pub(crate) fn verdict(&self, checked: Result<(), CheckError>) -> Result<(), CheckError> {
        match checked {
            Err(CheckError::Inconsistent(_)) if self.stopped.disturbed() => Err(CheckError::Busy),
            checked => checked,
        }
    }
}

impl From<SlabInconsistency> for CheckError {
    fn from(found: SlabInconsistency) -> Self {
        Self::Inconsistent(found)
    }
}
