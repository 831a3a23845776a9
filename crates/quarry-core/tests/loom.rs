//! Models of SLUB's lists, of sheaves, of hardened caches, of pages and of page pools: the crate's own code, with the model checker's atomics and scheduler.
//!
//! Built by `RUSTFLAGS="--cfg loom" cargo test -p kquarry-core --release --test loom`.
//!
//! Everything runs that runs in a process, on a machine of two CPUs and six pages. What is checked
//! is every order of the atomics within the bound on forced switches; the free pointers inside
//! objects and the per-CPU states are ordinary memory, whose orders are not explored.
#![cfg(loom)]

mod loom_hardened;
mod loom_machine;
mod loom_pool;
mod loom_sheaf;

use std::ptr::NonNull;
use std::sync::Arc;

use loom::sync::atomic::Ordering;
use loom::thread;

use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::heap::{Cache, CacheView, Heap};
use quarry_core::machine::{LockClass, RawLock};
use quarry_core::page::PageAllocator;
use quarry_core::slub::Slub;

use loom_machine::{LoomMachine, Me, SLOTLESS, be};

type ModelHeap = Heap<LoomMachine, Slub>;
type Objects = Vec<usize>;

/// Script of one thread.
#[derive(Clone, Copy, Debug)]
enum Does {
    Free(usize),
    Alloc,
}

fn me(cpu: u32) -> Me {
    Me {
        cpu,
        reentered: false,
    }
}

const HANDLER: Me = Me {
    cpu: SLOTLESS,
    reentered: true,
};

/// The cache of the model; the others are kmalloc's.
fn cache<D: Design>(heap: &Heap<LoomMachine, D>) -> Cache<'_, LoomMachine, D> {
    let mut found = None;
    heap.for_each_cache(|cache| {
        if cache.name() == "model" {
            // SAFETY: a cache is its view and nothing else, and the models destroy none, so it lives as long as the heap,
            // which is longer than the closure's lifetime.
            found = Some(unsafe {
                std::mem::transmute::<CacheView<'_, LoomMachine, D>, Cache<'_, LoomMachine, D>>(
                    cache,
                )
            });
        }
    });
    found.unwrap()
}

fn free<D: Design>(heap: &Heap<LoomMachine, D>, object: usize) {
    let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object)).unwrap();
    // SAFETY: every object is freed once.
    unsafe { cache(heap).free(object) }.unwrap();
}

fn alloc<D: Design>(heap: &Heap<LoomMachine, D>) -> Option<usize> {
    cache(heap).alloc().map(|o| o.expose_provenance().get())
}

/// Starts a thread whose stack has room for a heap.
fn spawn<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(f)
        .unwrap()
}

/// Explores `f` with at most two forced switches.
fn explore(f: impl Fn() + Copy + Send + Sync + 'static) {
    explore_within(2, f);
}

/// Explores `f` with at most this many forced switches.
fn explore_within(switches: usize, f: impl Fn() + Copy + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 100_000;
    builder.check(move || spawn(f).join().unwrap());
}

/// Forced switches of a model that is explored in several eras: two in the newest, one in the others, which share most of its
/// code, unless `QUARRY_SOAK` asks for all.
fn switches(era: Era, newest: Era) -> usize {
    match era == newest || std::env::var_os("QUARRY_SOAK").is_some() {
        true => 2,
        false => 1,
    }
}

/// Three slabs of two objects: `objects[0..4]` fill two without an owner, the others the slab of
/// CPU 0. Then runs each actor on its own thread, and checks what is left.
fn model(
    era: Era,
    without: Option<LockClass>,
    before: &'static [usize],
    actors: &'static [(Me, Does)],
) {
    explore_within(switches(era, Era::V6_18), move || {
        be(me(0));
        let machine = match without {
            None => LoomMachine::new(),
            Some(class) => LoomMachine::new().without(class),
        };
        let boot = BootParams {
            slub_max_order: Some(0),
            ..BootParams::default()
        };
        let heap = Arc::new(ModelHeap::new(machine, era, boot).unwrap());
        heap.create_cache(&CacheSpec::new("model", 2048)).unwrap();
        let mut objects: Objects = (0..6).map(|_| alloc(&heap).unwrap()).collect();
        be(me(SLOTLESS));
        for &number in before {
            free(&heap, std::mem::take(&mut objects[number]));
        }
        let threads: Vec<_> = actors
            .iter()
            .map(|&(me, does)| {
                let heap = Arc::clone(&heap);
                let object = match does {
                    Does::Free(number) => std::mem::take(&mut objects[number]),
                    Does::Alloc => 0,
                };
                spawn(move || {
                    be(me);
                    match does {
                        Does::Free(_) => free(&heap, object),
                        Does::Alloc => return alloc(&heap),
                    }
                    None
                })
            })
            .collect();
        objects.extend(threads.into_iter().filter_map(|t| t.join().unwrap()));
        be(me(0));
        finish(&heap, objects);
    });
}

