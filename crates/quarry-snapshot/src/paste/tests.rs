//! Pasted texts from `tests/data/field`, and packings of slabinfo that say the same as it does.

use std::fs;
use std::path::Path;

use quarry_sim::Rng;

use super::packed::PACKINGS;
use crate::slabinfo::SlabinfoRow;
use crate::{Detail, Form, Snapshot, case_count};

fn sample(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    fs::read_to_string(data.join(name)).unwrap()
}

fn all(text: &str) -> Vec<Snapshot> {
    Snapshot::of_bytes("paste", text.as_bytes()).unwrap()
}

fn rows(text: &str) -> Vec<SlabinfoRow> {
    all(text).pop().unwrap().slabinfo.rows
}

/// Bytes of slabs of each reading.
fn bytes(text: &str) -> Vec<u64> {
    all(text).iter().map(Snapshot::slab_bytes).collect()
}

#[test]
fn one_cache_twice_is_two_readings() {
    let found = all(&sample("field/several-in-one-paste/hour5-grep.txt"));
    let names = |at: usize| -> Vec<&str> {
        let rows = found[at].slabinfo.rows.iter();
        rows.map(|row| row.name.as_str()).collect()
    };
    assert_eq!(found.len(), 2);
    assert_eq!(names(0), ["kmalloc-rnd-12-8k"]);
    assert_eq!(names(1), ["QIPCRTR", "kmalloc-rnd-12-8k"]);
    assert_eq!(found[1].slab_bytes() >> 20, 15_336);
    assert!(found[1].excerpt.is_some());
}

/// A post with listings of two moments, and copies of meminfo beside each. The row of `slabinfo` behind slabtop's has the
/// same objects: one moment.
#[test]
fn listings_of_a_post_have_their_rows() {
    let found = all(&sample("field/several-in-one-paste/blog-source.md"));
    let mib: Vec<u64> = found.iter().map(|one| one.slab_bytes() >> 20).collect();
    assert_eq!(mib, [14_162, 15_331, 15_336, 30_724, 30_717]);
    assert_eq!(found[0].memory_bytes, Some(32_404_656 << 10));
    assert_eq!(found[4].memory_bytes, Some(32_404_656 << 10));
    assert_eq!(found[2].meminfo_slab_bytes, Some(16_161_044 << 10));
    assert_eq!(found[4].meminfo_slab_bytes, Some(31_814_260 << 10));
    assert_eq!(found[3].excerpt.unwrap().totals.unwrap().caches, 386);
}

#[test]
fn heads_have_sums_of_all_caches() {
    let one = all(&sample("field/several-in-one-paste/hour1-slabtop.txt")).remove(0);
    let totals = one.excerpt.unwrap().totals.unwrap();
    assert_eq!(
        (totals.active_objs, totals.num_objs),
        (1_413_878, 1_435_036)
    );
    assert_eq!((totals.slabs, totals.caches), (87_550, 386));
    assert_eq!(totals.object_bytes >> 10, 2_306_032);
}

#[test]
fn quoted_reports_have_bytes() {
    let text = sample("field/oom-quoted/oom-9p-quoted.txt");
    let report = all(&text).remove(0);
    assert_eq!((report.form, report.detail()), (Form::Oom, Detail::Bytes));
    assert_eq!(report.cache_bytes.len(), 17);
    assert_eq!(report.cache_bytes[9].name, "kmemleak_object");
    assert_eq!(report.cache_bytes[9].total_bytes, 168_558 << 10);
    let sums = report.oom.unwrap();
    assert_eq!(sums.slab_unreclaimable_pages, Some(98_031));
    assert_eq!(sums.ram_pages, Some(1_048_445));
    let bare: String = text
        .lines()
        .flat_map(|line| [line.trim_start_matches("> "), "\n"])
        .collect();
    assert_eq!(all(&bare)[0].cache_bytes, report.cache_bytes);
    let comm = "[   66.9] CPU: 1 PID: 7 Comm: sh Not tainted 5.8.0-rc3-g1 #1\n";
    assert_eq!(
        all(&format!("{comm}{bare}"))[0].release.as_deref(),
        Some("5.8.0-rc3-g1")
    );
}

