//! `quarry run micro`.

use serde_json::Value;

use crate::common::{self, assert_fails, assert_refuses, quarry, stdout};
use crate::golden;

/// A small run of every pattern, with options.
fn small(more: &str) -> String {
    let args = "run micro --pattern batch,pair,cross,bulk --cpus 2,4 --count 200";
    stdout(&format!("{args} {more}"))
}

fn json(args: &str) -> Value {
    let args = format!("run micro --json {args}");
    common::json(&args)
}

#[test]
fn a_small_run() {
    let text = small("-j 1");
    golden::check_layout("micro.txt", &text);
    assert_eq!(text, small("-j 3"));
    assert_ne!(text, small("--seed 2"));
    assert_ne!(text, small("--machine milan-2x64"));
}

#[test]
fn kmallocs_look_their_cache_up() {
    let pair = |more: &str| {
        let args = "--pattern pair --design slub@3.18 --count 50";
        let json = json(&format!("{args} {more}"));
        assert_eq!(json["runs"][0]["kmalloc"], !more.is_empty());
        json["runs"][0]["alloc"]["cycles"].as_f64().unwrap()
    };
    assert!(pair("--kmalloc") > pair(""));
    let args = "run micro --kmalloc --size 64k --design slub@6.18 --set cpu_partial=2";
    assert_fails(
        &quarry(args),
        2,
        &["has no cache; leave settings of caches out"],
    );
    let shown = stdout("run micro --kmalloc --pattern pair");
    assert!(
        shown.contains("All runs: pattern pair") && shown.contains("kmalloc yes"),
        "{shown}"
    );
}

#[test]
fn settings_reach_the_cache_and_the_page_allocator() {
    let ns_of = |args: &str, set: &str| {
        let json = json(&format!("{args} {set}"));
        let settings = json["settings"]["set"].as_array().unwrap();
        assert_eq!(settings.len(), set.matches("--set").count());
        json["runs"][0]["alloc"]["ns"].as_f64().unwrap()
    };
    let sheaves = "--design sheaf --pattern cross --cpus 2 --count 2000";
    let ns = |set: &str| ns_of(sheaves, set);
    let usual = ns("");
    let small = ns("--set sheaf_capacity=4");
    assert!(small > 1.5 * usual, "{small} {usual}");
    let barn = ns("--set sheaf.barn_full=0 --set barn_empty=0");
    assert_ne!(barn, usual);
    let slabs = "--design slub --pattern batch --size 2048 --count 500";
    let order = "--set slub_max_order=0";
    assert_ne!(ns_of(slabs, order), ns_of(slabs, ""));
    let shown = stdout("run micro --count 10 --set cpu_partial=30");
    assert!(
        shown.contains("\nsettings: --set cpu_partial=30\n"),
        "{shown}"
    );
}

#[test]
fn sensitivity_says_which_designs_stay_in_order() {
    let args = "run micro --pattern pair --count 50 --rounds 1 --sensitivity --design slab@6.1,slub@6.1,sheaf@7.0";
    let text = stdout(&format!("{args} -j 1"));
    golden::check_layout("micro_sensitivity.txt", &text);
    assert_eq!(text, stdout(&format!("{args} -j 3")));
    let json: Value = common::json(&format!("{args} --json"));
    let study = &json["sensitivity"];
    let claims = study["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2);
    // Neighbours of the reported order, wherever the machine's constants are in their ranges.
    for (claim, says) in claims
        .iter()
        .zip(["sheaf@7.0 before slub@6.1", "slub@6.1 before slab@6.1"])
    {
        assert_eq!(claim["claim"], says);
        assert_eq!(claim["true_of_values"], true);
        assert_eq!(claim["verdict"], "holds");
    }
    let figures = study["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 3 * 2);
    let slub = figures.iter().find(|figure| figure["run"] == 1).unwrap();
    assert_eq!(slub["value"], json["runs"][1]["alloc"]["ns"]);
    let unused = study["unused"].as_array().unwrap();
    assert!(unused.contains(&"work.ipi".into()), "{unused:?}");
}

#[test]
fn impossible_input_is_refused() {
    assert_refuses(
        "run micro",
        2,
        r#"
            --pattern triple => 'triple' | batch, pair, cross, spread, bulk
            --design slib => unknown design "slib"
            --design slub@7.0 => take sheaf@7.0
            --size 5G => --size | must be below 4G
            --cpus 0 => 0 CPUs on haswell-ep-2x12 | take 1 to 96
            --cpus 97 => 97 CPUs on haswell-ep-2x12 | take 1 to 96
            --count 0 => count and rounds must be at least 1
            --rounds 0 => count and rounds must be at least 1
            --pattern cross => cpus must be at least 2 for cross
            --pattern bulk --bulk 0 => bulk must be 1 to 1024
            --pattern bulk --bulk 9 --count 8 => count must be at least bulk, 9
            --page-size 5k => valid page sizes are 4k, 16k and 64k
            --memory 0 => 0 bytes of memory | 4k to 8T
            --set bogus=1 => "bogus=1" | no such tunable
            --set cpu_partial => there is no "="
            --machine vax => there is no machine "vax"
        "#,
    );
    let bounded = "--design slub@4.13 --set order=9 --set slub_max_order=1";
    let bounded = quarry(&format!("run micro {bounded}"));
    assert_fails(&bounded, 2, &["order = 9 is refused", "slub_max_order"]);
    let objects = "--design slub --size 4k --memory 2M";
    let exhausted = quarry(&format!("run micro {objects}"));
    assert_fails(&exhausted, 3, &["no room for the objects", "more memory"]);
}
