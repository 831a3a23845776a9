//! Pages that were a pool's and become slabs: nothing of the pool is left in their descriptors.

use crate::prelude::*;

/// Its mappings are no valid link, offset or CPU.
struct Device;

impl Mapper for Device {
    fn map(&self, block: NonNull<u8>, _bytes: usize) -> Option<u64> {
        Some(!(block.addr().get() as u64))
    }

    fn unmap(&self, _mapping: u64, _bytes: usize) {}

    fn sync_for_device(&self, _mapping: u64, _bytes: usize) {}
}

/// Has a pool use whole pages and pages in pieces, and give them all back. Returns those pages.
fn receive<D: Design>(heap: &VirtualHeap<D>) -> Vec<Pfn> {
    let params = PoolParams {
        pool_size: 32,
        ..PoolParams::default()
    };
    let mut owner =
        PoolOwner::create_mapped(heap.pages(), Era::V6_18, &params, Device).expect("a pool");
    let pieces: Vec<_> = (0..400)
        .map(|_| owner.alloc_piece(1000).expect("memory"))
        .collect();
    let whole: Vec<_> = (0..100).map(|_| owner.alloc().expect("memory")).collect();
    let used = pieces.iter().map(|piece| piece.pfn).chain(whole.clone());
    let used: Vec<_> = used.collect();
    for (at, piece) in pieces.into_iter().enumerate() {
        let put = if at % 8 < 4 {
            // SAFETY: one thread puts, and the mapper does not.
            unsafe { owner.pool().put_piece(piece.pfn, piece.offset) }
        } else {
            // SAFETY: as above.
            unsafe { owner.put_piece(piece.pfn, piece.offset) }
        };
        put.expect("a piece in use");
    }
    for pfn in whole {
        // SAFETY: as above.
        unsafe { owner.put(pfn) }.expect("a page in flight");
    }
    owner.destroy().expect("nothing is in flight");
    used
}

fn pool_pages_become_slabs<D: Design>(_: &str, era: Era) {
    let heap = boot::<D>(era, Setup::of_pages(2048));
    let cache = sized(&heap, "filler", 512);
    let used = receive(&heap);
    let objects: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    let slabs = used.iter().filter(|&&pfn| {
        let first = heap.pages().address(pfn).expect("a page");
        // SAFETY: the handle is not used.
        unsafe { heap.cache_of(first) }.is_some()
    });
    assert!(slabs.count() > used.len() / 2, "they are slabs now");
    let mut live = 0;
    cache.for_each_live(|_| live += 1).expect("at rest");
    assert_eq!(live, objects.len());
    assert_eq!(cache.check_consistency(), Ok(()));
    assert!(cache.usage().active_objs >= live as u64);
    for object in objects {
        free(cache, object).expect("a live object");
    }
    assert_eq!(cache.check_consistency(), Ok(()));
    destroy(cache);
    heap.pages().check_consistency().expect("consistent");
}

design_tests!(of: pool_pages_become_slabs);
