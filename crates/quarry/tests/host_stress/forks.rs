//! Forks in the middle of the storm.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use quarry::kernel::design::Design;
use quarry::kernel::machine::Machine;

use super::hardened;
use super::owner::Held;
use super::sys;
use super::world::World;

/// Objects of each cache that a child allocates.
const OBJECTS: usize = 100;
/// Forks beyond the time, until one child is asked.
const AT_MOST_LATE: u64 = 100;
/// Longest life of a child.
const LIMIT: Duration = Duration::from_secs(20);

/// Forks now and then. Returns the number of forks, of children that found something wrong, and of those that were
/// not asked because the heap could not be brought to rest.
pub(crate) fn run<M: Machine + Send + Sync, D: Design>(
    world: &World<M, D>,
    stop: &AtomicBool,
) -> (u64, u64, u64) {
    let (mut forks, mut failures, mut unasked) = (0, 0, 0);
    // A machine with other things to do may have had time for few forks, and all of them missed.
    let mut late = 0;
    while !stop.load(Relaxed) || (forks == unasked && late < AT_MOST_LATE) {
        late += u64::from(stop.load(Relaxed));
        let missed = quarry::fork_misses();
        let pid = sys::fork(|| {
            // A heap that was not at rest promises nothing to the child.
            if quarry::fork_misses() == missed {
                child(world)
            } else {
                0
            }
        });
        let status = sys::wait(pid, LIMIT);
        if status != Some(0) {
            eprintln!("child: {status:?} (None: hung; else code << 8 | signal)");
            failures += 1;
        }
        forks += 1;
        unasked += u64::from(quarry::fork_misses() != missed);
        std::thread::sleep(Duration::from_millis(20));
    }
    (forks, failures, unasked)
}

/// The checks of a child; the exit code names the one that failed.
fn child<M: Machine + Send + Sync, D: Design>(world: &World<M, D>) -> libc::c_int {
    let clashes = world.clashes.load(Relaxed);
    let mut objects = [None; OBJECTS];
    for number in 0..world.caches.len() {
        if !fill_and_free(world, &mut objects, |_| world.alloc(number, false)) {
            return 1;
        }
    }
    if !fill_and_free(world, &mut objects, |i| world.kmalloc(8 + i * 64)) {
        return 2;
    }
    for cache in &world.caches {
        if cache.check_consistency().is_err() {
            return 3;
        }
        if cache.flush() != 0 {
            return 4;
        }
        if cache.check_consistency().is_err() {
            return 5;
        }
    }
    if world.heap.pages().check_consistency().is_err() {
        return 6;
    }
    if world.clashes.load(Relaxed) != clashes {
        return 7;
    }
    if hardened::reports() != 0 {
        return 8;
    }
    0
}

fn fill_and_free<M: Machine + Send + Sync, D: Design>(
    world: &World<M, D>,
    objects: &mut [Option<Held>],
    mut alloc: impl FnMut(usize) -> Option<Held>,
) -> bool {
    for (i, object) in objects.iter_mut().enumerate() {
        *object = alloc(i);
    }
    let complete = objects.iter().all(Option::is_some);
    for object in objects.iter_mut() {
        if let Some(held) = object.take() {
            world.free(held, true);
        }
    }
    complete
}
