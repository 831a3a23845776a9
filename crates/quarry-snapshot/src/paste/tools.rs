//! Pastes of the tool slabinfo and of crash's `kmem -S`.

use std::fs;
use std::path::Path;

use crate::{Detail, Form, Snapshot};

fn sample(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/forms");
    fs::read_to_string(data.join(name)).unwrap()
}

fn all(text: &str) -> Vec<Snapshot> {
    Snapshot::of_bytes("paste", text.as_bytes()).unwrap()
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    let rows = snapshot.slabinfo.rows.iter();
    rows.map(|row| row.name.as_str()).collect()
}

/// The two lists of a sample are one reading, the sums above them are of all caches.
#[test]
fn extended_mode_has_two_samples() {
    let found = all(&sample("slabinfo-X.txt"));
    assert_eq!(found.len(), 2);
    let one = &found[0];
    assert_eq!((one.form, one.detail()), (Form::SlabTool, Detail::Thin));
    assert_eq!(
        names(one),
        [
            "ext4_inode_cache",
            "dentry",
            "inode_cache",
            "buffer_head",
            "radix_tree_node",
            "biovec-256",
            "task_struct"
        ]
    );
    assert_eq!(one.page_bytes, 4096);
    let totals = one.excerpt.unwrap().totals.unwrap();
    assert_eq!(
        (totals.num_objs, totals.slabs, totals.caches),
        (329_484, 9766, 105)
    );
    assert_eq!(totals.object_bytes, 94_955_552);
    let ext4 = one.slabinfo.row("ext4_inode_cache").unwrap();
    assert_eq!(ext4.slab_bytes(4096), 35_258_368);
    assert_eq!(
        one.partial_slabs(one.slabinfo.row("biovec-256").unwrap()),
        Some(7)
    );
    assert_eq!(one.is_reclaimable("dentry"), Some(true));
    assert_eq!(names(&found[1]).len(), 7);
    assert_eq!(
        found[1].slabinfo.row("biovec-256").unwrap().active_objs,
        2128
    );
}

/// `slabinfo -T` has no caches.
#[test]
fn sums_alone() {
    let text = sample("slabinfo-X.txt");
    let (sums, _) = text.split_once("Slabs sorted by size").unwrap();
    let one = all(sums).remove(0);
    assert_eq!((one.form, one.detail()), (Form::SlabTotals, Detail::Bytes));
    let totals = one.excerpt.unwrap().totals.unwrap();
    assert_eq!(
        (totals.slab_bytes, totals.object_bytes),
        (98_828_288, 94_955_552)
    );
    assert_eq!((totals.active_objs, totals.caches), (329_484, 105));
    // Without -B they are rounded.
    let rounded = sums
        .replace("98828288   #", "98.8M   #")
        .replace("94955552", "94.9M");
    let totals = all(&rounded)[0].excerpt.unwrap().totals.unwrap();
    assert_eq!(
        (totals.slab_bytes, totals.object_bytes),
        (98_800_000, 94_900_000)
    );
    let head = "Name Objects Objsize Space Slabs/Part/Cpu  O/S O %Fr %Ef Flg\n";
    let error = Snapshot::of_bytes("paste", head.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("has no cache"), "{error}");
}

#[test]
fn rounded_lists_tell_the_page() {
    let one = all(&sample("slabinfo-64k.txt")).remove(0);
    assert_eq!((one.page_bytes, one.slabinfo.rows.len()), (65536, 5));
    let wide = one.slabinfo.row("kmalloc-64k").unwrap();
    assert_eq!(
        (wide.num_slabs, wide.pagesperslab, wide.objsize),
        (18, 8, 65536)
    );
    assert!(one.excerpt.is_some_and(|excerpt| excerpt.totals.is_none()));
    // A mailer broke rows; the table by loss has no sizes of slabs, and pages are inferred.
    let text = sample("slabinfo-64k.txt");
    let broken: String = text
        .lines()
        .map(|line| line.replacen("M  ", "M\n> ", 1) + "\n")
        .collect();
    assert_eq!(all(&broken)[0].slabinfo, one.slabinfo);
}

