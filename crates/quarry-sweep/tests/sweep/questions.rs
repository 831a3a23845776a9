//! Sweeps of each question.

use quarry_sweep::table::Table;
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
        assert_eq!(row.value("size"), row.value("asked.groups"));
        assert_eq!(row.number("options.loops"), Some(3.0));
        assert!(row.number("per_second").unwrap() > 0.0);
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
        let of = |name: &str| row.number(name).unwrap();
        assert_eq!(row.text("pattern"), "spread");
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
fn rows(of: &Value) -> Table {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("rows");
    run(&Sweep::of(&plan(of), true).unwrap(), &folder, &jobs(2)).unwrap();
    let folder = Folder::open(&folder).unwrap();
    let table = folder.results(|_| true).unwrap().unwrap();
    let errors = texts(&table, "error");
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
    table
}

#[test]
fn every_question_is_swept() {
    let files = [data("7.3.4.json.gz"), data("6.17.13.json.gz")];
    let looks = rows(&json!({"ask": "look", "input": files}));
    assert_eq!(looks.rows(), 2);
    for row in (0..2).map(|row| looks.row(row)) {
        let parts = ["live", "held", "partly_filled", "debugging", "padding"];
        let parts = parts.map(|part| row.number(&format!("parts.{part}_bytes")).unwrap());
        assert_eq!(row.number("slab_bytes"), Some(parts.iter().sum()));
    }
    let asked = json!({"ask": "geometry", "object-size": [192, "9k"], "page-size": ["4k", "64k"]});
    let slabs = rows(&asked);
    assert_eq!(slabs.rows(), 4);
    assert_eq!(slabs.row(3).number("slab_size"), Some(9216.0));
    let pages = rows(&json!({"ask": "run pages", "processes": [1, 2], "pages": 8, "era": "6.18"}));
    assert_eq!(pages.row(1).number("processes"), Some(2.0));
    let rx = json!({"ask": "run rx", "packets": 500, "rings": 1, "driver": ["none", "pool"]});
    assert_eq!(texts(&rows(&rx), "driver"), [Some("none"), Some("pool")]);
    // Settings that hold at once are one cell and one column.
    let both = ["MEMCG=n", "RANDOM_KMALLOC_CACHES=y"];
    let told = rows(&json!({"ask": "what-if", "input": files[1], "config": both}));
    assert_eq!(
        texts(&told, "asked.config"),
        [Some("MEMCG=n RANDOM_KMALLOC_CACHES=y")]
    );
}
