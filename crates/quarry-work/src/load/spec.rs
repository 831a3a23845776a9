//! What a load is asked to do.

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_machines::{Draw, Machine};
use quarry_sim::Config;
use quarry_sim::driver::Driver;
use quarry_sim::sched::SchedRules;
use serde::Serialize;

use super::change::{Change, later};
use super::hackbench::Hackbench;
use super::own::Own;
use super::tbench::Tbench;
use super::tcp_rr::TcpRr;
use crate::config::checked;
use crate::error::WorkError;
use crate::net::{NetRules, SendSizes};
use crate::tuning::Tuning;
use crate::world::sim::{Counted, Later, Protocols, remote};
use crate::world::{DATAGRAMS_MAX, PIPE_PAGES, Transport, World};

/// Tasks of a run, at most: each has a stack of 256 KiB of address space.
const TASKS_MAX: u64 = 30_000;

/// Bytes of a datagram, at most: a send buffer has room for it with its head and shared info.
const DATAGRAM_BYTES_MAX: u32 = 64 << 10;

/// Bytes of a request or an answer between two machines, at most: the data of an Ethernet frame with TCP's options.
const FRAME_BYTES_MAX: u32 = 1448;

/// Simulated nanoseconds of a run, at most: a thousand seconds take days.
const TIME_NS_MAX: u64 = 1_000_000_000_000;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Load {
    /// hackbench.
    Hackbench(Hackbench),
    /// tbench.
    Tbench(Tbench),
    /// netperf's TCP_RR.
    TcpRr(TcpRr),
    /// The caller's.
    Own(Own),
}

impl Load {
    /// Its name on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hackbench(_) => "hackbench",
            Self::Tbench(_) => "tbench",
            Self::TcpRr(_) => "tcp_rr",
            Self::Own(it) => it.name,
        }
    }

    /// How large it is, in the program's own words.
    #[must_use]
    pub fn size(&self) -> (&'static str, u32) {
        match self {
            Self::Hackbench(it) => ("groups", it.groups),
            Self::Tbench(it) => ("clients", it.clients),
            Self::TcpRr(it) => ("pairs", it.pairs),
            Self::Own(it) => ("parts", it.size),
        }
    }

    /// Tasks.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        match self {
            Self::Hackbench(it) => it.tasks(),
            Self::Tbench(it) => it.tasks(),
            Self::TcpRr(it) => it.tasks(),
            Self::Own(it) => it.world().tasks.len() as u64,
        }
    }

    /// Bytes of the largest message.
    pub(super) fn largest_message(&self) -> u32 {
        match self {
            Self::Hackbench(it) => it.bytes,
            Self::Tbench(_) => super::tbench::largest_message(),
            Self::TcpRr(it) => it.request.max(it.response),
            Self::Own(it) => it.largest_message,
        }
    }

    /// Whether a connection of it goes to another machine.
    pub(super) fn is_remote(&self) -> bool {
        match self {
            Self::Hackbench(_) | Self::Tbench(_) => false,
            Self::TcpRr(it) => it.remote,
            Self::Own(it) => remote(&it.world().connections) > 0,
        }
    }

    /// Operations after which it ends by itself; `None` if it runs for a time.
    pub(super) fn operations(&self) -> Option<u64> {
        match self {
            Self::Hackbench(it) => Some(it.messages()),
            Self::Tbench(_) | Self::TcpRr(_) => None,
            Self::Own(it) => it.operations,
        }
    }

    /// Bytes that all sockets and pipes have at once, at most: each sender of a full one has looked before it was.
    pub(super) fn buffers_bytes(&self, rules: &NetRules, page_bytes: u64) -> u64 {
        let message =
            u64::from(self.largest_message()) + u64::from(rules.head_bytes + rules.shared_info);
        let (connections, of_one) = match self {
            Self::Hackbench(it) => {
                let senders = u64::from(it.descriptors) * message;
                let of_one = match it.transport {
                    Transport::Pipe => (PIPE_PAGES + 1) * page_bytes,
                    Transport::Datagram => DATAGRAMS_MAX as u64 * message + senders,
                    _ => u64::from(rules.send_buffer) + senders,
                };
                (u64::from(it.groups) * u64::from(it.descriptors), of_one)
            }
            // A request and a response: one is on its way, and the other one is not acknowledged.
            Self::Tbench(it) => (it.clients.into(), 2 * message),
            Self::TcpRr(it) => (it.pairs.into(), 2 * message),
            Self::Own(it) => {
                let connections = it.world().connections.len() as u64;
                (connections, u64::from(rules.send_buffer) + message)
            }
        };
        connections.saturating_mul(of_one)
    }

    /// Bytes of payload of a mean operation, where they are known beforehand.
    pub(super) fn mean_bytes(&self) -> Option<f64> {
        match self {
            Self::Tbench(_) => Some(super::tbench::mean_payload()),
            Self::Hackbench(_) | Self::TcpRr(_) | Self::Own(_) => None,
        }
    }

    pub(crate) fn set_up(&self, world: &mut World, seed: u64) {
        match self {
            Self::Hackbench(it) => it.set_up(world),
            Self::Tbench(it) => it.set_up(world, seed),
            Self::TcpRr(it) => it.set_up(world),
            Self::Own(it) => (it.set_up)(world, it.size, seed),
        }
    }

    /// Refuses what cannot be.
    pub(super) fn check(&self) -> Result<(), WorkError> {
        let refuse = |message: String| Err(WorkError::Usage(message));
        let (unit, n) = self.size();
        if n == 0 {
            return refuse(format!("0 {unit}: {} has at least one", self.name()));
        }
        let sizes = match self {
            Self::Hackbench(it) => {
                if it.descriptors == 0 || it.loops == 0 {
                    return refuse("0 descriptors or 0 loops: at least one of each".to_string());
                }
                if let Transport::Tcp | Transport::Remote(_) = it.transport {
                    let message =
                        "hackbench over TCP: its tasks use Unix sockets, datagrams or pipes";
                    return refuse(message.to_string());
                }
                let datagrams = it.transport == Transport::Datagram;
                if datagrams && it.bytes > DATAGRAM_BYTES_MAX {
                    return refuse(format!(
                        "datagrams of {} bytes: {DATAGRAM_BYTES_MAX} at most; a stream takes more",
                        it.bytes
                    ));
                }
                [it.bytes, it.bytes]
            }
            Self::Tbench(_) => [1, 1],
            Self::Own(it) => [it.largest_message; 2],
            Self::TcpRr(it) => {
                let larger = it.request.max(it.response);
                if it.remote && larger > FRAME_BYTES_MAX {
                    return refuse(format!(
                        "{larger} bytes between two machines: {FRAME_BYTES_MAX} at most, as frames are not split"
                    ));
                }
                [it.request, it.response]
            }
        };
        let most = 1 << 20;
        if let Some(bytes) = sizes.into_iter().find(|bytes| !(1..=most).contains(bytes)) {
            return refuse(format!("messages of {bytes} bytes: 1 to {most}"));
        }
        let tasks = self.tasks();
        if tasks > TASKS_MAX {
            return refuse(format!(
                "{tasks} tasks need {} MiB for their stacks alone: {TASKS_MAX} tasks are the most; ask for fewer {unit}",
                tasks / 4
            ));
        }
        Ok(())
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// What tasks do.
    pub load: Load,
    /// Nanoseconds before counting, of loads that run for a time.
    pub warm_up_ns: u64,
    /// Nanoseconds that are counted, of loads that run for a time.
    pub time_ns: u64,
    /// How tasks share CPUs.
    pub sched: SchedRules,
    /// Sizes of TCP's buffers.
    pub sizes: SendSizes,
    /// The protocols' work.
    pub protocols: Protocols,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Whose rules.
    pub era: Era,
    /// Its tunables.
    pub tuning: Tuning,
    /// Those of single caches.
    pub changes: Vec<Change>,
    /// What time costs.
    pub machine: Machine,
    /// Values of its costs.
    pub draw: Draw,
    /// Decides what is left to chance.
    pub seed: u64,
}

