//! Typed caches whose objects outlive them, and heaps that come and go.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::{alone, small, sys};
use quarry::kernel::debug::TraceEvent;
use quarry::kernel::for_all_designs;
use quarry::{Builder, Cache, CacheFlags, DefaultDesign, Design, Mode, Owned, SheafCache, Slub};

/// Longest life of a child.
const LIMIT: Duration = Duration::from_secs(20);

/// Pages of address space and pages in memory, by `/proc/self/statm`.
fn statm() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux process");
    let mut numbers = text
        .split(' ')
        .map(|number| number.parse().expect("a number"));
    (
        numbers.next().expect("size"),
        numbers.next().expect("resident"),
    )
}

/// True if the address is in a mapping of this process.
fn is_mapped<T>(object: *const T) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a Linux process");
    maps.lines().any(|line| {
        let (range, _) = line.split_once(' ').expect("a range");
        let (from, to) = range.split_once('-').expect("two addresses");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        (number(from)..number(to)).contains(&object.addr())
    })
}

struct Counted(
    Arc<AtomicUsize>,
    #[expect(dead_code, reason = "gives it a size")] [u64; 30],
);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn modes() -> [Mode; 2] {
    [Mode::Auto, Mode::Fallback]
}

/// Heaps that are dropped with objects on all CPUs' lists return their address space and memory.
fn heaps_come_and_go<D: Design>() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut objects = 0;
    let mut churn = |heaps: usize| {
        for at in 0..heaps {
            let heap = small::<D>(modes()[at % 2]);
            let cache = Cache::new(&heap, "churn").expect("a cache");
            let value = || Counted(dropped.clone(), [7; 30]);
            let mut mine: Vec<_> = (0..2000)
                .map(|_| cache.alloc(value()).expect("memory"))
                .collect();
            let theirs = mine.split_off(1000);
            let other = thread::spawn(move || drop(theirs));
            // The cache goes first, then the heap; whose objects are the last is a race.
            drop((cache, heap));
            drop(mine);
            other.join().expect("no panic");
            objects += 2000;
        }
    };
    churn(6);
    let before = statm();
    churn(40);
    let after = statm();
    assert_eq!(dropped.load(Ordering::Relaxed), objects);
    let mib = |pages: usize| (pages * 4096) >> 20;
    // Each of the 40 heaps had 80 MiB of address space and a MiB in memory.
    assert!(mib(after.0) < mib(before.0) + 64, "{before:?} {after:?}");
    assert!(mib(after.1) < mib(before.1) + 16, "{before:?} {after:?}");
}

#[test]
fn dropped_heaps_return_what_they_had() {
    let _alone = alone();
    for_all_designs!(D => heaps_come_and_go::<D>());
}

/// The same fails if a handle is left: the test above can see it.
#[test]
fn a_heap_with_an_object_stays() {
    let _alone = alone();
    let heap = small::<SheafCache>(Mode::Auto);
    let cache = Cache::new(&heap, "kept").expect("a cache");
    let number = cache.alloc([1_u64; 100]).expect("memory");
    let object = &raw const *number;
    drop((cache, heap));
    assert!(is_mapped(object));
    assert_eq!(number[99], 1);
    drop(number);
    assert!(!is_mapped(object), "the last object unmaps the heap");
}

/// Address space is in proportion to the memory.
#[test]
fn a_small_heap_reserves_little() {
    let _alone = alone();
    let before = statm().0;
    let heap = small::<SheafCache>(Mode::Auto);
    let cpus = quarry::kernel::machine::Cpus::topology(heap.machine()).cpus as usize;
    let mib = (statm().0.saturating_sub(before) * 4096) >> 20;
    assert!(mib <= 64 + 1 + 8 + 4 + 4 * cpus + 4, "{mib} MiB for 64");
}

/// Objects go from thread to thread while their cache is dropped; each value is dropped once, and the last
/// free ends the cache in whatever design.
fn objects_outlive_their_cache<D: Design>(mode: Mode, flags: CacheFlags) {
    for round in 0..5 {
        let heap = small::<D>(mode);
        let dropped = Arc::new(AtomicUsize::new(0));
        let cache = Cache::with_flags(&heap, "outlived", flags).expect("a cache");
        let (send, receive) = mpsc::channel::<Owned<Counted, D>>();
        let consumer = thread::spawn(move || receive.into_iter().for_each(drop));
        let count = 200 + 37 * round;
        for _ in 0..count {
            let object = cache
                .alloc(Counted(dropped.clone(), [0; 30]))
                .expect("memory");
            send.send(object).expect("a consumer");
        }
        drop((send, cache));
        consumer.join().expect("no panic");
        assert_eq!(dropped.load(Ordering::Relaxed), count);
        let mut caches = 0;
        heap.for_each_cache(|cache| caches += u32::from(cache.name() == "outlived"));
        assert_eq!(
            caches,
            0,
            "{} {mode:?}: the last object ended its cache",
            D::NAME
        );
        heap.pages().drain_all();
        assert!(heap.pages().check_consistency().is_ok());
    }
}

