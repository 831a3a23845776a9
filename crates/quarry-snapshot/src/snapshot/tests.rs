use std::fs;

use serde_json::{Value, json};

use super::*;

const SLABINFO: &str = "slabinfo - version: 2.1\n\
    dentry 21 42 192 21 1 : tunables 0 0 0 : slabdata 2 2 0\n\
    pid 16 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n";

fn parse(value: &Value, stage: Option<&str>) -> Result<Snapshot, String> {
    Snapshot::parse("f", &value.to_string(), stage).map_err(|error| error.to_string())
}

fn row(objs: u64) -> Value {
    json!([{"name": "pid", "active_objs": objs, "num_objs": 32, "objsize": 256,
        "objperslab": 16, "pagesperslab": 1, "active_slabs": 2, "num_slabs": 2}])
}

fn boot() -> Value {
    json!({
        "page_kB": 4,
        "stage_order": ["boot", "after", "light"],
        "stages": {
            "after": {"slabinfo": row(20), "meminfo_kB": {"Slab": 12},
                "sysfs_slab_changed_since_boot": {":0000256": {"objects": 20}}},
            "boot": {"slabinfo": row(10), "aliases": {"pid": ":0000256"},
                "sysfs_slab": {":0000256": {"objects": 10, "order": 0, "ctor": ""}},
                "cpus": "possible 0-7\npresent 0-3\nonline 0-3",
                "cmdline": "quiet slub_max_order=1 slub_max_order=2",
                "version": "Linux version 6.1.0-50-powerpc64le (gcc) #1 SMP"},
            "light": {"slabinfo": row(30)},
        },
    })
}

#[test]
fn stages_of_a_boot() {
    let first = parse(&boot(), None).unwrap();
    assert_eq!(first.stage.as_deref(), Some("boot"));
    assert_eq!(first.release.as_deref(), Some("6.1.0-50-powerpc64le"));
    assert_eq!((first.nr_cpu_ids, first.present_cpus), (Some(8), Some(4)));
    assert_eq!((first.page_bytes, first.slab_bytes()), (4096, 8192));
    assert_eq!(first.boot_number(&["slub_max_order"]), Some(2));
    assert_eq!(first.boot_number(&["slub_min_order"]), None);
    let objects = |snapshot: &Snapshot| snapshot.attributes("pid").unwrap().number("objects");
    assert_eq!(objects(&first), Some(10));
    let after = parse(&boot(), Some("after")).unwrap();
    assert_eq!(
        (objects(&after), after.slabinfo.rows[0].active_objs),
        (Some(20), 20)
    );
    assert_eq!(after.attributes("pid").unwrap().number("order"), Some(0));
    assert_eq!(
        (after.meminfo_slab_bytes, after.nr_cpu_ids),
        (Some(12288), Some(8))
    );
    let light = parse(&boot(), Some("light")).unwrap();
    assert_eq!(objects(&light), None);
    assert_eq!(light.attributes("pid").unwrap().number("order"), Some(0));
    let message = parse(&boot(), Some("x")).unwrap_err();
    assert_eq!(
        message,
        "f: stages: no stage \"x\"; stages are boot, after, light"
    );
}

#[test]
fn one_moment() {
    let moment = json!({"page_size": 4096, "cpu_possible": "0-1", "kernel_release": "6.18.44\n",
        "slabinfo_text": SLABINFO, "meminfo": "MemFree: 1 kB\nSlab:   20 kB\n"});
    let found = parse(&moment, None).unwrap();
    assert_eq!(found.slabinfo.rows.len(), 2);
    assert_eq!((found.nr_cpu_ids, found.present_cpus), (Some(2), Some(2)));
    assert_eq!(found.meminfo_slab_bytes, Some(20480));
    assert_eq!(found.release.as_deref(), Some("6.18.44"));
}