#[test]
fn uname_is_read_wherever_it_stands() {
    let one = all(&sample("field/debug-without-sysfs/slabtop.txt")).remove(0);
    assert_eq!(one.release.as_deref(), Some("5.10.52-6-ARCH"));
    assert_eq!(one.architecture.as_deref(), Some("armv7l"));
    assert_eq!(one.slabinfo.rows.len(), 12);
}

#[test]
fn broken_coloured_and_bare_rows() {
    let wrapped = all(&sample("field/packings/wrapped-at-72.txt")).remove(0);
    let last = wrapped.slabinfo.rows.last().unwrap();
    assert_eq!(
        (wrapped.slabinfo.rows.len(), last.name.as_str()),
        (9, "hfsplus_icache")
    );
    let nf = wrapped.slabinfo.row("nf_conntrack").unwrap();
    assert_eq!((nf.num_objs, nf.objsize, nf.num_slabs), (20_349, 320, 399));
    assert!(
        wrapped
            .notes
            .iter()
            .any(|note| note.contains("cut or damaged: 1")),
        "{:?}",
        wrapped.notes
    );

    let bare = all(&sample("field/packings/ten-rows.txt")).remove(0);
    assert_eq!((bare.form, bare.slabinfo.rows.len()), (Form::Slabtop, 10));
    assert!(bare.excerpt.is_some_and(|excerpt| excerpt.totals.is_none()));

    let coloured = rows(&sample("field/packings/grep-colour.txt"));
    assert_eq!(coloured[0].name, "kmalloc_dma-512");
    assert!(coloured.iter().all(|row| !row.name.contains('\u{1b}')));
    assert_eq!(
        rows(&sample("field/one-row/uek4-mlx4.txt"))[0].num_slabs,
        515_730
    );
}

/// Whatever is put around slabinfo, its rows are the same.
#[test]
fn packings_leave_rows_as_they_are() {
    let text = sample("forms/slabinfo");
    let expected = rows(&text);
    let each = |packed: &dyn Fn(&str) -> String| -> String {
        text.lines().map(|line| packed(line) + "\n").collect()
    };
    let headless = || text.lines().skip(2);
    let html = text.replace('<', "&lt;").replace('>', "&gt;");
    let packings = [
        each(&|line| format!("> > {line}")),
        each(&|line| format!("[  178.502533][    T1] {line}")),
        each(&|line| format!("\u{a0}\u{a0}{}", line.replace("  ", " \u{a0}"))),
        each(&|line| format!("{line}\n")),
        each(&|line| format!("/proc/slabinfo:{line}")),
        each(&|line| {
            format!(
                "| {} |",
                line.split_whitespace().collect::<Vec<_>>().join(" | ")
            )
        }),
        each(&|line| format!("\u{1b}[1m{line}\u{1b}[0m\r")),
        format!("me@host:~$ sudo cat /proc/slabinfo\n{text}me@host:~$ exit\n"),
        format!("Here it is:\n\n```\n{text}```\nThanks!\n"),
        format!("<html><body><pre>{html}</pre></body></html>"),
        headless().collect::<Vec<_>>().join("\n"),
        headless().collect::<Vec<_>>().join(" "),
        // A sort leaves the head among the rows.
        {
            let mut lines: Vec<&str> = text.lines().collect();
            let head = lines.remove(0);
            lines.insert(9, head);
            lines.join("\n")
        },
        text.replace('\n', " "),
        text.clone() + "kmalloc-8  1 2\n",
        each(&|line| line.split_whitespace().collect::<Vec<_>>().join("\t")),
    ];
    for packed in &packings {
        assert_eq!(rows(packed), expected, "{packed}");
    }
    // A mailer breaks rows between any two words.
    for at in 3..14 {
        let broken = each(&|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (first, second) = words.split_at(at.min(words.len()));
            format!("> {}\n> {}", first.join(" "), second.join(" "))
        });
        assert_eq!(rows(&broken), expected, "{broken}");
    }
    let utf16: Vec<u8> = "\u{feff}"
        .encode_utf16()
        .chain(text.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let read = Snapshot::of_bytes("paste", utf16.as_slice()).unwrap();
    assert_eq!(read[0].slabinfo.rows, expected);
}

