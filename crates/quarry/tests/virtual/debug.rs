//! Every mistake on every design with debugging: what is reported, and with which call sites.

use crate::model::debugging::{free, *};
use crate::prelude::*;
use quarry_core::debug::{During, Finding, Fix, Report, Track};
use quarry_core::inspect::{SysfsError, attributes_of};
use std::panic::Location;

/// Makes a test of each check, which runs in every generation of every design that has debugging.
macro_rules! on_all {
    ($($test:ident: $check:ident,)+) => {$(
        #[test]
        fn $test() {
            for_all_designs!(D => {
                for &era in each(D::ERAS.iter().filter(|era| D::debug_rules(**era).is_some())) {
                    $check::<D>(era);
                }
            });
        }
    )+};
}

mod hooks;

on_all! {
    a_double_free_is_reported: double_free,
    a_free_of_no_object_is_reported: addresses,
    an_overrun_is_reported: overrun,
    an_underrun_is_reported: underrun,
    a_use_after_free_is_reported: use_after_free,
    a_use_after_free_is_found_when_the_slab_goes: use_after_free_of_the_last,
    constructed_objects_are_not_poisoned: kept_objects,
    reports_name_the_callers: callers,
    validate_finds_and_restores: validation,
    correct_use_gives_no_report: correct_use,
}

fn double_free<D: Design>(era: Era) {
    for flags in each(combinations()) {
        let heap = reporting::<D>(era);
        let cache = cache_of(&heap, "twice", 100, flags);
        let (object, allocated) = alloc(cache);
        let others = take(cache, 5);
        let (freed, first) = free(cache, object);
        assert_eq!(freed, Ok(()));
        // Not the newest of its list any more.
        give(cache, &others[..2]);
        assert_eq!(reports(), [], "correct use");
        let (freed, second) = free(cache, object);
        assert_eq!(freed, Err(FreeError::DoubleFree));
        let report = one_report();
        assert_eq!(
            (report.what, report.fix),
            (Finding::DoubleFree, Fix::Refused)
        );
        check_frame(cache, &report, object, During::Free, second);
        let tracked = flags.contains(CacheFlags::STORE_USER);
        assert_eq!(site(report.alloc), tracked.then_some(allocated), "{report}");
        assert_eq!(site(report.free), tracked.then_some(first), "{report}");
        give(cache, &others[2..]);
        destroy(cache);
        assert_eq!(reports(), []);
    }
}

fn addresses<D: Design>(era: Era) {
    for flags in each(combinations()) {
        let heap = reporting::<D>(era);
        let (cache, other) = (
            cache_of(&heap, "one", 100, flags),
            cache_of(&heap, "two", 100, flags),
        );
        let tracked = flags.contains(CacheFlags::STORE_USER);
        let (object, allocated) = alloc(cache);
        let (stranger, strangers) = alloc(other);
        let mut local = 0u64;
        let foreign: Object = NonNull::from(&mut local).cast();
        let (freed, here) = free(cache, foreign);
        assert_eq!(freed, Err(FreeError::Foreign));
        let report = one_report();
        assert_eq!((report.what, report.slab), (Finding::Foreign, None));
        assert_eq!(report.object, foreign.addr().get());
        assert_eq!(report.here.site.location(), Some(here));

        let (freed, here) = free(cache, stranger);
        assert_eq!(freed, Err(FreeError::WrongCache));
        let report = one_report();
        assert_eq!(
            (report.what, report.owner()),
            (Finding::WrongCache, Some("two"))
        );
        check_frame(cache, &report, stranger, During::Free, here);
        assert_eq!(site(report.alloc), tracked.then_some(strangers), "{report}");

        // SAFETY: only the address is used.
        let inside = unsafe { object.byte_add(8) };
        let (freed, here) = free(cache, inside);
        assert_eq!(freed, Err(FreeError::NotAnObject));
        let report = one_report();
        assert_eq!(report.what, Finding::NotAnObject);
        check_frame(cache, &report, inside, During::Free, here);
        assert_eq!(site(report.alloc), tracked.then_some(allocated), "{report}");

        give(cache, &[object]);
        give(other, &[stranger]);
        assert_eq!(reports(), []);
    }
}

