//! A fork whose later preparations wait for a thread that waits for the heap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use quarry::Cache;
use quarry::kernel::slub::Slub;

static HEAP_RESTS: AtomicBool = AtomicBool::new(false);
static ALLOCATED: AtomicBool = AtomicBool::new(false);

/// Registered first and therefore called last, as the locks of the C library's `malloc` are taken
/// after all handlers: the heap rests already.
extern "C" fn wait_for_the_allocation() {
    HEAP_RESTS.store(true, Ordering::Release);
    while !ALLOCATED.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

#[test]
fn a_fork_that_waits_for_a_user_of_the_heap_ends() {
    // SAFETY: the handler uses atomics alone.
    let status = unsafe { libc::pthread_atfork(Some(wait_for_the_allocation), None, None) };
    assert_eq!(status, 0);
    let heap = quarry::Builder::<Slub>::new()
        .memory_bytes(64 << 20)
        .build()
        .unwrap();
    let cache = Cache::<[u64; 24], Slub>::new(&heap, "waiting").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !HEAP_RESTS.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let object = cache.alloc([7; 24]);
            ALLOCATED.store(true, Ordering::Release);
            drop(object.expect("memory"));
        });
        // SAFETY: the child ends at once.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child.
            0 => unsafe { libc::_exit(i32::from(quarry::fork_misses() != 1)) },
            child => {
                let mut status = 1;
                // SAFETY: the status is valid for writes.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
                assert_eq!(quarry::fork_misses(), 1, "one thread did not wait");
            }
        }
    });
}
