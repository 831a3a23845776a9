//! Per-CPU slots that a fork takes: all of them, once, and not those of its own thread.

use crate::prelude::*;
use std::rc::Weak;

/// Slots of a heap's caches and zones for each CPU.
fn slots<M: Machine, D: Design>(heap: &Heap<M, D>) -> u64 {
    let mut caches = 0;
    heap.for_each_cache(|_| caches += 1);
    caches + u64::from(heap.machine().topology().nodes)
}

/// Stops the heap and lets it go on. Returns how much did not come to rest.
fn stop<M: Machine, D: Design>(heap: &Heap<M, D>) -> u32 {
    // SAFETY: `resume` follows.
    let missed = unsafe { heap.quiesce() };
    // SAFETY: `quiesce` was called just now.
    assert_eq!(unsafe { heap.resume(false) }, 0);
    missed
}

fn goes_on<D: Design>(era: Era) {
    let heap = boot::<D>(era, Setup::DEFAULT.on(3, 1));
    let cache = sized(&heap, "scenario", 64);
    let objects = take(cache, 10);
    give(cache, &objects[5..]);
    for _ in 0..2 {
        let tries = || heap.machine().counters().remote_tries;
        let before = tries();
        assert_eq!(stop(&heap), 0);
        assert_eq!(tries() - before, 3 * slots(&heap), "each slot once");
    }
    let counters = [Stat::AllocFastpath, Stat::AllocSlowpath];
    let before = stats(cache, counters);
    let again = take(cache, 5);
    let after = stats(cache, counters);
    assert_eq!(
        (after[0] - before[0], after[1] - before[1]),
        (5, 0),
        "the slot is free"
    );
    assert_eq!(live(cache).len(), 10);
    give(cache, &again);
    give(cache, &objects[..5]);
    assert_eq!(cache.flush(), 0);
    check(&heap);
}

fn check<D: Design>(heap: &VirtualHeap<D>) {
    assert!(heap.pages().check_consistency().is_ok());
    assert_eq!(heap.pages().drain_all(), 0, "no CPU is busy");
}

/// A stopped heap has each slot of each CPU, and gives all of them back.
#[test]
fn a_stopped_heap_goes_on() {
    for era in each(Slub::ERAS) {
        goes_on::<Slub>(*era);
    }
    for era in each([Era::V7_0, Era::V7_3]) {
        goes_on::<SheafCache>(era);
    }
}

/// Slots whose holders do not let go are counted, each once.
#[test]
fn slots_that_stay_held_are_counted() {
    let setup = Setup {
        remote_per_mille: 1000,
        ..Setup::DEFAULT.on(2, 1)
    };
    let heap = boot::<SheafCache>(Era::V7_0, setup);
    assert_eq!(u64::from(stop(&heap)), 2 * slots(&heap));
    let heap = boot::<Slub>(Era::V6_18, setup);
    assert_eq!(u64::from(stop(&heap)), 2 * slots(&heap));

    // Sheaves of 6.18 are in front of CPU slabs, so such a cache has two slots for each CPU. Their memory is made a cache
    // with the first of them.
    let heap = boot::<SheafCache>(Era::V6_18, setup);
    let missed = ["first", "second"].map(|name| {
        let spec = CacheSpec {
            sheaf_capacity: 8,
            ..CacheSpec::new(name, 64)
        };
        heap.create_cache(&spec).expect("a cache");
        stop(&heap)
    });
    assert_eq!(missed[1] - missed[0], 2 * 2);
}

/// A signal handler that forks finds the one slot that the code below it holds, and leaves it alone.
#[test]
fn a_fork_leaves_the_slot_of_its_own_thread() {
    let machine = Interrupted::new(Setup::DEFAULT.machine(), 1);
    let boot = Setup::DEFAULT.boot();
    let heap = Rc::new(Heap::<_, SheafCache>::new(machine, Era::V7_0, boot).expect("a heap"));
    let cache = heap
        .create_cache(&CacheSpec::new("scenario", 64))
        .expect("a cache");
    let object = cache.alloc().expect("memory");
    let missed = Rc::new(RefCell::new(Vec::new()));
    let (weak, noted): (Weak<_>, _) = (Rc::downgrade(&heap), missed.clone());
    let handler = move || {
        let Some(heap) = weak.upgrade() else { return };
        noted.borrow_mut().push(stop(&*heap));
    };
    heap.machine().interrupt(1000, Box::new(handler));
    assert_eq!(free(cache, object), Ok(()));
    assert!(heap.machine().quiet() > 2);
    let missed = missed.take();
    assert_eq!(missed.iter().max(), Some(&1), "{missed:?}");
    assert_eq!((missed.first(), missed.last()), (Some(&0), Some(&0)));
    assert_eq!(cache.live(), Ok(0));
}
