//! Looks at kernels whose numbers can be worked out by hand.

use quarry_snapshot::blocks::BlockMap;
use quarry_snapshot::{CacheAttributes, Form, Pagetypeinfo, Slabinfo, SlabinfoRow};

use super::*;

/// A cache of one page a slab: bytes of an object, objects of a slab, slabs, and objects in use.
pub(super) fn row(
    name: &str,
    objsize: u64,
    objperslab: u64,
    slabs: u64,
    active: u64,
) -> SlabinfoRow {
    SlabinfoRow {
        name: name.to_string(),
        active_objs: active,
        num_objs: slabs * objperslab,
        objsize,
        objperslab,
        pagesperslab: 1,
        active_slabs: slabs,
        num_slabs: slabs,
        ..SlabinfoRow::default()
    }
}

pub(super) fn snapshot(rows: Vec<SlabinfoRow>) -> Snapshot {
    Snapshot {
        file: "test".to_string(),
        release: Some("6.1.0".to_string()),
        page_bytes: 4096,
        nr_cpu_ids: Some(2),
        present_cpus: Some(2),
        slabinfo: Slabinfo { rows },
        ..Snapshot::default()
    }
}

/// Gives a cache attributes; what the row counts is added.
fn with(mut snapshot: Snapshot, name: &str, files: &[(&str, u64)]) -> Snapshot {
    let row = snapshot.slabinfo.row(name).unwrap();
    let counts = [("slabs", row.num_slabs), ("objects", row.active_objs)];
    let mut attributes = CacheAttributes::default();
    for (file, value) in files.iter().chain(&counts) {
        attributes.set(file, &value.to_string());
    }
    snapshot.sysfs.insert(name.to_string(), attributes);
    snapshot
}

/// 10 slabs of 16 objects; on the nodes' lists are 4 with 8 objects.
fn partly_filled() -> Snapshot {
    let snapshot = snapshot(vec![row("thing", 256, 16, 10, 104)]);
    let files = [
        ("object_size", 250),
        ("slab_size", 256),
        ("align", 8),
        ("partial", 4),
        ("objects_partial", 8),
        ("cpu_slabs", 0),
        ("min_partial", 5),
        ("reclaim_account", 1),
    ];
    with(snapshot, "thing", &files)
}

#[test]
fn parts_of_a_cache_add_up() {
    let look = Look::of(&[partly_filled()]).unwrap();
    let cache = &look.caches[0];
    assert_eq!((look.slab_bytes, cache.slab_bytes), (40960, 40960));
    assert_eq!((cache.objects, cache.active_objs), (104, 104));
    let parts = &look.parts;
    assert_eq!(parts.live_bytes, 104 * 250);
    assert_eq!((parts.held_bytes, parts.debugging_bytes), (0, 0));
    assert_eq!(parts.partly_filled_bytes, 56 * 250);
    assert_eq!(parts.padding_bytes, 160 * 6);
    assert_eq!(parts.total(), look.slab_bytes);
}

/// Free objects on CPUs count as active; debugging is apart from padding; and ends of slabs are padding.
#[test]
fn parts_of_cpus_and_debugging() {
    let snapshot = snapshot(vec![row("held", 1024, 4, 8, 32), row("odd", 1300, 3, 2, 6)]);
    let held = [
        ("object_size", 1000),
        ("slab_size", 1024),
        ("align", 8),
        ("partial", 0),
        ("objects_partial", 0),
        ("cpu_slabs", 2),
    ];
    let odd = [
        ("object_size", 1200),
        ("slab_size", 1300),
        ("align", 8),
        ("partial", 0),
        ("objects_partial", 0),
        ("cpu_slabs", 0),
        ("red_zone", 1),
    ];
    let snapshot = with(with(snapshot, "held", &held), "odd", &odd);
    let look = Look::of(&[snapshot]).unwrap();
    let parts = |name: &str| {
        let cache = look.caches.iter().find(|cache| cache.name == name);
        (cache.unwrap().parts, cache.unwrap().objects)
    };
    let (held, objects) = parts("held");
    // Two CPUs have a slab of 4 each, and use at least one object of it.
    assert!((26..32).contains(&objects), "{objects}");
    assert_eq!(held.held_bytes, (32 - objects) * 1000);
    let (odd, objects) = parts("odd");
    assert_eq!((objects, odd.debugging_bytes), (6, 600));
    assert_eq!(odd.padding_bytes, 2 * (4096 - 3900));
    assert_eq!(look.parts.total(), look.slab_bytes);
}

