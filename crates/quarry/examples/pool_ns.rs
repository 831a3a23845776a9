//! Prints what the paths of a page pool cost, beside the page allocator and two null arms.
//!
//! `cargo run --release -p quarry --example pool_ns [rounds]`; medians and minima of short rounds,
//! for the machine may be busy. Pin it (`taskset -c 0`) for steadier numbers.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quarry::{Builder, Frame, HostMachine, PageAllocator, PagePool, Pfn, PoolParams, Slub};
use quarry_core::pool::PoolOwner;

/// Pages in use at a time.
const HAND: usize = 64;
/// Pages per round: a few microseconds.
const PAGES: usize = 10 * HAND;

/// Runs rounds of [`PAGES`] pages and prints the nanoseconds per page.
fn measure(name: &str, rounds: usize, mut round: impl FnMut()) {
    let mut times_ns: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / PAGES as f64
        })
        .collect();
    times_ns.sort_by(f64::total_cmp);
    let (median, least) = (times_ns[rounds / 2], times_ns[0]);
    println!("{name:<44} {median:7.2} ns  (least {least:.2})");
}

fn null_arms(rounds: usize) {
    let mut stack = Vec::with_capacity(HAND);
    measure("null: push and pop of a vector", rounds, || {
        for _ in 0..PAGES {
            black_box(&mut stack).push(0);
            black_box(stack.pop());
        }
    });
    let word = AtomicUsize::new(0);
    measure("null: compare-and-swap, store", rounds, || {
        for _ in 0..PAGES {
            let taken = word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
            assert!(taken.is_ok());
            black_box(&word).store(0, Ordering::Release);
        }
    });
}

fn page_allocator(pages: &PageAllocator<HostMachine>, rounds: usize) {
    measure("page allocator: alloc, free", rounds, || {
        for _ in 0..PAGES {
            let page = pages.alloc(0, None).expect("memory");
            // SAFETY: the page was just allocated, and nothing uses it.
            let freed = unsafe { pages.free(black_box(page), 0) };
            assert_eq!(freed, Ok(()));
        }
    });
    let mut slots: [Option<Pfn>; HAND] = [None; HAND];
    measure("page allocator: bulk of 64", rounds, || {
        for _ in 0..PAGES / HAND {
            assert_eq!(pages.alloc_bulk(None, &mut slots), HAND);
            // SAFETY: as above, of all pages of the array.
            let freed = unsafe { pages.free_bulk(black_box(&mut slots)) };
            assert_eq!(freed, Ok(()));
        }
    });
}

fn page_pool(pool: &mut PagePool, rounds: usize) {
    let mut hand = Vec::with_capacity(HAND);
    measure("pool: alloc, recycle", rounds, || {
        for _ in 0..PAGES {
            let frame = pool.alloc().expect("memory");
            pool.recycle(black_box(frame));
        }
    });
    measure("pool: 64 allocs, 64 recycles", rounds, || {
        for _ in 0..PAGES / HAND {
            hand.extend((0..HAND).map(|_| pool.alloc().expect("memory")));
            hand.drain(..).for_each(|frame| pool.recycle(frame));
        }
    });
    measure("pool: 64 allocs, 64 puts through the ring", rounds, || {
        for _ in 0..PAGES / HAND {
            hand.extend((0..HAND).map(|_| pool.alloc().expect("memory")));
            hand.clear();
        }
    });
    let mut slots = [const { None }; HAND];
    measure("pool: bulk of 64, recycled", rounds, || {
        for _ in 0..PAGES / HAND {
            assert_eq!(pool.alloc_bulk(&mut slots), HAND);
            pool.recycle_bulk(black_box(&mut slots));
        }
    });
    measure("pool: bulk of 64, through the ring", rounds, || {
        for _ in 0..PAGES / HAND {
            assert_eq!(pool.alloc_bulk(&mut slots), HAND);
            Frame::put_bulk(black_box(&mut slots));
        }
    });
    measure("pool: fragment of 1920 bytes, drop", rounds, || {
        for _ in 0..PAGES {
            drop(black_box(pool.alloc_fragment(1920)));
        }
    });
}

/// Page numbers instead of frames, as a driver keeps them.
fn pool_of_numbers(owner: &mut PoolOwner<'_, HostMachine>, rounds: usize) {
    let mut hand = Vec::with_capacity(HAND);
    measure("numbers: alloc, put", rounds, || {
        for _ in 0..PAGES {
            let pfn = owner.alloc().expect("memory");
            // SAFETY: no other code knows the page.
            assert!(unsafe { owner.put(black_box(pfn)) }.is_ok());
        }
    });
    measure("numbers: 64 allocs, 64 puts", rounds, || {
        for _ in 0..PAGES / HAND {
            hand.extend((0..HAND).map(|_| owner.alloc().expect("memory")));
            for pfn in hand.drain(..) {
                // SAFETY: no other code knows the page.
                assert!(unsafe { owner.put(pfn) }.is_ok());
            }
        }
    });
    let pool = owner.handle();
    measure(
        "numbers: 64 allocs, 64 puts through the ring",
        rounds,
        || {
            for _ in 0..PAGES / HAND {
                hand.extend((0..HAND).map(|_| owner.alloc().expect("memory")));
                for pfn in hand.drain(..) {
                    // SAFETY: no other code knows the page.
                    assert!(unsafe { pool.put(pfn) }.is_ok());
                }
            }
        },
    );
    let mut slots = [None; HAND];
    measure("numbers: bulk of 64, by the owner", rounds, || {
        for _ in 0..PAGES / HAND {
            assert_eq!(owner.alloc_bulk(&mut slots), HAND);
            // SAFETY: no other code knows the pages.
            assert!(unsafe { owner.put_bulk(black_box(&mut slots)) }.is_ok());
        }
    });
    measure("numbers: bulk of 64, through the ring", rounds, || {
        for _ in 0..PAGES / HAND {
            assert_eq!(owner.alloc_bulk(&mut slots), HAND);
            // SAFETY: no other code knows the pages.
            assert!(unsafe { pool.put_bulk(black_box(&mut slots)) }.is_ok());
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args()
        .nth(1)
        .map_or(Ok(2001), |text| text.parse())?;
    let heap = Builder::<Slub>::new()
        .memory_bytes(256 << 20)
        .build()?
        .leak();
    let mut pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
    null_arms(rounds);
    page_allocator(heap.pages(), rounds);
    page_pool(&mut pool, rounds);
    let mut owner = PoolOwner::create(heap.pages(), heap.era(), &PoolParams::default())?;
    pool_of_numbers(&mut owner, rounds);
    Ok(())
}
