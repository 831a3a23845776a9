//! Opening what is not a trace, and rows that cannot be true.

use std::fs;
use std::path::Path;

use bytes::Bytes;

use super::*;
use crate::build::TraceBuilder;
use crate::event::{Flags, Kind, NO_OBJECT, NO_PAGE, NO_PFN, RawEvent, ReplayEvent};
use crate::filter::{Filter, filter_to};
use crate::intern::NO_TEXT;
use crate::meta::SlabMemory;
use crate::write::{GROUP_ROWS, Row, Texts, TraceWriter};

/// A trace of `count` allocations, each freed right after.
fn pairs(count: u64) -> Vec<u8> {
    pairs_recorded_by(count, &[])
}

/// The same, recorded by these threads; seven allocate in turn.
fn pairs_recorded_by(count: u64, recorder: &[i32]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut trace = TraceBuilder::new(&mut out, Path::new("t"), 1).unwrap();
    for n in 0..count {
        let address = (1 << 40) + (n << 12);
        let size = 1 + (n % 1000) as u32;
        let alloc = RawEvent {
            time_ns: n * 3,
            pid: (n % 7) as i32,
            bytes_req: size,
            bytes_alloc: size,
            ..RawEvent::new(Kind::Kmalloc, address)
        };
        trace.push(&alloc).unwrap();
        trace
            .push(&RawEvent {
                time_ns: n * 3 + 1,
                ..RawEvent::new(Kind::Kfree, address)
            })
            .unwrap();
    }
    trace.meta_mut().recorder_pids = recorder.to_vec();
    trace.finish().unwrap();
    out
}

/// The recorder's allocations are no events of the load, nor are their frees, which another thread made.
#[test]
fn the_recorder_is_left_out_but_of_rows() {
    let count = 40_000;
    let trace = TraceFile::from_bytes(pairs_recorded_by(count, &[3])).unwrap();
    let times = |n: u64| [n * 3, n * 3 + 1];
    let load = || (0..count).filter(|n| n % 7 != 3);
    let (mut chunk, mut found) = (Vec::new(), Vec::new());
    let mut events = trace.events();
    while events.next_chunk(&mut chunk).unwrap() {
        found.extend(chunk.iter().map(|event| event.time_ns));
    }
    assert_eq!(found, load().flat_map(times).collect::<Vec<_>>());
    let (mut told, mut tasks, mut at) = (trace.events_with_tasks(), Vec::new(), 0);
    while told.next_chunk(&mut chunk, &mut tasks).unwrap() {
        for (event, task) in chunk.iter().zip(&tasks) {
            assert_eq!(event.time_ns, found[at]);
            assert_ne!(*task, 3);
            at += 1;
        }
    }
    assert_eq!(at, found.len());
    let (mut rows, mut chunk, mut pids) = (trace.rows(), Vec::new(), Vec::new());
    while rows.next_chunk(&mut chunk).unwrap() {
        pids.extend(chunk.iter().map(|row| row.pid));
    }
    assert_eq!(pids.len() as u64, 2 * count);
    assert_eq!(pids.iter().filter(|pid| **pid == 3).count(), 5714);
}

/// An allocation with its stack, one without, and their frees: all rows, and how many have stacks.
fn rows_with_stacks(file: impl Into<Bytes>) -> (Vec<Option<String>>, u64) {
    let trace = TraceFile::from_bytes(file).unwrap();
    let (mut rows, mut chunk, mut found) = (trace.rows(), Vec::new(), Vec::new());
    while rows.next_chunk(&mut chunk).unwrap() {
        found.extend(chunk.drain(..).map(|row| row.stack));
    }
    (found, trace.meta().stack_rows)
}

