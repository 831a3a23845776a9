//! Numbers of operations instead of times: 10^10 on objects with owners' numbers, and 100 000 forks under load, in a soak
//! (`cargo xtask soak`); a small part of it otherwise.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use quarry::kernel::design::Design;
use quarry::kernel::heap::Cache;
use quarry::{
    Builder, CacheSpec, CallSite, DefaultDesign, Hardening, HostHeap, HostMachine, Mode, SlabCache,
    Slob, Slub, Slubq,
};

use super::sys::{self, Random};
use super::{MEMORY, alone, hardened, is_soak};

/// Bytes of an object: a number in its first word and the same, inverted, in its last.
const BYTES: usize = 64;
/// Objects in a thread's hand.
const HAND: usize = 256;
/// Places where threads leave objects for each other.
const PLACES: usize = 4096;
/// Operations between two moves to another CPU.
const STAY: u64 = 1 << 16;

/// An object with the number of its owner.
#[derive(Clone, Copy)]
struct Owned(NonNull<u64>, u64);

impl Owned {
    fn last(self) -> *mut u64 {
        self.0.as_ptr().wrapping_add(BYTES / 8 - 1)
    }

    /// Takes possession of a fresh object.
    fn new(object: NonNull<u8>, number: u64) -> Self {
        let owned = Self(object.cast(), number);
        // SAFETY: the object has these bytes and is the caller's. Volatile, so that a second owner's writes are not
        // reasoned away.
        unsafe { owned.0.write_volatile(number) };
        // SAFETY: as above.
        unsafe { owned.last().write_volatile(!number) };
        owned
    }

    /// An object that another thread left.
    fn left(object: NonNull<u64>) -> Self {
        // SAFETY: the thread that left it wrote its number and has it no more.
        Self(object, unsafe { object.read_volatile() })
    }

    /// Gives possession up; ends the process's test if another owner had it.
    fn end(self) -> NonNull<u8> {
        // SAFETY: as in `new`.
        let first = unsafe { self.0.read_volatile() };
        // SAFETY: as in `new`.
        let last = unsafe { self.last().read_volatile() };
        assert_eq!(
            (first, last),
            (self.1, !self.1),
            "{:p} has two owners",
            self.0
        );
        // SAFETY: as in `new`.
        unsafe { self.0.write_volatile(0) };
        self.0.cast()
    }
}

/// The calls that are tried.
enum Calls<'h, D: Design> {
    Cache(Cache<'h, HostMachine, D>),
    Kmalloc(&'h HostHeap<D>),
}

impl<D: Design> Calls<'_, D> {
    fn alloc(&self) -> NonNull<u8> {
        match self {
            Self::Cache(cache) => cache.alloc(),
            Self::Kmalloc(heap) => heap.kmalloc(BYTES),
        }
        .expect("memory")
    }

    fn free(&self, owned: Owned) {
        let object = owned.end();
        let freed = match self {
            // SAFETY: its owner has given it up.
            Self::Cache(cache) => unsafe { cache.free(object) },
            // SAFETY: as above.
            Self::Kmalloc(heap) => unsafe { heap.kfree(object) },
        };
        freed.expect("an object in use");
    }
}

/// Works on objects until all threads together have done `wanted` operations. Returns the calling thread's allocations
/// less its frees.
fn work<D: Design>(
    calls: &Calls<'_, D>,
    places: &[AtomicPtr<u64>],
    thread: u64,
    done: &AtomicU64,
    wanted: u64,
) -> i64 {
    let allowed = sys::allowed_cpus();
    let mut random = Random(0x1234_5678_9abc + thread * 7919);
    let mut hand = [None; HAND];
    let (mut serial, mut more) = (0_u64, 0_i64);
    let mut fresh = |more: &mut i64| {
        serial += 1;
        *more += 1;
        Owned::new(calls.alloc(), thread << 48 | serial)
    };
    while done.load(Ordering::Relaxed) < wanted {
        for _ in 0..STAY {
            let dice = random.next() as usize;
            let at = dice % HAND;
            let held: Option<Owned> = hand[at];
            hand[at] = match held {
                // An exchange: what comes out is this thread's now.
                Some(owned) if dice & 0x700 == 0 => {
                    let place = &places[(dice >> 16) % PLACES];
                    // AcqRel: passes the object's contents on, and takes another's.
                    let other = place.swap(owned.0.as_ptr(), Ordering::AcqRel);
                    NonNull::new(other).map(Owned::left)
                }
                Some(owned) => {
                    calls.free(owned);
                    more -= 1;
                    None
                }
                None => Some(fresh(&mut more)),
            };
        }
        done.fetch_add(STAY, Ordering::Relaxed);
        sys::pin(0, allowed[random.below(allowed.len())]);
    }
    for owned in hand.into_iter().flatten() {
        calls.free(owned);
        more -= 1;
    }
    more
}