/// No object is lost or in two places, and all memory comes back.
fn finish<D: Design>(heap: &Heap<LoomMachine, D>, mut objects: Objects) {
    objects.retain(|&object| object != 0);
    objects.sort_unstable();
    let cache = cache(heap);
    let mut live = Vec::new();
    cache
        .for_each_live(|object| live.push(object.addr().get()))
        .expect("at rest");
    assert_eq!(live, objects, "live objects");
    cache.check_consistency().unwrap();
    objects.into_iter().for_each(|object| free(heap, object));
    assert_eq!(cache.shrink(), 0);
    cache.check_consistency().unwrap();
    assert_eq!(cache.usage().slabs, 0);
    // What the cache had of general caches: CPUs keep main sheaves as long as sheaves have a capacity.
    cache.set_attribute("sheaf_capacity", 0);
    heap.for_each_cache(|cache| assert_eq!(cache.shrink(), 0));
    assert_eq!(heap.pages().check_consistency().unwrap().slab, 0);
}

const ERAS: [Era; 2] = [Era::V5_9, Era::V6_18];
const NODE: Me = Me {
    cpu: SLOTLESS,
    reentered: false,
};
const CPU0: Me = Me {
    cpu: 0,
    reentered: false,
};
const CPU1: Me = Me {
    cpu: 1,
    reentered: false,
};

fn both_eras(before: &'static [usize], actors: &'static [(Me, Does)]) {
    ERAS.into_iter()
        .for_each(|era| model(era, None, before, actors));
}

#[test]
fn two_frees_of_a_full_slab_list_it_once() {
    both_eras(&[], &[(NODE, Does::Free(0)), (NODE, Does::Free(1))]);
}

#[test]
fn cpu_partial_put_against_node_free() {
    both_eras(&[], &[(CPU1, Does::Free(0)), (NODE, Does::Free(1))]);
}

#[test]
fn cpu_partial_put_on_two_cpus() {
    both_eras(&[], &[(CPU1, Does::Free(0)), (CPU0, Does::Free(1))]);
}

#[test]
fn pushes_against_the_owner_who_takes_all() {
    both_eras(&[], &[(CPU0, Does::Alloc), (CPU1, Does::Free(5))]);
}

#[test]
fn last_free_against_taking_from_the_list() {
    both_eras(&[0], &[(CPU1, Does::Alloc), (NODE, Does::Free(1))]);
}

#[test]
fn taking_the_last_object_off_a_listed_slab_against_a_cpu_partial_put() {
    both_eras(&[0, 2], &[(NODE, Does::Alloc), (CPU1, Does::Free(1))]);
}

#[test]
fn deferred_frees_against_settling() {
    both_eras(&[], &[(HANDLER, Does::Free(0)), (NODE, Does::Free(1))]);
}

#[test]
#[should_panic]
fn without_list_lock_two_take_one_slab_off() {
    model(
        Era::V6_18,
        Some(LockClass::NodeList),
        &[0, 2],
        &[(NODE, Does::Alloc), (NODE, Does::Alloc)],
    );
}

#[test]
#[should_panic]
fn without_list_lock_two_slabs_clash() {
    model(
        Era::V5_9,
        Some(LockClass::NodeList),
        &[],
        &[(NODE, Does::Free(0)), (NODE, Does::Free(2))],
    );
}

#[test]
fn a_closed_gate_keeps_everybody_out() {
    explore(|| {
        be(CPU0);
        let boot = BootParams {
            slub_max_order: Some(0),
            ..BootParams::default()
        };
        let heap = Arc::new(ModelHeap::new(LoomMachine::new(), Era::V6_18, boot).unwrap());
        let spec = CacheSpec::new("model", 2048);
        heap.create_cache(&spec).unwrap();
        let objects: Objects = (0..2).map(|_| alloc(&heap).unwrap()).collect();
        let other = Arc::clone(&heap);
        let first = objects[0];
        let thread = spawn(move || {
            be(NODE);
            free(&other, first);
        });
        // SAFETY: `resume` follows, on this thread.
        if unsafe { heap.quiesce() } == 0 {
            // Acquire would say nothing more: what `quiesce` has seen orders this load.
            assert_eq!(
                heap.machine().held.load(Ordering::Relaxed),
                0,
                "not at rest"
            );
        }
        // SAFETY: ends what began above.
        unsafe { heap.resume(false) };
        thread.join().unwrap();
        finish(&heap, objects[1..].to_vec());
    });
}

