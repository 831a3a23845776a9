//! Recordings of perf and trace-cmd in binary form, beside the text that the same tool printed of the same file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use quarry_trace::{FullRow, ImportOptions, TraceError, TraceFile, TraceMeta, import};

/// Files of `tests/data/binary` (its README says how they were made) and their texts.
const RECORDINGS: [(&str, &str); 5] = [
    ("perf.data", "perf.txt"),
    ("trace-cmd-v6.dat", "trace-cmd-v6.txt"),
    ("trace-cmd-v6-old.dat", "trace-cmd-v6.txt"),
    ("trace-cmd-v7.dat", "trace-cmd-v7.txt"),
    ("trace-cmd-v7n.dat", "trace-cmd-v7n.txt"),
];

fn unpacked(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/binary");
    let file = File::open(folder.join(format!("{name}.gz"))).unwrap();
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

#[test]
fn files_import_as_their_texts() {
    for (file, text) in RECORDINGS {
        let (meta, rows) = imported(&unpacked(file), None).expect(file);
        let (text_meta, text_rows) = imported(&unpacked(text), Some(4096)).expect(text);
        assert_eq!(meta.events, text_meta.events, "{file}");
        assert_eq!(rows.len(), text_rows.len(), "{file}");
        for (n, (mut row, mut text_row)) in rows.into_iter().zip(text_rows).enumerate() {
            // perf.data has no symbols: perf script looked them up in the running kernel. trace-cmd prints an
            // address far from any symbol as a number.
            let number =
                |site: &Option<String>| site.as_ref().is_some_and(|site| site.starts_with("0x"));
            if file == "perf.data" || number(&text_row.call_site) {
                (row.call_site, text_row.call_site) = (None, None);
            }
            if text_row.comm == "<idle>" {
                // perf's name for the thread that idles.
                text_row.comm = "swapper".to_string();
            }
            assert_eq!(row, text_row, "{file}: row {n}");
        }
        assert_eq!(meta.kernel.as_deref(), Some("6.18.44-fc-v657"), "{file}");
        assert_eq!((meta.cpus, meta.page_size), (2, 4096), "{file}");
        assert_eq!(meta.arch.as_deref(), Some("x86_64"), "{file}");
        assert_eq!(meta.lost_events, text_meta.lost_events, "{file}");
        if file == "perf.data" {
            assert_eq!(meta.command, text_meta.command);
        }
    }
}

/// trace-cmd before 2.9 has the clocks behind the CPUs' table, or none.
#[test]
fn the_clock_of_old_files() {
    let whole = unpacked("trace-cmd-v6-old.dat");
    let text = b"[local] global counter";
    let at = whole.windows(text.len()).position(|part| part == text);
    let at = at.expect("the clocks");
    let with = |from: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[from..from + bytes.len()].copy_from_slice(bytes);
        imported(&file, None)
    };
    // The text, its length, and a length that no text has.
    for missing in [
        with(at, &[0; 62]),
        with(at - 8, &[0; 8]),
        with(at - 8, &[0xff; 8]),
    ] {
        assert_eq!(missing.expect("the local clock").0.events.total(), 501);
    }
    let error = with(at, b" local  global [counter]")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("its clock is counter, which does not count nanoseconds"),
        "{error}"
    );
}

/// Whatever is missing or damaged, an import ends with a trace or an error.
#[test]
fn damaged_files_are_no_panic() {
    for (file, _) in RECORDINGS {
        let whole = unpacked(file);
        let events = imported(&whole, None).unwrap().0.events;
        for cut in (0..whole.len()).step_by(whole.len() / 150) {
            // Nothing that is missing goes unnoticed; what follows the events may be missing.
            if let Ok((meta, _)) = imported(&whole[..cut], None) {
                assert_eq!(meta.events, events, "{file} cut at {cut}");
            }
        }
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..150 {
            let mut damaged = whole.clone();
            for _ in 0..3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Most lengths and places are in the first thousand bytes.
                let range = if random & 1 == 0 { 1024 } else { damaged.len() };
                let at = (random >> 8) as usize % range.min(damaged.len());
                damaged[at] = (random >> 48) as u8;
            }
            let _ = imported(&damaged, None);
        }
    }
}
