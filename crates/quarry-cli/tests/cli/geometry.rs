//! `quarry geometry` and `quarry tunables`.

use serde_json::{Value, json};

use crate::common::{assert_fails, assert_refuses, json, quarry, quarry_with, stdout, text};

#[test]
fn one_cache_as_table_and_json() {
    let args = "geometry --design slub@6.1 --page-size 64k --cpus 16 --object-size 9856";
    let table = stdout(args);
    for part in [
        "slub@6.1",
        "64 KiB pages",
        "16 CPUs",
        "objects per slab",
        "26",
        "256 KiB",
    ] {
        assert!(table.contains(part), "{table}");
    }
    let json = json(&format!("{args} --json"));
    let json = &json["runs"][0];
    assert_eq!(json["slab_size"], 9856);
    assert_eq!(json["order"], 2);
    assert_eq!(json["objects_per_slab"], 26);
    assert_eq!(json["cpu_partial"], 24);
    assert_eq!(json["min_partial"], 6);
    assert_eq!(json["slack"], 256 * 1024 - 26 * 9856);
}

#[test]
fn alignment_flags_and_settings_count() {
    let answer = |extra: &str| -> Value {
        let args = format!("geometry --object-size 184 --json {extra}");
        let mut json = json(&args);
        json["runs"][0].take()
    };
    assert_eq!(answer("")["slab_size"], 184);
    assert_eq!(answer("--align 256")["slab_size"], 256);
    assert_eq!(answer("--flags hwcache")["slab_size"], 192);
    assert_eq!(answer("--flags hwcache,rcu")["slab_size"], 192);
    assert_eq!(answer("--flags rcu --align 64")["slab_size"], 192);
    assert_eq!(answer("--set slub_min_order=3")["order"], 3);
    let partial = answer("--set cpu_partial=0 --set min_partial=77");
    assert_eq!(partial["cpu_partial"], 0);
    assert_eq!(partial["min_partial"], 77);
    let queue = answer("--design slubq --set cpu_queue_size=10");
    assert_eq!(queue["cpu_queue_size"], 10);
    assert_eq!(queue["cpu_batch_size"], 10);
    let sheaves = answer("--design sheaf");
    assert_eq!(sheaves["sheaf_capacity"], json!(60));
    let asked = answer("--design sheaf@6.18 --set sheaf_capacity=32");
    assert_eq!(asked["sheaf_capacity"], json!(32));
    let wide = answer("--flags hwcache --cache-line 128");
    assert_eq!(wide["slab_size"], 256);
}

#[test]
fn many_caches_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.json");
    let rows = json!([
        {"design": "slub@6.1", "page_size": "64k", "cpus": 16, "object_size": 9856},
        {"design": "slub@2.6.22", "page_size": 4096, "cpus": 1, "object_size": 8, "align": 0,
         "flags": "", "set": {}},
        {"design": "slub@6.18", "page_size": 4096, "cpus": 2, "object_size": 184,
         "flags": ["hwcache", "rcu"], "set": {"slub_max_order": 0, "cpu_partial": 3}},
        {"design": "slubq", "page_size": "16k", "cpus": 2, "object_size": 100, "align": null,
         "flags": "hwcache,ctor", "set": null},
    ]);
    std::fs::write(&path, rows.to_string()).unwrap();
    let output = stdout(&format!("geometry --from {}", path.display()));
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[5]), (6, "[", "]"), "{output}");
    assert_eq!(
        lines[1],
        "{\"slab_size\":9856,\"order\":2,\"objects_per_slab\":26,\"cpu_partial\":24,\
         \"min_partial\":6},"
    );
    let answers: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(answers[1]["objects_per_slab"], 512);
    assert_eq!(answers[2]["order"], 0);
    assert_eq!(answers[2]["cpu_partial"], 3);
    assert_eq!(answers[3]["slab_size"], 128);
    let stdin = quarry_with("geometry --from -", rows.to_string().as_bytes());
    assert_eq!(text(&stdin), output);
    assert_eq!(text(&quarry_with("geometry --from -", b"[]")), "[]\n");
}

