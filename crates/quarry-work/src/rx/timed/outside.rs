//! What a packet costs beside memory: the one figure that is taken from the thread.

use quarry_machines::{Draw, Machine};

use super::super::driver::RxDriver;
use super::super::report::RING_PACKETS_PER_SECOND;
use super::super::spec::RxSpec;
use super::{RxTimeSpec, run};
use crate::error::WorkError;

/// The machine of the thread.
const THREAD_MACHINE: &str = "haswell-ep-2x12";
/// Packets of a run that looks for the figure.
const PACKETS: u64 = 100_000;
/// Runs that look for it.
const STEPS: u32 = 3;

/// Time that a packet costs the CPU of its ring beside what is simulated: the card's driver, protocols, wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideWork {
    /// Picoseconds.
    pub(super) ps: u64,
}

impl OutsideWork {
    /// None: all time is that of memory and locks.
    pub const NONE: Self = Self { ps: 0 };

    /// What [`OutsideWork::of_thread`] gives for the costs that the thread's machine is said to have; a test compares.
    pub const THREAD: Self = Self { ps: 326_000 };

    /// The work with which driver #1 has on one ring the bandwidth that the thread measured: 23813 Mbit/s, a packet every
    /// 486 ns. No other figure of the thread is used. `draw` says what the thread's machine costs.
    ///
    /// # Errors
    ///
    /// [`WorkError`] as [`run`].
    pub fn of_thread(draw: &Draw) -> Result<Self, WorkError> {
        let machine = Machine::bundled(THREAD_MACHINE);
        let machine = machine.map_err(|error| WorkError::Usage(error.to_string()))?;
        let Some(driver) = RxDriver::named("small") else {
            return Err(WorkError::Usage("there is no driver small".to_string()));
        };
        let mut spec = RxTimeSpec {
            rx: RxSpec {
                packets: PACKETS,
                ..RxSpec::new(driver, 1)
            },
            machine,
            draw: draw.clone(),
            outside: Self::NONE,
        };
        let measured_ns = 1e9 / RING_PACKETS_PER_SECOND;
        for _ in 0..STEPS {
            let report = run(&spec, &|_| ())?;
            let missing_ns = measured_ns - report.packet_ns;
            let ps = spec.outside.ps as f64 + missing_ns * 1000.0;
            spec.outside.ps = ps.round().max(0.0) as u64;
        }
        Ok(spec.outside)
    }

    /// Nanoseconds.
    #[must_use]
    pub fn ns(self) -> f64 {
        self.ps as f64 / 1000.0
    }
}