/// 4 slabs with 8 objects: at most 3 are empty; by chance hardly any of 64 places.
#[test]
fn whole_slabs_become_free() {
    let look = Look::of(&[partly_filled()]).unwrap();
    let shrink = look.shrink;
    assert_eq!((shrink.low_bytes, shrink.high_bytes), (0, 3 * 4096));
    let by_chance = 4.0 * (1.0_f64 - 8.0 / 64.0).powi(16);
    assert_eq!(shrink.bytes, (by_chance * 4096.0) as u64);
    let [all, most, many] = look.drop.try_into().unwrap();
    assert_eq!((all.staying, all.bytes), (0.0, look.slab_bytes));
    let slabs = 6.0 * 0.99_f64.powi(16) + 4.0 * 0.99_f64.powi(2);
    assert_eq!(most.bytes, (slabs * 4096.0).round() as u64);
    assert!(many.bytes < most.bytes);
    // Fewer objects than slabs: some are empty for sure.
    let empty = with(
        snapshot(vec![row("thing", 256, 16, 10, 98)]),
        "thing",
        &[("partial", 4), ("objects_partial", 2), ("cpu_slabs", 0)],
    );
    assert_eq!(Look::of(&[empty]).unwrap().shrink.low_bytes, 2 * 4096);
}

#[test]
fn blocks_are_counted_by_the_pages_they_are_for() {
    let types = ["Unmovable", "Movable", "Reclaimable"];
    let free = ["DMA32", "Normal"].map(|zone| {
        let rows =
            types.map(|kind| format!("Node    0, zone {zone}, type {kind}      1      0 \n"));
        rows.concat()
    });
    let text = format!(
        "Page block order: 9\nPages per block:  512\n\n\
         Free pages count per migrate type at order       0      1 \n{}\n\
         Number of blocks type     Unmovable      Movable  Reclaimable \n\
         Node 0, zone    DMA32           10          200            3 \n\
         Node 0, zone   Normal            5          100            4 \n",
        free.concat()
    );
    let mut snapshot = partly_filled();
    snapshot.pagetypeinfo = Some(Pagetypeinfo::parse("test", &text).unwrap());
    let blocks = Look::of(&[snapshot.clone()]).unwrap().block_types.unwrap();
    assert_eq!((blocks.block_bytes, blocks.all), (2 << 20, 322));
    assert_eq!((blocks.unmovable, blocks.reclaimable), (15, 7));
    assert_eq!(blocks.wrong_at_least, None);
    // Slabs are in 25 blocks; 22 are for them.
    let map = "quarry blocks - version: 1\npage_bytes 4096\nblock_bytes 2097152\n\
        # first blocks free movable slab page_tables kernel untold cached\n0 25 500 0 12 0 0 0 0\n25 297 512 0 0 0 0 0 0\n";
    snapshot.blocks = Some(BlockMap::parse("blocks", map).unwrap());
    let blocks = Look::of(&[snapshot]).unwrap().block_types.unwrap();
    assert_eq!(blocks.wrong_at_least, Some(3));
}

#[test]
fn names_tell_what_can_be_reclaimed_without_sysfs() {
    let names = [
        "dentry",
        "ext4_inode_cache",
        "kmalloc-rcl-64",
        "task_struct",
    ];
    let rows = names.map(|name| row(name, 256, 16, 3, 48));
    let look = Look::of(&[snapshot(rows.to_vec())]).unwrap();
    assert_eq!(look.reclaimable_bytes, 3 * 3 * 4096);
    let task = look.caches.iter().find(|cache| cache.name == "task_struct");
    assert!(!task.unwrap().reclaimable && !look.counts_cpus);
}

