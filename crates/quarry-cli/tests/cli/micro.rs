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
fn objects_of_a_node_come_from_others_when_it_is_full() {
    let args = "--pattern batch --design slub@6.9,slub@6.10 --count 1000 --size 512";
    let json = json(&format!("{args} --node 0,1 --node-free 1:0"));
    let [near, _, before, from] = json["runs"].as_array().unwrap().as_slice() else {
        panic!("{json}");
    };
    assert_eq!(
        (&near["node"], &near["other_node"]),
        (&0.into(), &0.0.into())
    );
    for run in [before, from] {
        assert_eq!((&run["node"], &run["other_node"]), (&1.into(), &1.0.into()));
    }
    let peak = |run: &Value| run["peak_slab_bytes"].as_f64().unwrap();
    assert!(peak(before) > 8.0 * peak(from), "{json}");
    let shown = stdout(&format!("run micro {args} --node 0,1 --node-free 1:0"));
    assert!(shown.contains("from other nodes"), "{shown}");
    // Without a node there is nothing to say.
    let shown = stdout(&format!("run micro {args}"));
    assert!(!shown.contains("other nodes"), "{shown}");
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
            --pattern bulk --node 1 => bulk with node: | leave out one of both
            --node 2 => node: there is no node 2 | haswell-ep-2x12 has 2 nodes
            --machine harpertown-2x4 --node 1 => there is no node 1 | has 1 node
            --node-free 64M => node-free | write NODE:BYTES, such as 1:256M
            --node-free x:64M => the node must be a number
            --node-free 1:9G => node-free must be at most 8192M
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
