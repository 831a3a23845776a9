//! Every way in which an import fails, and what it leaves behind.

use std::io::Write as _;

use super::*;

/// Each line, between two others, is refused with a message that holds what is expected.
fn check_bad(lines: &[(String, &str)]) {
    for (line, expect) in lines {
        let other = kfree(1 << 40);
        let message = error(&format!("{other}\n{line}\n{other}\n"));
        assert!(message.contains(expect), "{line}\n{message}");
        assert!(
            message.contains("t.txt:2: ") && message.contains("--skip-bad"),
            "{message}"
        );
    }
}

#[test]
fn bad_slab_lines_name_line_field_and_text() {
    check_bad(&[
        (format!("{P}kfree: call_site=f"), "t.txt:2: ptr: missing"),
        (
            format!("{P}kfree: call_site=f ptr=zz"),
            "ptr: `zz` is not an address",
        ),
        (
            format!("{P}kfree: call_site=f ptr=(____ptrval____)"),
            "`(____ptrval____)` stands for an address that is not told: the kernel prints it early in its boot",
        ),
        (
            format!("{P}kfree: call_site=f ptr=(ptrval)"),
            "`(ptrval)` stands for an address that is not told",
        ),
        (
            format!("{P}kfree: call_site=f ptr=(hidden)"),
            "boot with no_hash_pointers",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=x bytes_alloc=8 gfp_flags=0"),
            "bytes_req: `x` is not a number",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=9 bytes_alloc=8 gfp_flags=0"),
            "bytes_req: 9 is impossible, at most 8",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=0 bytes_alloc=0 gfp_flags=0"),
            "bytes_alloc: 0 is impossible",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=9 bytes_alloc=8000000000 gfp_flags=0"),
            "bytes_alloc: 8000000000",
        ),
        (
            format!("{P}kmem_cache_alloc: call_site=f {A} bytes_req=0 bytes_alloc=8 gfp_flags=0"),
            "t.txt:2: bytes_req: 0 is impossible",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=9 bytes_alloc=1073741824 gfp_flags=0"),
            "t.txt:2: bytes_alloc: 1073741824 is impossible, at most 67108864",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=9 bytes_alloc=16"),
            "gfp_flags: missing",
        ),
        (
            format!("{P}kmalloc: call_site=f {A} bytes_req=9 bytes_alloc=16 gfp_flags=0 node=5000"),
            "node: 5000",
        ),
    ]);
}

#[test]
fn bad_page_lines_and_columns_name_line_field_and_text() {
    check_bad(&[
        (
            format!("{P}mm_page_free: page=0x1 pfn=1 order=21"),
            "order: 21 is impossible, at most 20",
        ),
        (format!("{P}mm_page_free: page=0x1 order=1"), "pfn: missing"),
        (
            format!("{P}mm_page_free: page=0x1 pfn=0x8000000000000000 order=1"),
            "pfn: 9223372036854775808",
        ),
        (
            "b 1 [65536] 1.0: kmem:kfree: call_site=f ptr=1".into(),
            "cpu: 65536 is impossible, at most 65535",
        ),
        (
            "b 1 [000] 123: kmem:kfree: call_site=f ptr=1".into(),
            "time: `123` is not a time",
        ),
        (
            "b 1 1.0: kmem:kfree: call_site=f ptr=1".into(),
            "cpu: the column is missing; use `perf script",
        ),
        (
            "b 1 [000] kmem:kfree: call_site=f ptr=1".into(),
            "time: the column is missing",
        ),
        (
            "b [000] 1.0: kmem:kfree: call_site=f ptr=1".into(),
            "pid: the column is missing",
        ),
    ]);
}

#[test]
fn skipping_bad_lines_counts_them() {
    let text = format!(
        "{}\n{P}kfree: call_site=f ptr=zz\n{}\nbash 7/8 [001] 1.",
        kfree(1 << 40),
        kfree(2 << 40)
    );
    let skip = ImportOptions {
        skip_bad: true,
        ..options()
    };
    let trace = run(text.as_bytes(), &skip).unwrap();
    assert_eq!((trace.meta().rows, trace.meta().skipped_lines), (2, 2));
    assert!(
        trace
            .meta()
            .first_skipped
            .as_deref()
            .unwrap()
            .starts_with("t.txt:2: ptr:")
    );
}

