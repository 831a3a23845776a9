//! Every field set, every error, and the orphan rule, on small texts.

use std::path::Path;

use super::*;
mod errors;
mod formats;
mod rule;

use crate::event::FullRow;
use crate::read::TraceFile;

const P: &str = "bash 7/8 [001] 1.5: kmem:";
const A: &str = "ptr=0xffff888100000000";

fn options() -> ImportOptions {
    ImportOptions {
        zstd_level: 1,
        ..ImportOptions::default()
    }
}

fn run(text: &[u8], options: &ImportOptions) -> Result<TraceFile> {
    let mut out = Vec::new();
    let name = Path::new("t.txt");
    import(text, name, &mut out, "out".as_ref(), options, &mut |_| ())?;
    TraceFile::from_bytes(out)
}

fn rows(trace: &TraceFile) -> Vec<FullRow> {
    let (mut rows, mut reader, mut chunk) = (Vec::new(), trace.rows(), Vec::new());
    while reader.next_chunk(&mut chunk).unwrap() {
        rows.append(&mut chunk);
    }
    rows
}

/// Imports lines and gives the trace and its rows.
fn good(lines: &[String]) -> (TraceFile, Vec<FullRow>) {
    let trace = run(format!("{}\n", lines.join("\n")).as_bytes(), &options()).unwrap();
    let rows = rows(&trace);
    (trace, rows)
}

fn one(line: &str) -> FullRow {
    good(&[line.to_string()]).1.remove(0)
}

fn error(text: &str) -> String {
    run(text.as_bytes(), &options()).unwrap_err().to_string()
}

fn kmalloc(ptr: u64, req: u32, alloc: u32) -> String {
    format!(
        "{P}kmalloc: call_site=f+0x1 ptr={ptr:#x} bytes_req={req} bytes_alloc={alloc} gfp_flags=GFP_KERNEL"
    )
}

fn cache_alloc(site: &str, ptr: u64, size: u32) -> String {
    format!(
        "{P}kmem_cache_alloc: call_site={site} ptr={ptr:#x} bytes_req={size} bytes_alloc={size} gfp_flags=GFP_NOFS node=-1 accounted=true"
    )
}

fn page(event: &str, pfn: u64, order: u8) -> String {
    format!("{P}{event}: page=0x1 pfn={pfn:#x} order={order} migratetype=0 gfp_flags=GFP_KERNEL")
}

fn kfree(ptr: u64) -> String {
    format!("{P}kfree: call_site=g+0x2 ptr={ptr:#x}")
}
