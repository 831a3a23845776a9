//! `quarry look` at snapshots, series, and this computer.

use std::fs;
use std::path::Path;

use crate::common::{assert_fails, assert_has, json, quarry, quarry_with, stdout, text};
use crate::golden::check;
use crate::report::specs;

/// slabinfo of a kernel in which `filp` has this number of slabs of 16 objects.
fn slabinfo(slabs: u64) -> String {
    let objects = slabs * 16;
    format!(
        "slabinfo - version: 2.1\n# name <active_objs>\n\
         filp {objects} {objects} 256 16 1 : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n\
         dentry 2100 2100 192 21 1 : tunables 0 0 0 : slabdata 100 100 0\n"
    )
}

/// A folder with a snapshot.
fn folder(dir: &Path, name: &str, slabs: u64) -> String {
    let folder = dir.join(name);
    fs::create_dir(&folder).unwrap();
    for (file, text) in [
        ("slabinfo", slabinfo(slabs).as_str()),
        ("kernel_release", "6.1.0-50-amd64"),
        ("cpu_present", "0-3"),
        ("page_size", "4096"),
        ("meminfo", "MemTotal: 1048576 kB\nSlab: 4500 kB\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    folder.to_str().unwrap().to_string()
}

/// A text without its line ends, which are where the width has them.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn one_snapshot_is_divided() {
    let dir = tempfile::tempdir().unwrap();
    let now = folder(dir.path(), "now", 1000);
    let told = stdout(&format!("look {now}"));
    assert_has(
        &in_a_line(&told),
        &[
            "has 4.3 MiB in slabs (0.4 % of memory), 9.1 % of it reclaimable",
            "filp has most, 3.9 MiB (90.9 %)",
            "meminfo's Slab 4.4 MiB",
            "what CPUs hold are not told",
            "partly filled slabs",
            "Caches cache slabs",
            "dentry *",
            "give 2 of 2 caches",
            "Shrinking all caches",
            "if 1 % of the objects stay",
            "Linux 6.6",
            "slub_max_order=",
        ],
    );
    assert!(told.lines().count() <= 45, "more than a screen: {told}");
    let look = json(&format!("look {now} --json"));
    assert_eq!(look["slab_bytes"], 1100 * 4096);
    let parts = look["parts"].as_object().unwrap().values();
    assert_eq!(
        parts.filter_map(|part| part.as_u64()).sum::<u64>(),
        1100 * 4096
    );
    for told in look["what_ifs"].as_array().unwrap() {
        let bytes = |name: &str| told[name].as_u64().unwrap();
        assert!(bytes("low_bytes") <= bytes("predicted_bytes"), "{told}");
        assert!(bytes("predicted_bytes") <= bytes("high_bytes"), "{told}");
    }
    assert!(look["growth"].is_null());
    // The same from stdin.
    let moment = serde_json::json!({"page_size": 4096, "slabinfo_text": slabinfo(1000)});
    let piped = quarry_with("look - --json", moment.to_string().as_bytes());
    let piped: serde_json::Value = serde_json::from_str(&text(&piped)).unwrap();
    assert_eq!(piped["slab_bytes"], look["slab_bytes"]);
}

#[test]
fn a_series_says_what_grew() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a", 500), ("b", 1000), ("c", 2000)];
    let files = files.map(|(name, slabs)| folder(dir.path(), name, slabs));
    let told = stdout(&format!("look {}", files.join(" ")));
    assert_has(
        &in_a_line(&told),
        &[
            "by objects that cannot be reclaimed (filp +5.9 MiB): a leak, if it goes on",
            "1 cache changed",
            "2 of 2",
            "The series snapshot slabs",
            "c 8.2 MiB 8.2 MiB ████████████████",
        ],
    );
    let growth = json(&format!("look {} --json", files.join(" ")))["growth"].clone();
    assert_eq!(growth["verdict"], "objects");
    assert_eq!(growth["slab_bytes"], 1500 * 4096);
    assert_eq!(growth["moments"].as_array().unwrap().len(), 3);
    // A boot's stages are a series; so are the snapshots of a recording.
    let boot = crate::what_if::boot(dir.path());
    let stages = json(&format!("look {boot} --stage boot,later --json"));
    assert_eq!(stages["growth"]["moments"].as_array().unwrap().len(), 2);
}

