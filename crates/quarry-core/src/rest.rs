//! Bringing a cache to rest, so that a walk over its lists and objects is alone with them.
//!
//! A walk holds the cache's slots of all CPUs, then stops the gate: so no other thread is in an
//! operation on the cache, or begins one. Others wait meanwhile, so a walk takes no lock but the cache's
//! own, allocates and frees nothing, and calls no code of users: a waiting thread may hold any other
//! lock.
//!
//! A walk waits for those inside the gate while it holds the slots, and one of them may wait for a slot: a flush, or a flush
//! of another cache whose slot a thread at the stopped gate has. So a walk that finds the gate occupied for
//! long gives all back, lets them pass, and begins again.
//!
//! A signal handler of the walking thread cannot wait. It finds the slots held and passes the gate, so
//! code that follows links through objects holds the lock of the slab's node: the handler's allocation
//! fails then and its free is deferred.

use crate::design::{Busy, CheckError, Env};
use crate::machine::{HeldSlots, Machine, PerCpu, Stopped};

/// Attempts of a walk.
const ATTEMPTS: u32 = if cfg!(loom) { 1 } else { 16 };

/// A cache at rest; ends when dropped. The gate opens before the slots are free.
pub(crate) struct Rest<'a, M: Machine, T> {
    stopped: Stopped<'a>,
    slots: HeldSlots<'a, M, T>,
}

impl<'a, M: Machine, T> Rest<'a, M, T> {
    /// Brings a cache with these slots to rest. Slots come first: a thread that waits at a stopped gate
    /// may hold one.
    pub(crate) fn of(env: Env<'a, M>, cpu: &'a PerCpu<T>) -> Result<Self, Busy> {
        let ((), rest) = Self::with_others(env, cpu, || Ok(()))?;
        Ok(rest)
    }

    /// The same for a cache that has other slots too, which `hold` takes before. They are freed after the rest ends.
    pub(crate) fn with_others<S>(
        env: Env<'a, M>,
        cpu: &'a PerCpu<T>,
        hold: impl Fn() -> Result<S, Busy>,
    ) -> Result<(S, Self), Busy> {
        for _ in 0..ATTEMPTS {
            let others = hold()?;
            let slots = cpu.hold_all(env.machine()).map_err(|_| Busy)?;
            if let Some(stopped) = env.system.stop() {
                return Ok((others, Self { stopped, slots }));
            }
            drop((slots, others));
            env.system.pages.gate().let_pass(env.machine());
        }
        Err(Busy)
    }

    /// The slots that are held.
    pub(crate) fn slots(&self) -> &HeldSlots<'a, M, T> {
        &self.slots
    }

    /// The result of a check, unless a signal handler changed the cache meanwhile: then the check was busy.
    pub(crate) fn verdict(&self, checked: Result<(), CheckError>) -> Result<(), CheckError> {
        match checked {
            Err(CheckError::Inconsistent(_)) if self.stopped.disturbed() => Err(CheckError::Busy),
            checked => checked,
        }
    }
}
