//! Studies: questions that users asked, answered by replays of the bundled recordings, as pages with plots.

mod page;
mod plot;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::shell;

/// What to study.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The study.
    #[arg(value_enum)]
    study: Study,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Study {
    /// What the capacity of sheaves and the limits of barns do.
    SheafCapacity,
}

/// The machine, whose CPUs the copies fill.
const MACHINE: &str = "milan-2x64";
/// The recordings, each of two CPUs, and how much of each: about 25,000 events from its beginning.
const TRACES: [(&str, &str); 2] = [("hackbench", "0.03"), ("tbench", "0.05")];
/// Copies of a recording: 2, 16, 64 and 128 CPUs.
const COPIES: [u32; 4] = [1, 8, 32, 64];
const CAPACITIES: [u32; 6] = [4, 8, 16, 32, 64, 128];
/// Full and empty sheaves that a node keeps, each; a kernel keeps 10.
const BARNS: [u32; 4] = [0, 5, 20, 40];
/// Chance alone: the spread of these seeds is each figure's band.
const SEEDS: [u32; 2] = [1, 2];
/// With the kernel's own capacities and limits.
const SHEAVES: &str = "sheaf@7.0";
const SLUB: &str = "slub@6.17";

/// What differs between two replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Slub,
    Kernel,
    Capacity(u32),
    Barn(u32),
}

/// A replay.
#[derive(Clone, Copy, Debug)]
struct Replay {
    trace: &'static str,
    copies: u32,
    setting: Setting,
    seed: u32,
}

/// What it found.
#[derive(Debug, Deserialize)]
struct Found {
    operation_ns: f64,
    peak_slab_bytes: u64,
    paths: Paths,
    causes: Causes,
}

#[derive(Debug, Deserialize)]
struct Paths {
    fast: Share,
    slow: Share,
    pages: Share,
}

#[derive(Debug, Deserialize)]
struct Share {
    count: u64,
}

#[derive(Debug, Deserialize)]
struct Causes {
    locks: Vec<Lock>,
    lines: Lines,
}

#[derive(Debug, Deserialize)]
struct Lock {
    class: String,
    wait_ns: f64,
}

#[derive(Debug, Deserialize)]
struct Lines {
    clean: [f64; 3],
    dirty: [f64; 3],
    upgrades: [f64; 3],
}

#[derive(Deserialize)]
struct Output {
    runs: Vec<Found>,
}

impl Found {
    fn wait_ns(&self, class: &str) -> f64 {
        let lock = self.causes.locks.iter().find(|lock| lock.class == class);
        lock.map_or(0.0, |lock| lock.wait_ns)
    }

    /// Share of operations that left the fast path.
    fn slow(&self) -> f64 {
        let Paths { fast, slow, pages } = &self.paths;
        let slow = (slow.count + pages.count) as f64;
        slow / (fast.count as f64 + slow)
    }

    /// Lines from other CPUs an operation.
    fn lines(&self) -> f64 {
        let Lines {
            clean,
            dirty,
            upgrades,
        } = &self.causes.lines;
        clean.iter().chain(dirty).chain(upgrades).sum()
    }
}

/// The mean of a figure over the seeds.
fn mean(found: &[&Found], figure: impl Fn(&Found) -> f64) -> f64 {
    let sum: f64 = found.iter().map(|found| figure(found)).sum();
    sum / found.len().max(1) as f64
}

/// All replays with what they found.
struct Results(Vec<(Replay, Found)>);

impl Results {
    /// The seeds' findings.
    fn of(&self, trace: &str, copies: u32, setting: Setting) -> Vec<&Found> {
        let wanted = |replay: &Replay| {
            (replay.trace, replay.copies, replay.setting) == (trace, copies, setting)
        };
        let all = self.0.iter().filter(|(replay, _)| wanted(replay));
        all.map(|(_, found)| found).collect()
    }
}

/// Runs a study and writes its page.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Study::SheafCapacity = options.study;
    shell::run(shell::cargo().args(["build", "--release", "--quiet", "-p", "quarry-cli"]))?;
    let quarry = shell::target_dir().join("release").join("quarry");
    let folder = shell::target_dir().join("study");
    std::fs::create_dir_all(&folder)?;
    for (trace, until) in TRACES {
        cut(&quarry, &folder, trace, until)?;
    }
    let results = replay_all(&quarry, &folder)?;
    let studies = shell::root().join("docs").join("studies");
    std::fs::create_dir_all(&studies)?;
    for (trace, _) in TRACES {
        let path = studies.join(format!("sheaf-capacity-{trace}.svg"));
        std::fs::write(&path, plot::capacities(trace, &results)?)?;
    }
    let path = studies.join("sheaf-capacity.md");
    std::fs::write(&path, page::text(&results))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// Cuts the beginning out of a recording.
fn cut(quarry: &Path, folder: &Path, trace: &str, until: &str) -> Result<()> {
    let part = folder.join(format!("{trace}.parquet"));
    let mut command = Command::new(quarry);
    command.args(["filter", trace, "--until", &format!("+{until}"), "-o"]);
    shell::run(command.arg(part))
}

fn replays() -> Vec<Replay> {
    let mut settings = vec![Setting::Slub, Setting::Kernel];
    settings.extend(CAPACITIES.map(Setting::Capacity));
    settings.extend(BARNS.map(Setting::Barn));
    let mut all = Vec::new();
    for (trace, _) in TRACES {
        for copies in COPIES {
            for &setting in &settings {
                all.extend(SEEDS.map(|seed| Replay {
                    trace,
                    copies,
                    setting,
                    seed,
                }));
            }
        }
    }
    all
}

fn replay_all(quarry: &Path, folder: &Path) -> Result<Results> {
    let replays = replays();
    let count = replays.len();
    let mut results = Vec::with_capacity(count);
    for (at, replay) in replays.into_iter().enumerate() {
        if at.is_multiple_of(50) {
            println!("{at} of {count} replays");
        }
        let found = replay_one(quarry, folder, &replay)?;
        results.push((replay, found));
    }
    Ok(Results(results))
}

fn replay_one(quarry: &Path, folder: &Path, replay: &Replay) -> Result<Found> {
    let mut command = Command::new(quarry);
    command.arg("replay");
    command.arg(folder.join(format!("{}.parquet", replay.trace)));
    command.args(["--time", "--pace", "full", "--json", "-j", "1"]);
    command.args(["--machine", MACHINE]);
    command.args(["--copies", &replay.copies.to_string()]);
    command.args(["--seed", &replay.seed.to_string()]);
    let design = match replay.setting {
        Setting::Slub => SLUB,
        _ => SHEAVES,
    };
    command.args(["--design", design]);
    match replay.setting {
        Setting::Slub | Setting::Kernel => {}
        Setting::Capacity(objects) => {
            command.args(["--set", &format!("sheaf.sheaf_capacity={objects}")]);
        }
        Setting::Barn(sheaves) => {
            command.args(["--set", &format!("sheaf.barn_full={sheaves}")]);
            command.args(["--set", &format!("sheaf.barn_empty={sheaves}")]);
        }
    }
    let text = shell::output(&mut command)?;
    let output: Output = serde_json::from_str(&text)
        .with_context(|| format!("what {} printed", shell::display(&command)))?;
    let found = output.runs.into_iter().next();
    found.with_context(|| format!("no run of {}", shell::display(&command)))
}
