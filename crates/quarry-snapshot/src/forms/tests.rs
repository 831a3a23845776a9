//! The samples of `tests/data/forms`: what each form says, and damaged ones.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use quarry_core::era::Era;
use quarry_sim::Rng;

use crate::slabinfo::Slabinfo;
use crate::{Detail, Form, Origin, Snapshot};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn sample(name: &str) -> PathBuf {
    data("forms").join(name)
}

fn read(name: &str) -> Snapshot {
    Snapshot::read(&sample(name), None).unwrap()
}

fn told(source: &str) -> Origin {
    Origin::Told(source.to_string())
}

/// Samples of the same kernel within two seconds give the rows of slabinfo; a form leaves out what it has no number of.
#[test]
fn forms_of_one_kernel_agree_with_slabinfo() {
    let slabinfo = Slabinfo::read(&sample("slabinfo")).unwrap();
    for (name, form, caches) in [
        ("slabinfo", Form::Slabinfo, 26),
        ("slabtop.txt", Form::Slabtop, 26),
        ("vmstat-m.txt", Form::Vmstat, 26),
        ("node_exporter.txt", Form::NodeExporter, 26),
        ("pmrep.csv", Form::Pmrep, 26),
        ("query_range.json", Form::Prometheus, 8),
        ("pcp2arrow.parquet", Form::Pcp2arrow, 8),
        ("below.json", Form::Below, 8),
    ] {
        let snapshot = read(name);
        assert_eq!(snapshot.form, form, "{name}");
        assert_eq!(snapshot.page_bytes, 4096, "{name}");
        assert_eq!(snapshot.slabinfo.rows.len(), caches, "{name}");
        for row in &snapshot.slabinfo.rows {
            let mut expected = slabinfo.row(&row.name).unwrap().clone();
            // A cache without slabs leaves no trace of their size in some forms.
            if expected.num_slabs == 0 {
                expected.pagesperslab = row.pagesperslab;
                expected.objsize = row.objsize;
            }
            // CPUs may have given a slab back between the reads.
            assert_eq!(*row, expected, "{name}");
        }
        assert_eq!(
            snapshot.detail(),
            if caches == 26 && name == "slabinfo" {
                Detail::Slabinfo
            } else {
                Detail::Thin
            },
            "{name}"
        );
    }
}

#[test]
fn node_exporter_knows_its_kernel() {
    let snapshot = read("node_exporter.txt");
    assert_eq!(snapshot.release.as_deref(), Some("6.18.44-fc-v782"));
    assert_eq!(snapshot.facts.release, told("node_uname_info"));
    assert_eq!(snapshot.architecture.as_deref(), Some("x86_64"));
    assert!(snapshot.meminfo_slab_bytes > Some(1 << 28));
    assert!(snapshot.memory_bytes > snapshot.meminfo_slab_bytes);
}

#[test]
fn series_are_several_moments() {
    let all = Snapshot::read_all(&sample("query_range.json"), None).unwrap();
    let times: Vec<_> = all.iter().map(|moment| moment.unix_time_s).collect();
    assert_eq!(times, [Some(1_764_160_000), Some(1_764_160_060)]);
    assert_ne!(all[0].slabinfo, all[1].slabinfo);
    assert_eq!(
        Snapshot::read_all(&sample("pmrep.csv"), None)
            .unwrap()
            .len(),
        2
    );
    let last = read("query_range.json");
    assert_eq!(last.slabinfo, all[1].slabinfo);
    assert_eq!(last.notes, ["the last of 2 moments in the file"]);
    let error = Snapshot::read_moment(&sample("pmrep.csv")).unwrap_err();
    assert!(error.to_string().contains("2 moments"), "{error}");
    let error = Snapshot::read_moment(&sample("oom.txt")).unwrap_err();
    assert!(error.to_string().contains("not their slabs"), "{error}");
}

