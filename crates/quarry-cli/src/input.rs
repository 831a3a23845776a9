//! `-` for an input: stdin.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use quarry_lab::replay::input::Input;
use quarry_trace::TraceFile;

use crate::error::usage;

/// Name of a file in errors and outputs.
pub(crate) fn shown(path: &Path) -> String {
    match path == Path::new("-") {
        true => "<stdin>".to_string(),
        false => path.display().to_string(),
    }
}

/// The path to read a report from: that of stdin for `-`.
pub(crate) fn report(path: &Path) -> PathBuf {
    match path == Path::new("-") {
        true => PathBuf::from("/dev/stdin"),
        false => path.to_path_buf(),
    }
}

/// Refuses more than one `-` among the inputs of a command, each with the name of its option.
pub(crate) fn check_one_stdin(inputs: &[(&str, Option<&Path>)]) -> anyhow::Result<()> {
    let stdin = |(_, path): &&(&str, Option<&Path>)| *path == Some(Path::new("-"));
    let names: Vec<&str> = inputs.iter().filter(stdin).map(|(name, _)| *name).collect();
    match names.as_slice() {
        [first, second, ..] => Err(usage(format!(
            "{first} and {second} are both `-`; stdin is one file"
        ))),
        _ => Ok(()),
    }
}

/// Opens a trace by its file, its bundled name, or from stdin for `-`. Parquet is read from its end, so
/// stdin goes to a temporary file without a name, which ends with the process.
pub(crate) fn trace(name: &str) -> anyhow::Result<Input> {
    if name != "-" {
        return Ok(Input::open(name)?);
    }
    let mut spool = tempfile::tempfile().context("cannot make a temporary file for stdin")?;
    io::copy(&mut io::stdin().lock(), &mut spool)
        .context("cannot copy stdin to a temporary file; TMPDIR says where it is")?;
    let file = open_again(&spool).context("stdin holds no trace")?;
    Ok(Input::new(file, "<stdin>"))
}

/// Opens a file that has no name by its number; the trace has a descriptor of its own then.
fn open_again(file: &File) -> quarry_trace::Result<TraceFile> {
    TraceFile::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
