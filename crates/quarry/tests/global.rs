//! A program whose global allocator is [`quarry::Kmalloc`]: the test harness, its threads, and all that they allocate.

use std::alloc::{GlobalAlloc as _, Layout};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use quarry::{Cache, FreeError, Kmalloc, Mode, ProcessHeap, Slub};

#[global_allocator]
static ALLOCATOR: Kmalloc = Kmalloc;

static BEFORE_MAIN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn early() {
    // A string of a page and a small one, before the runtime of the language is set up.
    let text = "x".repeat(5000);
    BEFORE_MAIN.store(text.len() + text[..9].to_owned().len(), Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static EARLY: extern "C" fn() = early;

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("a layout")
}

/// Forks; the child ends with the answer of `f`, which the parent asserts to be 0.
fn in_child(f: impl FnOnce() -> i32) {
    // SAFETY: the heap rests during forks, and the child leaves by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let code = f();
            // SAFETY: ends the child without destructors.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 1;
            // SAFETY: the status is valid for writes.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "status of the child");
        }
    }
}

#[test]
fn it_works_before_main_and_has_all_that_was_allocated() {
    assert_eq!(BEFORE_MAIN.load(Ordering::Relaxed), 5009);
    let boxed = Box::new([1_u64; 20]);
    let heap = Kmalloc::heap().expect("a heap");
    assert_eq!(heap.kvsize(NonNull::from(&*boxed).cast()), Some(160));
    // The same heap has caches of types, too.
    let cache = Cache::new(heap, "number").expect("room");
    assert_eq!(*cache.alloc(7_u64).expect("memory"), 7);
}

#[test]
fn layouts_are_kept_whatever_their_size() {
    for bytes in [
        1,
        8,
        24,
        100,
        1000,
        5000,
        300_000,
        4 << 20,
        (4 << 20) + 1,
        40 << 20,
    ] {
        for align in [1, 8, 16, 64, 4096, 1 << 21, 8 << 20] {
            let layout = layout(bytes, align);
            // SAFETY: the size is not 0.
            let block = unsafe { ALLOCATOR.alloc_zeroed(layout) };
            assert!(
                !block.is_null() && block.addr().is_multiple_of(align),
                "{layout:?}"
            );
            // SAFETY: the block has these bytes, all zero.
            let last = unsafe { block.wrapping_add(bytes - 1).as_mut() }.expect("not null");
            assert_eq!(*last, 0);
            *last = 1;
            // SAFETY: the block is of this layout, and only the new one is used from here on.
            let larger = unsafe { ALLOCATOR.realloc(block, layout, bytes * 2) };
            assert!(
                !larger.is_null() && larger.addr().is_multiple_of(align),
                "{layout:?}"
            );
            let kept = larger.wrapping_add(bytes - 1);
            // SAFETY: the byte was written above.
            assert_eq!(unsafe { kept.read() }, 1, "{layout:?}");
            let twice = Layout::from_size_align(bytes * 2, align).expect("a layout");
            // SAFETY: the block has this layout by now.
            unsafe { ALLOCATOR.dealloc(larger, twice) };
        }
    }
}

#[test]
fn collections_grow_and_shrink() {
    let mut map = BTreeMap::new();
    let mut texts = Vec::new();
    for number in 0..100_000_u64 {
        map.insert(
            number.wrapping_mul(0x9e37_79b9) % 65_537,
            number.to_string(),
        );
        texts.push("y".repeat(number as usize % 300));
    }
    map.retain(|key, _| key % 3 == 0);
    texts.shrink_to_fit();
    assert!(map.values().all(|text| text.parse::<u64>().is_ok()));
    assert!(
        texts
            .iter()
            .enumerate()
            .all(|(at, text)| text.len() == at % 300)
    );
    let mut bytes = Vec::new();
    for step in 0..40_u8 {
        bytes.resize(bytes.len() + 1_000_000, step);
    }
    bytes.truncate(10);
    bytes.shrink_to_fit();
    assert_eq!(bytes, [0; 10]);
}