#[test]
fn crash_leaves_out_what_it_could_not_read() {
    let snapshot = read("crash.txt");
    let row = |name: &str| {
        let row = snapshot.slabinfo.row(name).unwrap();
        (row.objsize, row.objperslab, row.pagesperslab, row.num_slabs)
    };
    assert_eq!(row("nfs_inode_cache"), (1112, 29, 8, 129));
    assert_eq!(row("kmalloc-192"), (192, 42, 2, 1491));
    assert_eq!(snapshot.slabinfo.rows.len(), 12);
    let note = "caches that crash could not read are left out: kmalloc-512";
    assert_eq!(snapshot.notes[0], note);
    // The sample has some of the caches.
    assert!(snapshot.excerpt.is_some());
    assert_eq!(snapshot.releases.unwrap().last, Era::V4_19);
}

#[test]
fn logs_have_bytes_alone() {
    let snapshot = read("oom.txt");
    assert_eq!(
        (snapshot.form, snapshot.detail()),
        (Form::Oom, Detail::Bytes)
    );
    // Nothing is known of objects and slabs.
    assert!(snapshot.slabinfo.rows.is_empty());
    assert_eq!(snapshot.cache_bytes.len(), 7);
    let cache = &snapshot.cache_bytes[6];
    assert_eq!(cache.name, "kmalloc-2k");
    assert_eq!(
        (cache.used_bytes, cache.total_bytes),
        (59164 << 10, 59168 << 10)
    );
    assert_eq!(snapshot.oom.unwrap().ram_pages, Some(524_154));
    assert_eq!(snapshot.release.as_deref(), Some("5.4.0-rc6+"));
    assert_eq!(
        (snapshot.nr_cpu_ids, &snapshot.facts.nr_cpu_ids),
        (Some(2), &told("dmesg"))
    );
    assert!(!snapshot.facts.present_cpus.is_fact());
    assert_eq!(
        snapshot.cmdline.as_deref(),
        Some("console=ttyS0 root=/dev/root")
    );

    let failed = read("slub-failed.txt");
    let row = failed.slabinfo.row("skbuff_head_cache").unwrap();
    assert_eq!(
        (row.num_slabs, row.num_objs, row.active_objs),
        (1254, 67680, 67386)
    );
    assert_eq!((row.objsize, row.pagesperslab), (256, 4));
}

/// slabinfo printed to a console, with the times of the log.
#[test]
fn slabinfo_in_a_log() {
    let slabinfo = fs::read_to_string(sample("slabinfo")).unwrap();
    let lines = slabinfo
        .lines()
        .map(|line| format!("[  178.502533] {line}\n"));
    let log = format!(
        "[    1.0] Linux version 6.18.44 (x)\n{}",
        lines.collect::<String>()
    );
    let snapshot = Snapshot::parse("log", &log, None).unwrap();
    assert_eq!(
        snapshot.slabinfo,
        Slabinfo::parse_text("f", &slabinfo).unwrap()
    );
    assert_eq!(snapshot.facts.release, told("dmesg"));
}

#[test]
fn sosreports() {
    let archive = read("sosreport.tar.xz");
    assert_eq!(archive.form, Form::Sosreport);
    assert_eq!(archive.release.as_deref(), Some("6.18.44"));
    assert_eq!(archive.facts.release, told("sos_commands/kernel/uname_-a"));
    assert_eq!(archive.architecture.as_deref(), Some("x86_64"));
    assert_eq!((archive.nr_cpu_ids, archive.page_bytes), (Some(2), 4096));
    assert_eq!(archive.facts.page_bytes, told("x86_64 has no other"));
    // The configuration of the kernel that runs, not of another that is installed.
    assert_eq!(archive.config["SLUB_DEBUG_ON"], "n");
    assert_eq!(archive.is_reclaimable("dquot"), Some(true));
    assert_eq!(archive.is_reclaimable("seq_file"), Some(false));
    assert_eq!(archive.is_reclaimable("dentry"), None);
    assert!(archive.sysctls.contains_key("vm.min_free_kbytes"));
    assert!(archive.managed_pages.is_some());

    let dir = tempfile::tempdir().unwrap();
    let packed = fs::File::open(sample("sosreport.tar.xz")).unwrap();
    let unpacked = lzma_rust2::XzReader::new(packed, true);
    tar::Archive::new(unpacked).unpack(dir.path()).unwrap();
    let base = dir.path().join("sosreport-host-2026-11-26");
    for folder in [dir.path(), &base, &base.join("proc")] {
        let found = Snapshot::read(folder, None).unwrap();
        assert_eq!(found.slabinfo, archive.slabinfo, "{}", folder.display());
        assert_eq!(found.memory_bytes, archive.memory_bytes);
    }
    let found = Snapshot::read(&base, None).unwrap();
    assert_eq!(found.aliases, archive.aliases);
    assert_eq!((found.config, found.facts), (archive.config, archive.facts));
}

