//! The data structures of SLUB; the drawing is in the [module's documentation](super).

use core::mem::offset_of;
use core::ptr::NonNull;

use super::geometry::RunRules;
use super::stats::{Stat, Stats};
use crate::machine::{Line, ListLayout, PerCpu, PerCpuState};
use crate::page::Pfn;
use crate::slabs::{Nodes, RemoteSearch};
use crate::stats::Counter as _;
use crate::sync::AtomicU32;

/// State of one cache.
pub struct Slub {
    pub(crate) cpu: PerCpu<CpuSlab>,
    /// Offset in bytes of the free pointer in a free object.
    pub(crate) free_pointer: usize,
    /// Distance in bytes from one object to the next.
    pub(crate) size: usize,
    pub(crate) rules: &'static RunRules,
    /// Empty slabs are given back once a node has this many partial slabs.
    pub(crate) min_partial: AtomicU32,
    /// Limit of a cpu partial list in objects.
    pub(crate) cpu_partial: AtomicU32,
    /// The same in slabs; the limit of eras that count slabs.
    pub(crate) cpu_partial_slabs: AtomicU32,
    /// Slabs that a CPU holds at most, its CPU slab among them; 0 if the era decides.
    pub(crate) cpu_slabs: AtomicU32,
    /// Search of other nodes' lists.
    pub(crate) remote: RemoteSearch,
    /// Order of a normal slab in the upper half, its objects in the lower.
    pub(crate) normal: AtomicU32,
    pub(crate) nodes: Nodes,
}

impl PerCpuState for CpuSlab {
    const LINE: Line = Line::CpuState;
}

/// One CPU's part, behind its slot. All-zero is the empty state. The fields that fast operations
/// use share the lock word's cache line.
#[repr(C)]
pub(crate) struct CpuSlab {
    /// First object of the CPU's list, null if empty. All are of `slab`.
    pub(crate) freelist: *mut u8,
    slab: u32,
    partial: u32,
    /// Slabs on the cpu partial list.
    pub(crate) partial_slabs: u32,
    /// Free objects of those slabs, as counted when each was put there.
    pub(crate) partial_objects: u32,
    pub(crate) stats: Stats,
}

// SAFETY: `freelist` points to memory that the allocator owns (I1); moving the state between
// threads moves that ownership.
unsafe impl Send for CpuSlab {}

impl ListLayout for CpuSlab {
    const HEAD: usize = PerCpu::<Self>::STATE + offset_of!(Self, freelist);
    const OWNER: usize = PerCpu::<Self>::STATE + offset_of!(Self, slab);
    const POPS: usize = PerCpu::<Self>::STATE + offset_of!(Self, stats) + Stat::POPS;
    const PUSHES: usize = PerCpu::<Self>::STATE + offset_of!(Self, stats) + Stat::PUSHES;
}

impl CpuSlab {
    /// The slab that this CPU allocates from.
    #[inline(always)]
    pub(crate) fn slab(&self) -> Option<Pfn> {
        Pfn::from_link(self.slab)
    }

    #[inline]
    pub(crate) fn set_slab(&mut self, slab: Option<Pfn>) {
        self.slab = Pfn::link(slab);
    }

    /// Top of the cpu partial list, a stack linked by the descriptors' `next`.
    #[inline]
    pub(crate) fn partial(&self) -> Option<Pfn> {
        Pfn::from_link(self.partial)
    }

    #[inline]
    pub(crate) fn set_partial(&mut self, slab: Option<Pfn>) {
        self.partial = Pfn::link(slab);
    }
}

/// A list of free objects of one slab, linked through their free pointers.
#[derive(Clone, Copy)]
pub(crate) struct Detached {
    /// First object.
    pub(crate) head: NonNull<u8>,
    /// Last object; its link is about to be written.
    pub(crate) tail: NonNull<u8>,
    /// Number of objects.
    pub(crate) count: u32,
}

impl Detached {
    pub(crate) fn one(object: NonNull<u8>) -> Self {
        Self {
            head: object,
            tail: object,
            count: 1,
        }
    }
}
