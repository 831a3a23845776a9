//! A recording of this machine's kernel, with what the kernel reports at both ends of the load.

use std::path::Path;
use std::time::Instant;

use quarry_snapshot::{End, EndReports, ReportError};
use quarry_trace::record::{RecordOptions, Recorder, Recording, now_ns};
use quarry_trace::{LoadPart, TraceError};

/// A recording that was written.
pub struct Recorded<T> {
    /// The trace.
    pub recording: Recording,
    /// Seconds of the load.
    pub seconds: f64,
    /// Result of the wait.
    pub waited: T,
}

/// Records from begin to end of `wait`, which has to empty the recorder's rings. With `reports` the trace has those of
/// both ends; of a part of the tasks there are none. `unread` is called with those that cannot be read.
///
/// # Errors
///
/// [`TraceError`] if the kernel cannot be recorded or the trace not be written, and the error of `wait`.
pub fn record<T, E: From<TraceError>>(
    output: &Path,
    options: &RecordOptions,
    reports: bool,
    unread: impl Fn(&ReportError),
    wait: impl FnOnce(&mut Recorder) -> Result<T, E>,
) -> Result<Recorded<T>, E> {
    let scope = &options.scope;
    let of_machine = scope.processes.is_empty() && scope.cgroup.is_none() && scope.comms.is_empty();
    let report = |recorder: &mut Recorder, end: End| {
        if !reports || !of_machine {
            return now_ns();
        }
        let taken = EndReports::take(end);
        taken.unread.iter().for_each(&unread);
        let snapshot = taken.reports.iter().find(|of| of.name == "snapshot");
        let time_ns = snapshot.map_or_else(now_ns, |of| of.time_ns);
        taken
            .reports
            .into_iter()
            .for_each(|report| recorder.report(report));
        time_ns
    };
    let mut recorder = Recorder::start(output, options)?;
    let from_ns = report(&mut recorder, End::Begin);
    let began = Instant::now();
    let waited = wait(&mut recorder)?;
    let seconds = began.elapsed().as_secs_f64();
    let until_ns = report(&mut recorder, End::Finish);
    recorder.set_load(LoadPart { from_ns, until_ns });
    Ok(Recorded {
        recording: recorder.finish()?,
        seconds,
        waited,
    })
}
