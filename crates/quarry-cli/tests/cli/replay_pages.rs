//! Page events in `quarry replay`.

use crate::golden::check;
use serde_json::Value;

use crate::common::{assert_fails, command, json, quarry, small_trace, stdout, with_reports};

/// When the zoneinfos of kv were read (`page_lists` in `traces/kv.json`).
const KV_REPORTS: [&str; 2] = ["15117.559713713", "15118.231173484"];

fn runs(args: &str) -> Vec<Value> {
    let args = format!("replay --json --no-timing {args}");
    let report = json(&args);
    report["runs"].as_array().unwrap().clone()
}

#[test]
fn tables_of_a_recording() {
    let text = stdout("replay hackbench --fragmentation --no-timing --design slub@5.9 --memory 1G");
    check("pages.txt", &text);
    // Sentences are not broken.
    let wide = text.lines().skip(8).find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
}

#[test]
fn json_tells_all_of_it() {
    let all = "tbench --pages all --cpus 2,64";
    for run in runs(all) {
        assert_eq!(run["page_events"], "all");
        let pages = &run["pages"];
        let number = |key: &str| {
            pages[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key}: {pages}"))
        };
        // The 4 545 and 4 548 events of traces/README.md but for those before the first report and after the last.
        assert_eq!(
            number("allocs") + number("packed_allocs") + number("too_large") + number("no_memory"),
            4384
        );
        assert_eq!(
            number("frees")
                + number("packed_frees")
                + number("unknown_frees")
                + number("unserved_frees"),
            4398 + number("implied_frees")
        );
        let initial = number("initial_frees");
        assert!(initial > 0);
        assert_eq!(
            number("live_blocks"),
            number("allocs") + number("packed_allocs") + initial
                - number("frees")
                - number("packed_frees")
        );
        let left_out = number("unknown_frees") + number("unserved_frees");
        assert_eq!(run["replayed"]["page_events"].as_u64().unwrap(), left_out);
        let orders = pages["allocs_by_order"].as_array().unwrap();
        let by_order: u64 = orders.iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!((orders.len(), by_order), (11, number("allocs")));
        assert!(number("alloc_pcp") + number("refills") <= number("allocs"));
        assert!(number("free_pcp") + number("drains") <= number("frees"));
        let locks =
            number("zone_locks") + number("slab_zone_locks") + number("periodic_zone_locks");
        assert_eq!(run["locks"]["zone"].as_u64().unwrap(), locks);
        let refills = run["pcp"]["refills"].as_u64().unwrap();
        assert!(number("refills") <= refills && refills <= locks);
        assert!(number("peak_recorded_bytes") <= number("peak_bytes"));

        let samples = pages["fragmentation"]["samples"].as_array().unwrap();
        assert!((32..=64).contains(&samples.len()));
        let memory = |sample: &Value| {
            [
                "slab_bytes",
                "block_bytes",
                "initial_bytes",
                "pcp_bytes",
                "free_bytes",
            ]
            .map(|key| sample[key].as_u64().unwrap())
            .iter()
            .sum::<u64>()
        };
        // Large kmallocs are in none of them.
        let large = run["large_bytes_peak"].as_u64().unwrap();
        assert!(samples.iter().all(|at| memory(at) + large >= 16 << 30));
        assert_eq!(memory(&samples[0]), 16 << 30);
        let bytes = |sample: &Value| sample["initial_bytes"].as_u64().unwrap();
        assert_eq!(bytes(&samples[0]), number("initial_bytes"));
        assert_eq!(samples.last().map(bytes), Some(0));
        for sample in samples {
            let index = sample["unusable_index"].as_array().unwrap();
            let index: Vec<f64> = index.iter().map(|at| at.as_f64().unwrap()).collect();
            assert_eq!((index.len(), index[0]), (11, 0.0));
            assert!(index.is_sorted() && index[10] < 1.0, "{index:?}");
        }
    }
}

