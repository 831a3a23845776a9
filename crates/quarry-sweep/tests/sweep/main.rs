//! Whole sweeps on files: the same rows however they are run, and what a folder keeps.

mod questions;

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quarry_machines::Machine;
use quarry_sweep::table::{Column, Row, Table};
use quarry_sweep::{Folder, Here, Options, Outcome, Plan, Shard, Sweep, SweepError, VERSION_KEY};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A snapshot of the lab's tests.
fn data(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-lab/tests/data");
    tests.join("6.17-to-7.3-x86_64-4k").join(name)
}

/// Inputs: two snapshots, one of them twice, and a file that is none.
fn inputs() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [
        ("6.17.13.json.gz", "a.json.gz"),
        ("7.3.4.json.gz", "b.json.gz"),
        ("6.17.13.json.gz", "c.json.gz"),
    ] {
        fs::copy(data(from), folder.path().join(to)).unwrap();
    }
    fs::write(folder.path().join("d.txt"), "no report at all\n").unwrap();
    folder
}

fn plan(of: &Value) -> Plan {
    let Value::Object(object) = of else {
        panic!("{of}: a plan is an object");
    };
    Plan::of_object(object).unwrap()
}

/// Message about a wrong plan.
fn refused(of: &Value) -> String {
    let refused = Plan::of_object(of.as_object().unwrap());
    refused.unwrap_err().to_string()
}

fn upgrade(inputs: &Path) -> Sweep {
    let plan = plan(&json!({
        "input": inputs.join("*").display().to_string(),
        "release": ["6.12", "6.18", "7.3"],
        "page_size": ["4k", "64k"],
        "set": ["min_partial=0..1"],
    }));
    Sweep::of(&plan, true).unwrap()
}

fn run(sweep: &Sweep, folder: &Path, options: &Options) -> Result<Outcome, SweepError> {
    let folder = Folder::create(folder, sweep)?;
    sweep.execute(&folder, options, &AtomicBool::new(false), &|_| ())
}

fn jobs(n: usize) -> Options {
    Options {
        jobs: NonZeroUsize::new(n),
        ..Options::default()
    }
}

