//! `cargo xtask aarch64`: is the aarch64 restartable sequence at least valid machine code?
//!
//! The best evidence at hand is used: a build of the crate for that target where its libraries are
//! installed, else an assembler for the checked-in listing, else the assembler inside the compiler
//! itself.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::{self, Outcome};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LISTING: &str = "crates/quarry-host/asm/aarch64.s";
/// Assemblers for aarch64: program and arguments before the output and the input.
const ASSEMBLERS: [(&str, &[&str]); 4] = [
    ("aarch64-linux-gnu-as", &["-o"]),
    ("clang", &["--target=aarch64-linux-gnu", "-c", "-o"]),
    (
        "llvm-mc",
        &["--triple=aarch64-linux-gnu", "--filetype=obj", "-o"],
    ),
    (
        "llvm-mc-14",
        &["--triple=aarch64-linux-gnu", "--filetype=obj", "-o"],
    ),
];

/// Checks the sequence in the first way that works here.
pub(crate) fn run() -> Result<Outcome> {
    if target_is_installed()? {
        let mut cargo = shell::cargo();
        shell::run(cargo.args(["build", "-p", "kquarry-host", "--lib", "--target", TARGET]))?;
        return Ok(Outcome::Done);
    }
    let listing = shell::root().join(LISTING);
    if !listing.is_file() {
        return Ok(Outcome::Skipped(format!(
            "neither {LISTING} nor the {TARGET} libraries are there: `rustup target add {TARGET}`"
        )));
    }
    let directory = shell::target_dir().join("aarch64");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    for (name, arguments) in ASSEMBLERS {
        if shell::find_tool(name).is_some() {
            let mut assembler = Command::new(name);
            shell::run(
                assembler
                    .args(arguments)
                    .arg(directory.join("aarch64.o"))
                    .arg(&listing),
            )?;
            return Ok(Outcome::Done);
        }
    }
    with_the_compiler(&listing, &directory)
}

/// Runs the tests of the sequence and of the machine on an emulated processor.
///
/// The emulator's kernel interface has no restartable sequences, so machines there use the fallback. The sequence itself
/// runs in the tests that give it an area of their own.
pub(crate) fn emulated() -> Result<Outcome> {
    const EMULATOR: &str = "qemu-aarch64";
    const LINKER: &str = "aarch64-linux-gnu-gcc";
    let tools = [EMULATOR, LINKER].map(shell::find_tool);
    if !target_is_installed()? || tools.iter().any(Option::is_none) {
        return Ok(Outcome::Skipped(format!(
            "it takes `rustup target add {TARGET}` and `apt-get install qemu-user gcc-aarch64-linux-gnu`"
        )));
    }
    let runner = format!("{EMULATOR} -L /usr/aarch64-linux-gnu");
    let mut cargo = shell::cargo();
    cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner)
        .args(["test", "-p", "kquarry-host", "--target", TARGET])
        .args(["--lib", "--test", "machine"]);
    // One starts its own program anew, without the emulator; one reads flags of mappings that the emulator does not have.
    let skipped = ["the_environment_switches", "descriptors_have_huge_pages"];
    shell::run(cargo.args(["--", "--skip", skipped[0], "--skip", skipped[1]]))?;
    Ok(Outcome::Done)
}

fn target_is_installed() -> Result<bool> {
    let mut rustc = Command::new("rustc");
    let directory = shell::output(rustc.args(["--print", "target-libdir", "--target", TARGET]))?;
    let Ok(entries) = fs::read_dir(directory.trim()) else {
        return Ok(false);
    };
    Ok(entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-")))
}

/// A crate without even `core`, which therefore compiles for a target with no libraries.
const FREESTANDING: &str = "#![feature(no_core, lang_items, rustc_attrs)]
#![allow(internal_features)]
#![no_core]
#[lang = \"pointee_sized\"]
trait PointeeSized {}
#[lang = \"meta_sized\"]
trait MetaSized: PointeeSized {}
#[lang = \"sized\"]
trait Sized: MetaSized {}
#[rustc_builtin_macro]
macro_rules! global_asm { () => {} }
#[rustc_builtin_macro]
macro_rules! include_str { () => {} }
";

/// The compiler's own back end assembles `global_asm!`. Which internal names such a crate needs
/// varies with the compiler, so an instruction that is surely valid goes first: if that fails,
/// nothing was learnt.
fn with_the_compiler(listing: &Path, directory: &Path) -> Result<Outcome> {
    let probe = directory.join("probe.s");
    fs::write(&probe, "nop\n").with_context(|| format!("cannot write {}", probe.display()))?;
    if assemble(&probe, directory)?.is_some() {
        return Ok(Outcome::Skipped(format!(
            "no assembler for aarch64: `rustup target add {TARGET}` or `apt-get install binutils-aarch64-linux-gnu`"
        )));
    }
    if let Some(errors) = assemble(listing, directory)? {
        bail!("{LISTING} does not assemble:\n{errors}");
    }
    println!("assembled {LISTING} with the compiler's own back end");
    Ok(Outcome::Done)
}

/// Returns what the compiler objected to.
fn assemble(listing: &Path, directory: &Path) -> Result<Option<String>> {
    let source = directory.join("freestanding.rs");
    let line = format!(
        "{FREESTANDING}global_asm!(include_str!({:?}), options(raw));\n",
        listing.display().to_string()
    );
    fs::write(&source, line).with_context(|| format!("cannot write {}", source.display()))?;
    let mut rustc = Command::new("rustc");
    rustc.env("RUSTC_BOOTSTRAP", "1").args([
        "--edition",
        "2021",
        "--crate-type",
        "lib",
        "--emit",
        "obj",
    ]);
    rustc.args(["-C", "panic=abort", "--target", TARGET]);
    rustc
        .arg("-o")
        .arg(directory.join("freestanding.o"))
        .arg(&source);
    let output = rustc
        .stdin(Stdio::null())
        .output()
        .context("cannot start rustc")?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_listing_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let good = write("good.s", "ldr x0, [x1, #8]\nstr x0, [x1]\n");
        // Another compiler may need other internal names; then this way is not taken, and says so.
        if let Some(errors) = assemble(&good, directory.path()).unwrap() {
            println!("skipped, the compiler refuses a crate without core:\n{errors}");
            return;
        }
        let wrong = write("wrong.s", "mov rax, [rbx]\n");
        assert!(assemble(&wrong, directory.path()).unwrap().is_some());
        assert!(with_the_compiler(&wrong, directory.path()).is_err());
        assert_eq!(
            with_the_compiler(&good, directory.path()).unwrap(),
            Outcome::Done
        );
    }
}
