//! Every field set and every kind of line.

use super::*;
use crate::event::{Flags, Kind, NO_OBJECT, ReplayEvent};
use crate::meta::RcuBatch;

#[test]
fn perf_of_6_18() {
    let row = one(
        "  kworker/0:1-x 13/14 [003]  1287.791337777: kmem:kmem_cache_alloc: call_site=alloc_buffer_head+0x1d ptr=0xffff888122305958 name=buffer_head bytes_req=100 bytes_alloc=104 gfp_flags=GFP_NOFS|__GFP_ZERO|__GFP_ACCOUNT node=1 accounted=true",
    );
    let flags = Flags::ACCOUNTED.with(Flags::ZERO);
    let event = ReplayEvent {
        time_ns: 1_287_791_337_777,
        object: 0,
        bytes_req: 100,
        cache: 1,
        cpu: 3,
        kind: Kind::KmemCacheAlloc,
        flags,
        order: 0,
        place: 1,
    };
    assert_eq!(row.event, event);
    assert_eq!(
        (row.pid, row.comm.as_str(), row.bytes_alloc),
        (14, "kworker/0:1-x", 104)
    );
    assert_eq!(row.cache.as_deref(), Some("buffer_head"));
    assert_eq!(row.call_site.as_deref(), Some("alloc_buffer_head+0x1d"));
    assert_eq!(
        row.gfp_flags.as_deref(),
        Some("GFP_NOFS|__GFP_ZERO|__GFP_ACCOUNT")
    );
}

#[test]
fn ftrace_of_6_1_and_module_symbols() {
    let line = "            init-1       [001] d.h1.    11.216245: kmalloc: call_site=nft+0x2f0/0x1b10 [nf_tables] ptr=c0000000047c8880 bytes_req=49 bytes_alloc=64 gfp_flags=GFP_ATOMIC node=-1 accounted=false\n";
    // Its address is one of ppc64, whose pages have several sizes.
    assert!(error(line).contains("name it with --page-size"));
    let options = ImportOptions {
        page_size: Some(65536),
        ..options()
    };
    let row = rows(&run(line.as_bytes(), &options).unwrap()).remove(0);
    assert_eq!(
        row.call_site.as_deref(),
        Some("nft+0x2f0/0x1b10 [nf_tables]")
    );
    assert_eq!(
        (row.event.time_ns, row.event.cpu, row.pid),
        (11_216_245_000, 1, 1)
    );
    assert!(row.event.flags.has(Flags::ATOMIC) && !row.event.flags.has(Flags::ACCOUNTED));
    let renounced = Flags::from_gfp(b"GFP_ATOMIC|__GFP_NOWARN|__GFP_NOMEMALLOC");
    assert!(!renounced.has(Flags::ATOMIC));
    assert_eq!(
        (row.comm.as_str(), row.cache.as_deref()),
        ("init", Some("kmalloc"))
    );
}

#[test]
fn field_sets_of_5_x() {
    for (line, kind, order) in [
        (
            format!(
                "{P}kmalloc: call_site=ffffffff81234567 {A} bytes_req=1 bytes_alloc=8 gfp_flags=0xcc0"
            ),
            Kind::Kmalloc,
            0,
        ),
        (
            format!(
                "{P}kmalloc_node: call_site=f {A} bytes_req=1 bytes_alloc=8 gfp_flags=A|B|0x1000 node=0"
            ),
            Kind::KmallocNode,
            0,
        ),
        (
            format!(
                "{P}kmem_cache_alloc_node: call_site=f {A} bytes_req=8 bytes_alloc=8 gfp_flags=none node=1"
            ),
            Kind::KmemCacheAllocNode,
            0,
        ),
        (
            format!("{P}kmem_cache_free: call_site=ffffffff81 {A}"),
            Kind::KmemCacheFree,
            0,
        ),
        (format!("{P}kfree: call_site=f {A}"), Kind::Kfree, 0),
        (
            format!(
                "{P}mm_page_alloc: page=0xffffea0000 pfn=1234 order=3 migratetype=2 gfp_flags=GFP_KERNEL"
            ),
            Kind::MmPageAlloc,
            3,
        ),
        (
            format!("{P}mm_page_free: page=ffffea0000 pfn=1234 order=2"),
            Kind::MmPageFree,
            2,
        ),
    ] {
        let row = one(&line);
        assert_eq!((row.event.kind, row.event.order), (kind, order), "{line}");
        assert_eq!(row.event.object == NO_OBJECT, kind.is_free(), "{line}");
    }
}

#[test]
fn default_columns_periods_and_other_lines() {
    let (trace, rows) = good(&[
        "# os release : 6.18.1-test".into(),
        "# arch : x86_64".into(),
        "# cmdline : /usr/bin/perf record -e kmem:* -- make".into(),
        "# nrcpus online : 4".into(),
        String::new(),
        "my prog 1 [000] 5.000001: 1 kmem:kfree: call_site=f ptr=0xffff888100000000\r".into(),
        "\tffffffff81000000 kfree+0x10 ([kernel.kallsyms])".into(),
        "bash 2 [001] 5.1: sched:sched_switch: prev_comm=kmalloc: x".into(),
        "bash 2 [001] 5.2: PERF_RECORD_LOST lost 42".into(),
    ]);
    let meta = trace.meta();
    assert_eq!((rows[0].comm.as_str(), rows[0].pid), ("my prog", 1));
    assert_eq!(
        (meta.kernel.as_deref(), meta.cpus),
        (Some("6.18.1-test"), 4)
    );
    assert_eq!(
        meta.command.as_deref(),
        Some("/usr/bin/perf record -e kmem:* -- make")
    );
    assert_eq!(
        (meta.other_events, meta.other_lines, meta.lost_events),
        (1, 6, 42)
    );
    assert_eq!(
        (meta.source.as_str(), meta.page_size, meta.page_size_assumed),
        ("perf script", 4096, false)
    );
}

