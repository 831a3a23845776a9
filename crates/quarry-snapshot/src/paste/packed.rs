//! Packings of a whole text, of slabinfo, slabtop and `vmstat -m`: each leaves the rows as they are. Texts that are not read
//! say what to do.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::slabinfo::SlabinfoRow;
use crate::{Form, Snapshot};

type Packing = fn(&str) -> String;

/// Packings of a whole text.
pub(super) const PACKINGS: [(&str, Packing); 21] = [
    ("cut at 80", |text| cut(text, 80)),
    ("cut at 72", |text| cut(text, 72)),
    ("cut at 64", |text| cut(text, 64)),
    ("cut at 60", |text| cut(text, 60)),
    ("blanks lost where it is cut", |text| {
        let lines = cut(text, 80);
        each(&lines, |_, line| line.trim_end().to_string())
    }),
    ("quoted-printable", printable),
    ("cat -n", |text| {
        each(text, |at, line| format!("{at:6}\t{line}"))
    }),
    ("less -N", |text| {
        each(text, |at, line| format!("{at:7} {line}"))
    }),
    ("grep -n", |text| {
        each(text, |at, line| format!("{at}:{line}"))
    }),
    ("nl", |text| {
        let mut number = 0;
        each(text, |_, line| {
            number += usize::from(!line.is_empty());
            match line {
                "" => String::new(),
                line => format!("{number:6}\t{line}"),
            }
        })
    }),
    ("commas", |text| separated(text, ",")),
    ("semicolons", |text| separated(text, ";")),
    ("commas and blanks", |text| separated(text, ", ")),
    ("quoted cells", |text| {
        each(text, |_, line| match line {
            "" => String::new(),
            line => format!("\"{}\"", words(line).join("\",\"")),
        })
    }),
    ("docker", |text| {
        let line = |line: &str| json!({"log": format!("{line}\n"), "stream": "stdout"});
        each(text, |_, of| line(of).to_string())
    }),
    ("journald", |text| {
        let line = |line: &str| json!({"PRIORITY": "6", "MESSAGE": line});
        each(text, |_, of| line(of).to_string())
    }),
    ("a list of messages", |text| {
        let lines = text
            .lines()
            .map(|line| json!({"_source": {"message": line}}));
        json!({"hits": lines.collect::<Vec<_>>()}).to_string()
    }),
    ("Ansible", |text| {
        let lines = text.lines().collect::<Vec<_>>();
        let value = json!({"out.stdout_lines": lines});
        let json = serde_json::to_string_pretty(&value).unwrap();
        format!("TASK [show]\nok: [node1] => {json}\n")
    }),
    ("one line", |text| words(text).join(" ")),
    ("empty lines between", |text| {
        each(text, |_, line| format!("{line}\n"))
    }),
    ("div", |text| {
        let text = text.replace('<', "&lt;").replace('>', "&gt;");
        each(&text, |_, line| format!("<div>{line}</div>"))
    }),
];

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn each(text: &str, mut packed: impl FnMut(usize, &str) -> String) -> String {
    let lines = (1..).zip(text.lines());
    lines.map(|(at, line)| packed(at, line) + "\n").collect()
}

fn separated(text: &str, mark: &str) -> String {
    each(text, |_, line| words(line).join(mark))
}

fn cut(text: &str, width: usize) -> String {
    each(text, |_, line| {
        let parts = line.as_bytes().chunks(width).map(String::from_utf8_lossy);
        parts.collect::<Vec<_>>().join("\n")
    })
}

fn printable(text: &str) -> String {
    let coded = text.replace('=', "=3D").replace(" \n", "=20\n");
    each(&coded, |_, line| {
        let parts = line.as_bytes().chunks(70).map(String::from_utf8_lossy);
        parts.collect::<Vec<_>>().join("=\r\n")
    })
}

fn sample(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/forms");
    fs::read_to_string(data.join(name)).unwrap()
}

fn all(text: &str) -> Vec<Snapshot> {
    Snapshot::of_bytes("paste", text.as_bytes()).unwrap()
}

fn rows(text: &str) -> Vec<SlabinfoRow> {
    all(text).pop().unwrap().slabinfo.rows
}

/// `vmstat -m` with its head above each screenful.
fn vmstat() -> String {
    let text = sample("vmstat-m.txt");
    let (head, rows) = text.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    let pages = rows.chunks(7);
    pages
        .flat_map(|rows| {
            [head, "\n"]
                .into_iter()
                .chain(rows.iter().flat_map(|row| [*row, "\n"]))
        })
        .collect()
}

