//! `quarry run pages`.

use serde_json::Value;

use crate::common::{assert_refuses, json, quarry, stdout};
use crate::golden;

/// A small run, with options.
fn small(more: &str) -> String {
    let args = "run pages --processes 1,4 --pages 300";
    stdout(&format!("{args} {more}"))
}

#[test]
fn a_small_run() {
    let text = small("-j 1");
    golden::check_layout("run_pages.txt", &text);
    assert_eq!(text, small("-j 3"));
    assert_ne!(text, small("--seed 2"));
}

#[test]
fn sockets_that_the_machine_lacks_are_noted() {
    let noted = |processes: &str| {
        let args = "run pages --pages 8 --era 4.13 --processes";
        let output = quarry(&format!("{args} {processes}"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(noted("13"), "");
    let text = noted("24,25");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("has 24 CPUs; 25 are 3 sockets like its 2"),
        "{text}"
    );
}

#[test]
fn sysctls_reach_the_page_allocator() {
    let holds = |set: &str| {
        let args = "run pages --processes 1 --era 6.1 --json";
        let json = json(&format!("{args} {set}"));
        json["runs"][0]["free_lock"]["taken"].as_f64().unwrap()
    };
    let usual = holds("");
    let short = holds("--set page.percpu_pagelist_high_fraction=2000000");
    assert!(short > usual, "{short} {usual}");
}

#[test]
fn sensitivity_says_which_releases_stay_in_order() {
    let args = "run pages --processes 2 --json --sensitivity --era 4.13,6.18 --pages 40";
    let text = stdout(&format!("{args} -j 1"));
    assert_eq!(text, stdout(&format!("{args} -j 3")));
    let json: Value = serde_json::from_str(&text).unwrap();
    let [claim] = json["sensitivity"]["claims"].as_array().unwrap().as_slice() else {
        panic!("{json}");
    };
    assert_eq!(claim["claim"], "6.18 before 4.13");
    assert_eq!(claim["verdict"], "holds");
    // Two processes with so few pages never need the zone.
    for run in json["runs"].as_array().unwrap() {
        assert_eq!(run["zone_wait"], 0.0);
    }
}

#[test]
fn processes_move_and_lists_for_reclaim_have_a_lock() {
    let args = "run pages --processes 4 --pages 300 --era 6.18 --move-every 40,400 --lru";
    let runs = json(&format!("{args} --json"));
    let runs = runs["runs"].as_array().unwrap();
    let of = |name: &'static str| runs.iter().map(move |run| run[name].as_f64().unwrap());
    let elsewhere: Vec<f64> = of("other_cpu").collect();
    assert!(
        elsewhere[0] > elsewhere[1] && elsewhere[1] > 0.0,
        "{elsewhere:?}"
    );
    assert!(of("move_every").eq([40.0, 400.0]));
    assert!(
        runs.iter()
            .all(|run| run["lru"] == true && run["fault_lru"]["hold_ns"].is_number())
    );
    let text = stdout(args);
    assert!(
        text.contains("freed on another CPU") && text.contains("LRU's lock"),
        "{text}"
    );
    assert!(!small("").contains("LRU"));
}

#[test]
fn impossible_input_is_refused() {
    assert_refuses(
        "run pages",
        2,
        r#"
            --processes 0 => 0 CPUs on haswell-ep-2x12 | 1 to 96
            --processes 1,97 => 97 CPUs on haswell-ep-2x12 | as many can be had of skylake-sp-8x28
            --era 2.6.18 => "2.6.18" | 2.6.22
            --pages 0 => pages and rounds must be at least 1
            --rounds 0 => pages and rounds must be at least 1
            --processes 2 --move-every 0 => move-every must be at least 1
            --processes 1 --move-every 9 => processes must be at least 2 with move-every
            --page-size 5k => valid page sizes are 4k, 16k and 64k
            --memory 1M --pages 300 => need | of the machine's 1048576
            --memory 9T => 4k to 8T
            --set cpu_partial=1 => set cpu_partial=1 | write page.NAME=VALUE
            --set page.bogus=1 => "page.bogus=1" | page.min_free_kbytes
            --set page.min_free_kbytes=x => "x" is not a number
            --machine vax => there is no machine "vax"
        "#,
    );
}
