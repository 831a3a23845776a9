//! Mistakes are refused, and damage is found: the checkers can fail.

use crate::model::design::shares_pages;
use crate::prelude::*;
use quarry_core::design::{CheckError, SlabInconsistency};
use quarry_core::machine::{DESCRIPTOR_BYTES, Memory as _};
use quarry_core::page::PageInconsistency;

/// Offsets of the fields of a page descriptor in bytes (`page::types::Page`, `repr(C)`).
mod descriptor {
    /// Free list, objects in use (SLUB); bitmap (slubq); objects taken (SLAB).
    pub(crate) const WORD: usize = 0;
    /// The next page on a list, plus one.
    pub(crate) const NEXT: usize = 32;
    /// Kind and order: the lower half of what the page is.
    pub(crate) const KIND_ORDER: usize = 16;
    /// Flag of a slab on its node's list: the highest byte of that half.
    pub(crate) const ON_LIST: usize = KIND_ORDER + 3;
}

fn at(object: Object, offset: usize) -> Object {
    // SAFETY: only the address is used by those who do not know better; it stays in memory that
    // the machine has.
    unsafe { object.byte_add(offset) }
}

/// A field of a page's descriptor.
fn field<T>(machine: &VirtualMachine, pfn: Pfn, field: usize) -> NonNull<T> {
    let offset = pfn.0 as usize * DESCRIPTOR_BYTES + field;
    at(machine.ranges().descriptors.base, offset).cast()
}

/// The second of the words in pages that hold the addresses of two objects, one after the other.
fn entry_behind(machine: &VirtualMachine, objects: [Object; 2]) -> NonNull<Object> {
    let pages = machine.ranges().pages;
    let words = pages.base.cast::<usize>().as_ptr();
    // SAFETY: the pages are readable memory of the machine; no allocator runs meanwhile, and addresses may be read as numbers.
    let words = unsafe { std::slice::from_raw_parts(words, pages.bytes / size_of::<usize>()) };
    let wanted = objects.map(|object| object.addr().get());
    let place = words.windows(2).position(|two| two == wanted);
    let place = place.expect("the entries of a sheaf") + 1;
    at(pages.base, place * size_of::<usize>()).cast()
}

/// Overwrites a field of a page's descriptor.
fn damage<T>(machine: &VirtualMachine, pfn: Pfn, at: usize, value: T) {
    // SAFETY: the field is in the machine's range of descriptors; no allocator runs meanwhile.
    unsafe { field(machine, pfn, at).write(value) };
}

/// Reads the word of a slab's descriptor.
fn word_of(machine: &VirtualMachine, slab: Pfn) -> u64 {
    // SAFETY: as in `damage`.
    unsafe { field(machine, slab, descriptor::WORD).read() }
}

/// Neither a slab's nor a large kmalloc's page can be freed as a page.
fn pages_are_kept<D: Design>(heap: &VirtualHeap<D>, object: Object, large: Object) {
    let slab = heap.pages().pfn_of(object).expect("a page");
    let kept = PageError::NotAllocated(slab, PageKind::Slab);
    assert_eq!(heap.pages().free_number(slab, 0), Err(kept));
    let kmalloc = heap.pages().pfn_of(large).expect("a page");
    // To SLOB all of its memory is alike.
    let kind = match shares_pages::<D>(heap.era()) {
        true => PageKind::Slab,
        false => PageKind::LargeKmalloc,
    };
    let kept = PageError::NotAllocated(kmalloc, kind);
    assert_eq!(heap.pages().free_number(kmalloc, 5), Err(kept));
}

/// The contradiction that a check found.
fn damaged(checked: Result<(), CheckError>, what: &str) -> SlabInconsistency {
    *checked.expect_err(what).found().expect("at rest")
}

