//! Texts that have nothing to read: the packing or form that they seem to be of, and what to do.

use super::columns;
use super::listing::Found;
use crate::file::ReportError;
use crate::forms::{Form, rows};
use crate::slabinfo::{self, Slabinfo};
use crate::words::quoted;

/// Recognition of a text.
type Is = fn(&str) -> bool;

/// Packings and recordings that are not read, and what to do.
const PACKED: [(Is, &str); 3] = [
    (
        |text| text.contains("Content-Transfer-Encoding: base64"),
        "a mail whose text is in base64: save the text alone",
    ),
    (is_base64, "base64: give what `base64 -d FILE` prints of it"),
    (
        is_trace,
        "events of ftrace, perf or LTTng: `quarry import FILE` makes a trace of them",
    ),
];

/// Texts without caches and sums, and what to do.
const WITHOUT: [(Is, &str); 17] = [
    (
        |text| {
            begins(text, &["<!doctype html", "<html"])
                && has(text, &["sign in", "log in", "login", "password"])
        },
        "a login page: log in, and copy the listing from the page",
    ),
    (
        |text| begins(text, &["<!doctype html", "<html"]),
        "a web page without a listing: copy the listing from the page, or download its raw text",
    ),
    (
        |text| text.trim().lines().count() == 1 && begins(text, &["http://", "https://"]),
        "an address: download what it names, `curl -L ADDRESS > FILE`",
    ),
    (
        |text| {
            has_line(text, |line| {
                has(line, &["slab", "vmstat"])
                    && has(
                        line,
                        &[
                            "permission denied",
                            "not permitted",
                            "must be root",
                            "permissions are insufficient",
                        ],
                    )
            })
        },
        "/proc/slabinfo is readable by root alone: give what `sudo cat /proc/slabinfo` prints",
    ),
    (
        |text| has_line(text, |line| begins(line, &["mem:"]) && numbers(line) >= 3),
        "output of `free`, which has no slabs: `cat /proc/meminfo` has their sum, `sudo cat /proc/slabinfo` the caches",
    ),
    (
        |text| {
            has_line(text, |line| {
                begins(line, &["top - "])
                    || has(line, &["pid user", "user pid %cpu", "user         pid"])
            })
        },
        "a list of processes, whose memory is not slabs: `sudo slabtop -o` or `sudo cat /proc/slabinfo` has the caches",
    ),
    (
        |text| {
            has_line(text, |line| {
                begins(line, &["procs --", "procs  --"]) || has(&squeezed(line), &["r b swpd free"])
            })
        },
        "output of `vmstat` without -m: `sudo vmstat -m` has the caches",
    ),
    (
        |text| {
            has(
                text,
                &[
                    "mach virtual memory statistics",
                    "item                   size  limit",
                ],
            )
        },
        "of another system than Linux, whose slabs alone are read",
    ),
    (
        |text| has_line(text, |line| line.starts_with("nr_slab_unreclaimable ")),
        "a copy of /proc/vmstat, which has sums alone: `sudo cat /proc/slabinfo` has the caches",
    ),
    (
        |text| {
            has_line(text, |line| {
                line.starts_with("Node ") && line.contains(", zone ") && numbers(line) < 5
            })
        },
        "a zoneinfo, which has pages of zones, not caches: `sudo cat /proc/slabinfo` has the caches",
    ),
    (
        |text| has_line(text, |line| line.contains(" func:") && line.contains(':')),
        "call sites of allocinfo with something before each line, or cut: `sudo cat /proc/allocinfo > FILE` has them whole",
    ),
    (
        |text| {
            has_line(text, |line| {
                begins(line, &["vmrss:", "size:               ", "rss:  "])
            })
        },
        "memory of a process, which is not slabs: `sudo cat /proc/slabinfo` has the caches",
    ),
    (
        |text| {
            has_line(text, |line| {
                begins(
                    line,
                    &["node_memory_slab_bytes", "node_memory_sunreclaim_bytes"],
                )
            })
        },
        "metrics of node_exporter with sums of slabs alone: `cat /proc/meminfo` has them in the form that is read, `sudo cat /proc/slabinfo` the caches",
    ),
    (
        |text| {
            has_line(text, |line| {
                line.split_whitespace().any(|word| word == "kbslab")
            })
        },
        "output of `sar -r ALL`, whose kbslab is a sum alone: `sudo cat /proc/slabinfo` has the caches",
    ),
    (
        |text| has(&squeezed(text), &["pages total percentage"]),
        "`kmem -i` of crash, which has sums alone: give what `kmem -s` prints",
    ),
    (
        |text| text.contains("slabinfo") && begins(text, &["usage:", "slabinfo ["]),
        "the help of a tool: give what `sudo cat /proc/slabinfo` prints",
    ),
    (
        are_columns,
        "names and numbers without a head: nothing says what they count; `sudo cat /proc/slabinfo > FILE` has whole rows",
    ),
];

