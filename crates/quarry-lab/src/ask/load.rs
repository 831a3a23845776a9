//! The classic loads.

use std::time::Duration;

use quarry_ask::{
    Axis, Bytes, DesignName, Listed, PageBytes, Part, Release, Settings, Size, Time, question,
};
use quarry_designs::units::nanoseconds;
use quarry_designs::{DesignSpec, Tuning, resolve};
use quarry_machines::{Key, Machine, Unit};
use quarry_work::load::host::HostSpec;
use quarry_work::load::{
    self, Change, HostRun, Load, LoadRun, LoadSpec, MEMORY_BYTES, Test, WakeOrder, WakePlace,
};
use quarry_work::net::SendSizes;
use quarry_work::world::Transport;
use quarry_work::{Setup, WorkError, run_all};

use super::answers::{Answer, Answers, Cost, How, InputSize, Ready};
use super::{Clock, HeapFile};
use crate::booted::Booted;
use crate::error::LabError;
use quarry_state::PartialSlabs;

/// Time that is counted on real threads.
const HOST_TIME: Duration = Duration::from_secs(2);

question! {
    /// The kernel of a load.
    pub struct Kernel {
        /// Begin on the heap of a real kernel that has run: one bundled report for all designs, the nearest to their releases.
        booted: Axis<bool>, not_with(&["heap"]);
        /// Begin on the heap of a machine that has run: a snapshot, FILE#STAGE for a stage of one, or a recording with one, of
        /// any kernel.
        heap: Axis<HeapFile>, long("initial"), value("FILE[#STAGE]"), hidden(), local();
        /// Slabs that share the free places which the report does not place: few (each is nearly empty), many (each has few
        /// free places), or expected.
        partial_slabs: Axis<PartialSlabs> = "expected", value("NUMBER");
        /// Memory of each virtual machine. Only what is used becomes resident.
        memory: Axis<Bytes> = "16G", value("BYTES");
        /// Release whose rules designs without one have.
        era: Axis<Release>, value("ERA");
        /// Designs, each with an era of its own or that of --era. Without it, the designs of a thread
        /// about the load.
        design: Axis<DesignName>, value("DESIGN[@ERA]"), inner();
        /// Page size: 4k, 16k, 64k.
        page_size: Axis<PageBytes> = "4k", value("BYTES");
        /// CPUs; all of the machine by default.
        cpus: Axis<u32>, value("N"), inner();
    }
}

question! {
    /// Rules and tunables of a load.
    pub struct Rules {
        /// Count the start, too. By default counting begins when nine of ten receivers of hackbench have
        /// read a full socket, on top of the messages that are asked for; after a fifth of tbench's time, as its program does; after
        /// a tenth of TCP_RR's, whose program counts all of 10 seconds.
        count_start: Axis<bool>;
        /// Moment at which a woken task runs: immediate (2.6.22), queued (2.6.23), fair (to 6.5), deadline
        /// (later). By default as in the era.
        wake_order: Axis<WakeOrder>, value("NAME");
        /// CPU on which a woken task runs: previous, affine, idle. By default as in the era.
        wake_place: Axis<WakePlace>, value("NAME");
        /// Sizes of TCP's buffers up to 2.6.26: old (2.6.23), bug (2.6.24-rc2), fixed (2.6.24),
        /// select-size (an experiment). By default as in the era.
        skb_sizes: Axis<SendSizes>, value("NAME");
        /// Set a tunable of one cache while the load runs; may be repeated. At 0s it is set before.
        at: Listed<String>, value("TIME:CACHE.NAME=VALUE");
        /// Set a tunable of all caches; may be repeated. For one design: slub.cpu_partial=0,
        /// slub@6.1.cpu_partial=0; a sysctl of the page allocator: page.min_free_kbytes=8192.
        set: Settings, value("[DESIGN[@ERA].]NAME=VALUE");
    }
}