#[test]
fn the_last_object_ends_its_cache() {
    let _alone = alone();
    for mode in modes() {
        for_all_designs!(D => objects_outlive_their_cache::<D>(mode, CacheFlags::NONE));
        objects_outlive_their_cache::<Slub>(mode, CacheFlags::DEBUG_DEFAULT);
    }
}

#[test]
fn a_destroyed_cache_names_what_is_left() {
    let _alone = alone();
    let heap = small::<Slub>(Mode::Auto);
    let cache = Cache::new(&heap, "left").expect("a cache");
    let number = cache.alloc(5_u64).expect("memory");
    let address = format!("{:p}", &*number);
    let error = cache.destroy().expect_err("an object is live");
    assert_eq!(
        format!("{error:?}"),
        format!("cache left still has 1 object: {address}")
    );
    // Its name is free meanwhile, and the object is still its own.
    let named = Cache::<u8, Slub>::new(&heap, "left").expect("a cache");
    drop(number);
    assert_eq!(named.live(), Ok(0));
}

#[test]
fn a_full_heap_gives_the_value_back() {
    let _alone = alone();
    let heap = Builder::<Slub>::new()
        .memory_bytes(4 << 20)
        .build()
        .expect("a heap");
    let cache = Cache::new(&heap, "large").expect("a cache");
    let mut all = Vec::new();
    let refused = loop {
        match cache.alloc(Box::new([all.len(); 512])) {
            Ok(object) => all.push(object),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.0[511], all.len());
    assert!(format!("{refused:?}").starts_with("the heap has no memory for an object of type"));
    let refused =
        cache.alloc_bulk([const { None::<Box<[usize; 512]>> }; 3].map(|_| refused.0.clone()));
    assert_eq!(refused.expect_err("no memory").0.len(), 3);
    let called = cache.alloc_with(|| unreachable!("there is no object"));
    assert!(called.is_err());
}

#[test]
fn names_are_checked() {
    let _alone = alone();
    let heap = small::<Slub>(Mode::Auto);
    for (name, says) in [
        ("", "is empty"),
        ("a/b", "'/' at byte 1"),
        ("tab\tulator", "'\\t' at byte 3"),
        (&*"n".repeat(60), "has 60 bytes: shorten it to 48"),
    ] {
        let error = Cache::<u64, Slub>::new(&heap, name).expect_err("refused");
        assert!(format!("{error:?}").contains(says), "{name:?}: {error}");
    }
}

#[test]
fn raw_objects_and_leaked_ones_keep_their_heap() {
    let _alone = alone();
    let heap = small::<SheafCache>(Mode::Auto);
    let cache = Cache::new(&heap, "raw").expect("a cache");
    let raw = Owned::into_raw(cache.alloc(String::from("text")).expect("memory"));
    // SAFETY: the address is that of the object above.
    let text = unsafe { cache.from_raw(raw) };
    assert_eq!(Owned::into_inner(text), "text");
    let leaked = Owned::leak(cache.alloc(String::from("for ever")).expect("memory"));
    drop((cache, heap));
    leaked.push('!');
    assert_eq!(leaked, "for ever!");
}

/// A value whose drop panics frees its memory all the same.
#[test]
fn a_panic_in_drop_frees_the_object() {
    let _alone = alone();
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let heap = small::<Slub>(Mode::Auto);
    let cache = Cache::new(&heap, "panics").expect("a cache");
    let object = cache.alloc(Panics).expect("memory");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(object)));
    assert!(caught.is_err());
    assert!(cache.destroy().is_ok());
}

/// A child of a fork uses and drops what its parent had.
#[test]
fn a_child_drops_its_parents_heap() {
    let _alone = alone();
    let heap = small::<SheafCache>(Mode::Auto);
    let cache = Cache::new(&heap, "forked").expect("a cache");
    let objects: Vec<_> = (0..100).map(|n| cache.alloc(n).expect("memory")).collect();
    let mut theirs = Some((cache, heap, objects));
    let child = sys::fork(|| {
        let (cache, heap, objects) = theirs.take().expect("the child's copies");
        let mut numbers = objects.iter().enumerate();
        let right = numbers.all(|(at, number)| **number == at);
        drop((cache, heap, objects));
        i32::from(!right)
    });
    assert_eq!(sys::wait(child, LIMIT), Some(0));
    let (cache, _heap, objects) = theirs.expect("the parent's");
    cache.free_bulk(objects);
    assert!(cache.destroy().is_ok());
}

