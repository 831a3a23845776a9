//! Tests of pairs, changes and errors on documents written by hand.

use serde_json::json;

use super::*;

fn run(design: &str, era: &str, peak: u64, cache: u64) -> Value {
    json!({
        "design": design, "era": era, "page_size": 4096, "cpus": 2,
        "peak_slab_bytes": peak, "events_per_second": peak, "locks": {"zone": 7},
        "caches": [
            {"name": "filp", "slab_bytes": cache, "waste_bytes": 10, "free_bytes": cache / 2},
            {"name": "same", "slab_bytes": 4096, "waste_bytes": 0, "free_bytes": 0},
        ],
    })
}

fn document(runs: Vec<Value>) -> Value {
    json!({
        "schema": 1, "quarry": {"version": "1"}, "command": "replay",
        "trace": {"digest": "1"}, "settings": {"set": []}, "runs": runs,
    })
}

fn compared(a: &Value, b: &Value) -> Difference {
    compare(("a", a), ("b", b)).unwrap()
}

#[test]
fn changes_are_of_a_and_the_largest_comes_first() {
    let mut other = run("slub", "6.18", 150, 8192);
    other["locks"]["zone"] = 70.into();
    other["locks"]["new"] = 1.into();
    let difference = compared(
        &document(vec![run("slub", "6.18", 100, 4096)]),
        &document(vec![other]),
    );
    let pair = &difference.runs[0];
    let names: Vec<&str> = pair.rows.iter().map(|row| row.name.as_str()).collect();
    let expected = [
        "locks.new",
        "locks.zone",
        "caches.free_bytes",
        "peak_slab_bytes",
    ];
    assert_eq!(names, expected);
    assert_eq!(pair.rows[0].relative, None);
    assert_eq!(pair.rows[1].relative, Some(9.0));
    assert_eq!(pair.rows[3].relative, Some(0.5));
    assert_eq!(pair.caches.len(), 1);
    let cache = &pair.caches[0];
    assert_eq!(
        (cache.memory.name.as_str(), cache.memory.relative),
        ("filp", Some(1.0))
    );
    assert_eq!(
        (cache.waste_bytes, cache.free_bytes),
        (Some(0.0), Some(2048.0))
    );
}

#[test]
fn equal_documents_have_no_changes() {
    let a = document(vec![run("slub", "6.18", 100, 4096)]);
    let mut b = a.clone();
    b["runs"][0]["events_per_second"] = 5.into();
    let difference = compared(&a, &b);
    assert!(difference.differs.is_empty());
    assert!(difference.runs[0].rows.is_empty() && difference.runs[0].caches.is_empty());
    let text = terminal::text(&view::view(&difference, false).unwrap(), Show::default());
    assert!(
        text.starts_with("slub@6.18, 4 KiB pages, 2 CPUs: nothing changed"),
        "{text}"
    );
}

#[test]
fn partners_are_equal_labels_then_designs_then_what_is_left() {
    let labels = |a: Vec<Value>, b: Vec<Value>| {
        let difference = compared(&document(a), &document(b));
        let name = |label: &str| label.split(',').next().unwrap().to_string();
        let pairs = difference.runs.iter();
        let pairs: Vec<_> = pairs.map(|pair| (name(&pair.a), name(&pair.b))).collect();
        (
            pairs,
            difference.only_in_a.len(),
            difference.only_in_b.len(),
        )
    };
    let of = |design, era| run(design, era, 1, 1);
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    // The equal label wins over the first of that design.
    assert_eq!(
        labels(
            vec![of("slub", "5.9"), of("slub", "6.18")],
            vec![of("slub", "6.18"), of("slab", "6.3")]
        ),
        (
            vec![pair("slub@5.9", "slab@6.3"), pair("slub@6.18", "slub@6.18")],
            0,
            0
        )
    );
    assert_eq!(
        labels(
            vec![of("slub", "5.9")],
            vec![of("sheaf", "7.0"), of("slub", "6.1")]
        ),
        (vec![pair("slub@5.9", "slub@6.1")], 0, 1)
    );
    let (none, two) = (
        vec![of("slob", "6.3"), of("slab", "6.3")],
        vec![of("slub", "6.1")],
    );
    let error = compare(("a", &document(none)), ("b", &document(two))).unwrap_err();
    assert!(error.to_string().contains("has a partner"), "{error}");
}