/// The verdict of slabs that grow from 1000 to 2000 by a change of rows.
fn judged(before: SlabinfoRow, after: SlabinfoRow) -> Growth {
    let snapshots = [snapshot(vec![before]), snapshot(vec![after])];
    Look::of(&snapshots).unwrap().growth.unwrap()
}

#[test]
fn growth_is_of_objects_or_of_the_allocator() {
    let full = |name: &str, slabs: u64| row(name, 256, 16, slabs, slabs * 16);
    let leak = judged(full("task_struct", 1000), full("task_struct", 2000));
    assert_eq!(leak.verdict, Verdict::Objects);
    assert_eq!((leak.slab_bytes, leak.reclaimable_bytes), (1000 * 4096, 0));
    let parts = (leak.objects_bytes, leak.allocator_bytes);
    assert_eq!(parts.0 + parts.1, leak.slab_bytes);
    assert!(leak.caches[0].in_each_step);

    let files = judged(full("dentry", 1000), full("dentry", 2000));
    assert_eq!(files.verdict, Verdict::Reclaimable);
    assert_eq!(files.reclaimable_bytes, files.objects_bytes);

    let half_full = row("task_struct", 256, 16, 2000, 16_000);
    let spread = judged(full("task_struct", 1000), half_full.clone());
    assert_eq!(spread.verdict, Verdict::Allocator);
    assert!(spread.allocator_bytes > 900 * 4096, "{spread:?}");

    let same = judged(full("task_struct", 1000), full("task_struct", 1001));
    assert_eq!(same.verdict, Verdict::Same);
    let shrank = judged(half_full, full("task_struct", 1000));
    assert_eq!(shrank.verdict, Verdict::Shrank);
}

/// Another kernel is no growth; and CPUs may hold free slabs where nothing counts them.
#[test]
fn what_cannot_be_compared_or_counted() {
    let before = snapshot(vec![row("thing", 256, 16, 10, 160)]);
    let mut after = before.clone();
    after.release = Some("5.14.0".to_string());
    let look = Look::of(&[before, after]).unwrap();
    assert_eq!(
        look.growth.unwrap().other_machine,
        ["kernel 6.1.0 and 5.14.0"]
    );
    assert!(look.shrink.high_bytes > 0, "{:?}", look.shrink);
    assert_eq!(look.shrink.low_bytes, 0);
}

#[test]
fn a_series_says_what_grew_in_each_step() {
    let slabs = [[100, 100], [200, 300], [300, 200]];
    let mut snapshots = slabs.map(|[steady, wavy]| {
        let rows = [("steady", steady), ("wavy", wavy)];
        let rows = rows.map(|(name, slabs)| row(name, 256, 16, slabs, slabs * 16));
        snapshot(rows.to_vec())
    });
    for (snapshot, time) in snapshots.iter_mut().zip([1000, 1060, 4600]) {
        snapshot.unix_time_s = Some(time);
    }
    let growth = Look::of(&snapshots).unwrap().growth.unwrap();
    let moments = growth.moments.iter();
    let moments: Vec<_> = moments
        .map(|moment| (moment.seconds, moment.slab_bytes / 4096))
        .collect();
    let expected = [(Some(0.0), 200), (Some(60.0), 500), (Some(3600.0), 500)];
    assert_eq!(moments, expected);
    assert_eq!(growth.moments[1].parts.total(), 500 * 4096);
    assert_eq!(
        growth.caches[1].each_bytes,
        [100, 300, 200].map(|slabs| slabs * 4096)
    );
    let caches = growth.caches.iter();
    let told: Vec<_> = caches
        .map(|cache| {
            (
                cache.name.as_str(),
                cache.slab_bytes / 4096,
                cache.in_each_step,
            )
        })
        .collect();
    assert_eq!(told, [("steady", 200, true), ("wavy", 100, false)]);
}

