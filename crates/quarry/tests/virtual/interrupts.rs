//! Signal handlers: every point at which the allocators call their machine may be interrupted by
//! code that allocates and frees on the same heap. Whatever is held then, nothing may be lost,
//! handed out twice, or waited for.

use crate::model::debugging;
use crate::model::ledger::{Ledger, Owner, Pick};
use crate::prelude::*;
use quarry_core::geometry::Hardening;
use quarry_core::heap::Cache;
use std::rc::Weak;

type TestHeap<D> = Heap<Interrupted, D>;

/// Runs of each design by default.
const SEEDS: u32 = 15;
/// Operations of the interrupted code in one run.
const OPERATIONS: u32 = 3000;
const MINE: Owner = Owner::Cache(0);
const HANDLERS: Owner = Owner::Cache(1);

/// One allocation or free of a cache's objects. `None` from an allocation is no failure: it may
/// have found a lock that the code below holds.
fn step<D: Design>(
    cache: Cache<'_, Interrupted, D>,
    ledger: &RefCell<Ledger>,
    rng: &mut Rng,
    owner: Owner,
    most: usize,
) -> bool {
    let count = ledger.borrow().count(owner);
    if rng.below(most as u64 + 1) >= count as u64 {
        let Some(object) = cache.alloc() else {
            return false;
        };
        let bytes = cache.head().object_size() as usize;
        let admitted = ledger.borrow_mut().admit(owner, object, bytes);
        admitted.expect("an object without an owner");
    } else {
        let pick = Pick::Any(rng.next_u64() as u16);
        let live = ledger.borrow_mut().dismiss(owner, pick);
        if let Some(live) = live.expect("contents as written") {
            // SAFETY: the ledger has just forgotten the object.
            unsafe { cache.free(live.object) }.expect("a live object");
        }
    }
    true
}

/// A bulk allocation and a bulk free of as many.
fn bulk<D: Design>(cache: Cache<'_, Interrupted, D>, ledger: &RefCell<Ledger>, count: usize) {
    let mut slots = vec![None; count];
    assert!(
        cache.alloc_bulk(&mut slots),
        "only a handler may find locks held"
    );
    let bytes = cache.head().object_size() as usize;
    for object in slots.iter().flatten() {
        let admitted = ledger.borrow_mut().admit(MINE, *object, bytes);
        admitted.expect("an object without an owner");
    }
    for slot in &mut slots {
        let live = ledger.borrow_mut().dismiss(MINE, Pick::Oldest);
        *slot = live.expect("contents as written").map(|live| live.object);
    }
    // SAFETY: the ledger has just forgotten the objects.
    unsafe { cache.free_bulk(&mut slots) }.expect("live objects");
    assert!(slots.iter().all(Option::is_none));
}

/// Objects of these sizes are tried: few in a slab, and enough that slubq keeps their bitmap in it.
const BYTES: [u32; 2] = [512, 32];

fn handler<D: Design>(
    heap: Weak<TestHeap<D>>,
    ledger: Rc<RefCell<Ledger>>,
    anchor: NonNull<u8>,
    seed: u64,
) -> Box<dyn FnMut()> {
    let mut rng = Rng::new(seed);
    Box::new(move || {
        let Some(heap) = heap.upgrade() else { return };
        // A handler cannot hold a borrow of its own machine's heap, so it finds the cache again.
        // SAFETY: the object stays allocated as long as there are handlers.
        let cache = unsafe { heap.cache_of(anchor) }.expect("the object's cache");
        for _ in 0..=rng.below(3) {
            step(cache, &ledger, &mut rng, HANDLERS, 60);
        }
        if rng.chance(100)
            && let Some(page) = heap.pages().alloc(rng.below(3) as u32, None)
        {
            let order = (0..3).find(|&order| heap.pages().free_number(page, order).is_ok());
            assert!(order.is_some(), "the page was allocated");
        }
    })
}