#[test]
fn other_making_is_told() {
    let a = document(vec![run("slub", "6.18", 1, 1)]);
    let mut b = a.clone();
    b["quarry"]["version"] = "2".into();
    b["trace"]["digest"] = "2".into();
    b["settings"]["set"] = json!(["slub_max_order=1"]);
    let difference = compared(&a, &b);
    let what: Vec<&str> = difference
        .differs
        .iter()
        .map(|of| of.what.as_str())
        .collect();
    assert_eq!(what, ["quarry.version", "trace.digest", "settings.set"]);
    let text = terminal::text(&view::view(&difference, false).unwrap(), Show::default());
    for part in [
        "warning: the traces differ",
        "differs: quarry.version 1 > 2",
        "differs: settings.set [] > [\"slub_max_order=1\"]",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn other_documents_are_refused() {
    for (text, part) in [
        ("{", "no JSON"),
        ("[]", "no `schema`"),
        ("{}", "no `schema`"),
        ("{\"schema\": 2}", "its schema is 2"),
        ("{\"schema\": 1}", "does not say which command"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let a = document(vec![run("slub", "6.18", 1, 1)]);
    let mut b = a.clone();
    b["command"] = "what-if".into();
    assert!(
        compare(("a", &a), ("b", &b))
            .unwrap_err()
            .to_string()
            .contains("one command")
    );
}

#[test]
fn outputs_of_every_command_have_runs() {
    let of = |body: Value| {
        let document = json!({"schema": 1, "quarry": {"version": "1"}, "command": "x"});
        let mut members = document.as_object().unwrap().clone();
        members.extend(body.as_object().unwrap().clone());
        Value::Object(members)
    };
    let names = |body: Value| -> Vec<String> {
        let runs = runs::of_document(&of(body));
        runs.iter().map(label).collect()
    };
    let micro = json!({"runs": [{"design": "slub", "era": "6.18", "pattern": "cross", "page_size": 4096, "cpus": 2}]});
    assert_eq!(
        names(micro),
        ["slub@6.18, pattern cross, 4 KiB pages, 2 CPUs"]
    );
    let machines = json!({"machines": [{"name": "a", "ghz": 2.0}, {"name": "b", "ghz": 3.0}]});
    assert_eq!(names(machines), ["a", "b"]);
    let threads = json!({"threads": [{"thread": "t", "runs": [{"name": "r", "x": 1}]}]});
    assert_eq!(names(threads), ["r, t"]);
    // An output without a list is one run.
    let imported =
        |events: u64| of(json!({"output": "t.parquet", "events": events, "orphans": {"kfree": 3}}));
    let difference = compared(&imported(100), &imported(110));
    let pair = &difference.runs[0];
    assert_eq!((pair.a.as_str(), pair.rows.len()), ("x", 1));
    assert_eq!(
        (pair.rows[0].name.as_str(), pair.rows[0].relative),
        ("events", Some(0.1))
    );
    // Callers are what caches are.
    let callers = |bytes: u64| {
        of(json!({"by": "site", "totals": {"peak_live_bytes": bytes},
            "callers": [{"name": "f+0x1", "peak_live_bytes": bytes, "waste_bytes": 0}]}))
    };
    let difference = compared(&callers(1000), &callers(1500));
    let pair = &difference.runs[0];
    assert_eq!(pair.a, "callers by site");
    assert_eq!(pair.caches[0].memory.name, "f+0x1");
    assert_eq!(pair.caches[0].memory.relative, Some(0.5));
}

#[test]
fn worse_is_more_memory_and_fewer_fast_paths() {
    let with = |peak: u64, fast: u64, rate: u64| {
        let mut run = run("slub", "6.18", peak, 4096);
        run["alloc_fastpath"] = fast.into();
        run["per_second"] = rate.into();
        document(vec![run])
    };
    let found =
        |b: Value, all: bool, limit: f64| worse(&compared(&with(1000, 100, 10), &b), all, limit);
    assert_eq!(
        found(with(1060, 100, 10), false, 0.05),
        ["slub@6.18, 4 KiB pages, 2 CPUs: peak_slab_bytes +6.0 %"]
    );
    assert!(found(with(1060, 100, 10), false, 0.06).is_empty());
    assert!(found(with(900, 100, 12), false, 0.05).is_empty());
    assert_eq!(found(with(1000, 100, 5), false, 0.05).len(), 1);
    // Fast paths are printed with --all alone.
    assert!(found(with(1000, 50, 10), false, 0.05).is_empty());
    assert_eq!(found(with(1000, 50, 10), true, 0.05).len(), 1);
}

#[test]
fn percentages_parse() {
    assert_eq!(parse_percent("5%"), Ok(5.0));
    assert_eq!(parse_percent("0.5 %"), Ok(0.5));
    for text in ["", "-1", "much", "inf"] {
        assert!(parse_percent(text).is_err(), "{text}");
    }
}

/// A look at meminfo has sums alone: caches of the other file are not new, nor are numbers that only one has.
#[test]
fn a_file_without_caches_is_compared_by_sums() {
    let look = |members: Value| {
        let mut look = json!({"schema": 1, "quarry": {"version": "1"}, "command": "look"});
        let all = members.as_object().unwrap().clone();
        look.as_object_mut().unwrap().extend(all);
        look
    };
    let sums = look(
        json!({"slab_bytes": 100, "memory_bytes": 1000, "cache_bytes": [], "unreclaimable_bytes": 7}),
    );
    let caches = json!([{"name": "filp", "slab_bytes": 150}]);
    let whole = look(
        json!({"slab_bytes": 150, "memory_bytes": 1000, "parts": {"live_bytes": 9}, "caches": caches}),
    );
    let difference = compared(&sums, &whole);
    let pair = &difference.runs[0];
    let rows: Vec<_> = pair
        .rows
        .iter()
        .map(|row| (row.name.as_str(), row.a, row.b))
        .collect();
    assert_eq!(rows, [("slab_bytes", Some(100.0), Some(150.0))]);
    assert!(pair.caches.is_empty());
    let differs = &difference.differs[0];
    assert_eq!(differs.what, "caches");
    assert_eq!(
        (&differs.a, &differs.b),
        (&json!("none, sums alone"), &json!("1 caches"))
    );
    // Two with caches, as before.
    let other = compared(&whole, &whole);
    assert!(other.differs.is_empty() && other.runs[0].rows.is_empty());
}
