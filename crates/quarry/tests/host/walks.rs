//! Walks over caches and pages that threads use: they report no contradiction that is not there, and
//! find every object that a thread holds. Each design in each mode.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::design_tests::design_tests;
use crate::{small, while_in_use};
use quarry::kernel::design::CheckError;
use quarry::kernel::heap::Cache;
use quarry::kernel::machine::Cpus;
use quarry::kernel::page::PageInconsistency;
use quarry::{CacheFlags, CacheSpec, Design, HostHeap, HostMachine, Mode, Slub};

const THREADS: usize = 4;
/// Objects that a thread holds at once.
const HELD: usize = 300;
/// Walks of each kind.
const WALKS: usize = 60;
/// Walks over all pages.
const PAGE_WALKS: usize = 400;

/// Allocates, writes to all of each object, and frees, until it is stopped.
fn churn<D: Design>(cache: Cache<'_, HostMachine, D>, seed: usize, stop: &AtomicBool) {
    let bytes = cache.head().object_size() as usize;
    let mut held: Vec<NonNull<u8>> = Vec::new();
    let mut dice = seed * 7919 + 1;
    while !stop.load(Ordering::Relaxed) {
        dice = dice
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let wanted = (dice >> 33) % HELD;
        while held.len() < wanted {
            let object = cache.alloc().expect("memory");
            // SAFETY: the object is this thread's, and that long.
            unsafe { object.write_bytes(0xff, bytes) };
            held.push(object);
        }
        for object in held.drain(wanted / 2..) {
            // SAFETY: allocated from this cache, and given up here.
            unsafe { cache.free(object) }.expect("a live object");
        }
    }
    for object in held {
        // SAFETY: as above.
        unsafe { cache.free(object) }.expect("a live object");
    }
}

/// One walk of each kind. Returns the number of those that were not put off.
fn walk<D: Design>(cache: Cache<'_, HostMachine, D>, anchors: &[NonNull<u8>]) -> usize {
    let name = D::NAME;
    let mut done = 0;
    match cache.check_consistency() {
        Ok(()) => done += 1,
        Err(CheckError::Busy) => {}
        Err(CheckError::Inconsistent(found)) => panic!("{name}: {found}"),
    }
    let found = cache.validate();
    assert_eq!(found.findings, 0, "{name}: {found:?}");
    done += usize::from(!found.busy);
    let mut live = BTreeSet::new();
    // The heap may be used meanwhile.
    let walked = cache.for_each_live(|object| {
        let other = cache.alloc().expect("memory");
        // SAFETY: allocated just now.
        unsafe { cache.free(other) }.expect("a live object");
        live.insert(object);
    });
    if walked.is_ok() {
        assert!(
            anchors.iter().all(|anchor| live.contains(anchor)),
            "{name}: objects are missing"
        );
        done += 1;
    }
    done
}

fn walked_while_in_use<D: Design>(mode: Mode, flags: CacheFlags) {
    let heap = small::<D>(mode);
    let spec = CacheSpec {
        flags,
        ..CacheSpec::new("busy", 200)
    };
    let cache = heap.create_cache(&spec).unwrap();
    let anchors: Vec<_> = (0..100).map(|_| cache.alloc().expect("memory")).collect();
    let churn = |thread, stop: &AtomicBool| churn(cache, thread, stop);
    let done = while_in_use(THREADS, churn, || -> usize {
        (0..WALKS).map(|_| walk(cache, &anchors)).sum()
    });
    let cpus = heap.machine().topology().cpus;
    assert!(
        done > WALKS,
        "{} {mode:?}: {done} of {WALKS} on {cpus} CPUs",
        D::NAME
    );
    for anchor in anchors {
        // SAFETY: allocated above, and given up here.
        unsafe { cache.free(anchor) }.expect("a live object");
    }
    cache.flush();
    assert_eq!(cache.check_consistency(), Ok(()));
    cache
        .for_each_live(|object| panic!("{object:p} is lost"))
        .expect("at rest");
}

fn in_both_modes<D: Design>() {
    for mode in [Mode::Auto, Mode::Fallback] {
        walked_while_in_use::<D>(mode, CacheFlags::NONE);
    }
}

/// Blocks of the lists' orders and larger ones, single pages in bulk, and slabs, until it is stopped.
fn churn_pages(heap: &HostHeap<Slub>, seed: usize, stop: &AtomicBool) {
    let pages = heap.pages();
    let cache = heap.create_cache(&CacheSpec::new("pages", 2048)).unwrap();
    let (mut held, mut objects) = (Vec::new(), Vec::new());
    let mut dice = seed * 7919 + 1;
    while !stop.load(Ordering::Relaxed) {
        dice = dice
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        match (dice >> 33) % 8 {
            0..4 => held.extend(pages.alloc_owned((dice >> 40) as u32 % 6)),
            4..6 => held.truncate(held.len() / 2),
            6 => {
                let mut slots = [None; 64];
                pages.alloc_bulk(None, &mut slots);
                // SAFETY: the pages are this thread's, which does not use them.
                unsafe { pages.free_bulk(&mut slots) }.expect("allocated");
            }
            _ if objects.len() < 200 => objects.extend(cache.alloc()),
            _ => {
                for object in objects.drain(..) {
                    // SAFETY: allocated from this cache, and given up here.
                    unsafe { cache.free(object) }.expect("a live object");
                }
            }
        }
        held.truncate(400);
    }
}

/// Pages move between lists, zones and threads all the time: none is ever missed, or found twice.
#[test]
fn pages_are_walked_while_in_use() {
    for mode in [Mode::Auto, Mode::Fallback] {
        let heap = small::<Slub>(mode).leak();
        let churn = |thread, stop: &AtomicBool| churn_pages(heap, thread, stop);
        let done = while_in_use(THREADS, churn, || {
            let mut walks = (0..PAGE_WALKS).map(|_| heap.pages().check_consistency());
            walks.try_fold(0, |done, walk| match walk {
                Ok(_) => Ok(done + 1),
                Err(PageInconsistency::Busy(_)) => Ok(done),
                Err(found) => Err(found),
            })
        });
        let done = done.unwrap_or_else(|found| panic!("{mode:?}: {found}"));
        assert!(done > PAGE_WALKS / 4, "{mode:?}: {done} of {PAGE_WALKS}");
        let census = heap.pages().check_consistency().expect("at rest");
        assert_eq!((census.allocated, census.in_hand), (0, 0));
    }
}

design_tests!(walked_in_use: in_both_modes);

#[test]
fn debugged_caches_are_walked_while_in_use() {
    let debugged = CacheFlags::CONSISTENCY | CacheFlags::RED_ZONE | CacheFlags::POISON;
    walked_while_in_use::<Slub>(Mode::Auto, debugged);
}