/// No mixture of packings and damage makes the reader panic or hang.
#[test]
fn damaged_pastes() {
    let mut rng = Rng::new(51);
    let samples = [
        "forms/slabinfo",
        "forms/slabtop.txt",
        "forms/vmstat-m.txt",
        "forms/crash.txt",
        "forms/crash-S.txt",
        "forms/crash-S-slab.txt",
        "forms/slabinfo-X.txt",
        "forms/slabinfo-r.txt",
        "forms/oom.txt",
        "forms/slub-failed.txt",
        "forms/page_owner.txt",
        "forms/page_owner_sort.txt",
        "forms/show_stacks.txt",
        "field/several-in-one-paste/blog-source.md",
    ];
    for name in samples {
        let text = sample(name);
        let lines: Vec<&str> = text.lines().take(40).collect();
        for _ in 0..case_count(2000) {
            let mut damaged = String::new();
            for line in &lines {
                let mut line = (*line).to_string();
                match rng.below(40) {
                    0 => line.insert_str(0, "> "),
                    1 => line.insert_str(0, "[  1.5] "),
                    2 => line = format!("| {} |", line.replace(' ', " | ")),
                    3 => line = line.replacen(' ', "\n", 3),
                    4 => line.truncate(line.floor_char_boundary(rng.below(40) as usize)),
                    5 => line = line.replace(' ', "\u{a0}"),
                    6 => line = format!("<td>{line}</pre>"),
                    7 => line.insert_str(0, "\u{1b}[01;3"),
                    8 => line.push_str(" 18446744073709551615 18446744073709551615"),
                    9 => line = format!("{line} {line}"),
                    _ => {}
                }
                damaged.push_str(&line);
                damaged.push(if rng.below(30) == 0 { ' ' } else { '\n' });
            }
            if let Some((_, pack)) = PACKINGS.get(rng.below(40) as usize) {
                damaged = pack(&damaged);
            }
            let _ = Snapshot::of_bytes("damaged", damaged.as_bytes());
        }
    }
}

#[test]
fn tables_of_one_moment_are_one_reading() {
    let slabinfo = sample("forms/slabinfo");
    let log = format!(
        "$ uname -a\nLinux h 6.18.44 #1 SMP x86_64 GNU/Linux\n$ nproc\n2\n$ slabtop -o\n{}\n$ vmstat -m\n{}\n$ cat /proc/slabinfo\n{slabinfo}",
        sample("forms/slabtop.txt"),
        sample("forms/vmstat-m.txt"),
    );
    let found = all(&log);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].form, found[0].present_cpus),
        (Form::Slabinfo, Some(2))
    );
    assert_eq!(found[0].release.as_deref(), Some("6.18.44"));
    assert_eq!(found[0].architecture.as_deref(), Some("x86_64"));
    assert_eq!(found[0].slabinfo.rows, rows(&slabinfo));
    // Two caches of one name beside each other are two; the whole again is another reading.
    let twice = format!(
        "{slabinfo}{}",
        slabinfo.lines().skip(2).collect::<Vec<_>>().join("\n")
    );
    assert_eq!(bytes(&twice).len(), 2);
}

#[test]
fn what_has_no_table_says_what_it_has() {
    let meminfo = "MemTotal:  1000 kB\nSlab: 100 kB\nSReclaimable: 40 kB\n";
    let found = all(meminfo).remove(0);
    assert_eq!((found.form, found.detail()), (Form::Meminfo, Detail::Bytes));
    assert_eq!(found.meminfo_slab_bytes, Some(100 << 10));
    let sums = "> [  1.5] Mem-Info:\n> [  1.5]  slab_reclaimable:100 slab_unreclaimable:2000\n";
    let found = all(sums).remove(0);
    assert_eq!((found.form, found.cache_bytes.len()), (Form::Oom, 0));
    assert_eq!(found.oom.unwrap().slab_unreclaimable_pages, Some(2000));
    let other = "foo 1 2 3 4\nand so on\n";
    assert!(Snapshot::of_bytes("paste", other.as_bytes()).is_err());
}

