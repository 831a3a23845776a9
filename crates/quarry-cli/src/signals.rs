//! Signals that end the command: what it has written of outputs goes first.

use std::thread;

use quarry_trace::remove_unfinished_outputs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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

/// A bit for each signal that the process ignores; none if the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}