#[test]
fn a_replay_begins_with_the_zones_of_a_zoneinfo() {
    let design = "kv --design slub";
    let told = runs(&format!("{design} --initial"));
    // One run, at the page size of the recording, with what was free in the kernel's zones.
    let [run] = told.as_slice() else {
        panic!("{} runs", told.len())
    };
    let first = &run["pages"]["fragmentation"]["samples"][0];
    let bytes = |key: &str| first[key].as_u64().unwrap();
    assert_eq!(bytes("free_bytes"), (3840 + 200_337 + 79_907) << 12);
    let listed = run["pages"]["initial_pcp_pages"].as_u64().unwrap();
    assert_eq!(bytes("pcp_bytes"), listed << 12);
    assert_eq!(listed, 270 + 5830 + 9958 + 5394);
    let zones = run["zones"].as_array().unwrap();
    let number = |zone: &Value, key: &str| zone[key].as_u64().unwrap();
    let sizes = zones.iter().map(|zone| number(zone, "pages"));
    assert!(sizes.eq([3840, 772_915, 5_394_266]));
    let refilled_in_zones: u64 = zones.iter().map(|zone| number(zone, "refilled")).sum();
    assert_eq!(run["pcp"]["refilled"].as_u64(), Some(refilled_in_zones));
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join("part.parquet");
    let part = part.to_str().unwrap();
    // The part between the reports, without them.
    let [from, until] = KV_REPORTS;
    stdout(&format!(
        "filter kv -o {part} --from {from} --until {until}"
    ));
    let untold = runs(&format!("{part} --design slub --page-size 4k"));
    assert_eq!(untold[0]["pages"]["initial_pcp_pages"], 0);
    let refilled = |run: &Value| run["pcp"]["refilled"].as_u64().unwrap();
    assert!(refilled(run) < refilled(&untold[0]));
    assert!(untold[0].get("zones").is_none());
    let table = quarry(&format!("replay --all --initial {design}"));
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("blocks from DMA32") && table.contains("blocks from Normal"));
    assert!(!table.contains("blocks from DMA "));

    // A machine with 1 GiB more has as much more free memory; one with other CPUs begins as any other.
    let with = |more: &str| runs(&format!("{design} --initial {more}"));
    let all = (777_216 + 5_394_266) << 12;
    let more = with(&format!("--memory {}", all + (1u64 << 30)));
    let free = |run: &Value| number(&run["zones"][2], "initial_free_pages");
    assert_eq!(free(&more[0]), 79_907 + (1 << 18));
    assert!(with("--cpus 4")[0].get("zones").is_none());
    assert!(with("--pages off")[0].get("zones").is_none());
}

#[test]
fn zoneinfos_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zoneinfo");
    let path = path.to_str().unwrap();
    let zone = |name: &str, pages: u64, cpus: u32| {
        let lists = (0..cpus).map(|cpu| {
            format!(
                "    cpu: {cpu}\n              count:    0\n              high:     9\n\
                 \x20             batch:    1\n  vm stats threshold: 4\n"
            )
        });
        format!(
            "Node 0, zone   {name}\n  pages free     99\n        min      10\n        low      12\n\
             \x20       high     15\n        spanned  {pages}\n        present  {pages}\n\
             \x20       managed  {pages}\n        protection: (0)\n  pagesets\n{}\
             \x20 node_unreclaimable:  0\n  start_pfn:           0\n",
            lists.collect::<String>()
        )
    };
    let small_trace = small_trace(folder.path());
    let refuses = |text: &str, more: &str, parts: &[&str]| {
        std::fs::write(path, text).unwrap();
        let trace = with_reports(folder.path(), &small_trace, &format!("--zoneinfo {path}"));
        let args = format!("replay {trace} --design slub --pages all --initial {more}");
        assert_fails(
            &quarry(&args),
            2,
            &[&["the zoneinfo does not fit"], parts].concat(),
        );
    };
    let unknown = zone("Normal", 99_999, 2) + &zone("Movable", 99_999, 2);
    refuses(&unknown, "", &["a zone Movable", "DMA, DMA32 and Normal"]);
    let nodes = zone("DMA32", 99_999, 2) + &zone("Normal", 99_999, 2).replace("Node 0", "Node 1");
    refuses(&nodes, "", &["several nodes"]);
    let swapped = zone("Normal", 99_999, 2) + &zone("DMA32", 99_999, 2);
    refuses(&swapped, "", &["zone DMA32 stands behind a higher one"]);
    refuses(&zone("Normal", 0, 2), "", &["no zone has pages"]);
    refuses(&zone("Normal", 1 << 40, 2), "", &["at most 2147483648"]);
    let cpus = zone("Normal", 99_999, 4);
    refuses(&cpus, "", &["4 CPUs", "one with 2", "--cpus 4"]);
    let free = zone("Normal", 99_999, 2).replace("free     99", "free     9999999999");
    let parts = ["zone Normal has 99999 pages", "9999999999 free", "0 on the"];
    refuses(&free, "", &parts);
    let listed = zone("Normal", 99_999, 2).replace("count:    0", "count:    4000000000");
    let parts = [
        "has 99999 pages",
        "99 free ones",
        "8000000000 on the CPUs' lists",
    ];
    refuses(&listed, "", &parts);
    let small = zone("Normal", 99_999, 2);
    refuses(&small, "--memory 64M", &["more than 390 MiB", "--memory"]);

    let filter = |more: &str| quarry(&format!("filter kv -o never {more}"));
    let wrong = filter("--zoneinfo Cargo.toml");
    assert_fails(&wrong, 1, &["Cargo.toml: line 1", "Node 0, zone"]);
    let alone = filter("--pagetypeinfo Cargo.toml");
    assert_fails(&alone, 2, &["--zoneinfo"]);
    let wrong = filter(&format!("--zoneinfo {path} --pagetypeinfo Cargo.toml"));
    assert_fails(&wrong, 1, &["Cargo.toml", "Page block order"]);
}

