//! The kernel's protection of a CPU's state, and its ways to have other CPUs empty theirs.
//!
//! A slot is taken in one way, whatever the release ([`crate::machine`]). What the kernel does instead
//! costs time and differs: interrupts are turned off, preemption is, or one instruction does all. The
//! fronts of designs tell the machine of it as [`Work`].

use crate::machine::{CpuId, Machine, Work, work};

/// The kernel's protection of a call, by the path that it takes.
#[derive(Clone, Copy)]
pub(crate) struct Protection {
    /// The call finds what it needs with the CPU.
    pub(crate) hit: Work,
    /// It goes on behind the CPU's state; `None` if it leaves that alone.
    pub(crate) behind: Option<Work>,
    /// It is a bulk call; `None` if that does for each list of objects what a single call does.
    pub(crate) bulk: Option<Work>,
}

impl Protection {
    /// The same for all ways.
    pub(crate) const fn all(work: Work) -> Self {
        Self {
            hit: work,
            behind: Some(work),
            bulk: Some(work),
        }
    }

    /// Tells of a call that ends with the CPU's state.
    #[inline(always)]
    pub(crate) fn hit<M: Machine>(&self, machine: &M) {
        work(machine, self.hit);
    }

    /// Tells of a call that goes on behind it.
    #[inline(always)]
    pub(crate) fn behind<M: Machine>(&self, machine: &M) {
        if let Some(behind) = self.behind {
            work(machine, behind);
        }
    }

    /// Tells of a bulk call.
    #[inline(always)]
    pub(crate) fn bulk<M: Machine>(&self, machine: &M) {
        if let Some(bulk) = self.bulk {
            work(machine, bulk);
        }
    }
}

/// The protections of allocations and frees.
#[derive(Clone, Copy)]
pub(crate) struct Protections {
    pub(crate) alloc: Protection,
    pub(crate) free: Protection,
}

impl Protections {
    /// The same for both.
    pub(crate) const fn all(work: Work) -> Self {
        Self {
            alloc: Protection::all(work),
            free: Protection::all(work),
        }
    }
}

/// The kernel's way to have another CPU empty its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By an interrupt, which the caller waits for.
    Interrupt,
    /// By a worker thread of that CPU.
    Worker,
    /// The caller does it under a lock.
    Lock,
}

impl Reach {
    /// Tells of a CPU, whose slot the caller has. The running CPU does its part itself.
    pub(crate) fn tell<M: Machine>(self, machine: &M, cpu: CpuId) {
        let remote = cpu != machine.current_cpu();
        match self {
            Self::Interrupt if remote => work(machine, Work::Ipi),
            Self::Interrupt => work(machine, Work::IrqSave),
            Self::Worker => {
                if remote {
                    work(machine, Work::RemoteWake);
                }
                work(machine, Work::Switch);
            }
            Self::Lock => {}
        }
    }
}
