//! The seam between allocators and what they run on.
//!
//! # Idea
//!
//! [`Machine`] is the sum of what an allocator is given, and of nothing else: [`Cpus`] and nodes;
//! [`Memory`], four zero-filled ranges; per-CPU state behind a try-lock ([`Slots`]) and single
//! [`Steps`] on it; [`Threads`] and spin [`Locks`]; the grace periods of [`Readers`]; a [`Clock`]; and
//! [`Accounting`], which is empty on a real machine and drives the cost model of a virtual one. Nothing
//! above this module uses threads, the operating system, the global heap, or atomics of its own for
//! per-CPU state.
//!
//! # Per-CPU try-lock
//!
//! ```text
//!   PERCPU_SHIFT:  one area per CPU, all laid out alike
//!   |<--- CPU 0 --->|<--- CPU 1 --->|<--- CPU 2 --->|
//!   |   [slot]      |   [slot]      |   [slot]      |     slot(cpu) = slot(0) + (cpu << shift)
//!        lock word + state
//! ```
//!
//! A slot's lock word is 0 (free), 1 (taken by code running on that CPU) or 2 (taken by another CPU). Another CPU
//! takes it for a drain, a shrink or exact statistics. 3 is taken for a fork, and 4 is as 1, while another CPU waits
//! for it. The CPU itself never waits for it: if a preempted thread holds the word, the caller goes to the node
//! level instead. This is the shape that Linux 6.18 uses for sheaves (a local lock that is only *tried*).
//!
//! # Memory order of one-step operations
//!
//! The `percpu_pop_*` and `percpu_push_*` methods change a slot's state without its lock word. A machine
//! that cannot keep the three rules below has no such steps and refuses all. Callers of a step rely
//! on all three.
//!
//! * **S1** A step takes effect as a whole or not at all, and no holder of the slot's word sees a part of
//!   it. What a step did happens before the next acquisition of the word, local or remote; what a holder
//!   did happens before each step after its release.
//! * **S2** A thread stores, then pushes an entry on a CPU. The thread that pops the entry on that CPU, by
//!   a step or with the word held, sees these stores. A kernel that preempts or migrates a
//!   thread orders its stores, so steps that run in program order on their CPU keep this rule.
//! * **S3** `percpu_push_stack` is a release: its stores become visible to other CPUs in the order entry,
//!   then top, and both behind all earlier stores of the thread. CPUs that read the top with Acquire, and
//!   never take the word, depend on it: the owner of a page pool reads its lanes that way
//!   (`pool/lanes.rs`). x86-64 keeps the order of stores by itself; on aarch64 the committing store has to
//!   be `stlr`.
//!
//! # Locks and re-entry
//!
//! A signal handler may allocate while the thread it interrupted holds a lock. The kernel disables
//! interrupts; a process cannot afford to mask signals. So a lock remembers its owner, and
//! [`Locks::lock`] refuses ([`Reentered`]) instead of waiting for itself. Every caller has an
//! answer to that: an allocation fails as an atomic allocation does, a free is deferred.
//!
//! # Invariants
//!
//! * **M1** Only the holder of a slot's lock word accesses the slot's state; others may read state
//!   that is made of atomics.
//! * **M2** The four ranges are disjoint, zero-filled before first use, and live as long as the
//!   machine.
//! * **M3** A machine never moves: its ranges and per-CPU areas keep their addresses.

mod account;
mod forward;
mod gate;
mod kinds;
mod lock;
mod percpu;
mod region;
mod traits;
mod words;

pub(crate) use account::{access, access_run, looked, work};
pub(crate) use gate::{Gate, Pass, Stopped};
pub use kinds::{Access, Line, LockClass, Work};
pub(crate) use lock::{Guard, SpinLock};
pub(crate) use percpu::{HeldSlots, PerCpu, PerCpuShared, PerCpuState};
pub(crate) use region::Region;
pub use traits::{Accounting, Clock, Cpus, Locks, Machine, Memory, Readers, Slots, Steps, Threads};
pub use words::{
    PERCPU_FREE, PERCPU_OWNER, PERCPU_QUIESCED, PERCPU_REMOTE, PERCPU_WAITED, RawLock, Reentered,
    SlotLock,
};

