//! Recorded kernel allocation events: text importers and Parquet.
//!
//! # Idea
//!
//! A recording is what the kernel's `kmem` tracepoints said: the text of `perf script`, or of
//! ftrace's `trace` file. [`import_file`] reads it as a stream and writes a *trace*: a Parquet file
//! with one row per event. [`TraceFile`] opens a trace; [`EventReader`] gives what a replay needs,
//! in chunks whose memory is reused; [`RowReader`] gives everything. [`TraceBuilder`] makes a trace
//! of events from elsewhere.
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
//! Addresses do not survive the import. An object is a *slot*: a small number that is given again
//! once its object is freed. So a replay needs a table of [`TraceMeta::object_slots`] entries
//! however long the trace is. Page blocks have slots of their own ([`TraceMeta::page_slots`]),
//! keyed by page frame number. `kfree` frees what `kmem_cache_alloc` gave and the other way round:
//! the address decides.
//!
//! # The order of events
//!
//! Events are in the order of their times, but these do not tell everything. A free is traced
//! before the object is given back, an allocation when it has its object. If an allocation took a
//! new slab, then there was none with a free place when it looked, before the slab's pages were
//! traced: the importer puts it, from its pages to its object, before another CPU's free of such an
//! object that was under way or came later. Rows keep their times, so a row's may be a little
//! before that of the row above.
//!
//! A coarse clock gives events of several CPUs one time, and recorders print them CPU after CPU. The
//! importer keeps each CPU's order. It lets a free wait for the allocation, or an allocation for the
//! free, that another CPU still has to do at that time. A free of a slab's pages, and the free of an
//! object that led to it, wait for the slab's other objects' frees. Frees wait for new slabs as above.
//! Else the CPUs go on side by side, each evenly through its events. That is one order of many: which
//! CPU frees into a slab first decides in whose stock it stays. So such a recording does not show which
//! slabs a burst leaves behind. [`TraceBuilder`] takes events as they come.
//!
//! # The orphan rule
//!
//! A recording starts in the middle of a kernel's life, misses the bulk calls (which emit no
//! event), and may have lost events. One rule covers all of it: **an object lives from its
//! allocation event until the first event that proves that it is gone.** So:
//!
//! * *unknown free*: a free of something that is not alive. The row is kept with object -1 and
//!   [`Flags::UNKNOWN`]; a replay passes over it;
//! * *implied free*: an allocation returns memory that overlaps a live object, which proves the old one gone.
//!   A free row with [`Flags::IMPLIED`] is inserted just before, with the CPU and time of the allocation. A
//!   page free that touches a live block without matching its start proves that block gone in the same way.
//!   The kernel gives a slab back when it is empty: an event that frees or allocates a block of pages
//!   proves the objects in it gone. Their frees come when the time moves on. Where several CPUs have
//!   events of that time, whose order is a guess, nothing is concluded;
//! * *never freed*: alive at the end; stays alive.
//!
//! All are counted in [`TraceMeta::orphans`]. What an object surely owns is `bytes_req` from its
//! address: `bytes_alloc` also counts SLOB's header, which lies *before* the address, and debugging
//! red zones. If no address reaches 2^32 and not all are aligned, they are hashes (`%p`): neighbourhood
//! means nothing then, and only an equal address proves anything. A free of NULL or of the zero-size
//! pointer, and an allocation that failed, are counted apart and have no row.
//!
//! # Caches
//!
//! [`TraceMeta::caches`] is the cache table. Entry 0 is kmalloc: a replay picks the size class of
//! its own design from `bytes_req`. Kernels before 6.3 do not print the cache of
//! `kmem_cache_alloc`; such an allocation belongs to a provisional cache keyed by call site and
//! sizes, which the frees of its objects name by majority; failing that, the only known cache of
//! its sizes does; failing that, it is called `anon-<bytes_req>-<bytes_alloc>`. Rows are never
//! rewritten: [`CacheEntry::resolved`] leads to the canonical entry, and [`EventReader`] applies
//! it. The text column `cache` holds what was known when the row was written.
//!
//! # Pages
//!
//! The pages of slabs show in page events, too. A replay that drives the page allocator must leave
//! them out, because its own slabs take pages: page events of blocks in which objects lay, slabs
//! and large kmallocs, have [`Flags::SLAB`], on allocation and free. That is read off the addresses
//! alone: an object lies in exactly one block. The address of a page is its frame number times the
//! page size plus a constant (the start of the direct map). Objects that are allocated right
//! after a block, by the same CPU, vote for this constant. The page size comes from the
//! caller, or from the vote itself.
//! A block in which no object was seen is not marked: a slab whose objects all come and go by bulk
//! calls, which have no events, is taken for something else. [`TraceMeta::slab_memory`] says how
//! many were marked, and is `None` if the constant could not be found. On the recordings of the
//! tests (6.18; 6.1 with SLUB, SLAB and SLOB; 64K pages on ppc64) the marks were compared with the
//! allocation flags of page events, which tell slabs from others for most flags: of all blocks
//! whose flags and order are those of a slab none was left unmarked, and no other was marked.
//!
//! The column `page` tells which objects lie together. Rows of allocations, and of frees
//! without a known allocation, have the id of the page that their object lies on; page events
//! of slabs have the id of the first page of the block. [`PAGE_GROUP_ORDER`] says how ids of one slab
//! are found. An allocation also tells whether its place is *fresh*, not used before in the
//! recording. With this a replay can find out in which state the recording, or any later moment of
//! it, found the slabs. [`PageReader`] gives it with the events. Ids are dense numbers in the order
//! of their first use: no address can be had from them.
//!
//! # Invariants
//!
//! * I1: an import's memory is the sum of: what is alive; distinct strings; one block of text, or the whole
//!   file of a binary recording; a row group and a half; a bit for every eight bytes of the pages with objects.
//! * I2: a slot is given by exactly one allocation row before a free row takes it back.
//! * I3: rows = events - null frees - failed allocations + implied frees.
//! * I4: a file appears under its name complete or not at all.
//! * I5: no byte of a row group is decoded before its checksum was compared.
//! * I6: the crate prints nothing. No clock but that of the kernel's events is in a trace.
//!
//! # Columns
//!
//! `time_ns`, `cpu`, `pid`, `comm`, `kind` (code of [`Kind`]), `event` (its name), `cache`,
//! `cache_id`, `object`, `bytes_req`, `bytes_alloc`, `gfp_flags`, `node`, `order`, `migratetype`,
//! `call_site`, `flags` (bits of [`Flags`]), `page` (twice the id, plus one if the place is fresh), `stack`
//! (functions of the kernel on the stack of an allocation, the outermost first, with semicolons between; only
//! of recordings with stacks, and a text that a row group holds once), `pfn` (frame number of the first page of a
//! page event). Numbers use -1 for "none", texts, `page` and `pfn` use null. A free row repeats the sizes (or the
//! order) of its object, so that `sum` over signed sizes gives what is alive. Of frees, only those
//! of page blocks from before the recording have a `migratetype`: that of their surroundings, if it
//! is known.

