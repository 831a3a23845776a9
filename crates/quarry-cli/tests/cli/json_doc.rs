//! `quarry explain --all`, which is made of the types of the outputs, names all that commands print.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{json, stdout};

/// Paths in the table of a command's fields.
fn documented<'a>(all: &'a str, command: &str) -> BTreeSet<&'a str> {
    let (_, rest) = all.split_once(&format!("## {command}\n")).unwrap();
    let (_, fields) = rest.split_once("| field | meaning |").unwrap();
    let rows = fields.split("\n\n").next().unwrap().lines();
    let fields = rows.filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
    fields.map(|(field, _)| field).collect()
}

/// Paths of everything in a value.
fn printed(path: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                printed(&path, value, into);
                into.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| printed(path, item, into)),
        _ => {}
    }
}

#[test]
fn every_field_that_is_printed_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let all = stdout("explain --all");
    let trace = crate::common::small_trace(dir.path());
    let boot = crate::what_if::boot(dir.path());
    let replay = format!("replay {trace} --design slub,slob");
    let timed = format!("replay {trace} --time --design slub");
    let what_if = format!("what-if {boot}");
    let (info, info_boot) = (format!("info {trace}"), format!("info {boot}"));
    let callers = format!("callers {trace}");
    let lists = format!("replay {trace} --design slub --set cpu_partial=0,6 --callers");
    let load = "run hackbench, run tbench, run tcp_rr, run will-it-scale";
    // Members of these are names of counters, locks, lines and work.
    let maps = [
        "runs.stats.",
        "runs.locks.",
        "runs.lock_waits.",
        "runs.lock_waits_ns.",
        "runs.touches.",
        "runs.work.",
    ];
    for (section, args) in [
        ("replay", replay.as_str()),
        (
            "replay",
            "replay hackbench --design slub --page-size 4k --debug U,kmalloc-96",
        ),
        ("replay --time", &timed),
        ("replay", &lists),
        ("what-if", &what_if),
        ("info", &info),
        ("info", &info_boot),
        ("callers", &callers),
        (
            "run micro",
            "run micro --pattern cross --cpus 2 --count 50 --design sheaf,slub --sensitivity",
        ),
        (
            "run pages",
            "run pages --processes 2 --pages 200 --era 4.13",
        ),
        (load, "run hackbench -g 1 -f 2 -l 5 --cpus 2 --design slub"),
        (
            "run hackbench, run tbench, run tcp_rr with --host",
            "run hackbench -g 1 -f 2 -l 5 --host --rounds 1 --design slub",
        ),
        ("reproduce", &crate::common::kept_thread(dir.path()).again),
        ("geometry", "geometry --object-size 192"),
        ("geometry --pages", "geometry --pages --zone 1G"),
        ("tunables", "tunables"),
        ("machines, calibrate", "machines"),
    ] {
        let mut json = json(&format!("{args} --json"));
        let members = json.as_object_mut().unwrap();
        assert_eq!(members.remove("schema"), Some(1.into()));
        let quarry = members.remove("quarry").unwrap();
        assert_eq!(quarry["version"], env!("CARGO_PKG_VERSION"));
        let command = members.remove("command").unwrap();
        assert!(
            section.contains(command.as_str().unwrap()),
            "{command} in {section}"
        );
        let mut found = BTreeSet::new();
        printed("", &json, &mut found);
        let documented = documented(&all, section);
        let missing = found
            .iter()
            .filter(|path| !maps.iter().any(|map| path.starts_with(map)));
        let missing: Vec<&String> = missing
            .filter(|path| !documented.contains(path.as_str()))
            .collect();
        assert!(missing.is_empty(), "{section}: {missing:?}");
    }
}
