//! What the fuzz targets do with their bytes: each function ends for any input, without a panic.
//!
//! `tests/fuzz_seeds.rs` of `quarry-lab` calls the same functions with the files of `seeds/`, in every run of the
//! tests. [`script`](../crates/quarry/tests/virtual/model/bytes.rs) lies beside the model that it uses.

pub mod import;
pub mod parquet;
pub mod settings;
pub mod snapshot;
pub mod zoneinfo;
