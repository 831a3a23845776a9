//! Recorded kernel allocation events: text importers and Parquet.
//!
//! # Idea
//!
//! A recording is what the kernel's `kmem` tracepoints said: the text of `perf script`, or of ftrace's
//! `trace` file. [`import_file`] reads it as a stream and writes a *trace*: a Parquet file with one row per
//! event. [`TraceFile`] opens a trace; [`EventReader`] gives what a replay needs, in chunks whose memory is
//! reused; [`RowReader`] gives everything. [`TraceBuilder`] makes a trace of events from elsewhere.
//!
//! ```text
//!  text ──> import (lines, fields) ──> RawEvent ──> TraceBuilder ──> rows ──> Parquet
//!                                                   live objects              │
//!                                                   cache table               ├──> EventReader ──> replay
//!                                                                             └──> RowReader, DuckDB, pandas
//! ```
//!
//! # Objects
//!
//! Addresses do not survive the import. An object is a *slot*: a small number that is given again once its
//! object is freed, so that a replay needs a table of [`TraceMeta::object_slots`] entries however long the
//! trace is. Page blocks have slots of their own ([`TraceMeta::page_slots`]), keyed by page frame number.
//! `kfree` frees what `kmem_cache_alloc` gave and the other way round: the address decides.
//!
//! # Events of the same time
//!
//! A coarse clock gives events of several CPUs one time, and recorders print them CPU after CPU. The importer
//! keeps each CPU's order, and lets a free wait for the allocation, or an allocation for the free, that another
//! CPU still has to do at that time; else the printed order stays. [`TraceBuilder`] takes events as they come.
//!
//! # The orphan rule
//!
//! A recording starts in the middle of a kernel's life, misses the bulk calls (which emit no event), and may
//! have lost events. One rule covers all of it: **an object lives from its allocation event until the first
//! event that proves that it is gone.** So:
//!
//! * *unknown free*: a free of something that is not alive. The row is kept with object -1 and
//!   [`Flags::UNKNOWN`]; a replay passes over it;
//! * *implied free*: an allocation returns memory that overlaps a live object, which proves the old one gone.
//!   A free row with [`Flags::IMPLIED`] is inserted just before, with the CPU and time of the allocation. A
//!   page free that touches a live block without matching its start proves that block gone in the same way;
//! * *never freed*: alive at the end; stays alive.
//!
//! All are counted in [`TraceMeta::orphans`]. What an object surely owns is `bytes_req` from its address:
//! `bytes_alloc` also counts SLOB's header, which lies *before* the address, and debugging red zones. If no
//! address reaches 2^32, the addresses are hashes (`%p`): neighbourhood means nothing then, and only an equal
//! address proves anything. A free of NULL or of the zero-size pointer, and an allocation that failed, are
//! counted apart and have no row.
//!
//! # Caches
//!
//! [`TraceMeta::caches`] is the cache table. Entry 0 is kmalloc: a replay picks the size class of its own
//! design from `bytes_req`. Kernels before 6.3 do not print the cache of `kmem_cache_alloc`; such an
//! allocation belongs to a provisional cache keyed by call site and sizes, which the frees of its objects name
//! by majority; failing that, the only known cache of its sizes does; failing that, it is called
//! `anon-<bytes_req>-<bytes_alloc>`. Rows are never rewritten: [`CacheEntry::resolved`] leads to the canonical
//! entry, and [`EventReader`] applies it. The text column `cache` holds what was known when the row was
//! written.
//!
//! # Invariants
//!
//! * I1: memory of an import = what is alive + distinct strings + one block of text + one row group.
//! * I2: a slot is given by exactly one allocation row before a free row takes it back.
//! * I3: rows = events - null frees - failed allocations + implied frees.
//! * I4: a file appears under its name complete or not at all.
//! * I5: no byte of a row group is decoded before its checksum was compared.
//! * I6: the crate prints nothing, and never follows a clock.
//!
//! # Columns
//!
//! `time_ns`, `cpu`, `pid`, `comm`, `kind` (code of [`Kind`]), `event` (its name), `cache`, `cache_id`,
//! `object`, `bytes_req`, `bytes_alloc`, `gfp_flags`, `node`, `order`, `migratetype`, `call_site`, `flags` (bits
//! of [`Flags`]). Numbers use -1 for "none", texts use null. A free row repeats the sizes (or the order) of
//! its object, so that `sum` over signed sizes gives what is alive.

#![forbid(unsafe_code)]

mod build;
mod error;
mod event;
mod import;
mod intern;
mod meta;
mod outfile;
mod read;
mod schema;
mod write;

pub use build::{PAGE_SIZE_ASSUMED, TraceBuilder};
pub use error::{LineProblem, Result, TraceError};
pub use event::{Flags, Kind, NO_CACHE, NO_OBJECT, ORDER_MAX, RawEvent, ReplayEvent};
pub use import::{ImportOptions, ImportSummary, import, import_file, import_to_file};
pub use meta::{
    CacheEntry, CacheOrigin, CacheResolution, FORMAT_VERSION, KindCounts, Orphans, Table, TraceMeta,
};
pub use read::{CHUNK_EVENTS, EventReader, FullRow, RowReader, TraceFile};
