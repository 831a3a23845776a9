//! Blocks that go between per-CPU page lists and zones: predicted, and counted by the recorded kernel.
//!
//! The bundled recordings hold two copies of `/proc/zoneinfo`, read inside of them, and come with the
//! number of blocks that the kernel's tracepoints `mm_page_alloc_zone_locked` and
//! `mm_page_pcpu_drain` reported between the two. The replay of that part begins with the zones and lists
//! of the first zoneinfo, and is held against the second.

use std::path::{Path, PathBuf};

use quarry_designs::DesignSpec;
use quarry_lab::bundled::BUNDLED;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::lists;
use quarry_lab::{Plan, RunReport};
use quarry_snapshot::Zoneinfo;
use quarry_snapshot::zoneinfo::Zone;
use quarry_trace::KernelReport;

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces")
}

/// The kernel's own counts.
struct Counted {
    refilled: u64,
    drained: u64,
    before: Zoneinfo,
    after: Zoneinfo,
}

fn counted(name: &str) -> Counted {
    let input = Input::open(name).unwrap();
    let reports = &input.file.meta().reports;
    let [before, after] = reports.as_slice() else {
        panic!("{name}: {} reports", reports.len());
    };
    let text = std::fs::read_to_string(traces().join(format!("{name}.json"))).unwrap();
    let recording: serde_json::Value = serde_json::from_str(&text).unwrap();
    let number = |key: &str| recording["page_lists"][key].as_u64().unwrap();
    let moments = [number("from_ns"), number("until_ns")];
    assert_eq!(
        [before, after].map(|report| report.time_ns),
        moments,
        "{name}"
    );
    let parse = |report: &KernelReport| Zoneinfo::parse(name, &report.text).unwrap();
    Counted {
        refilled: number("refilled"),
        drained: number("drained"),
        before: parse(before),
        after: parse(after),
    }
}

fn replay(name: &str, counted: &Counted, with_lists: bool) -> RunReport {
    let mut input = Input::open(name).unwrap();
    let page_bytes = u64::from(input.file.meta().page_size);
    input.start_from_reports().unwrap();
    if !with_lists {
        input.zoneinfo = None;
    }
    let axes = Axes {
        designs: vec![DesignSpec::parse("slub@6.18").unwrap()],
        page_bytes: vec![page_bytes],
        cpus: vec![input.file.meta().cpus],
        memory_bytes: lists::memory_bytes(&counted.before, page_bytes).unwrap(),
        ..Axes::default()
    };
    let mut runs = Plan::new(&axes)
        .unwrap()
        .execute(&input, 1, &|_| ())
        .unwrap();
    runs.remove(0)
}

/// Pages on the lists of all zones.
fn listed(zoneinfo: &Zoneinfo) -> u64 {
    zoneinfo.populated().map(listed_of).sum()
}

/// Pages on the lists of a zone.
fn listed_of(zone: &Zone) -> u64 {
    zone.pagesets.iter().map(|set| set.count).sum()
}

/// The replay's predictions.
struct Predicted {
    refilled: u64,
    drained: u64,
    listed: u64,
}

impl Predicted {
    fn of(run: &RunReport) -> Self {
        let samples = &run.pages.as_ref().unwrap().fragmentation.samples;
        Self {
            refilled: run.pcp.refilled,
            drained: run.pcp.drained,
            listed: samples.last().unwrap().pcp_bytes / run.page_size,
        }
    }
}

/// By how much a number is off, as a part of what it should be.
fn off(predicted: u64, observed: u64) -> f64 {
    predicted.abs_diff(observed) as f64 / observed as f64
}

/// True if a number is within a factor of another; where that is 0, if it is 0 as well.
fn is_within(factor: f64, predicted: u64, observed: u64) -> bool {
    let (predicted, observed) = (predicted as f64, observed as f64);
    predicted <= observed * factor && observed <= predicted * factor
}

/// Zones at the end against the zoneinfo of that moment: pages on lists are within 15 %, or
/// some pages where lists are all but empty. So are free pages; but as these change by less than that, it
/// says only that no zone was used in the place of another.
fn zones_end_as_the_kernels(name: &str, run: &RunReport, after: &Zoneinfo) {
    let zones: Vec<_> = after.populated().collect();
    assert_eq!(run.zones.len(), zones.len(), "{name}");
    for (predicted, zone) in run.zones.iter().zip(zones) {
        let (free, listed) = (zone.pages.get("free").unwrap(), listed_of(zone));
        println!(
            "    {:7} refilled {:6}, drained {:6} blocks; at the end {:6} of {listed:6} pages on the \
             lists, {:6} of {free:6} free",
            zone.name,
            predicted.refilled,
            predicted.drained,
            predicted.pcp_pages,
            predicted.free_pages,
        );
        assert_eq!(predicted.zone, zone.name, "{name}");
        assert!(off(predicted.free_pages, free) < 0.15, "{name}");
        let some = listed * 15 / 100 + 64;
        assert!(predicted.pcp_pages.abs_diff(listed) < some, "{name}");
    }
}

/// Missed: all that Normal refilled in hackbench (the replay's 768 are DMA32's; the kernel's lists
/// in Normal became 6568 pages longer); of what kv refilled, the more part (771 of 1767), and that
/// tbench drained 742 blocks, not 1756. Which types and orders the blocks on the lists had is not
/// told. The replay's lists in Normal have enough pages of the types that kv asks for; the kernel's
/// were refilled, as Normal's free pages tell, which became 1145 fewer. In tbench, where no block
/// passes the lists, the zones gained 1339 free pages and the kernel refilled 343 blocks, so the
/// 742 were 1682 pages or more: the replay, whose lists begin with single pages, drains 1756 of
/// them. What bulk calls take from Normal has no events, nor have the pages that they steal from
/// other types one by one: in hackbench Normal's free pages became 6690 fewer, but not the
/// replay's.
#[test]
fn traffic_beside_the_kernels_own_count() {
    for bundled in BUNDLED {
        let name = bundled.name;
        let counted = counted(name);
        let end = listed(&counted.after);
        println!(
            "{name}: on the lists {} pages at first\n  {:20} refilled {:6}, drained {:6} blocks; at the \
             end {end:6} pages on the lists",
            listed(&counted.before),
            "kernel",
            counted.refilled,
            counted.drained,
        );
        let [with, without] = [("replay", true), ("  without zoneinfo", false)].map(|(what, told)| {
            let run = replay(name, &counted, told);
            let predicted = Predicted::of(&run);
            println!(
                "  {what:20} refilled {:6}, drained {:6} blocks; at the end {:6} pages on the lists",
                predicted.refilled, predicted.drained, predicted.listed,
            );
            if told {
                zones_end_as_the_kernels(name, &run, &counted.after);
            }
            let pages = run.pages.unwrap();
            let first = if told { listed(&counted.before) } else { 0 };
            assert_eq!(pages.initial_pcp_pages, first, "{name}");
            assert!(pages.initial_frees > 0 && pages.unknown_frees == 0, "{name}");
            predicted
        });
        assert!(off(with.listed, end) < 0.15, "{name}");
        assert!(off(without.listed, end) > 0.5, "{name}");
        assert!(is_within(2.5, with.refilled, counted.refilled), "{name}");
        assert!(is_within(2.5, with.drained, counted.drained), "{name}");
        let refills = |of: &Predicted| off(of.refilled, counted.refilled);
        assert!(refills(&with) < refills(&without), "{name}");
    }
}
