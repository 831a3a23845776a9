//! Hardened heaps: mistakes are refused and reported on every path, and correct use gives no report.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::design_tests::design_tests;
use quarry::kernel::design::Design;
use quarry::{
    Builder, Cache, CacheSpec, Finding, FreeError, Hardening, HostHeap, Mode, Report, Slob,
};

/// Reports by the names of caches: tests run side by side.
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn keep(report: &Report) {
    REPORTS
        .lock()
        .expect("no panic while it is held")
        .push(*report);
}

/// The same of heaps that are used correctly.
static FALSE_REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn keep_false(report: &Report) {
    let mut reports = FALSE_REPORTS.lock().expect("no panic while it is held");
    reports.push(*report);
}

/// The findings about a cache.
fn findings(cache: &str) -> Vec<Finding> {
    let reports = REPORTS.lock().expect("no panic while it is held");
    let named = reports.iter().filter(|report| report.cache() == cache);
    named.map(|report| report.what).collect()
}

fn hardens<D: Design>() -> bool {
    D::FEATURES.hardens
}

fn heap<D: Design>(mode: Mode, reporter: fn(&Report)) -> HostHeap<D> {
    let hardening = Hardening::ALL;
    let builder = Builder::<D>::new().memory_bytes(256 << 20).mode(mode);
    let builder = builder.hardened(hardening).reporter(reporter);
    builder.build().expect("a heap")
}

/// An object on its way to another thread.
struct Sent(NonNull<u8>);

// SAFETY: an object of a heap may be used and freed by any thread, one at a time.
unsafe impl Send for Sent {}

/// Threads that hand objects of a cache and of kmalloc round, each filled over its whole length.
fn correct_use_gives_no_report<D: Design>() {
    const THREADS: usize = 4;
    const ROUNDS: u32 = 4000;
    if !hardens::<D>() {
        return;
    }
    for mode in [Mode::Auto, Mode::Fallback] {
        let heap = heap::<D>(mode, keep_false).leak();
        let name = format!("good-{}", D::NAME);
        let spec = CacheSpec::new(&name, 72);
        let cache = heap.create_cache(&spec).expect("a cache");
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| channel::<Sent>()).unzip();
        std::thread::scope(|scope| {
            for (at, receiver) in receivers.into_iter().enumerate() {
                let next = senders[(at + 1) % THREADS].clone();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let object = cache.alloc().expect("memory");
                        // SAFETY: the object is this long and this thread's.
                        unsafe { object.write_bytes(round as u8, 72) };
                        next.send(Sent(object)).expect("the next one waits for all");
                        let bytes = round as usize * 7 % 9000 + 1;
                        let own = heap.kvmalloc(bytes, 16).expect("memory");
                        // SAFETY: as above.
                        unsafe { own.write_bytes(round as u8, bytes) };
                        // SAFETY: the object is not used any more.
                        unsafe { heap.kvfree(own) }.expect("a live object");
                        if round % 64 == 0 {
                            let mut many = [None; 40];
                            assert!(cache.alloc_bulk(&mut many));
                            // SAFETY: as above.
                            unsafe { cache.free_bulk(&mut many) }.expect("live objects");
                            // SAFETY: as above.
                            unsafe { cache.free_rcu(cache.alloc().expect("memory")) }
                                .expect("a live object");
                        }
                        let Sent(object) = receiver.recv().expect("one for each round");
                        // SAFETY: the sender has given the object away.
                        unsafe { cache.free(object) }.expect("a live object");
                    }
                });
            }
        });
        assert_eq!(cache.check_consistency(), Ok(()));
        let reports = FALSE_REPORTS.lock().expect("no panic while it is held");
        assert!(reports.is_empty(), "{}: {}", D::NAME, reports[0]);
        drop(reports);
        while cache.live() != Ok(0) {
            cache.shrink();
        }
        // SAFETY: no other handle is used.
        unsafe { cache.destroy() }.expect("no object is left");
    }
}