/// Stderr names a report that the run does not use; stdout is still JSON.
#[test]
fn options_without_effect_are_told() {
    let initial = "--initial";
    let cases = [
        (initial, "", ""),
        (
            initial,
            "--page-size 64k",
            "of the kernel's zoneinfo only the amount of memory is used where pages have 64 KiB, in the report \
             4 KiB",
        ),
        (
            initial,
            "--page-size 64k --memory 2G",
            "the kernel's zoneinfo is not used where pages have 64 KiB, in the report 4 KiB",
        ),
        (
            initial,
            "--cpus 4",
            "of the kernel's zoneinfo only the amount of memory is used where there are 4 CPUs, in the report 2",
        ),
        (
            initial,
            "--pages off",
            "of the kernel's zoneinfo only the amount of memory is used where page events are not to be replayed",
        ),
        (
            "--fragmentation",
            "--pages off",
            "--fragmentation is not heeded where page events are not to be replayed",
        ),
        ("--fragmentation", "", ""),
    ];
    for (file, more, note) in cases {
        let args = "replay kv --json --no-timing --design slub";
        let output = quarry(&format!("{args} {file} {more}"));
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        let expected = match note {
            "" => String::new(),
            note => format!("quarry: note: {note}\n"),
        };
        assert_eq!(stderr, expected, "{more:?}");
        let report: Value = serde_json::from_str(&crate::common::text(&output)).unwrap();
        assert!(report["runs"].is_array());
    }
    // Once for each machine that differs, not for each run.
    let args = "replay kv --no-timing --design slub,slubq";
    let sizes = "--page-size 4k,16k,64k";
    let output = quarry(&format!("{args} {initial} {sizes}"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    // Before anything runs, so that they stand there if a run fails.
    let small = "--cpus 4 --memory 1M";
    let output = quarry(&format!("{args} {initial} {small}"));
    assert_fails(&output, 3, &["memory is exhausted"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let note =
        "quarry: note: the kernel's zoneinfo is not used where there are 4 CPUs, in the report 2\n";
    assert!(stderr.starts_with(note), "{stderr}");
}

#[test]
fn slabs_are_the_same_with_and_without() {
    let with = runs("kv --pages all");
    let without = runs("kv --pages off");
    for (with, without) in with.iter().zip(&without) {
        assert_eq!(without["page_events"], "off");
        assert!(without.get("pages").is_none());
        for key in [
            "peak_slab_bytes",
            "final_slab_bytes",
            "slabs_by_order",
            "alloc_fastpath",
            "page_allocs",
            "page_frees",
            "caches",
            "stats",
        ] {
            assert_eq!(with[key], without[key], "{key}");
        }
    }
}

#[test]
fn the_same_bytes_at_any_number_of_threads() {
    let run = |jobs| {
        let args = format!("replay hackbench --json --no-timing -j {jobs}");
        let more = "--pages all --cpus 2,16 --design slab,slub,sheaf";
        stdout(&format!("{args} {more}"))
    };
    assert_eq!(run("1"), run("4"));
}

/// Text of `perf script`: slabs with an object in each, and other pages beside them.
fn recording_with_slabs() -> String {
    let mut text = String::new();
    let mut line = |n: u64, event: &str| {
        text.push_str(&format!("demo  77/77  [000]  12.{n:09}: kmem:{event}\n"));
    };
    let (page, flags) = ("order=0 migratetype", "gfp_flags=GFP_KERNEL");
    for n in 0..32 {
        let (slab, other) = (4096 + 2 * n, 4097 + 2 * n);
        let object = 0xffff_8880_0000_0000 + slab * 4096;
        let pfn = |n: u64| format!("page={n:#x} pfn={n:#x}");
        line(
            8 * n,
            &format!("mm_page_alloc: {} {page}=0 {flags}", pfn(slab)),
        );
        let sizes = "name=box bytes_req=500 bytes_alloc=504";
        line(
            8 * n + 1,
            &format!(
                "kmem_cache_alloc: call_site=f+0x1 ptr={object:#x} {sizes} {flags} node=-1 accounted=false"
            ),
        );
        line(
            8 * n + 2,
            &format!("mm_page_alloc: {} {page}=1 {flags}", pfn(other)),
        );
        line(8 * n + 3, &format!("mm_page_free: {} order=0", pfn(other)));
    }
    text
}

#[test]
fn the_recorded_kernels_slabs_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let [text, trace] = ["t.txt", "t.parquet"].map(|name| dir.path().join(name));
    std::fs::write(&text, recording_with_slabs()).unwrap();
    let [text, trace] = [&text, &trace].map(|path| path.to_str().unwrap());
    stdout(&format!(
        "import {text} -o {trace} --page-size 4096 --cpus 1"
    ));
    let run = runs(&format!("{trace} --design slub --page-size 4k")).remove(0);
    assert_eq!(run["page_events"], "outside_slabs");
    for (key, expected) in [
        ("allocs", 32),
        ("frees", 32),
        ("slab_allocs", 32),
        ("slab_frees", 0),
        ("unknown_frees", 0),
    ] {
        assert_eq!(run["pages"][key], expected, "{key}");
    }
    let text = stdout(&format!("replay {trace} --design slub"));
    assert!(
        text.contains(
            "page events outside slabs: 32 allocations, 32 frees (0 implied, 0 of blocks from before)\n  \
               left out: 0 frees of blocks without memory; of slabs: 32 allocations, 0 frees\n"
        ),
        "{text}"
    );
}

#[test]
fn what_is_not_replayed_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let text = stdout(&format!("replay {trace} --design slub"));
    assert!(
        text.contains("1 page events\npage events are not replayed: the trace does not tell")
            && text.contains("--pages all"),
        "{text}"
    );
    let off = stdout(&format!("replay {trace} --design slub --pages off"));
    assert!(!off.contains("page events are not replayed"), "{off}");
    // 48 MiB of pages of 4 KiB take 501 MiB in pages of 64 KiB: the slabs find nothing left.
    let tight = "replay hackbench --pages all --page-size 64k --memory 256M";
    assert_fails(&quarry(tight), 3, &["bytes are in use", "--memory"]);
    assert_fails(
        &quarry("replay --pages some"),
        2,
        &["some", "auto, off, all"],
    );
    let narrow = command(&format!("replay {trace} --pages all"))
        .env("COLUMNS", "80")
        .output();
    let narrow = String::from_utf8(narrow.unwrap().stdout).unwrap();
    let wide = narrow
        .lines()
        .filter(|line| !line.starts_with("replayed: ") && !line.contains("counted twice"))
        .skip(3)
        .find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{narrow}");
}
