//! Changed copies of the fuzzer's seeds: each import ends with a trace that can be read, or with an error.

use std::path::Path;

use quarry_trace::{ImportOptions, TraceFile, import};

use crate::damage;

/// Seeds of these forms, and the number of copies of each: all with `QUARRY_SOAK` set, otherwise a quarter.
const SEEDS: [(&str, u32); 7] = [
    ("ftrace-fields", 2000),
    ("lttng", 2000),
    ("perfetto", 2000),
    ("trace-cmd-v6-old", 2000),
    ("trace-cmd-v7", 300),
    ("perf-6.18", 300),
    ("perf-data", 300),
];

#[test]
fn mutated_recordings_are_no_panic() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/import");
    let part = match std::env::var_os("QUARRY_SOAK") {
        Some(_) => 1,
        None => 4,
    };
    for (seed, copies) in SEEDS.map(|(seed, copies)| (seed, copies / part)) {
        let whole = std::fs::read(seeds.join(seed)).unwrap();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut read = 0;
        for copy in 0..copies {
            let damaged = damage(&whole, &mut random);
            let options = ImportOptions {
                skip_bad: copy % 2 == 1,
                zstd_level: 1,
                ..ImportOptions::default()
            };
            let (name, mut out) = (Path::new("recording"), Vec::new());
            if import(&damaged[..], name, &mut out, name, &options, &mut |_| ()).is_ok() {
                let trace = TraceFile::from_bytes(out).expect("an imported trace is read");
                let (mut rows, mut chunk) = (trace.rows(), Vec::new());
                while rows.next_chunk(&mut chunk).expect("rows") {
                    chunk.clear();
                }
                read += 1;
            }
        }
        // A form that nothing is read of tests nothing.
        assert!(read > 20, "{seed}: {read} of {copies} are read");
    }
}
