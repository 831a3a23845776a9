//! Lanes of page pools: the way home where a machine has single steps.

use crate::model::scenario::end_pool as end;
use crate::model::steps::STUCK;
use crate::prelude::*;
use quarry_core::pool::{BATCH_PAGES, PagePool};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Pages = PageAllocator<Stepping>;

/// Pages of the largest lane.
const LANE: usize = 992;

fn boot(cpus: u32) -> Pages {
    boot_nodes(cpus, 1)
}

fn boot_nodes(cpus: u32, nodes: u32) -> Pages {
    let machine = Stepping(Setup::of_pages(1 << 14).on(cpus, nodes).machine());
    PageAllocator::new(machine, Era::V6_18).expect("a page allocator")
}

fn pool(pages: &Pages, pool_size: u32) -> PoolOwner<'_, Stepping> {
    let params = PoolParams {
        pool_size,
        ..PoolParams::default()
    };
    PoolOwner::create(pages, Era::V6_18, &params).expect("a pool")
}

fn put_on(pool: &PagePool<'_, Stepping>, cpu: u32, pfn: Pfn) -> Put {
    pool.pages().machine().0.run_on(CpuId(cpu));
    // SAFETY: the tests have one thread and put each page once.
    let put = unsafe { pool.put(pfn) }.unwrap();
    pool.pages().machine().0.run_on(CpuId(0));
    put
}

fn alloc(owner: &mut PoolOwner<'_, Stepping>, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| owner.alloc().expect("memory")).collect()
}

#[test]
fn pages_come_home_in_order_however_often() {
    let pages = boot(3);
    let mut owner = pool(&pages, 1024);
    let handle = owner.handle();
    let mut away = VecDeque::from(alloc(&mut owner, 256));
    let mut home = VecDeque::new();
    let mut puts = 0;
    // Numbers without a common divisor with the lane's length, so that it begins anywhere.
    for round in each(0..2_000_usize) {
        for _ in 0..1 + round * 7 % 45 {
            let Some(pfn) = away.pop_front() else { break };
            assert_eq!(put_on(&handle, 1, pfn), Put::Ring);
            assert_eq!(handle.state_of(pfn), PoolState::InPool);
            home.push_back(pfn);
            puts += 1;
        }
        let stats = handle.stats();
        assert_eq!(stats.ring, puts);
        assert_eq!(stats.pages_ring + stats.pages_cached, home.len() as u64);
        assert_eq!(stats.inflight, away.len() as u64);
        // The alloc cache gives the newest of a refill first, so whole refills are in order.
        if home.len() > CACHE_PAGES {
            let got: BTreeSet<Pfn> = alloc(&mut owner, 64).into_iter().collect();
            let oldest: BTreeSet<Pfn> = home.drain(..64).collect();
            assert_eq!(got, oldest);
            away.extend(got);
        }
    }
    assert_eq!(handle.stats().slow, 4, "no other pages were needed");
    for pfn in away {
        assert_eq!(put_on(&handle, 2, pfn), Put::Ring);
    }
    end(owner, handle);
}

#[test]
fn what_finds_a_full_lane_goes_to_the_ring() {
    let pages = boot(2);
    for size in [1, 2, 10, 1500] {
        let mut owner = pool(&pages, size);
        let handle = owner.handle();
        let most = (size as usize).clamp(2, LANE) + size as usize;
        let mut got = alloc(&mut owner, most + 1);
        let others = alloc(&mut owner, handle.stats().pages_cached as usize);
        let mut full = 0;
        for round in 0..5 {
            let puts: Vec<Put> = got.iter().map(|&pfn| put_on(&handle, 1, pfn)).collect();
            let kept = got.iter().zip(&puts).filter(|(_, put)| **put == Put::Ring);
            let kept: BTreeSet<Pfn> = kept.map(|(&pfn, _)| pfn).collect();
            // A lane that goes round has an entry less.
            let all = [most - 1, most].contains(&kept.len());
            assert!(all, "{} of {most}, round {round}", kept.len());
            full += (got.len() - kept.len()) as u64;
            let stats = handle.stats();
            assert_eq!(stats.pages_ring, kept.len() as u64);
            assert_eq!(stats.ring_full, full);
            got = alloc(&mut owner, kept.len());
            assert_eq!(got.iter().copied().collect::<BTreeSet<_>>(), kept);
            assert_eq!(handle.stats().pages_ring, 0);
            // Others in the place of those that were released.
            got.extend(alloc(&mut owner, most + 1 - got.len()));
            let cached = handle.stats().pages_cached as usize;
            for pfn in alloc(&mut owner, cached) {
                // A page with another user leaves the pool.
                pages.get_number(pfn).unwrap();
                assert_eq!(put_on(&handle, 0, pfn), Put::Released);
                assert_eq!(pages.put_number(pfn), Ok(true));
            }
        }
        for pfn in got.into_iter().chain(others) {
            put_on(&handle, 0, pfn);
        }
        end(owner, handle);
    }
}

