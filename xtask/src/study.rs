//! Studies: pages with plots that answer questions of users by replays of the bundled recordings.

mod page;
mod plot;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use quarry_machines::{Draw, Machine};
use quarry_sim::Rng;
use serde::Deserialize;

use crate::shell;

/// Options of `study`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The study.
    #[arg(value_enum)]
    study: Study,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Study {
    /// Effects of the capacity of sheaves and of the barns' limits.
    SheafCapacity,
}

/// The machine, whose CPUs the copies fill.
const MACHINE: &str = "milan-2x64";
/// The recordings, each of two CPUs, and a window in which they allocate and free: seconds from the beginning. About 25,000
/// events of each are replayed.
const TRACES: [(&str, [&str; 2]); 2] =
    [("hackbench", ["0.1", "0.13"]), ("tbench", ["0.45", "0.53"])];
/// Copies of a recording: 2, 16, 64 and 128 CPUs.
const COPIES: [u32; 4] = [1, 8, 32, 64];
const CAPACITIES: [u32; 6] = [4, 8, 16, 32, 64, 128];
/// Full and empty sheaves that a node keeps, each; a kernel keeps 10.
const BARNS: [u32; 4] = [0, 5, 20, 40];
/// Chance alone, with the machine's constants as their values say.
const SEEDS: [u32; 2] = [1, 2];
/// The machine's constants anywhere in their ranges, each time with a seed of its own.
const DRAWS: u32 = 6;
/// With the kernel's own capacities and limits.
const SHEAVES: &str = "sheaf@7.0";
const SLUB: &str = "slub@6.17";

/// CPUs of some copies.
fn cpus(copies: u32) -> u32 {
    copies * 2
}

/// Allocator of a replay, and its tunables.
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
    arm: Arm,
}

/// Source of chance in a replay of one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Seed(u32),
    Draw(u32),
}

impl Arm {
    fn all() -> impl Iterator<Item = Arm> {
        let draws = (1..=DRAWS).map(Arm::Draw);
        SEEDS.into_iter().map(Arm::Seed).chain(draws)
    }

    fn seed(self) -> u32 {
        match self {
            Self::Seed(number) | Self::Draw(number) => number,
        }
    }
}

/// Figures of one replay, from the JSON of `quarry replay --time`.
#[derive(Debug, Deserialize)]
struct Found {
    operation_ns: f64,
    peak_slab_bytes: u64,
    paths: Paths,
    causes: Causes,
}

#[derive(Debug, Deserialize)]
struct Paths {
    hit: Share,
    miss: Share,
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

