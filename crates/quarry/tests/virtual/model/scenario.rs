//! Helpers of tests that go step by step, on virtual machines.

use std::borrow::Borrow;
use std::ptr::NonNull;

use quarry_core::design::{CacheSpec, Design, FreeError};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::heap::{Cache, Heap};
use quarry_core::machine::{CpuId, LockClass, Machine, NodeId};
use quarry_core::page::{AllocOptions, MigrateType, PageAllocator, PageConfig, Pfn};
use quarry_core::pool::PoolOwner;
use quarry_core::stats::Stat;
use quarry_sim::VirtualMachine;

use super::by_number::ByNumber as _;
use super::setup::Setup;

pub(crate) type VirtualHeap<D> = Heap<VirtualMachine, D>;
pub(crate) type VirtualCache<'h, D> = Cache<'h, VirtualMachine, D>;
pub(crate) type Object = NonNull<u8>;

pub(crate) type Pages = PageAllocator<VirtualMachine>;

/// A page allocator on any machine.
pub(crate) fn boot_pages(era: Era, setup: Setup) -> Pages {
    PageAllocator::new(setup.machine(), era).expect("a page allocator")
}

/// A page allocator on any machine, by its configuration.
pub(crate) fn configured_pages(setup: Setup, config: &PageConfig) -> Pages {
    PageAllocator::with_config(setup.machine(), config).expect("a page allocator")
}

/// Options of a block of a mobility.
pub(crate) fn block_of(order: u32, migratetype: MigrateType) -> AllocOptions {
    AllocOptions {
        order,
        migratetype,
        ..AllocOptions::default()
    }
}

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
    boot(era, Setup::DEFAULT.on(cpus, 1))
}

/// A heap on two nodes with a CPU each.
pub(crate) fn two_nodes<D: Design>(era: Era) -> VirtualHeap<D> {
    boot(era, Setup::DEFAULT.on(2, 2))
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

/// Frees live objects in one call, which empties all slots.
pub(crate) fn give_bulk<D: Design>(cache: VirtualCache<'_, D>, slots: &mut [Option<Object>]) {
    // SAFETY: as in `give`.
    unsafe { cache.free_bulk(slots) }.expect("live objects");
    assert!(slots.iter().all(Option::is_none), "{slots:?}");
}

/// Frees live objects one by one, each when its readers have finished.
pub(crate) fn give_later<D: Design>(cache: VirtualCache<'_, D>, objects: &[Object]) {
    for &object in objects {
        // SAFETY: as in `give`.
        unsafe { cache.free_rcu(object) }.expect("a live object");
    }
}

/// Lets all readers finish.
pub(crate) fn grace_period<D: Design>(heap: &VirtualHeap<D>) {
    // SAFETY: the tests have one thread, which reads no object that it has freed.
    unsafe { heap.machine().grace_period() };
}

/// Frees what may be no live object of the cache.
#[track_caller]
pub(crate) fn free<M: Machine, D: Design>(
    cache: Cache<'_, M, D>,
    object: Object,
) -> Result<(), FreeError> {
    // SAFETY: the tests use no object that they have freed, and mistakes are refused.
    unsafe { cache.free(object) }
}

/// Frees what may be no object of kmalloc.
#[track_caller]
pub(crate) fn kfree<D: Design>(heap: &VirtualHeap<D>, object: Object) -> Result<(), FreeError> {
    // SAFETY: as in `free`.
    unsafe { heap.kfree(object) }
}

/// Allocates blocks of an order one by one.
pub(crate) fn take_pages<M: Machine>(
    pages: &PageAllocator<M>,
    order: u32,
    count: usize,
) -> Vec<Pfn> {
    let blocks = (0..count).map(|_| pages.alloc(order, None).expect("memory"));
    blocks.collect()
}

/// Frees blocks of an order one by one.
pub(crate) fn give_pages<M: Machine>(
    pages: &PageAllocator<M>,
    blocks: impl IntoIterator<Item: Borrow<Pfn>>,
    order: u32,
) {
    for block in blocks {
        let freed = pages.free_number(*block.borrow(), order);
        freed.expect("an allocated block");
    }
}

/// Destroys a cache without live objects.
pub(crate) fn destroy<D: Design>(cache: VirtualCache<'_, D>) {
    // SAFETY: the tests use no copy of the handle afterwards.
    unsafe { cache.destroy() }.expect("nothing is live");
}

/// Ends a pool whose pages are all back, after its handles: its structures are back, too.
pub(crate) fn end_pool<M: Machine>(owner: PoolOwner<'_, M>, handles: impl Sized) {
    let pages = owner.pool().pages();
    drop(handles);
    owner.destroy().unwrap();
    check_empty(pages);
}

/// Checks that no page is a pool's or allocated.
pub(crate) fn check_empty<M: Machine>(pages: &PageAllocator<M>) {
    let census = pages.check_consistency().expect("consistent");
    assert_eq!((census.pool, census.allocated), (0, 0), "{census:?}");
}

/// Shrinks all caches until none keeps objects in another one.
pub(crate) fn shrink_all<M: Machine, D: Design>(heap: &Heap<M, D>) {
    for _ in 0..4 {
        heap.for_each_cache(|cache| {
            // CPUs keep their main sheaf for as long as the cache has sheaves.
            cache.set_attribute("sheaf_capacity", 0);
            cache.shrink();
        });
    }
}

/// One counter of a cache.
pub(crate) fn stat<D: Design>(cache: VirtualCache<'_, D>, stat: Stat) -> u64 {
    cache.stats().get(stat)
}

/// Counters of a cache, in the order asked for.
pub(crate) fn stats<D: Design, const N: usize>(
    cache: VirtualCache<'_, D>,
    wanted: [Stat; N],
) -> [u64; N] {
    wanted.map(|wanted| stat(cache, wanted))
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
