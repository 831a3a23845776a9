//! Sweeps of each question.

use quarry_sweep::{Folder, Sweep};
use serde_json::{Value, json};

use crate::{data, jobs, plan, refused, run, texts};

#[test]
fn loads_need_no_input() {
    let out = tempfile::tempdir().unwrap();
    let load = plan(
        &json!({"ask": "run hackbench", "groups": [1, 2], "loops": 3, "fds": 4, "cpus": 2, "seed": "1..2",
        "design": ["slub@6.17", "sheaf@7.0"], "set": ["sheaf.sheaf_capacity=4"]}),
    );
    let sweep = Sweep::of(&load, true).unwrap();
    // SLUB does not have the tunable, and runs without.
    assert_eq!(sweep.cells.len(), 2 * 2 * 2);
    assert_eq!(run(&sweep, out.path(), &jobs(2)).unwrap().failed, 0);
    let folder = Folder::open(out.path()).unwrap();
    let rows = folder.results(|_| true).unwrap().unwrap();
    assert!(
        texts(&rows, "input")
            .iter()
            .all(|name| *name == Some("run hackbench"))
    );
    for row in (0..rows.rows()).map(|row| rows.row(row)) {
        assert_eq!(row["size"], row["asked.groups"]);
        assert_eq!(row["options.loops"], 3, "{row:?}");
        assert!(row["per_second"].as_f64().unwrap() > 0.0);
    }
    // The machine does not have as many CPUs: a row each, with the sentence of the command.
    let wide = plan(&json!({"ask": "run tbench", "cpus": 4096, "design": "slub@6.17"}));
    let sweep = Sweep::of(&wide, false).unwrap();
    assert_eq!(
        run(&sweep, &out.path().join("wide"), &jobs(1))
            .unwrap()
            .failed,
        1
    );
    let wrong = plan(&json!({"ask": "run tcp_rr", "input": "kv"}));
    let error = Sweep::of(&wrong, false).unwrap_err().to_string();
    assert!(error.contains("run tcp_rr has no input"), "{error}");
}

#[test]
fn a_micro_benchmark_is_swept() {
    let out = tempfile::tempdir().unwrap();
    let spread = plan(&json!({
        "ask": "run micro", "pattern": "spread", "count": 500, "cpus": [2, 8], "size": [64, "1k"],
        "design": ["slub@6.17", "sheaf@7.0"], "set": ["sheaf.sheaf_capacity=4,60"], "draw": [0, 1],
        "machine": "skylake-sp-8x28"
    }));
    let sweep = Sweep::of(&spread, false).unwrap();
    // Settings of sheaves are none of SLUB's.
    assert_eq!(sweep.cells.len(), 2 * 2 * 2 * (1 + 3));
    let folder = out.path().join("micro");
    assert_eq!(run(&sweep, &folder, &jobs(2)).unwrap().failed, 0);
    let table = Folder::open(&folder).unwrap();
    let table = table.results(|_| true).unwrap().unwrap();
    assert_eq!(table.rows(), sweep.cells.len());
    for row in (0..table.rows()).map(|row| table.row(row)) {
        let of = |name: &str| row[name].as_f64().unwrap();
        assert_eq!(row["pattern"], "spread");
        assert_eq!(of("object_ns"), of("alloc.ns") + of("free.ns"));
        assert!(of("peak_slab_bytes") >= 500.0 * of("object_bytes"));
    }
    let refused = refused(&json!({"ask": "run micro", "pattern": "sprad"}));
    assert!(
        refused.starts_with("pattern: there is no \"sprad\"; there are batch"),
        "{refused}"
    );
}

/// The rows of a sweep none of whose cells fails.
fn rows(of: &Value) -> Vec<Value> {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("rows");
    let sweep = Sweep::of(&plan(of), true).unwrap();
    run(&sweep, &folder, &jobs(2)).unwrap();
    let folder = Folder::open(&folder).unwrap();
    let table = folder.results(|_| true).unwrap().unwrap();
    let errors = texts(&table, "error");
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
    (0..table.rows()).map(|row| table.row(row).into()).collect()
}

#[test]
fn every_question_is_swept() {
    let looks =
        rows(&json!({"ask": "look", "input": [data("7.3.4.json.gz"), data("6.17.13.json.gz")]}));
    assert_eq!(looks.len(), 2);
    let parts = |row: &Value| {
        ["live", "held", "partly_filled", "debugging", "padding"]
            .map(|part| row[format!("parts.{part}_bytes")].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    assert!(
        looks
            .iter()
            .all(|row| row["slab_bytes"].as_u64() == Some(parts(row)))
    );
    let slabs =
        rows(&json!({"ask": "geometry", "object-size": [192, "9k"], "page-size": ["4k", "64k"]}));
    assert_eq!(slabs.len(), 4);
    assert_eq!(slabs[3]["slab_size"], 9216);
    let pages = rows(&json!({"ask": "run pages", "processes": [1, 2], "pages": 8, "era": "6.18"}));
    assert_eq!(pages[1]["processes"], 2);
    let rx =
        rows(&json!({"ask": "run rx", "packets": 500, "rings": 1, "driver": ["none", "pool"]}));
    assert_eq!(rx[1]["driver"], "pool");
    // What holds at once is one cell and one column.
    let asked = json!({"ask": "what-if", "input": data("6.17.13.json.gz"), "config": ["MEMCG=n", "RANDOM_KMALLOC_CACHES=y"]});
    let told = rows(&asked);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["asked.config"], "MEMCG=n RANDOM_KMALLOC_CACHES=y");
}