/// Two copies of buddyinfo are not one, and pagetypeinfo needs no empty lines.
#[test]
fn free_pages_alone() {
    let rows = "> Node 0, zone      DMA      0      1      3\n> Node 0, zone   Normal    100     50      7\n";
    let later = rows.replace("100", "200");
    let last = Snapshot::parse("f", &format!("{rows}{later}"), None).unwrap();
    let zones = &last.buddyinfo.as_ref().unwrap().zones;
    let pages: Vec<u64> = zones.iter().map(|zone| zone.pages()).collect();
    assert_eq!((last.form, pages), (Form::Buddyinfo, vec![14, 328]));
    let types = "Page block order: 1\nPages per block:  2\n\
        Free pages count per migrate type at order       0      1\n\
        Node    0, zone   Normal, type    Unmovable      8     >100000\n\
        Node    0, zone   Normal, type      Movable      1      4\n\
        Number of blocks type     Unmovable      Movable\n\
        Node 0, zone   Normal            6         1496\n";
    let last = Snapshot::parse("f", types, None).unwrap();
    assert_eq!(last.notes, [""; 0]);
    assert_eq!(last.pagetypeinfo.unwrap().blocks[0].counts, [6, 1496]);
    assert_eq!(last.buddyinfo.unwrap().zones[0].counts, [9, 100_004]);
}

/// A map of blocks has lines that look like commands and rows.
#[test]
fn maps_of_blocks_alone() {
    let map = |free: u32| {
        format!(
            "> quarry blocks - version: 1\n> page_bytes 65536\n> block_bytes 2097152\n> on_cpu_lists 3\n\
            > # first blocks free movable slab page_tables kernel untold cached\n> 0 1 {free} 0 {} 0 0 0 0\n",
            32 - free
        )
    };
    let free = "> Node 0, zone   Normal    100     50      7\n";
    let text = format!("Ann wrote:\n{}{free}\nLater:\n{}", map(20), map(12));
    let both = all(&text);
    let slabs: Vec<u64> = both
        .iter()
        .map(|one| one.blocks.as_ref().unwrap().sums().slab)
        .collect();
    let last = &both[1];
    assert_eq!(slabs, [12, 20]);
    assert_eq!((last.form, last.page_bytes), (Form::Blocks, 65536));
    assert!(last.notes.is_empty() && last.buddyinfo.is_some());
    let meminfo = all(&format!("Slab: 100 kB\n{text}")).remove(0);
    assert_eq!(meminfo.form, Form::Meminfo);
    assert!(meminfo.blocks.is_some());
}

