//! Predictions of another kernel's slab memory ([`quarry_state`]) as people read them.

mod answer;
mod view;

pub use answer::{SnapshotInfo, about, finding};
pub use view::{TABLES, view};
