//! Signals that end the command: what it has written of outputs goes first, or a recording is completed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use quarry_trace::remove_unfinished_outputs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Removes unfinished outputs on SIGINT, SIGTERM and SIGHUP, then lets the signal end the process. A signal
/// that the caller has the command ignore (`nohup`) stays ignored. If it cannot be set up the next run
/// removes what a signal leaves behind.
pub(crate) fn remove_outputs_first() {
    let ignored = ignored();
    let heeded = [SIGHUP, SIGINT, SIGTERM]
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let Ok(mut signals) = Signals::new(heeded) else {
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

/// Set when SIGINT, SIGTERM or SIGHUP came. A second one ends the process at once.
pub(crate) fn ask_to_stop() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&asked))?;
        flag::register(signal, Arc::clone(&asked))?;
    }
    Ok(asked)
}

/// A bit for each signal that the process ignores; none if the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}
