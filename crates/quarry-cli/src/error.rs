//! Errors to exit codes: 0 done, 1 failed, 2 wrong usage, 3 memory of a virtual machine or room for results exhausted.

use std::fmt;
use std::io;

use quarry_lab::fault::{Fault, message, own_fault};
use quarry_sweep::SweepError;

use crate::terminal::visible;

/// An error with an exit code of its own.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Nothing more is known than that it failed.
const FAILED: u8 = 1;
/// Wrong usage: exit code 2.
const USAGE: u8 = 2;
/// A virtual machine had too little memory for the load, or a disk too little room for rows.
const EXHAUSTED: u8 = 3;

/// An error of wrong usage.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    let message = message.into();
    Failure {
        code: USAGE,
        message,
    }
    .into()
}

/// Memory was exhausted, and the results that were printed say so.
pub(crate) fn exhausted(message: String) -> anyhow::Error {
    with_code(EXHAUSTED, message)
}

/// The error of a command whose exit code for exhausted memory means something else.
pub(crate) fn not_exhausted(error: anyhow::Error) -> anyhow::Error {
    match error.chain().find_map(code) {
        Some(EXHAUSTED) => with_code(FAILED, message(error.as_ref())),
        _ => error,
    }
}

/// An end with an exit code that a command documents.
pub(crate) fn with_code(code: u8, message: String) -> anyhow::Error {
    Failure { code, message }.into()
}

/// The command was interrupted, and has printed what there is: the exit code that shells give.
pub(crate) fn interrupted(message: String) -> anyhow::Error {
    with_code(130, message)
}

/// The command that was run has failed.
pub(crate) fn of_command(program: &str, code: u8) -> anyhow::Error {
    let message = format!("{program:?} ended with exit code {code}; the recording is complete");
    with_code(code, message)
}

/// The exit code of a cause that has one.
fn code(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(failure.code);
    }
    let of_sweep = cause.downcast_ref().and_then(SweepError::fault);
    match of_sweep.or_else(|| own_fault(cause))? {
        Fault::Usage => Some(USAGE),
        Fault::Exhausted => Some(EXHAUSTED),
        Fault::Stopped | Fault::Defect | Fault::Input => Some(FAILED),
    }
}

/// Tells an error on stderr and picks the exit code. A reader of our output that has seen enough
/// (`quarry replay | head -1`) is no error.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else {
        return 0;
    };
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        return 0;
    }
    let code = error.chain().find_map(code).unwrap_or(FAILED);
    // Nothing can be done if stderr is closed as well.
    let _ = io::Write::write_all(
        &mut io::stderr().lock(),
        format!("quarry: {}\n", visible(&message(error.as_ref()))).as_bytes(),
    );
    code
}
