//! Signals that end the command: what it has written of outputs goes first, or a recording is completed.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use quarry_trace::remove_unfinished_outputs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::terminal;

/// Signals that end the command, but for those that its caller has it ignore (`nohup`), unless they are among `always`.
fn heeded(always: &[i32]) -> io::Result<Signals> {
    let ignored = ignored();
    let signals = [SIGHUP, SIGINT, SIGTERM].into_iter();
    Signals::new(
        signals.filter(|signal| ignored >> (signal - 1) & 1 == 0 || always.contains(signal)),
    )
}

/// Removes unfinished outputs on SIGINT, SIGTERM and SIGHUP, then lets the signal end the process. If it cannot be set up the
/// next run removes what a signal leaves behind.
pub(crate) fn remove_outputs_first() {
    let Ok(mut signals) = heeded(&[]) else {
        return;
    };
    // Without the thread nothing would heed the signals: the process ends if it cannot be made.
    thread::spawn(move || {
        for signal in &mut signals {
            end_by(signal);
        }
    });
}

/// Lets a signal end the process, after unfinished outputs are gone and a step that was set is done.
fn end_by(signal: i32) {
    remove_unfinished_outputs();
    if let Some(step) = BEFORE_END.get() {
        do_before_end(*step);
    }
    let _ = emulate_default_handler(signal);
}

static BEFORE_END: OnceLock<fn()> = OnceLock::new();

/// Longest time for the step before the end: a terminal that takes no bytes would hold it up for ever.
const BEFORE_END_LIMIT: Duration = Duration::from_secs(1);

fn do_before_end(step: fn()) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
        step();
        // The receiver may have given up.
        let _ = done.send(());
    });
    if thread.is_ok() {
        let _ = is_done.recv_timeout(BEFORE_END_LIMIT);
    }
}

/// Has a signal that ends the command do a step first, which may write to stdout.
pub(crate) fn before_end(step: fn()) {
    // The first step stays: a command has one.
    let _ = BEFORE_END.set(step);
}

/// Set when SIGINT, SIGTERM or SIGHUP came, after a call of `tell`. A second one ends the process at once.
fn ask_to_stop(tell: fn()) -> io::Result<Arc<AtomicBool>> {
    let mut signals = heeded(&[])?;
    let asked = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&asked);
    thread::Builder::new().spawn(move || {
        for signal in &mut signals {
            // Relaxed: the flag orders nothing else, and this thread alone sets it.
            if set.load(Ordering::Relaxed) {
                end_by(signal);
            }
            tell();
            set.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(asked)
}

/// The end of a recording, as signals ask for it.
#[derive(Clone, Default)]
pub(crate) struct RecordingEnd {
    asked: Arc<AtomicBool>,
    written: Arc<AtomicBool>,
}

impl RecordingEnd {
    /// True once a signal has asked for it.
    pub(crate) fn is_asked(&self) -> bool {
        // Relaxed here and below: the flags order nothing else.
        self.asked.load(Ordering::Relaxed)
    }

    /// Says that the trace is complete: the next signal ends the process.
    pub(crate) fn set_written(&self) {
        self.written.store(true, Ordering::Relaxed);
    }
}

/// Lets signals end a recording. Scripts have their background jobs ignore SIGINT, and stop them with it: SIGINT and
/// SIGTERM are heeded in any case. The first signal asks for the end, the second one says that the trace is being
/// written, and the third one gives it up.
pub(crate) fn end_recording() -> io::Result<RecordingEnd> {
    let mut signals = heeded(&[SIGINT, SIGTERM])?;
    let end = RecordingEnd::default();
    let of_thread = end.clone();
    thread::Builder::new().spawn(move || {
        let mut told = false;
        for signal in &mut signals {
            let writing = of_thread.is_asked() && !of_thread.written.load(Ordering::Relaxed);
            if writing && !told {
                terminal::note("writing; once more to give up");
                told = true;
            } else if of_thread.is_asked() {
                end_by(signal);
            }
            of_thread.asked.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(end)
}

/// As [`ask_to_stop`], for commands whose runs under way go on to their end.
pub(crate) fn stop_between_runs() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = ask_to_stop(|| {
        terminal::note("runs under way go on to their end; another interrupt ends them at once");
    });
    stop.context("cannot set up signal handlers")
}

/// A bit for each signal that the process ignores; none if the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}
