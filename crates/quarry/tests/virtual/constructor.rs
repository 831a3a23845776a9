//! Constructors: once for each object of a new slab, and nothing writes to free objects after that.

use crate::prelude::*;
use quarry_core::design::Constructor;
use quarry_core::heap::Cache;
use quarry_sim::Config;
use std::ffi::c_void;

/// Bytes of an object: two words that the constructor sets.
const BYTES: u32 = 16;
const COUNT: usize = 700;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn construct(object: *mut c_void) {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the caches have objects of two words.
    unsafe { object.cast::<[usize; 2]>().write([object.addr(), 0]) };
}

fn words(object: NonNull<u8>) -> *mut [usize; 2] {
    object.cast().as_ptr()
}

/// Allocates all objects and checks that each is as constructed; its last word may be what a user `left`.
fn fill<D: Design>(
    cache: &Cache<'_, VirtualMachine, D>,
    left: impl Fn(usize) -> bool,
) -> Vec<NonNull<u8>> {
    let objects: Vec<_> = (0..COUNT).map(|_| cache.alloc().expect("memory")).collect();
    for object in &objects {
        // SAFETY: the object is the test's, and was constructed.
        let [own, user] = unsafe { words(*object).read() };
        assert_eq!(own, object.addr().get());
        assert!(left(user), "{user}");
    }
    objects
}

fn constructs_once<D: Design>(_: &str, era: Era) {
    let debug = [
        CacheFlags::NONE,
        CacheFlags::POISON | CacheFlags::RED_ZONE,
        CacheFlags::DEBUG_DEFAULT,
    ];
    let debugs = D::debug_rules(era).is_some();
    for flags in each(debug.into_iter().take(if debugs { 3 } else { 1 })) {
        CALLS.set(0);
        let machine = VirtualMachine::new(Config::default()).expect("a machine");
        let heap = Heap::<_, D>::new(machine, era, BootParams::default()).expect("a heap");
        // SAFETY: it writes to the object alone.
        let ctor = unsafe { Constructor::new(construct) };
        let spec = CacheSpec {
            flags,
            ctor: Some(ctor),
            ..CacheSpec::new("constructed", BYTES)
        };
        let cache = match heap.create_cache(&spec) {
            Err(error) => {
                assert!(D::FEATURES.shared_slabs);
                return assert_eq!(error, CreateError::Constructor);
            }
            Ok(cache) => cache,
        };
        assert!(cache.head().flags().contains(CacheFlags::CTOR));
        let objects = fill(&cache, |user| user == 0);
        assert_eq!(CALLS.get(), cache.usage().num_objs);
        for object in objects {
            // SAFETY: the object is the test's.
            unsafe { (*words(object))[1] = 1 };
            free(cache, object).expect("an object of the cache");
        }
        // Some of these were another's before, and have what that one left.
        let objects = fill(&cache, |user| user <= 1);
        let per_slab = u64::from(cache.head().geometry().objects);
        let made = cache.stats().get(Stat::AllocSlab) * per_slab;
        assert_eq!(CALLS.get(), made);
        for object in objects {
            free(cache, object).expect("an object of the cache");
        }
        let before = CALLS.get();
        assert_eq!(cache.shrink(), 0);
        assert_eq!(cache.usage().slabs, 0);
        let object = cache.alloc().expect("memory");
        assert!(CALLS.get() > before, "a new slab");
        free(cache, object).expect("an object of the cache");
        // SAFETY: there is no other handle to the cache.
        unsafe { cache.destroy() }.expect("no objects");
    }
}

design_tests!(constructs: constructs_once);

/// Allocates or frees an object; one that is allocated is as constructed. An allocation may find a lock that the code
/// below a handler holds.
fn step<M: Machine, D: Design>(
    cache: Cache<'_, M, D>,
    objects: &mut Vec<NonNull<u8>>,
    rng: &mut Rng,
) {
    if rng.below(100) >= objects.len() as u64 {
        if let Some(object) = cache.alloc() {
            // SAFETY: the object is the test's, and was constructed.
            let [own, _] = unsafe { words(object).read() };
            assert_eq!(own, object.addr().get());
            objects.push(object);
        }
    } else {
        let object = objects.swap_remove(rng.below(objects.len() as u64) as usize);
        free(cache, object).expect("an object of the cache");
    }
}

/// Frees of signal handlers that found a lock held wait, linked, for the next operation.
fn survives_handlers<D: Design>(_: &str, era: Era) {
    if D::FEATURES.shared_slabs {
        return;
    }
    let mut deferred = 0;
    for seed in 0..12 {
        let machine = VirtualMachine::new(Config::default()).expect("a machine");
        let machine = Interrupted::new(machine, seed);
        let heap = Heap::<_, D>::new(machine, era, BootParams::default()).expect("a heap");
        let heap = Rc::new(heap);
        // SAFETY: it writes to the object alone.
        let ctor = unsafe { Constructor::new(construct) };
        let spec = CacheSpec {
            ctor: Some(ctor),
            // Few in a slab, so that lists of slabs are used often.
            ..CacheSpec::new("constructed", 512)
        };
        let cache = heap.create_cache(&spec).expect("a cache");
        let anchor = cache.alloc().expect("memory");
        let mut own = Vec::new();
        let (weak, mut rng) = (Rc::downgrade(&heap), Rng::new(seed));
        let rest = Rc::new(Cell::new(Vec::new()));
        let kept = Rc::clone(&rest);
        let handler = move || {
            let Some(heap) = weak.upgrade() else { return };
            // SAFETY: the object stays allocated as long as there are handlers.
            let cache = unsafe { heap.cache_of(anchor) }.expect("the object's cache");
            let mut objects = kept.take();
            step(cache, &mut objects, &mut rng);
            kept.set(objects);
        };
        heap.machine().interrupt(100, Box::new(handler));
        let mut rng = Rng::new(seed + 100);
        for at in 0..3000 {
            step(cache, &mut own, &mut rng);
            if at % 100 == 0 {
                cache.shrink();
            }
        }
        assert!(heap.machine().quiet() > 20);
        own.append(&mut rest.take());
        for object in own.into_iter().chain([anchor]) {
            free(cache, object).expect("an object of the cache");
        }
        deferred += cache.stats().get(Stat::FreeDeferred);
        // SAFETY: there is no other handle to the cache.
        unsafe { cache.destroy() }.expect("no objects");
    }
    assert!(deferred > 0, "no free was ever deferred");
}

design_tests!(survives: survives_handlers);
