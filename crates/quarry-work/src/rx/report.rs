//! Results of a run.

use quarry_core::machine::LockClass;
use quarry_sim::time::TimeCounters;
use schemars::JsonSchema;
use serde::Serialize;

use super::RxRun;
use super::counts::RxCounts;
use super::driver::PerPage;
use super::receiver::Span;
use super::recycle::RxBuffer;
use crate::causes::Causes;

/// Megabits of user data a second that the thread measured ("Results"), by driver and number of rings.
const PUBLISHED_RINGS: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
const PUBLISHED: [(&str, [f64; 8]); 3] = [
    (
        "small",
        [
            23_813.0, 44_086.0, 62_128.0, 78_058.0, 94_210.0, 94_205.0, 94_202.0, 94_191.0,
        ],
    ),
    (
        "none",
        [
            18_835.0, 36_716.0, 50_521.0, 61_746.0, 63_637.0, 60_299.0, 51_048.0, 43_337.0,
        ],
    ),
    (
        "huge",
        [
            19_316.0, 44_850.0, 69_549.0, 87_434.0, 94_342.0, 94_350.0, 94_327.0, 94_327.0,
        ],
    ),
];

/// Busy part of the CPUs' time.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct RxCpus {
    /// Busy part of the time of CPUs with a ring, from 0 to 1.
    pub rings: f64,
    /// Busy part of the time of all other CPUs; null if there are none.
    pub others: Option<f64>,
    /// Mean number of busy CPUs.
    pub busy: f64,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct RxReport {
    /// Driver.
    pub driver: &'static str,
    /// The driver's number in the thread of 2017; null if the thread does not have it.
    pub thread_driver: Option<&'static str>,
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Machine whose time is simulated (`quarry machines`).
    pub machine: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Receive rings.
    pub rings: u32,
    /// CPUs.
    pub cpus: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// TCP streams.
    pub streams: u32,
    /// CPUs that read the streams: `--consumer`.
    pub consumer: &'static str,
    /// `--seed`: decides all that is left to chance.
    pub seed: u64,
    /// Nanoseconds of a packet's work outside memory, taken from the thread: with it driver #1 has on one
    /// ring the bandwidth measured there.
    pub outside_ns: f64,
    /// Packets that readers got while counting.
    pub packets: u64,
    /// Simulated seconds of counting.
    pub seconds: f64,
    /// Megabits of user data per second.
    pub mbit_per_second: f64,
    /// Megabits per second that the thread measured with this driver and number of rings; null if it has
    /// none.
    pub published_mbit_per_second: Option<f64>,
    /// Nanoseconds between two packets of all rings.
    pub packet_ns: f64,
    /// Share of offered packets that found no buffer, from 0 to 1.
    pub lost: f64,
    /// Busy part of the CPUs' time.
    pub cpu_use: RxCpus,
    /// Share of busy CPUs' time spent waiting for a zone's lock, from 0 to 1.
    pub zone_lock_share: f64,
    /// Causes of the time of all CPUs, per packet.
    pub causes: Causes,
    /// Pages that move between a CPU's lists and the zone at a time; 5.14 and later sometimes move more.
    pub pcp_batch: u32,
    /// Pages on a CPU's lists at which they are drained; in 6.7 and later the least that this may be.
    pub pcp_high: u32,
    /// Order of the blocks that buffers are in.
    pub page_order: u32,
    /// Packets that fit into one block.
    pub packets_per_page: u32,
    /// Calls and pages, without the warm-up.
    pub counts: RxCounts,
    /// Buffers posted beyond those that the page allocator gave a page for.
    pub recycled: u64,
    /// Time counters of the machine while packets were counted.
    #[serde(skip)]
    pub spent: TimeCounters,
}

impl RxReport {
    pub(super) fn of(spec: &RxRun, span: &Span) -> Self {
        let rx = &spec.rx;
        let seconds = span.ps as f64 / 1e12;
        let busy_ps: u64 = span.busy_ps.iter().sum();
        let share = |cpus: &[u64]| {
            let all = span.ps as f64 * cpus.len() as f64;
            cpus.iter().sum::<u64>() as f64 / all
        };
        let (rings, others) = span.busy_ps.split_at(rx.rings as usize);
        let zone = span.spent.locks[LockClass::Zone as usize];
        let buffer = RxBuffer::linear(rx.mtu, rx.page_shift());
        let bits = f64::from(rx.payload_bytes()) * 8.0;
        Self {
            driver: rx.driver.name,
            thread_driver: rx.driver.thread,
            era: rx.era.name(),
            machine: spec.machine.name.clone(),
            page_size: rx.page_bytes,
            rings: rx.rings,
            cpus: rx.cpus,
            mtu: rx.mtu,
            streams: rx.streams,
            consumer: rx.consumer.name(),
            seed: rx.seed,
            outside_ns: spec.outside.ns(),
            packets: span.read,
            seconds,
            mbit_per_second: span.read as f64 * bits / seconds / 1e6,
            published_mbit_per_second: published(rx.driver.name, rx.rings),
            packet_ns: seconds * 1e9 / span.read as f64,
            lost: span.lost as f64 / span.offered.max(1) as f64,
            cpu_use: RxCpus {
                rings: share(rings),
                others: (!others.is_empty()).then(|| share(others)),
                busy: busy_ps as f64 / span.ps as f64,
            },
            zone_lock_share: zone.wait_ps as f64 / busy_ps.max(1) as f64,
            causes: Causes::of(&span.spent, span.read),
            pcp_batch: span.lists.map_or(0, |lists| lists.batch),
            pcp_high: span.lists.map_or(0, |lists| lists.high),
            page_order: buffer.map_or(0, |buffer| buffer.order()),
            packets_per_page: match rx.driver.per_page {
                PerPage::One => 1,
                PerPage::Footprint => buffer.map_or(0, |buffer| buffer.packets(rx.frame_bytes())),
            },
            counts: span.counts,
            recycled: span.counts.recycled(),
            spent: span.spent.clone(),
        }
    }
}

fn published(driver: &str, rings: u32) -> Option<f64> {
    let (_, table) = PUBLISHED.iter().find(|(name, _)| *name == driver)?;
    let at = PUBLISHED_RINGS.iter().position(|&known| known == rings)?;
    Some(table[at])
}