/// One byte behind the object, for sizes with and without a gap up to the next word.
fn overrun<D: Design>(era: Era) {
    for (flags, size) in each(combinations().flat_map(|flags| [(flags, 60u32), (flags, 64)])) {
        let red_zone = flags.contains(CacheFlags::RED_ZONE);
        let padding = flags.contains(CacheFlags::POISON) && size == 60;
        if !red_zone && !padding {
            continue;
        }
        let heap = reporting::<D>(era);
        let cache = cache_of(&heap, "over", size, flags);
        let (object, allocated) = alloc(cache);
        poke(object, size as isize - 1, 0xee);
        poke(object, size as isize, 0x41);
        poke(object, size as isize + 1, 0x42);
        let (freed, here) = free(cache, object);
        assert_eq!(freed, Err(FreeError::Corrupt));
        let report = one_report();
        let (what, expected) = if red_zone {
            let word = D::debug_rules(era).expect("debugging").red_active;
            (Finding::RedZone, word[size as usize % 8])
        } else {
            (Finding::ObjectPadding, 0x5a)
        };
        assert_eq!((report.what, report.fix), (what, Fix::Quarantined));
        check_frame(cache, &report, object, During::Free, here);
        let damage = report.damage.expect("bytes");
        assert_eq!((damage.offset, damage.bytes), (i64::from(size), 2));
        assert_eq!(
            (damage.expected, damage.excerpt()),
            (expected, &[0x41, 0x42][..])
        );
        let tracked = flags.contains(CacheFlags::STORE_USER);
        assert_eq!(site(report.alloc), tracked.then_some(allocated), "{report}");
        // Out of circulation, and no allocation meets it.
        let more = take(cache, 100);
        assert!(!more.contains(&object));
        let (freed, _) = free(cache, object);
        assert_eq!(freed, Err(FreeError::DoubleFree));
        assert_eq!(one_report().what, Finding::DoubleFree);
        give(cache, &more);
        let live = live(cache).len();
        assert_eq!(live, 0);
        destroy(cache);
        assert_eq!(reports(), []);
    }
}

fn underrun<D: Design>(era: Era) {
    for flags in each(combinations().filter(|flags| flags.contains(CacheFlags::RED_ZONE))) {
        let heap = reporting::<D>(era);
        let cache = cache_of(&heap, "under", 100, flags);
        let objects = take(cache, 3);
        let pad = cache.head().geometry().layout.red_left_pad;
        if pad == 0 {
            // Then the byte is in the slot before.
            continue;
        }
        poke(objects[1], -1, 0);
        let (freed, here) = free(cache, objects[1]);
        assert_eq!(freed, Err(FreeError::Corrupt));
        let report = one_report();
        assert_eq!(report.what, Finding::RedZone);
        check_frame(cache, &report, objects[1], During::Free, here);
        let damage = report.damage.expect("bytes");
        assert_eq!(
            (damage.offset, damage.bytes, damage.expected),
            (-1, 1, D::debug_rules(era).expect("debugging").red_active[7])
        );
        give(cache, &[objects[0], objects[2]]);
        assert_eq!(reports(), []);
    }
}

