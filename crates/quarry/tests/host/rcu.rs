//! Deferred frees on the host: grace periods end by themselves, memory stays bounded, and no reader
//! finds an object that is another's already.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::design_tests::design_tests;
use crate::small;
use quarry::kernel::heap::Cache;
use quarry::{Builder, CacheSpec, Design, HostMachine, Mode, Slub};

/// Deferred frees without readers; each ends in a grace period of its own batch.
const FREES: usize = 2_000_000;
/// Objects that readers see replaced.
const SWAPS: u64 = 100_000;
/// Bytes of an object.
const BYTES: usize = 256;
/// Most pages that slabs may have meanwhile: objects of two batches of 509, and what queues hold.
const PAGES_MAX: u64 = 600;

fn cache_of<D: Design>(heap: &'static quarry::HostHeap<D>) -> Cache<'static, HostMachine, D> {
    let spec = CacheSpec::new("deferred", BYTES as u32);
    heap.create_cache(&spec).unwrap()
}

fn memory_is_bounded<D: Design>() {
    let heap = small::<D>(Mode::Auto).leak();
    let cache = cache_of(heap);
    let mut most = 0;
    for at in 0..FREES {
        let object = cache.alloc().expect("memory");
        // SAFETY: no code has seen the object.
        unsafe { cache.free_rcu(object) }.expect("a live object");
        if at % 1000 == 0 {
            most = most.max(heap.pages().slab_pages());
        }
    }
    assert!(most < PAGES_MAX, "{}: {most} pages", D::NAME);
}

/// An object's two words are equal while it is published.
fn write(object: NonNull<u8>, number: u64) {
    let words = object.cast::<[AtomicU64; 2]>();
    // SAFETY: the object is the writer's, or published; its words are only used as atomics.
    let words = unsafe { words.as_ref() };
    words[0].store(number, Ordering::Relaxed);
    words[1].store(number, Ordering::Release);
}

fn readers_are_waited_for<D: Design>() {
    let heap = small::<D>(Mode::Auto).leak();
    let cache = cache_of(heap);
    let first = cache.alloc().expect("memory");
    write(first, 1);
    let (published, stop) = (AtomicPtr::new(first.as_ptr()), AtomicBool::new(false));
    let (reads, freed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let reader = heap.machine().rcu_read_lock();
                    // Acquire: pairs with the Release by which the writer publishes.
                    let object = published.load(Ordering::Acquire);
                    let words = object.cast::<[AtomicU64; 2]>();
                    // SAFETY: published when the section had begun, so it is not freed before its end.
                    let words = unsafe { &*words };
                    let number = words[0].load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    for _ in 0..8 {
                        let again = words[1].load(Ordering::Acquire);
                        assert_eq!(number, again, "{}: freed under a reader", D::NAME);
                    }
                    drop(reader);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut number = 1;
        while number < SWAPS || reads.load(Ordering::Relaxed) < 1000 {
            number += 1;
            let Some(object) = cache.alloc() else {
                // A reader that does not run holds up all.
                std::thread::yield_now();
                continue;
            };
            write(object, number);
            let old = published.swap(object.as_ptr(), Ordering::AcqRel);
            let old = NonNull::new(old).expect("one is always published");
            // SAFETY: only readers that run already may still use it.
            while unsafe { cache.free_rcu(old) }.is_err() {
                std::thread::yield_now();
            }
        }
        freed.store(number, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(freed.load(Ordering::Relaxed) >= SWAPS);
    let last = NonNull::new(published.into_inner()).expect("one is published");
    // SAFETY: there are no readers any more.
    unsafe { cache.free(last) }.expect("a live object");
    // The partly filled batch, and then what its flush left in queues.
    cache.flush();
    cache.flush();
    cache
        .for_each_live(|object| panic!("{object:p} was never freed"))
        .expect("at rest");
}

fn deferred_frees<D: Design>() {
    memory_is_bounded::<D>();
    readers_are_waited_for::<D>();
}

design_tests!(defers_frees: deferred_frees);

/// Deferred objects without readers are memory: the page of pointers need not be full.
#[test]
fn an_allocation_without_memory_frees_what_was_deferred() {
    let heap = Builder::<Slub>::new()
        .memory_bytes(16 << 20)
        .build()
        .unwrap();
    let spec = CacheSpec::new("large", 64 << 10);
    let cache = heap.create_cache(&spec).unwrap();
    let mut objects: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    assert!((100..400).contains(&objects.len()), "{}", objects.len());
    for object in objects.drain(..) {
        // SAFETY: no code has seen the object.
        if unsafe { cache.free_rcu(object) }.is_err() {
            // There was no memory for the page of pointers.
            // SAFETY: as above.
            unsafe { cache.free(object) }.expect("a live object");
        }
    }
    assert!(cache.alloc().is_some(), "deferred frees are kept for ever");
}
