//! Debugging as SLAB lays it out: words for red zones and users, indices of free objects that a
//! user may overwrite, arrays that stay empty.

use crate::model::debugging::{free, *};
use crate::prelude::*;
use quarry_core::debug::{During, Finding, Fix};

const ERAS: [Era; 2] = [Era::V2_6_24, Era::V6_1];
const ACTIVE: u64 = 0xd841_56c5_6356_88c0;
const INACTIVE: u64 = 0x09f9_1102_9d74_e35b;

fn word(object: Object, offset: isize) -> u64 {
    // SAFETY: the tests stay inside the slot of the object.
    let at = unsafe { object.byte_offset(offset) }.cast::<u64>();
    assert!(at.is_aligned());
    // SAFETY: as above.
    unsafe { at.read() }
}

/// Facts 3.8: the words stand where the kernel has them, whatever the object's size.
#[test]
fn red_zones_are_words() {
    for era in each(ERAS) {
        for (size, behind) in each([(60u32, 64), (64, 64), (1, 8), (200, 200)]) {
            let heap = reporting::<SlabCache>(era);
            let cache = cache_of(&heap, "words", size, letters("Z"));
            let object = take(cache, 2)[1];
            assert_eq!((word(object, -8), word(object, behind)), (ACTIVE, ACTIVE));
            give(cache, &[object]);
            let zones = (word(object, -8), word(object, behind));
            assert_eq!(zones, (INACTIVE, INACTIVE));
            assert_eq!(reports(), []);
        }
    }
}

/// The kernel's word has room for one caller; here the report has both, as numbers.
#[test]
fn one_word_names_both_users() {
    for era in ERAS {
        let heap = reporting::<SlabCache>(era);
        let cache = cache_of(&heap, "users", 64, letters("U"));
        assert_eq!(cache.head().geometry().layout.size, 72);
        let keeps_the_slab = take(cache, 1);
        heap.machine().run_on(quarry_core::machine::CpuId(1));
        let (object, allocated) = alloc(cache);
        heap.machine().run_on(quarry_core::machine::CpuId(0));
        let (freed, first) = free(cache, object);
        assert_eq!(freed, Ok(()));
        free(cache, object).0.expect_err("twice");
        let report = one_report();
        let tracks = [report.alloc, report.free].map(|track| track.expect("both"));
        assert_eq!(tracks.map(|track| track.cpu), [1, 0]);
        assert_eq!(
            tracks.map(|track| site(Some(track))),
            [Some(allocated), Some(first)]
        );
        let text = report.to_string();
        assert!(
            text.contains(&format!("allocated in {allocated} cpu=1\n")),
            "{text}"
        );
        give(cache, &keeps_the_slab);
    }
}

/// A CPU's array and the shared one show the limits of debugging, and nothing is ever in them.
#[test]
fn arrays_are_capped_and_stay_empty() {
    for era in each(ERAS) {
        let heap = boot::<SlabCache>(era, Setup::DEFAULT.on(4, 2));
        for (size, limit, batch) in each([(64, 32, 16), (2000, 24, 12), (8000, 8, 4)]) {
            let cache = cache_of(&heap, "arrays", size, letters("FZPU"));
            let values = ["limit", "batchcount"].map(|name| cache.attribute(name));
            assert_eq!(values, [Some(limit), Some(batch)]);
            let objects = take(cache, 200);
            // On the other node, too.
            heap.machine().run_on(quarry_core::machine::CpuId(3));
            give(cache, &objects[100..]);
            let usage = cache.usage();
            assert_eq!((usage.active_objs, usage.shared_avail), (100, 0));
            assert_eq!(stat(cache, Stat::NodeFrees), 0);
            reap_at(&heap, 1);
            give(cache, &objects[..100]);
            assert_eq!(cache.check_consistency(), Ok(()));
            cache.shrink();
            assert_eq!(cache.usage().slabs, 0);
        }
    }
}

/// Places of the indices of free objects, by era and kind of cache.
fn places() -> [(Era, u32, CacheFlags, FreelistPlace); 5] {
    use FreelistPlace::{InObject, OffSlab, SlabEnd, SlabStart};
    let none = CacheFlags::NONE;
    [
        (Era::V2_6_24, 100, none, SlabStart),
        (Era::V2_6_24, 512, none, OffSlab),
        (Era::V6_1, 1024, CacheFlags::CTOR, OffSlab),
        (Era::V6_1, 100, CacheFlags::CTOR, SlabEnd),
        (Era::V6_1, 100, none, InObject),
    ]
}

