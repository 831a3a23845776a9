//! Debugging around SLOB's blocks: freed slots that are kept, kmallocs of any size, and neighbours
//! without debugging.

use crate::model::debugging::*;
use crate::model::scenario::{cache_of, give, sized, take};
use quarry_core::debug::{During, Finding, SlubDebug};
use quarry_core::design::FreeError;
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::slob::Slob;

const ERAS: [Era; 2] = [Era::V2_6_24, Era::V6_1];

/// Kept slots: the newest is taken first, the 65th free drives the oldest out, and all go with a
/// shrink.
#[test]
fn freed_slots_are_kept() {
    for era in ERAS {
        let heap = told::<Slob>(era);
        let cache = cache_of(&heap, "kept", 100, letters("FZPU"));
        let objects = take(cache, 80);
        let used = cache.usage().shared_bytes;
        give(cache, &objects);
        let usage = cache.usage();
        assert_eq!((usage.active_objs, usage.num_objs), (0, 64), "{era}");
        assert_eq!(usage.shared_bytes, used / 80 * 64);
        assert_eq!(cache.check_consistency(), Ok(()));
        let again = take(cache, 3);
        assert_eq!(again, [objects[79], objects[78], objects[77]], "{era}");
        // The oldest have gone to their pages: their frees are told, but not by whom they were.
        let (freed, _) = free(cache, objects[0]);
        assert!(
            matches!(freed, Err(FreeError::DoubleFree | FreeError::Foreign)),
            "{freed:?}"
        );
        assert_eq!(one_report().alloc, None);
        give(cache, &again);
        cache.shrink();
        let usage = cache.usage();
        assert_eq!((usage.num_objs, usage.shared_bytes), (0, 0), "{era}");
        assert_eq!(heap.pages().slab_pages(), 0);
        assert_eq!(reports(), []);
    }
}

/// A write to a freed object is found, too, when its memory goes.
#[test]
fn a_use_after_free_is_found_when_a_slot_is_driven_out() {
    for era in ERAS {
        let heap = told::<Slob>(era);
        let cache = cache_of(&heap, "driven", 100, letters("PU"));
        let objects = take(cache, 70);
        give(cache, &objects[..64]);
        poke(objects[0], 99, 1);
        assert_eq!(reports(), []);
        give(cache, &objects[64..65]);
        let report = one_report();
        assert_eq!(
            (report.what, report.during),
            (Finding::Poison, During::Discard)
        );
        assert_eq!(report.object, objects[0].addr().get());
        assert_eq!(report.damage.map(|damage| damage.offset), Some(99));
        assert!(report.alloc.is_some() && report.free.is_some());
        give(cache, &objects[65..]);
    }
}

/// kmalloc of every size: watched from the first byte to the last as long as the slot fits a page,
/// and aligned as without debugging.
#[test]
fn kmalloc_is_watched() {
    for era in ERAS {
        let page = 4096;
        for bytes in (1..page).step_by(37).chain([8, 64, 1024, 2048, page - 8]) {
            let heap = told::<Slob>(era);
            heap.set_slub_debug(Some(SlubDebug::parse("FZPU", era).expect("letters")));
            let object = heap.kmalloc(bytes, None).expect("memory");
            // SAFETY: the object is so long.
            unsafe { object.write_bytes(0xcc, bytes) };
            let natural = match bytes.is_power_of_two() && era == Era::V6_1 {
                true => bytes.max(8),
                false => 8,
            };
            assert!(object.addr().get().is_multiple_of(natural), "{era} {bytes}");
            // The header and a word of red zone, as far as the alignment drives the object, another
            // word where no gap is, two records.
            let gap = if bytes.is_multiple_of(8) { 8 } else { 0 };
            let records = if era == Era::V6_1 { 64 } else { 48 };
            let start = 16usize.next_multiple_of(natural);
            let watched = start + bytes.next_multiple_of(8) + gap + records <= page;
            assert!(watched || bytes >= 2048);
            let at = match bytes % 2 {
                0 => bytes as isize,
                _ => -1,
            };
            if watched {
                poke(object, at, 0x41);
            }
            // SAFETY: the object is not used any more.
            let freed = unsafe { heap.kfree(object) };
            if watched {
                assert_eq!(freed, Err(FreeError::Corrupt), "{era} {bytes}");
                let report = one_report();
                assert_eq!((report.what, report.cache()), (Finding::RedZone, "kmalloc"));
                let damage = report.damage.expect("bytes");
                assert_eq!((damage.offset, damage.bytes), (at as i64, 1));
                assert!(site(report.alloc).is_some());
            } else {
                assert_eq!(freed, Ok(()), "{era} {bytes}");
            }
            // SAFETY: refused.
            unsafe { heap.kfree(object) }.expect_err("twice");
            let again = one_report().what;
            assert!(
                matches!(again, Finding::DoubleFree | Finding::Foreign),
                "{era} {bytes}: {again:?}"
            );
        }
    }
}