#[test]
fn what_ifs_are_of_the_machine() {
    let changes = |release: &str, architecture: &str| {
        let mut snapshot = snapshot(vec![row("thing", 256, 16, 10, 160)]);
        snapshot.release = Some(release.to_string());
        snapshot.architecture = Some(architecture.to_string());
        let look = Look::of(&[snapshot]).unwrap();
        let changes = look.what_ifs.into_iter().map(|told| told.change);
        changes.collect::<Vec<String>>()
    };
    let of_pc = changes("6.1.0-50-amd64", "x86_64");
    assert_eq!(of_pc.len(), 2, "{of_pc:?}");
    assert_eq!(of_pc[0], "Linux 6.6");
    assert!(of_pc[1].starts_with("slub_max_order="));
    let others = changes("6.18.3", "aarch64");
    assert_eq!(others[..3], ["Linux 7.3", "16 KiB pages", "64 KiB pages"]);
    // The newest release has none after it.
    assert!(!changes("7.3.0", "aarch64")[0].starts_with("Linux"));
    assert!(Look::of(&[]).is_err());
}

/// Counts that no kernel has end in no panic.
#[test]
fn numbers_that_cannot_be() {
    let huge = SlabinfoRow {
        name: "huge".to_string(),
        active_objs: u64::MAX,
        num_objs: u64::MAX,
        objsize: u64::MAX,
        objperslab: u64::MAX,
        pagesperslab: u64::MAX,
        num_slabs: u64::MAX,
        active_slabs: 1,
        ..SlabinfoRow::default()
    };
    let files = [
        ("object_size", u64::MAX),
        ("align", 1 << 63),
        ("red_zone", 1),
        ("partial", u64::MAX),
        ("objects_partial", u64::MAX),
        ("cpu_slabs", u64::MAX),
    ];
    let snapshots = [
        snapshot(vec![row("none", 0, 0, 1, 0)]),
        with(snapshot(vec![huge]), "huge", &files),
    ];
    let growth = Look::of(&snapshots).unwrap().growth.unwrap();
    assert_eq!(growth.slab_bytes, i64::MAX - 4096);
}

/// Readings of a pasted text.
fn pasted(name: &str) -> Vec<Snapshot> {
    let data = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../quarry-snapshot/tests/data/field/"
    );
    Snapshot::read_all(&std::path::Path::new(data).join(name), None).unwrap()
}

/// A cache that one excerpt lacks is not new there: the heads' sums tell how much all grew.
#[test]
fn excerpts_grow_by_their_heads() {
    let mut both = pasted("several-in-one-paste/hour1-slabtop.txt");
    both.extend(pasted("several-in-one-paste/day3-slabtop.txt"));
    let growth = Look::of(&both).unwrap().growth.unwrap();
    assert_eq!(
        (growth.basis, growth.verdict),
        (Basis::Heads, Verdict::Sums)
    );
    assert_eq!(growth.slab_bytes >> 20, (31_682_510 - 2_306_032) >> 10);
    let listed: Vec<&str> = growth.caches.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(listed, ["shared_policy_node"]);
    let first = &growth.unlisted[0];
    assert_eq!(
        (first.name.as_str(), first.first_bytes),
        ("kmalloc-rnd-11-8k", None)
    );
    assert_eq!(growth.unlisted.len(), 4);
}

#[test]
fn listings_of_a_post_are_a_series() {
    let found = pasted("several-in-one-paste/blog-source.md");
    let growth = Look::of(&found).unwrap().growth.unwrap();
    assert_eq!(
        (growth.basis, growth.verdict),
        (Basis::Meminfo, Verdict::Sums)
    );
    assert_eq!(growth.slab_bytes >> 10, 31_814_260 - 16_161_044);
    let look = Look::of(&found).unwrap();
    let told = Answer::of(&look, &found).unwrap();
    let order = |note: &String| note.starts_with("readings of a text are taken in its order");
    assert!(told.notes.iter().any(order));
    let twice = pasted("several-in-one-paste/hour5-grep.txt");
    let growth = Look::of(&twice).unwrap().growth.unwrap();
    assert_eq!(
        (growth.basis, growth.verdict),
        (Basis::RowsOfBoth, Verdict::Same)
    );
}