/// Two users of a page give it back, one of them after another reference: one of the two frees it.
#[test]
fn one_of_the_last_references_frees() {
    explore(|| {
        be(CPU0);
        let pages = PageAllocator::new(LoomMachine::new(), Era::V6_18).unwrap();
        let pages = Arc::new(pages);
        let page = pages.alloc(0, None).unwrap();
        // SAFETY: the page is this thread's.
        unsafe { pages.get_page(page) }.unwrap();
        let other = Arc::clone(&pages);
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: one of the two references is this thread's.
            unsafe { other.get_page(page) }.unwrap();
            // SAFETY: the references that are put here are two of three, and the other thread's is the third.
            assert_eq!(unsafe { other.put_page(page) }, Ok(false));
            // SAFETY: the second of this thread's two references.
            unsafe { other.put_page(page) }.unwrap()
        });
        // SAFETY: the third reference is this thread's.
        let mine = unsafe { pages.put_page(page) }.unwrap();
        assert_ne!(thread.join().unwrap(), mine, "freed once");
        assert_eq!(pages.check_consistency().unwrap().allocated, 0);
    });
}

/// Memory of a page: the model checks that accesses are ordered.
struct Contents(loom::cell::UnsafeCell<u32>);

// SAFETY: two at a time is what the model finds.
unsafe impl Sync for Contents {}

impl Contents {
    fn change(&self) {
        // SAFETY: the callers order their accesses; the cell ends the model if they do not.
        self.0.with_mut(|contents| unsafe { *contents += 1 });
    }
}

/// A caller that frees a page by its number, with the last reference, comes after all that others
/// did with it.
#[test]
fn a_free_comes_after_what_others_did() {
    explore(|| {
        be(CPU0);
        let pages = PageAllocator::new(LoomMachine::new(), Era::V6_18).unwrap();
        let page = pages.alloc(0, None).unwrap();
        // SAFETY: the page is this thread's.
        unsafe { pages.get_page(page) }.unwrap();
        let contents = Contents(loom::cell::UnsafeCell::new(0));
        let shared = Arc::new((pages, contents));
        let other = Arc::clone(&shared);
        let thread = spawn(move || {
            be(CPU1);
            other.1.change();
            // SAFETY: one of the two references is this thread's.
            assert_eq!(unsafe { other.0.put_page(page) }, Ok(false));
        });
        let (pages, contents) = &*shared;
        // The explorer does not see that a load comes before or after an exchange that begins with one.
        thread::yield_now();
        // SAFETY: the page is this thread's but for the other one's reference.
        if unsafe { pages.free(page, 0) }.is_ok() {
            contents.change();
        }
        thread.join().unwrap();
    });
}

/// A thread takes a reference while another frees the page: one of the two is refused.
#[test]
fn a_reference_and_a_free_exclude_each_other() {
    explore(|| {
        be(CPU0);
        let pages = PageAllocator::new(LoomMachine::new(), Era::V6_18).unwrap();
        let pages = Arc::new(pages);
        let page = pages.alloc(0, None).unwrap();
        let other = Arc::clone(&pages);
        let thread = spawn(move || {
            be(CPU1);
            // SAFETY: the other thread frees by a compare-and-swap.
            unsafe { other.get_page(page) }.is_ok()
        });
        // SAFETY: the page is this thread's; the other one takes a reference at most.
        let freed = unsafe { pages.free(page, 0) }.is_ok();
        let referenced = thread.join().unwrap();
        assert_ne!(freed, referenced, "one of them is too late");
        assert_eq!(pages.page_count(page), if freed { 0 } else { 2 });
    });
}

#[test]
fn raw_lock_excludes_and_orders() {
    loom::model(|| {
        #[allow(
            clippy::arc_with_non_send_sync,
            reason = "loom's own Arc may go to its threads"
        )]
        let shared = Arc::new((RawLock::new(), loom::cell::UnsafeCell::new(0)));
        let other = Arc::clone(&shared);
        let work = |shared: &(RawLock, loom::cell::UnsafeCell<u32>), me| {
            if shared.0.acquire(me) {
                // SAFETY: the lock is held; that this suffices is what the model checks.
                shared.1.with_mut(|n| unsafe { *n += 1 });
                shared.0.release();
            }
        };
        let thread = thread::spawn(move || work(&other, 1));
        work(&shared, 2);
        thread.join().unwrap();
    });
}
