//! Tables fit 80 columns.

use crate::common::{command, small_trace, text};

/// Runs a command with an output of 80 columns and checks each line; names of files may be longer.
fn assert_fits(line: &str, files: &[&str]) {
    let output = command(line).env("COLUMNS", "80").output().unwrap();
    let text = text(&output);
    assert!(
        text.lines().count() > 1,
        "{line} printed too little: {text}"
    );
    let long =
        |line: &&str| line.chars().count() > 80 && !files.iter().any(|file| line.contains(file));
    let long: Vec<&str> = text.lines().filter(long).collect();
    assert!(
        long.is_empty(),
        "{line}: more than 80 columns:\n{}",
        long.join("\n")
    );
}

#[test]
fn every_command_fits() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let boot = crate::what_if::boot(dir.path());
    let json = dir.path().join("a.json");
    let json = json.to_str().unwrap();
    let replayed = crate::common::stdout(&format!("replay {trace} --json --no-timing"));
    std::fs::write(
        json,
        replayed.replace("\"name\": \"filp\"", "\"name\": \"filp_of_a\""),
    )
    .unwrap();
    let other = dir.path().join("b.json");
    let other = other.to_str().unwrap();
    let args = format!("replay {trace} --json --no-timing --set page.min_free_kbytes=8192");
    let replayed = crate::common::stdout(&args);
    std::fs::write(other, replayed).unwrap();
    let part = dir.path().join("part.parquet");
    let part = part.to_str().unwrap();
    let report = dir.path().join("slabinfo");
    let slabinfo = "slabinfo - version: 2.1\n# name <active_objs>\n\
        filp 10 10 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n";
    std::fs::write(&report, slabinfo).unwrap();
    let report = report.to_str().unwrap();
    let reports = format!("--before {report} --after {report}");
    let with_reports = crate::common::with_reports(dir.path(), &trace, &reports);
    let script = dir.path().join("script.txt");
    std::fs::write(&script, crate::common::recording()).unwrap();
    let script = script.to_str().unwrap();
    let files = [
        trace.as_str(),
        boot.as_str(),
        json,
        other,
        part,
        report,
        script,
    ];
    let commands = format!(
        "replay {trace}
         replay {trace} --all --caches --fragmentation --pages all
         replay {trace} --cpus 2,4,8,16 --design slub,sheaf
         replay {with_reports} --check
         replay {trace} --time --all
         replay {trace} --all --caches --callers --set cpu_partial=0,6
         info {with_reports}
         info {boot}
         look {boot}
         look {boot} --stage boot,later
         callers {trace}
         callers {trace} --by process
         explain
         diff {json} {other} --all
         import {script} -o {part} --force
         filter {trace} -o {part} --force --cache filp
         what-if {boot} --stage boot --page-size 4k,64k --cpus 4,64
         what-if {boot} --release 7.3 --caches
         run rx --rings 2 --packets 200 --streams 4
         run
         run micro --pattern cross --cpus 12 --count 50
         run micro --count 20 --sensitivity
         run pages --pages 50
         run pages --pages 20 --processes 2 --sensitivity
         geometry --object-size 192
         geometry --pages --zone 16G --cpus 8 --page-size 4k,64k --era 4.13,6.18
         tunables
         tunables --design slub@5.9
         machines
         machines milan-2x64"
    );
    for line in commands.lines() {
        assert_fits(line, &files);
    }
}
