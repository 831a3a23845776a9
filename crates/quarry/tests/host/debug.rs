//! Debugging on real threads: storms of correct use give no report, and a mistake of one thread is
//! reported with the call sites and threads of both sides.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use quarry::kernel::design::Design;
use quarry::kernel::for_all_designs;
use quarry::{Builder, CacheSpec, Finding, FreeError, HostHeap, Mode, Report, Slob, Slub};

/// Reports about caches of each name prefix: tests run side by side.
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn keep(report: &Report) {
    REPORTS
        .lock()
        .expect("no panic while it is held")
        .push(*report);
}

fn reports(cache: &str) -> Vec<Report> {
    let reports = REPORTS.lock().expect("no panic while it is held");
    let named = reports.iter().filter(|report| report.cache() == cache);
    named.copied().collect()
}

fn has_debugging<D: Design>() -> bool {
    D::debug_rules(D::DEFAULT_ERA).is_some()
}

fn heap<D: Design>(mode: Mode) -> &'static HostHeap<D> {
    let builder = Builder::<D>::new()
        .memory_bytes(256 << 20)
        .mode(mode)
        .slub_debug("FZPU")
        .reporter(keep);
    builder.build().expect("a heap").leak()
}

/// An object on its way to another thread.
struct Sent(NonNull<u8>);

// SAFETY: an object of a heap may be used and freed by any thread, one at a time.
unsafe impl Send for Sent {}

/// Threads that hand objects round, each filled over its whole length.
fn storm<D: Design>(mode: Mode) {
    const THREADS: usize = 6;
    const ROUNDS: u32 = 4000;
    let heap = heap::<D>(mode);
    let name = format!("storm-{}", D::NAME);
    let cache = heap
        .create_cache(&CacheSpec::new(&name, 72))
        .expect("a cache");
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Sent>()).unzip();
    std::thread::scope(|scope| {
        for (at, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(at + 1) % THREADS].clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let object = cache.alloc().expect("memory");
                    // SAFETY: the object is this long and this thread's.
                    unsafe { object.write_bytes(round as u8, 72) };
                    next.send(Sent(object))
                        .expect("the next thread waits for all");
                    if round % 3 == 0 {
                        let own = heap.kmalloc(round as usize % 2000 + 1);
                        // SAFETY: the object is not used any more.
                        unsafe { heap.kfree(own.expect("memory")) }.expect("a live object");
                    }
                    let Sent(object) = receiver.recv().expect("one for each round");
                    // SAFETY: the sender has given the object away.
                    unsafe { cache.free(object) }.expect("a live object");
                }
            });
        }
    });
    assert_eq!(cache.validate().findings, 0, "{name}");
    assert_eq!(cache.check_consistency(), Ok(()));
    let mut live = 0;
    cache.for_each_live(|_| live += 1).expect("at rest");
    assert_eq!(live, 0);
    assert_eq!(reports(&name), []);
    assert!(
        !REPORTS
            .lock()
            .unwrap()
            .iter()
            .any(|r| r.cache().starts_with("kmalloc"))
    );
}

#[test]
fn correct_use_gives_no_report() {
    for mode in [Mode::Auto, Mode::Fallback] {
        for_all_designs!(D => if has_debugging::<D>() {
            storm::<D>(mode);
        });
    }
}

/// One thread allocates, another frees, a third frees again.
fn two_threads<D: Design>() {
    let heap = heap::<D>(Mode::Auto);
    let name = format!("twice-{}", D::NAME);
    let cache = heap
        .create_cache(&CacheSpec::new(&name, 72))
        .expect("a cache");
    let _keeps_the_slab = cache.alloc();
    let object = Sent(cache.alloc().expect("memory"));
    let freed = std::thread::scope(|scope| {
        let free = move || {
            let Sent(object) = { object };
            // SAFETY: no code uses the object.
            (Sent(object), unsafe { cache.free(object) })
        };
        let (object, first) = scope.spawn(free).join().expect("no panic");
        assert_eq!(first, Ok(()));
        let again = move || {
            let Sent(object) = { object };
            // SAFETY: refused.
            unsafe { cache.free(object) }
        };
        scope.spawn(again).join().expect("no panic")
    });
    assert_eq!(freed, Err(FreeError::DoubleFree));
    let reports = reports(&name);
    assert_eq!(reports.len(), 1, "{reports:?}");
    let report = &reports[0];
    assert_eq!(report.what, Finding::DoubleFree);
    let (alloc, free) = (
        report.alloc.expect("tracked"),
        report.free.expect("tracked"),
    );
    let pids = [alloc.pid, free.pid, report.here.pid];
    if D::NAME == "slab" {
        // Its records have no room for threads and times.
        assert_eq!(
            (pids[..2].iter().sum::<u32>(), alloc.when, free.when),
            (0, 0, 0)
        );
    } else {
        assert!(
            pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2],
            "{report}"
        );
        assert!(alloc.when <= free.when && free.when <= report.here.when && alloc.when > 0);
    }
    for track in [alloc, free, report.here] {
        let file = track.site.location().expect("a place").file();
        assert_eq!(file, file!(), "{report}");
    }
    assert!(alloc.site != free.site && free.site != report.here.site);
}

#[test]
fn a_double_free_names_three_threads() {
    for_all_designs!(D => if has_debugging::<D>() {
        two_threads::<D>();
    });
}

#[test]
fn a_wrong_setting_is_an_error() {
    let error = Builder::<Slub>::new().slub_debug("FX").build().map(|_| ());
    let message = error.expect_err("no such letter").to_string();
    assert!(message.contains("no letter 'X'"), "{message}");
    let error = Builder::<Slob>::new().slub_debug("F").build().map(|_| ());
    let message = error.expect_err("no SLOB kernel had it").to_string();
    assert!(message.contains("slob has no debugging"), "{message}");
}