/// Readings of meminfo are a series; a head of slabtop alone has sums; twenty rows without a kmalloc are a part.
#[test]
fn parts_that_people_cut_out() {
    let series = "Slab: 100 kB\nSUnreclaim: 60 kB\n\nSlab: 300 kB\nSUnreclaim: 250 kB\n";
    let all = Snapshot::of_bytes("f", series.as_bytes()).unwrap();
    let slabs: Vec<_> = all.iter().map(|one| one.meminfo_slab_bytes).collect();
    assert_eq!(slabs, [Some(100 << 10), Some(300 << 10)]);
    let head = " Active / Total Objects (% used)    : 100 / 200 (50.0%)\n\
        \x20Active / Total Slabs (% used)      : 10 / 10 (100.0%)\n\
        \x20Active / Total Caches (% used)     : 60 / 90 (66.7%)\n\
        \x20Active / Total Size (% used)       : 30.00K / 40.00K (75.0%)\n\
        \x20Minimum / Average / Maximum Object : 0.01K / 0.20K / 8.00K\n\n\
        \x20 OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n";
    let sums = Snapshot::parse("f", head, None).unwrap();
    assert_eq!(sums.form, Form::SlabTotals);
    let row = |n: u32| format!("cache_{n} 10 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n");
    let rows: String = (0..20).map(row).collect();
    let text = format!("slabinfo - version: 2.1\n# name <active_objs>\n{rows}");
    let part = Snapshot::parse("f", &text, None).unwrap();
    assert!(part.excerpt.is_some());
    let named = |name: &str| row(0).replace("cache_0", name);
    let general = format!("{text}{}", named("kmalloc-256"));
    let usual: String = ["dentry", "filp", "inode_cache"].map(named).concat();
    let whole = format!("{general}{usual}");
    let is_part = |text: &str| Snapshot::parse("f", text, None).unwrap().excerpt.is_some();
    assert!(is_part(&general) && is_part(&format!("{text}{usual}")) && !is_part(&whole));
    // Rows that were left out.
    for mark in [
        "[... snip ...]",
        "...",
        "(output truncated)",
        "120 lines omitted",
    ] {
        let middle = whole.replacen("cache_7", &format!("{mark}\ncache_7"), 1);
        assert!(
            is_part(&middle) && is_part(&format!("{whole}{mark}\n")),
            "{mark}"
        );
    }
    assert!(!is_part(&whole.replacen(
        "cache_7",
        "--More--(40%)\ncache_7",
        1
    )));
}

/// A web page made one line of slabinfo, and left out the most.
#[test]
fn rows_stand_behind_a_head_that_is_cut() {
    let text = "$ sudo cat /proc/slabinfo slabinfo - version: 2.1 # name <active_objs> <num_objs> ... sigqueue 100 100 160 25 1 \
        : tunables 0 0 0 : slabdata 4 4 0 kmalloc-8192 96 96 8192 4 8 : tunables 0 0 0 : slabdata 24 24 0 ...\nThe first line\n";
    let found = Snapshot::parse("f", text, None).unwrap();
    let rows: Vec<_> = found
        .slabinfo
        .rows
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(rows, ["sigqueue", "kmalloc-8192"]);
    assert!(found.excerpt.is_some());
}

/// A message of SLUB that is cut leaves those before it.
#[test]
fn a_cut_message_takes_no_other_away() {
    let whole = "[1.093507] kernel: SLUB: Unable to allocate memory on node -1, gfp=0x900(GFP_NOWAIT)\n\
        [1.093513] kernel:   cache: page->ptl, object size: 72, buffer size: 72, default order: 0, min order: 0\n\
        [1.093518] kernel:   node 0: slabs: 236, objs: 13216, free: 0\n";
    let cut = &whole[..whole.len() - 80];
    let snapshot = Snapshot::parse("f", &format!("{whole}{cut}"), None).unwrap();
    assert_eq!(snapshot.slab_bytes(), 236 * 4096);
}

/// A digit too many in a row, or one too few where all caches are listed.
#[test]
fn rows_that_their_head_excludes_are_noted() {
    let text = |caches: u64, objects: &str| {
        format!(
            " Active / Total Objects (% used)    : 2640 / 2740 (96.4%)\n Active / Total Slabs (% used)      : 120 / 120 \
             (100.0%)\n Active / Total Caches (% used)     : {caches} / {caches} (100.0%)\n Active / Total Size (% used)       : \
             400.00K / 480.00K (83.3%)\n\n  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n  {objects} 2000 95% \
             0.19K 100 21 400K dentry\n  640 640 100% 0.12K 20 32 80K kmalloc-128\n"
        )
    };
    let noted = |text: String| {
        let one = all(&text).remove(0);
        one.notes.iter().any(|note| note.contains("the rows have"))
    };
    assert!(!noted(text(2, "2100")) && !noted(text(90, "2100")));
    assert!(noted(text(2, "21000")) && noted(text(90, "21000")));
    assert!(noted(text(2, "210")) && !noted(text(90, "210")));
}