fn mistakes_are_refused<D: Design>(era: Era) {
    let heap = small::<D>(era, 1);
    let (cache, other) = (sized(&heap, "one", 200), sized(&heap, "two", 200));
    let object = take(cache, 1)[0];
    let stranger = take(other, 1)[0];
    let large = heap.kmalloc(100_000, None).expect("memory");
    let page = heap.pages().alloc(1, None).expect("memory");
    let in_page = heap.pages().address(page).expect("an address");
    let mut local = 0u64;
    let foreign = NonNull::from(&mut local).cast();
    let before = (
        cache.stats(),
        other.stats(),
        heap.pages().stats(),
        heap.large_counts(),
    );

    assert_eq!(free(cache, foreign), Err(FreeError::Foreign));
    assert_eq!(free(cache, in_page), Err(FreeError::Foreign));
    assert_eq!(free(cache, at(in_page, 4096)), Err(FreeError::Foreign));
    assert_eq!(free(cache, stranger), Err(FreeError::WrongCache));
    assert!(free(cache, large).is_err());
    assert_eq!(kfree(&heap, foreign), Err(FreeError::Foreign));
    assert_eq!(kfree(&heap, in_page), Err(FreeError::Foreign));
    assert_eq!(kfree(&heap, at(large, 64)), Err(FreeError::NotAnObject));
    let error = match shares_pages::<D>(era) {
        true => FreeError::NotAnObject,
        false => FreeError::Foreign,
    };
    assert_eq!(kfree(&heap, at(large, 8192)), Err(error));
    pages_are_kept(&heap, object, large);
    let after = (
        cache.stats(),
        other.stats(),
        heap.pages().stats(),
        heap.large_counts(),
    );
    assert_eq!(before, after, "nothing has changed");
    assert_eq!(free(cache, object), Ok(()));
    assert_eq!(free(cache, object), Err(FreeError::DoubleFree));
    assert_eq!(kfree(&heap, large), Ok(()));
    assert_eq!(kfree(&heap, large), Err(FreeError::Foreign));
    if shares_pages::<D>(era) {
        let refused = kfree(&heap, stranger);
        assert_eq!(refused, Err(FreeError::WrongCache), "no header");
        assert_eq!(free(other, stranger), Ok(()));
    } else {
        let freed = kfree(&heap, stranger);
        assert_eq!(freed, Ok(()), "kfree knows every cache");
    }
    assert_eq!(heap.pages().free_number(page, 1), Ok(()));
    assert_eq!(
        (cache.check_consistency(), other.check_consistency()),
        (Ok(()), Ok(()))
    );
    cache.shrink();
    assert_eq!(
        free(cache, object),
        Err(FreeError::Foreign),
        "its slab is gone"
    );
}

fn refuses_mistakes<D: Design>(_: &str, era: Era) {
    // The test begins with a kmalloc too large for a slab. SLAB of 2.6.24 and SLUB of 2.6.22 have none.
    if small::<D>(era, 1).kmalloc_cache(100_000).is_none() {
        mistakes_are_refused::<D>(era);
    }
}

design_tests!(refuse_mistakes: refuses_mistakes);

/// Frees an address inside an object. Fast ways take it, as the table in `debug` says, but not back to a
/// slab: after a flush nothing overlaps, and the object is in use. Slow ways refuse it. SLOB has no fast ones.
fn refuses_addresses_inside<D: Design>(_: &str, era: Era) {
    let heap = small::<D>(era, 2);
    let cache = sized(&heap, "one", 200);
    let objects = take(cache, 40);
    // The last one: its slab is the CPU's.
    let inside = at(objects[39], 8);
    let fast = match shares_pages::<D>(era) {
        true => Err(FreeError::NotAnObject),
        false => Ok(()),
    };
    assert_eq!(free(cache, inside), fast, "fast");
    assert_eq!(cache.flush(), 0);
    assert_eq!(cache.check_consistency(), Ok(()));
    let live = live(cache);
    let mut expected = objects.clone();
    expected.sort_unstable();
    assert_eq!(live, expected, "all are in use");
    let others = take(cache, 100);
    assert!(!others.contains(&inside), "two objects overlap");
    give(cache, &others);
    let sizes = ["limit", "cpu_queue_size", "sheaf_capacity"];
    if let Some(size) = sizes
        .into_iter()
        .find(|size| cache.attribute(size).is_some())
    {
        // The first free finds a queue without memory, and leaves no room in it.
        assert!(cache.set_attribute(size, 2), "{size}");
        give(cache, &objects[20..22]);
    } else {
        // The slab of a CPU is another's to all others.
        cache.flush();
    }
    assert_eq!(
        free(cache, at(objects[7], 8)),
        Err(FreeError::NotAnObject),
        "slow"
    );
    for &object in &objects[..20] {
        // Some of them were freed on the way.
        let freed = free(cache, object);
        assert!(
            matches!(freed, Ok(()) | Err(FreeError::DoubleFree)),
            "{freed:?}"
        );
    }
    assert_eq!(cache.flush(), 0);
    assert_eq!(cache.check_consistency(), Ok(()));
}