/// Messages of programs that have nothing else to say, and what to do.
const MESSAGES: [(&[&str], &str); 5] = [
    (
        &[
            "connection refused",
            "connection timed out",
            "no route to host",
            "could not resolve host",
            "host key verification failed",
            "publickey",
            "must be logged in",
            "unauthorized",
            "error from server",
            "accessdenied",
            "access denied",
        ],
        "the connection to the machine failed: log in there, and run `sudo cat /proc/slabinfo`",
    ),
    (
        &["404: not found", "404 not found"],
        "a page that was not found: check the address, and download it again",
    ),
    (
        &["command not found", ": not found", "not recognized as"],
        "the shell did not find the command; `sudo cat /proc/slabinfo > FILE` needs no tool",
    ),
    (
        &[
            "permission denied",
            "not permitted",
            "password is required",
            "not in the sudoers",
        ],
        "the command was not allowed; as root, `cat /proc/slabinfo > FILE` has the caches",
    ),
    (
        &[
            "no such file or directory",
            "cannot open",
            "can't open",
            "unable to open",
            "cannot find path",
        ],
        "the command did not find a file; containers and other systems have no /proc/slabinfo: run \
         `sudo cat /proc/slabinfo` on the Linux host",
    ),
];

/// Lines of a text that are looked at.
const LINES: usize = 2000;