/// The sums of a report stand above its table: the last report's are not those of all.
#[test]
fn oom_reports_have_their_own_sums() {
    let report = |pages: u64, ram: u64| {
        format!(
            "slab_reclaimable:10 slab_unreclaimable:{pages}\n{ram} pages RAM\nUnreclaimable slab info:\nName Used Total\n\
             kmalloc-2k 80KB 80KB\nRAWv6 8KB 8KB\nUDPv6 8KB 8KB\n"
        )
    };
    let two = format!("{}Tasks state\n\n{}", report(20, 1000), report(30, 2000));
    let sums = |text: &str| -> Vec<_> {
        let found = all(text).into_iter().filter_map(|one| one.oom);
        found
            .map(|oom| (oom.slab_unreclaimable_pages, oom.ram_pages))
            .collect()
    };
    assert_eq!(sums(&two), [(Some(20), Some(1000)), (Some(30), Some(2000))]);
    // Without tables, too.
    let bare: String = two
        .lines()
        .filter(|line| line.contains(':') || line.contains("RAM"))
        .filter(|line| !line.contains("slab info"))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_eq!(sums(&bare), sums(&two));
}

/// Bytes of a text's readings, and what they are ordered by.
fn ordered(text: &str) -> (Vec<u64>, Option<String>) {
    let found = all(text);
    let bytes = found.iter().map(Snapshot::slab_bytes).collect();
    (bytes, found[0].ordered_by.clone())
}

/// Times of a text decide which reading is the later one.
#[test]
fn readings_are_in_the_order_of_their_times() {
    let row = |count: u64| {
        format!("dentry {count} {count} 4096 1 1 : tunables 0 0 0 : slabdata {count} {count} 0")
    };
    let (old, new) = (row(1), row(2));
    for text in [
        format!("{new}\nAnn wrote:\n> {old}\n"),
        format!("On Tue, Nov 24, 2026 at 9:00 AM, Ann wrote:\n> {old}\n{new}\n"),
        format!("Tue Nov 24 10:00:00 UTC 2026\n{new}\nTue Nov 24 09:00:00 UTC 2026\n{old}\n"),
        format!("[ 900.5] {new}\n[ 100.5] {old}\n"),
        format!("slabinfo.2026-11-02:{new}\nslabinfo.2026-11-01:{old}\n"),
        format!("slabinfo.10:{new}\nslabinfo.9:{old}\n"),
        format!("after: {new}\nbefore: {old}\n"),
    ] {
        let (bytes, by) = ordered(&text);
        assert_eq!((bytes, by.is_some()), (vec![4096, 8192], true), "{text}");
    }
    for [newer, older] in [
        [
            "joe added a comment - 05/Nov/25 3:04 PM",
            "joe created issue - 04/Nov/25 3:04 PM",
        ],
        ["11/05/2025 3:04 PM", "11/03/2025 3:04 PM"],
        ["02/11/2025 10:00", "01/11/2025 10:00"],
        ["It began on 25/10/2025.\n01/11/2025", "31/10/2025"],
        ["joe commented 2 hours ago", "joe commented yesterday"],
        ["Day 5:", "Day 1:"],
        ["after 3 days uptime", "fresh boot:"],
        ["1762300000", "1762200000"],
        ["[2025-11-05 10:00:00]", "[2025-11-04 10:00:00]"],
        ["worse", "-----Original Message-----\nFrom: joe"],
        [
            "worse",
            "From: joe\nSent: Monday, November 3, 2025 10:00 AM\nTo: ann",
        ],
        [
            "worse",
            "On Mon, Nov 3, 2025 at 10:00 AM Joe <joe@x.com>\nwrote:",
        ],
        ["After the upgrade:", "Before the upgrade:"],
        ["second:", "first:"],
        ["leaking:", "fresh boot:"],
        ["[05.11.25, 10:12:33] Joe:", "[03.11.25, 10:12:33] Joe:"],
        [
            "peor",
            "De: Joe\nEnviado el: lunes, 3 de noviembre de 2025 10:00\nPara: Ann",
        ],
    ] {
        let (bytes, by) = ordered(&format!("{newer}\n{new}\n\n{older}\n{old}\n"));
        assert_eq!((bytes, by.is_some()), (vec![4096, 8192], true), "{newer}");
    }
    // Nothing tells, or dates tell two orders: the text's stays.
    let untold = ordered(&format!("{old}\n\n{new}\n"));
    assert_eq!(untold, (vec![4096, 8192], None));
    let (bytes, by) = ordered(&format!("05/11/2025\n{new}\n11/05/2025\n{old}\n"));
    assert_eq!(bytes, [8192, 4096]);
    assert!(by.unwrap().contains("the day or the month first"));
    let dated = all(&format!(
        "2026-11-24 10:00\n{new}\n2026-11-24 09:00\n{old}\n"
    ));
    assert_eq!(
        dated[1]
            .unix_time_s
            .zip(dated[0].unix_time_s)
            .map(|(to, from)| to - from),
        Some(3600)
    );
}