#[test]
fn a_page_has_bars_ranges_and_charts() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a", 500), ("b", 1000), ("c", 2000)];
    let files = files.map(|(name, slabs)| folder(dir.path(), name, slabs));
    let out = dir.path().join("page.html");
    let out = out.to_str().unwrap();
    let told = stdout(&format!("look {} --html {out}", files[0]));
    assert_has(&told, &["partly filled slabs"]);
    let page = fs::read_to_string(out).unwrap();
    assert_has(
        &page,
        &[
            "<h1>Slab memory of a</h1>",
            "filp has most, 2.0 MiB",
            "dentry *",
            "held by CPUs",
            "Linux 6.6",
            "shrinking all caches",
            "drop_caches, 1 % of the objects stay",
        ],
    );
    // The parts fill the bar.
    let charts = specs(&page);
    let bar = charts[0]["data"]["values"]
        .as_str()
        .unwrap()
        .lines()
        .skip(1);
    // name, part, value, place
    let parts = bar.map(|row| row.rsplit(',').nth(1).unwrap().parse::<f64>().unwrap());
    let all = json(&format!("look {} --json", files[0]))["slab_bytes"].as_f64();
    assert!((parts.sum::<f64>() * 1_048_576.0 - all.unwrap()).abs() < 1.0);
    assert_eq!(charts.len(), 4);
    assert!(!page.contains("<h2>Growth"));
    // It is kept, unless --force is given.
    let again = format!("look {} --html {out}", files.join(" "));
    assert_fails(&quarry(&again), 2, &["exists", "--force"]);
    stdout(&format!("{again} --force"));
    let page = fs::read_to_string(out).unwrap();
    assert_eq!(specs(&page).len(), 7);
    assert_has(
        &page,
        &[
            "a leak, if it goes on",
            "number of the snapshot",
            "value=\"live objects\" checked",
            "\\\"filp\\\",2,1.953125,",
        ],
    );
    // To stdout it goes alone.
    let page = stdout(&format!("look {} --html -", files[0]));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert_fails(
        &quarry(&format!("look {} --html - --json", files[0])),
        2,
        &["--html - and --json"],
    );
}

#[test]
fn a_series_with_moments_has_times_on_its_axis() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a", 500, 0), ("b", 1000, 1), ("c", 2000, 5)].map(|(name, slabs, hour)| {
        let moment = serde_json::json!({"page_size": 4096, "slabinfo_text": slabinfo(slabs),
            "kernel_release": "6.1.0", "cpu_present": "0-3", "unix_time_s": 1_000_000 + hour * 3600});
        let file = dir.path().join(name);
        fs::write(&file, moment.to_string()).unwrap();
        file.to_str().unwrap().to_string()
    });
    let look = format!("look {}", files.join(" "));
    assert_has(
        &in_a_line(&stdout(&look)),
        &["in 5.0 h", "b 60.0 min 4.3 MiB"],
    );
    let page = stdout(&format!("{look} --html -"));
    let point = "\\\"filp\\\",5,5.859375,";
    assert_has(&page, &["hours since the first snapshot", point]);
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = crate::common::small_trace(dir.path());
    assert_fails(
        &quarry(&format!("look {trace}")),
        1,
        &["has no snapshot", "quarry record"],
    );
    assert_fails(&quarry("look absent.json"), 1, &["absent.json"]);
    assert_fails(&quarry("look - -"), 2, &["stdin is one file"]);
    assert_fails(&quarry("look --stage boot"), 2, &["--stage"]);
}

/// All slabs are those of slabinfo, next to which meminfo was read.
#[test]
#[ignore = "compares with the running kernel, as root: cargo xtask root"]
fn this_computer_has_the_slabs_of_slabinfo_and_meminfo() {
    let of_slabinfo = || {
        let text = fs::read_to_string("/proc/slabinfo").unwrap();
        let rows = text.lines().skip(2);
        let pages = rows.map(|row| {
            let words: Vec<&str> = row.split_whitespace().collect();
            let number = |word: &str| word.parse::<u64>().unwrap();
            // num_slabs and pagesperslab.
            number(words[14]) * number(words[5])
        });
        pages.sum::<u64>() * 4096
    };
    // Other programs allocate meanwhile: one of several looks lies between its two readings, to the page if they are equal.
    for _ in 0..50 {
        let before = of_slabinfo();
        let look = json("look --json");
        let after = of_slabinfo();
        let told = look["slab_bytes"].as_u64().unwrap();
        let parts = look["parts"].as_object().unwrap().values();
        assert_eq!(parts.filter_map(|part| part.as_u64()).sum::<u64>(), told);
        // meminfo counts large kmallocs, too.
        assert!(look["meminfo_slab_bytes"].as_u64().unwrap() + (4 << 20) >= told);
        if (before.min(after)..=before.max(after)).contains(&told) {
            return;
        }
    }
    panic!("slabinfo changes all the time");
}