#[test]
fn a_bad_row_is_named_and_nothing_is_printed() {
    let good = json!({"design": "slub", "page_size": "4k", "cpus": 1, "object_size": 64});
    let with = |key: &str, value: Value| {
        let mut bad = good.clone();
        bad[key] = value;
        let rows = json!([good, bad]).to_string();
        quarry_with("geometry --from -", rows.as_bytes())
    };
    for (key, value, part) in [
        (
            "design",
            json!("slib"),
            "unknown design \"slib\"; designs are slab, slub, slubq, slob, sheaf, magazine",
        ),
        (
            "design",
            json!("slub@7.0"),
            "there is slub@2.6.22 to slub@6.19; take sheaf@7.0",
        ),
        (
            "page_size",
            json!(5000),
            "valid page sizes are 4k, 16k and 64k",
        ),
        ("page_size", json!([]), "missing field"),
        ("cpus", json!(0), "0 CPUs is not in 1..="),
        ("object_size", json!(0), "object size is 0"),
        ("object_size", json!(-1), "row 2"),
        ("align", json!(3), "alignment 3 is not a power of two"),
        (
            "flags",
            json!("wrong"),
            "unknown cache flag \"wrong\"; valid are hwcache",
        ),
        ("set", json!({"wrong": 1}), "slub@6.17 has slub_min_order"),
        ("set", json!({"slub_max_order": 11}), "it takes 0..=10"),
        ("unknown", json!(1), "there is no \"unknown\""),
    ] {
        assert_fails(&with(key, value), 2, &["<stdin>: row 2: ", part]);
    }
    let missing = quarry_with("geometry --from -", b"[{}]");
    assert_fails(&missing, 2, &["row 1: missing field"]);
    assert_fails(
        &quarry_with("geometry --from -", b"[1"),
        2,
        &["not a JSON array"],
    );
    assert_fails(
        &quarry_with("geometry --from -", b""),
        1,
        &["<stdin>: first line: it is empty"],
    );
    assert_fails(
        &quarry("geometry --from absent.json"),
        1,
        &["cannot read absent.json"],
    );
}

#[test]
fn wrong_questions() {
    assert_fails(&quarry("geometry"), 2, &["--object-size"]);
    assert_refuses(
        "geometry --object-size 64",
        2,
        r#"
            --page-size 8k => valid page sizes are 4k, 16k and 64k
            --cpus 0 => 0 CPUs
            --cpus 1000000 => 1000000 CPUs is not in 1..=
            --design slib => designs are slab, slub, slubq, slob, sheaf, magazine
            --set x=1 => slub@6.17 has slub_min_order
            --set slub@2.6.24.cpu_partial=1 => does not take part
        "#,
    );
}

/// Once, beside the answer.
#[test]
fn what_is_uncertain_of_a_release_is_noted() {
    let run = quarry("geometry --design slub@v6.16.3 --object-size 64");
    assert!(run.status.success());
    let notes = String::from_utf8(run.stderr).unwrap();
    assert_eq!(
        notes
            .matches("note: Linux 6.16: its source was not to be had")
            .count(),
        1
    );
}

#[test]
fn tunables_are_listed() {
    let table = stdout("tunables");
    for name in ["slub_max_order", "cpu_partial", "cpu_queue_size"] {
        assert!(table.contains(name), "{table}");
    }
    let names = |args: &str| -> Vec<String> {
        let args = format!("tunables --json {args}");
        let mut json = json(&args);
        let rows = json["tunables"].take();
        let rows = rows.as_array().unwrap();
        rows.iter()
            .map(|row| row["name"].as_str().unwrap().to_string())
            .collect()
    };
    let oldest = names("--design slub@2.6.22");
    assert_eq!(oldest.len(), 7);
    assert!(oldest.contains(&"defrag_ratio".to_string()));
    assert!(!oldest.contains(&"min_partial".to_string()));
    assert!(names("--design slubq").contains(&"cpu_batch_size".to_string()));
    assert!(!names("--design slubq").contains(&"cpu_partial".to_string()));
    let fractions = ["percpu_pagelist_fraction", "percpu_pagelist_high_fraction"];
    assert_eq!(names("--design page@5.9")[1..], fractions[..1]);
    assert_eq!(names("--design page")[1..], fractions);
    assert_refuses(
        "tunables --design",
        2,
        r#"
            page@2.6.18 => no era "2.6.18" | from 2.6.22 to
            x => designs are slab, slub, slubq, slob, sheaf, magazine
        "#,
    );
}