/// Times that the calling thread gave its CPU up to wait for something.
fn sleeps() -> i64 {
    // SAFETY: all-zero is a valid structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for writes.
    let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(status, 0);
    usage.ru_nvcsw
}

thread_local! {
    /// Frees of this thread stay in flight until [`GO`].
    static HELD: Cell<bool> = const { Cell::new(false) };
}
static IN_FLIGHT: AtomicBool = AtomicBool::new(false);
static GO: AtomicBool = AtomicBool::new(false);

fn hold(_: &TraceEvent<'_>) {
    if HELD.get() {
        IN_FLIGHT.store(true, Ordering::Release);
        while !GO.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
}

/// The last object is dropped while the free of another has not returned: its destructor leaves the end of the cache to
/// that free, and a child, in which that free never returns, ends the cache itself.
#[test]
fn no_destructor_waits_for_a_free_in_flight() {
    let _alone = alone();
    let heap = small::<Slub>(Mode::Auto);
    heap.set_tracer(Some(hold));
    let cache = Cache::with_flags(&heap, "held", CacheFlags::TRACE).expect("a cache");
    let [first, last] = [1_u64, 2].map(|n| cache.alloc([n; 100]).expect("memory"));
    let at = &raw const *last;
    drop((cache, heap));
    let mut last = Some(last);
    let (status, slept, kept) = thread::scope(|scope| {
        scope.spawn(move || {
            HELD.set(true);
            drop(first);
        });
        while !IN_FLIGHT.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let child = sys::fork(|| {
            drop(last.take());
            i32::from(is_mapped(at))
        });
        let status = sys::wait(child, LIMIT);
        let before = sleeps();
        drop(last.take());
        let slept = sleeps() - before;
        let kept = is_mapped(at);
        GO.store(true, Ordering::Release);
        (status, slept, kept)
    });
    assert_eq!(status, Some(0), "the child's last object ended its cache");
    assert!(slept < 100, "the destructor slept {slept} times");
    assert!(kept, "a free was in flight");
    assert!(!is_mapped(at), "the free in flight ended the cache");
}

/// A walk over the heap's caches holds the gate open for itself, so a cache cannot end meanwhile.
#[test]
fn what_a_destructor_left_is_ended_by_maintenance() {
    let _alone = alone();
    let (heap, other) = (small::<Slub>(Mode::Auto), small::<Slub>(Mode::Auto));
    let cache = Cache::new(&heap, "left").expect("a cache");
    let number = cache.alloc(1_u64).expect("memory");
    drop(cache);
    let listed = || {
        let mut caches = 0;
        heap.for_each_cache(|cache| caches += u32::from(cache.name() == "left"));
        caches
    };
    let mut number = Some(number);
    heap.for_each_cache(|_| {
        // Other threads cannot enter a walk's list; this one must not wait for it either.
        thread::scope(|scope| {
            let number = number.take();
            scope.spawn(|| drop(number));
        });
    });
    assert_eq!(listed(), 1, "the list was busy");
    other.reap();
    assert_eq!(listed(), 0, "maintenance of any heap ends it");
}

/// Threads that make caches leave no lock to children, and do not keep the heap from coming to rest: a machine with other
/// things to do may miss a lock now and then, whose child is not asked.
#[test]
fn a_child_makes_caches_as_its_parent_did() {
    const FORKS: u64 = 50;
    let _alone = alone();
    let heap = small::<DefaultDesign>(Mode::Auto);
    let stop = AtomicBool::new(false);
    let before = quarry::fork_misses();
    let failures = thread::scope(|scope| {
        let _stop = sys::Stop(&stop);
        for name in ["one", "other"] {
            let (heap, stop) = (&heap, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    drop(Cache::<u64>::new(heap, name).expect("room for a cache"));
                }
            });
        }
        let failed = |_: &u64| {
            let missed = quarry::fork_misses();
            let child = sys::fork(|| {
                let is_at_rest = quarry::fork_misses() == missed;
                i32::from(is_at_rest && Cache::<u64>::new(&heap, "mine").is_err())
            });
            sys::wait(child, LIMIT) != Some(0)
        };
        (0..FORKS).filter(failed).count()
    });
    assert_eq!(failures, 0);
    let missed = quarry::fork_misses() - before;
    assert!(missed < FORKS / 2, "{missed} of {FORKS}");
}