#[test]
fn stacks_stay_with_their_rows() {
    const STACK: &str = "entry;do_syscall_64;kmem_cache_alloc_noprof";
    let mut file = Vec::new();
    let mut trace = TraceBuilder::new(&mut file, Path::new("t"), 1).unwrap();
    for (time_ns, stack) in [
        (0, Some(STACK)),
        (2, None),
        (4, Some("other")),
        (6, Some(STACK)),
    ] {
        let address = (1 << 40) + (time_ns << 12);
        let alloc = RawEvent {
            time_ns,
            bytes_req: 8,
            bytes_alloc: 8,
            stack: stack.map(str::as_bytes),
            ..RawEvent::new(Kind::Kmalloc, address)
        };
        trace.push(&alloc).unwrap();
        let free = RawEvent {
            time_ns: time_ns + 1,
            ..RawEvent::new(Kind::Kfree, address)
        };
        trace.push(&free).unwrap();
    }
    trace.finish().unwrap();
    let stacks = [
        Some(STACK),
        None,
        None,
        None,
        Some("other"),
        None,
        Some(STACK),
        None,
    ];
    let stacks = stacks.map(|stack| stack.map(str::to_string));
    assert_eq!(rows_with_stacks(file.clone()), (stacks.to_vec(), 3));
    // A part of it keeps them.
    let filter = Filter {
        from_ns: Some(4),
        ..Filter::default()
    };
    let (trace, mut part) = (TraceFile::from_bytes(file).unwrap(), Vec::new());
    filter_to(&trace, &filter, &mut part, Path::new("part")).unwrap();
    assert_eq!(rows_with_stacks(part), (stacks[4..].to_vec(), 2));
}

#[test]
fn page_events_keep_their_frames() {
    let mut file = Vec::new();
    let mut trace = TraceBuilder::new(&mut file, Path::new("t"), 1).unwrap();
    let frame = 1 << 34;
    for (time_ns, event) in [
        (0, RawEvent::new(Kind::MmPageAlloc, frame)),
        (1, RawEvent::new(Kind::Kfree, 1 << 40)),
        (2, RawEvent::new(Kind::MmPageFree, frame)),
        // It proves the block at its frame gone.
        (3, RawEvent::new(Kind::MmPageAlloc, 8)),
        (4, RawEvent::new(Kind::MmPageAlloc, 8)),
    ] {
        trace.push(&RawEvent { time_ns, ..event }).unwrap();
    }
    trace.finish().unwrap();
    let frames = |file: Vec<u8>| {
        let trace = TraceFile::from_bytes(file).unwrap();
        let (mut rows, mut chunk, mut found) = (trace.rows(), Vec::new(), Vec::new());
        while rows.next_chunk(&mut chunk).unwrap() {
            found.extend(chunk.drain(..).map(|row| row.pfn));
        }
        found
    };
    let expected = [Some(frame), None, Some(frame), Some(8), Some(8), Some(8)];
    assert_eq!(frames(file.clone()), expected);
    let (trace, mut part) = (TraceFile::from_bytes(file).unwrap(), Vec::new());
    filter_to(&trace, &Filter::default(), &mut part, Path::new("part")).unwrap();
    assert_eq!(frames(part), expected);
}

#[test]
fn a_trace_from_before_stacks_has_none() {
    let old = include_bytes!("../../tests/data/version1.parquet");
    let (stacks, count) = rows_with_stacks(Bytes::from_static(old));
    assert!(!stacks.is_empty() && stacks.iter().all(Option::is_none));
    assert_eq!(count, 0);
}

