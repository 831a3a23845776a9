//! Objects as Rust programs expect them: the traits of a box, shared and constructed ones, caches in statics.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use quarry::kernel::for_all_designs;
use quarry::{
    Cache, ConstructedCache, DefaultDesign, Design, HostHeap, Kmalloc, LazyCache, Mode, Owned,
    Shared,
};

use crate::small;

fn cache<T>() -> Cache<T> {
    let heap = small::<DefaultDesign>(Mode::Auto);
    Cache::new(&heap, "object").expect("a cache")
}

/// Live objects of a cache that no thread uses. A fork of another test holds all CPUs' words for a moment.
fn at_rest<E>(live: impl Fn() -> Result<u64, E>) -> u64 {
    for _ in 0..1000 {
        if let Ok(live) = live() {
            return live;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the cache stays busy");
}

/// Counts its drops.
#[derive(Debug)]
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn panics_may_unwind_through_caches_and_objects() {
    fn is_safe<T: UnwindSafe + RefUnwindSafe>() {}
    // The type of its objects does not matter: a cache has none to look at.
    is_safe::<Cache<&'static std::cell::Cell<u8>>>();
    is_safe::<HostHeap>();
    is_safe::<ConstructedCache<u8>>();
    is_safe::<LazyCache<u8>>();
    is_safe::<Owned<u8>>();
    is_safe::<Shared<u8>>();

    let cache = cache();
    let caught = catch_unwind(|| drop(cache.alloc_with(|| -> u8 { panic!("no value") })));
    assert!(caught.is_err());
    assert_eq!(at_rest(|| cache.live()), 0);
}

fn what_is_live_and_what_is_held_are_told_apart<D: Design>() {
    let heap = small::<D>(Mode::Auto);
    let cache = Cache::<[u64; 8], D>::new(&heap, "number").expect("a cache");
    assert_eq!(at_rest(|| cache.live()), 0);
    let mut objects: Vec<_> = (0..100)
        .map(|number| cache.alloc([number; 8]).expect("memory"))
        .collect();
    objects.truncate(70);
    let before = cache.usage();
    assert_eq!(at_rest(|| cache.live()), 70);
    assert_eq!(cache.usage(), before, "no CPU gave up what it holds");
    let text = format!("{cache:?}");
    let held = before.active_objs - 70;
    assert!(
        text.contains(&format!("live: 70, held_by_cpus: {held}, ")),
        "{text}"
    );
    drop(objects);
    assert_eq!(at_rest(|| cache.live()), 0);
    assert_eq!(cache.shrink(), 0);
    let text = format!("{cache:?}");
    assert!(
        text.contains("live: 0, held_by_cpus: 0, free_in_slabs: 0, slabs: 0, "),
        "{text}"
    );
}

#[test]
fn debug_says_what_is_held_where() {
    for_all_designs!(D => what_is_live_and_what_is_held_are_told_apart::<D>());
}

#[test]
fn objects_compare_and_hash_as_their_values() {
    let words = cache::<String>();
    let word = |text: &str| words.alloc(text.to_owned()).expect("memory");
    assert_eq!(word("a"), word("a"));
    assert!(word("a") < word("b"));
    let set: HashSet<_> = ["a", "b", "a"].map(word).into_iter().collect();
    let b = "b".to_owned();
    assert!(set.len() == 2 && set.contains(&b));
    let sorted: BTreeSet<_> = ["b", "a"].map(word).into_iter().collect();
    assert_eq!(format!("{sorted:?}"), r#"{"a", "b"}"#);
    let borrowed: &String = sorted.first().expect("two").borrow();
    assert_eq!(borrowed, "a");
    let error = cache().alloc(std::fmt::Error).expect("memory");
    let error: Box<dyn Error> = Box::new(error);
    assert_eq!(error.to_string(), std::fmt::Error.to_string());
}

/// An error with a source.
#[derive(Debug)]
struct Outer(std::fmt::Error);

impl Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outer")
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn shared_objects_are_used_as_their_values() {
    let words = cache();
    let word = |text: &str| words.alloc_shared(text.to_owned()).expect("memory");
    assert_eq!(word("a"), word("a"));
    assert_ne!(word("a"), word("b"));
    assert!(word("a") < word("b") && word("b") > word("a"));
    assert!(!Shared::ptr_eq(&word("a"), &word("a")));
    let set: HashSet<_> = ["a", "b", "a"].map(word).into_iter().collect();
    let b = "b".to_owned();
    assert!(set.len() == 2 && set.contains(&b));
    let a = word("a");
    assert_eq!(format!("{a} {a:?}"), r#"a "a""#);
    assert_eq!(format!("{a:p}"), format!("{:p}", &raw const *a));
    let error = cache().alloc_shared(Outer(std::fmt::Error));
    let error = error.expect("memory");
    assert!(
        error
            .source()
            .is_some_and(|source| source.is::<std::fmt::Error>())
    );
}

#[test]
fn objects_become_trait_objects_and_slices() {
    let drops = Arc::new(AtomicUsize::new(0));
    let cache = cache();
    let object = cache.alloc(Counts(drops.clone())).expect("memory");
    let address = (&raw const *object).addr();
    let any: Owned<dyn std::fmt::Debug + Send> =
        quarry::unsize!(object, dyn std::fmt::Debug + Send);
    assert_eq!(size_of_val(&any), 2 * size_of::<usize>());
    assert_eq!((&raw const *any).cast::<u8>().addr(), address);
    assert!(format!("{any:?}").starts_with("Counts"));
    thread::spawn(move || drop(any)).join().expect("no panic");
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!(at_rest(|| cache.live()), 0);

    let words = self::cache();
    let three = words
        .alloc(["a", "b", "c"].map(String::from))
        .expect("memory");
    let mut slice: Owned<[String]> = quarry::unsize!(three, [String]);
    slice.sort_by(|one, other| other.cmp(one));
    assert_eq!(*slice, ["c", "b", "a"]);
    let shown: Owned<dyn Display> =
        quarry::unsize!(self::cache().alloc(7).expect("memory"), dyn Display);
    assert_eq!(shown.to_string(), "7");
    drop(slice);
    assert_eq!(at_rest(|| words.live()), 0);
}

#[test]
fn a_pinned_object_stays_where_it_is() {
    struct Unmoved(std::marker::PhantomPinned);
    let cache = cache();
    let object = cache
        .alloc_pin(Unmoved(std::marker::PhantomPinned))
        .expect("memory");
    let address = (&raw const *object).addr();
    let moved: Box<Pin<Owned<Unmoved>>> = Box::new(object);
    assert_eq!((&raw const **moved).addr(), address);
    drop(moved);
    assert_eq!(at_rest(|| cache.live()), 0);
}

#[test]
fn constructed_objects_keep_their_state() {
    let made = Arc::new(AtomicUsize::new(0));
    let drops = Arc::new(AtomicUsize::new(0));
    let cache = {
        let (made, drops) = (made.clone(), drops.clone());
        let construct = move || {
            made.fetch_add(1, Ordering::Relaxed);
            (Vec::<u8>::with_capacity(4096), Counts(drops.clone()))
        };
        cache().with_constructor(construct, |(bytes, _)| bytes.clear())
    };
    // A few, as the thread may move from one CPU to another.
    for _ in 0..10_000 {
        let mut object = cache.alloc().expect("memory");
        assert!(object.0.is_empty() && object.0.capacity() >= 4096);
        object.0.push(7);
    }
    let few = made.load(Ordering::Relaxed);
    assert!(
        few <= 100 && drops.load(Ordering::Relaxed) == 0,
        "{few} made"
    );

    // What the lane and the depot have no room for is dropped.
    let many: Vec<_> = (0..5000).map(|_| cache.alloc().expect("memory")).collect();
    assert!(made.load(Ordering::Relaxed) >= 5000);
    drop(many);
    let idle = cache.idle();
    assert!((1024..=1024 + 64 * 2).contains(&idle), "{idle} idle");
    let left = |drops: &AtomicUsize| made.load(Ordering::Relaxed) - drops.load(Ordering::Relaxed);
    assert_eq!(left(&drops), idle);
    assert_eq!(at_rest(|| cache.cache().live()), idle as u64);

    let detached = quarry::Constructed::detach(cache.alloc().expect("memory"));
    assert_eq!(cache.shrink(), 0);
    assert_eq!((cache.idle(), left(&drops)), (0, 1));
    drop(cache.alloc().expect("memory"));
    drop(cache);
    assert_eq!(left(&drops), 1, "the cache drops those that are idle");
    drop(detached);
    assert_eq!(left(&drops), 0);
}

#[test]
fn constructed_objects_come_back_from_other_threads() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let construct = move || count.fetch_add(1, Ordering::Relaxed);
    let cache = cache().with_constructor(construct, |_| ());
    thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel(100);
        scope.spawn(move || {
            receive
                .iter()
                .for_each(drop::<quarry::Constructed<'_, usize>>)
        });
        for _ in 0..20_000 {
            send.send(cache.alloc().expect("memory"))
                .expect("a receiver");
        }
        drop(send);
    });
    let made = made.load(Ordering::Relaxed);
    assert!(made < 5000, "{made} constructed for 20,000 users");
}

#[test]
fn panics_of_constructors_and_resets_lose_nothing() {
    let drops = Arc::new(AtomicUsize::new(0));
    let count = drops.clone();
    let made = AtomicUsize::new(0);
    let construct = move || {
        assert_ne!(made.fetch_add(1, Ordering::Relaxed), 1, "the second one");
        (Counts(count.clone()), false)
    };
    let cache = cache().with_constructor(construct, |(_, bad)| assert!(!*bad, "it is bad"));
    let mut object = cache.alloc().expect("memory");
    assert!(catch_unwind(|| drop(cache.alloc())).is_err());
    assert_eq!(at_rest(|| cache.cache().live()), 1);
    object.1 = true;
    assert!(catch_unwind(AssertUnwindSafe(|| drop(object))).is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!((cache.idle(), at_rest(|| cache.cache().live())), (0, 0));
    assert!(cache.alloc().is_ok());
}

#[test]
fn the_last_owner_drops_a_shared_value() {
    let drops = Arc::new(AtomicUsize::new(0));
    let cache = cache();
    let mut object = cache.alloc_shared(Counts(drops.clone())).expect("memory");
    assert!(Shared::get_mut(&mut object).is_some());
    let other = Shared::clone(&object);
    assert!(Shared::ptr_eq(&object, &other) && Shared::strong_count(&object) == 2);
    assert!(Shared::get_mut(&mut object).is_none());
    let object = Shared::try_unwrap(object).expect_err("there is another owner");
    let threads = [(); 4].map(|()| {
        let mine = Shared::clone(&object);
        thread::spawn(move || (0..1000).for_each(|_| drop(Shared::clone(&mine))))
    });
    drop((object, other));
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!(at_rest(|| cache.live()), 0);

    let alone = cache.alloc_shared(Counts(drops.clone())).expect("memory");
    let value = Shared::try_unwrap(alone).expect("one owner");
    assert_eq!(
        (drops.load(Ordering::Relaxed), at_rest(|| cache.live())),
        (1, 0)
    );
    drop(value);
    // The cache may go first.
    let last = cache.alloc_shared(Counts(drops.clone())).expect("memory");
    drop(cache);
    drop(last);
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}

#[test]
fn threads_make_a_static_cache_once() {
    static NUMBERS: LazyCache<u64> = LazyCache::new("lazy-number");
    let objects: Vec<_> = thread::scope(|scope| {
        let threads = [(); 8].map(|()| scope.spawn(|| NUMBERS.alloc(7).expect("memory")));
        threads
            .map(|thread| thread.join().expect("no panic"))
            .into()
    });
    let first = NUMBERS.get().expect("a cache");
    assert!(
        objects
            .iter()
            .all(|object| **object == 7 && first.owns(object))
    );
    let heap = Kmalloc::heap().expect("a heap");
    // What another test's thread is about to end, it ends soon.
    let falls_to = |name: &str, wanted: u32| {
        let mut caches = u32::MAX;
        for _ in 0..1000 {
            caches = 0;
            heap.reap();
            heap.for_each_cache(|cache| caches += u32::from(cache.name() == name));
            if caches <= wanted {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        caches == wanted
    };
    assert!(falls_to("lazy-number", 1));

    // One that is no static ends with its value.
    let local = LazyCache::<u64>::new("lazy-local");
    assert!(format!("{local:?}").contains("lazy-local"));
    drop(local.alloc(7).expect("memory"));
    assert!(format!("{local:?}").contains("live: 0"));
    assert!(falls_to("lazy-local", 1));
    drop(local);
    assert!(falls_to("lazy-local", 0));

    // A space beyond ASCII is left to the first use.
    static BAD: LazyCache<u64> = LazyCache::new("two\u{2003}words");
    assert!(BAD.get().is_err() && BAD.alloc(7).is_err());
}
