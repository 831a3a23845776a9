//! `cargo xtask accounting`: what memory accounting costs an allocation and a free, in instructions.
//!
//! One small program is built twice, as it is and with `--cfg quarry_no_accounting`, and counted by
//! callgrind at two numbers of iterations; the difference leaves out the start of the process.
//! Under callgrind the kernel's restartable sequences are not available, so what is counted is the
//! path without them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::shell::{self, Outcome};

const EXAMPLE: &str = "pair_count";
/// Designs, and the calls that a pair is of: a cache's, or kmalloc and kfree.
const PAIRS: [(&str, &str); 8] = [
    ("slab", "cache"),
    ("slub", "cache"),
    ("slubq", "cache"),
    ("sheaf", "cache"),
    ("magazine", "cache"),
    ("slub", "kmalloc"),
    ("sheaf", "kmalloc"),
    ("magazine", "kmalloc"),
];
/// The builds that are compared: name and compiler flags.
const BUILDS: [(&str, &str); 2] = [
    ("accounting", ""),
    ("no-accounting", "--cfg quarry_no_accounting"),
];
/// Start-up may differ by a few instructions in all; a cost would show in every one of the pairs.
const TOLERANCE: f64 = 0.005;

/// Options of `accounting`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pairs in the shorter run.
    #[arg(long, default_value_t = Self::default().pairs_min)]
    pairs_min: u64,
    /// Pairs in the longer run.
    #[arg(long, default_value_t = Self::default().pairs_max)]
    pairs_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pairs_min: 10_000,
            pairs_max: 40_000,
        }
    }
}

/// Instructions per pair of one design, in the order of [`BUILDS`].
#[derive(Debug)]
struct Row {
    design: &'static str,
    of: &'static str,
    per_pair: [f64; 2],
}

/// Runs the check; not being able to is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    match check(options)? {
        Outcome::Done => Ok(()),
        Outcome::Skipped(reason) => bail!("{reason}"),
    }
}

/// Runs the check where valgrind is installed.
pub(crate) fn check(options: &Options) -> Result<Outcome> {
    if options.pairs_min >= options.pairs_max {
        bail!("--pairs-min has to be smaller than --pairs-max");
    }
    if shell::find_tool("valgrind").is_none() {
        return Ok(Outcome::Skipped(
            "valgrind is not installed: `apt-get install valgrind`".to_owned(),
        ));
    }
    // Each build, and each program, has work for one processor.
    let [with, without] = both(BUILDS, |(name, flags)| {
        let program = build(name, flags)?;
        let counts = PAIRS.map(|(design, of)| per_pair(&program, design, of, options));
        counts.into_iter().collect::<Result<Vec<f64>>>()
    })?;
    let rows: Vec<Row> = PAIRS
        .into_iter()
        .zip(with.into_iter().zip(without))
        .map(|((design, of), (with, without))| Row {
            design,
            of,
            per_pair: [with, without],
        })
        .collect();
    println!("{}", table(&rows));
    compare(&rows)?;
    Ok(Outcome::Done)
}

/// Does the same with two values at once.
fn both<T: Send, R: Send>(values: [T; 2], work: impl Fn(T) -> Result<R> + Sync) -> Result<[R; 2]> {
    let [first, second] = values;
    std::thread::scope(|scope| {
        let second = scope.spawn(|| work(second));
        let first = work(first)?;
        let second = second.join().map_err(|_| anyhow!("a build panicked"))?;
        Ok([first, second?])
    })
}

fn build(name: &str, flags: &str) -> Result<PathBuf> {
    let directory = shell::target_dir().join(name);
    let mut cargo = shell::cargo();
    cargo
        .env("RUSTFLAGS", flags)
        // With several units a change anywhere moves functions between them, and registers with them: an instruction
        // more or less says nothing then.
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_TARGET_DIR", &directory);
    shell::run(cargo.args([
        "build",
        "--release",
        "-p",
        "kquarry-host",
        "--example",
        EXAMPLE,
    ]))?;
    Ok(directory.join("release/examples").join(EXAMPLE))
}

fn per_pair(program: &Path, design: &str, of: &str, options: &Options) -> Result<f64> {
    let short = count(program, design, of, options.pairs_min)?;
    let long = count(program, design, of, options.pairs_max)?;
    let more = long
        .checked_sub(short)
        .context("the longer run executed fewer instructions")?;
    Ok(more as f64 / (options.pairs_max - options.pairs_min) as f64)
}

fn count(program: &Path, design: &str, of: &str, pairs: u64) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind
        .arg(program)
        .args([design, &pairs.to_string(), of])
        .stdin(Stdio::null());
    let output = valgrind.output().context("cannot start valgrind")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!(
            "{} ended with {}:\n{errors}",
            shell::display(&valgrind),
            output.status
        );
    }
    collected(&errors).with_context(|| format!("callgrind printed no count:\n{errors}"))
}

/// Reads `==123== Collected : 456`.
fn collected(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<8} {:<8} {:>16} {:>16}  instructions per pair",
        "design", "of", BUILDS[0].0, BUILDS[1].0
    );
    for row in rows {
        text += &format!(
            "\n{:<8} {:<8} {:>16.3} {:>16.3}",
            row.design, row.of, row.per_pair[0], row.per_pair[1]
        );
    }
    text
}

fn compare(rows: &[Row]) -> Result<()> {
    for Row {
        design,
        of,
        per_pair: [with, without],
    } in rows
    {
        // The compiler places blocks by what it sees before the calls vanish, so the build without
        // accounting may be the longer one.
        if with - without > TOLERANCE {
            bail!(
                "accounting adds to what a pair of {design}'s {of} costs: {with:.3} instructions, {without:.3} without"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        assert_eq!(
            collected("==7== Events    : Ir\n==7== Collected : 1234567\n"),
            Some(1_234_567)
        );
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }

    #[test]
    fn one_instruction_in_any_pair_fails() {
        let row = |with, without| Row {
            design: "slub",
            of: "cache",
            per_pair: [with, without],
        };
        assert!(compare(&[row(61.0, 61.001), row(70.0, 70.0)]).is_ok());
        assert!(compare(&[row(61.0, 61.0), row(71.0, 70.0)]).is_err());
        assert!(compare(&[row(70.01, 70.0)]).is_err());
        assert!(compare(&[row(302.0, 303.0)]).is_ok());
    }
}