fn begins(text: &str, starts: &[&str]) -> bool {
    let text = text.trim_start();
    let is = |start: &&str| {
        text.get(..start.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    starts.iter().any(is)
}

/// True if a text has one of some words, in any case.
fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    words.iter().any(|word| text.contains(word))
}

fn has_line(text: &str, is: fn(&str) -> bool) -> bool {
    text.lines().take(LINES).any(is)
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn numbers(line: &str) -> usize {
    let words = line.split_whitespace();
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .count()
}

/// True for lines of base64 alone.
fn is_base64(text: &str) -> bool {
    const LINE_MIN: usize = 60;
    let is_coded = |line: &str| {
        let line = line.trim();
        line.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
    };
    let text = text.trim();
    let first = text.lines().next().unwrap_or_default();
    first.len() >= LINE_MIN && text.lines().take(LINES).all(is_coded)
}

/// True if most lines are a name and a few numbers, in either order.
fn are_columns(text: &str) -> bool {
    const LINES_MIN: usize = 3;
    const WORDS: std::ops::RangeInclusive<usize> = 2..=6;
    let is_row = |line: &&str| {
        // A row of slabinfo may be cut among its tunables.
        let before = line.split(" :").next().unwrap_or_default();
        let words = before.split([' ', '\t', '=', ':', ',']);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let is_name = |word: &&&str| {
            let mut letters = word.chars();
            letters.any(|c| c.is_ascii_lowercase()) && !numeric(word)
        };
        let names = words.iter().filter(is_name).count();
        WORDS.contains(&words.len())
            && (1..=2).contains(&names)
            && words.iter().any(|word| numeric(word))
    };
    let lines: Vec<&str> = text
        .lines()
        .take(LINES)
        .filter(|line| !line.trim().is_empty())
        .collect();
    let rows = lines.iter().filter(|line| is_row(line)).count();
    rows >= LINES_MIN && rows * 3 > lines.len() * 2
}

/// True for a number, with a unit or not.
fn numeric(word: &str) -> bool {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    digits.parse::<f64>().is_ok() && word.len() <= digits.len() + 3
}

/// True for a text with events of the slab allocators.
fn is_trace(text: &str) -> bool {
    const EVENTS: [&str; 5] = [
        "kmalloc",
        "kmalloc_node",
        "kfree",
        "kmem_cache_alloc",
        "kmem_cache_free",
    ];
    text.lines().any(|line| {
        let event = line.split_once(": call_site=").map(|(before, _)| before);
        // `[12:00:00.1] (+0.1) host kmem_kmalloc: { cpu_id = 0 }, { ... }` of LTTng.
        let event = event.or_else(|| line.split_once(": { cpu_id =").map(|(before, _)| before));
        let name = event.and_then(|event| event.rsplit([' ', ':']).next());
        name.is_some_and(|name| {
            EVENTS.contains(
                &name
                    .strip_prefix("kmem_")
                    .filter(|_| !EVENTS.contains(&name))
                    .unwrap_or(name),
            )
        })
    })
}

/// Sentence about a text that has nothing to read, with the next step.
pub(crate) fn unknown(text: &str) -> String {
    let Some(first) = text.lines().find(|line| !line.trim().is_empty()) else {
        return "it is empty: the command that wrote it printed nothing".to_string();
    };
    format!(
        "{}: none of the forms that are read: tables of caches (slabinfo, slabtop, vmstat -m, crash kmem -s, slabinfo tool), \
         sums (meminfo, OOM report, allocinfo, page_owner, buddyinfo), collections (snapshot, copy of /proc, sosreport) and \
         metrics (pmrep, Prometheus, below); `sudo cat /proc/slabinfo > FILE` makes one (docs/inputs.md has the others)",
        quoted(first)
    )
}

/// Refuses RTF, also one that seems to have rows: its marks stand among their words.
pub(super) fn refuse_rtf(file: &str, text: &str) -> Result<(), ReportError> {
    let what = "RTF of a word processor: save it as plain text";
    let is_rtf = text.trim_start().starts_with("{\\rtf");
    if is_rtf {
        Err(ReportError::bad(file, "text", what))
    } else {
        Ok(())
    }
}

/// Says why a text that names a form has no cache.
pub(super) fn refuse(file: &str, text: &str, found: &Found<'_>) -> Result<(), ReportError> {
    if let Some((_, what)) = PACKED.iter().find(|(is, _)| is(text)) {
        return Err(ReportError::bad(file, "text", what));
    }
    if let Some(line) = text
        .lines()
        .find(|line| line.contains("slabinfo - version: "))
        && !line.contains(slabinfo::VERSION)
    {
        let (_, version) = line.split_once("version: ").unwrap_or_default();
        if version.starts_with("1.") {
            let what = format!(
                "slabinfo {} is of Linux 2.4, which is not read: `awk '{{kib += $6 * $7 * 4}} END {{print kib}}' FILE` adds up its \
                 slabs in KiB, for pages of 4 KiB",
                version.trim()
            );
            return Err(ReportError::bad(file, "slabinfo", what));
        }
        return Slabinfo::parse_text(file, line.trim()).map(drop);
    }
    if text.contains(": tunables ") && !text.contains(" : slabdata ") {
        let what =
            "each row is cut before its slabs: `sudo cat /proc/slabinfo > FILE` has whole rows";
        return Err(ReportError::bad(file, "slabinfo", what));
    }
    if let Some((columns, lacks)) = columns::lacking(text) {
        let what = format!("a table with the columns {columns} lacks {lacks}");
        return Err(ReportError::bad(file, "columns", what));
    }
    let Some(form) = found.head else {
        return Ok(());
    };
    let tool = match form {
        Form::Slabinfo => "sudo cat /proc/slabinfo",
        Form::Slabtop => "sudo slabtop -o",
        Form::Vmstat => "sudo vmstat -m",
        _ => "",
    };
    if !tool.is_empty() && has_cut_rows(text, form) {
        let what = format!("each row is cut before its end: `{tool} > FILE` has whole rows");
        return Err(ReportError::bad(file, form.name(), what));
    }
    if text.trim_start().starts_with(slabinfo::VERSION) {
        // Its parser names the line.
        Slabinfo::parse_text(file, text.trim_start())?;
    }
    rows::moment(form, file, &[], None).map(drop)
}

/// Refuses a text that is known to have no caches and no sums.
pub(super) fn refuse_known(file: &str, text: &str) -> Result<(), ReportError> {
    if let Some(bytes) = of_group(text) {
        let what = format!(
            "a memory group reached its limit, and its slabs have {bytes} bytes ({:.1} MiB): only this sum is told; \
             `sudo cat /proc/slabinfo` has the caches of all groups",
            bytes as f64 / f64::from(1 << 20)
        );
        return Err(ReportError::bad(file, "text", what));
    }
    let known = WITHOUT.iter().find(|(is, _)| is(text));
    let known = known.map(|(_, what)| what).or_else(|| {
        let is_said = |words: &&[&str]| text.lines().take(LINES).any(|line| has(line, words));
        let message = MESSAGES.iter().find(|(words, _)| is_said(words));
        message.map(|(_, what)| what)
    });
    known.map_or(Ok(()), |what| Err(ReportError::bad(file, "text", what)))
}

/// Bytes of slabs in the last report of a memory group without memory: `slab 125829120` below `Memory cgroup stats for /a:`.
fn of_group(text: &str) -> Option<u64> {
    let (_, stats) = text.rsplit_once("Memory cgroup stats for ")?;
    let value = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let bytes = words.next()?.parse().ok()?;
        (words.next()? == "slab").then_some(bytes)
    };
    stats.lines().find_map(value)
}

/// True if a form's head stands above rows that lack their ends.
pub(super) fn has_cut_rows(text: &str, form: Form) -> bool {
    const ROWS_MIN: usize = 2;
    let is_number = |word: &&str| word.bytes().all(|b| b.is_ascii_digit());
    let is_part = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match form {
            Form::Slabtop => words.len() >= 2 && words.iter().take(2).all(is_number),
            _ => {
                let numbers = words.iter().skip(1).filter(|word| is_number(word)).count();
                numbers > 0
                    && words.first().is_some_and(|name| !is_number(name))
                    && !line.starts_with('#')
            }
        }
    };
    text.lines().filter(is_part).take(ROWS_MIN).count() == ROWS_MIN
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_without_caches_name_the_next_step() {
        for (text, part) in [
            (
                "bash: slabtop: command not found\n",
                "did not find the command",
            ),
            ("cat: /proc/slabinfo: Permission denied\n", "root alone"),
            ("sudo: a password is required\n", "not allowed"),
            (
                "cat: /proc/slabinfo: No such file or directory\n",
                "did not find a file",
            ),
            (
                "ssh: connect to host x port 22: Connection refused\n",
                "connection",
            ),
            (
                "              total        used        free\nMem:    24104   3100   12000\n",
                "`free`",
            ),
            ("top - 10:00:00 up 1 day\nTasks: 100 total\n", "processes"),
            (
                "procs -----------memory----------\n r  b   swpd   free\n 1 0 0 1\n",
                "vmstat -m",
            ),
            ("<!DOCTYPE html><title>Sign in</title>", "login page"),
            ("https://pastebin.com/abcd1234\n", "address"),
            (
                "dentry 66.9 MB\nfilp 1.0 MB\ninode_cache 5.4 MB\n",
                "without a head",
            ),
            ("4 dentry\n5 filp\n100 inode_cache\n", "without a head"),
            ("mm/slub.c:1 func:alloc_slab_page\n", "allocinfo"),
            (
                "Node 0, zone      DMA\n  pages free     3968\n        min      67\n",
                "zoneinfo",
            ),
            ("name,active_objs,num_objs\ndentry,1,2\n", "lacks objsize"),
            (
                "Cache                       Num  Total\ndentry 24 24\nfilp 1 2\n",
                "`sudo vmstat -m > FILE`",
            ),
            (
                "[10:00:00.1] (+0.1) h kmem_kmalloc: { cpu_id = 0 }, { call_site = 0x1 }\n",
                "quarry import",
            ),
            (
                "oom-killer: gfp_mask\n[1.0] Memory cgroup stats for /a:\n[1.0] slab 125829120\n",
                "its slabs have 125829120 bytes (120.0 MiB)",
            ),
            ("node_memory_Slab_bytes 8.8e+08\n", "/proc/meminfo"),
            ("12:00:01 AM kbmemfree kbslab\n12:10:01 AM 1 2\n", "kbslab"),
            (
                "vmstat: your kernel does not support slabinfo or your permissions are insufficient\n",
                "root alone",
            ),
            ("{\\rtf1\\f0\nslabinfo - version: 2.1\n", "RTF"),
            ("slabinfo - version: 1.1 (SMP)\ndentry 1 2 3\n", "awk"),
            ("hello\n", "none of the forms"),
            (" \n", "it is empty"),
        ] {
            let found = crate::Snapshot::of_bytes("t", text.as_bytes());
            let error = found.unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let coded = format!("{}\n{}\n", "QUJD".repeat(19), "QUJD");
        let error = crate::Snapshot::of_bytes("t", coded.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("base64 -d"));
    }
}
