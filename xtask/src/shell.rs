//! Paths of the workspace, and runs of other programs.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Result of a step that may not apply to this machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The check ran and held.
    Done,
    /// The check could not run here, and why.
    Skipped(String),
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run`; the compiled-in value serves a binary started by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// The directory cargo builds into.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Cargo's own folder: `CARGO_HOME`, or `.cargo` below `HOME`.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// `cargo` at the root of the workspace.
pub(crate) fn cargo() -> Command {
    at_root(Command::new(
        env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
    ))
}

fn at_root(mut command: Command) -> Command {
    command.current_dir(root());
    // What cargo told this process about xtask itself must not reach the crates built from here.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_PKG_NAME",
        "CARGO_PKG_VERSION",
    ] {
        command.env_remove(name);
    }
    command
}

/// Prints the command, runs it and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("+ {}", display(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", display(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", display(command));
    }
    Ok(())
}

/// Runs the command and returns its standard output; its standard error goes to ours.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", display(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", display(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Looks a program up in `PATH`.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The command as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let environment = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.to_string_lossy(), quote(value)))
    });
    // A program by its name: where it is installed says nothing.
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(program)
        .chain(command.get_args())
        .map(quote);
    environment.chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains('\'') {
        format!("\"{word}\"")
    } else if word.is_empty() || word.contains([' ', '"', '$', '*']) {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/some/where/tool");
        command
            .args(["-k", "a b", "", "c ''"])
            .env("NAME", "x y")
            .env_remove("GONE");
        assert_eq!(display(&command), "NAME='x y' tool -k 'a b' '' \"c ''\"");
    }

    #[test]
    fn failure_and_absence_are_errors() {
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
        assert_eq!(find_tool("no-such-program-here"), None);
    }
}
