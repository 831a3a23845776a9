use std::cell::Cell;

use super::super::CacheLevel;
use super::super::costs::LastLevel;
use super::*;

const fn level(lines: u64, hit: u64) -> CacheLevel {
    CacheLevel {
        bytes: lines * 64,
        ways: 2,
        hit,
    }
}

/// Figures that show in sums which costs they are made of.
pub(crate) const COSTS: LineCosts = LineCosts {
    l1: level(4, 1),
    l2: Some(level(16, 4)),
    llc: Some(LastLevel {
        level: level(64, 11),
        inclusive: false,
        hashed: false,
    }),
    clean: [15, 40, 80],
    transfer: [20, 50, 100],
    upgrade: [30, 70, 150],
    memory: [90, 130],
    atomic: 5,
    misses: 10,
    window: 0,
    bus: 0,
    cluster_cpus: 2,
    socket_cpus: 4,
};

fn lines() -> Lines {
    Lines::new(8, 64, COSTS)
}

#[test]
fn an_access_costs_what_the_distance_costs() {
    let lines = lines();
    // From memory, then at hand.
    assert_eq!(lines.read(0, 7, 0), 90);
    assert_eq!(lines.write(0, 7, 100), 101);
    // From the neighbour, the same socket, the other socket.
    assert_eq!(lines.write(1, 7, 200), 220);
    assert_eq!(lines.write(2, 7, 300), 350);
    assert_eq!(lines.write(4, 7, 400), 500);
    assert_eq!(lines.atomic(4, 7, 600), 606);
}

#[test]
fn a_request_that_has_come_to_the_owner_takes_the_way_back_alone() {
    let lines = lines();
    lines.write(0, 7, 0);
    // A transfer of 100, then a copy of 15 that the cache of CPU 5's cluster does not have.
    assert_eq!(lines.read_asked(4, 7, 50, 1000), 1050);
    assert_eq!(lines.read_asked(5, 7, 7, 2000), 2008);
    lines.write(0, 8, 3000);
    assert_eq!(lines.read_asked(4, 8, 80, 4000), 4050, "half at most");
}

#[test]
fn a_shared_line_is_read_near_and_written_dear() {
    let lines = lines();
    lines.write(0, 7, 0);
    assert_eq!(lines.read(4, 7, 1000), 1100);
    assert_eq!(lines.read(5, 7, 2000), 2015, "from CPU 4, not from CPU 0");
    assert_eq!(lines.write(5, 7, 3000), 3150, "CPU 0 is the farthest");
    assert_eq!(lines.read(0, 7, 4000), 4100, "it was taken away");
}

#[test]
fn transfers_of_a_line_wait_for_each_other() {
    let lines = lines();
    lines.write(0, 7, 0);
    let ends: Vec<u64> = [1, 2, 4].map(|cpu| lines.read(cpu, 7, 1000)).to_vec();
    // CPU 1's cache sends a copy to CPU 2, and 11 later one to CPU 4.
    assert_eq!(ends, [1020, 1060, 1111]);
    // Another line is not concerned.
    assert_eq!(lines.read(1, 8, 1000), 1090);
}

#[test]
fn lines_leave_caches_that_are_full_for_the_next_ones() {
    let lines = lines();
    let now_ps = Cell::new(0);
    let cost = |cpu, line| {
        now_ps.set(now_ps.get() + 1000);
        lines.read(cpu, line, now_ps.get()) - now_ps.get()
    };
    // Three lines of one set of the first cache, which has two sets of two.
    for line in [0, 2, 4] {
        assert_eq!(cost(0, line), 90);
    }
    assert_eq!((cost(0, 4), cost(0, 0), cost(0, 0)), (1, 4, 1));
    // Three of one set of the second, which has eight sets.
    for line in [8, 16] {
        assert_eq!(cost(0, line), 90);
    }
    assert_eq!(cost(0, 0), 11, "the cluster's cache has it");
    // Its neighbour shares the cache, the other socket is far from it.
    assert_eq!(cost(0, 8), 11);
    assert_eq!(lines.moves().memory, [5, 0]);
}

#[test]
fn lines_of_a_run_come_side_by_side_and_stores_do_not_wait_for_the_second_cache() {
    let lines = lines();
    // Three lines of one set of the first cache, which has two sets of two: line 0 is in the second one.
    let leave = || [0, 2, 4].map(|line| lines.write(0, line, 0));
    let get = |access, follows| {
        leave();
        let access = LineAccess {
            follows,
            ..LineAccess::new(0, 0, access)
        };
        lines.access(access, 1_000_000) - 1_000_000
    };
    let read = |follows| get(Access::Read, follows);
    assert_eq!((read(false), read(true)), (4, 0), "a tenth");
    let kinds = [Access::Store, Access::Write, Access::Atomic];
    assert_eq!(kinds.map(|access| get(access, false)), [1, 4, 9]);
}

