//! The tests of `host` and `host_stress` that change when typed objects, or the table of their caches, do.
//!
//! `cargo xtask mutants` builds this program once for each mutant of those files, in a fraction of the time that the whole
//! ones take. `cargo test` leaves it out, as those run the same tests.

#![allow(dead_code, reason = "helpers of other tests of `host_stress`")]

#[path = "../host/objects.rs"]
mod objects;
#[path = "../host_stress/owned.rs"]
mod owned;
#[path = "../host_stress/sys.rs"]
mod sys;

use std::sync::{Mutex, MutexGuard, PoisonError};

use quarry::{Builder, Design, HostHeap, Mode};

/// Tests of `owned` use process-wide things; one runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A heap of 64 MiB.
fn small<D: Design>(mode: Mode) -> HostHeap<D> {
    let builder = Builder::<D>::new().memory_bytes(64 << 20);
    builder.mode(mode).build().expect("a heap")
}