/// Bytes of the files whose names begin so, by name.
fn files(folder: &Path, kinds: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if kinds.iter().any(|kind| name.starts_with(kind)) {
            found.push((name, fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn merged(folder: &Path) -> Vec<(String, Vec<u8>)> {
    Folder::open(folder).unwrap().merge().unwrap();
    files(folder, &["results.parquet", "caches.parquet"])
}

fn texts<'a>(table: &'a Table, name: &str) -> Vec<Option<&'a str>> {
    match table.column(name) {
        Some(Column::Text(values)) => values.iter().map(Option::as_deref).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn rows_are_the_same_bytes_however_they_are_run() {
    let inputs = inputs();
    let sweep = upgrade(inputs.path());
    assert_eq!(sweep.inputs.all.len(), 3);
    assert_eq!(sweep.inputs.same.len(), 1);
    assert_eq!(sweep.cells.len(), 3 * 3 * 2 * 3);
    assert!(
        sweep.chunks(None).len() > 1,
        "a sweep of one chunk shows little"
    );

    let out = tempfile::tempdir().unwrap();
    let [one, three, parts, broken] =
        ["one", "three", "parts", "broken"].map(|it| out.path().join(it));
    let outcome = run(&sweep, &one, &jobs(1)).unwrap();
    assert_eq!(
        (outcome.cells, outcome.present, outcome.failed),
        (54, 0, 18)
    );
    run(&sweep, &three, &jobs(3)).unwrap();
    for index in [2, 0, 1] {
        let options = Options {
            shard: Some(Shard { index, of: 3 }),
            ..jobs(1)
        };
        run(&sweep, &parts, &options).unwrap();
    }
    // Stopped after some cells, and run again.
    let folder = Folder::create(&broken, &sweep).unwrap();
    let (stop, cells) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outcome = sweep.execute(&folder, &jobs(1), &stop, &|_| {
        let before = cells.fetch_add(1, Ordering::Relaxed);
        stop.store(before == sweep.cells.len() / 2, Ordering::Relaxed);
    });
    assert!(outcome.unwrap().stopped);
    let outcome = run(&sweep, &broken, &jobs(2)).unwrap();
    assert!(outcome.present > 0 && !outcome.stopped, "{outcome:?}");

    let expected = files(&one, &["part", "caches"]);
    for other in [&three, &parts, &broken] {
        assert!(files(other, &["part", "caches"]) == expected, "{other:?}");
    }
    let expected = merged(&one);
    for other in [&three, &parts, &broken] {
        assert!(merged(other) == expected, "{other:?}");
    }
}

#[test]
fn a_row_has_its_settings_its_answer_or_its_error() {
    let inputs = inputs();
    let out = tempfile::tempdir().unwrap();
    let sweep = upgrade(inputs.path());
    run(&sweep, out.path(), &jobs(2)).unwrap();
    let table = Folder::open(out.path())
        .unwrap()
        .results(|_| true)
        .unwrap()
        .unwrap();
    let names: Vec<&str> = table.fields().iter().map(|of| of.name.as_str()).collect();
    assert!(
        names.starts_with(&[
            "input",
            "asked.release",
            "asked.page_size",
            "set.min_partial",
            "status",
            "error"
        ]),
        "{names:?}"
    );
    assert!(names.ends_with(&["cell", "input_digest"]), "{names:?}");
    let mut rows = (0..table.rows()).map(|row| table.row(row));
    for row in rows.clone() {
        let failed = row.text("status") == "failed";
        assert_eq!(row.value("error").is_null(), !failed);
        assert_eq!(row.number("predicted_bytes").is_none(), failed);
        assert_eq!(row.text("input").ends_with("d.txt"), failed);
    }
    let first = table.row(0);
    assert_eq!(first.text("asked.release"), "6.12");
    assert_eq!(first.text("set"), "default");
    assert!(first.value("set.min_partial").is_null());
    // Wherever the rows are asked for, they are what the lab answers.
    let asked = json!({"release": "7.3", "page_size": "64k", "set": "min_partial=1"});
    let asked: quarry_lab::ask::WhatIf = quarry_ask::of(&asked).unwrap();
    let snapshot = quarry_snapshot::Snapshot::read(&data("6.17.13.json.gz"), None).unwrap();
    let told = asked.ask(&snapshot).unwrap();
    let row = rows.find(|row| {
        row.text("asked.release") == "7.3"
            && row.number("asked.page_size") == Some(65536.0)
            && row.number("set.min_partial") == Some(1.0)
            && row.text("input").ends_with("a.json.gz")
    });
    assert_eq!(
        row.unwrap().value("predicted_bytes"),
        json!(told[0].bytes.predicted_bytes)
    );
}

#[test]
fn a_cell_is_run_once_until_something_changes() {
    let inputs = inputs();
    let out = tempfile::tempdir().unwrap();
    let sweep = upgrade(inputs.path());
    run(&sweep, out.path(), &jobs(2)).unwrap();
    let again = run(&sweep, out.path(), &jobs(2)).unwrap();
    assert_eq!((again.cells, again.present), (54, 54));
    let retried = Options {
        retry: true,
        ..jobs(2)
    };
    let again = run(&sweep, out.path(), &retried).unwrap();
    assert_eq!((again.present, again.failed), (36, 18));

    // More values of an axis leave the others' rows as they are.
    let mut more = sweep.plan.clone();
    let releases = json!({"release": ["6.12", "6.18", "7.0", "7.3"]});
    more.add(releases.as_object().unwrap().clone(), Path::new(""))
        .unwrap();
    let more = Sweep::of(&more, true).unwrap();
    let grown = run(&more, out.path(), &jobs(2)).unwrap();
    assert_eq!((grown.cells, grown.present), (72, 54));
    let other = tempfile::tempdir().unwrap();
    run(&more, other.path(), &jobs(2)).unwrap();
    assert!(merged(out.path()) == merged(other.path()));

    // Another content of a file is another cell.
    fs::copy(data("7.3.4.json.gz"), inputs.path().join("d.txt")).unwrap();
    fs::remove_file(inputs.path().join("b.json.gz")).unwrap();
    let changed = run(&upgrade(inputs.path()), out.path(), &jobs(2)).unwrap();
    assert_eq!((changed.cells, changed.present), (36, 36));
    // Its rows take the place of the old ones, but for those of a release that the last sweep does not ask for.
    fs::write(inputs.path().join("d.txt"), "no report, again\n").unwrap();
    run(&upgrade(inputs.path()), out.path(), &jobs(2)).unwrap();
    let rows = Folder::open(out.path()).unwrap().results(|_| true);
    let rows = rows.unwrap().unwrap();
    let status = texts(&rows, "status");
    let failed = status.iter().filter(|it| **it == Some("failed"));
    assert_eq!(failed.count(), 18 + 6);
}

#[test]
fn files_of_others_stay_and_damaged_ones_are_made_again() {
    let inputs = inputs();
    let out = tempfile::tempdir().unwrap();
    let sweep = upgrade(inputs.path());
    run(&sweep, out.path(), &jobs(2)).unwrap();
    let before = merged(out.path());
    let parts = files(out.path(), &["part"]);
    let [(first, bytes), (second, _), ..] = parts.as_slice() else {
        panic!("{} files", parts.len());
    };
    fs::write(out.path().join(second), &bytes[..bytes.len() / 2]).unwrap();
    let mut old =
        Table::of_parquet(fs::File::open(out.path().join(first)).unwrap(), |_| true).unwrap();
    old.notes
        .insert(VERSION_KEY.to_string(), "0.0.9".to_string());
    fs::remove_file(out.path().join(first)).unwrap();
    fs::write(
        out.path().join("part-0123456789abcdef.parquet"),
        old.to_parquet().unwrap(),
    )
    .unwrap();

    let done = Folder::open(out.path()).unwrap().done().unwrap();
    assert_eq!(done.damaged, [out.path().join(second)]);
    assert_eq!(done.others.get("0.0.9"), Some(&1));
    let again = run(&sweep, out.path(), &jobs(2)).unwrap();
    assert!(again.present < again.cells);
    assert!(merged(out.path()) == before);
}

#[test]
fn folders_of_others_are_refused() {
    let inputs = inputs();
    let sweep = upgrade(inputs.path());
    let error = Folder::create(inputs.path(), &sweep)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("of no sweep and not empty; name a new folder"),
        "{error}"
    );
    let error = Folder::open(inputs.path()).unwrap_err().to_string();
    assert!(error.contains("quarry sweep -o wrote"), "{error}");
    let error = Folder::create(&inputs.path().join("d.txt"), &sweep).unwrap_err();
    assert!(matches!(error, SweepError::Place { .. }), "{error}");
}

/// Rows of other settings in one table would be compared with these.
#[test]
fn a_folder_has_rows_of_one_plan() {
    let inputs = inputs();
    let out = tempfile::tempdir().unwrap();
    let plan = |name: &str, values: &[&str]| {
        let input = inputs.path().join("a.json.gz");
        let plan = json!({"ask": "what-if", "input": [input], name: values});
        Sweep::of(&Plan::of_object(plan.as_object().unwrap()).unwrap(), false).unwrap()
    };
    run(&plan("release", &["6.12"]), out.path(), &jobs(1)).unwrap();
    // Values may be added.
    run(&plan("release", &["6.12", "7.3"]), out.path(), &jobs(1)).unwrap();
    let error = Folder::create(out.path(), &plan("page-size", &["64k"])).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("sets release, and this one sets page-size; name a folder for each (-o)"),
        "{told}"
    );
}

#[test]
fn rows_that_cannot_be_written_are_counted() {
    let inputs = inputs();
    let sweep = upgrade(inputs.path());
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("gone");
    let folder = Folder::create(&path, &sweep).unwrap();
    // The folder goes away once cells run, as a full disk does: the file cannot be made.
    let stop = AtomicBool::new(false);
    let error = sweep.execute(&folder, &jobs(1), &stop, &|_| {
        let _ = fs::remove_dir_all(&path);
    });
    let error = error.unwrap_err();
    assert!(
        matches!(
            error,
            SweepError::Incomplete {
                missing: 54,
                cells: 54,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("54 of 54 cells have no row"),
        "{error}"
    );
}

#[test]
fn a_chunk_is_its_own_text() {
    let inputs = inputs();
    let sweep = upgrade(inputs.path());
    let chunk = &sweep.chunks(None)[0];
    let text = serde_json::to_string(chunk).unwrap();
    let mut again: quarry_sweep::Chunk = serde_json::from_str(&text).unwrap();
    assert_eq!(again.id(), chunk.id());
    // The file may lie elsewhere: rows name the input, and so do errors.
    let name = &chunk.cells[0].input.name;
    let moved = inputs.path().join("moved");
    fs::rename(name, &moved).unwrap();
    let here = Here {
        local: [(name.clone(), moved.clone())].into_iter().collect(),
        ..Here::default()
    };
    let part = again.run(&here).unwrap().unwrap();
    let names: BTreeSet<Option<&str>> = texts(&part.rows, "input").into_iter().collect();
    assert_eq!(names.first(), Some(&Some(name.as_str())));
    assert!(part.failed < again.cells.len());
    fs::write(&moved, "changed").unwrap();
    let part = again.run(&here).unwrap().unwrap();
    let error = texts(&part.rows, "error")[0].unwrap();
    assert!(error.contains(name.as_str()), "{error}");
    again.version = "0.0.9".to_string();
    let error = again.run(&here).unwrap_err().to_string();
    assert!(error.contains("use one version on all machines"), "{error}");
}

#[test]
fn recordings_are_replayed_in_both_ways() {
    let out = tempfile::tempdir().unwrap();
    let replay = plan(
        &json!({"ask": "replay", "input": "kv", "design": ["slub@6.18", "slab@6.3"], "page-size": "4k",
        "set": {"slub.cpu_partial": [0, 6]}}),
    );
    let sweep = Sweep::of(&replay, true).unwrap();
    // SLAB does not have the tunable: it has one cell.
    assert_eq!(sweep.cells.len(), 4);
    let outcome = run(&sweep, &out.path().join("replay"), &jobs(2)).unwrap();
    assert_eq!(outcome.failed, 0);
    let table = Folder::open(&out.path().join("replay"))
        .unwrap()
        .results(|_| true)
        .unwrap()
        .unwrap();
    assert_eq!(
        texts(&table, "design"),
        [Some("slab"), Some("slub"), Some("slub"), Some("slub")]
    );
    assert!(table.column("events_per_second").is_none());
    assert!(table.column("peak_slab_bytes").is_some());

    let refused = refused(&json!({"ask": "replay --time", "input": "kv", "machine": "none"}));
    assert!(
        refused.starts_with("machine: there is no machine \"none\""),
        "{refused}"
    );
    // What depends on the input fails in its cells: copies of two CPUs need more than the machine has.
    let timed = plan(
        &json!({"ask": "replay --time", "input": "hackbench", "design": "sheaf@7.0", "seed": "1..2",
        "copies": 100}),
    );
    let sweep = Sweep::of(&timed, false).unwrap();
    let outcome = run(&sweep, &out.path().join("timed"), &jobs(2)).unwrap();
    assert_eq!(outcome.failed, 2);
    // A window of the recording; the other draw is another machine.
    let window = plan(
        &json!({"ask": "replay --time", "input": "hackbench", "design": "sheaf@7.0", "draw": "0..1",
        "from": "+0.1", "until": "+0.11", "copies": 2, "pace": "full", "seed": 2, "machine": "milan-2x64"}),
    );
    let sweep = Sweep::of(&window, false).unwrap();
    assert_eq!(
        run(&sweep, &out.path().join("window"), &jobs(2))
            .unwrap()
            .failed,
        0
    );
    let folder = Folder::open(&out.path().join("window")).unwrap();
    let rows = folder.results(|_| true).unwrap().unwrap();
    let [values, drawn] = [0, 1].map(|row| rows.row(row));
    assert_eq!(
        [values, drawn].map(|row| row.number("asked.draw")),
        [Some(0.0), Some(1.0)]
    );
    let both = |name: &str| [values, drawn].map(|row| row.number(name).unwrap());
    let [of_values, of_drawn] = both("operation_ns");
    assert_ne!(of_values, of_drawn);
    let [allocs, of_drawn] = both("replayed.allocs");
    assert_eq!(allocs, of_drawn);
    assert!((100.0..100_000.0).contains(&allocs), "{allocs}");

    let unknown = plan(&json!({"input": "kv", "design": "slub", "set": "sheaf_capacity=4"}));
    let error = Sweep::of(&unknown, false).unwrap_err().to_string();
    assert!(error.contains("no design of the plan has it"), "{error}");
    let none = Sweep::of(&plan(&json!({"ask": "replay"})), false).unwrap_err();
    assert!(none.to_string().contains("the plan has no input"), "{none}");
}

#[test]
fn a_machine_is_known_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let first = Machine::bundled("haswell-ep-2x12").unwrap();
    fs::write(at("mine.toml"), first.to_text()).unwrap();
    let text = "ask = 'run micro'\ncount = 100\npattern = 'batch'\ndesign = 'slub@6.17'\nmachine = 'mine.toml'\nseed = '1..2'";
    fs::write(at("plan.toml"), text).unwrap();
    // A path in a plan is relative to the plan.
    let planned = || Sweep::of(&Plan::read(&at("plan.toml")).unwrap(), false).unwrap();
    let (sweep, out) = (planned(), at("out"));
    assert_eq!(run(&sweep, &out, &jobs(1)).unwrap().failed, 0);
    let rows = || {
        Folder::open(&out)
            .unwrap()
            .results(|_| true)
            .unwrap()
            .unwrap()
    };
    let before = rows();

    // Calibrated again.
    let mut second = first.clone();
    second.ghz /= 2.0;
    fs::write(at("mine.toml"), second.to_text()).unwrap();
    assert_eq!(
        Folder::open(&out)
            .unwrap()
            .status()
            .unwrap()
            .missing_cells(),
        0
    );
    let again = run(&planned(), &out, &jobs(1)).unwrap();
    assert_eq!((again.cells, again.present, again.failed), (2, 0, 0));
    let after = rows();
    assert_eq!(after.rows(), 2);
    let ns = |table: &Table| table.row(0).number("object_ns").unwrap();
    assert!(ns(&after) > ns(&before));
    // A chunk has the machine with it, wherever it runs and whatever the file says meanwhile.
    let chunk = &sweep.chunks(None)[0];
    let text = serde_json::to_string(chunk).unwrap();
    let chunk: quarry_sweep::Chunk = serde_json::from_str(&text).unwrap();
    let part = chunk.run(&Here::default()).unwrap().unwrap();
    assert_eq!(ns(&part.rows), ns(&before));
    assert_eq!(texts(&part.rows, "cell")[0], texts(&before, "cell")[0]);

    // The name of a file is no part of its content, and one content is one machine.
    fs::write(at("same.toml"), first.to_text()).unwrap();
    let named = |names: Value| {
        let mut plan = Plan::read(&at("plan.toml")).unwrap();
        let machine = json!({"machine": names});
        plan.add(machine.as_object().unwrap().clone(), folder.path())
            .map_err(|error| error.to_string())?;
        Sweep::of(&plan, false).map_err(|error| error.to_string())
    };
    assert_eq!(
        named(json!(["same.toml"])).unwrap().cells[0].id,
        sweep.cells[0].id
    );
    fs::copy(at("same.toml"), at("mine.toml")).unwrap();
    let error = named(json!(["same.toml", "mine.toml"])).unwrap_err();
    assert!(error.contains("mine.toml has the content of"), "{error}");
}

#[test]
fn rows_of_caches_have_their_times() {
    let timed = plan(&json!({
        "ask": "replay --time", "input": "tbench", "from": "+0.45", "until": "+0.455", "pace": "full",
        "design": ["slub@6.17", "sheaf@7.0"]
    }));
    let sweep = Sweep::of(&timed, true).unwrap();
    let of = |row: Row<'_>, name: &str| row.number(name).unwrap();
    let mut runs = 0;
    for chunk in sweep.chunks(None) {
        let part = chunk.run(&Here::default()).unwrap().unwrap();
        let caches = part.caches.unwrap();
        for row in (0..part.rows.rows()).map(|row| part.rows.row(row)) {
            let own = (0..caches.rows()).map(|cache| caches.row(cache));
            let own = own.filter(|cache| cache.text("cell") == row.text("cell"));
            let operations: f64 = own.map(|cache| of(cache, "operations")).sum();
            assert!(operations > 1000.0);
            assert_eq!(operations, of(row, "alloc.count") + of(row, "free.count"));
            runs += 1;
        }
    }
    assert_eq!(runs, 2);
}

#[test]
fn a_cell_is_stopped_in_its_middle() {
    let out = tempfile::tempdir().unwrap();
    let long = plan(
        &json!({"ask": "replay --time", "input": "hackbench", "design": "sheaf@7.0", "copies": 64,
        "machine": "milan-2x64"}),
    );
    let sweep = Sweep::of(&long, false).unwrap();
    let folder = Folder::create(out.path(), &sweep).unwrap();
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
        });
        sweep.execute(&folder, &jobs(1), &stop, &|_| ())
    });
    assert!(outcome.unwrap().stopped);
    // The cell has no row, and none that says that it failed.
    assert_eq!(folder.results(|_| true).unwrap(), None);
}
