//! Memory that a heap needs beyond its live objects: with many idle threads, and where one thread frees what many
//! allocate.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use quarry::kernel::machine::Cpus as _;
use quarry::{Builder, DefaultDesign, Design, HostHeap, SlabCache, Slub, Slubq};

use super::{alone, is_soak, sys};

/// Sizes of requests, each that of a class: what rounding costs is another question.
const SIZES: [usize; 6] = [32, 64, 192, 256, 512, 1024];

fn heap<D: Design>() -> HostHeap<D> {
    let builder = Builder::<D>::new().memory_bytes(1 << 30);
    builder.build().expect("a heap")
}

/// Bytes of pages that the heap has from the system and has not given back.
fn resident<D: Design>(heap: &HostHeap<D>) -> u64 {
    let residency = heap.pages().residency();
    (residency.resident() - residency.resident_free) << heap.machine().topology().page_shift
}

/// Bytes after some threads have used every size and stay.
fn with_idle_threads(threads: usize) -> u64 {
    let heap = heap::<DefaultDesign>();
    let used = Barrier::new(threads + 1);
    let mut bytes = 0;
    let cpus = sys::allowed_cpus();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (heap, used, cpus) = (&heap, &used, &cpus);
            let body = move || {
                // On every CPU in turn: sixteen threads could all run on one.
                sys::pin(0, cpus[thread % cpus.len()]);
                for bytes in SIZES {
                    let object = heap.kmalloc(bytes).expect("memory");
                    // SAFETY: allocated just now, and not used.
                    unsafe { heap.kfree(object) }.expect("an object in use");
                }
                used.wait();
                used.wait();
            };
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn_scoped(scope, body).expect("a thread");
        }
        used.wait();
        bytes = resident(&heap);
        used.wait();
    });
    bytes
}

/// CPUs keep objects, threads keep none: any number of idle threads costs what few do.
#[test]
fn idle_threads_cost_nothing() {
    let _alone = alone();
    let threads = if is_soak() { 10_000 } else { 1000 };
    let (few, many) = (with_idle_threads(16), with_idle_threads(threads));
    eprintln!("{few} bytes with 16 idle threads, {many} with {threads}");
    // A slab for each size may differ: threads meet CPUs' slots in another order.
    let slabs = SIZES.len() as u64 * (64 << 10);
    assert!(many <= few + slabs, "{few} with 16, {many} with {threads}");
}

/// Sixteen threads allocate and one frees, the oldest first, so that 370 MiB live. Returns the heap's memory in relation
/// to them, after what lives has been replaced twice.
fn with_one_that_frees<D: Design>(live_bytes: u64) -> f64 {
    const PRODUCERS: usize = 16;
    let heap = heap::<D>();
    let queue = Mutex::new(VecDeque::<(usize, usize)>::new());
    let (live, made) = (AtomicU64::new(0), AtomicU64::new(0));
    let running = AtomicUsize::new(PRODUCERS);
    let mut ratio = 0.0;
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (heap, queue, live, made, running) = (&heap, &queue, &live, &made, &running);
            scope.spawn(move || {
                let mut turn = producer;
                while made.load(Ordering::Relaxed) < 3 * live_bytes {
                    if live.load(Ordering::Relaxed) >= live_bytes {
                        thread::yield_now();
                        continue;
                    }
                    let batch: Vec<_> = (0..64)
                        .map(|_| {
                            turn += 1;
                            let bytes = SIZES[turn % SIZES.len()];
                            let object = heap.kmalloc(bytes).expect("memory");
                            (object.expose_provenance().get(), bytes)
                        })
                        .collect();
                    let bytes: usize = batch.iter().map(|(_, bytes)| bytes).sum();
                    live.fetch_add(bytes as u64, Ordering::Relaxed);
                    made.fetch_add(bytes as u64, Ordering::Relaxed);
                    queue.lock().expect("no panic").extend(batch);
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let free = |batch: Vec<(usize, usize)>| {
            for (address, bytes) in batch {
                let object = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
                // SAFETY: a producer allocated it and gave it up, and it comes out of the queue once.
                unsafe { heap.kfree(object.expect("an address")) }.expect("an object in use");
                live.fetch_sub(bytes as u64, Ordering::Relaxed);
            }
        };
        while running.load(Ordering::Relaxed) > 0 {
            if live.load(Ordering::Relaxed) < live_bytes - (1 << 20) {
                thread::yield_now();
                continue;
            }
            let mut queue = queue.lock().expect("no panic");
            let oldest = queue.len().min(256);
            let batch = queue.drain(..oldest).collect();
            drop(queue);
            free(batch);
        }
        ratio = resident(&heap) as f64 / live.load(Ordering::Relaxed) as f64;
        let rest = std::mem::take(&mut *queue.lock().expect("no panic"));
        free(rest.into());
    });
    ratio
}

#[test]
fn one_thread_that_frees_leaves_little_behind() {
    let _alone = alone();
    // With less alive, what CPUs and nodes keep is a larger part.
    let live_bytes = if is_soak() { 370 << 20 } else { 60 << 20 };
    for (name, ratio) in [
        (
            DefaultDesign::NAME,
            with_one_that_frees::<DefaultDesign>(live_bytes),
        ),
        (Slub::NAME, with_one_that_frees::<Slub>(live_bytes)),
        (
            SlabCache::NAME,
            with_one_that_frees::<SlabCache>(live_bytes),
        ),
        (Slubq::NAME, with_one_that_frees::<Slubq>(live_bytes)),
    ] {
        eprintln!("{name}: {ratio:.3} times of {live_bytes} live bytes");
        assert!((1.0..1.3).contains(&ratio), "{name}: {ratio}");
    }
}