#[test]
fn packings_leave_rows_as_they_are() {
    for text in [sample("slabinfo"), sample("slabtop.txt"), vmstat()] {
        let plain = all(&text).remove(0);
        for (name, packed) in PACKINGS {
            let packed = packed(&text);
            let found = all(&packed);
            assert_eq!(found.len(), 1, "{name}: {packed}");
            assert_eq!(found[0].slabinfo, plain.slabinfo, "{name}: {packed}");
            assert_eq!(found[0].excerpt, plain.excerpt, "{name}: {packed}");
        }
    }
}

/// Parts of words, where prose and marks of quotes stand, too.
#[test]
fn cut_rows_of_other_forms() {
    let text = sample("crash.txt");
    let (crash, failed) = (all(&text).remove(0), sample("slub-failed.txt"));
    for width in [60, 64, 72, 80] {
        let found = all(&cut(&text, width));
        assert_eq!((found.len(), &found[0].slabinfo), (1, &crash.slabinfo));
        assert_eq!(found[0].excerpt, crash.excerpt);
        assert_eq!(rows(&cut(&failed, width)), rows(&failed), "{width}");
    }
    let text = sample("slabinfo");
    let quoted = each(&cut(&text, 80), |_, line| format!("> {line}"));
    assert_eq!(rows(&format!("Hello,\n{quoted}Bye\n")), rows(&text));
    let logged = each(&text, |_, line| json!({ "log": line }).to_string());
    assert_eq!(rows(&format!("Our collector has:\n{logged}")), rows(&text));
    // Names that were broken behind a hyphen.
    let row = "0 0 0% 8.00K 0 4 0K dma-\nkmalloc-8k\n";
    let all_rows = rows(row);
    assert_eq!(all_rows[0].name, "dma-kmalloc-8k");
}

/// A head of `vmstat -m` goes on with its table, unless the names start again.
#[test]
fn repeated_heads_are_of_one_table() {
    let text = vmstat();
    assert_eq!(all(&text).len(), 1);
    assert_eq!(rows(&text), rows(&sample("vmstat-m.txt")));
    for between in ["", "\n", "\n\n\n"] {
        let twice = format!("{text}{between}{text}");
        for twice in [
            twice.clone(),
            twice.replace('\n', "<br>\n"),
            words(&twice).join(" "),
        ] {
            let found = all(&twice);
            assert_eq!(found.len(), 2, "{twice}");
            assert_eq!(found[0].slabinfo, found[1].slabinfo);
        }
    }
}

/// Rows that cannot be joined are missed, and the rest is a part.
#[test]
fn damaged_rows_make_a_part() {
    let text = sample("slabinfo");
    let lines: Vec<&str> = text.lines().collect();
    let whole = all(&text).remove(0);
    let at = lines.len() / 2;
    let damaged = |line: &str| {
        let mut lines = lines.clone();
        lines[at] = line;
        all(&lines.join("\n")).remove(0)
    };
    let found = damaged("dent 12 1O 192 21 1 : tunables");
    assert_eq!(found.slabinfo.rows.len(), whole.slabinfo.rows.len() - 1);
    assert!(found.excerpt.is_some());
    let note = format!("not read, cut or damaged: 1, the first is line {}", at + 1);
    assert!(found.notes[0].contains(&note), "{:?}", found.notes);
    // A row that is cut where the text ends.
    let cut = all(&format!("{text}dentry 100 200 192")).remove(0);
    assert!(cut.excerpt.is_some(), "{:?}", cut.notes);
    // What another command prints is no row.
    let other = all(&format!("{text}Mem: 100 200 300 400\n")).remove(0);
    assert_eq!(other.excerpt, whole.excerpt);
}

#[test]
fn numbers_of_rows_are_no_numbers_of_lines() {
    let row = |objects: u32| format!("{objects} {objects} 100% 0.10K 1 39 4K cache_{objects}\n");
    let text: String = [9, 10, 11, 12, 40].into_iter().map(row).collect();
    assert_eq!(rows(&text).len(), 5);
    let numbered = each(&text, |at, line| format!("{at} {line}"));
    assert_eq!(rows(&numbered), rows(&text));
}

/// The end of a list stands first, and its head last.
#[test]
fn reversed_lists_are_whole() {
    let reversed = |text: &str| -> String {
        let lines = text.lines().rev();
        lines.flat_map(|line| [line, "\n"]).collect()
    };
    let text = sample("slabinfo");
    let row = |at: u32| format!("x_{at} 1 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n");
    let more: String = (0..20).map(row).collect();
    let text = format!("{text}{more}");
    assert_eq!(all(&text)[0].excerpt, None);
    let found = all(&reversed(&text)).remove(0);
    assert_eq!(found.excerpt, None);
    assert_eq!(found.slabinfo.rows.len(), rows(&text).len());
    let headless: Vec<&str> = text.lines().skip(2).collect();
    assert!(all(&reversed(&headless.join("\n")))[0].excerpt.is_some());
}

