//! Experiments on recorded allocations: replay on any design, page size, CPU count and tunable.
//!
//! # What a replay is
//!
//! A trace (`quarry-trace`) is a list of events that a real kernel reported: this CPU allocated
//! this object, that CPU freed it. A replay performs them, in their order, on a heap of another
//! design, page size or CPU count in a virtual machine. It reports what that heap did.
//!
//! * **CPUs.** An event of recorded CPU c runs on virtual CPU c mod N. With more CPUs than the
//!   recording has, the events stay where they were: the larger machine changes slab orders and
//!   per-CPU limits, not who runs where.
//! * **kmalloc** events go to the kmalloc class that the design's era has for the bytes that were
//!   *asked for*; beyond its largest class to the page allocator (counted as `large`). A request
//!   that the era cannot serve at all is counted as `unserved`, and so is its free.
//! * **Caches.** An object of a named cache goes to a cache of that name, made at its first use.
//!   Alignment and flags are not in a trace; [`infer`] finds ones that explain the recorded sizes.
//! * **Orphans.** A free of an object that was allocated before the recording is skipped and
//!   counted. If the replay starts from a kernel's slabinfo, it frees an object of that state. A
//!   free that the importer inserted, because a later event proves it, is performed.
//! * **Before and after.** With [`replay::input::Input::initial`] the heap starts with the slabs
//!   that a kernel reported; what such a report does not tell is assumed, and `replay/initial`
//!   says how. [`replay::input::Input::check`] puts the end beside another report, and
//!   [`replay::part`] replays what lies between the two. kmallocs then go to the accounted,
//!   reclaimable and DMA caches that the report names.
//! * **Pages.** The pages of slabs come from the replayed design itself; page events outside slabs
//!   are performed on the same page allocator if the trace tells them apart. [`replay`] says how.
//! * **Nodes.** The machine has one node; the node that an event asks for is ignored.
//!
//! A row that contradicts the rows before it (an object allocated twice, freed twice) ends the
//! replay with an error that names it.
//!
//! # What is measured
//!
//! *Slab memory* is the pages that are slabs; its peak is over time, and `object_bytes` are the
//! bytes asked for by the objects in slabs when that peak was first reached. Everything else is
//! counted by the design under the kernel's names, or by the machine. Only `events_per_second`
//! depends on the computer: all else is the same in every run, at any number of threads.
//!
//! # Cost
//!
//! The trace is decoded chunk by chunk and never held. Per object alive at once: 16 bytes, the
//! entry of the table that leads from the trace's object numbers to the heap's objects.
#![forbid(unsafe_code)]

pub mod ask;
pub mod booted;
pub mod bundled;
pub mod callers;
mod error;
pub mod experiments;
pub mod fault;
pub mod geometry;
pub mod infer;
pub mod known;
pub mod look;
pub mod plan;
pub mod record;
pub mod recorded;
pub mod replay;
pub mod run;
pub mod whatif;

pub use error::LabError;
pub use plan::Plan;
pub use replay::report::{CacheReport, RunReport};
pub use run::RunSpec;
