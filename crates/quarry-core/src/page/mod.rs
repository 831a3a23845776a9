//! The page allocator: zones of buddy lists, per-CPU page lists, bulk calls.
//!
//! # Idea and source
//!
//! Linux's page allocator as the slab designs see it. Blocks have 2^order pages, orders 0..=10. They are split
//! and merged in pairs of buddies (Knowlton 1965) under one lock per zone. Per-CPU lists of recently freed
//! blocks stand in front of that lock. Each folder stands on the next: `front` has the calls, `pcp` the per-CPU
//! lists, `zone` and `buddy` the lists behind the lock, `memmap` the descriptors. Sizes of the per-CPU lists by
//! era are in [`geometry`], their rules in `rules.rs`; [`watermark`] is the kernel's whole check of a zone, for
//! reports. `boot.rs` sets all up from `config.rs`; `initial.rs` makes the state of a machine that has run for a while.
//!
//! # Objects
//!
//! ```text
//!   zone                                          CPU 0      CPU 1
//!   +----------------------------------------+   +------+   +------+
//!   | lock | free lists, orders 0 1 2 ... 10 |<=>| pcp  |   | pcp  |   high, batch
//!   |      | by migrate type      | frontier |   +------+   +------+
//!   +----------------------------------------+
//!        |                                          ^ alloc / free of orders the lists hold
//!   [page][page][page][page] ... descriptors, one per page
//! ```
//!
//! # States of a block
//!
//! untouched -> buddy -> (pcp) -> allocated | owned | slab | large kmalloc | pool -> (pcp) -> buddy.
//! A free by number claims its block by one compare-and-swap on the descriptor, so the second of two
//! frees is refused; blocks of the other kinds only their owners free. A caller that takes a block for
//! another kind claims it as well, since any thread can free an allocated one by its number.
//! An allocated block may have several users, who count as references: the last one frees it.
//!
//! # Locks and their order
//!
//! per-CPU slot (tried, never waited for) -> zone lock. A zone lock that its own thread holds is
//! not waited for either: an allocation fails, a free is deferred to the next holder. A sysctl is
//! written under a lock of its own, outside of these.
//!
//! # Invariants
//!
//! * **P1** Every page is in exactly one place: untouched, in a free block on a buddy list, in a
//!   block on one CPU's list, deferred, allocated, or in the hand of a thread. Such a thread is taking
//!   it from a list or putting it there. [`PageAllocator::check_consistency`] walks all of them.
//! * **P2** Two free buddies of one order are never both on buddy lists, whatever their types.
//! * **P3** A zone starts at a multiple of 2^10 pages, so a buddy is never in another zone.
//! * **P4** A free block's descriptor names the list that it is on, whose type may be another than
//!   its pageblock's.
//!
//! # Departures from the kernel
//!
//! * Memory that was never handed out is on no list; it is taken from the frontier, lowest address
//!   first, and counts as free blocks of movable pageblocks, behind those that are on the lists.
//! * There is no reclaim, so no list is shortened because of it. Only [`PageAllocator::set_boost`] raises
//!   watermarks, for good.
//! * The reserve, isolated and CMA types do not exist. A machine that is too small for types has them
//!   nevertheless.
//! * No call asks for cold pages (`__GFP_COLD`, until 4.14). The cold lists of releases before 2.6.25 are
//!   reported with their limits, and stay empty.
//! * The sysctls `lowmem_reserve_ratio`, `watermark_scale_factor` and `numa_stat` are constants;
//!   pages are not interleaved over nodes.
//! * Refills and drains move runs of blocks under a hold; lists and costs are as if one by one
//!   (`buddy/`). In a process holds have other bounds ([`PageConfig::in_process`]).

mod allocator;
mod boot;
mod buddy;
mod check;
mod config;
mod front;
pub mod geometry;
mod initial;
mod memmap;
mod pcp;
mod report;
mod rules;
mod sysctl;
mod trim;
mod types;
mod zone;

pub use allocator::PageAllocator;
pub use boot::BootError;
pub use buddy::FreeBlockCounts;
pub use buddy::policy;
pub use check::{PageBlock, PageCensus, PageInconsistency};
pub use config::{CACHE_SHARE_BYTES, MinFree, PageConfig, ZoneLayout};
pub use front::{OwnedBlock, SharedBlock};
pub(crate) use memmap::list::{Links, PageList};
pub(crate) use memmap::page::Page;
pub(crate) use memmap::{MapOn, MemMap};
pub(crate) use pcp::array::entry_of;
pub use pcp::{PcpStats, PcpStock};
pub use report::{NumaStats, PageStats, PagesetReport, ZoneReport};
pub use sysctl::{SYSCTLS, SysctlError};
pub use trim::{Residency, TrimPolicy, Trimmed};
pub use types::{
    AllocOptions, BLOCK_TYPES, BlockType, MAX_ORDER, MIGRATE_TYPES, MigrateType, ORDERS, PageError,
    PageKind, Pfn, ZONE_TYPES, ZoneId, ZoneType,
};
pub use zone::watermark;
