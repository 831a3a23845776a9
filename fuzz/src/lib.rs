//! Bodies of the fuzz targets: each function ends for any input, without a panic.
//!
//! `tests/fuzz_seeds.rs` of `quarry-lab` calls the same functions with the files of `seeds/`, in every run of the
//! tests. [`script`](../crates/quarry/tests/virtual/model/bytes.rs) is next to the model that it uses.

use std::sync::Once;

pub mod import;
pub mod parquet;
pub mod settings;
pub mod snapshot;
pub mod zoneinfo;

/// Lets panics pass that the crate catches itself: a fuzzer's hook ends the process at any.
pub(crate) fn allow_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(quarry_trace::hush_guarded);
}
