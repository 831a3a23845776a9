//! Snapshots that people published, on which a prediction has to be right or to say what it does not know.

use std::path::{Path, PathBuf};

use quarry_ask::Value as _;
use quarry_core::era::Era;
use quarry_snapshot::Snapshot;
use quarry_state::{CachePrediction, Config, ConfigCost, Prediction, Question, State, predict};

/// A folder of `tests/data/field`, which `README.md` there describes.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/field")
        .join(name)
}

fn snapshot(name: &str) -> Snapshot {
    Snapshot::read(&folder(name), None).unwrap()
}

fn release(name: &str) -> Question {
    Question {
        release: Era::parse(name),
        ..Question::default()
    }
}

fn debug(letters: &str) -> Question {
    Question {
        debug: Some(letters.to_string()),
        ..Question::default()
    }
}

fn percent(told: &Prediction, bytes: u64) -> f64 {
    (bytes as f64 / told.observed_bytes as f64 - 1.0) * 100.0
}

fn cache<'a>(told: &'a Prediction, name: &str) -> &'a CachePrediction {
    told.caches.iter().find(|cache| cache.name == name).unwrap()
}

/// The lists of objects of 128 bytes and more lie off the slab.
#[test]
fn slab_of_3_16_is_explained() {
    let snapshot = snapshot("slab-3.16-geometry");
    let state = State::of(&snapshot).unwrap();
    // pid has 112 bytes before alignment, which keeps its list on the slab: 31 objects.
    for (row, geometry) in snapshot.slabinfo.rows.iter().zip(state.geometries()) {
        let objects = u64::from(geometry.unwrap().objects);
        assert_eq!(objects, row.objperslab, "{}", row.name);
    }
    let told = state.on(&Question::default()).unwrap();
    assert_eq!((told.explained_caches, told.caches.len()), (23, 23));
    assert_eq!(told.snapshot_design, "slab@3.16");
}

/// Memory groups' caches are not computed: their author measured 30 to 45 % less without them.
#[test]
fn memory_groups_widen_the_bounds() {
    let snapshot = snapshot("memcg-4.18");
    let told = predict(&snapshot, &release("5.14")).unwrap();
    assert!(
        percent(&told, told.bytes.low_bytes) < -45.0,
        "{}",
        told.bytes.low_bytes
    );
    assert!(told.bytes.high_bytes > told.observed_bytes);
    assert!(told.unmodelled[0].what.contains("memory groups"));
    for cache in told.caches.iter().filter(|cache| cache.observed_bytes > 0) {
        assert!(
            cache.bytes.low_bytes < cache.bytes.high_bytes,
            "{}",
            cache.name
        );
    }
    // The same groups' caches in both.
    let told = predict(&snapshot, &release("5.4")).unwrap();
    let names = told
        .unmodelled
        .iter()
        .filter(|of| of.what.contains("memory groups"));
    assert_eq!(names.count(), 0);
    // No groups.
    let mut without = snapshot;
    without.cmdline = Some("quiet cgroup.memory=nosocket,nokmem".to_string());
    let told = predict(&without, &release("5.14")).unwrap();
    assert!(
        percent(&told, told.bytes.low_bytes) > -18.0,
        "{}",
        told.bytes.low_bytes
    );
}

