//! Heaps as allocators of collections.
#![cfg(feature = "allocator-api2")]

use std::alloc::Layout;

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use hashbrown::HashMap;
use quarry::{Builder, Design, Era, HostHeap, Magazine, SheafCache, SlabCache, Slob, Slub, Slubq};

fn heap<D: Design>(era: Era) -> HostHeap<D> {
    let heap = Builder::<D>::new().memory_bytes(64 << 20).era(era).build();
    heap.expect("a heap")
}

/// A table that grows from the smallest class to blocks of pages, and keeps its heap alive.
fn collections<D: Design>() {
    let heap = heap::<D>(D::DEFAULT_ERA);
    let mut map = HashMap::new_in(heap.clone());
    let mut list = Vec::new_in(heap);
    for number in 0..20_000_u64 {
        map.insert(number, number * 3);
        list.push(number);
    }
    assert!(
        list.iter().all(|number| map[number] == number * 3),
        "{}",
        D::NAME
    );
    map.retain(|number, _| number % 2 == 0);
    assert_eq!(map.len(), 10_000);
}

#[test]
fn vec_and_hashbrown_live_in_heaps() {
    collections::<Magazine>();
    collections::<SheafCache>();
    collections::<Slub>();
    collections::<SlabCache>();
    collections::<Slubq>();
    collections::<Slob>();
}

/// Every alignment up to a page, also in eras whose kmalloc aligns to a word.
#[test]
fn blocks_are_aligned() {
    fn check<D: Design>(era: Era) {
        let heap = heap::<D>(era);
        for align in (0..=12).map(|shift| 1 << shift) {
            for size in [1, 7, 96, 192, 1000, 5000, 70_000] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                let block = heap.allocate(layout).expect("memory");
                let address = block.cast::<u8>().addr().get();
                assert!(address.is_multiple_of(align), "{era}: {layout:?}");
                // SAFETY: the block has `size` bytes.
                unsafe { block.cast::<u8>().write_bytes(7, size) };
                // SAFETY: allocated above with this layout, and not used.
                unsafe { heap.deallocate(block.cast(), layout) };
            }
        }
    }
    check::<Slub>(Era::V6_18);
    check::<Slub>(Era::V4_13);
    check::<SlabCache>(Era::V4_13);
}

/// Blocks above the largest of pages are mappings, also when they grow; what the system has no room for is refused.
#[test]
fn blocks_have_any_size() {
    let heap = heap::<Slub>(Era::V6_18);
    let mut list = Vec::<u64, _>::new_in(heap.clone());
    for number in 0..3_000_000 {
        list.push(number);
    }
    assert_eq!(heap.machine().mapped_blocks().0, 1);
    assert!(list.try_reserve(1 << 50).is_err());
    list.truncate(100);
    list.shrink_to_fit();
    assert!(list.iter().copied().eq(0..100));
    assert_eq!(heap.machine().mapped_blocks(), (0, 0));
}
