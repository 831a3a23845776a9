//! `cargo xtask fuzz`: the targets of `fuzz/`, one after the other.

use anyhow::{Result, bail};

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

/// Options of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Minutes for all targets together.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// The targets; all of them otherwise.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
}

/// Runs the targets. An input that fails stays in `fuzz/artifacts`; it belongs into `fuzz/seeds`, which the tests
/// read, with the change that mends it.
pub(crate) fn run(options: &Options) -> Result<()> {
    if shell::find_tool("cargo-fuzz").is_none() {
        bail!(
            "cargo-fuzz is missing: `cargo install cargo-fuzz`, `rustup toolchain install nightly`"
        );
    }
    let all = TARGETS.map(str::to_owned);
    let targets: &[String] = match options.targets.is_empty() {
        true => &all,
        false => &options.targets,
    };
    let seconds = options.minutes * 60 / targets.len() as u32;
    for target in targets {
        std::fs::create_dir_all(shell::root().join("fuzz/corpus").join(target))?;
        let mut cargo = shell::cargo_of("nightly");
        // The address sanitizer sees nothing of objects inside the allocators' own memory, and takes most
        // of the time; wrong offsets are found by the checks of a debug build.
        cargo.args(["fuzz", "run", "--sanitizer", "none", target]);
        cargo.arg(format!("fuzz/corpus/{target}"));
        let folders = seeds::folders(target).into_iter();
        cargo.args(folders.filter(|folder| shell::root().join(folder).is_dir()));
        cargo.args(["--", TIMEOUT, "-print_final_stats=1"]);
        cargo.arg(format!("-max_total_time={seconds}"));
        shell::run(&mut cargo)?;
    }
    Ok(())
}
