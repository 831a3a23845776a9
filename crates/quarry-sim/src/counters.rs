//! Counters of the virtual machine.

use quarry_core::machine::{Access, Line, LockClass, Work};

/// Counts since the machine was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    work: [u64; Work::COUNT],
    touches: [[u64; Access::COUNT]; Line::COUNT],
    locks: [u64; LockClass::COUNT],
    /// Times a CPU's slot was asked for.
    pub slot_tries: u64,
    /// Times it was refused on purpose (see [`crate::Faults`]).
    pub slot_failures: u64,
    /// Times another CPU's slot was asked for.
    pub remote_tries: u64,
    /// Frees on another CPU than the one that allocated the object, as the driver reports.
    pub cross_cpu_frees: u64,
    /// Bytes of objects and pages that were filled with zeros for their users.
    pub zeroed_bytes: u64,
    /// Bytes that were copied to and from processes.
    pub copied_bytes: u64,
    /// Ranges of free pages whose memory was given back.
    pub releases: u64,
    /// Their bytes.
    pub released_bytes: u64,
}

impl Counters {
    /// Work of a kind; [`Work::Call`] counts the calls into the allocator. Interrupts and preemption that
    /// were off already are not counted again ([`Work::guards`]).
    #[must_use]
    pub fn work(&self, work: Work) -> u64 {
        self.work[work as usize]
    }

    /// Touches of lines of a kind. [`Access::Store`] is counted as a write and [`Access::Check`] as a read;
    /// [`Access::Prefetch`] is not counted.
    #[must_use]
    pub fn touches(&self, line: Line, access: Access) -> u64 {
        let kinds = &self.touches[line as usize];
        kinds.get(access as usize).copied().unwrap_or(0)
    }

    /// Acquisitions of locks of a class.
    #[must_use]
    pub fn locks(&self, class: LockClass) -> u64 {
        self.locks[class as usize]
    }

    #[inline(always)]
    pub(crate) fn add_work(&mut self, work: Work) {
        self.work[work as usize] += 1;
    }

    #[inline(always)]
    pub(crate) fn add_touch(&mut self, line: Line, access: Access) {
        let access = match access {
            Access::Store => Access::Write,
            Access::Check => Access::Read,
            Access::Prefetch => return,
            other => other,
        };
        self.touches[line as usize][access as usize] += 1;
    }

    #[inline(always)]
    pub(crate) fn add_lock(&mut self, class: LockClass) {
        self.locks[class as usize] += 1;
    }
}