/// Objects begin anew with a boot, and kernels are no moments of one machine.
#[test]
fn boots_and_kernels_are_apart() {
    let row = |count: u64| {
        format!("dentry {count} {count} 4096 1 1 : tunables 0 0 0 : slabdata {count} {count} 0")
    };
    let (old, new) = (row(1), row(2));
    for text in [
        format!("before reboot:\n{old}\n\nafter reboot:\n{new}\n"),
        format!("After reboot:\n{new}\n\nBefore reboot:\n{old}\n"),
        format!("[ 900.5] {old}\n[    0.0] Linux version 6.1.0 (a@b) #1\n[ 100.5] {new}\n"),
        format!("{old}\n# sudo reboot\n{new}\n"),
    ] {
        let found = all(&text);
        let bytes: Vec<u64> = found.iter().map(Snapshot::slab_bytes).collect();
        assert_eq!(bytes, [4096, 8192], "{text}");
        assert_ne!(found[0].boot_id, found[1].boot_id, "{text}");
    }
    let one = all(&format!("after reboot:\n{old}\nafter a week:\n{new}\n"));
    assert_eq!(one[0].boot_id, one[1].boot_id);
    let kernels = all(&format!(
        "bad kernel 6.1.50:\n{old}\n\ngood kernel 6.1.49:\n{new}\n"
    ));
    let releases: Vec<_> = kernels.iter().map(|one| one.release.as_deref()).collect();
    assert_eq!(releases, [Some("6.1.50"), Some("6.1.49")]);
    let sides = all(&format!("bad:\n{old}\n\ngood:\n{new}\n"));
    assert_eq!(sides[1].listed_in.as_deref(), Some("good"));
}

/// Logs with the newest line first are turned round: each report has its own sums.
#[test]
fn reversed_logs_are_turned_round() {
    let report = |time: u64, pages: u64| {
        let lines = [
            format!(" slab_reclaimable:1000 slab_unreclaimable:{pages}"),
            "1048445 pages RAM".to_string(),
            "Unreclaimable slab info:".to_string(),
            "Name                      Used          Total".to_string(),
            format!("kmalloc-1k {0}KB {0}KB", 3 * pages),
        ];
        lines.map(|line| format!("[{time}.000000] {line}\n"))
    };
    let mut lines = [report(100, 20_000), report(900, 40_000)].concat();
    let forward = lines.concat();
    lines.reverse();
    let backward = lines.concat();
    let labelled = backward.lines().map(|line| format!("web1: {line}\n"));
    let labelled: String = labelled.collect();
    let prose = format!("Our log, newest first:\n{backward}");
    lines.insert(5, "-- Boot 0123456789abcdef --\n".to_string());
    for text in [forward, prose, labelled, lines.concat()] {
        let found = all(&text);
        let sums = found.iter().map(|one| {
            let pages = one.oom.unwrap().slab_unreclaimable_pages.unwrap();
            (one.cache_bytes[0].total_bytes >> 10, pages)
        });
        let sums: Vec<_> = sums.collect();
        assert_eq!(sums, [(60_000, 20_000), (120_000, 40_000)], "{text}");
    }
}
