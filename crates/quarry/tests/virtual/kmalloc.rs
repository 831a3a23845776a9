//! kmalloc of every design: sizes that objects have, other sizes, alignments, and what is no kmalloc's.

use crate::prelude::*;
use quarry_core::heap::ZERO_SIZE_ADDRESS;

/// Sizes on both sides of the classes' bounds, and of the table that finds small ones.
const SIZES: [usize; 22] = [
    1,
    7,
    8,
    9,
    16,
    24,
    64,
    65,
    96,
    97,
    128,
    192,
    193,
    1000,
    1016,
    1024,
    1025,
    2048,
    4096,
    8193,
    100_000,
    1 << 20,
];

fn kmalloc<D: Design>(heap: &VirtualHeap<D>, bytes: usize) -> NonNull<u8> {
    heap.kmalloc(bytes, None).expect("memory")
}

fn krealloc<D: Design>(
    heap: &VirtualHeap<D>,
    object: Option<NonNull<u8>>,
    bytes: usize,
) -> Option<NonNull<u8>> {
    // SAFETY: the tests go on with the new object.
    unsafe { heap.krealloc(object, bytes) }
}

/// Writes all bytes of an object, each with a value of its own.
fn fill(object: NonNull<u8>, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: the object is the test's and has these bytes.
        unsafe { object.as_ptr().wrapping_add(at).write(at as u8) };
    }
}

fn is_filled(object: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: as in `fill`, which wrote the bytes.
    (0..bytes).all(|at| unsafe { object.as_ptr().wrapping_add(at).read() } == at as u8)
}

/// Neighbours of one size keep to their `ksize`.
fn ksize_is_the_owners(_: &str, heap: &VirtualHeap<impl Design>) {
    for bytes in each(SIZES) {
        let objects: Vec<_> = (0..5).map(|_| kmalloc(heap, bytes)).collect();
        let usable = heap.ksize(objects[0]).expect("an object");
        assert!(usable >= bytes, "{usable}");
        for &object in &objects {
            assert_eq!(heap.ksize(object), Some(usable));
            fill(object, usable);
        }
        for object in objects {
            assert!(is_filled(object, usable));
            assert_eq!(kfree(heap, object), Ok(()));
        }
    }
}

fn sizes<D: Design>(name: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(4096));
    ksize_is_the_owners(name, &heap);
    let nothing = NonNull::new(std::ptr::without_provenance_mut(ZERO_SIZE_ADDRESS));
    assert_eq!(heap.ksize(nothing.expect("not null")), Some(0));
    let mut local = 0_u64;
    assert_eq!(heap.ksize(NonNull::from(&mut local).cast()), None);
    let page = heap.pages().alloc(0, None).expect("memory");
    let page = heap.pages().address(page).expect("an address");
    assert_eq!(heap.ksize(page), None);
}

/// With red zones behind requests, the bytes that `ksize` gives may be written, too.
fn sizes_with_debugging<D: Design>(name: &str, era: Era) {
    if D::debug_rules(era).is_none() {
        return;
    }
    for letters in ["FZPU", "Z", "U"] {
        let heap = boot::<D>(era, Setup::of_pages(8192));
        let setting = SlubDebug::parse(letters, era).expect("letters");
        heap.set_slub_debug(Some(setting))
            .expect("a design with debugging");
        ksize_is_the_owners(name, &heap);
    }
}

