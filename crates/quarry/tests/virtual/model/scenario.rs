//! Helpers of tests that tell what happens step by step, on virtual machines.

use std::ptr::NonNull;

use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::heap::{Cache, Heap};
use quarry_core::machine::{CpuId, LockClass, NodeId};
use quarry_core::stats::Stat;
use quarry_sim::VirtualMachine;

use super::setup::Setup;

pub(crate) type VirtualHeap<D> = Heap<VirtualMachine, D>;
pub(crate) type VirtualCache<'h, D> = Cache<'h, VirtualMachine, D>;
pub(crate) type Object = NonNull<u8>;

/// A heap on any machine.
pub(crate) fn boot<D: Design>(era: Era, setup: Setup) -> VirtualHeap<D> {
    Heap::new(setup.machine(), era, setup.boot()).expect("a heap")
}

/// A round of what is done from time to time, at `now_ns` of the machine's clock.
pub(crate) fn reap_at<D: Design>(heap: &VirtualHeap<D>, now_ns: u64) {
    heap.machine().advance_to(now_ns);
    heap.reap();
}

/// A heap on one node of 4 KiB pages.
pub(crate) fn small<D: Design>(era: Era, cpus: u32) -> VirtualHeap<D> {
    boot(
        era,
        Setup {
            cpus,
            ..Setup::default()
        },
    )
}

/// A heap on two nodes with a CPU each.
pub(crate) fn two_nodes<D: Design>(era: Era) -> VirtualHeap<D> {
    boot(
        era,
        Setup {
            cpus: 2,
            nodes: 2,
            ..Setup::default()
        },
    )
}

/// A cache of objects packed as closely as the flags let them.
pub(crate) fn cache_of<'h, D: Design>(
    heap: &'h VirtualHeap<D>,
    name: &str,
    object_size: u32,
    flags: CacheFlags,
) -> VirtualCache<'h, D> {
    let spec = CacheSpec {
        flags,
        ..CacheSpec::new(name, object_size)
    };
    heap.create_cache(&spec).expect("a cache")
}

/// A cache of plain objects.
pub(crate) fn sized<'h, D: Design>(
    heap: &'h VirtualHeap<D>,
    name: &str,
    object_size: u32,
) -> VirtualCache<'h, D> {
    cache_of(heap, name, object_size, CacheFlags::NONE)
}

/// Runs the following operations on this CPU.
pub(crate) fn on<D: Design>(heap: &VirtualHeap<D>, cpu: u32) {
    heap.machine().run_on(CpuId(cpu));
}

/// Allocates objects one by one.
pub(crate) fn take<D: Design>(cache: VirtualCache<'_, D>, count: usize) -> Vec<Object> {
    (0..count).map(|_| cache.alloc().expect("memory")).collect()
}

/// Frees live objects one by one.
pub(crate) fn give<D: Design>(cache: VirtualCache<'_, D>, objects: &[Object]) {
    for &object in objects {
        // SAFETY: the tests free what they allocated, once, and do not use it any more.
        unsafe { cache.free(object) }.expect("a live object");
    }
}

/// One counter of a cache.
pub(crate) fn stat<D: Design>(cache: VirtualCache<'_, D>, stat: Stat) -> u64 {
    cache.stats().get(stat)
}

/// Acquisitions of locks of a class so far.
pub(crate) fn locks_taken<D: Design>(heap: &VirtualHeap<D>, class: LockClass) -> u64 {
    heap.machine().counters().locks(class)
}

/// The node of an object's page.
pub(crate) fn node_of<D: Design>(heap: &VirtualHeap<D>, object: Object) -> Option<NodeId> {
    let pfn = heap.pages().pfn_of(object)?;
    heap.pages().node_of(pfn)
}

/// The live objects of a cache, in address order.
pub(crate) fn live<D: Design>(cache: VirtualCache<'_, D>) -> Vec<Object> {
    let mut live = Vec::new();
    let walked = cache.for_each_live(|object| live.push(object));
    walked.expect("at rest");
    live
}