fn use_after_free<D: Design>(era: Era) {
    for flags in each(combinations().filter(|flags| flags.contains(CacheFlags::POISON))) {
        let heap = reporting::<D>(era);
        let cache = cache_of(&heap, "after", 100, flags);
        let others = take(cache, 3);
        let (object, allocated) = alloc(cache);
        let (freed, freer) = free(cache, object);
        assert_eq!(freed, Ok(()));
        poke(object, 0, 0x77);
        poke(object, 99, 0x78);
        let mut taken = Vec::new();
        let mut here = None;
        while reports_len() == 0 {
            let (other, at) = alloc(cache);
            taken.push(other);
            here = Some(at);
            assert!(taken.len() < 200, "never found");
        }
        assert!(!taken.contains(&object));
        let report = one_report();
        assert_eq!(
            (report.what, report.fix),
            (Finding::Poison, Fix::Quarantined)
        );
        check_frame(cache, &report, object, During::Alloc, here.expect("a call"));
        let damage = report.damage.expect("bytes");
        assert_eq!((damage.offset, damage.bytes), (0, 100));
        assert_eq!((damage.expected, damage.found[0]), (0x6b, 0x77));
        let tracked = flags.contains(CacheFlags::STORE_USER);
        assert_eq!(site(report.alloc), tracked.then_some(allocated), "{report}");
        assert_eq!(site(report.free), tracked.then_some(freer), "{report}");
        give(cache, &others);
        give(cache, &taken);
        destroy(cache);
        assert_eq!(reports(), []);
    }
}

fn reports_len() -> usize {
    REPORTS.with_borrow(Vec::len)
}

/// The slab goes before the object is handed out again.
fn use_after_free_of_the_last<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let cache = cache_of(&heap, "gone", 100, letters("FZPU"));
    let slab = cache.head().geometry().objects as usize;
    let objects = take(cache, slab);
    give(cache, &objects[1..]);
    // SLAB may keep its indices in the one that came back first.
    poke(objects[2], 5, 1);
    give(cache, &objects[..1]);
    cache.shrink();
    let found = reports();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].what, found[0].during),
        (Finding::Poison, During::Discard)
    );
    assert_eq!(found[0].object, objects[2].addr().get());
}

/// Constructed and RCU objects keep their bytes while they are free.
fn kept_objects<D: Design>(era: Era) {
    for kind in each([CacheFlags::CTOR, CacheFlags::RCU]) {
        let heap = reporting::<D>(era);
        let cache = cache_of(&heap, "kept", 100, letters("FZPU") | kind);
        // Keeps the slab.
        let other = take(cache, 1)[0];
        let (object, _) = alloc(cache);
        // SAFETY: the object is live and 100 bytes long.
        unsafe { object.write_bytes(0x33, 100) };
        give(cache, &[object]);
        let again = take(cache, 200);
        assert!(again.contains(&object));
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), 100) };
        assert_eq!(bytes, [0x33; 100]);
        give(cache, &again);
        give(cache, &[other]);
        assert_eq!(reports(), []);
    }
}

/// The public calls name their callers, all of them.
fn callers<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    heap.set_slub_debug(Some(SlubDebug::parse("FZPU", era).expect("letters")))
        .expect("a design with debugging");
    let cache = cache_of(&heap, "named", 100, CacheFlags::NONE);
    assert_eq!(cache.head().flags(), letters("FZPU"));
    // These keep the slabs.
    let (other, kept) = (take(cache, 1)[0], plain_kmalloc(&heap).0);
    let sites = |report: &Report| {
        assert_eq!(
            report.here.site.location().map(Location::file),
            Some(file!())
        );
        [
            site(report.alloc),
            site(report.free),
            report.here.site.location(),
        ]
    };
    let (object, first) = plain_alloc(cache);
    let (freed, second) = plain_free(cache, object);
    assert_eq!(freed, Ok(()));
    let (freed, third) = plain_free(cache, object);
    assert_eq!(freed, Err(FreeError::DoubleFree));
    assert_eq!(sites(&one_report()), [first, second, third].map(Some));
    assert!(first.line() < second.line() && second.line() < third.line());

    let (object, first) = plain_kmalloc(&heap);
    let (freed, second) = plain_kfree(&heap, object);
    assert_eq!(freed, Ok(()));
    let (freed, third) = plain_kfree(&heap, object);
    assert_eq!(freed, Err(FreeError::DoubleFree));
    let report = one_report();
    let class = heap.kmalloc_cache(50);
    assert_eq!(
        report.cache(),
        class.map_or("kmalloc", |class| class.name())
    );
    assert_eq!(sites(&report), [first, second, third].map(Some));

    let mut slots = [None; 3];
    let (filled, first) = bulk_alloc(cache, &mut slots);
    assert!(filled);
    let objects = slots.map(|slot| slot.expect("filled"));
    let (freed, second) = bulk_free(cache, &mut slots);
    assert_eq!((freed, slots), (Ok(()), [None; 3]));
    slots[1] = Some(objects[1]);
    let (freed, third) = bulk_free(cache, &mut slots);
    assert_eq!(freed, Err(FreeError::DoubleFree));
    assert_eq!(slots, [None, Some(objects[1]), None]);
    assert_eq!(sites(&one_report()), [first, second, third].map(Some));
    give(cache, &[other]);

    // Call sites that are addresses of code, as recordings and preloaded programs have them.
    let code = CallSite::code(0xffff_ffff_8123_4567);
    let object = heap.kmalloc_at(50, None, code).expect("memory");
    // SAFETY: the object is not used any more.
    unsafe { heap.kfree_at(object, CallSite::code(0x1235)) }.expect("live");
    // SAFETY: refused.
    unsafe { heap.kfree_at(object, CallSite::code(0x77)) }.expect_err("twice");
    let report = one_report();
    let address = |track: Option<Track>| track.and_then(|track| track.site.address());
    assert_eq!(address(report.alloc), Some(0xffff_ffff_8123_4567));
    assert_eq!(address(report.free), Some(0x1235));
    assert_eq!(report.here.site.address(), Some(0x77));
    kfree(&heap, kept).expect("live");
    assert!(
        report
            .to_string()
            .contains("allocated in 0xffffffff81234567 cpu=0")
    );
}

