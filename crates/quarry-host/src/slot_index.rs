//! The number by which a thread finds its slot of per-CPU state: its CPU's, or its concurrency id.
//!
//! # Idea
//!
//! From Linux 6.3 on the kernel gives each thread that runs a *concurrency id* (`mm_cid` of `struct rseq`): a small
//! number that no other running thread of the process has. It is below the number of threads and below the number of
//! CPUs. A process of four threads on 256 CPUs then works in slots 0 to 3 wherever the kernel puts its threads, so
//! that four slots are warm, and four hold free objects that no other slot can use. By CPU numbers it would be as many
//! as CPUs have ever run it.
//!
//! Ids are the program's choice, [`SlotIndex::Cpu`] the default: a step by id takes five or six instructions more
//! (two look whether the thread has an area at all). A drain or a shrink interrupts all CPUs that run the process for
//! each slot, instead of one CPU. By CPU numbers nothing changes: the look for an id is on the way to the fallback.
//!
//! # When ids are used
//!
//! * Slots are taken by restartable sequences. The fallback reads no area.
//! * The processor is an x86-64, see "Order" below.
//! * The kernel says in `AT_RSEQ_FEATURE_SIZE` of the auxiliary vector that its fields reach to the end of `mm_cid`,
//!   28 bytes. It registers no area of fewer than 32, so every registered area holds the field. The C library's
//!   `__rseq_size` does not matter: releases of 2.35 to 2.40 report 20 or 32 for the same area. A kernel built without
//!   ids (`CONFIG_SCHED_MM_CID`) stores the CPU's number there, which is as right and has no use.
//! * The machine has one NUMA node. An id moves between nodes with its threads, but a slot's memory does not.
//!
//! Otherwise slots go by CPU numbers, and [`SlotIndexUse::reason`] says why. What the kernel offers is asked for once,
//! when the machine is built: a process that is checkpointed and restored on an older kernel must not use ids.
//!
//! # Why it is right
//!
//! *Exclusion in a sequence.* A thread's id changes only while it does not run. The kernel restarts a sequence that it
//! preempted, so one that commits has had the same id from its start to its commit. Meanwhile no other running thread
//! had that id, and none that was preempted in a sequence of its own commits any more. That is all that sequences by
//! CPU number rely on.
//!
//! *Threads without an area.* An area that is not registered (a thread made under a system call filter, a thread before
//! its registration) has a negative `cpu_id`, but `mm_cid` 0, which is another thread's. So sequences by id look at
//! both, and fail if `cpu_id` is negative.
//!
//! *Order.* Users of a slot may be on different CPUs, one after the other. What the first stored is visible to the
//! second: the stores came before those by which its kernel let the id go, and the loads of the second come after those
//! by which its kernel took the id. An x86-64 makes the stores of each CPU visible in their order, to all CPUs alike, and
//! does not reorder loads with loads. So S1 to S3 of [`quarry_core::machine`] hold. Other processors depend on
//! the kernel's barriers for it, which its interface does not promise; there are no sequences by id for them.
//!
//! *Remote acquisitions.* [`protocol`](crate::protocol) claims a word and then has all sequences on it restarted. With
//! CPU numbers these run on one CPU (`MEMBARRIER_CMD_FLAG_CPU`). A slot's id may be in use anywhere, so the barrier goes
//! to all CPUs that run the process. Threads that do not run restart their sequences when they run again.
//!
//! *Everywhere else* an id is only a hint, as a CPU number is:
//!
//! | place | use |
//! |---|---|
//! | `current_cpu` | reads the id outside of a sequence; it may be stale, and without an area it is any number in range |
//! | readers of RCU, lanes of constructed objects | choose a counter or a lane, each correct for every thread |
//! | `node_of_cpu`, `current_node` | node 0 for every id |
//! | `cpus_of_node` | CPUs that are online: at least as many as ids in use |
//! | the CPU that holders of a slot are told | follows from the slot's address, so it is the slot's number |
//! | new slots (`percpu_lock_new`) | have no sequence in flight |
//! | prefetches | go by address |
//! | forks | all words are taken by [`protocol`](crate::protocol) before; the child's thread keeps its area, with an id of its own process |
//! | statistics, debugging tracks | name slots: their "CPUs" are ids |

use core::fmt;

use crate::os;
use crate::rseq::{self, Found, RseqUnavailable};

/// Bytes of an area up to the end of `mm_cid`.
const FIELD_END: u32 = 28;

/// A choice of the number by which threads find their slots of per-CPU state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SlotIndex {
    /// The number of the CPU that runs the thread.
    #[default]
    Cpu,
    /// The kernel's concurrency id of the thread, which no other running thread of the process has: below the
    /// number of threads, and below that of CPUs.
    ///
    /// A program with few threads on a computer with many CPUs then has few slots in use, whatever CPUs its threads
    /// run on. It takes Linux 6.3, an x86-64, restartable sequences and one NUMA node. Where statistics, reports and
    /// sysfs attributes name CPUs, they name ids then.
    ///
    /// An allocation or a free takes five or six instructions more, 0.1 to 0.2 ns. A shrink, a flush or a fork interrupts
    /// every CPU that runs the process for each slot; by CPU numbers it is the slot's CPU alone.
    ConcurrencyId,
}

/// The number by which threads find their slots, and the reason if another was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotIndexUse {
    /// The choice that was asked for.
    pub wanted: SlotIndex,
    /// The choice in force.
    pub in_use: SlotIndex,
    /// The reason if `in_use` is not `wanted`.
    pub reason: Option<SlotIndexUnavailable>,
}

