//! Memory of a replay per object that is alive, beyond the simulated memory.
//!
//! Two traces that keep different numbers of objects alive are replayed, each in a process of its
//! own; the difference of the peaks of resident memory, less that of the simulated memory, is what
//! an object costs. `QUARRY_MEMORY_OBJECTS=1000000,3000000` chooses other numbers.

use std::path::{Path, PathBuf};
use std::process::Command;

use quarry_designs::DesignSpec;
use quarry_lab::Plan;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_trace::{Kind, RawEvent, TraceBuilder};

const TRACE: &str = "QUARRY_MEMORY_TRACE";
const DESIGN: &str = "QUARRY_MEMORY_DESIGN";
const OBJECT_BYTES: u32 = 64;

/// `count` allocations, every fourth followed by a free and a new allocation.
fn write_trace(path: &Path, count: u64) {
    let file = std::fs::File::create(path).unwrap();
    let mut trace = TraceBuilder::new(file, path, 1).unwrap();
    let event = |kind, n: u64, time_ns| RawEvent {
        time_ns,
        cpu: (n % 2) as u16,
        cache: Some(b"demo"),
        bytes_req: OBJECT_BYTES,
        bytes_alloc: OBJECT_BYTES,
        ..RawEvent::new(kind, 0xffff_8880_0000_0000 + n * 64)
    };
    for n in 0..count {
        trace.push(&event(Kind::KmemCacheAlloc, n, n)).unwrap();
        if n % 4 == 0 {
            trace.push(&event(Kind::KmemCacheFree, n, n)).unwrap();
            trace.push(&event(Kind::KmemCacheAlloc, n, n)).unwrap();
        }
    }
    trace.finish().unwrap();
}

fn resident_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Runs in a process of its own: see below.
#[test]
#[ignore = "started by the other test"]
fn child_replays() {
    let Ok(trace) = std::env::var(TRACE) else {
        return;
    };
    let axes = Axes {
        designs: vec![DesignSpec::parse(&std::env::var(DESIGN).unwrap()).unwrap()],
        cpus: vec![2],
        ..Axes::default()
    };
    let input = Input::open(&trace).unwrap();
    let runs = Plan::new(&axes)
        .unwrap()
        .execute(&input, 1, &|_| ())
        .unwrap();
    // SLUB links all free objects through themselves, so it touches all of its slabs; SLUB with
    // queues touches no object. Both have a descriptor of 64 bytes for each page.
    let peak_slab_bytes = runs[0].peak_slab_bytes.unwrap();
    let slabs = if runs[0].design == "slub" {
        peak_slab_bytes
    } else {
        0
    };
    let simulated = slabs + peak_slab_bytes / 4096 * 64 + runs[0].overhead_bytes;
    println!("\nresult {} {simulated}", resident_peak_bytes());
}

/// Resident and simulated bytes of a replay in a process of its own.
fn measure(trace: &PathBuf, design: &str) -> (f64, f64) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child_replays", "--exact", "--ignored", "--nocapture"])
        .env(TRACE, trace)
        .env(DESIGN, design)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("result "));
    let numbers: Vec<f64> = line
        .unwrap_or_else(|| panic!("{text}"))
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    (numbers[0], numbers[1])
}

#[test]
fn an_object_costs_at_most_64_bytes() {
    let counts = std::env::var("QUARRY_MEMORY_OBJECTS").unwrap_or("200000,600000".to_string());
    let counts: Vec<u64> = counts
        .split(',')
        .map(|count| count.parse().unwrap())
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let traces: Vec<PathBuf> = counts
        .iter()
        .map(|count| {
            let path = dir.path().join(format!("{count}.parquet"));
            write_trace(&path, *count);
            path
        })
        .collect();
    for design in ["slub", "slubq"] {
        let measured: Vec<(f64, f64)> = traces.iter().map(|trace| measure(trace, design)).collect();
        let objects = (counts[1] - counts[0]) as f64;
        let resident = (measured[1].0 - measured[0].0) / objects;
        let simulated = (measured[1].1 - measured[0].1) / objects;
        let own = resident - simulated;
        println!(
            "{design}: {counts:?} objects alive: {resident:.1} bytes resident each, of them \
             {simulated:.1} simulated memory, {own:.1} the replay's own"
        );
        assert!(own <= 64.0, "{design}: {own} bytes");
        assert!(
            own >= 0.0,
            "{design}: {own} bytes: the measurement is wrong"
        );
    }
}
