//! Counters of the virtual machine.

use quarry_core::machine::{Access, Line, LockClass, Work};

/// Free lists that allocations from zones looked at, as a distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Allocations by the number of lists; the last place has those of more.
    by_lists: Box<[u64]>,
    /// The most of one.
    pub most: u32,
}

/// Places of [`Looks`].
const LOOKS: usize = 1024;

impl Default for Looks {
    fn default() -> Self {
        Self {
            by_lists: vec![0; LOOKS].into(),
            most: 0,
        }
    }
}

impl Looks {
    fn add(&mut self, lists: u32, allocations: u32) {
        self.by_lists[(lists as usize).min(LOOKS - 1)] += u64::from(allocations);
        if allocations > 0 {
            self.most = self.most.max(lists);
        }
    }

    /// Lists that `per_mille` of 1000 allocations looked at at most; 0 without allocations. At 1023 and above it is
    /// at least that.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> u32 {
        let all: u64 = self.by_lists.iter().sum();
        let wanted = (all * per_mille).div_ceil(1000);
        let mut seen = 0;
        let reached = self.by_lists.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        reached.map_or(0, |lists| lists as u32)
    }
}

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
    /// Free lists of zones that allocations looked at.
    pub looks: Looks,
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

    #[inline]
    pub(crate) fn add_looks(&mut self, lists: u32, blocks: u32) {
        if let Some(others) = blocks.checked_sub(1) {
            self.looks.add(lists, 1);
            self.looks.add(1, others);
        }
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
