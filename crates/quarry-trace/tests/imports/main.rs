//! Recordings that other programs made, in every form that is imported.

mod binary;
mod mutated;
mod pasted;
mod texts;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use quarry_trace::{FullRow, ImportOptions, TraceError, TraceFile, TraceMeta, import};

/// A file of `tests/data`, without the gzip around it.
fn unpacked_of(folder: &str, name: &str) -> Vec<u8> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let file = File::open(data.join(folder).join(format!("{name}.gz"))).unwrap();
    let mut bytes = Vec::new();
    MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

fn imported(file: &[u8], page_size: Option<u32>) -> Result<(TraceMeta, Vec<FullRow>), TraceError> {
    let options = ImportOptions {
        page_size,
        zstd_level: 1,
        ..ImportOptions::default()
    };
    let (name, mut out) = (Path::new("recording"), Vec::new());
    let summary = import(file, name, &mut out, name, &options, &mut |_| ())?;
    let trace = TraceFile::from_bytes(out)?;
    let (mut rows, mut chunk) = (Vec::new(), Vec::new());
    let mut reader = trace.rows();
    while reader.next_chunk(&mut chunk)? {
        rows.append(&mut chunk);
    }
    Ok((summary.meta, rows))
}

/// The bytes with three of them changed; most lengths and places of a binary form are in the first thousand.
fn damage(whole: &[u8], random: &mut u64) -> Vec<u8> {
    let mut damaged = whole.to_vec();
    for _ in 0..3 {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let range = if *random & 1 == 0 {
            1024
        } else {
            damaged.len()
        };
        let at = (*random >> 8) as usize % range.min(damaged.len());
        damaged[at] = (*random >> 48) as u8;
    }
    damaged
}
