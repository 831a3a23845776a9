use super::*;
use crate::{Form, Snapshot};
use quarry_core::era::Era;
use quarry_core::page::watermark::{Access, Verdict, ZonePages, check};

macro_rules! report {
    ($file:literal) => {
        include_str!(concat!("../../tests/data/failures/", $file))
    };
}

fn one(text: &str) -> PageFailure {
    let plain: Vec<String> = text.lines().map(plain).collect();
    let (text, count) = lines(plain.iter().map(String::as_str));
    assert_eq!(count, 1);
    read(&text).remove(0)
}

/// The line without its time and quotes.
fn plain(line: &str) -> String {
    let line = line.trim_start_matches(['>', ' ']);
    let line = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("] "));
    line.map_or_else(String::new, |(_, line)| line.to_string())
}

fn zone<'f>(failure: &'f PageFailure, name: &str) -> &'f FailedZone {
    failure
        .zones
        .iter()
        .find(|of| of.zone.name == name)
        .unwrap()
}

#[test]
fn an_old_report_is_read_with_what_it_has() {
    let found = one(report!("3.13-order4.txt"));
    assert_eq!(found.release.as_deref(), Some("3.13.0-29-generic"));
    assert_eq!((found.page_bytes, found.zones.len()), (Some(4096), 3));
    let dma32 = zone(&found, "DMA32");
    let of = |name| dma32.pages(name);
    let marks = ["free", "min", "low", "high", "present", "managed"].map(of);
    let expected = [30_388, 13_840, 17_300, 20_760, 844_087, 824_349];
    assert_eq!(marks, expected.map(Some));
    // It has no reserve, and no boost.
    let absent = ["boost", "reserved_highatomic", "free_highatomic"].map(of);
    assert_eq!(absent, [None; 3]);
    assert_eq!(of("free_cma"), Some(0));
    let blocks: Vec<u64> = dma32.lists.iter().map(|list| list.blocks).collect();
    assert_eq!(blocks, [17_854, 2829, 1547, 58, 15, 0, 0, 0, 0, 0, 0]);
    assert_eq!(dma32.lists[0].types, BlockTypes::parse("UMER").unwrap());
    assert!(dma32.has_types());
    let kept = ["DMA", "DMA32", "Normal"].map(|name| found.lowmem_reserve(zone(&found, name)));
    assert_eq!(kept, [3912, 694, 0].map(Some));
}

/// The mail asks why: 4.4 would not have asked it. See the sums in `watermark.rs` of the core.
#[test]
fn the_check_explains_the_report() {
    let found = one(report!("3.13-order4.txt"));
    let told = |name, era| {
        let of = zone(&found, name);
        let pages = ZonePages {
            free: of.pages("free").unwrap(),
            mark: of.pages("min").unwrap(),
            lowmem_reserve: found.lowmem_reserve(of).unwrap(),
            lists: &of.lists,
            ..ZonePages::default()
        };
        check(era, found.request.order, Access::default(), &pages).verdict
    };
    // 30388 - 17854 - 2 * 2829 - 4 * 1547 = 688 pages, and 13840 / 8 + 16 are needed.
    let below = |pages| Verdict::Below { pages };
    assert_eq!(told("DMA32", Era::V3_13), below(1058));
    assert_eq!(told("Normal", Era::V3_13), below(202));
    assert_eq!(told("DMA32", Era::V4_4), Verdict::Passes);
}

#[test]
fn a_new_report_has_the_reserve() {
    let found = one(report!("6.19-order5.txt"));
    let release = "6.19.5-1.qubes.42.fc41.x86_64";
    assert_eq!(found.release.as_deref(), Some(release));
    assert_eq!(
        (&*found.request.task, found.request.order),
        ("v4l2src0:src", 5)
    );
    assert_eq!(found.request.mems_allowed, Some(vec![0]));
    let dma = zone(&found, "DMA");
    let of = ["boost", "reserved_highatomic", "free_highatomic"].map(|name| dma.pages(name));
    assert_eq!(of, [Some(0); 3]);
    // Normal has no pages, and the request could have had it.
    assert_eq!(found.lowmem_reserve(dma), Some(194));
}