#[test]
fn options_win_over_headers() {
    let text = format!(
        "# os release : 1\n# nrcpus online : 4\n{}\n",
        kfree(1 << 40)
    );
    let options = ImportOptions {
        kernel: Some("9".into()),
        page_size: Some(65536),
        cpus: Some(2),
        lost_events: 5,
        ..options()
    };
    let trace = run(text.as_bytes(), &options).unwrap();
    let meta = trace.meta();
    assert_eq!(
        (
            meta.kernel.as_deref(),
            meta.page_size,
            meta.cpus,
            meta.lost_events
        ),
        (Some("9"), 65536, 2, 5)
    );
    assert!(!meta.page_size_assumed);
    let low = ImportOptions {
        cpus: Some(1),
        ..options
    };
    assert!(
        run(text.as_bytes(), &low)
            .unwrap_err()
            .to_string()
            .contains("cpu: 1 is impossible, at most 0")
    );
}

#[test]
fn ftrace_losses_are_not_counted_twice() {
    let line = "b-1 [000] ..... 1.0: kfree: call_site=f ptr=ffff888100000000";
    let text = format!(
        "# entries-in-buffer/entries-written: 10/15   #P:8\nCPU:3 [LOST 4 EVENTS]\n{line}\n"
    );
    let trace = run(text.as_bytes(), &options()).unwrap();
    assert_eq!((trace.meta().lost_events, trace.meta().cpus), (5, 8));
    assert_eq!(trace.meta().source, "ftrace");
}

#[test]
fn nothing_is_freed_and_nothing_is_allocated() {
    let (trace, rows) = good(&[
        format!("{P}kfree: call_site=f ptr=(nil)"),
        format!("{P}kfree: call_site=f ptr=0000000000000000"),
        format!("{P}kfree: call_site=f ptr=0x10"),
        kmalloc(0, 8, 8),
        format!("{P}mm_page_alloc: page=(nil) pfn=0 order=9 migratetype=1 gfp_flags=GFP_KERNEL"),
        format!(
            "{P}mm_page_alloc: page=0000000000000000 pfn=0xffffffffffffffff order=9 migratetype=1 gfp_flags=GFP_KERNEL"
        ),
        kfree(1 << 40),
    ]);
    let meta = trace.meta();
    assert_eq!((meta.null_frees, meta.failed_allocs, rows.len()), (3, 3, 1));
    assert_eq!((meta.events.kfree, meta.events.mm_page_alloc), (4, 2));
}

/// Bulk calls of `kfree_rcu()` go to the footer, single ones have a `kfree` of their own; a line that cannot be read is
/// another tracepoint's.
#[test]
fn frees_after_grace_periods() {
    let task = "kworker/1:1-40  [001] .....   ";
    let text = format!(
        "{task}1.000000: kfree: call_site=f ptr=ffff888100000000\n\
         {task}2.000000: rcu_invoke_kfree_bulk_callback: rcu_preempt bulk=0x00000000c0ffee00 nr_records=7\n\
         {task}3.000000: rcu_invoke_kvfree_callback: rcu_preempt rhp=0x00000000c0ffee10 func=16\n\
         {task}4.000000: rcu_invoke_kfree_bulk_callback: rcu_preempt nr_records=x\n"
    );
    let file = run(text.as_bytes(), &options()).unwrap();
    let meta = file.meta();
    let batch = RcuBatch {
        time_ns: 2_000_000_000,
        cpu: 1,
        objects: 7,
    };
    assert_eq!(meta.rcu.batches, [batch]);
    assert_eq!((meta.rcu.bulk_objects, meta.rcu.singles), (7, 1));
    assert_eq!((meta.rows, meta.other_events), (1, 1));
    let later = meta.rcu.within(Some(2_000_000_001), None);
    assert!(later.is_empty());
    assert_eq!(meta.rcu.within(None, Some(2_000_000_001)).bulk_objects, 7);
}

/// Fallbacks between types and pages that leave CPUs' lists go to the footer, from ftrace's text and perf's.
#[test]
fn fallbacks_and_drained_pages() {
    let extfrag = "page=0000000012345678 pfn=0x10fe40 alloc_order=0 fallback_order=3 pageblock_order=9 \
        alloc_migratetype=0 fallback_migratetype=1 fragmenting=1 change_ownership=0";
    for (task, kmem) in [
        ("sh-40  [001] .....   ", ""),
        ("sh    40 [001]   ", "kmem:"),
    ] {
        let text = format!(
            "{task}1.000000: {kmem}kfree: call_site=f ptr=ffff888100000000\n\
             {task}2.000000: {kmem}mm_page_alloc_extfrag: {extfrag}\n\
             {task}3.000000: {kmem}mm_page_pcpu_drain: page=0000000012345678 pfn=0x10fe40 order=0 migratetype=1\n"
        );
        let file = run(text.as_bytes(), &options()).unwrap();
        let moves = &file.meta().moves;
        let [extfrag] = moves.extfrags[..] else {
            panic!("{moves:?}");
        };
        assert_eq!(
            (extfrag.time_ns, extfrag.cpu, extfrag.pid),
            (2_000_000_000, 1, 40)
        );
        assert_eq!((extfrag.pfn, extfrag.fragmenting), (0x10f_e40, Some(true)));
        let [drain] = moves.drains[..] else {
            panic!("{moves:?}");
        };
        assert_eq!(
            (drain.time_ns, drain.cpu, drain.migratetype),
            (3_000_000_000, 1, 1)
        );
        assert_eq!((file.meta().rows, file.meta().other_events), (1, 0));
    }
}