#[test]
fn what_is_wrong_is_named() {
    for (value, part) in [
        (json!([]), "no caches"),
        (json!({"page_size": 4096}), "neither \"slabinfo\""),
        (json!({"stages": 1}), "stages is not an object"),
        (json!({"stages": {}}), "no stage \"\""),
        (
            json!({"stages": {"a": {}}}),
            "stage a: it has no \"slabinfo\"",
        ),
        (
            json!({"slabinfo": row(1), "page_size": 5000}),
            "5000 bytes is not known",
        ),
        (
            json!({"slabinfo": row(1), "page_size": "x"}),
            "page_size: \"x\"",
        ),
        (
            json!({"slabinfo": row(1), "cpu_possible": "x"}),
            "\"x\" is neither a list of CPUs",
        ),
        (
            json!({"slabinfo": row(1), "sysfs_slab": []}),
            "sysfs_slab: an object",
        ),
        (
            json!({"slabinfo": row(1), "sysfs_slab": {"a": 1}}),
            "a: an object with",
        ),
    ] {
        let message = parse(&value, None).unwrap_err();
        assert!(message.contains(part), "{value}: {message}");
    }
    let message = Snapshot::parse("f", "{", None).unwrap_err().to_string();
    assert!(
        message.contains("f: line 1: ") && message.contains("quarry snapshot"),
        "{message}"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.json");
    fs::write(&path, json!({"slabinfo": []}).to_string()).unwrap();
    let read = |stage| Snapshot::read(&path, stage).unwrap_err().to_string();
    assert!(read(None).contains("SLOB reports none"));
    assert!(read(Some("boot")).contains("leave --stage out"));
    let folder = Snapshot::read(dir.path(), None).unwrap_err().to_string();
    assert!(folder.contains("a copy of /proc/slabinfo"), "{folder}");
}

/// A root folder as a kernel shows it.
fn machine(root: &Path) {
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("proc/slabinfo", SLABINFO);
    file("proc/sys/kernel/osrelease", "6.1.0\n");
    file("proc/meminfo", "Slab: 16 kB\n");
    file(
        "proc/allocinfo",
        "allocinfo - version: 2.0\n 65536 2 net/a.c:1 func:a\n 4096 4 fs/b.c:2 func:b\n",
    );
    file("proc/sys/kernel/random/boot_id", "865b1f63-f631\n");
    file("proc/sys/vm/min_free_kbytes", "67584\n");
    file("proc/sys/vm/lowmem_reserve_ratio", "256\t256\t32\n");
    file("sys/devices/system/cpu/possible", "0-3\n");
    file("sys/devices/system/cpu/present", "0-1\n");
    file("sys/kernel/slab/:0000256/slabs", "1 N0=1\n");
    file("sys/kernel/slab/dentry/slabs", "2 N0=2\n");
    #[cfg(unix)]
    std::os::unix::fs::symlink(":0000256", root.join("sys/kernel/slab/pid")).unwrap();
}

#[cfg(unix)]
#[test]
fn a_machine_is_taken_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let taken = Snapshot::take_from(dir.path()).unwrap();
    let path = dir.path().join("taken.json");
    fs::write(&path, taken.to_string()).unwrap();
    let json = Snapshot::read(&path, None).unwrap();
    // The same without a file.
    let direct = Snapshot::of_taken(&json.file, taken).unwrap();
    assert_eq!(format!("{direct:?}"), format!("{json:?}"));
    // The same as a folder.
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("slabinfo"), SLABINFO).unwrap();
    fs::rename(dir.path().join("sys/kernel/slab"), folder.join("slab")).unwrap();
    fs::write(folder.join("meta.json"), "{\"cpu_possible\": \"0-3\"}").unwrap();
    fs::write(folder.join("cpu_present"), "0-1\n").unwrap();
    fs::rename(dir.path().join("proc/allocinfo"), folder.join("allocinfo")).unwrap();
    let folder = Snapshot::read(&folder, None).unwrap();
    for found in [&json, &folder] {
        assert_eq!((found.nr_cpu_ids, found.present_cpus), (Some(4), Some(2)));
        assert_eq!(found.page_bytes, 4096);
        assert_eq!(found.attributes("pid").unwrap().number("slabs"), Some(1));
        assert_eq!(found.attributes("dentry").unwrap().number("slabs"), Some(2));
        assert!(found.attributes("other").is_none());
        assert_eq!(found.call_sites[0].mean_bytes(), 32768);
    }
    assert_eq!(json.slabinfo, folder.slabinfo);
    // A snapshot leaves out the small ones.
    assert_eq!((json.call_sites.len(), folder.call_sites.len()), (1, 2));
    assert_eq!(json.boot_id.as_deref(), Some("865b1f63-f631"));
    let sysctls = [
        ("vm.lowmem_reserve_ratio", "256\t256\t32"),
        ("vm.min_free_kbytes", "67584"),
    ];
    let sysctls = sysctls.map(|(name, value)| (name.to_string(), value.to_string()));
    assert_eq!(json.sysctls, BTreeMap::from(sysctls));
    assert!(json.unix_time_s > Some(1_600_000_000) && json.monotonic_ns > Some(0));
    fs::remove_file(dir.path().join("proc/slabinfo")).unwrap();
    let absent = Snapshot::take_from(dir.path()).unwrap_err().to_string();
    assert!(absent.starts_with("cannot read "), "{absent}");
    let sums = Snapshot::now_from(dir.path()).unwrap();
    assert_eq!((sums.form, sums.detail()), (Form::Meminfo, Detail::Bytes));
    assert_eq!(sums.memory_bytes, json.memory_bytes);
    assert_eq!(sums.notes, [absent]);
    // A map of blocks does without slabinfo.
    let map = "quarry blocks - version: 1\npage_bytes 16384\nblock_bytes 2097152\n\
        # first blocks free movable slab page_tables kernel untold cached\n0 1 100 0 28 0 0 0 0\n";
    let folder = dir.path().join("map");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("blocks"), map).unwrap();
    let object = json!({"kernel_release": "6.12.1", "blocks": map}).to_string();
    for found in [
        Snapshot::read(&folder, None),
        Snapshot::parse("f", &object, None),
    ] {
        let found = found.unwrap();
        assert_eq!((found.form, found.page_bytes), (Form::Blocks, 16384));
        assert!(found.blocks.is_some() && found.notes.is_empty());
    }
    let answer = json!({"blocks": [{"block_bytes": 2097152}]}).to_string();
    assert!(Snapshot::parse("f", &answer, None).is_err());
}

