//! Debugging beyond mistakes: tracing, naming leaks, choosing caches.

use super::*;

on_all! {
    bulk_allocations_without_memory_take_nothing: short_of_memory,
    fail_injection_is_a_mark: marked,
    traced_caches_report_each_call: tracing,
    a_leak_is_named_with_its_call_site: leaks,
    refused_frees_are_reported_without_debugging: refused_anyway,
    slub_debug_chooses_caches: settings,
}

/// A bulk allocation for which memory does not suffice takes nothing, and every object passes its checks.
fn short_of_memory<D: Design>(era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(4096));
    listen(&heap);
    let cache = cache_of(&heap, "large", 4000, letters("FZPU"));
    let mut slots = vec![None; 5000];
    assert!(!cache.alloc_bulk(&mut slots));
    assert!(slots.iter().all(Option::is_none));
    assert!(cache.alloc_bulk(&mut slots[..20]));
    give(cache, &slots.iter().copied().flatten().collect::<Vec<_>>());
    destroy(cache);
    assert_eq!(reports(), []);
}

/// The letter A alone is a flag that sysfs shows; the cache keeps its fast paths.
fn marked<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let cache = cache_of(&heap, "marked", 100, letters("A"));
    assert_eq!(cache.attribute("failslab"), Some(1));
    assert!(!cache.head().flags().debug());
    give(cache, &take(cache, 5));
}

fn tracing<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    heap.set_tracer(Some(keep_event));
    EVENTS.with_borrow_mut(Vec::clear);
    let (cache, quiet) = (
        cache_of(&heap, "told", 100, letters("T")),
        cache_of(&heap, "quiet", 100, letters("FZPU")),
    );
    let (object, allocated) = alloc(cache);
    let (freed, at) = free(cache, object);
    assert_eq!(freed, Ok(()));
    give(quiet, &take(quiet, 3));
    let events = EVENTS.with_borrow_mut(std::mem::take);
    let event = |alloc, at| {
        (
            alloc,
            "told".to_owned(),
            object.addr().get(),
            CallSite::of(at),
        )
    };
    assert_eq!(events, [event(true, allocated), event(false, at)]);
}

/// A cache with live objects names who allocated them.
fn leaks<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let cache = cache_of(&heap, "leaky", 100, letters("U"));
    let (object, at) = alloc(cache);
    let live = live(cache);
    assert_eq!(live, [object]);
    // SAFETY: the test uses no copy of the handle afterwards.
    let error = unsafe { cache.destroy() }.expect_err("an object is live");
    let message = error.to_string();
    assert!(
        message.contains(&format!("{object:p} allocated in {at} cpu=0")),
        "{message}"
    );
    give(cache, &[object]);
}

/// Without debugging, what a design refuses is reported too.
fn refused_anyway<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let (cache, other) = (sized(&heap, "one", 100), sized(&heap, "two", 100));
    let (object, stranger) = (take(cache, 1)[0], take(other, 1)[0]);
    let (freed, here) = free(cache, stranger);
    assert_eq!(freed, Err(FreeError::WrongCache));
    let report = one_report();
    assert_eq!(
        (report.what, report.owner()),
        (Finding::WrongCache, Some("two"))
    );
    check_frame(cache, &report, stranger, During::Free, here);
    give(cache, &[object]);
    let (freed, here) = free(cache, object);
    assert_eq!(freed, Err(FreeError::DoubleFree));
    let report = one_report();
    assert_eq!(report.what, Finding::DoubleFree);
    check_frame(cache, &report, object, During::Free, here);
    let mut local = 0u64;
    kfree(&heap, NonNull::from(&mut local).cast()).expect_err("foreign");
    let report = one_report();
    assert_eq!((report.what, report.cache()), (Finding::Foreign, "kfree"));
    assert_eq!(
        report.here.site.location().map(Location::file),
        Some(file!())
    );
}

fn settings<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let prefix = D::kmalloc_rules(era).expect("an era").prefix;
    let text = if era < Era::V5_9 {
        format!("FZ,{prefix}6")
    } else {
        format!("FZ,{prefix}6*;-,plain;U")
    };
    heap.set_slub_debug(Some(SlubDebug::parse(&text, era).expect("a setting")))
        .expect("a design with debugging");
    let object = heap.kmalloc(64, None).expect("memory");
    // SAFETY: the object is live, so its cache is not destroyed.
    let class = unsafe { heap.cache_of(object) }.expect("a class");
    assert!(class.head().flags().contains(letters("FZ")));
    assert_eq!(class.attribute("red_zone"), Some(1));
    assert_eq!(class.attribute("sanity_checks"), Some(1));
    assert_eq!(class.attribute("poison"), Some(0));
    let larger = heap.kmalloc_cache(128);
    let larger = larger.map(|class| class.head().flags().contains(letters("Z")));
    assert_eq!(larger, Some(false));
    poke(object, 64, 0);
    assert_eq!(
        // SAFETY: the object is not used any more.
        unsafe { heap.kfree(object) },
        Err(FreeError::Corrupt)
    );
    assert_eq!(one_report().what, Finding::RedZone);
    let plain = sized(&heap, "plain", 64);
    assert_eq!(plain.head().flags(), CacheFlags::NONE);
    if SlubDebug::parse("O", era).is_err() {
        return;
    }
    // O leaves those alone that would need larger slabs.
    heap.set_slub_debug(Some(SlubDebug::parse("OFZPU", era).expect("a setting")))
        .expect("a design with debugging");
    let (page, small) = (sized(&heap, "page", 4096), sized(&heap, "small", 200));
    assert_eq!(page.head().flags(), CacheFlags::NONE);
    assert_eq!(small.head().flags(), letters("FZPU"));
}