/// The reason for which slots go by CPU numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotIndexUnavailable {
    /// Restartable sequences are not used.
    NoSequences(RseqUnavailable),
    /// There is no sequence by the concurrency id for this processor.
    NotBuilt,
    /// The kernel does not keep concurrency ids.
    Kernel {
        /// Bytes of a thread's area that the kernel has fields in; 0 if it does not say.
        feature_bytes: u32,
    },
    /// The machine has several memory nodes.
    Nodes {
        /// Number of nodes.
        nodes: u32,
    },
}

impl fmt::Display for SlotIndexUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSequences(reason) => {
                write!(f, "restartable sequences are not used: {reason}")
            }
            Self::NotBuilt => {
                f.write_str("no sequence by the concurrency id is built for this processor")
            }
            Self::Kernel { feature_bytes } => write!(
                f,
                "the kernel keeps no concurrency ids (AT_RSEQ_FEATURE_SIZE is {feature_bytes}, \
                 not {FIELD_END} or more; it takes Linux 6.3)"
            ),
            Self::Nodes { nodes } => write!(
                f,
                "the machine has {nodes} memory nodes, and a concurrency id belongs to none of them"
            ),
        }
    }
}

quarry_core::debug_is_display!(SlotIndexUnavailable);

impl core::error::Error for SlotIndexUnavailable {}

impl SlotIndexUse {
    /// The choice in force on this computer, for a machine of `nodes` nodes.
    pub(crate) fn of_this_computer(
        wanted: SlotIndex,
        found: &Result<Found, RseqUnavailable>,
        nodes: u32,
    ) -> Self {
        let sequences = found.as_ref().map(|_| ()).map_err(|reason| *reason);
        Self::decide(
            wanted,
            sequences,
            rseq::has_ids(),
            os::rseq_feature_bytes(),
            nodes,
        )
    }

    fn decide(
        wanted: SlotIndex,
        sequences: Result<(), RseqUnavailable>,
        built: bool,
        feature_bytes: u32,
        nodes: u32,
    ) -> Self {
        let reason = match (wanted, sequences) {
            (SlotIndex::Cpu, _) => None,
            (_, Err(reason)) => Some(SlotIndexUnavailable::NoSequences(reason)),
            _ if !built => Some(SlotIndexUnavailable::NotBuilt),
            _ if feature_bytes < FIELD_END => Some(SlotIndexUnavailable::Kernel { feature_bytes }),
            _ if nodes > 1 => Some(SlotIndexUnavailable::Nodes { nodes }),
            _ => None,
        };
        let in_use = match reason {
            None => wanted,
            Some(_) => SlotIndex::Cpu,
        };
        Self {
            wanted,
            in_use,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::machine::CpuId;

    use super::*;

    /// The barrier of a remote acquisition goes to the slot's CPU by CPU numbers, and to all CPUs by ids.
    #[test]
    fn barriers_go_where_sequences_may_be() {
        for wanted in [SlotIndex::Cpu, SlotIndex::ConcurrencyId] {
            let builder = crate::HostMachine::builder().memory_bytes(16 << 20);
            let machine = builder.slot_index(wanted).build().expect("address space");
            let by_id = machine.slot_index().in_use == SlotIndex::ConcurrencyId;
            let cpu = machine.kernel_for(CpuId(1)).cpu;
            assert_eq!(cpu, (!by_id).then_some(CpuId(1)), "{wanted:?}");
        }
    }

    #[test]
    fn ids_are_used_only_if_all_that_they_need_is_there() {
        use SlotIndexUnavailable::{Kernel, NoSequences, Nodes, NotBuilt};
        let ids = |sequences, built, feature_bytes, nodes| {
            let wanted = SlotIndex::ConcurrencyId;
            let found = SlotIndexUse::decide(wanted, sequences, built, feature_bytes, nodes);
            assert_eq!(found.wanted, wanted);
            assert_eq!(found.in_use == wanted, found.reason.is_none());
            found.reason
        };
        let kernel = |feature_bytes| Some(Kernel { feature_bytes });
        let switched = RseqUnavailable::Switched;
        assert_eq!(ids(Ok(()), true, 28, 1), None);
        assert_eq!(ids(Ok(()), true, 40, 1), None, "later kernels have more");
        assert_eq!(ids(Ok(()), true, 0, 1), kernel(0), "before Linux 6.3");
        assert_eq!(ids(Ok(()), true, 20, 1), kernel(20), "`node_id` is not it");
        assert_eq!(ids(Ok(()), true, 24, 1), kernel(24));
        assert_eq!(ids(Ok(()), true, 28, 2), Some(Nodes { nodes: 2 }));
        assert_eq!(ids(Ok(()), false, 28, 1), Some(NotBuilt));
        let none = Some(NoSequences(switched));
        assert_eq!(ids(Err(switched), true, 28, 1), none);
    }

    #[test]
    fn cpu_numbers_need_no_reason() {
        for sequences in [Ok(()), Err(RseqUnavailable::Chosen)] {
            let found = SlotIndexUse::decide(SlotIndex::Cpu, sequences, true, 0, 8);
            assert_eq!((found.in_use, found.reason), (SlotIndex::Cpu, None));
        }
    }

    /// Each reason names what is missing.
    #[test]
    fn reasons_can_be_read() {
        let kernel = SlotIndexUnavailable::Kernel { feature_bytes: 20 };
        assert!(kernel.to_string().contains("AT_RSEQ_FEATURE_SIZE is 20"));
        let fallback = SlotIndexUnavailable::NoSequences(RseqUnavailable::Switched);
        assert!(fallback.to_string().contains("QUARRY_RSEQ"));
        let nodes = SlotIndexUnavailable::Nodes { nodes: 4 };
        assert!(nodes.to_string().contains("4 memory nodes"));
    }
}
