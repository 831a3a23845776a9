//! `quarry machines`.

use crate::common::{assert_fails, assert_has, json, quarry, stdout};

#[test]
fn machines_are_listed_and_shown() {
    let list = stdout("machines");
    assert!(
        list.contains("haswell-ep-2x12") && list.contains("24"),
        "{list}"
    );
    let one = stdout("machines haswell-ep-2x12");
    assert_has(
        &one,
        &[
            "latency.dirty_remote",
            "Sources",
            "30720 KiB, 20 ways, inclusive",
        ],
    );
}

#[test]
fn a_machine_in_json_has_all_that_its_file_has() {
    let power9 = json("machines power9-16 --json");
    let machine = &power9["machines"][0];
    assert_eq!(machine["name"], "power9-16");
    assert_eq!(machine["cpus"], 16);
    let costs = machine["costs"].as_array().unwrap();
    let irq = costs
        .iter()
        .find(|cost| cost["key"] == "work.irq_save")
        .unwrap();
    assert_eq!(irq["value"], 2.0);
    assert_eq!(irq["unit"], "cycles");
    assert_eq!(irq["unverified"], true);
    let all = json("machines --json");
    assert_eq!(all["machines"].as_array().unwrap().len(), 9);
}

#[test]
fn a_machine_is_written_as_a_file_that_reads_as_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("power9-16.toml");
    std::fs::write(&path, stdout("machines power9-16 --toml")).unwrap();
    let [bundled, file] = ["power9-16", path.to_str().unwrap()]
        .map(|machine| json(&format!("machines {machine} --json"))["machines"].clone());
    assert_eq!(bundled, file);
}

#[test]
fn what_is_no_machine_is_refused() {
    assert_fails(
        &quarry("machines vax"),
        2,
        &["there is no machine \"vax\"", "milan-2x64"],
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, "about = \"mine\"\nghz = -1\n").unwrap();
    let path = path.to_str().unwrap();
    assert_fails(
        &quarry(&format!("machines {path}")),
        1,
        &["mine: line 1: missing field `topology`"],
    );
    let text = include_str!("../../../quarry-machines/machines/power9-16.toml");
    std::fs::write(path, text.replacen("ghz = 3.8", "ghz = -1", 1)).unwrap();
    assert_fails(
        &quarry(&format!("machines {path}")),
        1,
        &["mine, line 2: ghz: -1: a core has 0.1 to 20"],
    );
    assert_fails(
        &quarry("machines no/such.toml"),
        1,
        &["cannot read no/such.toml"],
    );
}