/// An overrun of a kmalloc begins behind what was asked for, where the era knows it.
#[test]
fn a_kmalloc_ends_where_the_request_ends() {
    for (era, text, caught) in each([
        (Era::V6_18, "ZU", true),
        (Era::V6_18, "FZPU", true),
        (Era::V6_18, "ZP", false),
        (Era::V6_1, "FZPU", false),
    ]) {
        let heap = reporting::<Slub>(era);
        heap.set_slub_debug(Some(SlubDebug::parse(text, era).expect("letters")))
            .expect("a design with debugging");
        let object = heap.kmalloc(50, None).expect("memory");
        poke(object, 49, 1);
        poke(object, 50, 1);
        let freed = kfree(&heap, object);
        assert_eq!(freed.is_err(), caught);
        let offsets: Vec<_> = reports()
            .iter()
            .map(|report| report.damage.map(|damage| damage.offset))
            .collect();
        assert_eq!(offsets, if caught { vec![Some(50)] } else { vec![] });
    }
}

/// A free pointer inside the object leads astray after a use after free.
#[test]
fn a_corrupt_free_list_is_cut() {
    for (era, text) in each([
        (Era::V5_9, "F"),
        (Era::V6_1, "U"),
        (Era::V6_18, "F"),
        (Era::V6_18, "FZ"),
    ]) {
        for lead in [0xffu8, 0x01] {
            let heap = reporting::<Slub>(era);
            let cache = cache_of(&heap, "list", 128, letters(text));
            let objects = take(cache, 8);
            give(cache, &objects[2..6]);
            let link = cache
                .head()
                .geometry()
                .layout
                .free_pointer
                .expect("a pointer");
            // The newest of the list; the rest of the slab is behind it.
            poke(objects[5], link as isize, lead);
            poke(objects[5], link as isize + 1, lead);
            let taken = take(cache, 60);
            let found = reports();
            assert_eq!(found.len(), 1, "{found:?}");
            let report = &found[0];
            assert_eq!(report.what, Finding::FreelistCorrupt, "{report}");
            assert_eq!(report.fix, Fix::SlabIsolated);
            assert!(report.slab.is_some());
            let mut distinct = taken.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!(distinct.len(), taken.len());
            give(cache, &taken);
            give(cache, &[objects[0], objects[1], objects[6], objects[7]]);
            assert_eq!(reports(), []);
            assert_eq!(cache.check_consistency(), Ok(()));
        }
    }
}