#[test]
fn what_is_no_recording_is_told_apart() {
    assert!(error("").contains("the file is empty"));
    assert!(
        error("PERFILE2xxxxxxxxx").contains("this perf.data cannot be read: a part of 8 bytes")
    );
    let of_pipe = error("PERFILE2\u{10}\0\0\0\0\0\0\0");
    assert!(
        of_pipe.contains("record with perf record -o FILE"),
        "{of_pipe}"
    );
    assert!(error("a\0b").contains("binary data"));
    assert!(error("\u{28}\n").contains("no kmem event in 1 lines"));
    let foreign = error("\nhello world\nsecond\n");
    assert!(
        foreign.contains("perf script") && foreign.contains("first line is: hello world"),
        "{foreign}"
    );
    assert!(error("b 1 [0] 1.0: sched:sched_switch: x\n").contains("no kmem event"));
    let long = "x".repeat(input::LINE_BYTES_MAX + 10);
    assert!(error(&long).contains("longer than"));
    let cut = format!("{P}kfree: call_si");
    assert!(
        error(&cut).contains("t.txt:1: the last line is cut off"),
        "{}",
        error(&cut)
    );
    assert!(
        run(kfree(1 << 40).as_bytes(), &options()).is_ok(),
        "a whole last line needs no line end"
    );
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_is_seen_by_its_magic() {
    let text: String = (1..5000_u64).map(|n| kfree(n << 20) + "\n").collect();
    let packed = gzip(text.as_bytes());
    let mut seen = 0;
    let mut out = Vec::new();
    let summary = import(
        packed.as_slice(),
        "x".as_ref(),
        &mut out,
        "o".as_ref(),
        &options(),
        &mut |n| seen = n,
    )
    .unwrap();
    assert_eq!((summary.meta.rows, summary.lines), (4999, 4999));
    assert_eq!(
        (seen, summary.bytes_in),
        (packed.len() as u64, packed.len() as u64)
    );

    let twice = [packed.clone(), packed.clone()].concat();
    assert_eq!(
        run(&twice, &options()).unwrap().meta().rows,
        2 * 4999,
        "members follow each other"
    );
    let cut = run(&packed[..packed.len() / 2], &options()).unwrap_err();
    assert!(matches!(cut, TraceError::TruncatedGzip { .. }), "{cut}");
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0xff);
    let damaged = run(&damaged, &options()).unwrap_err();
    assert!(
        matches!(damaged, TraceError::CorruptGzip { .. }),
        "{damaged}"
    );
    assert!(matches!(
        run(&gzip(b""), &options()),
        Err(TraceError::Empty { .. })
    ));
}

#[test]
fn times_that_go_back_are_counted() {
    let (trace, _) = good(&[
        "b 1 [0] 2.0: kmem:kfree: call_site=f ptr=ffff888100000000".into(),
        "b 1 [0] 1.0: kmem:kfree: call_site=f ptr=ffff888100000000".into(),
    ]);
    assert_eq!(
        (trace.meta().time_regressions, trace.meta().last_time_ns),
        (1, 2_000_000_000)
    );
}

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.txt"), dir.path().join("out.parquet"));
    let names = || fs::read_dir(dir.path()).unwrap().count();
    fs::write(&output, "old").unwrap();
    fs::write(&input, "not a recording\n").unwrap();
    let into = |out: &Path, existing| {
        let options = ImportOptions {
            existing,
            ..options()
        };
        import_file(&input, out, &options, &mut |_| ())
    };
    let go = |out: &Path| into(out, Existing::Replace);
    assert!(matches!(
        into(&output, Existing::Keep),
        Err(TraceError::OutputExists { .. })
    ));
    assert!(matches!(go(&output), Err(TraceError::Foreign { .. })));
    assert_eq!((fs::read(&output).unwrap(), names()), (b"old".to_vec(), 2));

    fs::write(&input, kfree(1 << 40) + "\n").unwrap();
    assert!(matches!(go(&input), Err(TraceError::SameFile { .. })));
    assert!(matches!(
        go(dir.path()),
        Err(TraceError::OutputNotFile { .. })
    ));
    let missing = go(&dir.path().join("no/out")).unwrap_err().to_string();
    assert!(missing.contains("make the directory first"), "{missing}");
    let summary = go(&output).unwrap();
    assert_eq!(
        (summary.bytes_out, names()),
        (fs::metadata(&output).unwrap().len(), 2)
    );
    assert_eq!(TraceFile::open(&output).unwrap().meta(), &summary.meta);

    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&output, &link).unwrap();
    go(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(matches!(
        import_file(
            dir.path(),
            &dir.path().join("other"),
            &options(),
            &mut |_| ()
        ),
        Err(TraceError::Read { .. })
    ));
    let absent = import_file("absent".as_ref(), &output, &options(), &mut |_| ()).unwrap_err();
    assert!(
        absent.to_string().starts_with("cannot read absent: "),
        "{absent}"
    );
}

/// Takes some bytes, then says that the disk is full.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if self.0 < buffer.len() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.0 -= buffer.len();
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_named() {
    let text = kfree(1 << 40) + "\n";
    for room in [0, 100, 2000] {
        let result = import(
            text.as_bytes(),
            "t".as_ref(),
            FullDisk(room),
            "out".as_ref(),
            &options(),
            &mut |_| (),
        );
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("cannot write out") && message.contains("free some space"),
            "{message}"
        );
    }
}

/// A replay's largest slab is a block of order 10, and the page size may be known only at the end.
#[test]
fn an_object_is_no_larger_than_the_largest_block() {
    let text = format!(
        "{}\n{}\n",
        kmalloc(1 << 40, 8, 8),
        kmalloc(2 << 40, 9, 5 << 20)
    );
    let with = |page_size, skip_bad| {
        let options = ImportOptions {
            page_size,
            skip_bad,
            ..options()
        };
        let trace = run(text.as_bytes(), &options);
        trace
            .map(|trace| trace.meta().skipped_lines)
            .map_err(|error| error.to_string())
    };
    let told = with(Some(4096), false).unwrap_err();
    assert!(
        told.contains("t.txt:2: bytes_alloc: 5242880 is impossible, at most 4194304"),
        "{told}"
    );
    assert_eq!(with(Some(4096), true), Ok(1));
    assert_eq!(with(Some(65536), false), Ok(0));
    // Nothing tells it, so it is 4096.
    let found = with(None, true).unwrap_err();
    assert!(
        found.contains("t.txt:2: bytes_alloc: 5242880 is impossible with pages of 4096"),
        "{found}"
    );
}
