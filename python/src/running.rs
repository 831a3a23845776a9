//! Long work: other threads of Python run meanwhile, Ctrl-C ends it, and a bar shows how far it is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quarry_core::era::Era;
use quarry_trace::record::{self, Recorder};
use quarry_trace::{ImportOptions, ImportSummary, import_to_file, open_recording};
use quarry_work::Progress;

/// Longest time for which a signal waits to be seen.
const TICK: Duration = Duration::from_millis(50);
/// Time in which a recorded command has to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// State that the work and the thread that waits for it share.
#[derive(Default)]
pub(crate) struct Shared {
    steps: AtomicU64,
    stopped: AtomicBool,
}

impl Progress for Shared {
    fn advance(&self, steps: u64) {
        // Relaxed here and below: the numbers order nothing else.
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// A bar of `tqdm`.
pub(crate) struct Bar<'py>(Option<Bound<'py, PyAny>>);

impl<'py> Bar<'py> {
    /// A bar if one is asked for and `tqdm` is there.
    pub(crate) fn new(
        py: Python<'py>,
        asked: bool,
        name: &str,
        total: u64,
        unit: &str,
    ) -> PyResult<Self> {
        if !asked {
            return Ok(Self(None));
        }
        let Ok(tqdm) = py.import("tqdm.auto") else {
            note(py, "progress needs the package tqdm: pip install tqdm")?;
            return Ok(Self(None));
        };
        let options = PyDict::new(py);
        options.set_item("total", total)?;
        options.set_item("desc", name)?;
        options.set_item("unit", unit)?;
        options.set_item("unit_scale", true)?;
        Ok(Self(Some(tqdm.call_method("tqdm", (), Some(&options))?)))
    }

    fn show(&self, steps: u64) -> PyResult<()> {
        if let Some(bar) = &self.0 {
            let before: u64 = bar.getattr("n")?.extract()?;
            bar.call_method1("update", (steps.saturating_sub(before),))?;
        }
        Ok(())
    }

    fn close(&self) -> PyResult<()> {
        if let Some(bar) = &self.0 {
            bar.call_method0("close")?;
        }
        Ok(())
    }
}

/// Does work on another thread. This one waits, shows progress, and has Python act on signals: if that raises, the work is
/// stopped, and the exception goes on.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    bar: &Bar<'_>,
    work: impl FnOnce(&Shared) -> T + Send,
) -> PyResult<T> {
    let shared = Shared::default();
    let result = std::thread::scope(|scope| {
        let (done, mut is_done) = mpsc::channel();
        let shared = &shared;
        let worker = scope.spawn(move || {
            let result = work(shared);
            // The receiver lives as long as this scope.
            let _ = done.send(());
            result
        });
        let mut raised = None;
        loop {
            let wait = &mut is_done;
            match py.detach(move || wait.recv_timeout(TICK)) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                    raised = look_at_signals(py, bar, shared).err();
                    shared.stopped.store(raised.is_some(), Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let result = py.detach(|| worker.join());
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        raised.map_or(Ok(result), Err)
    });
    bar.show(shared.steps.load(Ordering::Relaxed))?;
    bar.close()?;
    result
}

fn look_at_signals(py: Python<'_>, bar: &Bar<'_>, shared: &Shared) -> PyResult<()> {
    // A signal that came while no thread ran Python is noticed by running some.
    py.run(c"None", None, None)?;
    py.check_signals()?;
    bar.show(shared.steps.load(Ordering::Relaxed))
}

/// Logs a note for results that may surprise, as `quarry`.
pub(crate) fn note(py: Python<'_>, text: &str) -> PyResult<()> {
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("quarry",))?;
    logger.call_method1("info", ("%s", text))?;
    Ok(())
}

/// Logs what is uncertain about releases, once for each.
pub(crate) fn note_eras(py: Python<'_>, eras: impl IntoIterator<Item = Era>) -> PyResult<()> {
    for era in BTreeSet::from_iter(eras) {
        if let Some(text) = era.note() {
            note(py, &format!("Linux {era}: {text}"))?;
        }
    }
    Ok(())
}

/// Threads to run on: all cores by default.
pub(crate) fn jobs(asked: Option<usize>) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    asked.unwrap_or_else(all).max(1)
}

impl Shared {
    /// True once the work is to end.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Empties a recorder's rings until a command ends, the time is over, or the work is stopped. Gives the exit code of a
    /// command that has ended; stopped work ends it.
    pub(crate) fn record(
        &self,
        recorder: &mut Recorder,
        command: &[OsString],
        duration: Option<Duration>,
    ) -> quarry_trace::Result<Option<u8>> {
        let mut child = record::spawn(command)?;
        let take = |step| recorder.take(step);
        let mut status = record::watch(child.as_mut(), duration, || self.is_stopped(), take);
        match child {
            Some(mut child) if self.is_stopped() || status.is_err() => {
                let ended = record::end(&mut child, PATIENCE)?;
                status = status.map(|_| Some(ended));
            }
            // It goes on; this waits for it, lest it stay in the table of processes.
            Some(mut child) => drop(std::thread::spawn(move || child.wait())),
            None => {}
        }
        Ok(status?.map(record::exit_code))
    }

    /// Imports a recording; when it is stopped, its input ends with an error.
    pub(crate) fn import(
        &self,
        source: &Path,
        output: &Path,
        options: &ImportOptions,
    ) -> quarry_trace::Result<ImportSummary> {
        let reader = Stoppable {
            file: open_recording(source)?,
            shared: self,
        };
        let mut before = 0;
        import_to_file(reader, source, output, options, &mut |bytes| {
            self.advance(bytes.saturating_sub(before));
            before = bytes;
        })
    }
}

/// A file whose reader ends when the work is stopped.
struct Stoppable<'a> {
    file: File,
    shared: &'a Shared,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.shared.is_stopped() {
            true => Err(io::Error::other("stopped before its end")),
            false => self.file.read(buffer),
        }
    }
}