fn drop_all<D: Design>(cache: Cache<'_, Interrupted, D>, ledger: &RefCell<Ledger>) {
    for owner in [MINE, HANDLERS] {
        while let Some(live) = ledger
            .borrow_mut()
            .dismiss(owner, Pick::Newest)
            .expect("contents as written")
        {
            // SAFETY: the ledger has just forgotten the object.
            unsafe { cache.free(live.object) }.expect("a live object");
        }
    }
}

/// Tunables to set before the first operation.
type Tuning = [(&'static str, u64)];

/// Who looks for mistakes: debugging by its letters, or measures.
#[derive(Clone, Copy, Debug)]
struct Checks<'a> {
    letters: Option<&'a str>,
    measures: Hardening,
}

const NO_CHECKS: Checks<'static> = Checks {
    letters: None,
    measures: Hardening::NONE,
};

fn survives<D: Design>(
    era: Era,
    setup: Setup,
    per_mille: u16,
    tuning: &Tuning,
    checks: Checks<'_>,
) -> u64 {
    let machine = Interrupted::new(setup.machine(), setup.seed);
    let boot = BootParams {
        hardening: checks.measures,
        secret: setup.seed,
        ..setup.boot()
    };
    let heap = Rc::new(TestHeap::<D>::new(machine, era, boot).expect("a heap"));
    let debug = checks
        .letters
        .map(|letters| SlubDebug::parse(letters, era).expect("letters"));
    heap.set_slub_debug(debug).expect("a design with debugging");
    heap.set_reporter(Some(debugging::keep));
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let spec = CacheSpec::new("interrupted", BYTES[setup.seed as usize / 2 % BYTES.len()]);
    let cache = heap.create_cache(&spec).expect("a cache");
    for (name, value) in each(tuning) {
        assert!(cache.set_attribute(name, *value));
    }
    let anchor = cache.alloc().expect("memory");
    let runs = handler(
        Rc::downgrade(&heap),
        Rc::clone(&ledger),
        anchor,
        setup.seed ^ 1,
    );
    heap.machine().interrupt(per_mille, runs);
    let mut rng = Rng::new(setup.seed ^ 2);
    for at in 0..OPERATIONS {
        if rng.chance(50) {
            let cpu = rng.below(setup.cpus.into()) as u32;
            heap.machine().run_on(CpuId(cpu));
        }
        let done = step(cache, &ledger, &mut rng, MINE, 200);
        assert!(done, "only a handler may find locks held");
        match at % 500 {
            100 => drop(cache.flush()),
            200 => bulk(cache, &ledger, 70),
            300 => drop(cache.shrink()),
            400 => drop(heap.pages().drain_all()),
            _ => {}
        }
    }
    let taken = heap.machine().quiet();
    assert!(taken > 20, "only {taken} interrupts");
    drop_all(cache, &ledger);
    free(cache, anchor).expect("a live object");
    cache.shrink();
    let usage = cache.usage();
    assert_eq!(cache.check_consistency(), Ok(()), "seed {}", setup.seed);
    assert_eq!(usage.slabs, 0, "seed {}: {usage:?}", setup.seed);
    let deferred = cache.stats().get(Stat::FreeDeferred);
    // Other classes hold what a design keeps for this one, and for each other.
    shrink_all(&heap);
    assert_eq!(debugging::reports(), [], "{checks:?}");
    assert_eq!(heap.pages().drain_all(), 0);
    let census = heap.pages().check_consistency().expect("consistent");
    assert_eq!((census.slab, census.pcp, census.allocated), (0, 0, 0));
    deferred
}

fn survives_all<D: Design>(_: &str, era: Era) {
    survives_with::<D>(era, &[], NO_CHECKS);
}

fn survives_tuned<D: Design>(era: Era, tuning: &Tuning) {
    survives_with::<D>(era, tuning, NO_CHECKS);
}

fn survives_with<D: Design>(era: Era, tuning: &Tuning, checks: Checks<'_>) {
    let mut deferred = 0;
    for seed in 0..u64::from(case_count(SEEDS)) {
        let setup = Setup {
            cpus: 3,
            nodes: 1 + (seed % 2) as u32,
            page_shift: 12,
            seed,
            ..Setup::default()
        };
        let per_mille = [5, 40, 200][seed as usize % 3];
        deferred += survives::<D>(era, setup, per_mille, tuning, checks);
    }
    assert!(deferred > 0, "no free was ever deferred");
}