/// Inodes and names stand for files: more CPUs make no more, and memory has an end. Nothing is said about
/// other CPUs where their number is not told.
#[test]
fn files_do_not_grow_with_cpus() {
    let mut snapshot = snapshot("slab-unknown-cpus");
    let told = predict(&snapshot, &release("6.12")).unwrap();
    assert!(told.guessed[0].contains("2 to 256"), "{:?}", told.guessed);
    assert!(told.cpus_are_assumed);
    let more = Question {
        cpus: Some(32),
        ..Question::default()
    };
    assert!(predict(&snapshot, &more).is_err());
    snapshot.present_cpus = Some(16);
    snapshot.nr_cpu_ids = Some(16);
    let question = |cpus, release: &str| Question {
        cpus: Some(cpus),
        release: Era::parse(release),
        ..Question::default()
    };
    for cpus in [16, 32, 384] {
        let told = predict(&snapshot, &question(cpus, "6.12")).unwrap();
        if cpus == 16 {
            // 33 inodes in 32 KiB instead of 4 in 4.
            let change = percent(&told, told.bytes.predicted_bytes);
            assert!((-6.0..0.0).contains(&change), "{change}");
        }
        assert!(told.bytes.high_bytes <= snapshot.memory_bytes.unwrap());
        for name in ["xfs_inode", "dentry", "radix_tree_node"] {
            let cache = cache(&told, name);
            let grown = cache.bytes.predicted_bytes as f64 / cache.observed_bytes as f64;
            assert!(grown < 1.05, "{cpus} CPUs: {name} {grown}");
        }
    }
}

/// The command line names the letters; sizes alone do as well. No cache with debugging has sheaves.
#[test]
fn debugging_is_named() {
    let told_by = |snapshot: &Snapshot| {
        let told = predict(snapshot, &release("7.3")).unwrap();
        assert_eq!(told.explained_caches, 6, "{}", told.snapshot_debugging);
        assert!(told.caches.iter().all(|cache| cache.sheaf_capacity == 0));
        told.snapshot_debugging
    };
    let mut snapshot = snapshot("debug-kernel");
    assert_eq!(told_by(&snapshot), "slub_debug=P in the command line");
    snapshot.cmdline = None;
    assert_eq!(
        told_by(&snapshot),
        "kmalloc-2k has objects of 4096 bytes; taken as slub_debug=P, which gives 3 of 3 such sizes"
    );
}

#[test]
fn debugging_can_be_asked_for() {
    let snapshot = snapshot("debug-kernel");
    let without = predict(&snapshot, &debug("")).unwrap();
    assert_eq!(without.debugging, "");
    let class = cache(&without, "kmalloc-2k");
    assert_eq!((class.objs_per_slab, class.pages_per_slab), (16, 8));
    let half = class.observed_bytes as f64 / 2.0;
    assert!((class.bytes.predicted_bytes as f64 / half - 1.0).abs() < 0.05);
    let more = predict(&snapshot, &debug("FZPU")).unwrap();
    assert!(more.bytes.predicted_bytes > snapshot.slab_bytes());
    let same = predict(&snapshot, &debug("P")).unwrap();
    assert_eq!(same.bytes.predicted_bytes, same.observed_bytes);
}