/// One line, behind the prompt and the command.
#[test]
fn commands_before_the_first_row() {
    let text = sample("slabinfo");
    let expected = rows(&text);
    let rest: Vec<&str> = text.lines().skip(2).collect();
    for line in [
        format!(
            "me@host:~$ sudo cat /proc/slabinfo {}",
            words(&text).join(" ")
        ),
        format!(
            "me@host:~$ sudo tail -n +3 /proc/slabinfo {}",
            rest.join(" ")
        ),
        format!("{} me@host:~$ exit", words(&text).join(" ")),
    ] {
        assert_eq!(rows(&line), expected, "{line}");
    }
}

#[test]
fn call_sites_need_no_head() {
    let sites = "    4096000     1000 mm/slub.c:2500 func:alloc_slab_page\n     131072        1 kernel/fork.c:300 func:alloc_thread_stack_node\n";
    let head = "allocinfo - version: 1.0\n#     <size>  <calls> <tag info>\n";
    let whole = all(&format!("{head}{sites}")).remove(0);
    assert_eq!((whole.form, whole.call_sites.len()), (Form::Allocinfo, 2));
    assert_eq!(whole.notes, [""; 0]);
    let quoted = each(&format!("{head}{sites}"), |_, line| format!("> {line}"));
    assert_eq!(all(&quoted)[0].call_sites, whole.call_sites);
    let part = all(&format!("Hello,\n{sites}Bye\n")).remove(0);
    assert_eq!(
        (part.form, &part.call_sites),
        (Form::Allocinfo, &whole.call_sites)
    );
    assert!(part.notes[0].contains("no head"), "{:?}", part.notes);
    let rounded = all("# sort -h | numfmt\n 19.5M 5000 net/a.c:6 func:a\n").remove(0);
    assert_eq!(rounded.call_sites[0].bytes, 20_447_232);
    assert!(rounded.notes[1].contains("rounded"), "{:?}", rounded.notes);
}

#[test]
fn what_is_not_read_says_what_to_do() {
    let slabinfo = sample("slabinfo");
    let short = each(&slabinfo, |_, line| line.chars().take(76).collect());
    for (text, next) in [
        (
            format!("{{\\rtf1\\ansi {slabinfo}}}").replace('\n', "\\par\n"),
            "plain text",
        ),
        (
            format!(
                "Content-Transfer-Encoding: base64\n\nZGVudHJ5\n{}",
                "A".repeat(70)
            ),
            "save the text",
        ),
        (
            " bash-1 [001] ..... 1000.0: kmalloc: call_site=f+0x1/0x2 ptr=1 bytes_req=8\n"
                .to_string(),
            "quarry import",
        ),
        (
            "> bash 1 [001] 1000.0: kmem:kmem_cache_free: call_site=f ptr=1\n".to_string(),
            "quarry import",
        ),
        (short, "sudo cat /proc/slabinfo"),
    ] {
        let error = Snapshot::of_bytes("paste", text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(next), "{error}");
    }
}

/// Owners of pages that begin behind prose, in a text that is large: what is above is a fact.
#[test]
fn large_owners_stand_behind_prose() {
    let prose = "Hello,\n\n$ uname -r\n6.12.4\n$ cat page_owner\n";
    let mut text = prose.to_string();
    let mut records = 0;
    while text.len() <= super::LARGE {
        records += 1;
        writeln!(text, "Page allocated via order 1, mask 0x1(GFP_KERNEL), pid 7, ts 1 ns\nPFN 1 type Movable Block 1 type Movable Flags 0x0()\n pte_alloc_one+0x15/0x50\n").unwrap();
    }
    assert!(super::is_page_owner(&text) && !super::is_page_owner(&text[..9999]));
    let found = all(&text).remove(0);
    assert_eq!(found.release.as_deref(), Some("6.12.4"));
    let small = all(&text[..prose.len() + 3000]).remove(0);
    assert_eq!((small.form, small.release), (found.form, found.release));
    assert_eq!(found.page_owners.unwrap().sites[0].pages, Some(2 * records));
    // A table above it is read as a table.
    let slabinfo = sample("slabinfo");
    assert!(!super::is_page_owner(&format!("{slabinfo}{text}")));
}

