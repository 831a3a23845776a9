//! Measures the computer it runs on, and describes it as a machine for simulated time.
//!
//! ```no_run
//! use quarry_calibrate::{Effort, calibrate};
//!
//! let machine = calibrate("mine", Effort::Full, &mut |step| eprintln!("{step}")).unwrap();
//! std::fs::write("mine.toml", machine.to_text()).unwrap();
//! ```
//!
//! # What is measured, and what is not
//!
//! [`measure`] has one file for each subject: loads that wait for each other, lines that move between two CPUs, what
//! a core does by itself, and what the kernel does for threads. Each figure is measured in several rounds. A round is
//! the fastest of a few bursts, because what disturbs a burst only makes it longer. The median of the rounds is the
//! value; the fastest and the slowest round are its range.
//!
//! Shape and caches are the kernel's own words ([`sysfs`]). What a process cannot measure is taken over from the
//! bundled machine that is nearest by maker and age, and is marked as unverified: what it costs to turn interrupts
//! off, an interrupt of another CPU, the straight-line instructions of kernel paths.
#![forbid(unsafe_code)]

mod cpuinfo;
mod describe;
mod donor;
mod error;
#[cfg(test)]
mod fixture;
pub mod measure;
mod sample;
pub mod sysfs;

pub use cpuinfo::CpuInfo;
pub use error::CalibrateError;
pub use sample::{Effort, Sample};

use std::path::Path;

use quarry_machines::Machine;

/// Measures this computer. `tell` is called with the name of each step before it begins.
///
/// # Errors
///
/// [`CalibrateError`]: the kernel does not describe its CPUs or caches, or does not let a thread choose its CPU; or the
/// figures contradict each other.
pub fn calibrate(
    name: &str,
    effort: Effort,
    tell: &mut dyn FnMut(&str),
) -> Result<Machine, CalibrateError> {
    let cpuinfo = CpuInfo::read(Path::new("/proc/cpuinfo"))?;
    let computer = sysfs::Computer::read(Path::new("/sys/devices/system"))?;
    let donor = donor::nearest(&cpuinfo)?;
    let usable = measure::usable_cpus()?;
    let figures = measure::all(&computer, &usable, effort, tell)?;
    let machine = describe::machine(name, &cpuinfo, &computer, &figures, &donor);
    // A file is checked when it is read: what is written must pass that.
    Machine::parse(name, &machine.to_text()).map_err(CalibrateError::Contradiction)
}

/// Number of steps that [`calibrate`] reports.
pub const STEPS: usize = measure::STEPS.len();
