//! Time of a packet outside of memory: the one figure that is taken from the thread.

use quarry_machines::{Draw, Machine};

use super::driver::RxDriver;
use super::spec::RxSpec;
use super::{RING_PACKETS_PER_SECOND, RxRun, run};
use crate::error::WorkError;
use crate::parallel::run_all;

/// The machine of the thread.
const THREAD_MACHINE: &str = "haswell-ep-2x12";
/// Packets and streams of a run that looks for the difference between two draws, at most. Of eight draws, the difference was
/// at most 1.8 ns off that of the whole search.
const SHORT_PACKETS: u64 = 10_000;
const SHORT_STREAMS: u32 = 16;

/// Time that a packet costs the CPU of its ring outside of the simulation: the card's driver, protocols, wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideWork {
    /// Picoseconds.
    pub(super) ps: u64,
}

impl OutsideWork {
    /// The work with which driver #1 has on one ring the bandwidth that the thread measured: 23813 Mbit/s, a packet every
    /// 486 ns. No other figure of the thread is used.
    ///
    /// It is found in three steps, from no work on, with the costs that the thread's machine is said to have. A step runs
    /// 100,000 packets and adds what a packet lacks of its time. A test repeats the search with fewer packets.
    pub const THREAD: Self = Self { ps: 322_253 };

    /// The work for each of several draws: [`OutsideWork::THREAD`], and the difference that a draw makes to a packet of a
    /// short run. `rx` says how many packets, streams and work entries that has at most. Runs on at most `jobs` threads.
    ///
    /// # Errors
    ///
    /// [`WorkError`] as [`run`].
    pub fn of_draws(draws: &[&Draw], rx: &RxSpec, jobs: usize) -> Result<Vec<Self>, WorkError> {
        let short = RxSpec {
            packets: rx.packets.min(SHORT_PACKETS),
            streams: rx.streams.min(SHORT_STREAMS),
            backlog: rx.backlog,
            descriptors: rx.descriptors,
            ..RxSpec::new(ring_driver()?, 1)
        };
        let values = refine(&short, &Draw::VALUES, Self::THREAD)?;
        run_all(draws, jobs, |draw| {
            if **draw == Draw::VALUES {
                return Ok(Self::THREAD);
            }
            let found = refine(&short, draw, Self::THREAD)?;
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

/// Driver #1.
fn ring_driver() -> Result<&'static RxDriver, WorkError> {
    let driver = RxDriver::named("small");
    driver.ok_or_else(|| WorkError::Usage("there is no driver small".to_string()))
}

/// Returns work with which a receiver is nearer to the packets a second that the thread measured with one ring.
pub(super) fn refine(
    rx: &RxSpec,
    draw: &Draw,
    from: OutsideWork,
) -> Result<OutsideWork, WorkError> {
    let machine = Machine::bundled(THREAD_MACHINE);
    let machine = machine.map_err(|error| WorkError::Usage(error.to_string()))?;
    let spec = RxRun {
        rx: rx.clone(),
        machine,
        draw: draw.clone(),
        outside: from,
    };
    let measured_ns = 1e9 / RING_PACKETS_PER_SECOND;
    let missing_ns = measured_ns - run(&spec, &|_| ())?.packet_ns;
    let ps = from.ps as f64 + missing_ns * 1000.0;
    Ok(OutsideWork {
        ps: ps.round().max(0.0) as u64,
    })
}
