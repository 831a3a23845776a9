//! The command `quarry`, which the wheel has inside.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the command with these arguments, its name first, and ends the process with its exit code. `file` is
/// the library with this code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>, file: PathBuf) {
    let code = py.detach(|| quarry_cli::run(arguments, Some(file)));
    // Here and not in Python, which would first end threads and modules that the command does not need.
    std::process::exit(code.into());
}