#[test]
fn one_page_may_come_and_go_alone() {
    let pages = boot(2);
    let mut owner = pool(&pages, 1024);
    let handle = owner.handle();
    let got = alloc(&mut owner, 64);
    // The alloc cache is empty, so the page goes through the lane each time: the newest entry is the
    // same page, which was taken.
    for _ in each(0..2_000) {
        assert_eq!(put_on(&handle, 1, got[0]), Put::Ring);
        assert_eq!(owner.alloc(), Some(got[0]));
    }
    let stats = handle.stats();
    assert_eq!((stats.ring, stats.refill, stats.slow), (2_000, 2_000, 1));
    for pfn in got {
        assert_eq!(put_on(&handle, 1, pfn), Put::Ring);
    }
    end(owner, handle);
}

#[test]
fn batches_go_home_by_lanes() {
    let pages = boot(2);
    let mut owner = pool(&pages, 300);
    let handle = owner.handle();
    let mut batch = handle.batch();
    for round in 0..500_usize {
        let count = 1 + round * 11 % BATCH_PAGES;
        assert_eq!(owner.fill_batch(&mut batch, count), Ok(count));
        assert_eq!(handle.stats().inflight, count as u64);
        let sent: BTreeSet<Pfn> = batch.pages().iter().copied().collect();
        assert_eq!(sent.len(), count);
        pages.machine().0.run_on(CpuId(1));
        handle.put_batch(&mut batch).unwrap();
        pages.machine().0.run_on(CpuId(0));
        assert!(
            sent.iter()
                .all(|&pfn| handle.state_of(pfn) == PoolState::InPool)
        );
        assert_eq!(handle.stats().inflight, 0);
    }
    let stats = handle.stats();
    assert_eq!(stats.ring_full, 0);
    assert_eq!(
        stats.pages_cached + stats.pages_ring,
        64,
        "of one slow fill"
    );
    end(owner, (batch, handle));
}

#[test]
fn a_destroyed_pools_lanes_take_nothing() {
    let pages = boot(4);
    let mut owner = pool(&pages, 1024);
    let got = alloc(&mut owner, 100);
    let handle = owner.handle();
    // Lanes of CPUs 1 and 2; CPU 3 has none yet.
    for (at, &pfn) in got[..50].iter().enumerate() {
        assert_eq!(put_on(&handle, 1 + at as u32 % 2, pfn), Put::Ring);
    }
    let pending = owner.destroy().unwrap_err();
    assert_eq!(pending.report().pages, 50);
    for (at, &pfn) in got[50..].iter().enumerate() {
        assert_eq!(put_on(&handle, at as u32 % 4, pfn), Put::Released);
    }
    pending.finish().unwrap();
    drop(handle);
    check_empty(&pages);
}

/// A holder of a lane's slot that is gone, as in the child of a fork.
#[test]
fn a_lane_that_cannot_be_closed_keeps_no_pool() {
    let pages = boot(2);
    let mut owner = pool(&pages, 1024);
    let handle = owner.handle();
    let [first, last] = [(); 2].map(|()| owner.alloc().unwrap());
    assert_eq!(put_on(&handle, 1, first), Put::Ring);
    STUCK.set(true);
    let pending = owner.destroy().unwrap_err();
    assert_eq!(
        handle.stats().pages_ring,
        0,
        "what is in the lane is released"
    );
    assert_eq!(put_on(&handle, 0, last), Put::Released);
    // Nothing is in flight, so there is nothing to wait for.
    pending.finish().unwrap();
    drop(handle);
    STUCK.set(false);
    check_empty(&pages);
}

