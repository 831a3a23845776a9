//! A network receiver.

use quarry_ask::{Axis, Bytes, PageBytes, Release, question};
use quarry_core::era::Era;
use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_machines::Machine;
use quarry_work::rx::{self, Consumer, DRIVERS, OutsideWork, RxAxes, RxRun, RxSpec};
use quarry_work::{NAPI_BUDGET, WorkError, run_all};

use super::Clock;
use super::answers::{Answer, Answers, Cost, How, InputSize, Ready};
use super::load::{memory_bytes, page_bytes};
use crate::error::LabError;

/// Packets that are counted.
const PACKETS: u64 = 10_000;
/// Sources of pages that are compared if none is named.
const USUAL_DRIVERS: [&str; 4] = ["small", "none", "huge", "pool"];
/// Numbers of rings if none is named.
const RINGS: [u32; 3] = [1, 6, 16];

question! {
    /// Costs of pages for a network receiver.
    pub struct Rx {
        /// Machine and seed.
        clock: Clock;
        /// Sources of the receive queues' pages: small, none, huge, pool, shipped.
        driver: Axis<String> = "small,none,huge,pool", value("NAME"), inner();
        /// Numbers of receive rings; ring i is served by CPU i.
        rings: Axis<u32> = "1,6,16", value("N"), inner();
        /// Release of Linux with the page allocator, page cache and socket buffers to use: 2.6.22 or later.
        era: Axis<Release> = "4.13", value("ERA"), inner();
        /// Packets that each run counts; with its warm-up at most 1000000000000. 10000 by default, and 20000 with
        /// --sensitivity; 300000 take minutes and give a digit more.
        packets: Axis<u64>, value("N");
        /// CPUs that read streams: their ring's CPU (same), CPUs without a ring (other), or all CPUs alike
        /// (spread).
        consumer: Axis<Consumer> = "other", value("WHERE");
        /// Page sizes: 4k, 16k, 64k.
        page_size: Axis<PageBytes> = "4k", value("BYTES"), inner();
        /// CPUs of the virtual machine.
        cpus: Axis<u32> = "24", value("N");
        /// Bytes of a packet; all packets are full.
        mtu: Axis<u32> = "1500", value("BYTES");
        /// TCP streams, dealt to the rings round: as many as rings, to 1048576.
        streams: Axis<u32> = "128", value("N");
        /// Packets that wait in a socket before it is read: 60 are the default receive buffer of TCP;
        /// 1 to 1048576.
        backlog: Axis<u32> = "60", value("PACKETS");
        /// Work entries of a ring.
        descriptors: Axis<u32> = "1024", value("N");
        /// Entries of the page cache of driver huge, a power of two; the thread does not tell its size.
        cache_entries: Axis<u32> = "32768", value("N");
        /// Memory of each virtual machine. Only what is used becomes resident.
        memory: Axis<Bytes> = "16G", value("BYTES");
        /// A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
        /// and later heed it when blocks of several pages are freed.
        cache_share: Axis<Bytes> = "1280k", value("BYTES");
    }
}

impl Rx {
    /// All runs: drivers first, then releases, page sizes and rings.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a driver does not exist, a number is out of range, or the machine cannot have the CPUs.
    pub fn runs(&self) -> Result<(Machine, Vec<RxRun>), WorkError> {
        let (machine, draw) = self
            .clock
            .machine()
            .map_err(|error| WorkError::Usage(error.to_string()))?;
        let usual = RxSpec::new(&DRIVERS[0], 1);
        let base = RxSpec {
            cpus: self.cpus.or(usual.cpus),
            memory_bytes: memory_bytes(&self.memory),
            cache_share_bytes: self.cache_share.or(Bytes(CACHE_SHARE_BYTES)).0,
            mtu: self.mtu.or(usual.mtu),
            streams: self.streams.or(usual.streams),
            consumer: self.consumer.or(usual.consumer),
            backlog: self.backlog.or(usual.backlog),
            descriptors: self.descriptors.or(usual.descriptors),
            cache_entries: self.cache_entries.or(usual.cache_entries),
            packets: self.packets.or(PACKETS),
            seed: self.clock.seed.or(1),
            ..usual
        };
        let eras = self.era.or_all([Release::from(Era::V4_13)]).into_iter();
        let axes = RxAxes {
            drivers: self.driver.or_all(USUAL_DRIVERS.map(str::to_string)),
            eras: eras.map(|release| release.era).collect(),
            page_bytes: page_bytes(&self.page_size),
            rings: self.rings.or_all(RINGS),
        };
        let run = |rx| {
            let run = RxRun {
                rx,
                machine: machine.clone(),
                draw: draw.clone(),
                outside: OutsideWork::THREAD,
            };
            run.config().map(|_| run)
        };
        let runs = axes.runs(&base)?.into_iter().map(run);
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        Ok((machine, runs))
    }
}

impl Answers for Rx {
    /// Packets of all runs, with those before counting.
    fn steps(&self, _: &Ready<'_>) -> Result<u64, LabError> {
        let of = |run: &RxRun| {
            let rx = &run.rx;
            rx.packets + rx.warm_up_packets() + u64::from(rx.rings * NAPI_BUDGET)
        };
        let (_, runs) = self.runs()?;
        Ok(runs.iter().map(of).fold(0, u64::saturating_add))
    }

    fn cost(&self, _: InputSize) -> Cost {
        Cost::of_load(1000)
    }

    fn answer(&self, _: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
        let (_, runs) = self.runs()?;
        Answer::all(&run_all(&runs, how.jobs, |run| rx::run(run, how.progress))?)
    }
}
