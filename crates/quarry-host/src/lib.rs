//! The machine that is this process: per-CPU try-locks by restartable sequences, memory by `mmap`,
//! `membarrier`, `fork`.
//!
//! # Idea
//!
//! [`HostMachine`] implements [`quarry_core::machine::Machine`] with what Linux offers a process.
//! Its one trick is the per-CPU try-lock: an uncontended acquisition is seven plain instructions
//! and no atomic read-modify-write. The kernel restarts the sequence whenever the thread is preempted,
//! migrated or signalled in the middle of it ([`rseq`]). Where that is not available
//! (older C libraries, valgrind, other processors) the same words are taken by compare-and-swap.
//!
//! | module | content |
//! |---|---|
//! | [`rseq`] | the restartable sequence, one file per processor; the only assembly with stores |
//! | [`protocol`] | taking the word of *another* CPU's slot; shared with the model checker |
//! | [`fork`] | what must be brought to rest before a `fork` |
//! | `machine` | [`HostMachine`]: mode, CPU choice, spin locks |
//! | `prefetch` | a hint to the processor |
//! | [`values`] | bytes of reused memory have values |
//! | `readers` | read-side sections, and when frees that wait for them may be done |
//! | `waiters` | who waits for a spin lock; breaks circles that signal handlers close |
//! | `memory`, `huge` | address space, and which pages are behind it |
//! | `blocks` | mappings for what is larger than a block of pages |
//! | `text` | text to a file descriptor |
//! | `thread_lock` | a lock that refuses its own owner |
//! | `map_arc` | a counted reference in a mapping |
//! | `numa` | nodes of the CPUs |
//! | `slot_index` | the number by which a thread finds its slot: its CPU's, or its concurrency id |
//! | `topology`, `os` | `/sys`, system calls |
//!
//! # Modes
//!
//! [`Mode::Auto`] takes restartable sequences if they work and falls back otherwise;
//! [`HostMachine::mode`] says which it is, [`HostMachine::fallback_reason`] why, and
//! [`HostMachine::rseq_abi`] under which contract with the kernel, and [`HostMachine::slot_index`] whether
//! threads find their slots by the number of their CPU or by their concurrency id. Under miri and
//! loom, and on processors without a sequence, only the fallback exists.
//!
//! # Invariants
//!
//! * **H1** In one process a slot word is taken either by sequences and [`protocol`], or by
//!   compare-and-swap, never by both: the mode of a machine is fixed when it is built.
//! * **H2** If `area` or `id_area` is not 0, `membarrier` can restart sequences; the C library registered its
//!   threads for them at that distance from the thread pointer, which `rseq::area` returns, too. One of both is 0.
//! * **H3** No operation of [`HostMachine`] allocates from the global heap or changes `errno`. So
//!   it can serve the process's `malloc` and run in a signal handler. Building one looks up two
//!   symbols with `dlsym`, which may allocate an error message when they are missing.
//! * **H4** A sequence contains no call and no system call, and has one committing store.
//! * **H5** If `id_area` is not 0, the kernel keeps the concurrency id of every registered area, and the machine has
//!   one node. All its sequences use ids, and remote acquisitions restart the sequences of all CPUs (`slot_index`).
//!
//! # Debugging
//!
//! * `stepi` never leaves a sequence: each single step is an exception that restarts it. Set a
//!   breakpoint behind it, or run the program with `QUARRY_RSEQ=0`, which makes [`Mode::Auto`]
//!   choose the fallback.
//! * Under valgrind, and with `GLIBC_TUNABLES=glibc.pthread.rseq=0`, the fallback is chosen by
//!   itself. The thread sanitizer cannot see the order that sequences give: use `QUARRY_RSEQ=0`.
//! * The child of a `vfork` shares its parent's thread area without being registered; it must not
//!   allocate (POSIX allows it nothing but `exec` and `_exit`).
//! * A library that contains sequences must not be unloaded while threads run (`-z nodelete`).

mod blocks;
#[cfg(feature = "negative-controls")]
#[doc(hidden)]
pub mod broken;
mod builder;
mod caller;
mod error;
pub mod fork;
mod huge;
mod machine;
mod map_arc;
mod memory;
mod numa;
mod os;
mod prefetch;
#[doc(hidden)]
pub mod protocol;
mod readers;
pub mod rseq;
mod slot_index;
mod text;
mod thread_lock;
mod topology;
pub mod values;
mod waiters;

pub use builder::Builder;
pub use caller::Caller;
pub use error::HostError;
pub use huge::{HugePageUse, HugePages, HugePagesUnavailable};
pub use machine::{HostMachine, Mode};
pub use map_arc::MapArc;
pub use numa::{NumaUnavailable, NumaUse};
pub use os::secret;
pub use readers::RcuReadGuard;
pub use rseq::{RseqAbi, RseqUnavailable};
pub use slot_index::{SlotIndex, SlotIndexUnavailable, SlotIndexUse};
pub use text::TextOut;
pub use thread_lock::ThreadLock;