#[test]
fn bug_reports() {
    let text = read("bugreport.txt");
    assert_eq!(text.form, Form::Bugreport);
    assert_eq!(text.release.as_deref(), Some("4.14.186-perf-g0123456789ab"));
    assert_eq!(
        text.cmdline.as_deref(),
        Some("rcupdate.rcu_expedited=1 console=null")
    );
    assert_eq!(text.slabinfo.rows.len(), 12);
    assert_eq!(text.page_bytes, 4096);
    let reason = "zoneinfo's managed pages are meminfo's MemTotal";
    assert_eq!(text.facts.page_bytes.reason(), Some(reason));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bugreport.zip");
    let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("main_entry.txt", options).unwrap();
    zip.write_all(b"bugreport-x.txt").unwrap();
    zip.start_file("bugreport-x.txt", options).unwrap();
    zip.write_all(&fs::read(sample("bugreport.txt")).unwrap())
        .unwrap();
    zip.finish().unwrap();
    assert_eq!(Snapshot::read(&path, None).unwrap().slabinfo, text.slabinfo);

    let empty = "------ SLAB INFO (/proc/slabinfo) ------\n*** /proc/slabinfo: Permission denied\n";
    let error = Snapshot::parse("f", empty, None).unwrap_err().to_string();
    assert!(error.contains("adb root"), "{error}");
}

/// Without the file that has it, the release is a range, and no fact.
#[test]
fn memcg_4_18_is_dated_by_its_names() {
    let snapshot = Snapshot::read(&data("field/memcg-4.18"), None).unwrap();
    assert_eq!(snapshot.release, None);
    let releases = snapshot.releases.unwrap();
    assert!(releases.contains(Era::V4_18) && !releases.contains(Era::V6_18));
    assert_eq!(releases.to_string(), "4.19 or earlier");
    let reason = "kmalloc-8192 is 4.19 or earlier";
    assert_eq!(snapshot.facts.release.reason(), Some(reason));
    let alone = Snapshot::read(&data("field/memcg-4.18/slabinfo"), None).unwrap();
    assert_eq!(
        (alone.form, alone.releases),
        (Form::Slabinfo, Some(releases))
    );
    assert_eq!(alone.present_cpus, None);
}

#[test]
fn slab_with_unknown_cpus() {
    let folder = data("field/slab-unknown-cpus");
    let snapshot = Snapshot::read(&folder, None).unwrap();
    assert_eq!(snapshot.present_cpus, None);
    assert_eq!(
        (&snapshot.facts.present_cpus, snapshot.cpus_min()),
        (&Origin::Unknown, 2)
    );
    assert_eq!(snapshot.releases.unwrap().to_string(), "4.20 to 6.7");
    assert_eq!(snapshot.reclaimable_bytes, Some(40_079_660 << 10));

    let dir = tempfile::tempdir().unwrap();
    fs::copy(folder.join("slabinfo"), dir.path().join("slabinfo")).unwrap();
    for (text, cpus) in [("16\n", 16), ("0-15\n", 16), ("0\n", 1)] {
        fs::write(dir.path().join("cpu_present"), text).unwrap();
        let snapshot = Snapshot::read(dir.path(), None).unwrap();
        assert_eq!(snapshot.present_cpus, Some(cpus), "{text}");
        assert_eq!(snapshot.facts.present_cpus, told("cpu_present"));
    }
    fs::write(dir.path().join("cpu_present"), "16 CPUs").unwrap();
    let error = Snapshot::read(dir.path(), None).unwrap_err().to_string();
    assert!(
        error.contains("cpu_present: \"16 CPUs\" is neither a list"),
        "{error}"
    );
}

