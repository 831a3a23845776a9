//! The tests of `virtual` that change when a protocol does: slab words, per-CPU slots, sheaves and barns, per-CPU page lists.
//!
//! `cargo xtask mutants` builds this program once for each mutant of those files, which takes seconds; `virtual` takes minutes.
//! `cargo test` leaves it out, as `virtual` runs the same tests.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "helpers of the tests that only `virtual` has"
)]

#[path = "../virtual/magazine.rs"]
mod magazine;
#[path = "../virtual/model/mod.rs"]
mod model;
#[path = "../virtual/page_bulk.rs"]
mod page_bulk;
#[path = "../virtual/page_drains.rs"]
mod page_drains;
#[path = "../virtual/page_eras.rs"]
mod page_eras;
#[path = "../virtual/page_fill.rs"]
mod page_fill;
#[path = "../virtual/page_lists.rs"]
mod page_lists;
#[path = "../virtual/page_policy.rs"]
mod page_policy;
#[path = "../virtual/page_runs.rs"]
mod page_runs;
#[path = "../virtual/page_steps.rs"]
mod page_steps;
#[path = "../virtual/pages.rs"]
mod pages;
#[path = "../virtual/pool_lanes.rs"]
mod pool_lanes;
#[path = "../virtual/prelude.rs"]
mod prelude;
#[path = "../virtual/sheaf.rs"]
mod sheaf;
#[path = "../virtual/sheaf_barns.rs"]
mod sheaf_barns;
#[path = "../virtual/sheaf_bulk.rs"]
mod sheaf_bulk;
#[path = "../virtual/slots.rs"]
mod slots;
#[path = "../virtual/slub.rs"]
mod slub;
#[path = "../virtual/slub_2_6.rs"]
mod slub_2_6;
#[path = "../virtual/slub_lists.rs"]
mod slub_lists;
