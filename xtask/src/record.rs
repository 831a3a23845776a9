//! `cargo xtask record`: the allocation events of this machine's kernel while a workload runs.
//!
//! `perf record` starts this program again as its workload (`record-workload NAME`), so that a
//! server, its clients and their end are all inside the recording. The text that `perf script`
//! makes of it is kept, compressed, with a sidecar that says what was recorded, and then handed to
//! `quarry import`.

mod lists;
mod perf;
mod text;
mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::machine::{self, Machine};
use crate::shell;
use workload::Workload;

/// Options of `record`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The workload to record, or all of them.
    #[arg(value_parser = parse_names)]
    name: Names,
    /// Where the raw text and the sidecar go (default: recordings in the target directory).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Buffer of each CPU and event in MiB, a power of two.
    #[arg(long, default_value_t = 128)]
    buffer_mib: u32,
    /// Stop at the raw text.
    #[arg(long)]
    no_import: bool,
}

/// Options of the hidden half of `record`.
#[derive(clap::Args)]
pub(crate) struct WorkloadOptions {
    name: String,
    /// An empty directory for the workload's own files.
    #[arg(long)]
    dir: PathBuf,
}

#[derive(Clone)]
struct Names(Vec<&'static Workload>);

fn parse_names(name: &str) -> Result<Names, String> {
    if name == "all" {
        return Ok(Names(workload::ALL.iter().collect()));
    }
    workload::find(name)
        .map(|one| Names(vec![one]))
        .ok_or_else(|| {
            let known: Vec<_> = workload::ALL.iter().map(|one| one.name).collect();
            format!("known are all, {}", known.join(", "))
        })
}

/// What is known about one recording; written beside its text as JSON.
#[derive(Serialize)]
struct Sidecar<'a> {
    name: &'a str,
    date: String,
    machine: Machine,
    /// The workload as one would type it; a server's line comes first.
    command: String,
    tools: Vec<String>,
    perf: String,
    recorded_with: String,
    clock: &'static str,
    events_lost: u64,
    events_total: u64,
    events: BTreeMap<String, u64>,
    /// The programs that caused most events.
    programs: Vec<(String, u64)>,
    duration_ms: u64,
    /// Between the per-CPU page lists and the zones, from the zoneinfo before the workload to that
    /// after it.
    page_lists: lists::Traffic,
    text: String,
    text_bytes: u64,
}

/// Records every workload asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    perf::check_root()?;
    let events = perf::available_events()?;
    for workload in &options.name.0 {
        workload.check_tools()?;
    }
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| shell::target_dir().join("recordings"));
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    for workload in &options.name.0 {
        record(workload, &events, &out, options)?;
    }
    Ok(())
}

/// Runs a workload; `perf record` calls this.
pub(crate) fn run_workload(options: &WorkloadOptions) -> Result<()> {
    let workload =
        workload::find(&options.name).with_context(|| format!("no workload {}", options.name))?;
    workload.prepare()?;
    lists::report(&options.dir, "before")?;
    workload.run(&options.dir)?;
    lists::report(&options.dir, "after")
}

fn record(workload: &Workload, events: &[String], out: &Path, options: &Options) -> Result<()> {
    println!("== record {} ==", workload.name);
    let data = out.join(format!("{}.perf.data", workload.name));
    let dir = out.join(format!("{}.dir", workload.name));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let recorded_with = perf::record(workload.name, events, options.buffer_mib, &dir, &data)?;
    let traffic = lists::collect(&dir, out, workload.name)?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;

    let lost = perf::lost_events(&data)?;
    let path = out.join(format!("{}.kmem.txt.gz", workload.name));
    let summary = text::write(&mut perf::script(&data), &path, traffic)?;
    let sidecar = Sidecar {
        name: workload.name,
        date: machine::date()?,
        machine: Machine::read()?,
        command: workload.command_line(),
        tools: workload.tool_versions()?,
        perf: perf::version()?,
        recorded_with,
        clock: perf::CLOCK,
        events_lost: lost,
        events_total: summary.events.values().sum(),
        programs: summary.top_programs(12),
        events: summary.events,
        duration_ms: summary.duration_ns / 1_000_000,
        page_lists: summary.traffic,
        text: file_name(&path),
        text_bytes: fs::metadata(&path)?.len(),
    };
    let json = out.join(format!("{}.json", workload.name));
    fs::write(&json, serde_json::to_string_pretty(&sidecar)? + "\n")
        .with_context(|| format!("cannot write {}", json.display()))?;
    fs::remove_file(&data).with_context(|| format!("cannot remove {}", data.display()))?;
    println!(
        "{}: {} events in {} ms, {} lost, {} bytes of text",
        workload.name, sidecar.events_total, sidecar.duration_ms, lost, sidecar.text_bytes
    );
    if lost > 0 {
        bail!("{lost} events were lost: record again with a larger --buffer-mib");
    }
    if options.no_import {
        return Ok(());
    }
    let traces = shell::root().join("traces");
    fs::create_dir_all(&traces).with_context(|| format!("cannot create {}", traces.display()))?;
    import(&sidecar, &path)?;
    let kept = traces.join(file_name(&json));
    fs::copy(&json, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
    for report in lists::report_names(workload.name) {
        let kept = traces.join(&report);
        fs::copy(out.join(&report), &kept)
            .with_context(|| format!("cannot write {}", kept.display()))?;
    }
    println!("traces/README.md has to say the same: `cargo xtask tidy` checks it");
    Ok(())
}

/// Hands the text to `quarry import`.
fn import(sidecar: &Sidecar<'_>, text: &Path) -> Result<()> {
    let text = fs::canonicalize(text).with_context(|| format!("cannot find {}", text.display()))?;
    let mut cargo = shell::cargo();
    cargo
        .args([
            "run",
            "--release",
            "--quiet",
            "-p",
            "quarry-cli",
            "--",
            "import",
        ])
        .arg(text);
    cargo
        .arg("-o")
        .arg(format!("traces/{}.parquet", sidecar.name));
    cargo.args(["--kernel", &sidecar.machine.kernel]);
    cargo.args(["--page-size", &sidecar.machine.page_size_bytes.to_string()]);
    cargo.args(["--cpus", &sidecar.machine.cpus.to_string()]);
    cargo.args(["--command", &sidecar.command]);
    cargo.args(["--lost", &sidecar.events_lost.to_string()]);
    shell::run(&mut cargo)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