#[test]
fn copies_of_proc() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::copy(sample("slabinfo"), dir.path().join("slabinfo")).unwrap();
    write("version", "Linux version 6.18.44-x (gcc) #1 SMP\n");
    write(
        "cpuinfo",
        "processor\t: 0\nvendor_id\t: x\n\nprocessor\t: 1\nvendor_id\t: x\n",
    );
    let snapshot = Snapshot::read(dir.path(), None).unwrap();
    assert_eq!(snapshot.form, Form::Proc);
    assert_eq!(snapshot.release.as_deref(), Some("6.18.44-x"));
    assert_eq!(snapshot.facts.release, told("version"));
    assert_eq!(snapshot.present_cpus, Some(2));
    assert_eq!(snapshot.facts.present_cpus, told("cpuinfo"));
    assert_eq!(
        snapshot.facts.nr_cpu_ids.reason(),
        Some("as many as are present")
    );
    // The trace that keeps it says the same.
    let moment = Snapshot::read_moment(dir.path()).unwrap();
    let kept = Snapshot::parse("kept", &moment, None).unwrap();
    assert_eq!((kept.facts, kept.form), (snapshot.facts, snapshot.form));
}

#[test]
fn what_is_no_form_is_named() {
    for (text, part) in [
        ("", "it is empty"),
        (
            "hello\n",
            "\"hello\": none of the forms that are read: tables of caches (slabinfo, slabtop",
        ),
        ("slabinfo - version: 2.9\n", "version: 2.1"),
        ("slabinfo - version: 1.1\n", "slabinfo 1.1 is of Linux 2.4"),
        ("[1, 2]", "none of the forms"),
        (
            "{\"status\":\"success\",\"data\":{\"result\":[]}}",
            "no series node_slabinfo_*",
        ),
        (
            "node_slabinfo_objects{slab=\"a\"} 1\n",
            "are needed of each cache",
        ),
        (
            "  OBJS ACTIVE  USE NAME\n1 2\n",
            "looks like slabtop, but has no cache",
        ),
        (
            "cat: /proc/slabinfo: Permission denied\n",
            "readable by root alone: give what `sudo cat",
        ),
    ] {
        let error = Snapshot::parse("f", text, None).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Copies of slabinfo among other lines: sorted, from the journal, and one after the other.
#[test]
fn slabinfo_among_other_lines() {
    let text = fs::read_to_string(sample("slabinfo")).unwrap();
    let rows = read("slabinfo").slabinfo.rows;
    let parse = |text: &str| Snapshot::of_bytes("f", Cursor::new(text.to_string())).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.reverse();
    let sorted = parse(&lines.join("\n")).pop().unwrap();
    assert_eq!(sorted.slabinfo.rows.len(), rows.len());
    let journal = text
        .lines()
        .map(|line| format!("Oct 24 13:01:02 host cat[123]: {line}\n"));
    let journal = parse(&journal.collect::<String>()).pop().unwrap();
    assert_eq!(journal.slabinfo.rows, rows);
    let series = format!("{text}Thu Nov 26 13:00:00 UTC 2026\n{text}");
    let series = parse(&series);
    assert_eq!(series.len(), 2);
    assert_eq!(series[1].slabinfo.rows, rows);
}

/// Full slabs tell the page size, whatever meminfo says.
#[test]
fn full_slabs_tell_the_page_size() {
    let mut moment = serde_json::json!({ "slabinfo": read("slabinfo").slabinfo });
    moment["meminfo"] = serde_json::json!("Slab: 99999999 kB\n");
    let snapshot = Snapshot::parse("f", &moment.to_string(), None).unwrap();
    assert_eq!(snapshot.page_bytes, 4096);
    let reason = snapshot.facts.page_bytes.reason().unwrap();
    assert!(
        reason.contains("of 26 caches have slabs that are full"),
        "{reason}"
    );
    assert!(
        snapshot.notes[0].contains("the list is not whole"),
        "{:?}",
        snapshot.notes
    );
}

#[test]
fn what_crash_says_when_it_starts() {
    let text = fs::read_to_string(sample("crash.txt")).unwrap();
    let banner =
        "        CPUS: 16\n     RELEASE: 4.18.0-80.el8.x86_64\n     MACHINE: x86_64  (2400 Mhz)\n";
    let snapshot = Snapshot::parse("f", &format!("{banner}{text}"), None).unwrap();
    assert_eq!(snapshot.release.as_deref(), Some("4.18.0-80.el8.x86_64"));
    assert_eq!(snapshot.present_cpus, Some(16));
}

#[test]
fn two_machines_are_not_one() {
    let dir = tempfile::tempdir().unwrap();
    for host in ["a", "b"] {
        let proc = dir.path().join(host).join("proc");
        fs::create_dir_all(&proc).unwrap();
        fs::copy(sample("slabinfo"), proc.join("slabinfo")).unwrap();
    }
    let error = Snapshot::read(dir.path(), None).unwrap_err().to_string();
    assert!(
        error.contains("a/proc/slabinfo and b/proc/slabinfo"),
        "{error}"
    );
}

#[test]
fn slabtop_that_was_cut() {
    let text = fs::read_to_string(sample("slabtop.txt")).unwrap();
    let cut = read("slabtop.txt");
    assert!(cut.notes[0].contains("26 of 235 caches"), "{:?}", cut.notes);
    assert_eq!(cut.excerpt.unwrap().totals.unwrap().num_objs, 3_101_230);
    let comma = text.replace('.', ",");
    let comma = Snapshot::parse("f", &comma, None).unwrap();
    assert_eq!(comma.slabinfo, read("slabtop.txt").slabinfo);
}

/// No damage makes a reader panic or hang; a packed one is unpacked first.
#[test]
fn damaged_files() {
    let mut rng = Rng::new(34);
    for entry in fs::read_dir(data("forms")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        // Of the large ones, the beginning is enough to damage.
        let bytes = &bytes[..bytes.len().min(4000)];
        for _ in 0..crate::case_count(2000) {
            let mut damaged = bytes.to_vec();
            for _ in 0..=rng.below(3) {
                let at = rng.below(damaged.len() as u64) as usize;
                match rng.below(4) {
                    0 => damaged[at] = rng.below(256) as u8,
                    1 => damaged.truncate(at.max(1)),
                    2 => damaged.insert(at, b"9 \n:{"[rng.below(5) as usize]),
                    _ => {
                        damaged.remove(at);
                        damaged.push(b'0');
                    }
                }
            }
            let _ = Snapshot::of_bytes("damaged", Cursor::new(damaged));
        }
    }
}

/// The footer of a table is at its end, so the whole is damaged.
#[test]
fn damaged_tables() {
    let mut rng = Rng::new(35);
    let whole = fs::read(sample("pcp2arrow.parquet")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.parquet");
    for _ in 0..2000 {
        let mut damaged = whole.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(damaged.len() as u64) as usize;
            match rng.below(4) {
                0 => damaged.truncate(at.max(1)),
                _ => damaged[at] = rng.below(256) as u8,
            }
        }
        fs::write(&path, damaged).unwrap();
        if let Ok(snapshots) = Snapshot::read_all(&path, None) {
            assert_eq!(snapshots[0].form, Form::Pcp2arrow);
        }
    }
}

/// Without root only sums can be copied.
#[test]
fn a_copy_without_slabinfo_has_sums() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("meminfo"),
        "MemTotal: 8000 kB\nSlab: 80 kB\n",
    )
    .unwrap();
    let snapshot = Snapshot::read(dir.path(), None).unwrap();
    assert_eq!(
        (snapshot.form, snapshot.detail()),
        (Form::Meminfo, Detail::Bytes)
    );
    assert_eq!(snapshot.memory_bytes, Some(8000 << 10));
}
