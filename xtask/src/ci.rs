//! `cargo xtask ci`: every check, one after the other, each timed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::shell::{self, Outcome};
use crate::{aarch64, accounting, models, page, python, tidy};

/// Options of `ci`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out `cargo test --workspace` and the tests of the wheel, for a caller that runs them next.
    #[arg(long)]
    skip_tests: bool,
}

/// A check with the name its header shows.
type Step = (&'static str, fn() -> Result<Outcome>);

/// The checks, and what each of them alone would find. Cheap ones first; the tests last, so that their result ends the log.
const STEPS: [Step; 6] = [
    // Layout of the source.
    ("fmt", || cargo(&["fmt", "--all", "--check"])),
    // The rules of the project that no compiler knows.
    ("tidy", || tidy::run().map(|()| Outcome::Done)),
    // Errors, warnings and lints of every target.
    ("clippy", clippy),
    // Interleavings that threads rarely meet; its builds and its runs leave a processor idle. Beside it: broken links; what
    // crates.io would refuse; assembly that this machine does not run; instructions that accounting adds to an allocation.
    ("loom, doc, publish, aarch64 and accounting", || {
        side_by_side(
            || models::loom(&[]).map(|()| Outcome::Done),
            || {
                let accounting = || accounting::check(&accounting::Options::default());
                Ok(joined([doc()?, publish()?, aarch64::run()?, accounting()?]))
            },
        )
    }),
    // From here on the programs of `cargo test --workspace` are run; what is first builds them. A browser's view of pages,
    // and what they do when they are clicked. The wheel, and files that its source package lacks. The host's tests on the
    // path that is taken without restartable sequences; sockets of the kernel, and what this kernel says of itself.
    ("page, wheel, test-fallback and root", || {
        side_by_side(page::run, || {
            side_by_side(python::build, || {
                models::fallback()?;
                models::root()
            })
        })
    }),
    // Replays against what recorded kernels reported, on recordings too large for the repository.
    ("recordings", models::recordings),
];
/// Every test; beside them those of the wheel: results against the command's, stubs, notebooks.
const TESTS: Step = ("test and python", || {
    side_by_side(|| cargo(&["test", "--workspace"]), python::test)
});

/// Runs the steps; the first that fails ends the run. The last lines say what each took, also of a run that failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tests = (!options.skip_tests).then_some(&TESTS);
    let steps: Vec<&Step> = STEPS.iter().chain(tests).collect();
    let mut times = Vec::new();
    let result = run_steps(&steps, &mut times);
    println!("\nci: {}", times.join(", "));
    for line in result? {
        println!("ci: SKIPPED {line}");
    }
    Ok(())
}

/// Runs steps, and adds the name and the time of each; the result has those that were skipped.
fn run_steps(steps: &[&Step], times: &mut Vec<String>) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    for (index, (name, check)) in steps.iter().enumerate() {
        println!("\n==== {}/{} {name} ====", index + 1, steps.len());
        let start = Instant::now();
        let outcome = check();
        let time = seconds(start.elapsed());
        times.push(format!("{name} {time}"));
        match outcome.with_context(|| format!("step {name} failed after {time}"))? {
            Outcome::Done => println!("---- {name}: ok in {time}"),
            Outcome::Skipped(reason) => {
                println!("---- {name}: SKIPPED in {time}: {reason}");
                skipped.push(format!("{name}: {reason}"));
            }
        }
    }
    Ok(skipped)
}

/// Runs two checks at once; each leaves a processor idle for most of its time. What they print is mixed by lines.
fn side_by_side(one: fn() -> Result<Outcome>, other: fn() -> Result<Outcome>) -> Result<Outcome> {
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(other);
        (one(), other.join())
    });
    let other = other.map_err(|_| anyhow::anyhow!("the second check panicked"))?;
    Ok(joined([one?, other?]))
}

/// One outcome of several: it has what was skipped.
fn joined<const N: usize>(outcomes: [Outcome; N]) -> Outcome {
    let skipped = outcomes.into_iter().filter_map(|of| match of {
        Outcome::Done => None,
        Outcome::Skipped(reason) => Some(reason),
    });
    let skipped: Vec<String> = skipped.collect();
    match skipped.is_empty() {
        true => Outcome::Done,
        false => Outcome::Skipped(skipped.join("; ")),
    }
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    shell::run(shell::cargo().args(arguments))?;
    Ok(Outcome::Done)
}

/// Every target, benches too. Nothing is linked here, so that jemalloc, a peer of theirs, need not be compiled for a minute: any file
/// stands for its library.
fn clippy() -> Result<Outcome> {
    let mut cargo = shell::cargo();
    cargo.env("JEMALLOC_OVERRIDE", shell::root().join("Cargo.toml"));
    cargo.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]);
    shell::run(&mut cargo)?;
    Ok(Outcome::Done)
}

/// All pages with all features, as docs.rs has them.
fn doc() -> Result<Outcome> {
    let mut cargo = shell::cargo();
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    cargo.args(["doc", "--no-deps", "--workspace", "--all-features"]);
    shell::run(&mut cargo)?;
    Ok(Outcome::Done)
}

/// Asks cargo for what crates.io would refuse: files and versions that a package lacks. The packages are not compiled.
fn publish() -> Result<Outcome> {
    cargo(&[
        "publish",
        "--workspace",
        "--dry-run",
        "--no-verify",
        "--allow-dirty",
    ])
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Step = ("pass", || Ok(Outcome::Done));
    const SKIP: Step = ("skip", || {
        Ok(Outcome::Skipped("no such machine".to_owned()))
    });
    const FAIL: Step = ("fail", || anyhow::bail!("it does not hold"));
    const NEVER: Step = ("never", || panic!("a step ran after one that failed"));

    #[test]
    fn of_two_checks_the_one_that_fails_is_told() {
        let skipped = side_by_side(PASS.1, SKIP.1).unwrap();
        assert_eq!(skipped, Outcome::Skipped("no such machine".to_owned()));
        assert_eq!(side_by_side(PASS.1, PASS.1).unwrap(), Outcome::Done);
        for (one, other) in [(PASS.1, FAIL.1), (FAIL.1, PASS.1)] {
            let error = side_by_side(one, other).unwrap_err().to_string();
            assert_eq!(error, "it does not hold");
        }
    }

    #[test]
    fn skipped_steps_are_listed() {
        assert_eq!(
            run_steps(&[&PASS, &SKIP], &mut Vec::new()).unwrap(),
            ["skip: no such machine"]
        );
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let mut times = Vec::new();
        let failed = run_steps(&[&PASS, &FAIL, &NEVER], &mut times);
        let error = format!("{:#}", failed.unwrap_err());
        assert_eq!(times.len(), 2);
        assert!(
            error.starts_with("step fail failed") && error.ends_with("it does not hold"),
            "{error}"
        );
    }
}