/// A file that cannot answer ends any command with 1, whatever it lacks; options end it with 2.
#[test]
fn files_that_cannot_answer_have_one_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let row = "buffer_head 2000 2100 52 73 1 : tunables 0 0 0 : slabdata 30 30 0";
    let narrow = write("narrow", &format!("slabinfo - version: 2.1\n{row}\n"));
    let sums = write("sums", "MemTotal: 900000 kB\nSlab: 90000 kB\n");
    for (file, what) in [(narrow, "32-bit kernel"), (sums, "only sums")] {
        assert_fails(
            &quarry(&format!("what-if {file} --release 6.12")),
            1,
            &[what],
        );
        assert_fails(&quarry(&format!("geometry --from {file}")), 1, &[what]);
        assert_fails(
            &quarry(&format!("what-if {file} --release 9.9")),
            2,
            &["9.9"],
        );
    }
}

/// Two reports of public mails: an old one, whose order fails beside free blocks of it, and one whose zone is kept back.
#[test]
fn failed_requests_for_pages_have_a_reason() {
    let of = |name: &str| format!("look ../quarry-snapshot/tests/data/failures/{name}");
    let old = of("3.13-order4.txt");
    check("look_why.txt", &stdout(&old));
    let look = json(&format!("{old} --json"));
    let verdicts = look["why"].as_array().unwrap().iter();
    let verdicts: Vec<_> = verdicts
        .map(|row| (row["zone"].as_str(), row["missing_pages"].as_u64()))
        .collect();
    let expected = [("DMA", 19), ("DMA32", 1058), ("Normal", 202)];
    assert_eq!(
        verdicts,
        expected.map(|(zone, pages)| (Some(zone), Some(pages)))
    );
    assert_eq!(look["failures"][0]["passes_on"][0], "4.4 and later");
    // The release is the user's to tell.
    let kill = of("oom-reserve-in-use.txt");
    let untold = in_a_line(&stdout(&kill));
    assert_has(
        &untold,
        &["The release is not told (--kernel): the rules of 6.8 to 6.11"],
    );
    let told = in_a_line(&stdout(&format!("{kill} --kernel 6.12.1")));
    assert_has(&told, &["Normal passes the check as the report shows it"]);
}

/// A folder without slabinfo has the blocks that one with it has.
#[test]
fn a_map_of_blocks_needs_no_slabinfo() {
    let dir = tempfile::tempdir().unwrap();
    let now = folder(dir.path(), "now", 1000);
    let map = "quarry blocks - version: 1\npage_bytes 4096\nblock_bytes 2097152\non_cpu_lists 3\n\
        # first blocks free movable slab page_tables kernel untold cached\n0 1 500 0 12 0 0 0 0\n1 511 512 0 0 0 0 0 0\n";
    let file = format!("{now}/blocks");
    fs::write(&file, map).unwrap();
    let found = "12 slab pages are in 1 of 512 blocks of 2.0 MiB and 1 of 1 of 1.0 GiB";
    let whole = json(&format!("look {now} --json"));
    fs::remove_file(format!("{now}/slabinfo")).unwrap();
    for (source, amount) in [
        (&now, "4.4 MiB (0.4 % of memory) in slabs"),
        (&file, "has 48 KiB in slabs by the flags of pages"),
    ] {
        let told = in_a_line(&stdout(&format!("look {source}")));
        assert_has(&told, &[found, amount, "Blocks of memory block blocks"]);
        let look = json(&format!("look {source} --json"));
        for key in ["blocks", "pages", "map"] {
            assert_eq!(look[key], whole[key], "{key}");
        }
        let page = stdout(&format!("look {source} --html -"));
        assert_has(&page, &["Map of memory"]);
    }
}