#[test]
fn other_threads_free_and_destructors_of_thread_locals_allocate() {
    struct Last(Vec<String>, mpsc::Sender<usize>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.push("z".repeat(700));
            let _ = self.1.send(self.0.iter().map(String::len).sum());
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let (sums, sum) = mpsc::channel();
    let (blocks, received) = mpsc::channel::<Vec<Box<[u8; 200]>>>();
    let freeing = thread::spawn(move || received.iter().map(|blocks| blocks.len()).sum::<usize>());
    thread::scope(|scope| {
        for _ in 0..4 {
            let (blocks, sums) = (blocks.clone(), sums.clone());
            scope.spawn(move || {
                LAST.set(Some(Last(vec!["w".repeat(41)], sums)));
                for _ in 0..200 {
                    let many = (0..50).map(|_| Box::new([1; 200])).collect();
                    blocks.send(many).expect("a receiver");
                }
            });
        }
    });
    drop((blocks, sums));
    assert_eq!(freeing.join().expect("no panic"), 4 * 200 * 50);
    assert_eq!(sum.iter().collect::<Vec<_>>(), [741; 4]);
}

#[test]
fn children_of_forks_allocate_while_other_threads_do() {
    let stop = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    let large = vec![1_u8; 5 << 20];
                    let small: Vec<_> = (0..100).map(|at| vec![0_u8; at]).collect();
                    std::hint::black_box((large, small));
                }
            });
        }
        for _ in 0..40 {
            in_child(|| {
                let texts: Vec<_> = (0..1000).map(|at| "v".repeat(at % 99)).collect();
                let large = vec![3_u8; 6 << 20];
                let bytes: usize = texts.iter().map(String::len).sum();
                i32::from(bytes == 0 || large[5 << 20] != 3)
            });
        }
        stop.store(1, Ordering::Relaxed);
    });
}

/// Under `ulimit -v`, requests fail and the program goes on.
#[test]
fn a_limit_of_address_space_is_no_crash() {
    in_child(|| {
        let limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the structure is valid; what is mapped already stays.
        if unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } != 0 {
            return 1;
        }
        let mut large = Vec::<u8>::new();
        let refused = large.try_reserve(100 << 20).is_err();
        let small: Vec<_> = (0..10_000).map(|at| vec![0_u8; at % 500]).collect();
        i32::from(!refused || small.len() != 10_000)
    });
}

/// The heap of a process keeps 64 MiB of what was freed.
#[test]
fn memory_goes_back_to_the_system() {
    static HEAP: ProcessHeap<Slub> = ProcessHeap::new();
    let mut objects: Vec<_> = (0..300_000)
        .map(|_| HEAP.kvmalloc(1000, 8).expect("memory"))
        .collect();
    let pages = HEAP.get().expect("a heap").pages();
    assert!(pages.residency().resident() * 4096 > 290 << 20);
    for object in objects.drain(..) {
        // SAFETY: allocated above, and not used.
        unsafe { HEAP.kvfree(object) }.expect("an object in use");
    }
    // One look in 4096 slow frees, of at most 32 objects each, may be missing at the end: it frees 128 MiB at most.
    let kept = pages.residency().resident() * 4096;
    assert!(kept < (64 + 160) << 20, "{kept} bytes");
    assert!(pages.residency().released * 4096 > 100 << 20);
}

/// Objects that CPUs' lists hold go back as well, once the program sleeps between calls that these lists serve.
#[test]
fn an_idle_program_gives_back_what_its_cpus_hold() {
    static HEAP: ProcessHeap = ProcessHeap::new();
    let sizes = (1..=40).map(|class| class * 200);
    let mut objects: Vec<_> = sizes
        .flat_map(|bytes| (0..200).map(move |_| HEAP.kvmalloc(bytes, 8).expect("memory")))
        .collect();
    for object in objects.drain(..) {
        // SAFETY: allocated above, and not used.
        unsafe { HEAP.kvfree(object) }.expect("an object in use");
    }
    let heap = HEAP.get().expect("a heap");
    let in_use = || {
        let residency = heap.pages().residency();
        (residency.resident() - residency.resident_free) * 4096
    };
    let before = in_use();
    assert!(before > 1 << 20, "{before} bytes");
    if heap.machine().mode() == Mode::Fallback {
        return assert!(!heap.machine().was_away());
    }
    // The first look may still see a busy second.
    let end = Instant::now() + Duration::from_secs(20);
    while in_use() > before / 4 {
        assert!(Instant::now() < end, "{} of {before} bytes", in_use());
        thread::sleep(Duration::from_millis(100));
        let object = HEAP.kvmalloc(100, 8).expect("memory");
        // SAFETY: allocated just now, and not used.
        unsafe { HEAP.kvfree(object) }.expect("an object in use");
    }
}

#[test]
fn mistakes_change_nothing() {
    let heap = Kmalloc::heap().expect("a heap");
    let block = heap.kvmalloc(100, 8).expect("memory");
    let large = heap.kvmalloc(9 << 20, 8).expect("memory");
    let mut local = 0_u64;
    for foreign in [
        NonNull::from(&mut local).cast(),
        NonNull::new(large.as_ptr().wrapping_add(4096)).expect("an address"),
    ] {
        // SAFETY: the address begins no object, so nothing is freed.
        assert_eq!(unsafe { heap.kvfree(foreign) }, Err(FreeError::Foreign));
        assert_eq!(heap.kvsize(foreign), None);
    }
    for (object, again) in [(block, FreeError::DoubleFree), (large, FreeError::Foreign)] {
        // SAFETY: the object is not used any more.
        assert_eq!(unsafe { heap.kvfree(object) }, Ok(()));
        // SAFETY: it is free, so this changes nothing.
        assert_eq!(unsafe { heap.kvfree(object) }, Err(again));
    }
}