design_tests!(refuse_addresses_inside: refuses_addresses_inside);

/// With the slot never available, each object goes straight to its slab, which is checked there.
fn without_a_slot_slabs_check<D: Design>(era: Era) {
    let heap = boot::<D>(era, Setup::DEFAULT.busy(1000));
    for size in each([64, 192, 24]) {
        let cache = sized(&heap, "scenario", size);
        let objects = take(cache, 25);
        assert!(objects[..20].is_sorted(), "one by one, so ascending");
        assert_eq!(stat(cache, Stat::CpuSlotBusy), 25);
        assert_eq!(stat(cache, Stat::AllocFastpath), 0);
        let before = cache.stats();
        let past_the_last = cache.head().geometry().objects * size;
        for offset in each([1, size / 2, size - 1, past_the_last]) {
            let inside = at(objects[0], offset as usize);
            if heap.pages().pfn_of(inside) == heap.pages().pfn_of(objects[0]) {
                let refused = Err(FreeError::NotAnObject);
                assert_eq!(free(cache, inside), refused);
            }
        }
        let after = cache.stats();
        for ((stat, was), (_, is)) in before.iter().zip(after.iter()) {
            assert!(was == is || stat == Stat::CpuSlotBusy, "{}", stat.name());
        }
        assert_eq!(cache.check_consistency(), Ok(()));
        give(cache, &objects[..2]);
        for &object in &objects[..2] {
            assert_eq!(free(cache, object), Err(FreeError::DoubleFree));
        }
        assert_eq!(cache.check_consistency(), Ok(()));
        give(cache, &objects[2..]);
        // SLAB keeps some empty slabs.
        if D::NAME == SlabCache::NAME {
            cache.shrink();
        }
        assert_eq!(cache.usage().slabs, 0);
    }
}

#[test]
fn a_busy_slot_leads_to_the_slab() {
    for &era in SlabCache::ERAS {
        without_a_slot_slabs_check::<SlabCache>(era);
    }
    for &era in Slubq::ERAS {
        without_a_slot_slabs_check::<Slubq>(era);
    }
}

