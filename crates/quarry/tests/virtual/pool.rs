//! Page pools: where pages go, what is counted, what is refused.

mod mapping;
mod pieces;

use crate::model::scenario::end_pool as end;
use crate::prelude::*;
use quarry_core::pool::{PieceError, PoolCreateError, PoolStats};

const REFILL: u64 = REFILL_PAGES as u64;

fn boot(cpus: u32, nodes: u32, era: Era) -> Pages {
    boot_pages(era, Setup::of_pages(1 << 14).on(cpus, nodes))
}

fn small(name: &str, pool_size: u32) -> PoolParams<'_> {
    PoolParams {
        name,
        pool_size,
        ..PoolParams::default()
    }
}

#[test]
fn a_bulk_put_leaves_what_is_refused() {
    let pages = boot(1, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &small("rx", 100)).unwrap();
    let mut other = PoolOwner::create(&pages, Era::V6_18, &small("tx", 100)).unwrap();
    let pool = owner.handle();
    for by_owner in [false, true] {
        let [mine, shared] = [(); 2].map(|()| owner.alloc().unwrap());
        let [theirs, plain] = [other.alloc().unwrap(), pages.alloc(0, None).unwrap()];
        pages.get_number(shared).unwrap();
        let mut slots = [
            Some(theirs),
            Some(mine),
            None,
            Some(mine),
            Some(shared),
            Some(plain),
        ];
        let put = if by_owner {
            owner.lone_put_bulk(&mut slots)
        } else {
            pool.lone_put_bulk(&mut slots)
        };
        assert_eq!(put, Err(PoolError::NotOfPool(theirs)));
        let left = [Some(theirs), None, None, Some(mine), None, Some(plain)];
        assert_eq!(slots, left);
        assert_eq!(pool.state_of(mine), PoolState::InPool);
        assert_eq!(pool.stats().pages_ring, 1, "of the first round");
        assert_eq!(pool.state_of(shared), PoolState::Outside);
        assert_eq!(pages.put_number(shared), Ok(true));
        assert_eq!(pages.free_number(plain, 0), Ok(()));
        other.lone_put(theirs).unwrap();
    }
    assert_eq!(pool.stats().released_refcnt, 2);
    drop(pool);
    owner.destroy().unwrap();
    other.destroy().unwrap();
    check_empty(&pages);
}

