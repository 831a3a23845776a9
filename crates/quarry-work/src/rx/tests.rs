//! The model against counts that follow by hand from its parameters.

use quarry_core::era::Era;

use super::*;

fn driver(name: &str) -> &'static RxDriver {
    RxDriver::named(name).unwrap()
}

/// One ring, one stream that is read whenever GRO delivers: what is in flight never swings by more
/// than a poll and a delivery.
fn smooth(name: &str) -> RxSpec {
    RxSpec {
        cpus: 2,
        streams: 1,
        backlog: 1,
        packets: ROUNDS,
        ..RxSpec::new(driver(name), 1)
    }
}

/// Whole batches of 31, and every work entry twice: with two packets in a page, all entries get a new
/// page in one round and use its rest in the next.
const ROUNDS: u64 = 31 * 2 * 1024;

fn counts(spec: &RxSpec) -> RxReport {
    run(spec, &|_| ()).unwrap()
}

/// 64 allocations and at most 90 frees between them stay within the 155 pages that are left after a
/// drain at 186: the lists never overflow, and once they have filled they never run empty.
#[test]
fn on_one_cpu_the_zone_lock_is_not_taken() {
    for driver in &DRIVERS {
        let name = driver.name;
        let spec = RxSpec {
            consumer: Consumer::Same,
            ..smooth(name)
        };
        let report = counts(&spec);
        assert_eq!((report.pcp_batch, report.pcp_high), (31, 186));
        assert_eq!(report.pages.zone_locks, 0, "{name}: {:?}", report.pages);
        assert_eq!(report.zone_lock_cpus, 0);
    }
}

/// Allocated here and freed there: a refill for every 31 pages and a drain for every 31.
#[test]
fn on_two_cpus_a_page_costs_two_31sts_of_a_lock() {
    let other = |name| RxSpec {
        consumer: Consumer::Other,
        ..smooth(name)
    };
    let none = counts(&other("none"));
    assert_eq!(none.packets, ROUNDS);
    assert_eq!(none.pages.allocs, none.packets);
    assert_eq!(none.pages.pcp_refills, ROUNDS / 31);
    // Frees come in bursts of 45, so a burst more or less may fall into what is counted.
    assert!(
        none.pages.pcp_drains.abs_diff(ROUNDS / 31) <= 2,
        "{:?}",
        none.pages
    );
    assert_eq!(none.pages.pcp_refilled, 31 * none.pages.pcp_refills);
    assert_eq!(none.pages.pcp_drained, 31 * none.pages.pcp_drains);
    assert_eq!(
        none.pages.zone_locks,
        none.pages.pcp_refills + none.pages.pcp_drains
    );
    assert_eq!(none.zone_lock_cpus, 2);
    let small = counts(&other("small"));
    assert_eq!(small.recycling.page_reuse * 2, small.packets);
    assert_eq!(small.pages.allocs * 2, small.packets);
    assert!(
        small.pages.zone_locks.abs_diff(ROUNDS / 31) <= 2,
        "half of it: {:?}",
        small.pages
    );
}

/// Every page comes home before its turn in a ring that is large enough. So after the warm-up the
/// page allocator is not called at all.
#[test]
fn a_huge_cache_needs_no_page_allocator() {
    for consumer in [Consumer::Same, Consumer::Other] {
        let report = counts(&RxSpec {
            consumer,
            ..smooth("huge")
        });
        assert_eq!(report.pages, PageCounts::default());
        assert_eq!(report.recycling.cache_reuse, report.packets);
        assert_eq!(report.at_rate.ns_per_zone_block, None);
    }
}

/// Readers fill the pool's ring, the driver takes 64 at a time from it: neither on one CPU nor on two
/// is the page allocator called.
#[test]
fn a_pool_needs_no_page_allocator() {
    for consumer in [Consumer::Same, Consumer::Other] {
        let report = counts(&RxSpec {
            consumer,
            ..smooth("pool")
        });
        assert_eq!(report.pages, PageCounts::default());
        let recycling = report.recycling;
        assert_eq!(recycling.pool_fast + recycling.pool_refill, report.packets);
        assert_eq!(recycling.pool_slow, 0);
        assert!(
            recycling.pool_refill >= report.packets / 64,
            "{recycling:?}"
        );
        assert!(recycling.pool_ring.abs_diff(report.packets) <= 45);
        assert_eq!(recycling.pool_ring_full, 0);
        assert_eq!(report.recycled, report.packets);
    }
}