/// Each mistake is an error, and changes nothing.
fn mistakes_are_refused<D: Design>() {
    if !hardens::<D>() {
        return;
    }
    let heap = heap::<D>(Mode::Auto, keep).leak();
    for bytes in [16, 60, 256, 1000, 5000] {
        let name = format!("bad-{}-{bytes}", D::NAME);
        let cache = heap
            .create_cache(&CacheSpec::new(&name, bytes))
            .expect("a cache");
        let other = heap
            .create_cache(&CacheSpec::new("other", bytes))
            .expect("a cache");
        let objects: Vec<_> = (0..6).map(|_| cache.alloc().expect("memory")).collect();
        let free = |object| {
            // SAFETY: refused, or the object is not used any more.
            unsafe { cache.free(object) }
        };
        let at = |object: NonNull<u8>, offset: isize| {
            NonNull::new(object.as_ptr().wrapping_offset(offset)).expect("an address")
        };
        for offset in [1, 8] {
            assert_eq!(free(at(objects[0], offset)), Err(FreeError::NotAnObject));
        }
        let mut local = [0_u64; 64];
        assert_eq!(
            free(NonNull::from(&mut local).cast()),
            Err(FreeError::Foreign)
        );
        // SAFETY: refused.
        let wrong = unsafe { other.free(objects[0]) };
        assert_eq!(wrong, Err(FreeError::WrongCache));
        free(objects[0]).expect("a live object");
        free(objects[1]).expect("a live object");
        assert_eq!(free(objects[0]), Err(FreeError::DoubleFree));
        assert_eq!(free(objects[1]), Err(FreeError::DoubleFree));
        // SAFETY: one byte behind the object, which is memory of its slot.
        unsafe { at(objects[2], bytes as isize).write(1) };
        assert_eq!(free(objects[2]), Err(FreeError::Corrupt));
        assert_eq!(free(objects[2]), Err(FreeError::DoubleFree));
        // The last by address has a neighbour in front of it.
        let last = *objects[3..].iter().max().expect("three");
        let before = at(last, -1);
        // SAFETY: memory of the slot in front.
        let byte = unsafe { before.read() };
        // SAFETY: as above.
        unsafe { before.write(!byte) };
        let underrun = free(last);
        // SAFETY: as above.
        unsafe { before.write(byte) };
        assert!(underrun == Err(FreeError::Corrupt) || bytes == 5000);
        // A write to a free object.
        // SAFETY: memory of the slot.
        unsafe { objects[1].write(7) };
        for _ in 0..2000 {
            free(cache.alloc().expect("memory")).expect("a live object");
        }
        cache.shrink();
        let mut expected = [
            (Finding::NotAnObject, 2),
            (Finding::Foreign, 1),
            (Finding::DoubleFree, 3),
            (Finding::RedZone, 1 + usize::from(underrun.is_err())),
            (Finding::Poison, 1),
        ];
        for (what, count) in &mut expected {
            let found = findings(&name)
                .iter()
                .filter(|found| *found == what)
                .count();
            // A free object that is not used again shows nothing.
            let unseen = *what == Finding::Poison && bytes == 5000 && found == 0;
            assert!(found == *count || unseen, "{name}: {what:?} {found}");
        }
    }
}

/// kmalloc knows the request to the byte; pages and mappings have checks of their own.
fn kmalloc_knows_its_requests<D: Design>() {
    if !hardens::<D>() {
        return;
    }
    let heap = heap::<D>(Mode::Auto, keep);
    for bytes in [1, 8, 13, 16, 100, 1000, 4096, 70_000, 400_000, 5 << 20] {
        for align in [8, 16, 64, 4096] {
            let object = heap.kvmalloc_hardened(bytes, align, quarry::CallSite::UNKNOWN);
            let object = object.expect("memory");
            assert!(object.addr().get().is_multiple_of(align), "{bytes} {align}");
            let known = heap.kvsize(object).expect("an object");
            assert!(known == bytes || known >= bytes && (bytes > 4000 || align > 8));
            // SAFETY: the object has these bytes.
            unsafe { object.write_bytes(1, bytes) };
            if known == bytes || heap.machine().block_bytes(object).is_some() {
                // SAFETY: refused.
                let wrong = unsafe { heap.kvfree_sized(object, bytes + 5000) };
                assert_eq!(wrong, Err(FreeError::WrongSize), "{bytes} {align}");
            }
            // SAFETY: the object is not used any more.
            unsafe { heap.kvfree_sized(object, bytes) }.expect("a live object");
            // SAFETY: refused.
            let twice = unsafe { heap.kvfree(object) };
            assert!(matches!(
                twice,
                Err(FreeError::DoubleFree | FreeError::Foreign)
            ));
        }
    }
    assert_eq!(heap.machine().mapped_blocks(), (0, 0));
}

/// An object that outlives its typed cache, which ends with it though the ring still has its memory.
fn typed_caches_end<D: Design>() {
    if !hardens::<D>() {
        return;
    }
    let heap = heap::<D>(Mode::Auto, keep);
    let cache = Cache::new(&heap, "typed").expect("a cache");
    let objects: Vec<_> = (0..100_u64)
        .map(|at| cache.alloc(at).expect("memory"))
        .collect();
    assert_eq!(objects.iter().map(|object| **object).sum::<u64>(), 4950);
    drop(cache);
    drop(objects);
    let is_there = || {
        let mut found = false;
        heap.for_each_cache(|cache| found |= cache.name() == "typed");
        found
    };
    // Another test's thread may be the one that ends it.
    for _ in 0..1000 {
        heap.reap();
        if !is_there() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the cache stays");
}

design_tests!(storms: correct_use_gives_no_report);
design_tests!(mistakes: mistakes_are_refused);
design_tests!(requests: kmalloc_knows_its_requests);
design_tests!(ends: typed_caches_end);

#[test]
fn designs_refuse_by_name() {
    let built = Builder::<Slob>::new().hardened(Hardening::CHECK).build();
    let message = built.map(|_| ()).expect_err("no trailers").to_string();
    assert!(message.starts_with("slob cannot be hardened"), "{message}");
}
