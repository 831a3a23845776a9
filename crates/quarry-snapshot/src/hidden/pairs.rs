//! Snapshots of four kernels by themselves and by drgn.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{Detail, SlabinfoRow, Snapshot};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/drgn")
        .join(name)
}

/// The two snapshots of a kernel: its own and drgn's.
fn pair(release: &str) -> [Snapshot; 2] {
    ["snapshot", "drgn"].map(|by| {
        let path = data(&format!("{release}-{by}.json.gz"));
        Snapshot::read(&path, None).unwrap()
    })
}

fn names(changed: &[&str]) -> BTreeSet<String> {
    changed.iter().map(ToString::to_string).collect()
}

/// Both agree on everything but the caches that changed between the two moments: those of the files of sysfs that were
/// read, and of the processes that did so.
#[test]
fn drgn_agrees_with_the_kernel() {
    let changed = [
        ("5.10", names(&["filp", "pde_opener", "taskstats"])),
        (
            "6.1",
            names(&["filp", "kmalloc-96", "pde_opener", "taskstats"]),
        ),
        ("6.12", names(&["kmalloc-96", "maple_node", "taskstats"])),
        ("7.3", names(&["maple_node", "taskstats"])),
    ];
    for (release, changed) in changed {
        let [own, drgn] = pair(release);
        assert_eq!(own.detail(), Detail::Sysfs);
        assert_eq!(drgn.detail(), Detail::Exact);
        let rows = own.slabinfo.rows.iter().zip(&drgn.slabinfo.rows);
        assert_eq!(own.slabinfo.rows.len(), drgn.slabinfo.rows.len());
        let others = rows.clone().filter(|(own, drgn)| own != drgn);
        let others: BTreeSet<_> = others.map(|(own, _)| own.name.clone()).collect();
        assert_eq!(others, changed, "{release}");
        // Of caches that changed, too, only counts did.
        for (own, drgn) in rows {
            let fixed = |row: &SlabinfoRow| (row.name.clone(), row.objsize, row.objperslab);
            assert_eq!(fixed(own), fixed(drgn));
            assert_eq!(own.pagesperslab, drgn.pagesperslab, "{}", own.name);
        }
        let bytes_changed: u64 = drgn
            .slabinfo
            .rows
            .iter()
            .filter(|row| changed.contains(&row.name))
            .map(|drgn| {
                let own = own.slabinfo.row(&drgn.name).unwrap();
                own.slab_bytes(4096).abs_diff(drgn.slab_bytes(4096))
            })
            .sum();
        let bytes = [&own, &drgn].map(Snapshot::slab_bytes);
        assert!(
            bytes[0].abs_diff(bytes[1]) <= bytes_changed,
            "{release}: {bytes:?}"
        );

        assert_eq!(own.aliases, drgn.aliases, "{release}");
        assert_eq!(own.release, drgn.release);
        assert_eq!(own.boot_id, drgn.boot_id);
        assert_eq!(own.cmdline, drgn.cmdline);
        // Kernels before 6.1 have no file with it.
        let architectures = (&own.architecture, &drgn.architecture);
        assert!(own.architecture.is_none() || architectures.0 == architectures.1);
        assert_eq!(own.memory_bytes, drgn.memory_bytes);
        assert_eq!(
            (own.nr_cpu_ids, own.present_cpus, own.page_bytes),
            (drgn.nr_cpu_ids, drgn.present_cpus, drgn.page_bytes)
        );
        for (name, value) in &drgn.sysctls {
            assert_eq!(own.sysctls.get(name), Some(value), "{release}: {name}");
        }
        assert!(drgn.sysctls.len() >= 5);
    }
}

/// The files of sysfs have the same texts, also those of caches that hold slabs on CPUs' lists.
#[test]
fn drgn_has_the_files_of_sysfs() {
    // Read once more, after slabinfo: counts of these changed again.
    let changed = [
        ("5.10", names(&[":0000352", ":A-0000200", ":A-0000256"])),
        (
            "6.1",
            names(&[":0000416", ":A-0000152", ":A-0000256", "kmalloc-96"]),
        ),
        (
            "6.12",
            names(&[
                ":0000088",
                ":0000256",
                ":0000432",
                ":A-0000176",
                "kmalloc-96",
            ]),
        ),
        ("7.3", names(&[":0000688", "maple_node"])),
    ];
    for (release, changed) in changed {
        let [own, drgn] = pair(release);
        let folders = |snapshot: &Snapshot| snapshot.sysfs.keys().cloned().collect::<Vec<_>>();
        assert_eq!(folders(&own), folders(&drgn));
        let mut others = BTreeSet::new();
        let mut files = 0;
        for (folder, of_drgn) in &drgn.sysfs {
            for (file, text) in of_drgn.iter() {
                let of_own = own.sysfs[folder].text(file);
                match file {
                    // The kernel's own size of a function is another.
                    "ctor" => assert_eq!(of_own.is_some_and(str::is_empty), text.is_empty()),
                    _ if of_own != Some(text) => {
                        others.insert(folder.clone());
                    }
                    _ => files += 1,
                }
            }
        }
        assert_eq!(others, changed, "{release}");
        assert!(files > 20 * drgn.sysfs.len(), "{release}: {files} files");
    }
}

/// Every object is in use, free on a node's list, or held: the kernel's counts and drgn's make one sum.
#[test]
fn objects_add_up() {
    // Of the bytes of active objects, these are free.
    for (release, held_bytes) in [
        ("5.10", 4_249_728),
        ("6.1", 3_906_864),
        ("6.12", 4_079_040),
        ("7.3", 4_447_752),
    ] {
        let [_, drgn] = pair(release);
        let hidden = drgn.hidden.as_ref().unwrap();
        assert_eq!(hidden.read_by, "drgn 0.3.0");
        assert_eq!(hidden.caches.len(), drgn.slabinfo.rows.len());
        let mut held = 0;
        for row in &drgn.slabinfo.rows {
            let cache = drgn.hidden(&row.name).unwrap();
            assert_eq!(cache.partial_free(), row.num_objs - row.active_objs);
            assert_eq!(
                drgn.partial_slabs(row),
                Some(cache.partial_slabs()),
                "{}",
                row.name
            );
            let sysfs = drgn.attributes(&row.name).unwrap();
            let of_cpus = cache.cpu_slabs().count() as u64 + cache.listed_slabs();
            assert_eq!(sysfs.number("cpu_slabs"), Some(of_cpus));
            assert_eq!(sysfs.cpu_partial_slabs(), Some(cache.listed_slabs()));
            held += cache.held_objects() * row.objsize;
        }
        assert_eq!(held, held_bytes, "{release}");
    }
}