/// Options cost what their rules say, or nothing where the kernel has what is asked for.
#[test]
fn options_have_a_cost() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("tests/data/6.17-to-7.3-x86_64-4k/6.17.13.json.gz");
    let snapshot = Snapshot::read(&path, None).unwrap();
    let cost = |text: &str| -> ConfigCost {
        let question = Question {
            configs: vec![Config::parse(text, Path::new("")).unwrap()],
            ..Question::default()
        };
        let told = predict(&snapshot, &question).unwrap();
        let cost = told.configuration[0].clone();
        let sum = told.observed_bytes.saturating_add_signed(cost.bytes);
        assert_eq!(told.bytes.predicted_bytes, sum, "{text}");
        assert!(
            cost.low_bytes <= cost.bytes && cost.bytes <= cost.high_bytes,
            "{text}"
        );
        cost
    };
    // Fifteen copies of each class: nothing at best, a slab for each CPU at worst.
    let copies = cost("CONFIG_RANDOM_KMALLOC_CACHES=y");
    assert_eq!(copies.low_bytes, 0);
    let slabs = |cache: &&quarry_snapshot::SlabinfoRow| {
        let class = cache.name.strip_prefix("kmalloc-").unwrap_or_default();
        class.starts_with(|c: char| c.is_ascii_digit())
    };
    let classes = snapshot.slabinfo.rows.iter().filter(slabs);
    let most: u64 = classes.map(|row| 15 * 2 * row.pagesperslab * 4096).sum();
    assert!(copies.high_bytes > 0 && copies.high_bytes < most as i64);
    // These kernels have memory groups.
    assert_eq!(cost("MEMCG=y").high_bytes, 0);
    assert!(cost("MEMCG=n").high_bytes < 0);
    // The vectors of kmalloc-cg at least become as long again, those of all caches at most.
    let [records, groups] = ["MEM_ALLOC_PROFILING=y", "MEMCG=n"].map(cost);
    assert!(records.low_bytes > 0 && records.high_bytes < -2 * groups.low_bytes);
    // Nothing is kept for CPUs.
    assert!(cost("SLUB_TINY=y").high_bytes < 0);
    // A word of four bytes for each object of a slab, rounded to a class.
    let sequences = cost("SLAB_FREELIST_RANDOM=y");
    assert_eq!(sequences.low_bytes, sequences.high_bytes);
    assert_eq!(cost("SLAB_FREELIST_RANDOM=n").bytes, -sequences.bytes);
    assert_eq!(cost("SLAB_FREELIST_HARDENED=y").high_bytes, 0);
    let refused = |text: &str| {
        let question = |config| Question {
            configs: vec![config],
            ..Question::default()
        };
        match Config::parse(text, Path::new("")) {
            Ok(config) => predict(&snapshot, &question(config))
                .unwrap_err()
                .to_string(),
            Err(refused) => refused,
        }
    };
    assert!(refused("MEMCG").contains("NAME=y"));
    assert!(refused("KASAN=y").contains("is not known; known are"));
    assert!(refused("PARTITION_KMALLOC_CACHES=y").contains("7.2 to 7.3"));
    assert!(refused("SLAB_MERGE_DEFAULT=n").contains("/sys/kernel/slab"));
}

/// Bounds of an unknown kernel hold what is predicted with the release and the CPUs.
#[test]
fn unknown_kernels_are_in_the_bounds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in ["6.17.13", "7.3.4"] {
        let path = format!("tests/data/6.17-to-7.3-x86_64-4k/{file}.json.gz");
        let known = Snapshot::read(&root.join(path), Some("fill-full")).unwrap();
        let known = Snapshot {
            sysfs: Default::default(),
            aliases: Default::default(),
            ..known
        };
        let unknown = Snapshot {
            release: None,
            present_cpus: None,
            nr_cpu_ids: None,
            ..known.clone()
        };
        for name in ["5.4", "6.12", "7.3"] {
            let question = release(name);
            let with = predict(&known, &question).unwrap();
            let told = predict(&unknown, &question).unwrap();
            let bounds = told.bytes.low_bytes..=told.bytes.high_bytes;
            for end in [
                with.bytes.low_bytes,
                with.bytes.predicted_bytes,
                with.bytes.high_bytes,
            ] {
                assert!(bounds.contains(&end), "{file} to {name}: {end}, {bounds:?}");
            }
            assert!(told.guessed[0].contains("the release is not told"));
        }
    }
}

/// SLAB gives reclaimable caches slabs of one page; without sysfs, only that tells that a cache is reclaimable. SLUB
/// does not heed it.
#[test]
fn slabs_of_one_page_tell_that_a_cache_is_reclaimable() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("tests/data/recordings/6.1-slab.json.gz");
    let mut snapshot = Snapshot::read(&file, Some("trhb-before")).unwrap();
    snapshot.present_cpus = Some(2);
    let question = Question {
        design: Some(quarry_designs::DesignSpec::parse("slub@6.18").unwrap()),
        ..Question::default()
    };
    let told = predict(&snapshot, &question).unwrap();
    let sockets = cache(&told, "sock_inode_cache");
    assert_eq!(
        (
            sockets.observed_objs_per_slab,
            sockets.observed_pages_per_slab
        ),
        (5, 1)
    );
    assert_eq!((sockets.objs_per_slab, sockets.pages_per_slab), (23, 4));
}
