//! Page events whose cost can be worked out by hand.
//!
//! With the formulas of 5.9 a zone of 64 MiB has a batch of 3 pages and lists of at most 17: an
//! empty list takes 3 pages from the zone, and the 18th page makes it give 3 back.

use quarry_core::slub::Slub;
use quarry_sim::driver;
use quarry_trace::{Kind, RawEvent};

use super::super::engine::Engine;
use super::super::lists;
use super::super::part::Part;
use super::super::tests::{alloc, axes, free, input, kmalloc, replay};
use super::*;
use crate::RunReport;
use crate::plan::{Axes, Plan};
use quarry_snapshot::Zoneinfo;

/// An allocation of the block that begins at this page.
fn pages(pfn: u64, cpu: u16, order: u8) -> RawEvent<'static> {
    RawEvent {
        cpu,
        order,
        ..RawEvent::new(Kind::MmPageAlloc, pfn)
    }
}

fn free_pages(of: &RawEvent<'static>, cpu: u16) -> RawEvent<'static> {
    RawEvent {
        cpu,
        order: of.order,
        ..RawEvent::new(Kind::MmPageFree, of.address)
    }
}

fn all(events: &[RawEvent<'_>]) -> Input {
    Input {
        pages: PageMode::All,
        ..input(events)
    }
}

/// Single pages: allocated on one CPU and freed on another.
fn singles(count: u64, cpu: u16, freed_on: u16) -> Vec<RawEvent<'static>> {
    let blocks: Vec<_> = (0..count).map(|n| pages(n, cpu, 0)).collect();
    let frees: Vec<_> = blocks.iter().map(|at| free_pages(at, freed_on)).collect();
    [blocks, frees].concat()
}

#[test]
fn refills_drains_and_locks_by_hand() {
    let run = replay(&axes("slub@5.9"), &all(&singles(20, 0, 1))).unwrap();
    assert_eq!(run.page_events, PageEvents::All);
    let report = run.pages.unwrap();
    // 20 pages at 3 a refill, and one drain when the list of the other CPU has 18.
    assert_eq!((report.allocs, report.frees), (20, 20));
    assert_eq!((report.alloc_pcp, report.refills), (13, 7));
    assert_eq!((report.free_pcp, report.drains), (19, 1));
    assert_eq!((report.zone_locks, report.slab_zone_locks), (8, 0));
    assert_eq!(report.cross_cpu_frees, 20);
    assert_eq!(report.allocs_by_order[..2], [20, 0]);
    assert_eq!(report.live_blocks, 0);
    assert_eq!((report.peak_bytes, report.final_bytes), (20 << 12, 0));
    // The page allocator's own counters say the same.
    assert_eq!((run.pcp.allocs, run.pcp.frees), (20, 20));
    assert_eq!((run.pcp.refills, run.pcp.refilled), (7, 21));
    assert_eq!((run.pcp.drains, run.pcp.drained), (1, 3));
    assert_eq!((run.page_allocs, run.page_frees), (0, 0));
    assert_eq!(run.replayed.page_events, 0);
    let zone = run.locks.iter().find(|(name, _)| *name == "zone").unwrap();
    assert_eq!(zone.1, 8);
}

#[test]
fn orders_that_no_list_holds_take_the_lock_each_time() {
    let blocks = [pages(0, 0, 1), pages(2, 0, 10), pages(1026, 0, 0)];
    let frees = blocks.map(|block| free_pages(&block, 0));
    let input = all(&[blocks, frees].concat());
    let old = replay(&axes("slub@5.9"), &input).unwrap().pages.unwrap();
    assert_eq!((old.alloc_pcp, old.refills, old.zone_locks), (0, 1, 5));
    assert_eq!((old.free_pcp, old.drains), (1, 0));
    // From 6.1 on the lists hold order 1 as well.
    let new = replay(&axes("slub@6.1"), &input).unwrap().pages.unwrap();
    assert_eq!((new.alloc_pcp, new.refills, new.zone_locks), (0, 2, 4));
    assert_eq!(new.allocs_by_order, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn lists_and_pageblocks_go_by_migrate_type() {
    let typed = |n: u64, migratetype| RawEvent {
        migratetype,
        ..pages(n, 0, 0)
    };
    // -1 is what a recorder writes if it does not know.
    let blocks: Vec<_> = (0..8).map(|n| typed(n, (n % 4) as i8 - 1)).collect();
    let report = replay(&axes("slub"), &all(&blocks)).unwrap().pages.unwrap();
    assert_eq!(report.allocs_by_migratetype, [4, 2, 2]);
    // Each type has a list of its own, which its first page refills with three, and the fourth
    // unmovable page again.
    assert_eq!((report.refills, report.alloc_pcp), (4, 4));
}

#[test]
fn other_page_sizes_keep_the_bytes() {
    let blocks = [
        pages(0, 0, 0),
        pages(16, 0, 4),
        pages(32, 0, 5),
        pages(1024, 0, 10),
    ];
    let input = all(&blocks);
    let at = |page_bytes| {
        let axes = Axes {
            page_bytes: vec![page_bytes],
            ..axes("slub")
        };
        replay(&axes, &input).unwrap().pages.unwrap()
    };
    let (same, larger) = (at(4096), at(65536));
    let recorded: u64 = (1 + 16 + 32 + 1024) << 12;
    assert_eq!(
        (same.peak_recorded_bytes, same.peak_bytes),
        (recorded, recorded)
    );
    // 4 KiB and 64 KiB take a page of 64 KiB, 128 KiB take two, 4 MiB 64.
    assert_eq!(larger.peak_recorded_bytes, recorded);
    assert_eq!(larger.peak_bytes, (1 + 1 + 2 + 64) << 16);
    assert_eq!(larger.allocs_by_order, [2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(
        (larger.live_blocks, larger.final_bytes),
        (4, larger.peak_bytes)
    );
}

#[test]
fn blocks_that_cannot_be_are_counted_with_their_frees() {
    let (small, large) = (pages(0, 0, 0), pages(2048, 0, 11));
    let events = [small, large, free_pages(&large, 0), free_pages(&small, 0)];
    let report = replay(&axes("slub"), &all(&events)).unwrap().pages.unwrap();
    assert_eq!((report.allocs, report.frees), (1, 1));
    assert_eq!((report.too_large, report.unserved_frees), (1, 1));

    let tight = Axes {
        memory_bytes: 1 << 20,
        ..axes("slub")
    };
    let run = replay(&tight, &all(&singles(300, 0, 0))).unwrap();
    let report = run.pages.unwrap();
    assert_eq!((report.allocs, report.no_memory), (256, 44));
    assert_eq!((report.frees, report.unserved_frees), (256, 44));
    assert_eq!(run.replayed.page_events, 88);
    assert_eq!((report.left_out(), report.live_blocks), (88, 0));
}

#[test]
fn what_is_driven_depends_on_what_the_trace_tells() {
    let events = [pages(1, 0, 0), pages(2, 0, 0), alloc(1, 0, "box", 64)];
    let run = |mode, slab_pages_known| {
        let input = Input {
            pages: mode,
            slab_pages_known,
            ..input(&events)
        };
        let run = replay(&axes("slub"), &input).unwrap();
        assert_eq!(run.pages.is_some(), run.page_events.driven());
        (run.page_events, run.replayed.page_events)
    };
    assert_eq!(run(PageMode::Auto, false), (PageEvents::NotToldApart, 2));
    assert_eq!(run(PageMode::Auto, true), (PageEvents::OutsideSlabs, 0));
    assert_eq!(run(PageMode::Off, true), (PageEvents::Off, 2));
    assert_eq!(run(PageMode::All, false), (PageEvents::All, 0));
    let without = Input {
        pages: PageMode::All,
        ..input(&events[2..])
    };
    let run = replay(&axes("slub"), &without).unwrap();
    assert_eq!(run.page_events, PageEvents::None);
}

#[test]
fn slab_pages_are_told_by_their_objects() {
    // The object that [`alloc`] makes lies in the page of the same number.
    let mut events = Vec::new();
    for n in 1..=20 {
        events.extend([
            pages(n, 0, 0),
            alloc(n, 0, "box", 500),
            pages(n + 100, 0, 0),
        ]);
    }
    let freed = |event: &RawEvent<'static>| match event.kind.is_page() {
        true => free_pages(event, 0),
        false => free(event, 0),
    };
    // Objects go before their pages.
    let frees: Vec<_> = events.iter().rev().map(freed).collect();
    let input = input(&[events, frees].concat());
    let run = replay(&axes("slub"), &input).unwrap();
    assert_eq!(run.page_events, PageEvents::OutsideSlabs);
    assert_eq!(run.replayed.page_events, 40);
    let report = run.pages.unwrap();
    assert_eq!((report.slab_allocs, report.slab_frees), (20, 20));
    assert_eq!((report.allocs, report.frees), (20, 20));
}

#[test]
fn a_part_frees_blocks_from_before_it() {
    // The events' times are 1, 2, 3 and so on.
    let (a, b, c) = (pages(1, 0, 0), pages(2, 0, 0), pages(3, 0, 0));
    let mut events = vec![a, b, free_pages(&b, 0), free_pages(&a, 0), c];
    events.push(free_pages(&c, 0));
    let input = Input {
        part: Part {
            from_ns: Some(3),
            until_ns: Some(6),
        },
        ..all(&events)
    };
    let report = replay(&axes("slub"), &input).unwrap().pages.unwrap();
    assert_eq!((report.allocs, report.frees), (1, 2));
    assert_eq!((report.initial_frees, report.unknown_frees), (2, 0));
    assert_eq!((report.live_blocks, report.initial_bytes), (1, 2 << 12));
    let samples = &report.fragmentation.samples;
    let (first, last) = (samples.first().unwrap(), samples.last().unwrap());
    assert_eq!((first.initial_bytes, first.block_bytes), (2 << 12, 0));
    assert_eq!((last.event, last.time_ns), (5, 4));
    assert_eq!((last.initial_bytes, last.block_bytes), (0, 4096));
}

#[test]
fn frees_of_blocks_from_before_fill_the_lists() {
    let frees: Vec<_> = (0..40).map(|n| free_pages(&pages(n, 0, 0), 1)).collect();
    let large = free_pages(&pages(2048, 0, 11), 1);
    let events = [frees, vec![large]].concat();
    let run = replay(&axes("slub@5.9"), &all(&events)).unwrap();
    let report = run.pages.unwrap();
    assert_eq!((report.frees, report.initial_frees), (40, 40));
    // The lists overflow at 18 pages, and give 3 back each time.
    assert_eq!((report.drains, report.free_pcp, report.refills), (8, 32, 0));
    assert_eq!((run.pcp.refilled, run.pcp.drained), (0, 24));
    assert_eq!((report.zone_locks, report.slab_zone_locks), (8, 0));
    assert_eq!((report.initial_bytes, report.peak_bytes), (40 << 12, 0));
    // There is no block of order 11 to free.
    assert_eq!((report.unknown_frees, report.left_out()), (1, 1));
    assert_eq!((run.page_allocs, run.page_frees), (0, 0));
    // A block is as large as the pages that it is made of: here too many to be there.
    let tight = Axes {
        page_bytes: vec![65536],
        memory_bytes: 1 << 20,
        ..axes("slub@5.9")
    };
    let many: Vec<_> = (0..300).map(|n| free_pages(&pages(n, 0, 0), 1)).collect();
    let report = replay(&tight, &all(&many)).unwrap().pages.unwrap();
    assert!(report.initial_frees > 0 && report.unknown_frees > 0);
    assert_eq!(report.initial_frees + report.unknown_frees, 300);
}

#[test]
fn the_lists_are_worked_on_once_a_second() {
    // Six refills raise high from 1286 pages by what they bring, 3969 pages, and what is freed then stays.
    let blocks: Vec<_> = (0..3969).map(|n| pages(n, 0, 0)).collect();
    let frees = blocks.iter().map(|at| free_pages(at, 0));
    let mut events: Vec<_> = blocks.iter().copied().chain(frees).collect();
    events.push(pages(4096, 0, 0));
    let mut run = |design, last_ns| {
        let last = events.last_mut().unwrap();
        last.time_ns = last_ns;
        let axes = Axes {
            cpus: vec![1],
            memory_bytes: 1 << 30,
            ..axes(design)
        };
        let run = replay(&axes, &all(&events)).unwrap();
        let report = run.pages.unwrap();
        assert_eq!(report.slab_zone_locks, 0);
        assert_eq!(report.periodic_zone_locks, run.pcp.decays);
        (run.pcp.decays, run.pcp.decayed)
    };
    // The first event is at 1 ns.
    assert_eq!(run("slub@6.18", 3_000_000_000), (0, 0));
    // High becomes 5255, less an eighth 4599, 4025, 3522, 3082, and in the end 1286 as it is the least.
    assert_eq!(run("slub@6.18", 3_000_000_001), (1, 3969 - 3522));
    assert_eq!(run("slub@6.18", 4_000_000_001), (2, 3969 - 3082));
    assert_eq!(run("slub@6.18", 3_600_000_000_001), (9, 3969 - 1286));
    assert_eq!(run("slub@6.1", 3_600_000_000_001), (0, 0));
}

#[test]
fn lists_begin_as_the_kernel_reported_them() {
    let mut text = String::from(
        "Node 0, zone   Normal\n  pages free     9000\n        min      500\n        low      600\n\
         \x20       high     700\n        spanned  16384\n        present  16384\n\
         \x20       managed  16384\n        protection: (0)\n  pagesets\n",
    );
    for cpu in 0..4 {
        text += &format!(
            "    cpu: {cpu}\n              count:    200\n              high:     300\n\
             \x20             batch:    3\n              high_min: 129\n\
             \x20             high_max: 512\n  vm stats threshold: 10\n"
        );
    }
    text += "  node_unreclaimable:  0\n  start_pfn:           0\n";
    let zoneinfo = Zoneinfo::parse("zoneinfo", &text).unwrap();
    assert_eq!(lists::memory_bytes(&zoneinfo, 4096).unwrap(), 64 << 20);
    let movable = |n: u64, cpu| RawEvent {
        migratetype: 1,
        ..pages(n, cpu, 0)
    };
    let mut events: Vec<_> = (0..200).map(|n| movable(n, 1)).collect();
    let run = |events: &[RawEvent<'_>], page_bytes| {
        let input = Input {
            zoneinfo: Some(zoneinfo.clone()),
            ..all(events)
        };
        let axes = Axes {
            page_bytes: vec![page_bytes],
            ..axes("slub")
        };
        replay(&axes, &input).unwrap().pages.unwrap()
    };
    let report = run(&events, 4096);
    assert_eq!((report.initial_pcp_pages, report.refills), (800, 0));
    assert_eq!(report.alloc_pcp, 200);
    assert_eq!(
        report.fragmentation.samples[0].pcp_bytes,
        report.initial_pcp_pages << 12
    );
    events.push(movable(200, 1));
    assert_eq!(run(&events, 4096).refills, 1);
    // 100 more fit before the lists of CPU 2 hold 300.
    let frees: Vec<_> = (300..399).map(|n| free_pages(&pages(n, 0, 0), 2)).collect();
    assert_eq!(run(&frees, 4096).drains, 0);
    let one_more = [frees.clone(), vec![free_pages(&pages(400, 0, 0), 2)]].concat();
    assert_eq!(run(&one_more, 4096).drains, 1);
    // A report of another machine tells nothing.
    assert_eq!(run(&events, 65536).initial_pcp_pages, 0);
}

/// A row as the importer writes it.
fn row(kind: Kind, object: u32, flags: Flags) -> ReplayEvent {
    ReplayEvent {
        time_ns: 1,
        object,
        bytes_req: 0,
        cache: quarry_trace::NO_CACHE,
        cpu: 0,
        kind,
        flags,
        order: 0,
        place: -1,
    }
}

/// Rows of a trace with four blocks that tells slab pages apart.
fn feed(rows: &[ReplayEvent]) -> Result<PageReport, LabError> {
    let events: Vec<_> = (0..4).map(|pfn| pages(pfn, 0, 0)).collect();
    let input = Input {
        slab_pages_known: true,
        ..input(&events)
    };
    let plan = Plan::new(&axes("slub@5.9")).unwrap();
    let spec = &plan.runs[0];
    let fed =
        driver::drive::<Slub, _>(spec.config, spec.design.era, spec.settings.boot, |driver| {
            let free = driver.page_stats().free_pages;
            let mut engine = Engine::new(driver, spec, &input)?;
            engine.start();
            engine.run_chunk(rows)?;
            let report = engine.finish().pages.unwrap();
            let census = driver.check_pages().unwrap();
            assert_eq!(census.allocated << 12, report.final_bytes);
            assert_eq!(driver.page_stats().free_pages, free - census.allocated);
            Ok(report)
        });
    fed.unwrap()
}

#[test]
fn the_recorded_kernels_slabs_are_left_out() {
    use Kind::{MmPageAlloc, MmPageFree};
    let none = Flags::default();
    let report = feed(&[
        row(MmPageAlloc, 0, Flags::SLAB),
        row(MmPageAlloc, 1, none),
        row(MmPageAlloc, 2, Flags::SLAB),
        row(MmPageFree, 0, Flags::SLAB),
        // Blocks from before the recording: objects may tell that one was a slab.
        row(
            MmPageFree,
            quarry_trace::NO_OBJECT,
            Flags::UNKNOWN.with(Flags::SLAB),
        ),
        row(MmPageFree, quarry_trace::NO_OBJECT, Flags::UNKNOWN),
        // The allocation decides, whatever the free says.
        row(MmPageFree, 1, Flags::SLAB.with(Flags::IMPLIED)),
        row(MmPageFree, 2, none),
        row(MmPageAlloc, 0, none),
    ])
    .unwrap();
    assert_eq!((report.slab_allocs, report.slab_frees), (2, 3));
    assert_eq!((report.unknown_frees, report.left_out()), (1, 6));
    assert_eq!(
        (report.allocs, report.frees, report.implied_frees),
        (2, 1, 1)
    );
    assert_eq!(report.live_blocks, 1);
}

#[test]
fn impossible_rows_are_named() {
    use Kind::{MmPageAlloc, MmPageFree};
    let none = Flags::default();
    let check = |rows: &[ReplayEvent], expected: &str| {
        assert_eq!(feed(rows).unwrap_err().to_string(), expected);
    };
    let again = "; the trace is damaged: import the recording again";
    check(
        &[row(MmPageAlloc, 3, none), row(MmPageAlloc, 3, Flags::SLAB)],
        &format!("t: row 2: page block 3 is allocated twice{again}"),
    );
    check(
        &[row(MmPageFree, 1, none)],
        &format!("t: row 1: page block 1 is freed, but it is not allocated{again}"),
    );
}

#[test]
fn slabs_do_not_change_and_everything_comes_back() {
    let mut events = Vec::new();
    for n in 1..=600 {
        events.push(alloc(n, (n % 4) as u16, "box", 500));
        events.push(pages(n << 4, (n % 3) as u16, (n % 5) as u8));
        events.push(kmalloc(n, (n % 2) as u16, 100 * n as u32));
    }
    let frees: Vec<_> = events
        .iter()
        .map(|event| match event.kind.is_page() {
            true => free_pages(event, event.cpu ^ 1),
            false => free(event, event.cpu ^ 1),
        })
        .collect();
    let input = all(&[events, frees].concat());
    for design in ["slab", "slub@5.9", "slub", "slubq", "slob", "sheaf"] {
        let run = replay(&axes(design), &input).unwrap();
        let off = Input {
            pages: PageMode::Off,
            ..input.clone()
        };
        let slabs_only = replay(&axes(design), &off).unwrap();
        let slabs = |run: &RunReport| {
            let memory = (run.peak_slab_bytes, run.final_slab_bytes, run.slabs);
            (memory, run.page_allocs, run.page_frees, run.cross_cpu_frees)
        };
        assert_eq!(slabs(&run), slabs(&slabs_only), "{design}");
        let report = run.pages.unwrap();
        assert_eq!((report.allocs, report.frees), (600, 600));
        assert_eq!((report.final_bytes, report.live_blocks), (0, 0));
        let samples = &report.fragmentation.samples;
        assert_eq!(samples[0].used_bytes(), 0, "{design}");
        for sample in samples {
            let all = sample.used_bytes() + sample.pcp_bytes + sample.free_bytes;
            // Large kmallocs are neither slabs nor blocks of page events.
            assert!(all <= 64 << 20 && all + run.large_bytes_peak >= 64 << 20);
        }
        let last = samples.last().unwrap();
        let all = last.used_bytes() + last.pcp_bytes + last.free_bytes;
        assert_eq!((last.event, all), (3600, 64 << 20));
    }
}

#[test]
fn user_pages_share_larger_pages() {
    let movable = |n: u64, cpu| RawEvent {
        migratetype: 1,
        ..pages(n, cpu, 0)
    };
    // 20 pages of one CPU: 16 fill a page of 64 KiB, 4 begin another; one of another CPU has its own.
    let blocks: Vec<_> = (0..20)
        .map(|n| movable(n, 0))
        .chain([movable(99, 1)])
        .collect();
    // The first page keeps one part, the second none.
    let freed: Vec<_> = (1..20).map(|n| free_pages(&blocks[n], 0)).collect();
    let input = all(&[blocks, freed].concat());
    let at = |page_bytes| {
        let axes = Axes {
            page_bytes: vec![page_bytes],
            ..axes("slub")
        };
        replay(&axes, &input).unwrap().pages.unwrap()
    };
    let same = at(4096);
    assert_eq!(
        (same.allocs, same.packed_allocs, same.packed_frees),
        (21, 0, 0)
    );
    let larger = at(65536);
    assert_eq!((larger.allocs, larger.packed_allocs), (3, 18));
    assert_eq!((larger.frees, larger.packed_frees), (1, 18));
    assert_eq!(larger.peak_recorded_bytes, 21 << 12);
    assert_eq!((larger.peak_bytes, larger.final_bytes), (3 << 16, 2 << 16));
    assert_eq!(larger.live_blocks, 2);
}

#[test]
fn user_pages_from_before_share_larger_pages() {
    let old = |n: u64| RawEvent {
        migratetype: 1,
        ..RawEvent::new(Kind::MmPageFree, n)
    };
    let events: Vec<_> = (0..18).map(old).collect();
    let axes = Axes {
        page_bytes: vec![65536],
        ..axes("slub")
    };
    let report = replay(&axes, &all(&events)).unwrap().pages.unwrap();
    assert_eq!((report.initial_bytes, report.initial_frees), (2 << 16, 18));
    assert_eq!((report.frees, report.packed_frees), (2, 16));
}

#[test]
fn larger_user_pages_become_several() {
    let block = RawEvent {
        migratetype: 1,
        ..pages(0, 0, 0)
    };
    let mut input = all(&[block, pages(16, 0, 0), free_pages(&block, 1)]);
    input.file = {
        let mut bytes = Vec::new();
        let path = std::path::Path::new("t");
        let mut trace = quarry_trace::TraceBuilder::new(&mut bytes, path, 1).unwrap();
        trace.meta_mut().page_size = 65536;
        for (time_ns, event) in (1..).zip([block, pages(16, 0, 0), free_pages(&block, 1)]) {
            trace.push(&RawEvent { time_ns, ..event }).unwrap();
        }
        trace.finish().unwrap();
        quarry_trace::TraceFile::from_bytes(bytes).unwrap()
    };
    let report = replay(&axes("slub"), &input).unwrap().pages.unwrap();
    // 16 single pages, and a block of 16 for what is not movable.
    assert_eq!(report.allocs_by_order[..5], [16, 0, 0, 0, 1]);
    assert_eq!((report.frees, report.final_bytes), (16, 1 << 16));
    assert_eq!(report.cross_cpu_frees, 1);
}