    /// Share of operations that missed the CPU's own list or main sheaf.
    fn misses(&self) -> f64 {
        let Paths { hit, miss, pages } = &self.paths;
        let misses = (miss.count + pages.count) as f64;
        misses / (hit.count as f64 + misses)
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

/// A figure of a setting.
#[derive(Debug)]
struct Figure {
    /// The mean of the seeds.
    mean: f64,
    /// The least and the most of the seeds and the draws.
    low: f64,
    high: f64,
    /// One value for each draw.
    draws: Vec<f64>,
}

/// All replays with what they found.
struct Results(Vec<(Replay, Found)>);

impl Results {
    fn figure(
        &self,
        trace: &str,
        copies: u32,
        setting: Setting,
        of: impl Fn(&Found) -> f64,
    ) -> Figure {
        let (mut seeds, mut draws) = (Vec::new(), Vec::new());
        for (replay, found) in &self.0 {
            if (replay.trace, replay.copies, replay.setting) == (trace, copies, setting) {
                match replay.arm {
                    Arm::Seed(_) => seeds.push(of(found)),
                    Arm::Draw(_) => draws.push(of(found)),
                }
            }
        }
        let all = || seeds.iter().chain(&draws).copied();
        Figure {
            mean: seeds.iter().sum::<f64>() / seeds.len().max(1) as f64,
            low: all().fold(f64::MAX, f64::min),
            high: all().fold(0.0, f64::max),
            draws,
        }
    }

    /// Nanoseconds an operation.
    fn ns(&self, trace: &str, copies: u32, setting: Setting) -> Figure {
        self.figure(trace, copies, setting, |found| found.operation_ns)
    }
}

/// Runs a study and writes its page.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Study::SheafCapacity = options.study;
    shell::run(shell::cargo().args(["build", "--release", "--quiet", "-p", "kquarry-cli"]))?;
    let quarry = shell::target_dir().join("release").join("quarry");
    let folder = shell::target_dir().join("study");
    std::fs::create_dir_all(&folder)?;
    for (trace, window) in TRACES {
        cut(&quarry, &folder, trace, window)?;
    }
    draw_machines(&folder)?;
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

/// Cuts a window out of a recording.
fn cut(quarry: &Path, folder: &Path, trace: &str, [from, until]: [&str; 2]) -> Result<()> {
    let part = folder.join(format!("{trace}.parquet"));
    let mut command = Command::new(quarry);
    command.args(["filter", trace, "--from", &format!("+{from}")]);
    command.args(["--until", &format!("+{until}"), "-o"]);
    shell::run(command.arg(part))
}

/// The file of a draw's machine.
fn drawn(folder: &Path, draw: u32) -> PathBuf {
    folder.join(format!("{MACHINE}-{draw}.toml"))
}

fn draw_machines(folder: &Path) -> Result<()> {
    let machine = Machine::bundled(MACHINE)?;
    let mut rng = Rng::new(1);
    for number in 1..=DRAWS {
        let texts = std::iter::repeat_with(|| {
            let drawn = machine.clone().drawn(&Draw::random(&mut rng));
            drawn.to_text()
        });
        // In some draws a far line is cheaper than a near one, which no machine is.
        let text = texts
            .take(1000)
            .find(|text| Machine::parse(MACHINE, text).is_ok());
        let text = text.context("no draw of 1000 is a machine")?;
        std::fs::write(drawn(folder, number), text)?;
    }
    Ok(())
}

fn replays() -> Vec<Replay> {
    let mut settings = vec![Setting::Slub, Setting::Kernel];
    settings.extend(CAPACITIES.map(Setting::Capacity));
    settings.extend(BARNS.map(Setting::Barn));
    let mut all = Vec::new();
    for (trace, _) in TRACES {
        for copies in COPIES {
            for &setting in &settings {
                all.extend(Arm::all().map(|arm| Replay {
                    trace,
                    copies,
                    setting,
                    arm,
                }));
            }
        }
    }
    all
}

/// The recordings' replays, side by side: a replay has one thread.
fn replay_all(quarry: &Path, folder: &Path) -> Result<Results> {
    let all = replays();
    let of = |trace| all.iter().filter(move |replay| replay.trace == trace);
    std::thread::scope(|scope| {
        let threads = TRACES.map(|(trace, _)| {
            scope.spawn(move || -> Result<Vec<(Replay, Found)>> {
                let count = of(trace).count();
                let found = of(trace).enumerate().map(|(at, replay)| {
                    if at.is_multiple_of(50) {
                        println!("{trace}: {at} of {count} replays");
                    }
                    Ok((*replay, replay_one(quarry, folder, replay)?))
                });
                found.collect()
            })
        });
        let mut results = Vec::new();
        for thread in threads {
            let found = thread.join();
            results.extend(found.map_err(|_| anyhow!("a thread of the study panicked"))??);
        }
        Ok(Results(results))
    })
}

fn replay_one(quarry: &Path, folder: &Path, replay: &Replay) -> Result<Found> {
    let mut command = Command::new(quarry);
    command.arg("replay");
    command.arg(folder.join(format!("{}.parquet", replay.trace)));
    command.args(["--time", "--pace", "full", "--json", "-j", "1"]);
    match replay.arm {
        Arm::Seed(_) => command.args(["--machine", MACHINE]),
        Arm::Draw(number) => command.arg("--machine").arg(drawn(folder, number)),
    };
    command.args(["--copies", &replay.copies.to_string()]);
    command.args(["--seed", &replay.arm.seed().to_string()]);
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
