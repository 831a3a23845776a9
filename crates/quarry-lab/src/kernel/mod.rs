//! What a real kernel reports about its slab caches: slabinfo, sysfs, and both as a snapshot.

mod file;
pub mod slabinfo;
pub mod snapshot;
pub mod sysfs;

pub use file::{ReportError, read_report};
pub use slabinfo::{Slabinfo, SlabinfoRow};
pub use snapshot::Snapshot;
pub use sysfs::CacheAttributes;