#[test]
fn a_page_goes_round() {
    let pages = boot(2, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let pool = owner.handle();
    let first = owner.alloc().unwrap();
    let expected = PoolStats {
        slow: 1,
        empty: 1,
        pages_cached: REFILL - 1,
        inflight: 1,
        ..PoolStats::default()
    };
    assert_eq!(pool.stats(), expected);
    let got: Vec<Pfn> = (1..REFILL).map(|_| owner.alloc().unwrap()).collect();
    assert_eq!(pool.stats().fast, REFILL - 1);
    pages.machine().run_on(CpuId(1));
    for &pfn in &got {
        assert_eq!(pool.lone_put(pfn), Ok(Put::Ring));
        assert_eq!(pool.state_of(pfn), PoolState::InPool);
    }
    pages.machine().run_on(CpuId(0));
    assert_eq!(owner.lone_put(first), Ok(Put::Cached));
    assert_eq!(owner.alloc(), Some(first), "the newest comes first");
    let again = owner.alloc().unwrap();
    assert!(got.contains(&again));
    let stats = pool.stats();
    assert_eq!((stats.ring, stats.cached, stats.refill), (REFILL - 1, 1, 1));
    assert_eq!((stats.pages_ring, stats.inflight), (0, 2));
    assert_eq!(stats.pages_cached, REFILL - 2);
    for pfn in [first, again] {
        owner.lone_put(pfn).unwrap();
    }
    end(owner, pool);
}

#[test]
fn a_bulk_call_counts_each_page() {
    let pages = boot(1, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &small("rx", 100)).unwrap();
    let pool = owner.handle();
    let mut slots = [None; 200];
    let site = CallSite::code(0x1234);
    assert_eq!(owner.alloc_bulk_at(&mut slots, site), 200);
    assert_eq!(owner.alloc_bulk(&mut slots), 200, "nothing was missing");
    let stats = pool.stats();
    assert_eq!((stats.slow, stats.empty, stats.fast), (4, 4, 196));
    assert_eq!((stats.inflight, stats.pages_cached), (200, 56));
    let report = pool.in_flight_report();
    let [holder] = report.holders() else {
        panic!("{report}")
    };
    assert_eq!((holder.site, holder.pages), (site, 200));
    let debug = format!("{report:?}");
    assert_eq!(debug.matches("Holder {").count(), 1, "{debug}");
    assert_eq!(holder.age_max, 199);
    // The ring has room for 100, the alloc cache for 72 more.
    assert_eq!(pool.lone_put_bulk(&mut slots[..110]), Ok(()));
    assert_eq!(owner.lone_put_bulk(&mut slots[110..]), Ok(()));
    assert_eq!(slots, [None; 200]);
    let stats = pool.stats();
    assert_eq!((stats.ring, stats.cached, stats.cache_full), (100, 72, 18));
    assert_eq!((stats.ring_full, stats.inflight), (10 + 18, 0));
    assert_eq!((stats.pages_ring, stats.pages_cached), (100, 128));
    // An alloc cache of 128, a refill of 64.
    assert_eq!(owner.alloc_bulk(&mut slots[..150]), 150);
    let stats = pool.stats();
    assert_eq!((stats.refill, stats.pages_cached), (1, 42));
    assert_eq!(owner.lone_put_bulk(&mut slots), Ok(()));
    end(owner, pool);
}

#[test]
fn eras_differ_in_bulk_ring_and_pieces() {
    let pages = boot(1, 1, Era::V5_9);
    for era in each(Era::REFERENCE) {
        let mut owner = PoolOwner::create(&pages, era, &PoolParams::default()).unwrap();
        let pfn = owner.alloc().unwrap();
        let bulk = era >= Era::V6_1;
        let left = if bulk { REFILL - 1 } else { 0 };
        assert_eq!(owner.pool().stats().pages_cached, left);
        assert_eq!(owner.alloc_piece(100).is_ok(), bulk);
        if !bulk {
            assert_eq!(owner.alloc_piece(100), Err(PieceError::Era));
        }
        owner.lone_put(pfn).unwrap();
        drop(owner);
        let ring = |pool_size| {
            let made = PoolOwner::create(&pages, era, &small("ring", pool_size));
            made.map(|owner| owner.pool().ring_size())
        };
        assert_eq!(ring(1024), Ok(1024));
        assert_eq!(ring(0), Ok(1024));
        if era >= Era::V6_18 {
            assert_eq!(ring(20_000), Ok(16_384));
        } else {
            assert_eq!(ring(32_768), Ok(32_768));
            let limit = 32_768;
            let refused = PoolCreateError::PoolSize {
                pool_size: 32_769,
                limit,
            };
            assert_eq!(ring(32_769), Err(refused));
        }
    }
}

#[test]
fn higher_orders_come_one_by_one() {
    let pages = boot(1, 1, Era::V6_18);
    let params = PoolParams {
        order: 2,
        ..PoolParams::default()
    };
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &params).unwrap();
    let got: Vec<Pfn> = (0..3).map(|_| owner.alloc().unwrap()).collect();
    let stats = owner.pool().stats();
    assert_eq!((stats.slow_high_order, stats.slow), (3, 0));
    assert_eq!(pages.check_consistency().unwrap().pool, 12);
    let inside = Pfn(got[0].0 + 1);
    assert_eq!(owner.lone_put(inside), Err(PoolError::NotOfPool(inside)));
    for pfn in got {
        assert_eq!(owner.lone_put(pfn), Ok(Put::Cached));
    }
    end(owner, ());
}

