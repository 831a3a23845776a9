//! Parameters of a run, and their limits.

use quarry_core::era::Era;
use quarry_core::page::{CACHE_SHARE_BYTES, PageConfig};
use quarry_sim::Config;

use super::driver::{DRIVERS, RxDriver, Source};
use super::recycle::RxBuffer;
use crate::card::Card;
use crate::error::WorkError;

/// Ethernet header, which a received frame begins with.
pub const ETHERNET_BYTES: u32 = 14;
/// IPv4 header 20, TCP header 20, TCP timestamps 12.
pub const TCP_HEADER_BYTES: u32 = 52;
/// Bytes that GRO merges into one socket buffer at most: the length field of an IPv4 packet.
const GRO_BYTES_MAX: u32 = 65535;
/// Packets of a run, with those before counting starts ([`RxSpec::warm_up_packets`]): days of work,
/// and far from what counters hold.
pub const PACKETS_MAX: u64 = 1_000_000_000_000;

/// On which CPU a stream's reader runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// On the CPU of the stream's ring.
    Same,
    /// On a CPU without a ring; each has as many streams.
    Other,
    /// Anywhere; each CPU has as many streams.
    Spread,
}

quarry_ask::choice!(Consumer, Consumer::ALL);

impl Consumer {
    /// All of them with their names on the command line.
    pub const ALL: [(Consumer, &'static str); 3] = [
        (Consumer::Same, "same"),
        (Consumer::Other, "other"),
        (Consumer::Spread, "spread"),
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Parameters of one run.
#[derive(Clone, Debug)]
pub struct RxSpec {
    /// The driver of the receive queues.
    pub driver: &'static RxDriver,
    /// Release of the page allocator, the page cache rules and the socket buffers.
    pub era: Era,
    /// Receive queues; queue i is served by CPU i.
    pub rings: u32,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of a CPU's share of the last-level cache ([`PageConfig::cache_share_bytes`]).
    pub cache_share_bytes: u64,
    /// Bytes of the largest packet; all packets are of this size.
    pub mtu: u32,
    /// TCP streams; stream s arrives on ring s mod `rings`.
    pub streams: u32,
    /// CPUs that read them.
    pub consumer: Consumer,
    /// Packets that wait in a socket before its reader takes all that are there.
    pub backlog: u32,
    /// Work entries of each ring.
    pub descriptors: u32,
    /// Entries of the huge page cache.
    pub cache_entries: u32,
    /// Packets that are counted, all rings together: at least 1, and with
    /// [`RxSpec::warm_up_packets`] at most [`PACKETS_MAX`].
    pub packets: u64,
    /// Decides in which order streams send.
    pub seed: u64,
}

impl RxSpec {
    /// The thread's receiver: 128 streams, MTU 1500, a machine of 24 CPUs (the processor it names has
    /// 12 cores and 24 threads), Linux 4.13.
    ///
    /// Readers are on other CPUs than rings, as the thread says of TCP.
    ///
    /// Not in the thread, and assumed: work entries (the driver's default, 1024), what waits in a
    /// socket (60 packets, the 87380 bytes of the default receive buffer, `tcp_rmem`, in payloads of
    /// 1448), the entries of the huge cache (32768, more than ever wait), the memory.
    #[must_use]
    pub fn new(driver: &'static RxDriver, rings: u32) -> Self {
        Self {
            driver,
            era: Era::V4_13,
            rings,
            cpus: 24,
            page_bytes: 4096,
            memory_bytes: 16 << 30,
            cache_share_bytes: CACHE_SHARE_BYTES,
            mtu: 1500,
            streams: 128,
            consumer: Consumer::Other,
            backlog: 60,
            descriptors: Card::MLX5.posted,
            cache_entries: 32768,
            packets: 1_000_000,
            seed: 1,
        }
    }

    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        format!(
            "{}@{}, {} rings, {} CPUs, {}k pages",
            self.driver.name,
            self.era,
            self.rings,
            self.cpus,
            self.page_bytes >> 10
        )
    }

    /// Bytes of user data in a packet.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        self.mtu - TCP_HEADER_BYTES
    }

    /// Bytes of a received frame.
    #[must_use]
    pub fn frame_bytes(&self) -> u32 {
        self.mtu + ETHERNET_BYTES
    }

    /// Packets that GRO merges into one socket buffer: 45 of 1448 bytes.
    #[must_use]
    pub fn gro_packets(&self) -> u32 {
        (GRO_BYTES_MAX / self.payload_bytes()).max(1)
    }

    /// Packets before counting starts: each socket has been read several times, and each work entry
    /// posted.
    #[must_use]
    pub fn warm_up_packets(&self) -> u64 {
        let waiting = u64::from(self.streams) * u64::from(self.backlog + self.gro_packets());
        let posted = u64::from(self.rings) * u64::from(self.descriptors);
        4 * (waiting + posted)
    }

    pub(super) fn machine(&self) -> Config {
        Config {
            cpus: self.cpus,
            page_bytes: self.page_bytes,
            memory_bytes: self.memory_bytes,
            ..Config::default()
        }
    }

    pub(super) fn page_config(&self) -> PageConfig {
        PageConfig {
            cache_share_bytes: self.cache_share_bytes,
            ..PageConfig::new(self.era)
        }
    }

    pub(super) fn page_shift(&self) -> u32 {
        self.page_bytes.trailing_zeros()
    }

    /// Rejects contradictory parameters.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`].
    pub fn check(&self) -> Result<(), WorkError> {
        match self.wrong() {
            Some(message) => Err(WorkError::Usage(message)),
            None => Ok(()),
        }
    }

    fn wrong(&self) -> Option<String> {
        let Self {
            rings,
            cpus,
            streams,
            mtu,
            ..
        } = *self;
        if rings == 0 {
            return Some("rings must be at least 1".to_string());
        }
        // The machine would refuse it as well, but not before others have run.
        if let Err(refused) = self.machine().check() {
            return Some(refused.to_string());
        }
        if rings > cpus {
            return Some(format!(
                "rings must be at most the CPUs, {cpus}, not {rings}: each has a CPU of its own"
            ));
        }
        if rings == cpus && self.consumer == Consumer::Other {
            return Some(format!(
                "rings must be fewer than the CPUs, {cpus}: consumer other reads on one without a ring; take same or spread"
            ));
        }
        if streams < rings {
            return Some(format!(
                "streams must be at least the rings, {rings}, not {streams}"
            ));
        }
        if streams > 1 << 20 {
            return Some(format!(
                "streams must be at most {}, not {streams}",
                1 << 20
            ));
        }
        if !(68..=65535).contains(&mtu) || RxBuffer::linear(mtu, self.page_shift()).is_none() {
            return Some(format!("mtu must be 68 to 65535, as of IPv4, not {mtu}"));
        }
        if self.backlog == 0 || self.backlog > 1 << 20 {
            return Some(format!(
                "backlog must be 1 to {}, not {}",
                1 << 20,
                self.backlog
            ));
        }
        if !(1..=32768).contains(&self.descriptors) {
            return Some(format!(
                "descriptors must be 1 to 32768, not {}",
                self.descriptors
            ));
        }
        self.wrong_cache().or_else(|| self.wrong_amount())
    }

    fn wrong_cache(&self) -> Option<String> {
        let entries = self.cache_entries;
        if self.driver.source == Source::HugeCache
            && !(entries.is_power_of_two() && (2..=1 << 24).contains(&entries))
        {
            return Some(format!(
                "cache_entries must be a power of two from 2 to {}, not {entries}",
                1 << 24
            ));
        }
        None
    }

    fn wrong_amount(&self) -> Option<String> {
        let packets = self.packets;
        if !(1..=PACKETS_MAX).contains(&packets) {
            return Some(format!("packets must be 1 to {PACKETS_MAX}, not {packets}"));
        }
        let warm_up = self.warm_up_packets();
        if warm_up.saturating_add(packets) > PACKETS_MAX {
            let advice = match PACKETS_MAX.saturating_sub(warm_up) {
                0 => "ask for fewer streams or a smaller backlog".to_string(),
                most => format!("ask for 1 to {most}"),
            };
            return Some(format!(
                "packets must be at most {PACKETS_MAX} with the {warm_up} that fill sockets and rings, not {packets}; \
                 {advice}"
            ));
        }
        None
    }
}

/// Axes that runs are made from: every driver in every era and page size with every number of rings.
#[derive(Clone, Debug)]
pub struct RxAxes {
    /// Names of drivers.
    pub drivers: Vec<String>,
    /// Eras.
    pub eras: Vec<Era>,
    /// Page sizes in bytes.
    pub page_bytes: Vec<u64>,
    /// Numbers of rings.
    pub rings: Vec<u32>,
}

impl RxAxes {
    /// All combinations: drivers first, then eras, page sizes and rings; `base` says the rest.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a driver is unknown or the parameters are invalid.
    pub fn runs(&self, base: &RxSpec) -> Result<Vec<RxSpec>, WorkError> {
        let mut runs = Vec::new();
        for name in &self.drivers {
            let driver = RxDriver::named(name).ok_or_else(|| {
                let known: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
                WorkError::Usage(format!(
                    "there is no driver {name:?}; drivers are {}",
                    known.join(", ")
                ))
            })?;
            for &era in &self.eras {
                for &page_bytes in &self.page_bytes {
                    for &rings in &self.rings {
                        let run = RxSpec {
                            driver,
                            era,
                            page_bytes,
                            rings,
                            ..base.clone()
                        };
                        run.check()?;
                        runs.push(run);
                    }
                }
            }
        }
        Ok(runs)
    }
}