/// 128 streams hold more packets than a ring of 255 pages covers: most oldest pages are in use.
#[test]
fn a_small_cache_is_blocked_by_its_head() {
    let spec = RxSpec {
        packets: 100_000,
        consumer: Consumer::Spread,
        ..RxSpec::new(driver("shipped"), 2)
    };
    let report = counts(&spec);
    let recycling = report.recycling;
    assert!(report.waiting_max > 2 * 255);
    assert!(
        recycling.cache_busy > recycling.cache_reuse,
        "{recycling:?}"
    );
    assert_eq!(recycling.buffers, report.packets);
    let gets = recycling.cache_reuse + recycling.cache_busy + recycling.cache_empty;
    assert_eq!(gets, recycling.buffers - recycling.page_reuse);
    assert_eq!(
        report.pages.allocs,
        recycling.cache_busy + recycling.cache_empty
    );
    assert_eq!(recycling.cache_waive, 0);
}

/// Blocks of order 2 pass 4.13's per-CPU lists: two acquisitions for each packet. 6.1's lists hold
/// them, so that 15 come at a time; but a reader's CPU only frees, and once its lists have overflowed,
/// each larger block that it frees empties them.
#[test]
fn jumbo_frames_take_the_lock_for_every_block() {
    let spec = RxSpec {
        mtu: 9000,
        consumer: Consumer::Same,
        ..smooth("none")
    };
    let old = counts(&spec);
    assert_eq!((old.page_order, old.gro_packets), (2, 7));
    assert_eq!(old.pages.direct_allocs, old.packets);
    assert_eq!(
        old.pages.zone_locks,
        old.pages.direct_allocs + old.pages.direct_frees
    );
    assert_eq!(old.pages.zone_blocks(), old.pages.zone_locks);
    let new = counts(&RxSpec {
        era: Era::V6_1,
        ..spec
    });
    assert_eq!(new.pages.direct_allocs, 0);
    let apart = counts(&RxSpec {
        era: Era::V6_1,
        consumer: Consumer::Other,
        mtu: 9000,
        packets: 15 * 2048,
        ..smooth("none")
    });
    assert_eq!(apart.pages.pcp_refills * 15, apart.packets);
    assert!(apart.pages.pcp_drains.abs_diff(apart.packets) <= 7);
    assert_eq!(apart.pages.pcp_drained, apart.pages.pcp_drains);
}

/// One stream on a ring of 1024 entries, so that all that waits goes to the pool's ring of 1024 slots
/// at once: 945 pages find room, 1035 do not.
#[test]
fn a_pool_s_ring_overflows_if_more_comes_back_than_it_has_slots() {
    for (deliveries, overflows) in [(21, false), (23, true)] {
        let report = counts(&RxSpec {
            consumer: Consumer::Other,
            backlog: deliveries * 45,
            ..smooth("pool")
        });
        assert_eq!(report.recycling.pool_ring_full > 0, overflows);
        assert_eq!(report.pages.allocs > 0, overflows, "{report:?}");
    }
}

/// No page is to be had: each refill asks for one and finds none.
#[test]
fn refills_that_find_nothing_count() {
    let report = counts(&RxSpec {
        memory_bytes: 256 << 12,
        packets: 64 * 100,
        ..smooth("pool")
    });
    assert_eq!(report.pages.allocs, 0, "{report:?}");
    assert!(report.pages.pcp_refills > 0, "{report:?}");
    assert!(report.pages.zone_locks >= report.pages.pcp_refills);
}

#[test]
fn larger_pages_hold_more_packets() {
    let spec = RxSpec {
        page_bytes: 65536,
        consumer: Consumer::Other,
        packets: 34 * 10_000,
        ..smooth("small")
    };
    let report = counts(&spec);
    assert_eq!(report.packets_per_page, 34);
    let pages = report.packets / 34;
    assert!(
        report.pages.allocs.abs_diff(pages) <= 1024,
        "{:?}",
        report.pages
    );
}

/// Two rings want 2048 pages of a machine that has 1500: what is not posted is dropped, and in the
/// end all pages are back (or `run` would fail).
#[test]
fn without_pages_packets_are_dropped() {
    for driver in &DRIVERS {
        let spec = RxSpec {
            driver,
            memory_bytes: 1500 << 12,
            consumer: Consumer::Spread,
            streams: 64,
            packets: 50_000,
            ..RxSpec::new(driver, 2)
        };
        let report = counts(&spec);
        assert!(report.alloc_failures > 0, "{report:?}");
        assert!(report.dropped > 0, "{report:?}");
        assert!(report.dropped < report.packets);
        let posted = report.recycling.buffers;
        assert!(posted.abs_diff(report.packets - report.dropped) <= 2 * 1024);
    }
}