fn drain(trace: &TraceFile) -> Result<Vec<ReplayEvent>> {
    let (mut all, mut chunk, mut events) = (Vec::new(), Vec::new(), trace.events());
    while events.next_chunk(&mut chunk)? {
        assert!(!chunk.is_empty() && chunk.len() <= CHUNK_EVENTS);
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

#[test]
fn several_row_groups_come_back_in_order() {
    let count = GROUP_ROWS as u64 * 3 / 4;
    let trace = TraceFile::from_bytes(pairs(count)).unwrap();
    let events = drain(&trace).unwrap();
    assert_eq!(events.len() as u64, count * 2);
    assert_eq!(trace.meta().object_slots, 1);
    for (n, pair) in (0_u64..).zip(events.chunks(2)) {
        let size = 1 + (n % 1000) as u32;
        assert_eq!(
            (pair[0].time_ns, pair[0].kind, pair[0].bytes_req),
            (n * 3, Kind::Kmalloc, size)
        );
        assert_eq!(
            (pair[1].time_ns, pair[1].kind, pair[1].bytes_req),
            (n * 3 + 1, Kind::Kfree, size)
        );
    }
    let (mut rows, mut chunk, mut total) = (trace.rows(), Vec::new(), 0);
    while rows.next_chunk(&mut chunk).unwrap() {
        assert!(
            chunk
                .iter()
                .zip(&events[total..])
                .all(|(row, event)| row.event == *event)
        );
        total += chunk.len();
    }
    assert_eq!(total, events.len());
    let (mut told, mut tasks, mut total) = (trace.events_with_tasks(), Vec::new(), 0);
    let mut chunk = Vec::new();
    while told.next_chunk(&mut chunk, &mut tasks).unwrap() {
        assert_eq!(chunk, events[total..total + chunk.len()]);
        for (n, task) in (total..).zip(&tasks) {
            let expected = if n % 2 == 0 { n / 2 % 7 } else { 0 };
            assert_eq!(*task, expected as i32, "row {n}");
        }
        assert_eq!(tasks.len(), chunk.len());
        total += chunk.len();
    }
    assert_eq!(total, events.len());
}

#[test]
fn chunks_reuse_their_memory() {
    let trace = TraceFile::from_bytes(pairs(100_000)).unwrap();
    let (mut events, mut chunk) = (trace.events(), Vec::with_capacity(CHUNK_EVENTS));
    let start = chunk.as_ptr();
    while events.next_chunk(&mut chunk).unwrap() {
        assert_eq!((chunk.as_ptr(), chunk.capacity()), (start, CHUNK_EVENTS));
    }
}

#[test]
fn a_file_reads_as_its_bytes_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let bytes = pairs(5000);
    fs::write(&path, &bytes).unwrap();
    let (file, memory) = (
        TraceFile::open(&path).unwrap(),
        TraceFile::from_bytes(bytes).unwrap(),
    );
    assert_eq!(file.meta(), memory.meta());
    assert_eq!(drain(&file).unwrap(), drain(&memory).unwrap());
}

#[test]
fn what_is_no_trace_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        TraceFile::open(&path).unwrap_err()
    };
    let whole = pairs(10);
    assert!(matches!(open("empty", b""), TraceError::Empty { .. }));
    assert!(matches!(
        open("text", b"bash 1 [0] 1.0: kmem:kfree: ptr=1\n"),
        TraceError::NotParquet { .. }
    ));
    for cut in [4, 12, whole.len() / 2, whole.len() - 1] {
        let error = open("cut", &whole[..cut]);
        assert!(
            matches!(error, TraceError::TruncatedParquet { .. }),
            "{error}"
        );
    }
    assert!(matches!(
        TraceFile::open(dir.path()),
        Err(TraceError::Read { .. })
    ));
    assert!(matches!(
        TraceFile::open(dir.path().join("absent")),
        Err(TraceError::Read { .. })
    ));
    assert!(matches!(
        TraceFile::from_bytes(Bytes::new()),
        Err(TraceError::Empty { .. })
    ));
}

#[test]
fn a_foreign_parquet_and_another_version_are_refused() {
    let plain = |pairs: &[(&str, &str)]| {
        use parquet::file::metadata::KeyValue;
        use parquet::file::properties::WriterProperties;
        use parquet::file::writer::SerializedFileWriter;
        let properties = WriterProperties::builder().set_created_by(WRITER.to_string());
        let properties = properties.build();
        let mut out = Vec::new();
        let mut file =
            SerializedFileWriter::new(&mut out, crate::schema::schema(), properties.into())
                .unwrap();
        for (key, value) in pairs {
            file.append_key_value_metadata(KeyValue::new(key.to_string(), value.to_string()));
        }
        file.close().unwrap();
        TraceFile::from_bytes(out).unwrap_err()
    };
    assert!(matches!(plain(&[]), TraceError::ForeignParquet { .. }));
    let version = plain(&[(VERSION_KEY, "99")]).to_string();
    assert!(
        version.contains("format version 99, this program reads versions 1 to 2"),
        "{version}"
    );
    let sum = format!("{:x}", Checksum::of(b"{"));
    let meta = plain(&[(VERSION_KEY, "2"), (META_KEY, "{"), (CHECKSUM_KEY, &sum)]);
    assert!(matches!(meta, TraceError::Metadata { .. }), "{meta}");
    let unsummed = plain(&[(VERSION_KEY, "1"), (META_KEY, "{")]);
    assert!(
        matches!(unsummed, TraceError::Inconsistent { .. }),
        "{unsummed}"
    );
    assert!(matches!(
        plain(&[(VERSION_KEY, "1")]),
        TraceError::ForeignParquet { key: META_KEY, .. }
    ));
}