/// SLUB sees a wrong address once the object's slab is not the CPU's own.
#[test]
fn slub_looks_at_the_place_of_an_object() {
    for &era in each(Slub::ERAS) {
        let heap = small::<Slub>(era, 2);
        let cache = sized(&heap, "one", 200);
        let layout = cache.head().geometry().layout;
        let objects = take(cache, 20);
        heap.machine().run_on(CpuId(1));
        for offset in each([1, 8, 199]) {
            let inside = at(objects[3], offset);
            assert_eq!(free(cache, inside), Err(FreeError::NotAnObject));
        }
        let behind = (cache.head().geometry().objects * layout.size) as usize;
        assert!(behind < 4096, "there is slack");
        assert_eq!(
            free(cache, at(objects[0], behind)),
            Err(FreeError::NotAnObject)
        );
        assert_eq!(free(cache, objects[3]), Ok(()));
        assert_eq!(free(cache, objects[3]), Err(FreeError::DoubleFree));
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// A SLUB cache with a slab on its node's list, which has 10 objects in use and 11 free.
fn slub_with_a_partial_slab(
    heap: &VirtualHeap<Slub>,
) -> (VirtualCache<'_, Slub>, Vec<Object>, Pfn) {
    let cache = sized(heap, "one", 192);
    let objects = take(cache, 21);
    for &object in &objects[10..] {
        free(cache, object).expect("a live object");
    }
    cache.flush();
    assert_eq!(cache.check_consistency(), Ok(()));
    let slab = heap.pages().pfn_of(objects[0]).expect("a page");
    (cache, objects, slab)
}

/// Writing to a free object breaks the list through it, which the walk finds.
#[test]
fn slub_finds_overwritten_free_pointers() {
    for &era in each(Slub::ERAS) {
        let heap = small::<Slub>(era, 1);
        let (cache, objects, slab) = slub_with_a_partial_slab(&heap);
        let layout = cache.head().geometry().layout;
        let link = layout.free_pointer.expect("SLUB links objects") as usize;
        let link = at(objects[15], link).cast::<*mut u8>();
        // SAFETY: inside a free object; the allocator does not run meanwhile.
        let good = unsafe { link.read() };
        let astray = [
            at(objects[15], 8),
            at(objects[0], 4096 - 8),
            NonNull::dangling(),
        ];
        let wrong = [
            (astray[0].as_ptr(), "free pointer astray"),
            (astray[1].as_ptr(), "free pointer astray"),
            (astray[2].as_ptr(), "free pointer astray"),
            (objects[20].as_ptr(), "object on a list twice"),
            (objects[15].as_ptr(), "object on a list twice"),
            (std::ptr::null_mut(), "free objects"),
        ];
        for (value, what) in wrong {
            // SAFETY: as above.
            unsafe { link.write(value) };
            let found = damaged(cache.check_consistency(), what);
            assert_eq!((found.what, found.slab), (what, Some(slab)));
        }
        // SAFETY: as above.
        unsafe { link.write(good) };
        assert_eq!(cache.check_consistency(), Ok(()), "as before");
    }
}

#[test]
fn slub_finds_damaged_descriptors() {
    for &era in each(Slub::ERAS) {
        let heap = small::<Slub>(era, 1);
        let (cache, _, slab) = slub_with_a_partial_slab(&heap);
        let good = word_of(heap.machine(), slab);
        let wrong = [
            (good + (1 << 32), "free objects"),
            (good - (1 << 32), "free objects"),
            (good | 1 << 48, "listed slab frozen"),
            (good & !0xffff_ffff, "listed slab full"),
        ];
        for (value, what) in wrong {
            damage(heap.machine(), slab, descriptor::WORD, value);
            let found = damaged(cache.check_consistency(), what);
            assert_eq!((found.what, found.slab), (what, Some(slab)));
        }
        damage(heap.machine(), slab, descriptor::WORD, good);
        damage(heap.machine(), slab, descriptor::ON_LIST, 0u8);
        let found = damaged(cache.check_consistency(), "unmarked");
        assert_eq!(found.what, "listed slab's mark");
        damage(heap.machine(), slab, descriptor::ON_LIST, 1u8);
        assert_eq!(cache.check_consistency(), Ok(()), "as before");
    }
}

#[test]
fn slubq_finds_damaged_bitmaps() {
    for (size, in_slab) in [(192u32, false), (32, true)] {
        let heap = small::<Slubq>(Era::V2_6_35, 1);
        let cache = sized(&heap, "one", size);
        let geometry = *cache.head().geometry();
        assert_eq!(geometry.bitmap_in_slab, in_slab);
        let objects = take(cache, 10);
        cache.flush();
        let slab = heap.pages().pfn_of(objects[0]).expect("a page");
        assert_eq!(cache.check_consistency(), Ok(()));
        if in_slab {
            let bitmap = at(objects[0], (geometry.objects * size) as usize);
            // SAFETY: inside the slab, behind its last object.
            unsafe { bitmap.cast::<u64>().write(0) };
        } else {
            damage(heap.machine(), slab, descriptor::WORD, 0u64);
        }
        let found = damaged(cache.check_consistency(), "no bit is set");
        assert_eq!((found.what, found.slab), ("free objects", Some(slab)));
    }
}

/// Both an index that names a used object and one that is there twice are found.
#[test]
fn slab_finds_damaged_indices() {
    for (era, indices_at, index_bytes) in each([(Era::V2_6_24, 48, 4), (Era::V6_1, 4096 - 124, 1)])
    {
        let heap = small::<SlabCache>(era, 1);
        let cache = sized(&heap, "one", 32);
        let objects = take(cache, 10);
        cache.flush();
        let slab = heap.pages().pfn_of(objects[0]).expect("a page");
        assert_eq!(cache.check_consistency(), Ok(()));
        let start = heap.pages().address(slab).expect("an address");
        // Little-endian: the low byte of the last index, which no allocation has moved.
        let last = cache.head().geometry().objects as usize - 1;
        let index = at(start, indices_at + last * index_bytes);
        // SAFETY: inside the slab's indices; the allocator does not run meanwhile.
        let good = unsafe { index.read() };
        assert_eq!(usize::from(good), last);
        for wrong in [good - 1, 255] {
            // SAFETY: as above.
            unsafe { index.write(wrong) };
            let found = damaged(cache.check_consistency(), "a wrong index");
            let expected = ("free objects named once", Some(slab));
            assert_eq!((found.what, found.slab), expected);
        }
        // SAFETY: as above.
        unsafe { index.write(good) };
        assert_eq!(cache.check_consistency(), Ok(()));
        // One more taken than the lists say.
        damage(heap.machine(), slab, descriptor::WORD, 0u64);
        let found = damaged(cache.check_consistency(), "a partial slab");
        assert_eq!(found.what, "objects taken of a partial slab");
        damage(heap.machine(), slab, descriptor::WORD, 11u64);
        let found = damaged(cache.check_consistency(), "a wrong sum");
        assert_eq!(found.what, "free objects of a node");
    }
}

/// An object of another cache in a sheaf, and a slab below that has one free object too many.
#[test]
fn sheaf_finds_damaged_sheaves() {
    for &era in each(SheafCache::ERAS) {
        let heap = small::<SheafCache>(era, 1);
        let cache = sized(&heap, "one", 192);
        assert!(cache.set_attribute("sheaf_capacity", 8));
        let objects = take(cache, 21);
        give(cache, &objects[10..14]);
        assert_eq!(cache.check_consistency(), Ok(()));
        let slab = heap.pages().pfn_of(objects[10]).expect("a page");
        let foreign = take(sized(&heap, "two", 192), 1)[0];
        let entry = entry_behind(heap.machine(), [objects[12], objects[13]]);
        // SAFETY: no allocator runs meanwhile.
        unsafe { entry.write(foreign) };
        let found = damaged(cache.check_consistency(), "a foreign object");
        assert_eq!(found.what, "objects of other caches in a sheaf");
        // SAFETY: as above.
        unsafe { entry.write(objects[13]) };
        assert_eq!(cache.check_consistency(), Ok(()), "as before");
        cache.flush();
        cache.shrink();
        let good = word_of(heap.machine(), slab);
        damage(heap.machine(), slab, descriptor::WORD, good + (1 << 32));
        let found = damaged(cache.check_consistency(), "one more in use");
        assert_eq!((found.what, found.slab), ("free objects", Some(slab)));
        damage(heap.machine(), slab, descriptor::WORD, good);
        assert_eq!(cache.check_consistency(), Ok(()), "as before");
    }
}

/// A page allocator with free blocks and blocks in use.
fn used_pages() -> (PageAllocator<VirtualMachine>, Pfn) {
    let pages = boot_pages(Era::V5_9, Setup::of_pages(1024));
    let block = pages.alloc(4, None).expect("memory");
    assert_eq!(block, Pfn(0));
    let census = pages.check_consistency().expect("consistent");
    assert_eq!((census.allocated, census.buddy), (16, 1008));
    (pages, block)
}

#[test]
fn the_page_walk_finds_damage() {
    let kind = |kind: PageKind, order: u32| kind as u32 | order << 8;
    // Pages 16, 32, 64 ... 512 start free blocks of the orders 4, 5, 6 ... 9.
    let cases: [(&str, Pfn, usize, u32); 5] = [
        (
            "a free block that is marked as used",
            Pfn(32),
            descriptor::KIND_ORDER,
            kind(PageKind::Allocated, 5),
        ),
        (
            "a used block that is marked as free",
            Pfn(0),
            descriptor::KIND_ORDER,
            kind(PageKind::Buddy, 4),
        ),
        (
            "a free block of another order",
            Pfn(64),
            descriptor::KIND_ORDER,
            kind(PageKind::Buddy, 5),
        ),
        (
            "a block that starts nowhere",
            Pfn(0),
            descriptor::KIND_ORDER,
            kind(PageKind::Tail, 0),
        ),
        ("a list that goes on", Pfn(16), descriptor::NEXT, 33),
    ];
    for (what, pfn, field, value) in each(cases) {
        let (pages, _) = used_pages();
        damage(pages.machine(), pfn, field, value);
        let found = pages.check_consistency().expect_err(what);
        assert!(!matches!(found, PageInconsistency::Busy(_)), "{found}");
    }
}

/// Two free buddies that were not merged.
#[test]
fn the_page_walk_finds_unmerged_buddies() {
    let (pages, block) = used_pages();
    pages.free_number(block, 4).expect("allocated");
    let split = PageKind::Buddy as u32 | 9 << 8;
    damage(pages.machine(), Pfn(0), descriptor::KIND_ORDER, split);
    damage(pages.machine(), Pfn(512), descriptor::KIND_ORDER, split);
    let found = pages.check_consistency().expect_err("two halves");
    let expected = [
        PageInconsistency::Unmerged(Pfn(0), 9),
        PageInconsistency::BadBlock(Pfn(0), PageKind::Buddy),
    ];
    assert!(expected.contains(&found), "{found}");
}