#[test]
fn reports_of_a_cache_are_two_moments() {
    let found = all(&sample("slabinfo-r.txt"));
    assert_eq!(found.len(), 2);
    let objects: Vec<_> = found
        .iter()
        .map(|one| one.slabinfo.rows[0].active_objs)
        .collect();
    assert_eq!(objects, [38_585, 38_426]);
    let flags = found[0].attributes("dentry").unwrap().flags();
    assert!(flags.debug() && found[0].is_reclaimable("dentry") == Some(true));
    let params = found[0].attributes("dentry").unwrap().params().unwrap();
    assert_eq!((params.object_size, params.align), (192, 8));
    assert_eq!(found[0].slabinfo.rows[0].objsize, 528);
    // Reports of several caches are one moment.
    let text = sample("slabinfo-r.txt");
    let (first, second) = text
        .split_once("[root@vm ~]# slabinfo  dentry --shrink")
        .unwrap();
    let both = format!("{first}{}", second.replace("dentry", "filp"));
    assert_eq!(names(&all(&both)[0]), ["dentry", "filp"]);
}

#[test]
fn slub_caches_have_their_hidden_state() {
    let one = all(&sample("crash-S.txt")).remove(0);
    let row = &one.slabinfo.rows[0];
    assert_eq!(
        (row.name.as_str(), row.active_objs, row.num_objs),
        ("corrupter_slab_cache", 8, 8)
    );
    assert_eq!((row.objsize, row.objperslab, row.num_slabs), (504, 8, 1));
    let hidden = one.hidden("corrupter_slab_cache").unwrap();
    assert_eq!(
        (hidden.cpus[&0].slab_free, hidden.held_objects()),
        (Some(1), 1)
    );
    assert_eq!(one.hidden.as_ref().unwrap().read_by, "crash kmem -S");
    // What crash cannot have read, or does not list, is not taken.
    for (from, to) in [
        (
            "     0      1        0        1",
            "     0      2        0        1",
        ),
        (
            "     0      1        0        1",
            "     0      1        0        2",
        ),
        (
            "     0      8          7     1",
            "     0      8          6     2",
        ),
        (
            "CPU 0 PARTIAL:\n",
            "kmem: corrupter_slab_cache: slab: fffff8ef81b44e40 invalid freepointer: 1\n",
        ),
    ] {
        let text = sample("crash-S.txt");
        assert!(text.contains(from), "{from}");
        let one = all(&text.replace(from, to)).remove(0);
        assert!(one.hidden.is_none(), "{to}");
        assert!(
            one.notes[0].contains("corrupter_slab_cache"),
            "{:?}",
            one.notes
        );
        assert_eq!(one.slabinfo.rows[0].active_objs, 7);
    }
    let with =
        |release: &str| all(&format!("RELEASE: {release}\n{}", sample("crash-S.txt"))).remove(0);
    assert!(with("6.12.1").hidden.is_some());
    let sheaves = with("6.18.3");
    assert!(sheaves.hidden.is_none() && sheaves.notes.iter().any(|note| note.contains("sheaves")));
    let uname = "Linux host 6.18.3 #1 SMP x86_64 GNU/Linux\n";
    let sheaves = all(&format!("{uname}{}", sample("crash-S.txt"))).remove(0);
    assert!(sheaves.hidden.is_none());
}

/// In the format of the sample: two nodes and two CPUs, one with slabs on its list.
const LISTS: &str = "\
CACHE             OBJSIZE  ALLOCATED     TOTAL  SLABS  SSIZE  NAME
ffff880c67003800      192         50       126      6     4k  kmalloc-192
CPU 0 KMEM_CACHE_CPU:
  ffff880c67015900
