//! Imports a recording, decodes the trace, and prints how fast both were.
//!
//! `cargo run --release -p quarry-trace --example trace_speed -- kmem.txt.gz [zstd level] [repeat]`

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use quarry_trace::{ImportOptions, TraceFile, import};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(
        args.next()
            .ok_or("usage: trace_speed FILE [zstd level] [repeat]")?,
    );
    let zstd_level = args.next().map_or(Ok(9), |level| level.parse())?;
    let repeat: usize = args.next().map_or(Ok(20), |repeat| repeat.parse())?;
    let mut text = Vec::new();
    std::fs::File::open(&path)?.read_to_end(&mut text)?;

    let options = ImportOptions {
        zstd_level,
        ..ImportOptions::default()
    };
    let mut trace = Vec::new();
    let start = Instant::now();
    let summary = import(
        text.as_slice(),
        &path,
        &mut trace,
        "<memory>".as_ref(),
        &options,
        &mut |_| (),
    )?;
    let seconds = start.elapsed().as_secs_f64();
    let rows = summary.meta.rows as f64;
    println!(
        "import: {} lines in {seconds:.3} s = {:.2} M lines/s; {} rows, {} bytes = {:.2} B/row",
        summary.lines,
        summary.lines as f64 / seconds / 1e6,
        summary.meta.rows,
        trace.len(),
        trace.len() as f64 / rows,
    );
    println!(
        "{:#?}\n{:#?}",
        summary.meta.orphans, summary.meta.cache_resolution
    );

    let trace = TraceFile::from_bytes(trace)?;
    let mut chunk = Vec::new();
    let mut best = f64::INFINITY;
    for _ in 0..repeat {
        let start = Instant::now();
        let mut events = trace.events();
        let mut sum = 0_u64;
        while events.next_chunk(&mut chunk)? {
            sum += chunk
                .iter()
                .map(|event| u64::from(event.object))
                .sum::<u64>();
        }
        std::hint::black_box(sum);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "decode: {:.1} M events/s, best of {repeat}",
        rows / best / 1e6
    );
    Ok(())
}