#![forbid(unsafe_code)]

mod addresses;
mod build;
mod cpu_list;
mod error;
mod event;
pub mod events;
mod filter;
mod guard;
mod import;
mod intern;
mod meta;
mod moment;
mod moves;
mod outfile;
mod packing;
mod pages;
mod perfetto;
mod program;
mod read;
mod rebuild;
pub mod record;
mod recorded;
mod report;
mod schema;
mod waiting;
mod write;

pub use build::{PAGE_SIZE_ASSUMED, TraceBuilder};
pub use cpu_list::cpu_list;
pub use error::{LineProblem, Result, TraceError};
pub use event::{
    Flags, FullRow, Kind, NO_CACHE, NO_OBJECT, ORDER_MAX, PAGE_GROUP_ORDER, Place, RawEvent,
    ReplayEvent, seconds,
};
pub use filter::{Filter, filter_file, filter_to};
pub use guard::{guarded, hush_guarded};
pub use import::{
    ImportOptions, ImportSummary, import, import_file, import_to_file, open_recording,
};
pub use meta::{
    CacheEntry, CacheOrigin, CacheResolution, FORMAT_VERSION, FORMAT_VERSION_MIN, KindCounts,
    LoadPart, Orphans, RcuBatch, RcuFrees, SlabMemory, Table, TraceMeta,
};
pub use moment::{Moment, ParseMomentError};
pub use moves::{Drain, Extfrag, PageMoves};
pub use outfile::{Existing, OutFile, OutFolder, host_name, remove_unfinished_outputs};
pub use packing::Packing;
pub use perfetto::PerfettoTrace;
pub use program::{ProgramTrace, import_program};
pub use read::{
    CHUNK_EVENTS, EventReader, NumberColumn, PageReader, RowReader, TaskReader, TraceFile,
    number_columns,
};
pub use report::{KernelReport, NewReport, Origin};
pub use waiting::{UnseenFrees, Waiting};