#[test]
fn the_last_reference_is_the_pools() {
    let pages = boot(1, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let pool = owner.handle();
    let pfn = owner.alloc().unwrap();
    pages.get_number(pfn).unwrap();
    assert_eq!(pages.put_number(pfn), Ok(false));
    let last = Err(PageError::NotAllocated(pfn, PageKind::Pool));
    assert_eq!(
        pages.put_number(pfn),
        last,
        "the last reference is the pool's"
    );
    assert_eq!(pages.free_number(pfn, 0), last.map(drop));
    assert_eq!(pool.lone_put(pfn), Ok(Put::Ring));
    end(owner, pool);
}

#[test]
fn what_is_not_in_flight_is_refused() {
    let pages = boot(1, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let mut other = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let pool = owner.handle();
    let pfn = owner.alloc().unwrap();
    let others = other.alloc().unwrap();
    let plain = pages.alloc(0, None).unwrap();
    let before = pool.stats();
    let refused = |pfn, error| {
        assert_eq!(pool.lone_put(pfn), Err(error));
        assert_eq!(pool.lone_put_piece(pfn, 0), Err(error));
    };
    refused(others, PoolError::NotOfPool(others));
    refused(plain, PoolError::NotOfPool(plain));
    refused(Pfn(u32::MAX), PoolError::Foreign(Pfn(u32::MAX)));
    assert_eq!(pool.lone_put_piece(pfn, 0), Err(PoolError::Whole(pfn)));
    assert_eq!(pool.stats(), before);
    assert_eq!(pool.lone_put(pfn), Ok(Put::Ring));
    refused(pfn, PoolError::NotInFlight(pfn));
    let pfn = owner.alloc().unwrap();
    assert_eq!(owner.lone_put(pfn), Ok(Put::Cached));
    assert_eq!(owner.lone_put(pfn), Err(PoolError::NotInFlight(pfn)));
    refused(pfn, PoolError::NotInFlight(pfn));
    other.lone_put(others).unwrap();
    pages.free_number(plain, 0).unwrap();
    drop(pool);
    owner.destroy().unwrap();
    other.destroy().unwrap();
    check_empty(&pages);
}

#[test]
fn a_pool_that_cannot_go_says_who_has_its_pages() {
    let pages = boot(4, 1, Era::V6_18);
    let params = small("rx0", 64);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &params).unwrap();
    let pool = owner.handle();
    let before = pages.overhead_bytes();
    pages.machine().run_on(CpuId(2));
    let line = line!() + 1;
    let old: Vec<Pfn> = (0..3).map(|_| owner.alloc().unwrap()).collect();
    pages.machine().run_on(CpuId(3));
    let new = owner.alloc_at(CallSite::code(0x1234)).unwrap();
    let piece = owner.alloc_piece_at(100, CallSite::code(0x5678)).unwrap();
    let mut pending = owner.destroy().unwrap_err();
    let report = pending.report();
    assert_eq!((report.pages, report.others), (5, 0));
    let [first, second, third] = report.holders() else {
        panic!("{report}")
    };
    let location = first.site.location().unwrap();
    assert_eq!((location.file(), location.line()), (file!(), line));
    assert_eq!((first.cpu, first.pages, first.age_max), (CpuId(2), 3, 4));
    assert_eq!(second.site.address(), Some(0x1234));
    assert_eq!((second.cpu, second.pages, second.age_max), (CpuId(3), 1, 1));
    assert_eq!((third.site.address(), third.age_max), (Some(0x5678), 0));
    let text = pending.to_string();
    assert!(text.starts_with("page pool rx0 was destroyed with 5 pages in flight\n  3 allocated"));
    assert!(text.contains(&format!("virtual/pool.rs:{line}:")), "{text}");
    for &pfn in &old {
        pending = pending.finish().unwrap_err();
        assert_eq!(pool.lone_put(pfn), Ok(Put::Released));
    }
    assert_eq!(
        pool.lone_put(old[0]),
        Err(PoolError::NotOfPool(old[0])),
        "after destroy, too"
    );
    assert_eq!(pool.lone_put(new), Ok(Put::Released));
    assert_eq!(
        pool.lone_put_piece(piece.pfn, piece.offset),
        Ok(Put::Released)
    );
    assert_eq!(pending.pool().stats().inflight, 0);
    pending.finish().unwrap();
    assert_eq!(pool.name(), "rx0", "the handle keeps it");
    drop(pool);
    check_empty(&pages);
    // The structures are used again.
    for _ in 0..10 {
        PoolOwner::create(&pages, Era::V6_18, &params).unwrap();
    }
    assert_eq!(pages.overhead_bytes(), before);
}

#[test]
fn many_holders_are_counted() {
    let pages = boot(1, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let got: Vec<Pfn> = (1..=300)
        .map(|site| owner.alloc_at(CallSite::code(site)).unwrap())
        .collect();
    let report = owner.pool().in_flight_report();
    assert_eq!((report.pages, report.holders().len()), (300, 64));
    assert_eq!(report.others, 300 - 64);
    assert!(
        report.to_string().ends_with("\n  284 by others"),
        "{report}"
    );
    for pfn in got {
        owner.lone_put(pfn).unwrap();
    }
    end(owner, ());
}

#[test]
fn a_pool_lives_on_the_last_pages_of_memory() {
    for era in [Era::V5_9, Era::V6_18] {
        let pages = boot_pages(era, Setup::of_pages(100));
        let mut owner = PoolOwner::create(&pages, era, &small("all", 50)).unwrap();
        for _ in each(0..3) {
            let got: Vec<Pfn> = std::iter::from_fn(|| owner.alloc()).collect();
            assert_eq!(got.len(), 100);
            assert_eq!(owner.pool().stats().inflight, 100);
            for (i, pfn) in got.into_iter().enumerate() {
                if i % 2 == 0 {
                    owner.pool().lone_put(pfn).unwrap();
                } else {
                    owner.lone_put(pfn).unwrap();
                }
            }
        }
        end(owner, ());
    }
}

#[test]
fn bad_parameters_are_refused() {
    let pages = configured_pages(
        Setup::of_pages(1 << 14).on(2, 2),
        &PageConfig {
            max_order: 8,
            ..PageConfig::new(Era::V6_18)
        },
    );
    let create = |params: PoolParams<'_>| {
        let owner = PoolOwner::create(&pages, Era::V6_18, &params);
        owner.map(drop).unwrap_err()
    };
    let order = PoolParams {
        order: 9,
        ..PoolParams::default()
    };
    let refused = PoolCreateError::Order { order: 9, limit: 8 };
    assert_eq!(create(order), refused);
    let said = "order is 9: the largest is 8";
    assert_eq!(refused.to_string(), said);
    let node = PoolParams {
        node: Some(NodeId(2)),
        ..PoolParams::default()
    };
    assert_eq!(create(node), PoolCreateError::Node(NodeId(2)));
    assert!(create(node).to_string().contains("no node 2"));
    let name = PoolParams {
        name: "a name of more than sixteen bytes",
        ..PoolParams::default()
    };
    let owner = PoolOwner::create(&pages, Era::V6_18, &name).unwrap();
    assert_eq!(owner.pool().name(), "a name of more t");
}
