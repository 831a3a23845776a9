//! What a packet costs beside memory: the one figure that is taken from the thread.

use quarry_machines::{Draw, Machine};

use super::super::driver::RxDriver;
use super::super::report::RING_PACKETS_PER_SECOND;
use super::super::spec::RxSpec;
use super::{RxTimeSpec, run};
use crate::error::WorkError;
use crate::parallel::run_all;

/// The machine of the thread.
const THREAD_MACHINE: &str = "haswell-ep-2x12";
/// A search for the figure.
struct Search {
    streams: u32,
    descriptors: u32,
    /// Packets that each of its runs counts.
    packets: u64,
    runs: u32,
    /// Where it begins.
    from: OutsideWork,
}

/// The search that the figure is from.
const WHOLE: Search = Search {
    streams: 128,
    descriptors: 1024,
    packets: 100_000,
    runs: 3,
    from: OutsideWork::NONE,
};
/// A search that is good for the difference between two draws only: its few streams keep more in caches.
const SHORT: Search = Search {
    streams: 4,
    descriptors: 256,
    packets: 2_000,
    runs: 1,
    from: OutsideWork::THREAD,
};

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
        WHOLE.find(draw)
    }

    /// The work for each of several draws: [`OutsideWork::THREAD`], and the difference that a draw makes to a short
    /// search. Each takes a tenth of the time of [`OutsideWork::of_thread`]. They run on at most `jobs` threads.
    ///
    /// # Errors
    ///
    /// [`WorkError`] as [`run`].
    pub fn of_draws(draws: &[&Draw], jobs: usize) -> Result<Vec<Self>, WorkError> {
        let values = SHORT.find(&Draw::VALUES)?;
        run_all(draws, jobs, |draw| {
            if **draw == Draw::VALUES {
                return Ok(Self::THREAD);
            }
            let found = SHORT.find(draw)?;
            Ok(Self {
                ps: (Self::THREAD.ps + found.ps).saturating_sub(values.ps),
            })
        })
    }

    /// Nanoseconds.
    #[must_use]
    pub fn ns(self) -> f64 {
        self.ps as f64 / 1000.0
    }
}

impl Search {
    /// The work with which driver #1 has on one ring what the thread measured.
    fn find(&self, draw: &Draw) -> Result<OutsideWork, WorkError> {
        let machine = Machine::bundled(THREAD_MACHINE);
        let machine = machine.map_err(|error| WorkError::Usage(error.to_string()))?;
        let Some(driver) = RxDriver::named("small") else {
            return Err(WorkError::Usage("there is no driver small".to_string()));
        };
        let mut spec = RxTimeSpec {
            rx: RxSpec {
                streams: self.streams,
                descriptors: self.descriptors,
                packets: self.packets,
                ..RxSpec::new(driver, 1)
            },
            machine,
            draw: draw.clone(),
            outside: self.from,
        };
        let measured_ns = 1e9 / RING_PACKETS_PER_SECOND;
        for _ in 0..self.runs {
            let report = run(&spec, &|_| ())?;
            let missing_ns = measured_ns - report.packet_ns;
            let ps = spec.outside.ps as f64 + missing_ns * 1000.0;
            spec.outside.ps = ps.round().max(0.0) as u64;
        }
        Ok(spec.outside)
    }
}
