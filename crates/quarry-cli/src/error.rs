//! Errors to exit codes: 0 done, 1 failed, 2 wrong usage, 3 memory of a virtual machine exhausted.

use std::fmt;
use std::io;
use std::process::ExitCode;

use quarry_lab::LabError;
use quarry_work::WorkError;

/// What was asked for is wrong, not what was done: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A virtual machine had too little memory for the load, and the results say so: exit code 3.
#[derive(Debug)]
pub(crate) struct Exhausted(pub(crate) String);

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exhausted {}

/// An error of wrong usage.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Tells an error on stderr and picks the exit code. A reader of our output that has seen enough
/// (`quarry replay | head -1`) is no error.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        return ExitCode::SUCCESS;
    }
    let is_usage = error.chain().any(|cause| {
        cause.is::<Usage>()
            || matches!(cause.downcast_ref(), Some(LabError::Usage(_)))
            || matches!(cause.downcast_ref(), Some(WorkError::Usage(_)))
    });
    let is_exhausted = error.chain().any(|cause| {
        cause.is::<Exhausted>()
            || matches!(
                cause.downcast_ref(),
                Some(LabError::Memory { .. } | LabError::InitialMemory { .. })
            )
    });
    let code = match (is_usage, is_exhausted) {
        (true, _) => 2,
        (false, true) => 3,
        (false, false) => 1,
    };
    // Nothing can be done if stderr is closed as well.
    let _ = io::Write::write_all(
        &mut io::stderr().lock(),
        format!("quarry: {}\n", message(&error)).as_bytes(),
    );
    ExitCode::from(code)
}

/// The chain in one line; causes whose text is already in it are left out.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