use core::ptr::NonNull;

/// Largest number of CPUs that a machine may have.
pub const MAX_CPUS: u32 = 4096;
/// Largest number of NUMA nodes that a machine may have.
pub const MAX_NODES: usize = 8;
/// Bytes of one page descriptor in [`Ranges::descriptors`].
pub const DESCRIPTOR_BYTES: usize = 64;

/// Number of a CPU, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// Number of a NUMA node, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// CPUs, nodes, page size and cache line of a machine; fixed for its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Possible CPUs, at least 1, at most [`MAX_CPUS`].
    pub cpus: u32,
    /// NUMA nodes, at least 1, at most [`MAX_NODES`] and at most `cpus`.
    pub nodes: u32,
    /// log2 of the page size in bytes: 12, 14 or 16.
    pub page_shift: u32,
    /// Bytes of a cache line.
    pub cache_line: u32,
}

impl Topology {
    /// Bytes of one page.
    #[must_use]
    pub const fn page_size(&self) -> usize {
        1 << self.page_shift
    }

    /// Node of a CPU where CPUs are dealt to nodes in equal consecutive runs.
    #[must_use]
    pub const fn dealt_node(&self, cpu: CpuId) -> NodeId {
        NodeId((cpu.0 as u64 * self.nodes as u64 / self.cpus as u64) as u32)
    }

    /// CPUs that [`Topology::dealt_node`] gives a node.
    #[must_use]
    pub fn dealt_cpus(&self, node: NodeId) -> u32 {
        let cpus = (0..self.cpus).map(CpuId);
        cpus.filter(|&cpu| self.dealt_node(cpu) == node).count() as u32
    }
}

/// One range of address space.
#[derive(Clone, Copy, Debug)]
pub struct RawRange {
    /// First byte.
    pub base: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
}

/// The memory of a machine (invariant M2).
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// Pages of the page allocator; a whole number of pages, aligned to the largest block (2^10 pages).
    pub pages: RawRange,
    /// [`DESCRIPTOR_BYTES`] for each page of `pages`, aligned to that many bytes.
    pub descriptors: RawRange,
    /// For the allocators' own structures: caches, nodes, names. Aligned to a page.
    pub meta: RawRange,
    /// One area of `1 << PERCPU_SHIFT` bytes per CPU, aligned to a page.
    pub percpu: RawRange,
}

/// Layout of a linked list of free objects in a per-CPU slot: distances in bytes from the slot's lock word.
pub trait ListLayout {
    /// Address of the first object (8 bytes), null if there is none.
    const HEAD: usize;
    /// Owner of the list's objects (4 bytes); a push must name the same one.
    const OWNER: usize;
    /// Counter of objects taken (8 bytes).
    const POPS: usize;
    /// Counter of objects put (8 bytes).
    const PUSHES: usize;
}

/// Layout of a stack in a per-CPU slot, of object addresses or other words that are not 0: distances in bytes
/// from the slot's lock word. The stack grows upward; it is empty when the top equals the base, full when it is
/// not below the limit. All three may be null.
pub trait StackLayout {
    /// True for entries of 4 bytes instead of 8; steps only push on such a stack.
    const NARROW: bool = false;
    /// Address of the entry above the newest (8 bytes).
    const TOP: usize;
    /// Address of the oldest entry (8 bytes); the word in front of it can be read.
    const BASE: usize;
    /// Address behind the last entry (8 bytes).
    const LIMIT: usize;
    /// Counter of objects taken by single steps (8 bytes).
    const POPS: usize;
    /// Counter of objects put by single steps (8 bytes).
    const PUSHES: usize;
}
