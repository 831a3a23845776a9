use std::time::Duration;

use quarry_core::design::Design;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

use super::host::{HostSpec, run};
use super::{Change, Hackbench, Load, Tbench, TcpRr};
use crate::net::SendSizes;
use crate::world::Transport;
use quarry_designs::Tuning;

fn spec<D: Design>(load: Load) -> HostSpec {
    HostSpec {
        load,
        time: Duration::from_millis(30),
        era: D::DEFAULT_ERA,
        sizes: SendSizes::of(D::DEFAULT_ERA),
        tuning: Tuning::default(),
        changes: Vec::new(),
        page_bytes: 4096,
        memory_bytes: 1 << 30,
        seed: 1,
    }
}

const HACKBENCH: Hackbench = Hackbench {
    groups: 2,
    descriptors: 3,
    loops: 200,
    bytes: 100,
    transport: Transport::Unix,
};

/// Every load on a design; each run checks that no object is lost.
fn all<D: Design>() {
    for (transport, bytes) in [
        (Transport::Unix, 100),
        (Transport::Pipe, 100),
        (Transport::Unix, 200_000),
        (Transport::Pipe, 9000),
        (Transport::Datagram, 60_000),
    ] {
        let load = Load::Hackbench(Hackbench {
            transport,
            bytes,
            loops: if bytes > 1000 { 5 } else { 200 },
            ..HACKBENCH
        });
        let report = run::<D>(&spec::<D>(load)).unwrap();
        let expected = if bytes > 1000 { 90 } else { 3600 };
        assert_eq!((report.operations, report.threads), (expected, 12));
        assert!(transport == Transport::Pipe || report.caches.iter().any(|cache| cache.allocs > 0));
    }
    let report = run::<D>(&spec::<D>(Load::Tbench(Tbench { clients: 3 }))).unwrap();
    assert!(report.operations > 0 && report.mb_per_second > 0.0);
    let counted = std::path::Path::new("/proc/thread-self/schedstat").exists();
    assert_eq!(report.switches.is_some_and(|n| n > 0.0), counted);
    assert_eq!(report.cpu_us.is_some_and(|us| us > 0.0), counted);
    let pairs = TcpRr {
        pairs: 3,
        request: 1,
        response: 40_000,
        remote: false,
    };
    let report = run::<D>(&spec::<D>(Load::TcpRr(pairs))).unwrap();
    assert!(report.operations > 0 && report.threads == 6);
}

#[test]
fn slab_runs_every_load_on_threads() {
    all::<SlabCache>();
}

#[test]
fn slub_runs_every_load_on_threads() {
    all::<Slub>();
}

#[test]
fn slubq_runs_every_load_on_threads() {
    all::<Slubq>();
}

#[test]
fn slob_runs_every_load_on_threads() {
    all::<Slob>();
}

#[test]
fn sheaves_run_every_load_on_threads() {
    all::<SheafCache>();
}

#[test]
fn the_sizes_of_2007_run_on_threads() {
    let mut spec = spec::<Slub>(Load::Tbench(Tbench { clients: 2 }));
    spec.era = quarry_core::era::Era::V2_6_24;
    spec.sizes = SendSizes::Bug;
    let report = run::<Slub>(&spec).unwrap();
    // The data areas are larger than a page, so they are blocks of the page allocator and no cache's objects.
    assert!(
        report
            .caches
            .iter()
            .all(|cache| cache.name != "kmalloc-8192")
    );
    assert!(report.operations > 0);
}

#[test]
fn tunables_change_while_threads_run() {
    let change = |at_ms: u64, cache: &str| Change {
        at_ns: at_ms * 1_000_000,
        cache: cache.to_string(),
        name: "cpu_partial",
        value: 0,
    };
    let mut spec = spec::<Slub>(Load::Tbench(Tbench { clients: 2 }));
    spec.changes = vec![change(5, "skbuff_fclone_cache"), change(0, "kmalloc-512")];
    run::<Slub>(&spec).unwrap();
    // A change that comes after the run is not waited for.
    spec.changes.push(change(3_600_000, "no-such-cache"));
    assert_eq!(run::<Slub>(&spec).unwrap().late_changes, 1);
    // A refused one ends the run.
    spec.time = Duration::from_secs(3600);
    for at_ms in [0, 5] {
        spec.changes = vec![change(at_ms, "no-such-cache")];
        let error = run::<Slub>(&spec).unwrap_err().to_string();
        assert!(error.contains("no-such-cache"), "{error}");
    }
}

#[test]
fn exhausted_memory_ends_all_threads() {
    let load = Load::Hackbench(Hackbench {
        groups: 20,
        bytes: 500_000,
        ..HACKBENCH
    });
    let mut small = spec::<Slub>(load);
    small.memory_bytes = 8 << 20;
    let error = run::<Slub>(&small).unwrap_err().to_string();
    assert!(error.contains("no room for socket buffers"), "{error}");
    small.memory_bytes = 1 << 30;
    small.time = Duration::ZERO;
    let error = run::<Slub>(&small).unwrap_err().to_string();
    assert!(error.contains("time must be greater than 0"), "{error}");
}
