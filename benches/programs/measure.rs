//! Time and memory of a process.

use std::time::Instant;

use serde_json::{Value, json};

/// Time and memory of one run of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Seconds from the load's start to its end.
    pub(crate) seconds: f64,
    /// Seconds of all CPUs.
    pub(crate) cpu_seconds: f64,
    /// Most resident memory that the process had, in KiB.
    pub(crate) peak_kib: f64,
    /// Resident memory at the load's end, when all of it is freed, in KiB.
    pub(crate) end_kib: f64,
    /// Pages that the process met for the first time, or again after it gave them back.
    pub(crate) faults: f64,
}

/// Members of [`Measured`], as the child prints them and `--json` shows them.
impl Measured {
    pub(crate) fn to_json(self) -> Value {
        json!({
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_kib": self.peak_kib,
            "end_kib": self.end_kib,
            "faults": self.faults,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Self {
            seconds: number("seconds")?,
            cpu_seconds: number("cpu_seconds")?,
            peak_kib: number("peak_kib")?,
            end_kib: number("end_kib")?,
            faults: number("faults")?,
        })
    }
}

/// Runs a load in this process.
pub(crate) fn this_process(run: fn()) -> Value {
    let (cpu, faults) = usage();
    let start = Instant::now();
    run();
    let seconds = start.elapsed().as_secs_f64();
    let (cpu_after, faults_after) = usage();
    let measured = Measured {
        seconds,
        cpu_seconds: cpu_after - cpu,
        peak_kib: status("VmHWM:"),
        end_kib: status("VmRSS:"),
        faults: faults_after - faults,
    };
    measured.to_json()
}

/// Seconds of CPUs, and page faults, of this process until now.
fn usage() -> (f64, f64) {
    // SAFETY: all-zero is a value of the type.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the place is this function's.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    (cpu, usage.ru_minflt as f64)
}

/// A number of `/proc/self/status` in KiB. Of the peak `getrusage` has the parent's as well, from before the exec.
fn status(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or(f64::NAN)
}
