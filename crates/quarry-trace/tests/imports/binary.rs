//! Recordings of perf and trace-cmd in binary form, beside the text that the same tool printed of the same file.

use std::io::Write;

use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};

use crate::{damage, imported, unpacked_of};

/// Files of `tests/data/binary` (its README says how they were made) and their texts.
const RECORDINGS: [(&str, &str); 5] = [
    ("perf.data", "perf.txt"),
    ("trace-cmd-v6.dat", "trace-cmd-v6.txt"),
    ("trace-cmd-v6-old.dat", "trace-cmd-v6.txt"),
    ("trace-cmd-v7.dat", "trace-cmd-v7.txt"),
    ("trace-cmd-v7n.dat", "trace-cmd-v7n.txt"),
];

fn unpacked(name: &str) -> Vec<u8> {
    unpacked_of("binary", name)
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

/// Perfetto's events have no caches and no names of flags.
#[test]
fn perfetto_imports_as_the_text_of_its_events() {
    let (meta, rows) = imported(&unpacked("perfetto.pftrace"), None).unwrap();
    let (text_meta, text_rows) = imported(&unpacked("trace-cmd-v6.txt"), Some(4096)).unwrap();
    assert_eq!(meta.source, "Perfetto trace");
    assert_eq!(meta.events, text_meta.events);
    assert_eq!(meta.orphans, text_meta.orphans);
    assert_eq!(meta.kernel.as_deref(), Some("6.18.44-fc-v657"));
    assert_eq!(meta.arch.as_deref(), Some("x86_64"));
    assert_eq!((meta.cpus, meta.page_size, meta.lost_events), (2, 4096, 7));
    let other = &meta.other_event_names.entries;
    assert_eq!((other.len(), other[0].0.as_str()), (1, "sched_waking"));
    assert_eq!(rows.len(), text_rows.len());
    for (n, (row, text)) in rows.iter().zip(&text_rows).enumerate() {
        let (event, expect) = (&row.event, &text.event);
        assert_eq!(
            (event.time_ns, event.cpu, event.kind),
            (expect.time_ns, expect.cpu, expect.kind),
            "row {n}"
        );
        assert_eq!(
            (event.object, event.order, event.place),
            (expect.object, expect.order, expect.place),
            "row {n}"
        );
        assert_eq!(
            (event.bytes_req, row.bytes_alloc),
            (expect.bytes_req, text.bytes_alloc),
            "row {n}"
        );
        assert_eq!(
            (row.pid, &row.call_site),
            (text.pid, &text.call_site),
            "row {n}"
        );
        let idle = text.comm == "<idle>";
        assert_eq!(
            row.comm,
            if idle { "swapper" } else { &text.comm },
            "row {n}"
        );
        assert_eq!(row.gfp_flags.is_some(), text.gfp_flags.is_some(), "row {n}");
    }
    let whole = unpacked("perfetto.pftrace");
    let error = imported(&whole[..whole.len() - 9], None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("this Perfetto trace cannot be read")
            && error.contains("cut off or damaged"),
        "{error}"
    );
}

/// A recording in gzip, xz or zstd is the recording.
#[test]
fn packed_recordings_are_unpacked() {
    for name in [
        "perfetto.pftrace",
        "trace-cmd-v7.dat",
        "perf.data",
        "perf.txt",
    ] {
        let whole = unpacked(name);
        let (meta, rows) = imported(&whole, None).unwrap();
        for packed in packed(&whole) {
            let (packed_meta, packed_rows) = imported(&packed, None).unwrap();
            assert_eq!((&packed_meta.source, &packed_rows), (&meta.source, &rows));
            let cut = imported(&packed[..packed.len() / 2], None);
            let error = cut.unwrap_err().to_string();
            assert!(error.contains("recording"), "{error}");
        }
    }
}

/// The bytes in gzip, xz and zstd.
fn packed(whole: &[u8]) -> [Vec<u8>; 3] {
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(whole).unwrap();
    let mut xz = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    xz.write_all(whole).unwrap();
    let zstd = zstd::encode_all(whole, 1).unwrap();
    [gzip.finish().unwrap(), xz.finish().unwrap(), zstd]
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
            let damaged = damage(&whole, &mut random);
            let _ = imported(&damaged, None);
        }
    }
}