fn other_sizes<D: Design>(_: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(4096));
    let mut object = krealloc(&heap, None, 1);
    for bytes in each(SIZES.into_iter().chain(SIZES.into_iter().rev())) {
        let before = heap.ksize(object.expect("an object")).expect("an object");
        fill(object.expect("an object"), before);
        let new = krealloc(&heap, object, bytes);
        assert_eq!(new == object, bytes <= before, "{before} to {bytes}");
        object = new;
        assert!(is_filled(object.expect("memory"), before.min(bytes)));
    }
    // More than the machine has: the object stays.
    assert_eq!(krealloc(&heap, object, 1 << 40), None);
    assert_eq!(krealloc(&heap, object, usize::MAX), None);
    let nothing = krealloc(&heap, object, 0).expect("the address of nothing");
    assert_eq!(nothing.addr().get(), ZERO_SIZE_ADDRESS);
    let object = krealloc(&heap, Some(nothing), 10).expect("memory");
    assert_eq!(kfree(&heap, object), Ok(()));
    let mut local = 0_u64;
    assert_eq!(
        krealloc(&heap, Some(NonNull::from(&mut local).cast()), 10),
        None
    );
}

fn alignments<D: Design>(_: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(8192));
    for shift in 0..=22 {
        let align = 1_usize << shift;
        for bytes in each([0, 1, 24, 96, 100, 5000]) {
            let object = heap.kmalloc_aligned(bytes, align, None);
            let object = object.unwrap_or_else(|| panic!("{era}: {bytes} bytes at {align}"));
            if bytes > 0 || align > 8 {
                assert!(object.addr().get().is_multiple_of(align), "at {align}");
                fill(object, bytes);
            }
            assert_eq!(kfree(&heap, object), Ok(()), "at {align}");
        }
    }
    assert_eq!(heap.kmalloc_aligned(1, 1 << 23, None), None);
    assert_eq!(heap.kmalloc_aligned(1, 24, None), None);
    assert_eq!(heap.kmalloc_aligned(usize::MAX, 16, None), None);
}

/// A page of a page pool has the pool in the place of a cache: it is no kmalloc's.
fn pool_pages_are_refused<D: Design>(_: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(1024));
    let params = PoolParams::default();
    let mut owner = PoolOwner::create(heap.pages(), Era::V6_18, &params).expect("a pool");
    let pfn = owner.alloc().expect("memory");
    let page = heap.pages().address(pfn).expect("an address");
    assert_eq!(kfree(&heap, page), Err(FreeError::Foreign));
    assert_eq!(heap.ksize(page), None);
    // SAFETY: the page is in flight, and no code uses it.
    unsafe { owner.put(pfn) }.expect("a page in flight");
    assert_eq!(kfree(&heap, page), Err(FreeError::Foreign));
    owner.destroy().expect("nothing is in flight");
}

/// A class that was destroyed is made again, also for the small sizes of the table.
fn classes_come_again<D: Design>(_: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(1024));
    for bytes in [40, 64, 3000] {
        assert_eq!(kfree(&heap, kmalloc(&heap, bytes)), Ok(()));
        let Some(class) = heap.kmalloc_cache(bytes) else {
            return;
        };
        // SAFETY: nothing else uses the class.
        unsafe { class.destroy() }.expect("no object is left");
        let object = kmalloc(&heap, bytes);
        fill(object, bytes);
        assert_eq!(kfree(&heap, object), Ok(()));
    }
}

design_tests!(ksize: sizes);
design_tests!(ksize_checked: sizes_with_debugging);
design_tests!(krealloc_of: other_sizes);
design_tests!(aligned: alignments);
design_tests!(pool_pages: pool_pages_are_refused);
design_tests!(classes: classes_come_again);

/// A walk over the caches holds their list, so that no class can be made: its first objects are pages.
fn walks_allocate<D: Design>(_: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(4096));
    let first = kmalloc(&heap, 100);
    let mut made = Vec::new();
    heap.for_each_cache(|_| {
        if made.is_empty() {
            made.extend(SIZES.map(|bytes| (kmalloc(&heap, bytes), bytes)));
        }
    });
    assert_eq!(made.len(), SIZES.len());
    for (object, bytes) in each(made) {
        assert!(heap.ksize(object).is_some_and(|usable| usable >= bytes));
        fill(object, bytes);
        assert_eq!(kfree(&heap, object), Ok(()));
    }
    assert_eq!(kfree(&heap, first), Ok(()));
}

design_tests!(in_walks: walks_allocate);