question! {
    /// Groups of tasks that write to each other.
    pub struct Hackbench {
        /// Machine and seed.
        clock: Clock;
        /// Kernel.
        kernel: Kernel;
        /// Groups of senders and receivers.
        groups: Axis<u32> = "10", short('g'), value("N"), inner(), size();
        /// Descriptors: senders of a group, and receivers.
        fds: Axis<u32> = "20", short('f'), value("N");
        /// Messages that a sender writes to each receiver of its group.
        loops: Axis<u32> = "100", short('l'), value("N");
        /// Bytes of a message.
        datasize: Axis<Size> = "100", short('s'), value("BYTES");
        /// Sockets: unix, datagram (at most 11 messages wait for a receiver, where a stream has some hundred) or pipe.
        transport: Axis<Transport> = "unix", long("pipe"), value("NAME"), hidden();
        /// Rules and tunables.
        rules: Rules;
    }
}

question! {
    /// dbench's requests over TCP on loopback.
    pub struct Tbench {
        /// Machine and seed.
        clock: Clock;
        /// Kernel.
        kernel: Kernel;
        /// Clients, each with a server.
        clients: Axis<u32> = "8", value("CLIENTS"), positional(), inner(), size();
        /// Time that is counted, after a fifth of it: 50ms of simulated time, or 2s with --host.
        time: Axis<Time>, long("timelimit"), short('t'), value("TIME");
        /// Rules and tunables.
        rules: Rules;
    }
}

question! {
    /// netperf's TCP_RR: a byte to and fro.
    pub struct TcpRr {
        /// Machine and seed.
        clock: Clock;
        /// Kernel.
        kernel: Kernel;
        /// Pairs of a netperf and a netserver.
        pairs: Axis<u32> = "8", short('n'), value("N"), inner(), size();
        /// Bytes of a request.
        request: Axis<Size> = "1", long("sizes"), value("BYTES"), hidden();
        /// Bytes of a response.
        response: Axis<Size> = "1", long("sizes"), value("BYTES"), hidden();
        /// The servers are on another machine, which is not simulated: packets come to CPU 0.
        remote: Axis<bool>;
        /// Way of a request to the other machine and of its answer, without waits for interrupts.
        round_trip: Axis<Time> = "40us", value("TIME"), needs(&["remote"]);
        /// Queues of the card, on CPUs 0 to N-1.
        queues: Axis<u32> = "4", value("N"), needs(&["remote"]);
        /// Time from an interrupt of a queue to its next one, at least, on both machines.
        interrupt_every: Axis<Time> = "50us", value("TIME"), needs(&["remote"]);
        /// Work of the card's driver for a packet.
        packet: Axis<Time> = "0.3us", value("TIME"), needs(&["remote"]);
        /// Time that is counted, after a tenth of it: 50ms of simulated time, or 2s with --host.
        time: Axis<Time>, long("length"), short('l'), value("TIME");
        /// Rules and tunables.
        rules: Rules;
    }
}

question! {
    /// will-it-scale: processes that map memory and touch it, or open files.
    pub struct WillItScale {
        /// Machine and seed.
        clock: Clock;
        /// Kernel.
        kernel: Kernel;
        /// Tests: page_fault1, page_fault2 (a private mapping of a file), mmap1, brk1, open1.
        test: Axis<Test> = "page_fault1", value("TEST"), positional(), inner();
        /// Processes.
        tasks: Axis<u32> = "4", short('t'), value("N"), inner(), size();
        /// Pages that a process of page_fault1 and page_fault2 maps.
        pages: Axis<u32> = "32768", value("N");
        /// Time that is counted, after a tenth of it.
        time: Axis<Time> = "50ms", short('s'), value("TIME");
        /// Rules and tunables.
        rules: Rules;
    }
}