/// Clean use and mistakes, wherever the indices are.
#[test]
fn indices_anywhere_are_no_mistake() {
    for (era, size, kind, place) in each(places()) {
        for text in each(["F", "P", "FZPU"]) {
            let heap = reporting::<SlabCache>(era);
            let cache = cache_of(&heap, "places", size, letters(text) | kind);
            if text == "P" {
                assert_eq!(cache.head().geometry().slab.freelist, place);
            }
            let slab = cache.head().geometry().objects as usize;
            let objects = take(cache, 3 * slab);
            assert_eq!(cache.validate().findings, 0);
            // One slab becomes empty, one partial, one stays full.
            give(cache, &objects[slab / 2..2 * slab]);
            let looked = cache.validate();
            assert_eq!(looked.findings, 0, "{looked:?}");
            let again = take(cache, slab);
            give(cache, &again);
            give(cache, &objects[..slab / 2]);
            give(cache, &objects[2 * slab..]);
            assert_eq!(cache.validate().findings, 0);
            destroy(cache);
            assert_eq!(reports(), []);
        }
    }
}

/// A write to a free object that holds its slab's indices is reported with what is known of the object.
#[test]
fn overwritten_indices_name_the_object_that_held_them() {
    for text in ["U", "FZPU"] {
        for validated in [false, true] {
            let heap = reporting::<SlabCache>(Era::V6_1);
            let cache = cache_of(&heap, "held", 128, letters(text));
            let slab = cache.head().geometry().objects as usize;
            let mut objects = take(cache, slab - 1);
            let (object, allocated) = alloc(cache);
            let (freed, first) = free(cache, object);
            assert_eq!(freed, Ok(()));
            // The first to come back to a full slab holds the indices.
            give(cache, &objects.split_off(slab - 4));
            // SAFETY: the object is free, so the test may break its contents.
            unsafe { object.write_bytes(0x5b, 128) };
            let during = if validated {
                assert_eq!(cache.validate().findings, 1);
                During::Validate
            } else {
                objects.extend(take(cache, 1));
                During::Alloc
            };
            let report = one_report();
            assert_eq!(
                (report.what, report.during),
                (Finding::FreelistCorrupt, during)
            );
            assert_eq!(
                (report.fix, report.object),
                (Fix::SlabIsolated, object.addr().get())
            );
            assert_eq!(
                [site(report.alloc), site(report.free)],
                [Some(allocated), Some(first)]
            );
            // Nothing of that slab is handed out again, and the rest goes on.
            let more = take(cache, 2 * slab);
            assert!(!more.contains(&object));
            give(cache, &more);
            give(cache, &objects);
            assert_eq!(cache.check_consistency(), Ok(()));
            assert_eq!(reports(), []);
        }
    }
}

/// An overrun of a slab's last object reaches its indices where these follow: the free of the next
/// object finds them.
#[test]
fn indices_behind_the_last_object_are_watched() {
    let heap = reporting::<SlabCache>(Era::V6_1);
    let cache = cache_of(&heap, "ends", 100, letters("F") | CacheFlags::CTOR);
    let geometry = *cache.head().geometry();
    assert_eq!(geometry.slab.freelist, FreelistPlace::SlabEnd);
    let objects = take(cache, geometry.objects as usize);
    give(cache, &objects[1..4]);
    let slab = heap.pages().pfn_of(objects[0]).expect("a page");
    let slab = heap.pages().address(slab).expect("an address");
    poke(slab, (4096 << geometry.order) - 1, 0xff);
    give(cache, &objects[4..5]);
    let report = one_report();
    assert_eq!((report.what, report.object), (Finding::FreelistCorrupt, 0));
    assert_eq!(report.during, During::Free);
    give(cache, &objects[..1]);
    give(cache, &objects[5..]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Facts 8.17: 6.1 drops red zones where an alignment above a word is asked for. Here they are
/// what a user asked for by name, so they make room: kmalloc is watched, too.
#[test]
fn kmalloc_is_watched_in_both_eras() {
    for era in each(ERAS) {
        for bytes in each([8usize, 50, 64, 96, 192, 1000, 4096]) {
            let heap = reporting::<SlabCache>(era);
            heap.set_slub_debug(Some(SlubDebug::parse("FZPU", era).expect("letters")))
                .expect("a design with debugging");
            let object = heap.kmalloc(bytes, None).expect("memory");
            let class = heap.kmalloc_cache(bytes).expect("a class");
            let layout = class.head().geometry().layout;
            if era == Era::V6_1 && bytes.is_power_of_two() {
                assert!(object.addr().get().is_multiple_of(bytes));
            }
            poke(object, layout.object_size as isize, 0x41);
            let freed = kfree(&heap, object);
            assert!(freed.is_err());
            let report = one_report();
            assert_eq!(
                (report.what, report.cache()),
                (Finding::RedZone, class.name())
            );
            assert!(site(report.alloc).is_some());
        }
    }
}
