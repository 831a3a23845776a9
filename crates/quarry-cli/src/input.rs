//! `-` for an input: stdin.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use quarry_lab::LabError;
use quarry_lab::ask::Source;
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
pub(crate) fn trace(name: impl AsRef<OsStr>) -> anyhow::Result<Input> {
    let name = name.as_ref();
    match name.to_str() {
        Some("-") => {}
        Some(name) => return Ok(Input::open(name)?),
        // No bundled trace has such a name.
        None => return Ok(Input::new(TraceFile::open(name)?, &name.to_string_lossy())),
    }
    from_spool(&spool()?)
}

/// Copies stdin to a temporary file.
fn spool() -> anyhow::Result<File> {
    let mut spool = tempfile::tempfile().context("cannot make a temporary file for stdin")?;
    io::copy(&mut io::stdin().lock(), &mut spool)
        .context("cannot copy stdin to a temporary file; TMPDIR says where it is")?;
    Ok(spool)
}

/// Opens the trace that came from stdin. It has a descriptor of its own then.
fn from_spool(spool: &File) -> anyhow::Result<Input> {
    let file = TraceFile::open(by_number(spool)).context("stdin holds no trace")?;
    Ok(Input::new(file, "<stdin>"))
}

/// Opens what a file or stdin is: a trace or snapshots, as [`Source::open`] does. Bundled names are traces.
pub(crate) fn source(name: &OsStr, stage: Option<&str>) -> anyhow::Result<Source> {
    if name != "-" {
        return Ok(Source::open(name, stage)?);
    }
    let spool = spool()?;
    if spool.metadata().is_ok_and(|spool| spool.len() == 0) {
        return Err(anyhow!(
            "<stdin>: it is empty: the command before `|` printed nothing"
        ));
    }
    let path = by_number(&spool);
    if stage.is_none() && !Source::is_snapshot(Path::new(&path)) {
        return Ok(Source::Trace(Box::new(from_spool(&spool)?)));
    }
    let shown = shown(Path::new(name));
    let opened = Source::open(path.as_ref(), stage);
    let named = |error: LabError| match (&error, error.to_string().replacen(&path, &shown, 1)) {
        (LabError::Usage(_), text) => usage(text),
        (_, text) => anyhow!(text),
    };
    match opened.map_err(named)? {
        Source::Snapshots(mut moments) => {
            for moment in &mut moments {
                moment.file.clone_from(&shown);
            }
            Ok(Source::Snapshots(moments))
        }
        trace => Ok(trace),
    }
}

/// Path of an open file that has no name.
fn by_number(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