/// A load as users ask for it.
pub trait AskLoad: Part {
    /// Designs of a published thread about the load.
    const PUBLISHED: [&'static str; 3];

    /// The groups that all loads have: machine and seed, kernel, and rules.
    fn parts(&self) -> (&Clock, &Kernel, &Rules);

    /// Time that is counted; `None` is usual.
    fn time(&self) -> Option<Duration> {
        None
    }

    /// The loads, which differ in size.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if an option is out of range.
    fn loads(&self) -> Result<Vec<Load>, WorkError>;

    /// The machine with the costs of the network that the load uses.
    fn on_network(&self, machine: Machine) -> Machine {
        machine
    }

    /// All runs on a machine: each page size, load, number of CPUs and design.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a design, a tunable or a rule does not exist, or the machine cannot have the CPUs.
    fn runs(&self) -> Result<(Machine, Vec<LoadRun>), WorkError> {
        let (clock, kernel, rules) = self.parts();
        let (machine, draw) = clock.machine().map_err(usage)?;
        let machine = self.on_network(machine);
        let designs = self.designs()?;
        let tunings = rules.tunings(&designs)?;
        let cpus = kernel.cpus.or_all([machine.topology.all_cpus()]);
        let mut runs = Vec::new();
        for page_bytes in kernel.page_bytes() {
            for load in self.loads()? {
                for &cpus in &cpus {
                    for (&design, tuning) in designs.iter().zip(&tunings) {
                        let setup = Setup {
                            page_bytes,
                            memory_bytes: kernel.memory_bytes(),
                            tuning: tuning.clone(),
                            draw: draw.clone(),
                            seed: clock.seed.or(1),
                            ..Setup::new(design.era, machine.clone())
                        };
                        let mut spec = LoadSpec::new(load, setup);
                        spec.cpus = cpus;
                        spec.changes = rules.changes(&design)?;
                        spec.sched.order = rules.wake_order.or(spec.sched.order);
                        spec.sched.place = rules.wake_place.or(spec.sched.place);
                        spec.sizes = rules.skb_sizes.or(spec.sizes);
                        spec.count_start = rules.count_start.is_true();
                        spec.time_ns = self.time().map_or(spec.time_ns, nanoseconds);
                        spec.config()?;
                        runs.push(LoadRun { design, spec });
                    }
                }
            }
        }
        Ok((machine, runs))
    }

    /// The runs on this computer: each load with each design.
    ///
    /// # Errors
    ///
    /// As [`Self::runs`].
    fn host_runs(&self) -> Result<Vec<HostRun>, WorkError> {
        let (clock, kernel, rules) = self.parts();
        let designs = self.designs()?;
        let tunings = rules.tunings(&designs)?;
        let mut runs = Vec::new();
        for page_bytes in kernel.page_bytes() {
            for load in self.loads()? {
                for (&design, tuning) in designs.iter().zip(&tunings) {
                    let spec = HostSpec {
                        load,
                        time: self.time().unwrap_or(HOST_TIME),
                        era: design.era,
                        sizes: rules.skb_sizes.or(SendSizes::of(design.era)),
                        tuning: tuning.clone(),
                        changes: rules.changes(&design)?,
                        page_bytes,
                        memory_bytes: kernel.memory_bytes(),
                        seed: clock.seed.or(1),
                    };
                    spec.check()?;
                    runs.push(HostRun { design, spec });
                }
            }
        }
        Ok(runs)
    }

    /// The designs.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a release does not have one.
    fn designs(&self) -> Result<Vec<DesignSpec>, WorkError> {
        let (_, kernel, _) = self.parts();
        let era = kernel.era.one().map(|release| release.era);
        let designs: Result<_, _> = match kernel.design.all() {
            [] => Self::PUBLISHED.into_iter().map(DesignSpec::parse).collect(),
            asked => asked.iter().map(|name| name.in_era(era)).collect(),
        };
        Ok(designs?)
    }
}

fn usage(error: impl ToString) -> WorkError {
    WorkError::Usage(error.to_string())
}

impl Kernel {
    /// State in which runs of some designs begin; `None` for an empty heap.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if an empty heap is to have partial slabs.
    pub fn start(&self, designs: &[DesignSpec]) -> Result<Option<Booted>, WorkError> {
        start(&self.heap, &self.booted, &self.partial_slabs, designs).map_err(usage)
    }