/// Without NUMA zones have no node before them; marks are pages of 4 KiB, and a page of another size counts as such.
#[test]
fn zones_without_a_node_and_other_pages() {
    let text = report!("arm64-order4.txt");
    let (text, _) = lines(text.lines());
    let found = read(&text).remove(0);
    let names: Vec<&str> = found.zones.iter().map(|of| &*of.zone.name).collect();
    assert_eq!(names, ["DMA", "DMA32", "Normal"]);
    assert_eq!(zone(&found, "Normal").pages("free_highatomic"), Some(508));
    assert_eq!(found.lowmem_reserve(zone(&found, "DMA32")), Some(3954));
    let large = "a: page allocation failure: order:1, mode:0xcc0(GFP_KERNEL)\nMem-Info:\n\
        Node 0 Normal free:640kB min:128kB low:192kB high:256kB\nlowmem_reserve[]: 0 0\n\
        Node 0 Normal: 2*64kB (U) 4*128kB (M) = 640kB\n";
    let found = read(large).remove(0);
    let normal = zone(&found, "Normal");
    assert_eq!(found.page_bytes, Some(65536));
    assert_eq!(
        (normal.pages("free"), normal.pages("min")),
        (Some(10), Some(2))
    );
}

/// The zones of a machine decide which entry of `lowmem_reserve[]` is of a request.
#[test]
fn the_reserve_is_that_of_the_requests_highest_zone() {
    let of = |mode: u64, zones: &[(&str, &[u64])]| {
        let zones = zones.iter().map(|(name, protection)| FailedZone {
            zone: Zone {
                name: (*name).to_string(),
                protection: protection.to_vec(),
                ..Zone::default()
            },
            lists: Vec::new(),
        });
        let failure = PageFailure {
            request: Request {
                mode,
                ..Request::default()
            },
            zones: zones.collect(),
            ..PageFailure::default()
        };
        let reserve = failure.lowmem_reserve(&failure.zones[0]);
        let closed: Vec<bool> = failure
            .zones
            .iter()
            .map(|of| failure.closed(of) == Some(Closed::Higher))
            .collect();
        (reserve, closed)
    };
    let (kernel, movable, dma32, dma) = (0xcc0, 0xcca, 0xcc4, 0xcc1);
    let open = vec![false];
    // 32 bits without DMA: Normal and Movable.
    assert_eq!(of(kernel, &[("Normal", &[0, 32])]), (Some(0), open.clone()));
    assert_eq!(of(movable, &[("Normal", &[0, 32])]), (Some(32), open));
    let three: [(&str, &[u64]); 3] = [
        ("DMA", &[0, 10, 20, 20]),
        ("DMA32", &[0, 0, 10, 10]),
        ("Normal", &[0, 0, 0, 0]),
    ];
    assert_eq!(of(kernel, &three).0, Some(20));
    assert_eq!(of(dma32, &three), (Some(10), vec![false, false, true]));
    assert_eq!(of(dma, &three), (Some(0), vec![false, true, true]));
    let highmem: [(&str, &[u64]); 3] = [
        ("DMA", &[0, 5, 9, 9]),
        ("Normal", &[0, 0, 8, 8]),
        ("HighMem", &[0, 0, 0, 0]),
    ];
    assert_eq!(of(kernel, &highmem), (Some(5), vec![false, false, true]));
    assert_eq!(of(0xcc2, &highmem), (Some(9), vec![false; 3]));
    // Whether the second of four is DMA32 shows by its 0.
    let ppc: [(&str, &[u64]); 2] = [("DMA", &[0, 7, 7, 7]), ("Normal", &[0, 0, 0, 0])];
    assert_eq!(of(kernel, &ppc).0, Some(7));
    let without: [(&str, &[u64]); 2] = [("DMA", &[0, 0, 7, 7]), ("Normal", &[0, 0, 0, 0])];
    assert_eq!(of(kernel, &without).0, Some(7));
    assert_eq!(of(kernel, &[("DMA", &[])]).0, None);
}