CPU 0 SLAB:
  SLAB              MEMORY            NODE  TOTAL  ALLOCATED  FREE
  ffffea0031740e80  ffff880c5d03a000     0     21         20     1
  FREE / [ALLOCATED]
  [ffff880c5d03a000]
CPU 0 PARTIAL:
  SLAB              MEMORY            NODE  TOTAL  ALLOCATED  FREE
  ffffea0031740f80  ffff880c5d03b000     1     21          1    20
  ffffea0031741080  ffff880c5d03c000     0     21          1    20
CPU 1 KMEM_CACHE_CPU:
  ffff880c67025900
CPU 1 SLAB:
  (empty)
CPU 1 PARTIAL:
  (empty)
KMEM_CACHE_NODE   NODE  SLABS  PARTIAL  PER-CPU
ffff880c67000f00     0      4        1        2
NODE 0 PARTIAL:
  SLAB              MEMORY            NODE  TOTAL  ALLOCATED  FREE
  ffffea0031611f80  ffff880c5847e000     0     21          2    19
NODE 0 FULL:
  (not tracked)
KMEM_CACHE_NODE   NODE  SLABS  PARTIAL  PER-CPU
ffff880667800f00     1      2        1        1
NODE 1 PARTIAL:
  SLAB              MEMORY            NODE  TOTAL  ALLOCATED  FREE
  ffffea0011484c80  ffff880452132000     1     21          5    16
NODE 1 FULL:
  (not tracked)
";

#[test]
fn slabs_of_cpus_and_nodes() {
    let two = format!(
        "{LISTS}crash> kmem -S x\n{}",
        LISTS.replace("kmalloc-192", "other")
    );
    let found = all(&two);
    assert_eq!(found.len(), 1);
    for name in ["kmalloc-192", "other"] {
        let row = found[0].slabinfo.row(name).unwrap();
        assert_eq!((row.num_objs, row.active_objs), (126, 126 - 35));
        let hidden = found[0].hidden(name).unwrap();
        assert_eq!(hidden.cpus[&0].slab_free, Some(1));
        assert_eq!((hidden.listed_slabs(), hidden.listed_free()), (2, 40));
        assert_eq!((hidden.partial_slabs(), hidden.partial_free()), (2, 35));
        // What is in use is what crash says.
        assert_eq!(row.active_objs - hidden.held_objects(), 50);
    }
    // `kmem -S=1` leaves CPU 0 out.
    let (head, rest) = LISTS.split_once("CPU 0 KMEM").unwrap();
    let (_, rest) = rest.split_once("CPU 1 KMEM").unwrap();
    let part = all(&format!("{head}CPU 1 KMEM{rest}")).remove(0);
    assert!(part.hidden.is_none() && part.notes[0].contains("kmalloc-192"));
}

/// SLAB counts as active what is in arrays of CPUs; crash counts it as free.
#[test]
fn slab_caches_have_objects_in_arrays() {
    let one = all(&sample("crash-S-slab.txt")).remove(0);
    let row = one.slabinfo.row("arp_cache").unwrap();
    assert_eq!((row.active_objs, row.num_objs, row.num_slabs), (30, 30, 1));
    let hidden = one.hidden("arp_cache").unwrap();
    let of_cpu = |cpu: u32| hidden.cpus[&cpu].main;
    assert_eq!([of_cpu(3), of_cpu(7)], [Some(1), Some(28)]);
    assert_eq!((hidden.held_objects(), hidden.partial_free()), (29, 0));
    // What an array that CPUs share has, and what none has.
    let shared = sample("crash-S-slab.txt")
        .replace("(cpu 3 cache)", "(shared cache)")
        .replacen("  (cpu 7 cache)", "", 2);
    let shared = all(&shared).remove(0);
    assert_eq!(shared.slabinfo.rows[0].active_objs, 28);
    let hidden = shared.hidden("arp_cache").unwrap();
    assert_eq!(hidden.nodes[&0].full_sheaf_objects, 1);
    assert_eq!((hidden.held_objects(), hidden.partial_free()), (27, 2));
    let part =
        sample("crash-S-slab.txt").replace("     30          1    29", "     30          2    28");
    let part = all(&part).remove(0);
    assert_eq!(part.slabinfo.rows[0].active_objs, 1);
    assert!(part.hidden.is_none() && part.notes[0].contains("arp_cache"));
}