/// Rows of two machines are neither added nor joined.
#[test]
fn machines_of_a_text_are_apart() {
    let text = sample("slabinfo");
    let expected = rows(&text);
    let mixed: String = text
        .lines()
        .map(|line| format!("web1: {line}\nweb2: {line}\n"))
        .collect();
    let found = all(&mixed);
    let hosts: Vec<_> = found.iter().map(|one| one.host.as_deref()).collect();
    assert_eq!(hosts, [Some("web1"), Some("web2")]);
    assert!(found.iter().all(|one| one.slabinfo.rows == expected));
    let alone: String = text
        .lines()
        .map(|line| format!("web1  | {line}\n"))
        .collect();
    assert_eq!((all(&alone).len(), rows(&alone)), (1, expected));
    // Parts of one table, but for the machine.
    let row = |name: &str| format!("{name} 1 1 4096 1 1 : tunables 0 0 0 : slabdata 1 1 0\n");
    let uname = |host: &str| format!("$ uname -a\nLinux {host} 6.1.0 #1 SMP x86_64 GNU/Linux\n");
    let parts = |hosts: [&str; 2]| {
        all(&format!(
            "{}{}{}{}",
            uname(hosts[0]),
            row("one"),
            uname(hosts[1]),
            row("two")
        ))
        .len()
    };
    assert_eq!((parts(["web1", "web1"]), parts(["web1", "web2"])), (1, 2));
    let files = all(&format!(
        "slabinfo.foo:{}slabinfo.bar:{}",
        row("one"),
        row("one")
    ));
    assert_eq!(files[1].listed_in.as_deref(), Some("slabinfo.bar"));
    let sums = all("web1: Slab: 100 kB\nweb2: Slab: 900 kB\n");
    assert_eq!(
        sums.iter()
            .map(|one| one.meminfo_slab_bytes)
            .collect::<Vec<_>>(),
        [Some(100 << 10), Some(900 << 10)]
    );
}

/// Counts of the first cache in each reading.
fn objects(text: &str) -> Vec<u64> {
    let found = Snapshot::of_bytes("paste", text.as_bytes()).unwrap();
    let rows = found.iter().map(|found| found.slabinfo.rows[0].num_objs);
    rows.collect()
}

#[test]
fn readings_are_neither_lost_nor_made() {
    let row = |name: &str, count: u32| {
        format!("{name} {count} {count} 512 16 2 : tunables 0 0 0 : slabdata 1 1 0\n")
    };
    let listing = row("pid", 1) + &row("dentry", 2) + &row("filp", 3);
    // An excerpt of the listing above, unless it has a time of its own or other numbers.
    let grep = |count: u32| format!("{listing}$ grep dentry\n{}", row("dentry", count));
    assert_eq!(objects(&grep(2)), [1]);
    assert_eq!(objects(&grep(4)), [1, 4]);
    let dated = format!("2025-11-03\n{listing}\n2025-11-04\n{}", row("dentry", 2));
    assert_eq!(objects(&dated), [1, 2]);
    let failed = |time: &str, count: u32| {
        format!(
            "[{time}] SLUB: Unable to allocate memory on node -1, gfp=0x900(GFP_NOWAIT)\n\
             [{time}]   cache: kmalloc-64, object size: 64, buffer size: 64, default order: 0, min order: 0\n\
             [{time}]   node 0: slabs: 1, objs: {count}, free: 0\n"
        )
    };
    assert_eq!(
        objects(&(failed("100.5", 64) + &failed("900.5", 128))),
        [64, 128]
    );
    // A burst is one.
    assert_eq!(
        objects(&(failed("100.5", 64) + &failed("100.7", 128))),
        [128]
    );
    let blocks = "Node 0, zone Normal 1 1 1 1 1 1 1 1 1 1 1\n";
    let several = format!("before:\n{blocks}after:\n{blocks}");
    let found = Snapshot::of_bytes("paste", several.as_bytes()).unwrap();
    assert_eq!(found.len(), 2);
    let boots = format!("2025-11-03\n{listing}\nwe rebooted that evening\n2025-11-05\n{listing}");
    let found = Snapshot::of_bytes("paste", boots.as_bytes()).unwrap();
    assert_ne!(found[0].boot_id, found[1].boot_id);
    let denied = boots.replace("we rebooted", "we have not rebooted");
    let found = Snapshot::of_bytes("paste", denied.as_bytes()).unwrap();
    assert_eq!(found[0].boot_id, found[1].boot_id);
}

#[test]
fn stacks_that_repeat_are_of_another_reading() {
    let record = |times: u32, pages: u32, name: &str| {
        format!(
            "{times} times, {pages} pages:\nPage allocated via order 3, mask 0x52cc0(GFP_KERNEL)\n allocate_slab+0x1/0x2\n {name}+0x1/0x2\n\n"
        )
    };
    let pages = |text: &str| {
        let found = Snapshot::of_bytes("paste", text.as_bytes()).unwrap();
        let pages = found
            .into_iter()
            .map(|found| found.page_owners.unwrap().slab_pages.unwrap());
        pages.collect::<Vec<_>>()
    };
    let (one, grown) = (record(1, 8, "foo"), record(2, 16, "foo"));
    assert_eq!(pages(&format!("before:\n{one}after:\n{grown}")), [8, 16]);
    let others = format!("first:\n{one}and then:\n{}", record(2, 16, "bar"));
    assert_eq!(pages(&others), [24]);
}