#[test]
fn nodes_that_a_policy_leaves_out_are_closed() {
    let text = "sh invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\nMem-Info:\n\
        Node 0 Normal free:40kB min:8kB\nNode 1 Normal free:80kB min:8kB\n\
        Node 0 Normal: 10*4kB (U) = 40kB\nNode 1 Normal: 20*4kB (U) = 80kB\n\
        oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=a,mems_allowed=1,global_oom\n";
    let found = read(text).remove(0);
    let closed: Vec<_> = found.zones.iter().map(|of| found.closed(of)).collect();
    assert_eq!(closed, [Some(Closed::Node), None]);
    let atomic = text.replace("GFP_KERNEL", "GFP_ATOMIC");
    let found = read(&atomic).remove(0);
    assert_eq!(found.closed(&found.zones[0]), None, "no cpuset binds it");
    let by_policy = atomic.replace("nodemask=(null)", "nodemask=0");
    let found = read(&by_policy).remove(0);
    assert_eq!(found.closed(&found.zones[1]), Some(Closed::Node));
}

#[test]
fn limits_of_groups_are_no_lack_of_memory() {
    for line in [
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0",
        "Task in /a killed as a result of limit of /a",
        "Memory cgroup out of memory: Kill process 12 (x) score 1 or sacrifice child",
    ] {
        let text = format!(
            "x invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n{line}\n"
        );
        let (text, _) = lines(text.lines());
        let found = read(&text).remove(0);
        assert!(found.is_of_group && found.zones.is_empty(), "{line}");
    }
}

/// Zones of `sysrq` and of stalls are of no request, and those of a second report are its own.
#[test]
fn reports_are_kept_apart() {
    let zone = |free: u64| {
        format!(
            "Mem-Info:\nNode 0 Normal free:{}kB min:8kB\nNode 0 Normal: {free}*4kB (U) = {}kB\n",
            free * 4,
            free * 4
        )
    };
    let failure = "a: page allocation failure: order:1, mode:0xcc0(GFP_KERNEL)\n";
    let stall = "b: page allocation stalls for 10010ms, order:0, mode:0xcc0\n";
    let text = [
        &zone(9),
        failure,
        &zone(1),
        "sysrq: Show Memory\n",
        &zone(2),
        failure,
        &zone(3),
        &zone(4),
        stall,
        &zone(5),
        failure,
    ]
    .concat();
    let (kept, count) = lines(text.lines());
    let found = read(&kept);
    let free: Vec<_> = found
        .iter()
        .map(|of| of.zones.first().and_then(|of| of.pages("free")))
        .collect();
    assert_eq!((count, free), (3, vec![Some(1), Some(3), None]));
    let many = [failure, &zone(7)].concat().repeat(KEPT_MAX + 9);
    let (kept, count) = lines(many.lines());
    assert_eq!((count, read(&kept).len()), (KEPT_MAX + 9, KEPT_MAX));
}