/// Another program may write rows in any order, or add a step back to those that a recording has.
#[test]
fn foreign_rows_out_of_order_are_refused() {
    let with_steps = |told: &str| {
        let mut out = Vec::new();
        let mut trace = TraceBuilder::new(&mut out, Path::new("t"), 1).unwrap();
        for (n, time_ns) in [5, 5, 9, 7, 7, 8].into_iter().enumerate() {
            let address = (1 << 40) + ((n as u64) << 12);
            let event = RawEvent {
                time_ns,
                bytes_req: 8,
                bytes_alloc: 8,
                ..RawEvent::new(Kind::Kmalloc, address)
            };
            trace.push(&event).unwrap();
        }
        trace.finish().unwrap();
        assert!(
            TraceFile::from_bytes(out.clone()).is_ok(),
            "our own files are as they were recorded"
        );
        let mut replace = |from: &str, to: &str| {
            let at = out
                .windows(from.len())
                .rposition(|part| part == from.as_bytes());
            let at = at.unwrap_or_else(|| panic!("{from} is in the footer"));
            out[at..at + to.len()].copy_from_slice(to.as_bytes());
        };
        replace(WRITER, "another writ");
        replace(
            "\"time_regressions\":1",
            &format!("\"time_regressions\":{told}"),
        );
        TraceFile::from_bytes(out)
    };
    let error = with_steps("0").unwrap_err().to_string();
    let part = "row 4 is of 0.000000007 s, the row before it of 0.000000009 s: a replay needs rows in the order";
    assert!(error.contains(part), "{error}");
    // As many as the recording had.
    assert_eq!(with_steps("1").unwrap().meta().time_regressions, 1);
}

/// Writes one good row and one that is changed, under a footer that allows 2 CPUs, 1 slot, 1 cache.
fn forged(
    change: impl FnOnce(&mut Row),
    meta_change: impl FnOnce(&mut TraceMeta),
) -> Result<Vec<ReplayEvent>> {
    let event = ReplayEvent {
        time_ns: 5,
        object: 0,
        bytes_req: 8,
        cache: 0,
        cpu: 1,
        kind: Kind::Kmalloc,
        flags: Flags::default(),
        order: 0,
        place: -1,
    };
    let mut texts = Texts::default();
    let comm = texts.comms.id(b"x");
    let good = Row {
        event,
        pid: 1,
        comm,
        cache_name: NO_TEXT,
        bytes_alloc: 8,
        gfp_flags: NO_TEXT,
        node: -1,
        migratetype: -1,
        call_site: NO_TEXT,
        page: NO_PAGE,
        stack: NO_TEXT,
        pfn: NO_PFN,
    };
    let mut bad = good;
    change(&mut bad);
    let mut meta = TraceFile::from_bytes(pairs(1)).unwrap().meta().clone();
    (meta.cpus, meta.object_slots, meta.page_slots) = (2, 1, 1);
    meta.slab_memory = Some(SlabMemory {
        pages: 5,
        ..SlabMemory::default()
    });
    let mut out = Vec::new();
    let mut writer = TraceWriter::new(&mut out, Path::new("t"), 1).unwrap();
    writer.push(good, &texts).unwrap();
    writer.push(bad, &texts).unwrap();
    meta_change(&mut meta);
    writer.finish(&mut meta, &texts).unwrap();
    let trace = TraceFile::from_bytes(out)?;
    let (mut rows, mut chunk) = (trace.rows(), Vec::new());
    while rows.next_chunk(&mut chunk)? {}
    drain(&trace)
}