#[test]
fn version_and_help() {
    assert!(stdout("--version").starts_with("quarry "));
    for command in [
        "replay", "import", "snapshot", "what-if", "geometry", "tunables", "machines",
    ] {
        let help = stdout(&format!("{command} --help"));
        assert!(
            help.contains("Examples:") && help.contains("Exit codes:"),
            "{help}"
        );
    }
    assert_fails(&quarry("bogus"), 2, &["unrecognized subcommand"]);
}

/// `--pages`, as JSON.
fn pages(args: &str) -> Vec<Value> {
    let args = format!("geometry --pages --json {args}");
    let mut json = json(&args);
    serde_json::from_value(json["runs"].take()).unwrap()
}

#[test]
fn pages_as_table() {
    let mut text = String::new();
    for args in [
        "--zone 16G --cpus 8 --page-size 4k,64k --era 4.13,6.18",
        "--zone dma=15M,dma32=3G,normal=13G --cpus 2 --min-free-kbytes 67584 --era 2.6.24,6.18",
        "--zone 1G --fraction 8 --watermark-scale-factor 50",
    ] {
        let table = stdout(&format!("geometry --pages {args}"));
        text.push_str(&format!("$ quarry geometry --pages {args}\n{table}\n"));
    }
    crate::golden::check("geometry_pages.txt", &text);
}

/// The zones of a running 6.18 kernel, as its zoneinfo has them.
#[test]
fn pages_of_several_zones() {
    let zones = format!(
        "DMA={},dma32={}k,{}",
        3840 * 4096,
        772_918 * 4,
        2_785_280_u64 * 4096
    );
    let args = format!("--zone {zones} --cpus 2 --min-free-kbytes 67584 --era 6.18");
    let rows = pages(&args);
    let highs: Vec<_> = rows.iter().map(|row| &row["high_max"]).collect();
    assert_eq!(highs, [240, 48307, 174_080]);
    let normal = &rows[2];
    assert_eq!(normal["batch"], 63);
    assert_eq!(normal["high_min"], 8256);
    assert_eq!(
        normal["watermarks"],
        json!({"min": 13211, "low": 16513, "high": 19815, "promo": 23117})
    );
    assert_eq!(normal["orders"], json!([0, 1, 2, 3, 9]));
}

#[test]
fn pages_in_all_eras() {
    let eras = |args: &str| -> Vec<String> {
        let rows = pages(&format!("--zone 1G {args}"));
        rows.iter()
            .map(|row| row["era"].as_str().unwrap().to_string())
            .collect()
    };
    assert_eq!(eras("").len(), 8);
    assert_eq!(eras("--fraction 8")[0], "2.6.22");
    assert_eq!(eras("--watermark-scale-factor 20")[0], "4.13");
    assert_eq!(eras("--cpus 1,2,4 --page-size 4k,64k").len(), 48);
    let cold = &pages("--zone 1G --era 2.6.22")[0]["cold"];
    assert_eq!(*cold, json!({"high": 62, "batch": 15}));
}

#[test]
fn wrong_questions_about_pages() {
    assert_refuses(
        "geometry",
        2,
        r#"
            --pages => --zone
            --zone 1G --object-size 8 => --zone is for --pages
            --fraction 8 --object-size 8 => --fraction is for --pages
            --pages --zone 1G --object-size 8 => cannot be used with
            --pages --zone 1G --set slub_max_order=1 => cannot be used with
            --pages --zone 1X => "1X" is not a size
            --pages --zone high=1G => zones are dma, dma32 and normal
            --pages --zone 1G --era 99.0 => from 2.6.22 to
            --pages --zone 1k => at least one page
            --pages --zone 1G --cpus 0 => 0 CPUs is not in 1..
            --pages --zone 999999T => the most covered
            --pages --zone 1G --era 6.1 --fraction 7 => percpu_pagelist_high_fraction is 7
            --pages --zone 1G --watermark-scale-factor 3001 => 1..=3000
            --pages --zone 1G --min-free-kbytes 1048577 => all zones together have 1048576 KiB
            --pages --zone dma=1M,normal=1k => zone Normal of 1 KiB
        "#,
    );
}