design_tests!(survives_interrupts: survives_all);

#[test]
fn slub_with_more_cpu_slabs_survives_interrupts() {
    survives_tuned::<Slub>(Era::V2_6_24, &[("cpu_slabs_max", 4)]);
}

#[test]
fn slubq_with_shared_queues_survives_interrupts() {
    let tuning = [
        ("cpu_queue_size", 8),
        ("cpu_batch_size", 4),
        ("shared_queue_size", 20),
        ("alien_queue_size", 10),
    ];
    survives_tuned::<Slubq>(Era::V2_6_35, &tuning);
}

/// A handler that finds the debug lock held is refused or deferred, unchecked, and nothing that it
/// leaves behind looks like a mistake.
#[test]
fn debugging_survives_interrupts() {
    fn survive<D: Design>(letters: &str) {
        for &era in each(D::ERAS.iter().filter(|era| D::debug_rules(**era).is_some())) {
            let letters = Some(letters);
            let checks = Checks {
                letters,
                ..NO_CHECKS
            };
            survives_with::<D>(era, &[], checks);
        }
    }
    for letters in ["FZPU", "ZP", "F"] {
        for_all_designs!(D => survive::<D>(letters));
    }
}

/// The same of measures: a deferred free keeps its link where none of them looks.
#[test]
fn hardening_survives_interrupts() {
    fn survive<D: Design>(measures: Hardening) {
        if !D::FEATURES.hardens {
            return;
        }
        for &era in each(D::ERAS) {
            let checks = Checks {
                measures,
                ..NO_CHECKS
            };
            survives_with::<D>(era, &[], checks);
        }
    }
    for measures in [Hardening::ALL, Hardening::REUSE, Hardening::DELAY] {
        for_all_designs!(D => survive::<D>(measures));
        // Sheaves that SLUB fills and takes objects back from, in bulk.
        let checks = Checks {
            measures,
            ..NO_CHECKS
        };
        survives_with::<SheafCache>(Era::V6_18, &[("sheaf_capacity", 8)], checks);
    }
}

/// A walk over a cache's slabs steps from block to block over pages that others split meanwhile: it
/// finds the slabs behind them at every moment.
#[test]
fn walks_find_slabs_behind_a_block_that_is_split() {
    const ORDER: u32 = 5;
    let setup = Setup::default();
    let machine = Interrupted::new(setup.machine(), setup.seed);
    let heap = TestHeap::<Slub>::new(machine, Era::V6_1, setup.boot()).expect("a heap");
    let heap = Rc::new(heap);
    let spec = CacheSpec::new("behind", 512);
    let cache = heap.create_cache(&spec).expect("a cache");
    let block = heap.pages().alloc(ORDER, None).expect("pages");
    let objects: Vec<_> = (0..200).map(|_| cache.alloc().expect("memory")).collect();
    assert!(heap.pages().free_number(block, ORDER).is_ok());
    let pages = cache.usage().pages;
    let walks = Rc::new(RefCell::new(Vec::new()));
    let (found, weak, anchor) = (Rc::clone(&walks), Rc::downgrade(&heap), objects[0]);
    let walk = Box::new(move || {
        let Some(heap) = weak.upgrade() else { return };
        // SAFETY: the object stays allocated as long as there are handlers.
        let cache = unsafe { heap.cache_of(anchor) }.expect("the object's cache");
        found.borrow_mut().push(cache.usage().pages);
    });
    heap.machine().interrupt(1000, walk);
    for _ in 0..8 << ORDER {
        heap.pages().alloc(0, None).expect("pages");
    }
    heap.machine().quiet();
    let walks = walks.borrow();
    assert!(walks.len() > 100, "only {} walks", walks.len());
    assert!(walks.iter().all(|&found| found == pages), "{walks:?}");
}