/// The memory of lanes comes back with the pool, unless the holder of a slot may still look at it.
#[test]
fn lanes_go_with_their_pool() {
    for stuck in each([false, true]) {
        let pages = boot(2);
        let overhead = |stuck: bool| {
            let mut owner = pool(&pages, 1024);
            let handle = owner.handle();
            let first = owner.alloc().unwrap();
            assert_eq!(put_on(&handle, 1, first), Put::Ring);
            STUCK.set(stuck);
            owner.destroy().unwrap();
            drop(handle);
            STUCK.set(false);
            pages.overhead_bytes()
        };
        let once = overhead(stuck);
        assert_eq!(overhead(false) > once, stuck);
    }
}

thread_local! {
    /// A flag that makes the next unmapping panic, and the number of pages synchronised.
    static PANICS: Cell<bool> = const { Cell::new(false) };
    static SYNCED: Cell<usize> = const { Cell::new(0) };
}

struct Panicking;

impl Mapper for Panicking {
    fn map(&self, block: NonNull<u8>, _: usize) -> Option<u64> {
        Some(block.addr().get() as u64)
    }

    fn unmap(&self, _: u64, _: usize) {
        assert!(!PANICS.replace(false), "the mapper's own mistake");
    }

    fn sync_for_device(&self, _: u64, _: usize) {
        SYNCED.set(SYNCED.get() + 1);
    }
}

fn mapped(pages: &Pages, pool_size: u32) -> PoolOwner<'_, Stepping, Panicking> {
    let params = PoolParams {
        pool_size,
        ..PoolParams::default()
    };
    PoolOwner::create_mapped(pages, Era::V6_18, &params, Panicking).expect("a pool")
}

#[test]
fn a_panic_between_home_and_outside_leaves_one_owner() {
    let pages = boot(2);
    let mut owner = mapped(&pages, 8);
    let mut batch = owner.pool().batch();
    assert_eq!(owner.fill_batch(&mut batch, BATCH_PAGES), Ok(BATCH_PAGES));
    // Eight go into the lane and eight into the ring; the next one is unmapped.
    PANICS.set(true);
    catch_unwind(AssertUnwindSafe(|| batch.put())).unwrap_err();
    assert_eq!(batch.len(), 0);
    let home: BTreeSet<Pfn> = (0..16).map(|_| owner.alloc().unwrap()).collect();
    assert_eq!(home.len(), 16);
}

#[test]
fn a_panic_at_a_page_of_another_node_leaves_one_owner() {
    let pages = boot_nodes(4, 2);
    let run_on = |cpu| pages.machine().0.run_on(CpuId(cpu));
    let mut owner = mapped(&pages, 1024);
    let pool = owner.handle();
    run_on(0);
    let near: Vec<Pfn> = (0..64).map(|_| owner.alloc().unwrap()).collect();
    run_on(3);
    let far: Vec<Pfn> = (0..64).map(|_| owner.alloc().unwrap()).collect();
    run_on(1);
    for pfn in [near[0], far[0]] {
        // SAFETY: the tests have one thread and put each page once.
        unsafe { pool.put(pfn) }.unwrap();
    }
    run_on(0);
    PANICS.set(true);
    catch_unwind(AssertUnwindSafe(|| owner.alloc())).unwrap_err();
    let one = owner.alloc().unwrap();
    let mut batch = pool.batch();
    assert_eq!(owner.fill_batch(&mut batch, 1), Ok(1));
    assert!(!batch.pages().contains(&one), "two owners");
}

#[test]
fn a_batch_is_synchronised_once() {
    let pages = boot(2);
    let mut owner = mapped(&pages, 1024);
    let mut slots = [None; 180];
    assert_eq!(owner.alloc_bulk(&mut slots), 180);
    let mut batch = owner.pool().batch();
    assert_eq!(owner.fill_batch(&mut batch, 64), Ok(64));
    // SAFETY: the tests have one thread and put each page once.
    unsafe { owner.put_bulk(&mut slots[..100]) }.unwrap();
    assert!(CACHE_PAGES as u64 - owner.pool().stats().pages_cached < 64);
    SYNCED.set(0);
    owner.put_batch(&mut batch).unwrap();
    assert_eq!(SYNCED.get(), 64);
}