#[test]
fn objects_of_other_sizes_are_of_other_machines() {
    let one = snapshot(vec![row("thing", 256, 16, 10, 104)]);
    let other = snapshot(vec![row("thing", 192, 21, 10, 104)]);
    let growth = Look::of(&[one, other]).unwrap().growth.unwrap();
    assert_eq!(
        growth.other_machine,
        ["thing has objects of 256 and 192 bytes"]
    );
}

/// Designs that lack a tunable of a further question are left out of it, not the answer.
#[test]
fn a_question_that_fails_leaves_the_answer() {
    let one = pasted("one-row/uek4-mlx4.txt");
    let look = Look::of(&one).unwrap();
    assert_eq!(look.slab_bytes, 515_730 * 4096);
    assert!(!look.what_ifs.is_empty());
    let report = pasted("oom-quoted/oom-9p-quoted.txt");
    assert!(Look::of(&report).is_err());
    let bare = Bare::of(&report).unwrap();
    assert_eq!(bare.cache_bytes[0].name, "kmemleak_object");
    assert_eq!((bare.page_size, bare.unreclaimable_bytes), (None, None));
    assert!(
        bare.finding.contains("98031 pages (9.4 % of memory)"),
        "{}",
        bare.finding
    );
    assert!(Bare::of(&one).is_none());
}

/// Two reports of bytes tell which cache grew.
#[test]
fn bytes_of_two_reports_are_compared() {
    let mut both = pasted("oom-quoted/oom-9p-quoted.txt");
    both.push(both[0].clone());
    let leak = &mut both[1].cache_bytes;
    let filp = leak.iter_mut().find(|cache| cache.name == "filp").unwrap();
    filp.total_bytes += 1 << 30;
    leak.retain(|cache| cache.name != "kmalloc-8k");
    let bare = Bare::of(&both).unwrap();
    assert!(
        bare.finding.ends_with("filp grew most, by +1.0 GiB."),
        "{}",
        bare.finding
    );
    assert!(!bare.finding.contains("if it grows"), "{}", bare.finding);
    let grew = bare.cache_bytes.iter().map(|cache| cache.grew_bytes);
    assert_eq!(grew.flatten().sum::<i64>(), 1 << 30);
}

/// A 32-bit kernel's debugging is found by its classes, and said to be a guess; nothing is predicted of it.
#[test]
fn debugging_without_sysfs_is_found() {
    let arm = pasted("debug-without-sysfs/slabtop.txt");
    let look = Look::of(&arm).unwrap();
    let share = look.parts.debugging_bytes * 100 / look.slab_bytes;
    assert!((40..60).contains(&share), "{share}");
    assert!(look.misfit.unwrap().contains("32-bit"));
    assert!(
        look.guessed[0].contains("of a kind that is not known adds 132 to 192 bytes"),
        "{:?}",
        look.guessed
    );
    let question = Question {
        debug: Some(String::new()),
        ..Question::default()
    };
    let error = State::of(&arm[0]).unwrap().on(&question).unwrap_err();
    assert!(error.to_string().contains("32-bit kernel"), "{error}");
}

