//! Imports recordings of real kernels, where a copy of them is at hand.
//!
//! `QUARRY_SHARED` names the folder that holds `groundtruth/`; `cargo xtask recordings` sets it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use quarry_trace::{
    CacheOrigin, Flags, ImportOptions, ImportSummary, Kind, NO_OBJECT, TraceFile, import,
};

fn recordings() -> Vec<PathBuf> {
    let shared = std::env::var_os("QUARRY_SHARED").expect("the folder with groundtruth/");
    let entries = fs::read_dir(Path::new(&shared).join("groundtruth")).unwrap();
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(".kmem.txt.gz"));
    assert!(!found.is_empty(), "no recordings in {shared:?}");
    found.sort();
    found
}

/// True if the recorded kernel has sheaves on all caches, by the recording's name.
fn has_sheaves(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["-7.0", "-7.2", "-7.3"]
        .iter()
        .any(|release| name.contains(release))
}

fn import_at(path: &Path) -> (ImportSummary, Vec<u8>) {
    let mut out = Vec::new();
    let text = File::open(path).unwrap();
    let ppc64 = path.to_string_lossy().contains("ppc64");
    let options = ImportOptions {
        page_size: Some(if ppc64 { 65536 } else { 4096 }),
        ..ImportOptions::default()
    };
    let summary = import(text, path, &mut out, "out".as_ref(), &options, &mut |_| ()).unwrap();
    (summary, out)
}

/// Lines that name each tracepoint, counted without the importer.
fn grep(path: &Path) -> HashMap<&'static str, u64> {
    let mut counts = HashMap::new();
    for line in BufReader::new(MultiGzDecoder::new(File::open(path).unwrap())).lines() {
        let line = line.unwrap();
        for kind in Kind::ALL {
            let (perf, ftrace) = (
                format!("kmem:{}: ", kind.name()),
                format!(": {}: ", kind.name()),
            );
            if line.contains(&perf) || line.contains(&ftrace) {
                *counts.entry(kind.name()).or_default() += 1;
            }
        }
    }
    counts
}

/// Every id is given while dead and taken while alive; gives the number alive at the end.
fn check_ids(trace: &TraceFile) -> (u64, u64) {
    let meta = trace.meta();
    let mut alive = [
        vec![false; meta.object_slots as usize],
        vec![false; meta.page_slots as usize],
    ];
    let (mut events, mut chunk) = (trace.events(), Vec::new());
    while events.next_chunk(&mut chunk).unwrap() {
        for event in &chunk {
            if event.object == NO_OBJECT {
                assert!(event.flags.has(Flags::UNKNOWN));
                continue;
            }
            let slot = &mut alive[usize::from(event.kind.is_page())][event.object as usize];
            assert_eq!(*slot, event.kind.is_free(), "{event:?}");
            *slot = !*slot;
        }
    }
    let count = |space: &Vec<bool>| space.iter().filter(|alive| **alive).count() as u64;
    (count(&alive[0]), count(&alive[1]))
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn recordings_of_real_kernels_import_whole() {
    for path in recordings() {
        let (summary, bytes) = import_at(&path);
        let meta = &summary.meta;
        let counts = grep(&path);
        for kind in Kind::ALL {
            let expect = counts.get(kind.name()).copied().unwrap_or(0);
            assert_eq!(
                meta.events.get(kind),
                expect,
                "{} {}",
                path.display(),
                kind.name()
            );
        }
        assert_eq!(
            (meta.skipped_lines, meta.other_events, meta.lost_events),
            (0, 0, 0),
            "{}",
            path.display()
        );
        let rows = meta.events.total() - meta.null_frees - meta.failed_allocs
            + meta.orphans.implied_frees();
        assert_eq!(meta.rows, rows);
        let bytes_out = bytes.len();
        let trace = TraceFile::from_bytes(bytes).unwrap();
        assert_eq!(trace.meta(), meta);
        let alive = check_ids(&trace);
        assert_eq!(
            alive,
            (
                meta.orphans.never_freed_objects,
                meta.orphans.never_freed_pages
            )
        );
        assert!(!meta.hashed_addresses && meta.cpus <= 4);
        println!(
            "{}: {} rows, {:.2} B/row, {} objects, {} caches ({} synthetic), {:?}",
            path.file_name().unwrap().to_string_lossy(),
            meta.rows,
            bytes_out as f64 / meta.rows as f64,
            meta.object_slots,
            meta.canonical_caches().count(),
            meta.caches
                .iter()
                .filter(|cache| cache.origin == CacheOrigin::Synthetic)
                .count(),
            meta.orphans,
        );
    }
}

/// Allocation flags and order tell what a page block is for, with few exceptions that these recordings
/// do not contain: slabs ask for pages with flags of their own, and SLOB, which does not, shares them
/// with no other user of pages here. So marks, which come from addresses alone, agree for all blocks of
/// the same flags and order.
///
/// Where every cache has sheaves, a new slab's objects go to a sheaf without an event. A slab with no
/// object handed out by the end of the recording has no mark: at most 1 in 20.
#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn marks_of_slabs_agree_with_allocation_flags() {
    for path in recordings() {
        let (summary, bytes) = import_at(&path);
        let found = summary.meta.slab_memory.expect("addresses and page events");
        let trace = TraceFile::from_bytes(bytes).unwrap();
        let mut marked: HashMap<(String, u8), [u64; 2]> = HashMap::new();
        let (mut rows, mut chunk) = (trace.rows(), Vec::new());
        let (mut paged, mut alive) = (0_u64, HashMap::new());
        while rows.next_chunk(&mut chunk).unwrap() {
            for row in &chunk {
                let (event, slab) = (&row.event, row.event.flags.has(Flags::SLAB));
                paged += u64::from(row.place.is_some());
                match event.kind {
                    Kind::MmPageAlloc => {
                        let flags = row.gfp_flags.clone().unwrap();
                        marked.entry((flags, event.order)).or_default()[usize::from(slab)] += 1;
                        alive.insert(event.object, slab);
                    }
                    Kind::MmPageFree if event.object != NO_OBJECT => {
                        assert_eq!(alive.remove(&event.object), Some(slab));
                    }
                    _ => assert!(event.kind.is_page() || !slab),
                }
            }
        }
        let mixed: Vec<_> = marked.iter().filter(|(_, n)| n[0] * n[1] > 0).collect();
        let allocs: u64 = marked.values().map(|n| n[1]).sum();
        let missed: u64 = mixed.iter().map(|(_, n)| n[0]).sum();
        let most = if has_sheaves(&path) { allocs / 20 } else { 0 };
        assert!(missed <= most, "{}: {mixed:?}", path.display());
        assert_eq!((allocs, found.late_allocs), (found.allocs, 0));
        println!(
            "{}: {} of {} blocks are slabs; {paged} rows with a place, {} ids; {found:?}",
            path.file_name().unwrap().to_string_lossy(),
            allocs,
            marked.values().flatten().sum::<u64>(),
            found.pages,
        );
    }
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn a_wide_recording_stays_small() {
    let mut all = recordings().into_iter();
    let path = all.find(|path| path.ends_with("hackbench-wide.kmem.txt.gz"));
    let path = path.unwrap();
    let (summary, bytes) = import_at(&path);
    let bytes_per_row = bytes.len() as f64 / summary.meta.rows as f64;
    assert!(bytes_per_row < 7.0, "{bytes_per_row}");
    assert_eq!(summary.meta.events.kfree, 38_018);
}