    fn page_bytes(&self) -> impl Iterator<Item = u64> {
        page_bytes(&self.page_size).into_iter()
    }

    fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.memory)
    }
}

impl Rules {
    /// Tunables of all caches for each design.
    fn tunings(&self, designs: &[DesignSpec]) -> Result<Vec<Tuning>, WorkError> {
        tunings(&self.set, designs)
    }

    /// Changes of single caches for a design.
    fn changes(&self, design: &DesignSpec) -> Result<Vec<Change>, WorkError> {
        let all = self.at.0.iter();
        all.map(|text| load::change(text, design)).collect()
    }
}

/// State in which a comparison of designs begins; `None` for an empty heap.
pub(super) fn start(
    heap: &Axis<HeapFile>,
    booted: &Axis<bool>,
    partial_slabs: &Axis<PartialSlabs>,
    designs: &[DesignSpec],
) -> Result<Option<Booted>, &'static str> {
    let of_file = heap.one().map(|file| file.booted.clone());
    let bundled = || booted.is_true().then(|| Booted::bundled(designs));
    let start = of_file.or_else(bundled);
    if start.is_none() && !partial_slabs.is_empty() {
        return Err("partial-slabs: an empty heap has none: add booted or initial");
    }
    let partial_slabs = partial_slabs.or(PartialSlabs::Expected);
    Ok(start.map(|start| start.with_partial_slabs(partial_slabs)))
}

/// Settings of one value each, for each design.
pub(super) fn tunings(set: &Settings, designs: &[DesignSpec]) -> Result<Vec<Tuning>, WorkError> {
    let parsed = set.parsed().map_err(usage)?;
    if let Some(list) = parsed.lists.first().and_then(|list| list.first()) {
        return Err(usage(format!(
            "set {}: give one value here; a sweep takes lists",
            list.name()
        )));
    }
    if let Some(value) = parsed.debug.first() {
        return Err(usage(format!(
            "set slub_debug={value}: loads run without debugging"
        )));
    }
    Ok(resolve(&parsed.single, designs)?)
}