#[test]
fn impossible_rows_are_named() {
    assert_eq!(forged(|_| (), |_| ()).unwrap().len(), 2);
    let page = |row: &mut Row| (row.event.kind, row.event.cache) = (Kind::MmPageAlloc, NO_CACHE);
    assert!(forged(page, |_| ()).is_ok());
    let slab = |row: &mut Row| {
        page(row);
        row.event.flags = Flags::SLAB;
    };
    assert!(forged(slab, |_| ()).is_ok());
    assert!(forged(|row| row.page = 9, |_| ()).is_ok());
    let unknown = |row: &mut Row| {
        (row.event.kind, row.event.flags) = (Kind::Kfree, Flags::UNKNOWN);
        (row.event.cache, row.event.object) = (NO_CACHE, NO_OBJECT);
    };
    assert!(forged(unknown, |_| ()).is_ok());
    type Change = Box<dyn FnOnce(&mut Row)>;
    let changes: Vec<(&str, Change)> = vec![
        (
            "cpu = 2 is impossible (below 2)",
            Box::new(|row| row.event.cpu = 2),
        ),
        ("cache_id = 7 is", Box::new(|row| row.event.cache = 7)),
        (
            "cache_id = -1 is",
            Box::new(|row| row.event.cache = NO_CACHE),
        ),
        (
            "object = 1 is impossible (below 1",
            Box::new(|row| row.event.object = 1),
        ),
        (
            "object = -1 is",
            Box::new(|row| row.event.object = NO_OBJECT),
        ),
        (
            "object = 0 is",
            Box::new(|row| row.event.flags = Flags::UNKNOWN),
        ),
        ("order = 21 is", Box::new(|row| row.event.order = 21)),
        (
            "flags = 128 is impossible (below 128)",
            Box::new(|row| row.event.flags = Flags::SLAB),
        ),
        (
            "page = 10 is impossible (below 10)",
            Box::new(|row| row.page = 10),
        ),
        (
            "bytes_req = -1 is",
            Box::new(|row| row.event.bytes_req = u32::MAX),
        ),
        (
            "time_ns = -1 is",
            Box::new(|row| row.event.time_ns = u64::MAX),
        ),
        ("node = 2000 is", Box::new(|row| row.node = 2000)),
        ("migratetype = 99 is", Box::new(|row| row.migratetype = 99)),
        (
            "cache_id = 0 is",
            Box::new(|row| row.event.kind = Kind::MmPageAlloc),
        ),
    ];
    for (expect, change) in changes {
        let message = forged(change, |_| ()).unwrap_err().to_string();
        assert!(
            message.contains("row 2: ") && message.contains(expect),
            "{expect}: {message}"
        );
    }
}

#[test]
fn a_footer_that_contradicts_itself_is_refused() {
    type Change = fn(&mut TraceMeta);
    let changes: [(&str, Change); 4] = [
        ("cpus", |meta| meta.cpus = 0),
        ("object_slots", |meta| meta.object_slots = 3),
        ("caches", |meta| meta.caches.clear()),
        ("resolved cache", |meta| meta.caches[0].resolved = 9),
    ];
    for (what, change) in changes {
        let message = forged(|_| (), change).unwrap_err().to_string();
        assert!(
            message.contains(&format!("the footer says {what} =")),
            "{message}"
        );
    }
}

#[test]
fn damage_never_goes_unseen() {
    let whole = pairs(2000);
    let good = drain(&TraceFile::from_bytes(whole.clone()).unwrap()).unwrap();
    let mut state = 88_172_645_463_325_252_u64;
    let mut seen = 0;
    for _ in 0..400 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut damaged = whole.clone();
        let at = state as usize % damaged.len();
        damaged[at] ^= 1 << (state >> 61);
        match TraceFile::from_bytes(damaged).and_then(|trace| drain(&trace)) {
            Ok(events) => assert_eq!(events, good, "byte {at}"),
            Err(_) => seen += 1,
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn files_of_version_1_read() {
    let trace = TraceFile::from_bytes(&include_bytes!("../../tests/data/version1.parquet")[..]);
    let trace = trace.unwrap();
    let meta = trace.meta();
    assert_eq!(
        (meta.format_version, meta.rows, meta.slab_memory),
        (1, 6, None)
    );
    let (mut rows, mut chunk) = (trace.rows(), Vec::new());
    assert!(rows.next_chunk(&mut chunk).unwrap());
    assert!(chunk.iter().all(|row| row.place.is_none()));
    assert_eq!(
        chunk.into_iter().map(|row| row.event).collect::<Vec<_>>(),
        drain(&trace).unwrap()
    );
}