#[test]
fn heads_of_merged_packets_stay_with_the_ring() {
    let spec = RxSpec {
        consumer: Consumer::Other,
        ..smooth("none")
    };
    let old = counts(&spec);
    assert_eq!(old.heads.slab_allocs, old.packets);
    assert_eq!(old.heads.recycled, 0);
    // One head in 45 goes to the reader with the pages of all.
    assert!(old.heads.cross_cpu_frees.abs_diff(old.packets / 45) <= 1);
    let new = counts(&RxSpec {
        era: Era::V6_18,
        ..spec
    });
    assert!(
        new.heads.recycled > new.heads.slab_allocs,
        "{:?}",
        new.heads
    );
}

#[test]
fn the_same_seed_repeats() {
    let spec = RxSpec {
        packets: 100_000,
        consumer: Consumer::Same,
        ..RxSpec::new(driver("none"), 3)
    };
    let first = counts(&spec);
    assert_eq!(first, counts(&spec));
    let other = counts(&RxSpec { seed: 2, ..spec });
    assert_ne!(first.pages, other.pages);
}

/// Each era runs to its end with every driver, and all pages come back.
#[test]
fn all_eras_and_drivers() {
    let axes = RxAxes {
        drivers: DRIVERS
            .iter()
            .map(|driver| driver.name.to_string())
            .collect(),
        eras: Era::REFERENCE.to_vec(),
        page_bytes: vec![4096, 65536],
        rings: vec![1, 3],
    };
    let base = RxSpec {
        cpus: 4,
        streams: 16,
        packets: 3000,
        descriptors: 128,
        ..RxSpec::new(driver("none"), 1)
    };
    let runs = axes.runs(&base).unwrap();
    assert_eq!(runs.len(), DRIVERS.len() * Era::REFERENCE.len() * 4);
    for spec in &runs {
        let report = counts(spec);
        assert_eq!(report.dropped, 0, "{}", spec.label());
        assert!(report.packets >= spec.packets);
    }
}

/// Receivers of any shape, some with too little memory: every page comes back (or `run` would fail),
/// and every buffer that was posted is accounted for.
#[test]
fn random_receivers_account_for_every_page() {
    let mut rng = quarry_sim::Rng::new(7);
    let mut dropped = 0;
    for case in 0..60 {
        let mut pick = |bound: u64| rng.below(bound) as u32;
        let rings = 1 + pick(4);
        let spec = RxSpec {
            era: Era::REFERENCE[pick(8) as usize],
            cpus: rings + 1 + pick(4),
            page_bytes: [4096, 16384, 65536][pick(3) as usize],
            memory_bytes: (64 + u64::from(pick(4000))) << 16,
            mtu: [68, 576, 1500, 4000, 9000][pick(5) as usize],
            streams: rings + pick(40),
            consumer: Consumer::ALL[pick(3) as usize].0,
            backlog: 1 + pick(200),
            descriptors: 1 + pick(300),
            cache_entries: 2 << pick(10),
            packets: 5000,
            seed: u64::from(pick(1000)),
            ..RxSpec::new(&DRIVERS[pick(DRIVERS.len() as u64) as usize], rings)
        };
        let report = counts(&spec);
        let (pages, got) = (report.pages, report.recycling);
        let context = || format!("case {case}: {report:?}");
        if spec.driver.source == Source::Pool {
            let given = got.pool_fast + got.pool_refill + got.pool_slow;
            assert_eq!(got.buffers, given, "{}", context());
            assert!(pages.allocs >= got.pool_slow, "{}", context());
        } else {
            let reused = got.page_reuse + got.cache_reuse;
            assert_eq!(got.buffers, reused + pages.allocs, "{}", context());
        }
        assert!(report.dropped <= report.packets, "{}", context());
        dropped += report.dropped;
    }
    assert!(dropped > 0, "some machines were too small");
}

