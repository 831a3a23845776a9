//! What a real kernel reports about its slab caches.

mod file;
pub mod slabinfo;

pub use file::{ReportError, read_report};
pub use slabinfo::{Slabinfo, SlabinfoRow};