impl LoadSpec {
    /// A load on all CPUs of a machine with a release's defaults.
    #[must_use]
    pub fn new(load: Load, era: Era, machine: Machine) -> Self {
        Self {
            load,
            warm_up_ns: 5_000_000,
            time_ns: 50_000_000,
            sched: SchedRules::of(era),
            sizes: SendSizes::of(era),
            protocols: Protocols::PUBLISHED,
            cpus: machine.topology.all_cpus(),
            page_bytes: 4096,
            memory_bytes: 8 << 30,
            era,
            tuning: Tuning::default(),
            changes: Vec::new(),
            machine,
            draw: Draw::VALUES,
            seed: 1,
        }
    }

    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        let (unit, n) = self.load.size();
        format!(
            "{} with {n} {unit}, era {}, {} CPUs of {}",
            self.load.name(),
            self.era,
            self.cpus,
            self.machine.name
        )
    }

    /// The virtual machine.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if the run cannot be.
    pub fn config(&self) -> Result<Config, WorkError> {
        self.load.check()?;
        let wrong = match self.time_ns.saturating_add(self.warm_up_ns) {
            _ if self.time_ns == 0 => Some("0 seconds: a run takes some time"),
            ns if ns > TIME_NS_MAX => Some("a run takes 1000 s of simulated time at most"),
            _ => None,
        };
        if let Some(message) = wrong {
            return Err(WorkError::Usage(message.to_string()));
        }
        let base = Config {
            page_bytes: self.page_bytes,
            memory_bytes: self.memory_bytes,
            ..Config::default()
        };
        let machine = &self.machine;
        checked(machine.config(self.cpus, self.era, &self.draw, self.seed, base))
    }

    /// What is counted.
    pub(super) fn counted(&self) -> Counted {
        match self.load.operations() {
            Some(operations) => Counted::All(operations),
            None => Counted::Time {
                from_ps: self.warm_up_ns * 1000,
                to_ps: (self.warm_up_ns + self.time_ns) * 1000,
            },
        }
    }

    /// Sets the caches' tunables.
    pub(super) fn set_caches<D: Design>(&self, driver: &Driver<'_, D>) -> Result<(), WorkError> {
        let mut result = Ok(());
        driver.for_each_cache(|cache| {
            if result.is_ok() {
                result = self.tuning.set_cache(&cache, &|| self.label());
            }
        });
        result?;
        let mut first = self.changes.iter().filter(|change| change.at_ns == 0);
        first.try_for_each(|change| self.set(change, driver))
    }

    /// Sets a tunable of single caches.
    fn set<D: Design>(&self, change: &Change, driver: &Driver<'_, D>) -> Result<(), WorkError> {
        change.set(&|| self.label(), |each| {
            driver.for_each_cache(|cache| {
                each(cache.head().name(), &|| {
                    cache.set_attribute(change.name, change.value)
                });
            });
        })
    }

    /// What is set while the load runs.
    pub(super) fn later<'d, D: Design>(&'d self, driver: &'d Driver<'_, D>) -> Vec<Later<'d>> {
        let later = later(&self.changes).into_iter();
        let later = later.map(|change| Later {
            at_ns: change.at_ns,
            run: Box::new(move || self.set(change, driver)),
        });
        later.collect()
    }
}