#[test]
fn what_cannot_be_is_refused() {
    let base = RxSpec::new(driver("huge"), 4);
    let cases: [(RxSpec, &str); 17] = [
        (
            RxSpec {
                rings: 0,
                ..base.clone()
            },
            "0 rings",
        ),
        (
            RxSpec {
                rings: 25,
                ..base.clone()
            },
            "25 rings on 24 CPUs",
        ),
        (
            RxSpec {
                cpus: 0,
                ..base.clone()
            },
            "0 CPUs",
        ),
        (
            RxSpec {
                cpus: 4,
                consumer: Consumer::Other,
                ..base.clone()
            },
            "none without a ring",
        ),
        (
            RxSpec {
                streams: 3,
                ..base.clone()
            },
            "3 streams for 4 rings",
        ),
        (
            RxSpec {
                page_bytes: 8192,
                ..base.clone()
            },
            "page size 8192",
        ),
        (
            RxSpec {
                mtu: 67,
                ..base.clone()
            },
            "MTU 67",
        ),
        (
            RxSpec {
                mtu: 65536,
                ..base.clone()
            },
            "MTU 65536",
        ),
        (
            RxSpec {
                backlog: 0,
                ..base.clone()
            },
            "backlog of 0",
        ),
        (
            RxSpec {
                descriptors: 0,
                ..base.clone()
            },
            "0 descriptors",
        ),
        (
            RxSpec {
                cache_entries: 100,
                ..base.clone()
            },
            "100 cache entries",
        ),
        (
            RxSpec {
                packets: 0,
                ..base.clone()
            },
            "0 packets: ask for 1 to 1000000000000",
        ),
        (
            RxSpec {
                packets: PACKETS_MAX + 1,
                ..base.clone()
            },
            "1000000000001 packets: ask for 1 to 1000000000000",
        ),
        (
            RxSpec {
                packets: PACKETS_MAX - base.warm_up_packets() + 1,
                ..base.clone()
            },
            "999999929857 packets after 70144 that fill sockets and rings, which are not counted: a \
             run has at most 1000000000000 in all; ask for 1 to 999999929856",
        ),
        (
            RxSpec {
                packets: 1,
                streams: 1 << 20,
                backlog: 1 << 20,
                ..base.clone()
            },
            "1 packets after 4398235271168 that fill sockets and rings, which are not counted: a \
             run has at most 1000000000000 in all; ask for fewer streams or a smaller backlog",
        ),
        (
            RxSpec {
                memory_bytes: 4095,
                ..base.clone()
            },
            "1 to 2^31 pages; give it 4k to 8T",
        ),
        (
            RxSpec {
                memory_bytes: (65536 << 31) + 65536,
                page_bytes: 65536,
                ..base.clone()
            },
            "1 to 2^31 pages; give it 64k to 128T",
        ),
    ];
    for (spec, part) in cases {
        let error = run(&spec, &|_| ()).unwrap_err();
        assert!(matches!(error, WorkError::Usage(_)));
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
    assert!(
        RxSpec {
            consumer: Consumer::Same,
            cpus: 4,
            ..base.clone()
        }
        .check()
        .is_ok()
    );
    assert!(
        RxSpec {
            packets: PACKETS_MAX - base.warm_up_packets(),
            ..base
        }
        .check()
        .is_ok()
    );
    let axes = RxAxes {
        drivers: vec!["fast".to_string()],
        eras: vec![Era::V4_13],
        page_bytes: vec![4096],
        rings: vec![1],
    };
    let error = axes.runs(&RxSpec::new(driver("none"), 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no driver \"fast\"; drivers are small, none, huge, pool, shipped"
    );
}

#[test]
fn the_thread_s_arithmetic() {
    let spec = RxSpec::new(driver("none"), 8);
    assert_eq!((spec.payload_bytes(), spec.frame_bytes()), (1448, 1514));
    assert_eq!(spec.gro_packets(), 45);
    let pages = PageCounts {
        zone_locks: 2,
        pcp_refilled: 31,
        pcp_drained: 31,
        ..PageCounts::default()
    };
    let rate = AtRate::of(&spec, 31, &pages);
    assert_eq!((rate.packets_per_second / 1e4).round(), 813.0);
    assert_eq!((rate.zone_locks_per_second / 1e3).round(), 524.0);
    assert_eq!(rate.ns_per_zone_block.map(f64::round), Some(62.0));
    let one = AtRate::of(&RxSpec { rings: 1, ..spec }, 31, &pages);
    assert_eq!((one.packets_per_second / 1e3).round(), 2056.0);
}

/// The page allocator's own wake-ups of other CPUs, to drain their lists, are no readers'.
#[test]
fn readers_are_counted_alone() {
    let spec = RxSpec {
        consumer: Consumer::Same,
        era: Era::V5_15,
        memory_bytes: 4 << 20,
        ..RxSpec::new(driver("none"), 2)
    };
    let report = counts(&spec);
    assert!(report.alloc_failures > 0, "memory was short: {report:?}");
    assert_eq!(report.readers.remote_wakes, 0);
    assert!(report.readers.reads > 0);
}

/// The reader wakes once a poll, takes all that there is in one call, and copies the user data.
#[test]
fn readers_copy_what_they_read() {
    for (consumer, wakes) in [(Consumer::Other, 1), (Consumer::Same, 0)] {
        let spec = RxSpec {
            consumer,
            ..smooth("none")
        };
        let readers = counts(&spec).readers;
        assert_eq!(readers.remote_wakes, readers.reads * wakes);
        assert_eq!(readers.reads, spec.packets / u64::from(NAPI_BUDGET));
        let packets = readers.copied_bytes / u64::from(spec.payload_bytes());
        assert!(packets.abs_diff(spec.packets) <= u64::from(spec.gro_packets()));
    }
}