/// At least `wanted` operations of four threads per CPU; no object is lost or given twice.
fn tokens_hold<D: Design>(wanted: u64, by_kmalloc: bool) {
    let _alone = alone();
    let heap = Builder::<D>::new()
        .memory_bytes(MEMORY)
        .build()
        .expect("a heap");
    let spec = CacheSpec::new("tokens", BYTES as u32);
    let cache = heap.create_cache(&spec).expect("room");
    let calls = match by_kmalloc {
        true => Calls::Kmalloc(&heap),
        false => Calls::Cache(cache),
    };
    let places: Vec<_> = (0..PLACES)
        .map(|_| AtomicPtr::new(std::ptr::null_mut()))
        .collect();
    let done = AtomicU64::new(0);
    let threads = 4 * sys::allowed_cpus().len() as u64;
    let more: i64 = thread::scope(|scope| {
        let (calls, places, done) = (&calls, &places, &done);
        let workers: Vec<_> = (1..=threads)
            .map(|number| scope.spawn(move || work(calls, places, number, done, wanted)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no clash"))
            .sum()
    });
    let left: Vec<_> = places
        .iter()
        .filter_map(|place| NonNull::new(place.load(Ordering::Relaxed)))
        .collect();
    assert_eq!(left.len() as i64, more, "objects were lost or given twice");
    left.into_iter()
        .for_each(|object| calls.free(Owned::left(object)));
    cache.check_consistency().expect("consistent");
    cache
        .for_each_live(|object| panic!("{object:p} was lost"))
        .expect("at rest");
    let ops = done.load(Ordering::Relaxed);
    let of = if by_kmalloc { "kmalloc" } else { "cache" };
    eprintln!(
        "{} {of}: {ops} operations of {threads} threads, none lost",
        D::NAME
    );
    assert!(ops >= wanted);
}

/// A number of a soak, or a part of it.
fn number(soak: u64) -> u64 {
    if is_soak() { soak } else { soak / 4000 }
}

#[test]
fn owners_numbers_hold() {
    tokens_hold::<DefaultDesign>(number(10_000_000_000), false);
    tokens_hold::<DefaultDesign>(number(2_000_000_000), true);
    tokens_hold::<Slub>(number(1_000_000_000), true);
    tokens_hold::<SlabCache>(number(1_000_000_000), true);
    tokens_hold::<Slubq>(number(1_000_000_000), true);
    tokens_hold::<Slob>(number(100_000_000), true);
}

/// Forks while three threads allocate; each child allocates and ends. One whose heap was not at rest is not asked.
#[test]
fn forks_hold() {
    let _alone = alone();
    for (measures, soak) in [(Hardening::NONE, 100_000), (Hardening::ALL, 20_000)] {
        // Of one heap that has been used for long, and of heaps in their first uses.
        let forks = if is_soak() { soak } else { 100 };
        let missed = forks_of_a_heap(forks, measures);
        eprintln!("{measures:?}: {forks} forks under load, {missed} locks missed");
        assert!(missed < forks, "{missed} of {forks}");
        let heaps = forks / 5;
        let missed: u64 = (0..heaps).map(|_| forks_of_a_heap(1, measures)).sum();
        eprintln!("{measures:?}: {heaps} forks of new heaps, {missed} locks missed");
        assert!(missed < heaps, "{missed} of {heaps}");
    }
    hardened::no_report();
}

/// Bytes of a block: small, or now and then a mapping, which has guards in a heap with all measures.
fn block_bytes(random: &mut Random) -> usize {
    match random.below(200) {
        0 => 5 << 20,
        1..4 => 100_000 * (1 + random.below(4)),
        _ => 1 + random.below(3000),
    }
}

/// Memory of any size, as callers have it who know what the heap takes.
fn block(heap: &HostHeap, bytes: usize) -> Option<NonNull<u8>> {
    match heap.hardens() {
        true => heap.kvmalloc_hardened(bytes, 16, CallSite::UNKNOWN),
        false => heap.kvmalloc(bytes, 16),
    }
}

/// Forks of a new heap; returns the locks that it missed.
fn forks_of_a_heap(forks: u64, measures: Hardening) -> u64 {
    let builder = Builder::<DefaultDesign>::new().memory_bytes(MEMORY);
    let builder = builder.hardened(measures).reporter(hardened::keep);
    let heap = builder.mode(Mode::Auto).build().expect("a heap");
    heap.machine().keep_blocks(16 << 20);
    let stop = AtomicBool::new(false);
    let before = quarry::fork_misses();
    thread::scope(|scope| {
        let _stop = sys::Stop(&stop);
        for seed in 1..=3 {
            let (heap, stop) = (&heap, &stop);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !stop.load(Ordering::Relaxed) {
                    let blocks: Vec<_> = (0..50)
                        .filter_map(|_| block(heap, block_bytes(&mut random)))
                        .collect();
                    for block in blocks {
                        // SAFETY: allocated above, and not used.
                        unsafe { heap.kvfree(block) }.expect("a block in use");
                    }
                }
            });
        }
        for fork in 0..forks {
            let missed = quarry::fork_misses();
            let child = sys::fork(|| {
                if quarry::fork_misses() != missed {
                    return 0;
                }
                // The last is a mapping.
                let bytes = |at: usize| if at < 40 { at * 70 + 1 } else { 5 << 20 };
                let blocks: [_; 41] = std::array::from_fn(|at| block(&heap, bytes(at)));
                let complete = blocks.iter().all(Option::is_some);
                for block in blocks.into_iter().flatten() {
                    // SAFETY: allocated above, and not used.
                    if unsafe { heap.kvfree(block) }.is_err() {
                        return 2;
                    }
                }
                i32::from(!complete || hardened::reports() != 0)
            });
            let status = sys::wait(child, Duration::from_secs(20));
            assert_eq!(
                status,
                Some(0),
                "child {fork} (None: hung; else code << 8 | signal)"
            );
        }
    });
    quarry::fork_misses() - before
}
