//! The command whose load is recorded.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Result, TraceError};

/// Longest time for which a recorder waits for events before the command is looked at.
const STEP: Duration = Duration::from_millis(50);

/// Starts a program with its arguments; `None` without a program.
///
/// # Errors
///
/// [`TraceError::Record`] if it cannot be run.
pub fn spawn(command: &[OsString]) -> Result<Option<Child>> {
    let Some((program, rest)) = command.split_first() else {
        return Ok(None);
    };
    let child = Command::new(program).args(rest).spawn();
    child.map(Some).map_err(|source| TraceError::Record {
        action: "run",
        path: PathBuf::from(program),
        source,
        advice: "name a program of this machine",
    })
}

/// Calls `take` with the longest time that it may wait for events, until a command ends, the duration is over, or the work is
/// to stop. Returns the command's status if it has ended.
///
/// # Errors
///
/// Those of `take`, and [`TraceError::Read`] if the command cannot be waited for.
pub fn watch<E: From<TraceError>>(
    mut child: Option<&mut Child>,
    duration: Option<Duration>,
    is_stopped: impl Fn() -> bool,
    mut take: impl FnMut(Duration) -> Result<(), E>,
) -> Result<Option<ExitStatus>, E> {
    let began = Instant::now();
    loop {
        let left = duration.map(|duration| duration.saturating_sub(began.elapsed()));
        let ended = child.as_mut().map(|child| child.try_wait());
        let ended = ended.transpose().map_err(unwaited)?.flatten();
        if ended.is_some() || left == Some(Duration::ZERO) || is_stopped() {
            return Ok(ended);
        }
        take(left.map_or(STEP, |left| left.min(STEP)))?;
    }
}

/// Asks a command to end, waits for it, and kills it after a time.
///
/// # Errors
///
/// [`TraceError::Read`] if it cannot be waited for.
pub fn end(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    let began = Instant::now();
    // A child that was not waited for keeps its number.
    if child.try_wait().map_err(unwaited)?.is_none() {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
    while began.elapsed() < patience {
        if let Some(status) = child.try_wait().map_err(unwaited)? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
    // Fails only if it has ended.
    let _ = child.kill();
    child.wait().map_err(unwaited)
}

/// The exit code of a command as shells give it: 128 and the number of the signal that ended it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn unwaited(source: io::Error) -> TraceError {
    TraceError::Read {
        path: PathBuf::from("the command's status"),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdout(Stdio::piped());
        shell.spawn().unwrap()
    }

    #[test]
    fn a_command_is_watched_to_its_end() {
        let quiet = |_| Ok::<_, TraceError>(());
        let watched = |script: &str| watch(Some(&mut shell(script)), None, || false, quiet);
        let code = |script: &str| watched(script).unwrap().map(exit_code);
        assert_eq!(code("exit 3"), Some(3));
        assert_eq!(code("kill -KILL $$"), Some(128 + 9));
        let over = watch(None, Some(Duration::from_millis(1)), || false, quiet);
        assert_eq!(over.unwrap(), None);
        let error = spawn(&["/no/such/program".into()]).unwrap_err().to_string();
        assert!(error.starts_with("cannot run /no/such/program"), "{error}");
    }

    #[test]
    fn a_command_that_runs_at_the_stop_is_ended() {
        for (script, signal) in [("", Signal::TERM), ("trap '' TERM;", Signal::KILL)] {
            let mut child = shell(&format!("{script} echo ready; exec sleep 600"));
            let mut ready = [0; 6];
            let mut output = child.stdout.take().unwrap();
            output.read_exact(&mut ready).unwrap();
            let taken = Cell::new(0);
            let take = |_| {
                taken.set(taken.get() + 1);
                Ok::<_, TraceError>(())
            };
            let status = watch(Some(&mut child), None, || taken.get() == 2, take);
            assert_eq!((status.unwrap(), taken.get()), (None, 2));
            let patience = match signal {
                Signal::KILL => Duration::from_millis(20),
                _ => Duration::from_secs(600),
            };
            let status = end(&mut child, patience).unwrap();
            assert_eq!(status.signal(), Some(signal.as_raw()));
        }
    }
}
