//! Helpers of tests of debugging: heaps that report to the test, and calls whose sites are known.

use std::cell::RefCell;
use std::panic::Location;

use quarry_core::debug::{CallSite, During, Report, TraceEvent, Track};
use quarry_core::design::{Design, FreeError};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;

use super::scenario::{Object, VirtualCache, VirtualHeap, small};

thread_local! {
    pub(crate) static REPORTS: RefCell<Vec<Report>> = const { RefCell::new(Vec::new()) };
    pub(crate) static EVENTS: RefCell<Vec<(bool, String, usize, CallSite)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn keep(report: &Report) {
    REPORTS.with_borrow_mut(|reports| reports.push(*report));
}

pub(crate) fn keep_event(event: &TraceEvent<'_>) {
    let kept = (
        event.alloc,
        event.cache.to_owned(),
        event.object,
        event.here.site,
    );
    EVENTS.with_borrow_mut(|events| events.push(kept));
}

/// The reports since the last call.
pub(crate) fn reports() -> Vec<Report> {
    REPORTS.with_borrow_mut(std::mem::take)
}

pub(crate) fn one_report() -> Report {
    let reports = reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports[0]
}

/// A heap of two CPUs that reports to the test.
pub(crate) fn reporting<D: Design>(era: Era) -> VirtualHeap<D> {
    let heap = small::<D>(era, 2);
    listen(&heap);
    heap
}

/// From now on reports about this heap are kept, and older ones forgotten.
pub(crate) fn listen<D: Design>(heap: &VirtualHeap<D>) {
    heap.set_reporter(Some(keep));
    reports();
}

pub(crate) fn letters(text: &str) -> CacheFlags {
    CacheFlags::parse_debug_letters(text).expect("letters")
}

/// All sets of the letters that look at objects, but the empty one.
pub(crate) fn combinations() -> impl Iterator<Item = CacheFlags> {
    (1..16u32).map(|set| {
        let chosen = "FZPU".chars().enumerate();
        let text: String = chosen
            .filter(|(at, _)| set >> at & 1 != 0)
            .map(|(_, letter)| letter)
            .collect();
        letters(&text)
    })
}

/// Writes where the test has no business.
pub(crate) fn poke(object: Object, offset: isize, byte: u8) {
    // SAFETY: the tests stay inside the pages of the machine; no other code runs.
    let at = unsafe { object.byte_offset(offset) };
    // SAFETY: as above.
    unsafe { at.write(byte) };
}

#[track_caller]
pub(crate) fn free<D: Design>(
    cache: VirtualCache<'_, D>,
    object: Object,
) -> (Result<(), FreeError>, &'static Location<'static>) {
    let here = Location::caller();
    // SAFETY: the tests use no object that they have freed as if it were theirs; mistakes are
    // what is tested.
    (unsafe { cache.free_at(object, CallSite::of(here)) }, here)
}

#[track_caller]
pub(crate) fn alloc<D: Design>(cache: VirtualCache<'_, D>) -> (Object, &'static Location<'static>) {
    let here = Location::caller();
    let object = cache.alloc_at(None, CallSite::of(here)).expect("memory");
    (object, here)
}

pub(crate) fn site(track: Option<Track>) -> Option<&'static Location<'static>> {
    track.and_then(|track| track.site.location())
}

/// Checks the fields that every report about an object has.
pub(crate) fn check_frame<D: Design>(
    cache: VirtualCache<'_, D>,
    report: &Report,
    object: Object,
    during: During,
    here: &'static Location<'static>,
) {
    assert_eq!(report.cache(), cache.name(), "{report}");
    assert_eq!(report.object, object.addr().get(), "{report}");
    assert_eq!(report.during, during, "{report}");
    assert_eq!(report.here.site.location(), Some(here), "{report}");
    assert_eq!((report.here.cpu, report.here.pid), (0, 1), "{report}");
    let (pfn, address) = report.slab.expect("a slab");
    let slab_bytes = 4096 << cache.head().geometry().order;
    let inside = object.addr().get().wrapping_sub(address);
    assert!(inside < slab_bytes, "{report}");
    assert!(pfn.0 > 0 || address > 0, "{report}");
}

pub(crate) type Place = &'static Location<'static>;

/// The call of the test, through `#[track_caller]`.
#[track_caller]
pub(crate) fn called<R>(result: R) -> (R, Place) {
    (result, Location::caller())
}

#[track_caller]
pub(crate) fn plain_alloc<D: Design>(cache: VirtualCache<'_, D>) -> (Object, Place) {
    called(cache.alloc().expect("memory"))
}

#[track_caller]
pub(crate) fn plain_free<D: Design>(
    cache: VirtualCache<'_, D>,
    object: Object,
) -> (Result<(), FreeError>, Place) {
    // SAFETY: as in `free`.
    called(unsafe { cache.free(object) })
}

#[track_caller]
pub(crate) fn plain_kmalloc<D: Design>(heap: &VirtualHeap<D>) -> (Object, Place) {
    called(heap.kmalloc(50, None).expect("memory"))
}

#[track_caller]
pub(crate) fn plain_kfree<D: Design>(
    heap: &VirtualHeap<D>,
    object: Object,
) -> (Result<(), FreeError>, Place) {
    // SAFETY: as in `free`.
    called(unsafe { heap.kfree(object) })
}

#[track_caller]
pub(crate) fn bulk_alloc<D: Design>(
    cache: VirtualCache<'_, D>,
    slots: &mut [Option<Object>],
) -> (bool, Place) {
    called(cache.alloc_bulk(slots))
}

#[track_caller]
pub(crate) fn bulk_free<D: Design>(
    cache: VirtualCache<'_, D>,
    slots: &mut [Option<Object>],
) -> (Result<(), FreeError>, Place) {
    // SAFETY: as in `free`.
    called(unsafe { cache.free_bulk(slots) })
}