/// Pages are counted, and have bytes only when the page size is given.
#[test]
fn owners_of_pages() {
    let told = pasted("../forms/page_owner.txt");
    let bare = Bare::of(&told).unwrap();
    let owners = bare.owners.as_ref().unwrap();
    assert_eq!((owners.pages, owners.allocations), (Some(14), Some(4)));
    assert_eq!(
        (owners.slab_pages, owners.misplaced_pages),
        (Some(9), Some(8))
    );
    let first = &bare.sites[0];
    assert_eq!(
        (first.pages, first.bytes, first.calls),
        (Some(8), None, Some(1))
    );
    for part in [
        "has 14 pages in 4 allocations at 4 call sites; allocate_slab < kmem_cache_alloc < ",
        " holds most, 8 pages (57.1 %).",
        "Slabs and large kmallocs are 9 pages (64.3 %) of them",
        "By migrate type: 4 Movable, 10 Unmovable; 8 (57.1 %) of these pages are in blocks of another type.",
    ] {
        assert!(bare.finding.contains(part), "{part}: {}", bare.finding);
    }
    let unknown = "pages without bytes: the file has no page size (--had-page-size)";
    assert!(bare.notes.iter().any(|note| note == unknown));

    let asked = quarry_snapshot::Asked {
        page_bytes: Some(65536),
        ..Default::default()
    };
    let sized = pasted("../forms/show_stacks.txt").remove(0);
    let sized = [sized.asked(&asked).unwrap()];
    let bare = Bare::of(&sized).unwrap();
    let first = &bare.sites[0];
    assert_eq!(
        (first.pages, first.bytes, first.calls),
        (Some(20824), Some(20824 << 16), None)
    );
    assert!(
        bare.finding
            .contains("20 840 pages, 1.3 GiB at 2 call sites"),
        "{}",
        bare.finding
    );
    assert!(bare.notes.iter().all(|note| note != unknown));
    assert!(bare.owners.unwrap().misplaced_pages.is_none());

    let mut counted = pasted("../forms/show_stacks.txt").remove(0);
    for site in &mut counted.page_owners.as_mut().unwrap().sites {
        (site.pages, site.allocations) = (None, site.pages);
    }
    let counted = [counted];
    let bare = Bare::of(&counted).unwrap();
    assert_eq!(bare.owners.as_ref().unwrap().pages, None);
    assert!(
        bare.finding
            .contains("counts 20 840 allocations of pages at 2 call sites"),
        "{}",
        bare.finding
    );
}

/// Crash read the slabs of CPUs: what is in use is not estimated. The tool slabinfo says what debugging takes.
#[test]
fn listed_slabs_and_flags_are_facts() {
    let read = pasted("../forms/crash-S.txt");
    let look = Look::of(&read).unwrap();
    assert_eq!((look.caches[0].objects, look.parts.held_bytes), (7, 504));
    let report = pasted("../forms/slabinfo-r.txt");
    let look = Look::of(&report).unwrap();
    // 528 bytes from object to object, 192 of the object itself.
    assert_eq!(look.parts.debugging_bytes, 2578 * 15 * (528 - 192));
}

/// A head of slabtop has no bytes of slabs.
#[test]
fn sums_of_a_head() {
    let head = " Active / Total Objects (% used)    : 100 / 200 (50.0%)\n\
        \x20Active / Total Slabs (% used)      : 10 / 10 (100.0%)\n\
        \x20Active / Total Caches (% used)     : 60 / 90 (66.7%)\n\
        \x20Active / Total Size (% used)       : 30.00K / 40.00K (75.0%)\n\
        \x20 OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n";
    let told = [Snapshot::parse("f", head, None).unwrap()];
    let bare = Bare::of(&told).unwrap();
    assert_eq!(
        bare.finding,
        "f has 40 KiB in 200 objects, in 10 slabs of 90 caches."
    );
}

/// Room for huge pages is counted, and that it is assumed is said.
#[test]
fn free_pages_have_room_for_huge_ones() {
    let text = "Node 0, zone   Normal      8 0 0 0 0 0 0 0 0 3 1\n";
    let told = [Snapshot::parse("f", text, None).unwrap()];
    let bare = Bare::of(&told).unwrap();
    let free = "f has 2 568 free pages; 99.7 % of them are in free blocks of 512 pages or more, which have room for 5 huge pages.";
    assert_eq!(bare.finding, free);
    assert!(
        bare.notes
            .iter()
            .any(|note| note.contains("is taken as 512 pages"))
    );
}

/// crash counts as free what CPUs hold: its objects in use are those that it prints.
#[test]
fn nothing_is_estimated_of_what_crash_counts() {
    let rows: Vec<_> = (0..12)
        .map(|at| row(&format!("thing-{at}"), 256, 16, 100, 1500))
        .collect();
    let of_form = |form| Snapshot {
        form,
        ..snapshot(rows.clone())
    };
    let crash = Look::of(&[of_form(Form::Crash)]).unwrap();
    assert_eq!(crash.parts.live_bytes, 12 * 1500 * 256);
    assert_eq!(crash.parts.held_bytes, 0);
    let slabtop = Look::of(&[of_form(Form::Slabtop)]).unwrap();
    assert!(slabtop.parts.held_bytes > 0);
}
