//! Helpers of SLOB's step-by-step tests.

use quarry_core::era::Era;
use quarry_core::page::Pfn;
use quarry_core::slob::Slob;

use super::scenario::{Object, VirtualHeap};
use super::setup::Setup;

pub(crate) type SlobHeap = VirtualHeap<Slob>;

/// The two eras.
pub(crate) const OLD: Era = Era::V2_6_24;
pub(crate) const NEW: Era = Era::V6_1;

/// One CPU, 4 KiB pages.
pub(crate) fn small(era: Era) -> SlobHeap {
    super::scenario::small(era, 1)
}

/// The newer era on any machine.
pub(crate) fn boot(setup: Setup) -> SlobHeap {
    super::scenario::boot(NEW, setup)
}

pub(crate) fn kmalloc(heap: &SlobHeap, bytes: usize) -> Object {
    heap.kmalloc(bytes, None).expect("memory")
}

pub(crate) fn kfree(heap: &SlobHeap, object: Object) {
    // SAFETY: the tests free what they allocated, once, and do not use it any more.
    unsafe { heap.kfree(object) }.expect("a live kmalloc");
}

pub(crate) fn page(heap: &SlobHeap, object: Object) -> Pfn {
    heap.pages().pfn_of(object).expect("a page")
}

/// The address `bytes` bytes behind `object`.
pub(crate) fn behind(object: Object, bytes: isize) -> Object {
    // SAFETY: the tests stay inside the page.
    unsafe { object.byte_offset(bytes) }
}

/// Bytes from the start of the object's page of 4 KiB.
pub(crate) fn offset(object: Object) -> usize {
    object.addr().get() % 4096
}

/// Reads the value at an address.
pub(crate) fn read<T: Copy>(place: Object) -> T {
    // SAFETY: the tests read what the allocator wrote there, while no code writes.
    unsafe { place.cast::<T>().read() }
}

/// Overwrites the value at an address.
pub(crate) fn write<T>(place: Object, value: T) {
    // SAFETY: the place is inside a page; the allocator does not run meanwhile.
    unsafe { place.cast::<T>().write(value) };
}

/// The first two units of a free block of a page of 4 KiB.
pub(crate) fn units(heap: &SlobHeap, page: Pfn, at: usize) -> [i16; 2] {
    let first = heap.pages().address(page).expect("an address");
    read(behind(first, 2 * at as isize))
}

pub(crate) fn consistent(heap: &SlobHeap) {
    heap.for_each_cache(|cache| assert_eq!(cache.check_consistency(), Ok(()), "{}", cache.name()));
}