fn validation<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let cache = cache_of(&heap, "look", 200, letters("FZPU"));
    let (used, freed): (Vec<_>, Vec<_>) = take(cache, 60)
        .into_iter()
        .enumerate()
        .partition(|(at, _)| at % 2 == 0);
    let [used, freed] = [used, freed]
        .map(|half| -> Vec<Object> { half.into_iter().map(|(_, object)| object).collect() });
    give(cache, &freed);
    let clean = cache.validate();
    assert_eq!((clean.findings, clean.reports().count()), (0, 0));
    // SLOB's pages are no slabs.
    assert!(clean.slabs > 1, "{clean:?}");
    assert!(clean.objects >= 60, "{clean:?}");
    assert_eq!(reports(), []);
    poke(used[3], 200, 9);
    poke(freed[4], 17, 9);
    // Writing the file of sysfs looks at objects, too, and restores them.
    if attributes_of(D::TUNABLES, era).any(|attribute| attribute.name == "validate") {
        let written = cache.sysfs_write("validate", "1");
        assert_eq!(written, Err(SysfsError::Damaged(2)));
        assert_eq!(reports().len(), 2);
        assert_eq!(cache.sysfs_write("validate", "1"), Ok(()), "restored");
        poke(used[3], 200, 9);
        poke(freed[4], 17, 9);
    }
    let geometry = *cache.head().geometry();
    let slab = heap.pages().pfn_of(used[0]).expect("a page");
    let slab = heap.pages().address(slab).expect("an address");
    let padding = geometry.slack_bytes > 0;
    if padding {
        let indices = match geometry.slab.freelist {
            FreelistPlace::SlabEnd => geometry.slab.freelist_bytes as isize,
            _ => 0,
        };
        poke(slab, (4096 << geometry.order) - indices - 1, 9);
    }
    let found = cache.validate();
    assert_eq!(found.findings, 2 + u64::from(padding), "{found:?}");
    let mut kinds: Vec<_> = found.reports().map(|report| report.what).collect();
    kinds.sort_by_key(|what| *what as u32);
    let mut expected = vec![Finding::RedZone, Finding::Poison];
    expected.extend(padding.then_some(Finding::SlabPadding));
    assert_eq!(kinds, expected);
    for report in found.reports() {
        assert_eq!(
            (report.during, report.fix),
            (During::Validate, Fix::Restored)
        );
        assert_eq!(
            report.here.site.location().map(Location::file),
            Some(file!())
        );
    }
    assert_eq!(reports().len() as u64, found.findings);
    assert_eq!(cache.validate().findings, 0, "restored");
    give(cache, &used);
    assert_eq!(reports(), []);
}

/// The negative control: correct use, whatever the letters, gives no report.
fn correct_use<D: Design>(era: Era) {
    for (round, flags) in each(combinations().enumerate()) {
        let heap = reporting::<D>(era);
        let mut random = Rng::new(round as u64);
        let sizes = [1u32, 7, 8, 12, 13, 24, 100, 256, 1000, 5000];
        let caches: Vec<_> = sizes
            .iter()
            .map(|size| cache_of(&heap, &format!("c{size}"), *size, flags))
            .collect();
        let mut live: Vec<(usize, Object)> = Vec::new();
        for step in 0..3000u32 {
            crate::model::scenario::on(&heap, step % 2);
            if live.is_empty() || random.chance(550) {
                let cache = random.next_u64() as usize % caches.len();
                let (object, _) = alloc(caches[cache]);
                // SAFETY: the object is live and this long.
                unsafe { object.write_bytes(step as u8, sizes[cache] as usize) };
                live.push((cache, object));
            } else {
                let at = random.next_u64() as usize % live.len();
                let (cache, object) = live.swap_remove(at);
                give(caches[cache], &[object]);
            }
        }
        for cache in &caches {
            assert_eq!(cache.check_consistency(), Ok(()));
            assert_eq!(cache.validate().findings, 0);
        }
        for (cache, object) in live {
            give(caches[cache], &[object]);
        }
        for cache in caches {
            destroy(cache);
        }
        assert_eq!(reports(), []);
    }
}