/// Lists that do not make their sum, as when two CPUs print at once, are no lists.
#[test]
fn damaged_lists_are_left_out() {
    let text = "a: page allocation failure: order:1, mode:0xcc0(GFP_KERNEL)\nMem-Info:\n\
        Node 0 Normal free:40kB min:8kB\nNode 0 Normal: 10*4kB (U) 1*8kB (M) = 48kB\n";
    assert_eq!(read(text)[0].zones[0].lists.len(), 2);
    let wrapped = text.replace(" 1*8kB", "\n1*8kB").replace(" = ", "\n= ");
    assert_eq!(read(&wrapped)[0].zones[0].lists.len(), 2);
    let (kept, _) = lines(wrapped.lines());
    assert_eq!(read(&kept), read(&wrapped));
    for damaged in [
        text.replace("= 48kB", "= 44kB"),
        text.replace("= 48kB", ""),
        text.replace("1*8kB", "1*16kB"),
        text.replace("(M)", "(X)"),
    ] {
        let found = read(&damaged);
        assert_eq!(found[0].zones[0].lists, [], "{damaged}");
        assert_eq!(found[0].zones[0].pages("free"), Some(10));
    }
    let cut = text.split_inclusive('\n').take(3).collect::<String>();
    let found = read(&cut);
    assert_eq!((found[0].page_bytes, found[0].zones.len()), (None, 0));
}

fn snapshots(text: &str) -> Vec<Snapshot> {
    Snapshot::of_bytes("log", text.as_bytes()).unwrap()
}

#[test]
fn logs_in_any_packing_have_them() {
    let log = report!("6.19-order5.txt");
    let found = snapshots(log).remove(0);
    let of = |found: &Snapshot| {
        let failures = found.page_failures.iter();
        let zones = failures.map(|failure| (failure.request.order, failure.zones.len()));
        zones.collect::<Vec<_>>()
    };
    assert_eq!((found.form, of(&found)), (Form::Oom, vec![(5, 2)]));
    assert_eq!(found.page_bytes, 4096);
    assert_eq!(
        found.release.as_deref(),
        Some("6.19.5-1.qubes.42.fc41.x86_64")
    );
    let syslog = log.replace("[   3", "Mar 20 15:07:10 vm kernel: [   3");
    assert_eq!(of(&snapshots(&syslog)[0]), [(5, 2)]);
    // The mail breaks lines.
    let mail: String = log
        .replace('=', "=3D")
        .lines()
        .fold(String::new(), |text, line| {
            let (head, tail) = line.split_at(line.len().min(70));
            let soft = if tail.is_empty() { "" } else { "=\n" };
            format!("{text}{head}{soft}{tail}\n")
        });
    let head = "Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\n";
    assert_eq!(of(&snapshots(&format!("{head}{mail}"))[0]), [(5, 2)]);
    let quoted = report!("oom-reserve-in-use.txt");
    assert_eq!(of(&snapshots(quoted)[0]), [(0, 1)]);
    let alone = report!("oom-reserve-larger-than-free.txt");
    assert_eq!(of(&snapshots(alone)[0]), [(0, 1)]);
    let several = [log, log].concat();
    let last = Snapshot::parse("f", &several, None).unwrap();
    assert_eq!(of(&last), [(5, 2); 2]);
    let beside = format!(
        "{log}slabinfo - version: 2.1\ndentry 2000 2100 192 21 1 : tunables 0 0 0 : slabdata 100 100 0\n"
    );
    assert_eq!(of(&snapshots(&beside)[0]), [(5, 2)]);
}

/// A copy of a log beside slabinfo has them, too.
#[test]
fn folders_have_them_in_dmesg() {
    let dir = tempfile::tempdir().unwrap();
    let row = "slabinfo - version: 2.1\ndentry 2000 2100 192 21 1 : tunables 0 0 0 : slabdata 100 100 0\n";
    std::fs::write(dir.path().join("slabinfo"), row).unwrap();
    std::fs::write(dir.path().join("dmesg"), report!("6.19-order5.txt")).unwrap();
    let found = Snapshot::read(dir.path(), None).unwrap();
    let orders: Vec<u32> = found
        .page_failures
        .iter()
        .map(|of| of.request.order)
        .collect();
    assert_eq!(orders, [5]);
    // A file without slabs is left out beside one with them, and its reports are kept.
    let mut both = snapshots(row);
    both.extend(snapshots(report!("3.13-order4.txt")));
    Snapshot::with_slabs(&mut both);
    assert_eq!((both.len(), both[0].page_failures.len()), (1, 1));
}
