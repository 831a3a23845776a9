//! `quarry calibrate`.

use std::path::Path;

use serde_json::Value;

use crate::common::{assert_fails, assert_refuses, json, measured, quarry, stdout, text};

#[test]
fn this_computer_becomes_a_machine_that_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let path = path.to_str().unwrap();
    // In some virtual machines the kernel describes no caches.
    if !Path::new("/sys/devices/system/cpu/cpu0/cache/index0/size").exists() {
        let refused = quarry(&format!("calibrate -o {path} --quick"));
        return assert_fails(&refused, 1, &["describes no data cache"]);
    }
    let made = measured(|| quarry(&format!("calibrate -o {path} --quick --json")));
    let made: Value = serde_json::from_str(&text(&made)).unwrap();
    let shown = json(&format!("machines {path} --json"));
    assert_eq!(made["command"], "calibrate");
    assert_eq!(made["machines"], shown["machines"]);
    let costs = made["machines"][0]["costs"].as_array().unwrap();
    let cost = |key: &str| costs.iter().find(|cost| cost["key"] == key).unwrap();
    assert_eq!(cost("latency.l1")["unverified"], false);
    assert_eq!(cost("work.irq_save")["unverified"], true);
    for cost in costs {
        let number = |name: &str| cost[name].as_f64().unwrap();
        assert!(
            number("low") <= number("value") && number("value") <= number("high"),
            "{cost}"
        );
    }
    let ran = stdout(&format!(
        "run micro --machine {path} --count 100 --rounds 1"
    ));
    assert!(ran.contains("slub"), "{ran}");
    assert_fails(
        &quarry(&format!("calibrate -o {path} --quick")),
        2,
        &["mine.toml: the output exists; replace it with --force"],
    );
}

#[test]
fn what_cannot_be_written_is_said_before_it_is_measured() {
    assert_fails(
        &quarry("calibrate -o no/such/folder/mine.toml"),
        1,
        &["cannot write no/such/folder/mine.toml"],
    );
    assert_refuses(
        "calibrate",
        2,
        r#"
            -o mine => mine: the name of a machine file ends with .toml
            -o - --json => give --json or -o -, not both
            => --output
        "#,
    );
}
