//! The library on this process's own memory and CPUs, in tests that may run side by side.
//!
//! `host_stress` has those that use process-wide things, one at a time; `host_fork_order` has a process of its own,
//! because its handler of forks waits for its own test.

mod af_xdp;
mod allocator;
mod buffers;
mod debug;
mod design_tests;
mod examples;
mod hardened;
mod inspect;
mod memory;
mod objects;
mod page_config;
mod pool_stats;
mod rcu;
mod slots;
mod uring;
mod uring_storm;
mod walks;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use quarry::{Builder, Design, HostHeap, Mode};

/// A heap of 64 MiB.
fn small<D: Design>(mode: Mode) -> HostHeap<D> {
    let builder = Builder::<D>::new().memory_bytes(64 << 20);
    builder.mode(mode).build().expect("a heap")
}

/// Stops threads at its end, even by a panic: their scope would wait for ever.
struct Stopper<'s>(&'s AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `look` while threads run `churn`, each with its number, until `look` returns.
fn while_in_use<R>(
    threads: usize,
    churn: impl Fn(usize, &AtomicBool) + Sync,
    look: impl FnOnce() -> R,
) -> R {
    let (started, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (churn, started, stop) = (&churn, &started, &stop);
            scope.spawn(move || {
                started.wait();
                churn(thread, stop);
            });
        }
        started.wait();
        let _stopper = Stopper(&stop);
        look()
    })
}