#[test]
fn lists_count_beside_the_same_slabs() {
    let told = |slabs: u64, objects: u64| {
        let snapshot = json!({
            "slabinfo": row(20),
            "sysfs_aliases": {"pid": ":0000256"},
            "sysfs_slab": {":0000256": {
                "slabs": format!("{slabs} N0={slabs}"), "objects": objects,
                "slabs_cpu_partial": "8(1) C3=8(1)"}},
        });
        let snapshot = parse(&snapshot, None).unwrap();
        snapshot.cpu_partial_lists(snapshot.slabinfo.row("pid").unwrap())
    };
    assert_eq!(told(2, 20), Some(BTreeMap::from([(3, 1)])));
    assert_eq!((told(3, 20), told(2, 21)), (None, None));
}

#[test]
fn one_moment_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str| {
        let moment = Snapshot::read_moment(&dir.path().join(name));
        let moment = moment.map_err(|error| error.to_string())?;
        Ok::<_, String>(Snapshot::parse(name, &moment, None).unwrap())
    };
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("text", SLABINFO);
    let rows = read("text").unwrap().slabinfo.rows;
    write("rows.json", &row(20).to_string());
    assert_eq!(read("rows.json").unwrap().slabinfo.rows.len(), 1);
    fs::create_dir_all(dir.path().join("folder/slab/pid")).unwrap();
    write("folder/slabinfo", SLABINFO);
    for (file, text) in [
        ("slabs", "1 N0=1\n"),
        ("objects", "16 N0=16\n"),
        ("slabs_cpu_partial", "8(1) C1=8(1)\n"),
    ] {
        write(&format!("folder/slab/pid/{file}"), text);
    }
    let folder = read("folder").unwrap();
    let lists = folder.cpu_partial_lists(folder.slabinfo.row("pid").unwrap());
    assert_eq!((folder.slabinfo.rows, lists.unwrap()[&1]), (rows, 1));
    write("boot.json", &boot().to_string());
    let refused = read("boot.json").unwrap_err();
    assert!(refused.contains("one moment"), "{refused}");
}

#[test]
fn nodes_are_those_that_sysfs_counts_by() {
    let mut snapshot = parse(&boot(), None).unwrap();
    assert_eq!(snapshot.nodes(), 1);
    let cache = snapshot.sysfs.get_mut(":0000256").unwrap();
    cache.set("slabs", "12 N0=7 N1=5");
    assert_eq!(snapshot.nodes(), 2);
}
