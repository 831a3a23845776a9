//! Signals that end the command: what it has written of outputs goes first, or a recording is completed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;
use quarry_trace::remove_unfinished_outputs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output;

/// Signals that end the command, but for those that its caller has it ignore (`nohup`).
fn heeded() -> io::Result<Signals> {
    let ignored = ignored();
    let signals = [SIGHUP, SIGINT, SIGTERM].into_iter();
    Signals::new(signals.filter(|signal| ignored >> (signal - 1) & 1 == 0))
}

/// Removes unfinished outputs on SIGINT, SIGTERM and SIGHUP, then lets the signal end the process. If it cannot be set up the
/// next run removes what a signal leaves behind.
pub(crate) fn remove_outputs_first() {
    let Ok(mut signals) = heeded() else {
        return;
    };
    // Without the thread nothing would heed the signals: the process ends if it cannot be made.
    thread::spawn(move || {
        for signal in &mut signals {
            remove_unfinished_outputs();
            let _ = emulate_default_handler(signal);
        }
    });
}

/// Set when SIGINT, SIGTERM or SIGHUP came, after a call of `tell`. A second one ends the process at once.
pub(crate) fn ask_to_stop(tell: fn()) -> io::Result<Arc<AtomicBool>> {
    let mut signals = heeded()?;
    let asked = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&asked);
    thread::Builder::new().spawn(move || {
        for signal in &mut signals {
            // Relaxed: the flag orders nothing else, and this thread alone sets it.
            if set.load(Ordering::Relaxed) {
                let _ = emulate_default_handler(signal);
            }
            tell();
            set.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(asked)
}

/// The same, for commands whose runs under way go on to their end.
pub(crate) fn stop_between_runs() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = ask_to_stop(|| {
        output::note("runs under way go on to their end; another interrupt ends them at once");
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