#[test]
fn what_leaves_a_cache_that_has_all_leaves_the_cpus_too() {
    let llc = LastLevel {
        level: level(16, 11),
        inclusive: true,
        hashed: false,
    };
    let costs = LineCosts {
        llc: Some(llc),
        ..COSTS
    };
    let lines = Lines::new(8, 64, costs);
    // Three lines of one set of the last cache, which has eight sets of two.
    for (n, line) in [0, 8, 16].into_iter().enumerate() {
        let now_ps = n as u64 * 1000;
        assert_eq!(lines.read(0, line, now_ps), now_ps + 90);
    }
    assert_eq!(lines.read(0, 0, 5000), 5090, "gone with the last level's");
    assert_eq!(lines.read(1, 0, 6000), 6020, "CPU 0 may have changed it");
    assert_eq!(lines.read(1, 16, 7000), 7020);
    // Both have it now, so the cluster's cache serves it.
    lines.write(2, 0, 8000);
    lines.read(0, 0, 9000);
    assert_eq!(lines.read(1, 0, 10_000), 10_011);
}

#[test]
fn a_cache_that_has_all_keeps_what_its_cpu_wrote() {
    for inclusive in [true, false] {
        let mut costs = COSTS;
        costs.llc.as_mut().unwrap().inclusive = inclusive;
        let lines = Lines::new(8, 64, costs);
        let now_ps = Cell::new(0);
        let cost = |cpu, line, access| {
            now_ps.set(now_ps.get() + 1000);
            lines.access(LineAccess::new(cpu, line, access), now_ps.get()) - now_ps.get()
        };
        // Three lines of one set of the second cache, of different sets of the cluster's.
        for line in [0, 8, 16] {
            assert_eq!(cost(0, line, Access::Read), 90);
        }
        for _ in 0..2 {
            // From the cluster's, and no other CPU has it.
            assert_eq!(cost(0, 0, Access::Read), 11, "inclusive: {inclusive}");
            assert_eq!(cost(0, 0, Access::Write), 1);
            for line in [8, 16] {
                assert_eq!(cost(0, line, Access::Read), 11, "inclusive: {inclusive}");
            }
        }
        assert_eq!(cost(0, 0, Access::Read), 11);
        assert_eq!(cost(1, 0, Access::Read), 20, "CPU 0 may have changed it");
        assert_eq!(lines.moves().upgrades, [0; 3]);
    }
}

#[test]
fn a_line_that_only_another_clusters_cache_has_is_not_shared() {
    let lines = lines();
    // Three lines of one set of the second cache: the first one is in the cluster's cache alone.
    for (n, line) in [0, 8, 16].into_iter().enumerate() {
        lines.write(0, line, 1000 * n as u64);
    }
    assert_eq!(lines.write(2, 0, 9000), 9040, "as one that is read");
    assert_eq!(
        (lines.moves().clean, lines.moves().upgrades),
        ([0, 1, 0], [0; 3])
    );
    // With another cluster's it is.
    lines.read(4, 8, 10_000);
    assert_eq!(lines.write(2, 8, 11_000), 11_150);
}

#[test]
fn memory_of_another_node_is_farther_and_lines_of_a_run_overlap() {
    let lines = lines();
    let read = |line, local, follows, now_ps| {
        let access = LineAccess {
            local,
            follows,
            ..LineAccess::new(0, line, Access::Read)
        };
        lines.access(access, now_ps) - now_ps
    };
    assert_eq!(read(1, true, false, 0), 90);
    assert_eq!(read(2, false, false, 1000), 130);
    assert_eq!(read(3, true, true, 2000), 9, "a tenth");
    assert_eq!(read(3, true, false, 3000), 1, "at hand");
    assert_eq!(lines.moves().memory, [2, 1]);
}

#[test]
fn what_crosses_a_bus_keeps_it_busy() {
    let lines = Lines::new(8, 64, LineCosts { bus: 18, ..COSTS });
    let read = |cpu, line| lines.read(cpu, line, 0);
    // Two from memory by the same socket, then one by the other.
    assert_eq!([read(0, 1), read(1, 2), read(4, 3)], [90, 108, 90]);
    // Between clusters of a socket; within one no bus is crossed.
    assert_eq!(lines.read(2, 1, 1000), 1050);
    assert_eq!(
        lines.read(1, 3, 1000),
        1118,
        "both buses, and waits for one"
    );
    assert_eq!(lines.read(0, 2, 1000), 1020);
    assert_eq!(
        lines.read(5, 9, 1018),
        1126,
        "the other socket's was crossed"
    );
    // Two clusters of a socket have a line unchanged. The other socket's copy does not cross their bus.
    lines.read(0, 11, 2000);
    lines.read(2, 11, 3000);
    assert_eq!(lines.read(6, 11, 4000), 4080);
    assert_eq!(
        [lines.read(0, 12, 4000), lines.read(7, 13, 4000)],
        [4090, 4108]
    );
}