/// A write in front of the red zone reaches the size of a kmalloc: it is told, and not believed.
#[test]
fn an_overwritten_size_is_not_believed() {
    for era in ERAS {
        let heap = told::<Slob>(era);
        heap.set_slub_debug(Some(
            SlubDebug::parse("FZPU,kmalloc", era).expect("letters"),
        ));
        let object = heap.kmalloc(64, None).expect("memory");
        poke(object, -16, 63);
        // SAFETY: refused.
        let freed = unsafe { heap.kfree(object) };
        assert_eq!(freed, Err(FreeError::Corrupt), "{era}");
        let report = one_report();
        assert_eq!(report.object, object.addr().get());
        assert!(report.slab.is_some());
    }
}

/// Blocks of caches with and without debugging lie side by side, and neither takes the other's.
#[test]
fn neighbours_are_left_alone() {
    for era in ERAS {
        let heap = told::<Slob>(era);
        let watched = cache_of(&heap, "watched", 72, letters("FZPU"));
        let plain = sized(&heap, "plain", 72);
        let mut objects = (Vec::new(), Vec::new());
        for _ in 0..100 {
            objects.0.extend(take(watched, 1));
            objects.1.extend(take(plain, 1));
        }
        for (cache, stranger) in [(plain, objects.0[5]), (watched, objects.1[5])] {
            let (freed, _) = free(cache, stranger);
            assert_eq!(freed, Err(FreeError::WrongCache), "{era}");
            assert!(one_report().owner().is_some());
        }
        for object in [objects.0[6], objects.1[6]] {
            // SAFETY: refused: kfree is for what kmalloc gave.
            let freed = unsafe { heap.kfree(object) };
            assert_eq!(freed, Err(FreeError::WrongCache), "{era}");
            assert_eq!(one_report().what, Finding::WrongCache);
        }
        for &object in &objects.1 {
            // SAFETY: the object is live and so long; a byte more would be the neighbour's.
            unsafe { object.write_bytes(0x11, 72) };
        }
        assert_eq!(watched.validate().findings, 0);
        give(watched, &objects.0);
        give(plain, &objects.1);
        watched.shrink();
        for cache in [watched, plain] {
            assert_eq!(cache.check_consistency(), Ok(()));
        }
        assert_eq!(reports(), []);
        assert_eq!(heap.pages().slab_pages(), 0);
    }
}

/// Objects of a page or more are runs of pages with the slot at their start.
#[test]
fn runs_of_pages_are_slots() {
    for era in ERAS {
        for (size, align) in [(4096, 0), (5000, 64), (20_000, 4096)] {
            let heap = told::<Slob>(era);
            let spec = quarry_core::design::CacheSpec {
                align,
                flags: letters("FZPU"),
                ..quarry_core::design::CacheSpec::new("runs", size)
            };
            let cache = heap.create_cache(&spec).expect("a cache");
            let (first, second) = (alloc(cache).0, alloc(cache).0);
            assert!(first.addr().get().is_multiple_of(align.max(8) as usize));
            assert_eq!(cache.validate().findings, 0, "{era} {size}");
            poke(first, -1, 0x41);
            poke(second, size as isize, 0x41);
            assert_eq!(cache.validate().findings, 2, "{era} {size}: restored");
            assert_eq!(reports().len(), 2);
            poke(first, size as isize, 0x41);
            assert_eq!(free(cache, first).0, Err(FreeError::Corrupt));
            let report = one_report();
            assert_eq!((report.what, report.cache()), (Finding::RedZone, "runs"));
            assert_eq!(free(cache, second).0, Ok(()));
            let mut live = 0;
            cache.for_each_live(|_| live += 1);
            assert_eq!(live, 0, "out of circulation");
            // SAFETY: the test uses no copy of the handle afterwards.
            unsafe { cache.destroy() }.expect("nothing is live");
            assert_eq!(reports(), []);
        }
    }
}

/// The letters that look at nothing leave the blocks as they are.
#[test]
fn consistency_costs_no_room() {
    for era in ERAS {
        let heap = told::<Slob>(era);
        let size = |flags| {
            let cache = cache_of(&heap, "size", 107, flags);
            cache.head().geometry().layout.size
        };
        assert_eq!(size(letters("FTA")), size(CacheFlags::NONE));
        let records = if era == Era::V6_1 { 64 } else { 48 };
        assert_eq!(size(letters("FZPU")), 8 + 112 + records);
    }
}
