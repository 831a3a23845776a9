use serde_json::json;

use super::*;

const HEAD: &str = "slabinfo - version: 2.1\n# name <active_objs> <num_objs> ...\n";

fn text(lines: &str) -> Result<Slabinfo, String> {
    Slabinfo::parse("slabinfo", &format!("{HEAD}{lines}")).map_err(|error| error.to_string())
}

#[test]
fn slub_and_slab_lines() {
    let found = text(concat!(
        "dentry 57351 57372 192 21 1 : tunables 0 0 0 : slabdata 2732 2732 0\n",
        "\n",
        "two words  1  2  3  4  8 : tunables 54 27 8 : slabdata 5 6 7",
        " : globalstat 1 2 3 : cpustat 4 5\n",
    ))
    .unwrap();
    let [dentry, words] = found.rows.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        (dentry.name.as_str(), dentry.active_objs, dentry.num_objs),
        ("dentry", 57351, 57372)
    );
    assert_eq!((dentry.objsize, dentry.objperslab), (192, 21));
    assert_eq!(
        *words,
        SlabinfoRow {
            name: "two words".to_string(),
            active_objs: 1,
            num_objs: 2,
            objsize: 3,
            objperslab: 4,
            pagesperslab: 8,
            limit: 54,
            batchcount: 27,
            sharedfactor: 8,
            active_slabs: 5,
            num_slabs: 6,
            sharedavail: 7,
        }
    );
    // Slabs of a smaller order, made when memory was short, are counted by their objects.
    assert_eq!(dentry.slab_bytes(4096), 2732 * 4096);
    assert_eq!(words.slab_bytes(4096), 6 * 4096);
    assert_eq!(found.active_bytes(), 57351 * 192 + 3);
    assert_eq!(found.row("two words"), Some(words));
    assert_eq!(found.row("words"), None);
    let header = "slabinfo - version: 2.1 (statistics)\n";
    assert_eq!(Slabinfo::parse("x", header).unwrap(), Slabinfo::default());
}

#[test]
fn bad_lines_are_named() {
    let good = "a 1 2 3 4 5 : tunables 0 0 0 : slabdata 0 0 0\n";
    for (line, part) in [
        ("a 1 2 3 4 5", "line 4: there is no \" : tunables\""),
        ("a 1 2 3 4 5 : tunables 0 0 0", "no \" : slabdata\""),
        (
            "1 2 3 4 5 : tunables 0 0 0 : slabdata 0 0 0",
            "a name and five",
        ),
        (
            "a 1 x 3 4 5 : tunables 0 0 0 : slabdata 0 0 0",
            "num_objs: \"x\" is not a number",
        ),
        (
            "a 1 2 3 4 5 : tunables 0 0 : slabdata 0 0 0",
            "sharedfactor is missing",
        ),
        (
            "a 1 2 3 4 5 : tunables 0 0 0 : slabdata 0 -1 0",
            "num_slabs: \"-1\"",
        ),
    ] {
        let message = text(&format!("{good}{line}\n")).unwrap_err();
        assert!(message.starts_with("slabinfo: line 4: "), "{message}");
        assert!(message.contains(part), "{message}");
    }
    let message = Slabinfo::parse("f", "dentry 1 2").unwrap_err().to_string();
    assert!(message.starts_with("f: line 1: \"slabinfo - version: 2.1\" is expected"));
    assert!(Slabinfo::parse("f", "slabinfo - version: 2.10\n").is_err());
}

#[test]
fn rows_as_json() {
    let mut row = json!({"name": "a", "active_objs": 1, "num_objs": 2, "objsize": 3,
        "objperslab": 4, "pagesperslab": 5, "active_slabs": 6, "num_slabs": 7});
    let parse = |row: &Value| {
        Slabinfo::parse("f", &json!([row]).to_string()).map_err(|error| error.to_string())
    };
    let plain = parse(&row).unwrap();
    assert_eq!((plain.rows[0].num_slabs, plain.rows[0].limit), (7, 0));
    row["tunables"] = json!([54, 27, 8]);
    row["sharedavail"] = json!(9);
    let slab = parse(&row).unwrap();
    assert_eq!((slab.rows[0].limit, slab.rows[0].batchcount), (54, 27));
    assert_eq!(
        (slab.rows[0].sharedfactor, slab.rows[0].sharedavail),
        (8, 9)
    );
    // What is written is read again.
    let written = serde_json::to_string(&slab).unwrap();
    assert_eq!(Slabinfo::parse("f", &written).unwrap(), slab);
    row["tunables"] = json!([1]);
    let message = parse(&row).unwrap_err();
    assert_eq!(
        message,
        "f: cache 1: a: tunables: [1] is not a list of three numbers"
    );
    row["tunables"] = json!(null);
    row["objsize"] = json!("3");
    assert!(
        parse(&row)
            .unwrap_err()
            .contains("a: objsize: \"3\" is not")
    );
    row.as_object_mut().unwrap().remove("num_objs");
    assert!(parse(&row).unwrap_err().contains("\"num_objs\" is missing"));
    assert!(parse(&json!({})).unwrap_err().contains("no \"name\""));
    let object = Slabinfo::parse("f", "{}").unwrap_err().to_string();
    assert!(object.contains("a list of caches is expected"), "{object}");
    let broken = Slabinfo::parse("f", "[\n1").unwrap_err().to_string();
    assert!(broken.starts_with("f: line 2: "), "{broken}");
}

#[test]
fn files_may_be_packed() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let (plain, packed) = (dir.path().join("slabinfo"), dir.path().join("s.gz"));
    let report = format!("{HEAD}a 1 2 3 4 5 : tunables 0 0 0 : slabdata 0 0 0\n");
    std::fs::write(&plain, &report).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(report.as_bytes()).unwrap();
    std::fs::write(&packed, gzip.finish().unwrap()).unwrap();
    let read = |path: &Path| Slabinfo::read(path).unwrap();
    assert_eq!(read(&plain).rows.len(), 1);
    assert_eq!(read(&plain), read(&packed));
    let absent = Slabinfo::read(&dir.path().join("absent")).unwrap_err();
    assert!(absent.to_string().starts_with("cannot read "), "{absent}");
    std::fs::write(&plain, [0xff, 0xfe]).unwrap();
    let binary = Slabinfo::read(&plain).unwrap_err().to_string();
    assert!(binary.contains("not a text"), "{binary}");
}