impl AskLoad for Hackbench {
    const PUBLISHED: [&'static str; 3] = ["slab@2.6.35", "slub@2.6.35", "slubq@2.6.35"];

    fn parts(&self) -> (&Clock, &Kernel, &Rules) {
        (&self.clock, &self.kernel, &self.rules)
    }

    fn loads(&self) -> Result<Vec<Load>, WorkError> {
        let usual = load::Hackbench::default();
        let load = |groups| {
            Load::Hackbench(load::Hackbench {
                groups,
                descriptors: self.fds.or(usual.descriptors),
                loops: self.loops.or(usual.loops),
                bytes: self.datasize.or(Size(usual.bytes)).0,
                transport: self.transport.or(usual.transport),
            })
        };
        Ok(self
            .groups
            .or_all([usual.groups])
            .into_iter()
            .map(load)
            .collect())
    }
}

impl AskLoad for Tbench {
    const PUBLISHED: [&'static str; 3] = ["slab@2.6.24", "slub@2.6.24", "slob@2.6.24"];

    fn parts(&self) -> (&Clock, &Kernel, &Rules) {
        (&self.clock, &self.kernel, &self.rules)
    }

    fn time(&self) -> Option<Duration> {
        self.time.one().map(|time| time.time)
    }

    fn loads(&self) -> Result<Vec<Load>, WorkError> {
        let usual = load::Tbench::default().clients;
        let load = |clients| Load::Tbench(load::Tbench { clients });
        Ok(self.clients.or_all([usual]).into_iter().map(load).collect())
    }
}

impl AskLoad for TcpRr {
    const PUBLISHED: [&'static str; 3] = ["slab@2.6.35", "slub@2.6.35", "slubq@2.6.35"];

    fn parts(&self) -> (&Clock, &Kernel, &Rules) {
        (&self.clock, &self.kernel, &self.rules)
    }

    fn time(&self) -> Option<Duration> {
        self.time.one().map(|time| time.time)
    }

    fn on_network(&self, machine: Machine) -> Machine {
        if !self.remote.is_true() {
            return machine;
        }
        let ns = |time: &Time| nanoseconds(time.time) as f64;
        let given = [
            (Key::RoundTrip, Unit::Ns, self.round_trip.one().map(ns)),
            (
                Key::InterruptEvery,
                Unit::Ns,
                self.interrupt_every.one().map(ns),
            ),
            (
                Key::Queues,
                Unit::Queues,
                self.queues.one().map(|queues| f64::from(*queues)),
            ),
            (Key::Packet, Unit::Ns, self.packet.one().map(ns)),
        ];
        let with = |machine: Machine, (key, unit, value)| match value {
            Some(value) => machine.given(key, unit, value),
            None => machine,
        };
        given.into_iter().fold(machine, with).with_network()
    }

    fn loads(&self) -> Result<Vec<Load>, WorkError> {
        if self.queues.one() == Some(&0) {
            return Err(usage("queues must be at least 1"));
        }
        let usual = load::TcpRr::default();
        let load = |pairs| {
            Load::TcpRr(load::TcpRr {
                pairs,
                request: self.request.or(Size(usual.request)).0,
                response: self.response.or(Size(usual.response)).0,
                remote: self.remote.is_true(),
            })
        };
        Ok(self
            .pairs
            .or_all([usual.pairs])
            .into_iter()
            .map(load)
            .collect())
    }
}

impl AskLoad for WillItScale {
    const PUBLISHED: [&'static str; 3] = ["slub@6.17", "sheaf@6.18", "sheaf@7.0"];

    fn parts(&self) -> (&Clock, &Kernel, &Rules) {
        (&self.clock, &self.kernel, &self.rules)
    }

    fn time(&self) -> Option<Duration> {
        self.time.one().map(|time| time.time)
    }

    fn loads(&self) -> Result<Vec<Load>, WorkError> {
        let usual = load::WillItScale::default();
        let mut loads = Vec::new();
        for test in self.test.or_all([usual.test]) {
            for tasks in self.tasks.or_all([usual.tasks]) {
                let pages = self.pages.or(usual.pages);
                loads.push(Load::WillItScale(load::WillItScale { test, tasks, pages }));
            }
        }
        Ok(loads)
    }
}

/// Page sizes of what runs in simulated time: 4 KiB is usual.
pub(super) fn page_bytes(asked: &Axis<PageBytes>) -> Vec<u64> {
    let sizes = asked.or_all([PageBytes(4096)]).into_iter();
    sizes.map(|size| size.0).collect()
}

/// Memory of a virtual machine, or as much as is usual.
pub(super) fn memory_bytes(asked: &Axis<Bytes>) -> u64 {
    asked.or(Bytes(MEMORY_BYTES)).0
}

/// Steps of a run that tells its per cent.
const STEPS: u64 = 100;

/// Answers of loads.
macro_rules! answers {
    ($($of:ty),*) => {$(
        impl Answers for $of {
            fn begin(&mut self, heap: HeapFile) -> Result<(), LabError> {
                if self.kernel.booted.is_true() {
                    let problem = "initial and booted are two states: give one of them";
                    return Err(LabError::Usage(problem.to_string()));
                }
                self.kernel.heap = heap.into();
                Ok(())
            }

            fn steps(&self, _: &Ready<'_>) -> Result<u64, LabError> {
                let (_, runs) = self.runs()?;
                Ok(STEPS.saturating_mul(runs.len() as u64))
            }

            fn cost(&self, _: InputSize) -> Cost {
                Cost::of_load(1000)
            }

            fn answer(&self, _: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
                let (_, runs) = self.runs()?;
                let start = self.kernel.start(&self.designs()?)?;
                let runs = run_all(&runs, how.jobs, |run| run.run_from(&start, how.progress))?;
                Answer::apart(runs, |run| std::mem::take(&mut run.caches), how)
            }
        }
    )*};
}

answers!(Hackbench, Tbench, TcpRr, WillItScale);
