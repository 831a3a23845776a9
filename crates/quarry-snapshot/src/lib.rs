//! A real kernel's reports about its slab caches: slabinfo, sysfs, and both as a snapshot; and
//! about its pages: zoneinfo, buddyinfo, pagetypeinfo, vmstat, and kpageflags by block.
#![forbid(unsafe_code)]

mod allocinfo;
pub mod blocks;
pub mod buddyinfo;
mod ends;
mod facts;
pub mod failures;
mod file;
mod forms;
mod hidden;
mod machine;
mod page_owner;
mod paste;
pub mod slabinfo;
pub mod snapshot;
pub mod sysfs;
mod unpack;
pub mod vmstat;
mod words;
pub mod zoneinfo;

pub use allocinfo::CallSite;
pub use blocks::{BlockMap, SlabBlocks};
pub use buddyinfo::{Buddyinfo, Pagetypeinfo};
pub use ends::{End, EndReports};
pub use facts::{Facts, Origin, Releases};
pub use failures::PageFailure;
pub use file::{ReportError, read_report};
pub use forms::{Detail, Form};
pub use hidden::{HiddenCache, HiddenCpu, HiddenNode, HiddenState, SlabsByFree};
pub use machine::page_sizes;
pub use page_owner::{PageOwners, PageSite};
pub use paste::is_cut_name;
pub use slabinfo::{Slabinfo, SlabinfoRow};
pub use snapshot::{Asked, CacheBytes, Excerpt, OomSums, Snapshot, Totals};
pub use sysfs::CacheAttributes;
pub use vmstat::Vmstat;
pub use words::Counters;
pub use zoneinfo::Zoneinfo;

/// Number of random cases that a test takes of all: a twentieth, or all with `QUARRY_SOAK` set.
#[cfg(test)]
fn case_count(all: usize) -> usize {
    match std::env::var_os("QUARRY_SOAK") {
        Some(_) => all,
        None => all.div_ceil(20),
    }
}