const SLABTOP: &str = "  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n";

/// Commas between thousands, and a size that is no multiple of its slabs.
#[test]
fn sizes_of_slabtop_fit_their_slabs() {
    let of = |size: &str| {
        let row = format!("2,177,682 1,893,639 86% 0.10K 55,838 39 {size} buffer_head\n");
        crate::Snapshot::parse("t", &[SLABTOP, &row].concat(), None).unwrap()
    };
    let is_odd = |found: &crate::Snapshot| {
        let mut notes = found.notes.iter();
        notes.any(|note| note.contains("CACHE SIZE does not fit the slabs of buffer_head"))
    };
    let right = of("223,352K");
    assert_eq!(right.slab_bytes(), 223_352 << 10);
    assert!(!is_odd(&right));
    for wrong in ["2,233,520K", "22,335K", "233,352K", "893,408K"] {
        assert!(is_odd(&of(wrong)), "{wrong}");
    }
}

/// The top of a list sorted by size is an excerpt, a list that a foreign head stands above is none.
#[test]
fn tops_are_excerpts_and_foreign_heads_are_heads() {
    let names = [
        "dentry",
        "inode_cache",
        "filp",
        "mm_struct",
        "kmalloc-96",
        "pid",
        "cred_jar",
        "TCP",
        "UDP",
        "task_struct",
        "names_cache",
        "sock_inode_cache",
        "kmem_cache",
    ];
    let excerpt = |head: &str, row: &dyn Fn(usize, &str) -> String| {
        let rows = names.iter().enumerate().map(|(at, name)| row(at, name));
        let text = format!("{head}{}", rows.collect::<String>());
        let found = crate::Snapshot::parse("t", &text, None).unwrap();
        assert_eq!(found.slabinfo.rows.len(), names.len());
        found.excerpt.is_some()
    };
    let row = |slabs: usize, name: &str| {
        format!(
            "{} {} 100% 0.19K {slabs} 21 {}K {name}\n",
            slabs * 21,
            slabs * 21,
            slabs * 4
        )
    };
    assert!(excerpt(SLABTOP, &|at, name| row(100 - at, name)));
    assert!(!excerpt(SLABTOP, &|at, name| row(100 + at % 3, name)));
    let row = |at: usize, name: &str| format!("{name} {0} {0} 192 21\n", 21 * (1 + at % 3));
    assert!(!excerpt(
        "Zwischenspeicher Zahl Gesamt Größe Seiten\n",
        &row
    ));
    assert!(excerpt("Das ist es:\n", &row));
}

/// Rows of CSV with a machine before them have a head for each machine.
#[test]
fn machines_of_csv_have_heads() {
    let mut text = "host,name,active_objs,num_objs,objsize,objperslab,pagesperslab\n".to_string();
    for host in ["web1", "web2"] {
        for (at, name) in ["dentry", "inode_cache", "filp", "kmalloc-96"]
            .iter()
            .cycle()
            .take(12)
            .enumerate()
        {
            let name = if at < 4 {
                (*name).to_string()
            } else {
                format!("{name}_{at}")
            };
            text += &format!("{host},{name},{0},{0},192,21,1\n", 21 * (1 + at % 3));
        }
    }
    let found = crate::Snapshot::of_bytes("t", text.as_bytes()).unwrap();
    let hosts: Vec<_> = found
        .iter()
        .map(|one| (one.host.as_deref(), one.excerpt.is_some()))
        .collect();
    assert_eq!(hosts, [(Some("web1"), false), (Some("web2"), false)]);
}
