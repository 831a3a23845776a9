//! Heaps without number, and forks. A process of its own: every fork brings all its heaps to rest.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once};
use std::thread;

use quarry::{Builder, Cache, HostHeap};

/// Forks one after the other.
static ALONE: Mutex<()> = Mutex::new(());
/// The heap that a handler drops, and how often it did.
static DROPPED: Mutex<Option<HostHeap>> = Mutex::new(None);
static DROPS: AtomicU32 = AtomicU32::new(0);

/// Lets one test fork. The handler comes before the process's first heap, so it runs when all heaps are at rest.
fn alone() -> MutexGuard<'static, ()> {
    static REGISTERED: Once = Once::new();
    let alone = ALONE.lock().unwrap();
    REGISTERED.call_once(|| {
        // SAFETY: the handler has what it needs, and runs in the parent alone.
        let status = unsafe { libc::pthread_atfork(None, Some(drop_the_heap), None) };
        assert_eq!(status, 0);
    });
    alone
}

fn heap() -> HostHeap {
    let builder = Builder::new().memory_bytes(8 << 20);
    builder.build().expect("a heap")
}

/// Forks; true if `check` holds in the child.
fn holds_in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `check`, which uses heaps that are at rest alone, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = i32::from(!check());
        // SAFETY: ends the child without running destructors.
        unsafe { libc::_exit(code) }
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[test]
fn threads_have_hundreds_of_heaps_that_survive_a_fork() {
    let _alone = alone();
    let caches = thread::scope(|scope| {
        let make = || {
            let new = |_| Cache::<u64>::new(&heap(), "number").expect("a cache");
            (0..40).map(new).collect::<Vec<_>>()
        };
        let making: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        let made = making.into_iter().flat_map(|thread| thread.join().unwrap());
        made.collect::<Vec<_>>()
    });
    assert_eq!(caches.len(), 320);
    let objects: Vec<_> = caches.iter().map(|cache| cache.alloc(7)).collect();
    let works = || {
        let mut all = caches.iter().zip(&objects);
        all.all(|(cache, object)| {
            object.as_ref().is_ok_and(|number| **number == 7)
                && cache.alloc(8).is_ok_and(|number| *number == 8)
        })
    };
    assert!(holds_in_child(|| quarry::fork_misses() == 0 && works()));
    assert!(works());
}

/// Drops the heap while the fork has it, and overwrites what that gave back.
extern "C" fn drop_the_heap() {
    let heap = DROPPED.lock().unwrap().take();
    if heap.is_some() {
        drop(heap);
        let freed = (64..4096).step_by(16).map(|bytes| vec![0xff_u8; bytes]);
        std::hint::black_box(freed.collect::<Vec<_>>());
        DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_heap_that_a_handler_of_a_fork_drops_stays() {
    let _alone = alone();
    *DROPPED.lock().unwrap() = Some(heap());
    for _ in 0..2 {
        assert!(holds_in_child(|| quarry::fork_misses() == 0));
        assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    }
    assert_eq!(quarry::fork_misses(), 0);
}
