//! `quarry explain` knows the words that tables print: they are collected from the outputs of all commands.

use std::collections::BTreeMap;
use std::fs;

use crate::common::{command, quarry, recording, small_trace, stdout, text};

/// Cells of a table, by columns: those of the header, and those of the first column below it.
struct Cells {
    header: Vec<String>,
    first: Vec<String>,
}

/// The tables of an output: blocks of lines around a rule.
fn tables(output: &str) -> Vec<Cells> {
    let lines: Vec<&str> = output.lines().collect();
    let rule = |line: &str| !line.is_empty() && line.chars().all(|c| c == '─');
    let rules = (0..lines.len()).filter(|at| rule(lines[*at]));
    rules
        .map(|at| {
            let width = lines[at].chars().count();
            let fits = |line: &str| line.starts_with(' ') && line.chars().count() <= width;
            let above = lines[..at]
                .iter()
                .rev()
                .take_while(|line| fits(line))
                .count();
            let below = lines[at + 1..].iter().take_while(|line| fits(line)).count();
            cells(
                &lines[at - above..at],
                &lines[at + 1..at + 1 + below],
                width,
            )
        })
        .collect()
}

/// Cuts lines where two columns or more of all of them are blank.
fn cells(header: &[&str], body: &[&str], width: usize) -> Cells {
    let grid = |line: &&str| -> Vec<char> {
        let padded = line.chars().chain(std::iter::repeat(' '));
        padded.take(width + 2).collect()
    };
    let head: Vec<Vec<char>> = header.iter().map(grid).collect();
    let rows: Vec<Vec<char>> = body.iter().map(grid).collect();
    let blank = |at: usize| head.iter().chain(&rows).all(|line| line[at] == ' ');
    let mut columns = Vec::new();
    let mut begin = None;
    for at in 0..=width {
        let gap = at == width || (blank(at) && blank(at + 1));
        match (begin, gap) {
            (None, false) if !blank(at) => begin = Some(at),
            (Some(from), true) => {
                columns.push(from..at);
                begin = None;
            }
            _ => {}
        }
    }
    let cut = |line: &Vec<char>, column: &std::ops::Range<usize>| -> String {
        let cell: String = line[column.clone()].iter().collect();
        cell.trim().to_string()
    };
    let header = columns.iter().map(|column| {
        let words: Vec<String> = head.iter().map(|line| cut(line, column)).collect();
        words.join(" ").trim().to_string()
    });
    let first = columns.first().into_iter();
    Cells {
        header: header.collect(),
        first: first
            .flat_map(|column| rows.iter().map(|line| cut(line, column)))
            .collect(),
    }
}

#[test]
fn tables_are_cut_into_cells() {
    let rule = "─".repeat(22);
    let output = format!(
        "x\n          live at   a\n             peak\n{rule}\n f+0x1    1 024 B   2\n g\n\ny\n"
    );
    let [table] = tables(&output).try_into().ok().unwrap();
    assert_eq!(table.header, ["", "live at peak", "a"]);
    assert_eq!(table.first, ["f+0x1", "g"]);
}

#[test]
fn explain_knows_every_word_of_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let boot = crate::what_if::boot(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let slabinfo = "slabinfo - version: 2.1\n# name <active_objs>\n\
        filp 10 10 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n";
    fs::write(path("slabinfo"), slabinfo).unwrap();
    let report = path("slabinfo");
    let reports = format!("--before {report} --after {report}");
    let recorded = crate::common::with_reports(dir.path(), &trace, &reports);
    fs::write(path("script.txt"), recording()).unwrap();
    for (name, more) in [("a.json", ""), ("b.json", " --set slub_max_order=0")] {
        let args = format!("replay {trace} --design slub,sheaf --json --no-timing{more}");
        fs::write(path(name), stdout(&args)).unwrap();
    }
    let (a, b, script, part) = (
        path("a.json"),
        path("b.json"),
        path("script.txt"),
        path("part.parquet"),
    );
    // Tables whose first column has names of rows, not data.
    let with_rows = [
        format!("replay {trace} --all --fragmentation --pages all --design slub,sheaf"),
        format!("replay {trace} --design slub,slab@6.1 --page-size 4k --caches"),
        format!("replay {trace} --design slub --page-size 4k --set cpu_partial=0,6"),
        format!("replay {trace} --time --all --design slub,sheaf"),
        "geometry --object-size 192".to_string(),
        format!("info {trace}"),
        format!("import {script} -o {part}"),
        format!("diff {a} {b} --top 0"),
        "run rx --rings 2 --packets 200 --streams 4".to_string(),
        "run micro --pattern cross --cpus 2 --count 50".to_string(),
        "run pages --pages 50".to_string(),
        "run hackbench -g 1 -f 2 -l 5 --cpus 2 --design slub".to_string(),
        "run hackbench -g 1 -f 2 -l 5 --host --rounds 1 --design slub".to_string(),
    ];
    let columns_only = [
        format!("replay {trace} --design slub --page-size 4k --caches"),
        format!("replay {trace} --time --design slub --caches"),
        format!("replay {trace} --time --caches"),
        format!("replay {recorded} --check"),
        format!("info {boot}"),
        format!("look {boot}"),
        format!("look {boot} --stage boot,later"),
        format!("callers {trace}"),
        format!("callers {trace} --by process"),
        format!("callers {trace} --by cache"),
        format!("diff {a} {b}"),
        format!("what-if {boot} --page-size 4k,64k --cpus 4,64"),
        "run micro --pattern pair --count 20 --sensitivity".to_string(),
        crate::common::kept_thread(dir.path()).again,
        "geometry --pages --zone 1G".to_string(),
        "tunables".to_string(),
        "machines".to_string(),
        "machines milan-2x64".to_string(),
    ];
    // Each with a command that prints it: the same word is asked for once.
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    let all = with_rows.iter().map(|line| (line, true));
    for (line, has_rows) in all.chain(columns_only.iter().map(|line| (line, false))) {
        let output = command(line).env("COLUMNS", "400").output().unwrap();
        let found = tables(&text(&output));
        assert!(!found.is_empty(), "{line} prints no table");
        for table in found {
            let rows = table.first.into_iter().filter(|_| has_rows);
            let all = table
                .header
                .into_iter()
                .chain(rows)
                .filter(|word| !word.is_empty());
            words.extend(all.map(|word| (word, line.clone())));
        }
    }
    // Data in the first column of tables that also have rows.
    let data = |word: &str| {
        let named = ["demo", "demo+0x1", "filp", "dentry", "GFP_KERNEL"].contains(&word);
        let number = word
            .chars()
            .all(|c| c.is_ascii_digit() || c == ':' || c == ' ');
        named
            || number
            || word.starts_with("kmalloc")
            || word.starts_with("kmem_cache")
            || word.starts_with("mm_page")
            || word == "kfree"
            || word.starts_with('/')
            // Names of runs.
            || ["small", "none", "huge", "pool"].contains(&word)
            || word.ends_with("process")
            || word.ends_with("processes")
    };
    let asked = |word: &str| quarry(&format!("explain {word}")).status.success();
    let unknown: Vec<String> = words
        .iter()
        .filter(|(word, _)| !data(word) && !asked(word))
        .map(|(word, line)| format!("{word:?} of {line}"))
        .collect();
    assert!(words.len() > 150, "only {} words were found", words.len());
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(!asked("no such word"));
}
