use serde_json::{Value, json};

use crate::Snapshot;

fn small() -> Value {
    json!({"page_size": 4096,
        "slabinfo": [{"name": "pid", "active_objs": 40, "num_objs": 64, "objsize": 256, "objperslab": 16,
            "pagesperslab": 1, "active_slabs": 4, "num_slabs": 4}],
        "hidden": {"read_by": "drgn 0.3.0", "caches": {"pid": {
            "cpus": {"0": {"slab_free": 5, "partial": {"2": 1}, "main": 3, "spare": 0, "rcu_free": 1}},
            "nodes": {"0": {"partial": {"16": 1, "8": 1}, "full_sheaves": 1, "full_sheaf_objects": 4}}}}}})
}

fn read(value: &Value) -> Result<Snapshot, String> {
    Snapshot::parse("f", &value.to_string(), None).map_err(|error| error.to_string())
}

#[test]
fn counts() {
    let snapshot = read(&small()).unwrap();
    let cache = snapshot.hidden("pid").unwrap();
    assert_eq!(cache.held_objects(), 5 + 2 + 3 + 1 + 4);
    assert_eq!((cache.listed_slabs(), cache.listed_free()), (1, 2));
    assert_eq!((cache.partial_slabs(), cache.partial_free()), (2, 24));
    assert_eq!((cache.in_sheaves(), cache.sheaves_beside_main()), (8, 3));
    let open: Vec<_> = cache.open_slabs().collect();
    assert_eq!(open, [(5, 1), (2, 1), (8, 1), (16, 1)]);
    assert_eq!(snapshot.hidden("dentry"), None);
    let text = serde_json::to_value(snapshot.hidden.as_ref()).unwrap();
    assert_eq!(text, small()["hidden"]);
}

#[test]
fn contradictions_are_named() {
    let cases = [
        (
            "/caches/pid/cpus/0/slab_free",
            json!(17),
            "pid: a slab has 17 free objects, but room for 16",
        ),
        (
            "/caches/pid/cpus/0/partial",
            json!({"2": 2}),
            "pid: 5 slabs, slabinfo has 4",
        ),
        (
            "/caches/pid/cpus/0/main",
            json!(30),
            "pid: 42 free objects on CPUs and in sheaves, slabinfo has 40 active ones",
        ),
        (
            "/caches/pid/nodes/0/partial",
            json!({"16": 1}),
            "pid: 16 free objects on the nodes' lists, slabinfo has 24",
        ),
        ("/caches/pid/cpus/0/main", json!(-1), "invalid value"),
        ("/caches/pid/cpus/0/main", json!("x"), "invalid type"),
        ("/caches/pid/cpus", json!({"x": {}}), "invalid value"),
        (
            "/caches/pid/nodes/0/partial",
            json!({"16": u64::MAX}),
            "slabinfo has 4",
        ),
        (
            "/caches",
            json!({"dentry": {}}),
            "dentry is not in slabinfo",
        ),
        ("/caches/pid", json!({"cpu": {}}), "unknown field `cpu`"),
        ("", json!([]), "invalid"),
        ("/read_by", Value::Null, "invalid type"),
    ];
    for (place, value, what) in cases {
        let mut snapshot = small();
        *snapshot.pointer_mut(&format!("/hidden{place}")).unwrap() = value;
        let error = read(&snapshot).unwrap_err();
        assert!(error.starts_with("f: hidden: "), "{error}");
        assert!(error.contains(what), "{place}: {error}");
    }
}

/// Damaged files give an error or a snapshot, never a panic.
#[test]
fn mutations_are_read_or_refused() {
    let text = small().to_string().into_bytes();
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let (mut read_well, mut refused) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = text.clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = b"0123456789\"{}[],:-e"[random(19)],
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b'9'),
            }
        }
        match Snapshot::of_bytes("f", bytes.as_slice()) {
            Ok(_) => read_well += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        read_well > 50 && refused > 1000,
        "{read_well} read, {refused} refused"
    );
}

/// At another moment it stays for the caches that did not change.
#[test]
fn another_moment_keeps_what_did_not_change() {
    let snapshot = read(&small()).unwrap();
    let mut report = snapshot.slabinfo.clone();
    assert!(snapshot.clone().at(report.clone()).hidden("pid").is_some());
    report.rows[0].active_objs -= 1;
    assert!(snapshot.at(report).hidden("pid").is_none());
}
