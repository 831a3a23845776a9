//! Texts of ftrace and of LTTng.

use quarry_trace::{Kind, TraceError};

use crate::{imported, unpacked_of};

fn unpacked(name: &str) -> Vec<u8> {
    unpacked_of("text", name)
}

/// With its option `fields` ftrace prints the same events in another way.
#[test]
fn ftrace_prints_fields_as_it_prints_events() {
    let (meta, rows) = imported(&unpacked("ftrace-6.18.txt"), Some(4096)).unwrap();
    let (fields_meta, fields_rows) =
        imported(&unpacked("ftrace-6.18-fields.txt"), Some(4096)).unwrap();
    assert_eq!(meta.events, fields_meta.events);
    assert_eq!(meta.orphans, fields_meta.orphans);
    assert_eq!(meta.source, fields_meta.source);
    assert!(meta.events.total() > 400, "{}", meta.events.total());
    assert_eq!(rows.len(), fields_rows.len());
    for (n, (mut row, mut fields_row)) in rows.into_iter().zip(fields_rows).enumerate() {
        let flags = fields_row.gfp_flags.take();
        assert_eq!(row.gfp_flags.take().is_some(), flags.is_some(), "row {n}");
        if let Some(flags) = flags {
            assert!(flags.starts_with("0x") && !flags.contains(' '), "{flags}");
        }
        // Numbers do not say what they mean, and they alone have the __GFP_ACCOUNT of a kmalloc.
        row.event.flags = fields_row.event.flags;
        assert_eq!(row, fields_row, "row {n}");
    }
    let is_assumed = |text: &str| {
        fields_meta
            .assumptions
            .iter()
            .any(|sentence| sentence.contains(text))
    };
    assert!(
        is_assumed("allocation flags are numbers"),
        "{:?}",
        fields_meta.assumptions
    );
}

#[test]
fn lttng_as_babeltrace_prints_it() {
    let (meta, rows) = imported(&unpacked("lttng-arm.txt"), None).unwrap();
    assert_eq!(meta.source, "LTTng");
    let counts =
        [Kind::Kmalloc, Kind::Kfree, Kind::KmemCacheAlloc].map(|kind| meta.events.get(kind));
    assert_eq!((counts, meta.events.total()), ([199, 199, 2], 400));
    assert_eq!(meta.page_size, 4096);
    let first = &rows[0];
    assert_eq!(
        (first.event.cpu, first.event.time_ns),
        (1, 30_961_211_260_539)
    );
    assert_eq!((first.event.bytes_req, first.bytes_alloc), (712, 1024));
    assert_eq!(first.call_site.as_deref(), Some("0xBF083A6C"));
    assert_eq!(first.gfp_flags.as_deref(), Some("208"));
    let is_told = meta
        .assumptions
        .iter()
        .any(|told| told.contains("addresses have 32 bits"));
    assert!(is_told, "{:?}", meta.assumptions);
    // Every kfree but one has its allocation.
    assert!(meta.orphans.unknown_kfree <= 1, "{:?}", meta.orphans);
}

/// A time of the day begins again at midnight.
#[test]
fn lttng_past_midnight() {
    let line = |time: &str| {
        format!(
            "[{time}] (+0.1) h kmem_kfree: {{ cpu_id = 0 }}, {{ call_site = 0x1, ptr = 0xFFFF888100000000 }}\n"
        )
    };
    let text = ["23:59:59.5", "00:00:00.25", "00:00:01.25"]
        .map(line)
        .concat();
    let (meta, rows) = imported(text.as_bytes(), None).unwrap();
    let times = rows.iter().map(|row| row.event.time_ns / 1_000_000);
    let day = 86_400_000;
    assert_eq!(
        times.collect::<Vec<_>>(),
        [day - 500, day + 250, day + 1250]
    );
    assert_eq!(meta.time_steps_back, 0);
}

#[test]
fn bad_lines_of_lttng_are_named() {
    for (line, part) in [
        (
            "[1.5] h kmem_kfree: { x = 0 }, { ptr = 0x1000 }",
            "recording:2: cpu_id: missing",
        ),
        (
            "[1.5] h kmem_kfree: { cpu_id = 0 }, { pt = 0x1000 }",
            "recording:2: ptr: missing",
        ),
        (
            "[1.5] h kmem_kfree: { cpu_id = 0 }, { ptr = 0x10q0 }",
            "ptr: `0x10q0` is not an address",
        ),
        (
            "[1500] h kmem_kfree: { cpu_id = 0 }, { ptr = 0x1000 }",
            "`1500` is not a time; print the recording with babeltrace2 --clock-seconds",
        ),
        (
            "[1.5] h kmem_kmalloc: { cpu_id = 0 }, { ptr = 0x1000, bytes_req = 8 }",
            "bytes_alloc: missing",
        ),
    ] {
        let good = "[1.5] h kmem_kfree: { cpu_id = 0 }, { ptr = 0xFFFF888100000000 }";
        let error = imported(format!("{good}\n{line}\n").as_bytes(), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part) && error.contains(line), "{error}");
    }
}

/// The error lists the events that a recording has in place of kmem's, of text and of a file.
#[test]
fn recordings_without_kmem_events() {
    let text = "\
  bash 7/8 [001] 1.5: sched:sched_switch: a
  bash 7/8 [001] 1.6: sched:sched_switch: b
  bash 7/8 [001] 1.7: irq:softirq_entry: vec=1
";
    let error = imported(text.as_bytes(), None).unwrap_err();
    assert!(matches!(error, TraceError::NoKmemEvents { .. }), "{error}");
    let error = error.to_string();
    let part = "recording: no kmem event, but sched:sched_switch (2), irq:softirq_entry (1); record kmem:kmalloc";
    assert!(error.contains(part), "{error}");

    let mut file = unpacked_of("binary", "trace-cmd-v6.dat");
    for name in [
        "kmalloc",
        "kfree",
        "kmem_cache_alloc",
        "kmem_cache_free",
        "mm_page_alloc",
        "mm_page_free",
    ] {
        let format = format!("name: {name}\n");
        let at = file
            .windows(format.len())
            .position(|part| part == format.as_bytes());
        file[at.unwrap() + format.len() - 2] = b'X';
    }
    let error = imported(&file, None).unwrap_err().to_string();
    assert!(
        error.contains("no kmem event, but kmem_cache_freX (190),"),
        "{error}"
    );
}

/// A folder of LTTng is no text: the error says how to print it.
#[test]
fn folders_of_lttng_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let import = |path: &std::path::Path| {
        let out = folder.path().join("out.parquet");
        let options = quarry_trace::ImportOptions::default();
        let error = quarry_trace::import_file(path, &out, &options, &mut |_| ());
        error.unwrap_err().to_string()
    };
    let kernel = folder.path().join("session-1/kernel");
    std::fs::create_dir_all(&kernel).unwrap();
    assert!(
        import(&kernel).starts_with("cannot read"),
        "{}",
        import(&kernel)
    );
    std::fs::write(kernel.join("metadata"), b"\x57\x1d\xd1\x75rest").unwrap();
    std::fs::write(kernel.join("channel0_0"), b"\xc1\x1f\xfc\xc1rest").unwrap();
    for part in [
        "",
        "session-1",
        "session-1/kernel",
        "session-1/kernel/metadata",
        "session-1/kernel/channel0_0",
    ] {
        let error = import(&folder.path().join(part));
        let told = "this is a recording of LTTng (CTF), not text; print its folder: `babeltrace2 --clock-seconds FOLDER | quarry import";
        assert!(error.contains(told), "{error}");
    }
}
