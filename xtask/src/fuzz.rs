//! `cargo xtask fuzz`: the targets of `fuzz/`, one after the other.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

#[allow(unreachable_pub, reason = "a library elsewhere")]
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;

/// The targets, in the order of their turns.
const TARGETS: [&str; 6] = [
    "import", "parquet", "snapshot", "zoneinfo", "settings", "script",
];
/// One input may take this long, in seconds: what takes longer is a finding.
const TIMEOUT: &str = "-timeout=20";
/// Counters of edges, by which libFuzzer finds new inputs. The address sanitizer sees nothing of objects inside the allocators'
/// own memory, and takes most of the time; wrong offsets are found by the checks of a debug build.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table";
/// Seconds of each target, usually.
const SECONDS: u32 = 60;
/// Named, so that build scripts and macros have no counters.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Options of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds of each target.
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The targets; all of them otherwise.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
}

impl Default for Options {
    /// As the command without options.
    fn default() -> Self {
        Self {
            seconds: SECONDS,
            targets: Vec::new(),
        }
    }
}

/// Runs the targets. An input that fails stays in `fuzz/artifacts`; it belongs into `fuzz/seeds`, which the tests
/// read, with the change that mends it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = TARGETS.map(str::to_owned);
    let targets: &[String] = match options.targets.is_empty() {
        true => &all,
        false => &options.targets,
    };
    let (root, programs) = (shell::root(), shell::target_dir().join("fuzz"));
    let mut cargo = shell::cargo();
    cargo.args(["build", "--bins", "--target", TRIPLE, "--manifest-path"]);
    cargo.arg(root.join("fuzz/Cargo.toml"));
    cargo
        .env("RUSTFLAGS", COUNTERS)
        .env("CARGO_TARGET_DIR", &programs);
    shell::run(&mut cargo)?;
    let programs = std::path::absolute(programs.join(TRIPLE).join("debug"))?;
    for target in targets {
        let [corpus, artifacts] =
            ["corpus", "artifacts"].map(|kind| format!("fuzz/{kind}/{target}/"));
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("no folder {folder}"))?;
        }
        let mut fuzz = Command::new(programs.join(target));
        fuzz.current_dir(&root).arg(corpus);
        let folders = seeds::folders(target).into_iter();
        fuzz.args(folders.filter(|folder| root.join(folder).is_dir()));
        fuzz.args([TIMEOUT, "-verbosity=0", "-print_final_stats=1"]);
        fuzz.arg(format!("-artifact_prefix={artifacts}"));
        fuzz.arg(format!("-max_total_time={}", options.seconds));
        shell::run(&mut fuzz)?;
    }
    Ok(())
}
