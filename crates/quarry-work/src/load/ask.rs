//! Loads as users ask for them: texts of designs, tunables and rules, and all that is filled in where they say nothing.

use std::time::Duration;

use quarry_core::design::Design;
use quarry_core::tunables::Scope;
use quarry_designs::units::{nanoseconds, parse_duration};
use quarry_designs::{
    DesignError, DesignSpec, ForDesign, Setting, Tuning, list, parse_era, resolve,
};
use quarry_machines::Machine;

use super::host::{self, HostReport, HostSpec};
use super::{Change, Hackbench, Load, LoadReport, LoadSpec, Tbench, TcpRr, WakeOrder, WakePlace};
use crate::error::WorkError;
use crate::net::SendSizes;
use crate::progress::Progress;
use crate::setup::Setup;
use crate::start::{Empty, Start};
use crate::world::Transport;

/// Memory of a virtual machine if nothing is asked for.
pub const MEMORY_BYTES: u64 = 16 << 30;

/// Loads on every number of CPUs and every design.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Loads of one kind, which differ in size.
    pub loads: Vec<Load>,
    /// Designs, `DESIGN[@ERA]`; if empty those of a thread about the load.
    pub designs: Vec<String>,
    /// Release whose rules designs without one have.
    pub era: Option<String>,
    /// Numbers of CPUs; if empty all of the machine.
    pub cpus: Vec<u32>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of each machine's memory.
    pub memory_bytes: u64,
    /// Tunables of all caches, `[DESIGN[@ERA].]NAME=VALUE`.
    pub set: Vec<String>,
    /// Tunables of one cache, set while the load runs: `TIME:CACHE.NAME=VALUE`.
    pub at: Vec<String>,
    /// Moment at which a woken task runs; by default as in the era.
    pub wake_order: Option<String>,
    /// CPU on which a woken task runs; by default as in the era.
    pub wake_place: Option<String>,
    /// Sizes of TCP's buffers; by default as in the era.
    pub skb_sizes: Option<String>,
    /// Time that is counted of loads that run for a time, after a part of it; by default 50 ms, 2 s on real threads.
    pub time: Option<Duration>,
    /// The start of a run is counted, too: [`LoadSpec::count_start`].
    pub count_start: bool,
    /// Decides what is left to chance.
    pub seed: u64,
}

/// Options of a load beside its size; what is `None` is as its command has it.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// hackbench: senders of a group, and receivers.
    pub fds: Option<u32>,
    /// hackbench: messages that a sender writes to each receiver.
    pub loops: Option<u32>,
    /// hackbench: bytes of a message.
    pub datasize: Option<u64>,
    /// hackbench: a name of [`Transport::OF_HACKBENCH`].
    pub transport: Option<String>,
    /// TCP_RR: bytes of a request, and of a response.
    pub sizes: [Option<u32>; 2],
    /// TCP_RR: the servers are on another machine, which is not simulated.
    pub remote: Option<bool>,
}

/// A load in simulated time on a design.
#[derive(Clone, Debug)]
pub struct LoadRun {
    /// The design.
    pub design: DesignSpec,
    /// All else.
    pub spec: LoadSpec,
}

/// A load on real threads with a design.
#[derive(Clone, Debug)]
pub struct HostRun {
    /// The design.
    pub design: DesignSpec,
    /// All else.
    pub spec: HostSpec,
}

impl Load {
    /// Names of the loads that a user can ask for.
    pub const NAMES: [&str; 3] = ["hackbench", "tbench", "tcp_rr"];

    /// A load by its name, of this size, with the options of its command; by default of the size that its command has.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] with the names if it is none of them.
    pub fn named(name: &str, size: Option<u32>) -> Result<Self, WorkError> {
        let mut load = match name {
            "hackbench" => Self::Hackbench(Hackbench::default()),
            "tbench" => Self::Tbench(Tbench::default()),
            "tcp_rr" => Self::TcpRr(TcpRr::default()),
            _ => {
                let known = list(Self::NAMES);
                return Err(WorkError::Usage(format!(
                    "there is no load {name:?}; there are {known}"
                )));
            }
        };
        match (&mut load, size) {
            (_, None) | (Self::Own(_), _) => {}
            (Self::Hackbench(it), Some(size)) => it.groups = size,
            (Self::Tbench(it), Some(size)) => it.clients = size,
            (Self::TcpRr(it), Some(size)) => it.pairs = size,
        }
        Ok(load)
    }

    /// The load with these options.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if one is of another load or out of range.
    pub fn with(mut self, options: &LoadOptions) -> Result<Self, WorkError> {
        let of_hackbench = [
            ("fds", options.fds.is_some()),
            ("loops", options.loops.is_some()),
            ("datasize", options.datasize.is_some()),
            ("transport", options.transport.is_some()),
        ];
        let of_tcp_rr = [
            ("sizes", options.sizes.iter().any(Option::is_some)),
            ("remote", options.remote.is_some()),
        ];
        let name = self.name();
        let refuse = |options: &[(&str, bool)]| match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(WorkError::Usage(format!("{name} has no option {option}"))),
            None => Ok(()),
        };
        if !matches!(self, Self::Hackbench(_)) {
            refuse(&of_hackbench)?;
        }
        if !matches!(self, Self::TcpRr(_)) {
            refuse(&of_tcp_rr)?;
        }
        match &mut self {
            Self::Hackbench(it) => {
                it.descriptors = options.fds.unwrap_or(it.descriptors);
                it.loops = options.loops.unwrap_or(it.loops);
                if let Some(bytes) = options.datasize {
                    it.bytes = u32::try_from(bytes)
                        .map_err(|_| WorkError::Usage(format!("{bytes} bytes a message")))?;
                }
                let transport = options.transport.as_deref();
                let transport = named("transport", &Transport::OF_HACKBENCH, transport)?;
                it.transport = transport.unwrap_or(it.transport);
            }
            Self::TcpRr(it) => {
                let [request, response] = options.sizes;
                it.request = request.unwrap_or(it.request);
                it.response = response.unwrap_or(it.response);
                it.remote = options.remote.unwrap_or(it.remote);
            }
            Self::Tbench(_) | Self::Own(_) => {}
        }
        Ok(self)
    }

    /// Designs of a published thread about the load.
    fn published_designs(&self) -> &'static [&'static str] {
        match self {
            Self::Tbench(_) => &["slab@2.6.24", "slub@2.6.24", "slob@2.6.24"],
            _ => &["slab@2.6.35", "slub@2.6.35", "slubq@2.6.35"],
        }
    }

    /// True if it runs for a time, and not until its tasks are done.
    fn is_timed(&self) -> bool {
        !matches!(self, Self::Hackbench(_))
    }
}

impl Ask {
    /// Loads with the defaults of the command.
    #[must_use]
    pub fn new(loads: Vec<Load>) -> Self {
        Self {
            loads,
            designs: Vec::new(),
            era: None,
            cpus: Vec::new(),
            page_bytes: 4096,
            memory_bytes: MEMORY_BYTES,
            set: Vec::new(),
            at: Vec::new(),
            wake_order: None,
            wake_place: None,
            skb_sizes: None,
            time: None,
            count_start: false,
            seed: 1,
        }
    }

    /// All runs on a machine: each load on each number of CPUs with each design.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a design, a tunable or a rule does not exist, or the machine cannot have the CPUs.
    pub fn runs(&self, machine: &Machine) -> Result<Vec<LoadRun>, WorkError> {
        let designs = self.designs()?;
        let tunings = self.tunings(&designs)?;
        let order = named("wake order", &WakeOrder::ALL, self.wake_order.as_deref())?;
        let place = named("wake place", &WakePlace::ALL, self.wake_place.as_deref())?;
        let sizes = named("skb sizes", &SendSizes::ALL, self.skb_sizes.as_deref())?;
        let all = [machine.topology.all_cpus()];
        let cpus = match self.cpus.as_slice() {
            [] => all.as_slice(),
            some => some,
        };
        let mut runs = Vec::new();
        for load in &self.loads {
            for &cpus in cpus {
                for (&design, tuning) in designs.iter().zip(&tunings) {
                    let setup = Setup {
                        page_bytes: self.page_bytes,
                        memory_bytes: self.memory_bytes,
                        tuning: tuning.clone(),
                        seed: self.seed,
                        ..Setup::new(design.era, machine.clone())
                    };
                    let mut spec = LoadSpec::new(*load, setup);
                    spec.cpus = cpus;
                    spec.changes = self.changes(&design)?;
                    spec.sched.order = order.unwrap_or(spec.sched.order);
                    spec.sched.place = place.unwrap_or(spec.sched.place);
                    spec.sizes = sizes.unwrap_or(spec.sizes);
                    spec.count_start = self.count_start;
                    if let (true, Some(time)) = (load.is_timed(), self.time) {
                        spec.time_ns = nanoseconds(time);
                    }
                    spec.config()?;
                    runs.push(LoadRun { design, spec });
                }
            }
        }
        Ok(runs)
    }

    /// The runs on this computer: each load with each design.
    ///
    /// # Errors
    ///
    /// As [`Self::runs`].
    pub fn host_runs(&self) -> Result<Vec<HostRun>, WorkError> {
        let designs = self.designs()?;
        let tunings = self.tunings(&designs)?;
        let sizes = named("skb sizes", &SendSizes::ALL, self.skb_sizes.as_deref())?;
        let mut runs = Vec::new();
        for load in &self.loads {
            for (&design, tuning) in designs.iter().zip(&tunings) {
                let spec = HostSpec {
                    load: *load,
                    time: self.time.unwrap_or(Duration::from_secs(2)),
                    era: design.era,
                    sizes: sizes.unwrap_or(SendSizes::of(design.era)),
                    tuning: tuning.clone(),
                    changes: self.changes(&design)?,
                    page_bytes: self.page_bytes,
                    memory_bytes: self.memory_bytes,
                    seed: self.seed,
                };
                spec.check()?;
                runs.push(HostRun { design, spec });
            }
        }
        Ok(runs)
    }

    fn designs(&self) -> Result<Vec<DesignSpec>, WorkError> {
        let texts: Vec<&str> = match self.designs.as_slice() {
            [] => {
                let load = self.loads.first();
                load.map_or(Vec::new(), |load| load.published_designs().to_vec())
            }
            asked => asked.iter().map(String::as_str).collect(),
        };
        let era = self.era.as_deref().map(parse_era).transpose()?;
        let parse = |text: &str| match era {
            Some(era) if !text.contains('@') => DesignSpec::parse(&format!("{text}@{era}")),
            _ => DesignSpec::parse(text),
        };
        Ok(texts.into_iter().map(parse).collect::<Result<_, _>>()?)
    }

    /// Tunables of all caches for each design.
    fn tunings(&self, designs: &[DesignSpec]) -> Result<Vec<Tuning>, WorkError> {
        let settings = self.set.iter().map(|text| Setting::parse(text));
        let settings: Vec<Setting> = settings.collect::<Result<_, _>>()?;
        Ok(resolve(&settings, designs)?)
    }

    /// Changes of single caches for a design.
    fn changes(&self, design: &DesignSpec) -> Result<Vec<Change>, WorkError> {
        self.at.iter().map(|text| change(text, design)).collect()
    }
}

impl LoadRun {
    /// Runs it, as [`super::run`] does.
    ///
    /// # Errors
    ///
    /// As [`super::run`].
    pub fn run(&self, progress: &dyn Progress) -> Result<LoadReport, WorkError> {
        self.run_from(&Empty, progress)
    }

    /// Runs it on a heap that begins as `start` says, as [`super::run_from`] does.
    ///
    /// # Errors
    ///
    /// As [`super::run_from`].
    pub fn run_from(
        &self,
        start: &impl Start,
        progress: &dyn Progress,
    ) -> Result<LoadReport, WorkError> {
        struct Run<'a, S>(&'a LoadSpec, &'a S, &'a dyn Progress);
        impl<S: Start> ForDesign for Run<'_, S> {
            type Output = Result<LoadReport, WorkError>;

            fn run<D: Design>(self) -> Self::Output {
                super::run_from::<D>(self.0, self.1, self.2)
            }
        }
        self.design.design.run(Run(&self.spec, start, progress))
    }
}

impl HostRun {
    /// Runs it, as [`host::run`] does.
    ///
    /// # Errors
    ///
    /// As [`host::run`].
    pub fn run(&self) -> Result<HostReport, WorkError> {
        struct Run<'a>(&'a HostSpec);
        impl ForDesign for Run<'_> {
            type Output = Result<HostReport, WorkError>;

            fn run<D: Design>(self) -> Self::Output {
                host::run::<D>(self.0)
            }
        }
        self.design.design.run(Run(&self.spec))
    }
}

/// Parses `TIME:CACHE.NAME=VALUE`.
fn change(text: &str, design: &DesignSpec) -> Result<Change, WorkError> {
    let wrong = |problem: String| {
        WorkError::Usage(format!(
            "--at {text:?}: {problem}; write TIME:CACHE.NAME=VALUE, for example 2s:kmalloc-4096.cpu_partial=8"
        ))
    };
    let parts = text.split_once(':').and_then(|(time, rest)| {
        let (left, value) = rest.split_once('=')?;
        let (cache, name) = left.rsplit_once('.')?;
        Some((time, cache, name, value))
    });
    let (time, cache, name, value) =
        parts.ok_or_else(|| wrong("it does not have this form".to_string()))?;
    let time = parse_duration(time).map_err(wrong)?;
    let value = value
        .parse()
        .map_err(|_| wrong(format!("{value:?} is not a number from 0 on")))?;
    let tunable = design.design.tunables.check(design.era, name, value);
    let tunable = tunable.map_err(|error| wrong(format!("{design}: {error}")))?;
    if !matches!(tunable.scope, Scope::Cache | Scope::Own) {
        return Err(wrong(format!(
            "{name} is set for all caches, before they are made"
        )));
    }
    Ok(Change {
        at_ns: nanoseconds(time),
        cache: cache.to_string(),
        name: tunable.name,
        value,
    })
}

/// The value with a name; `None` if none is given.
fn named<T: Copy>(
    what: &str,
    all: &[(T, &str)],
    name: Option<&str>,
) -> Result<Option<T>, DesignError> {
    let value = name.map(|name| quarry_designs::named(what, all, name));
    value.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_has_its_name_and_takes_a_size() {
        for name in Load::NAMES {
            let load = Load::named(name, Some(3)).unwrap();
            assert_eq!((load.name(), load.size().1), (name, 3));
        }
        let none = Load::named("dbench", None).unwrap_err().to_string();
        assert_eq!(
            none,
            "there is no load \"dbench\"; there are hackbench, tbench, tcp_rr"
        );
    }

    #[test]
    fn options_are_of_one_load() {
        let load = |name| Load::named(name, None).unwrap();
        let pipes = LoadOptions {
            loops: Some(7),
            transport: Some("pipe".to_string()),
            ..LoadOptions::default()
        };
        let Ok(Load::Hackbench(made)) = load("hackbench").with(&pipes) else {
            panic!("no hackbench");
        };
        assert_eq!(
            (made.loops, made.transport, made.bytes),
            (7, Transport::Pipe, 100)
        );
        let remote = LoadOptions {
            sizes: [None, Some(9)],
            remote: Some(true),
            ..LoadOptions::default()
        };
        let Ok(Load::TcpRr(made)) = load("tcp_rr").with(&remote) else {
            panic!("no TCP_RR");
        };
        assert_eq!((made.request, made.response, made.remote), (1, 9, true));
        let refused = |name, options| load(name).with(options).unwrap_err().to_string();
        assert_eq!(refused("tbench", &pipes), "tbench has no option loops");
        assert_eq!(
            refused("hackbench", &remote),
            "hackbench has no option sizes"
        );
        let carrier = LoadOptions {
            transport: Some("pigeon".to_string()),
            ..LoadOptions::default()
        };
        assert!(refused("hackbench", &carrier).ends_with("there are unix, datagram, pipe"));
    }

    #[test]
    fn runs_are_loads_by_cpus_by_designs() {
        let machine = Machine::bundled("haswell-ep-2x12").unwrap();
        let loads = [1, 2].map(|size| Load::named("tbench", Some(size)).unwrap());
        let ask = Ask {
            designs: vec!["slub".to_string(), "slab@2.6.23".to_string()],
            era: Some("2.6.24".to_string()),
            cpus: vec![2, 4],
            time: Some(Duration::from_millis(1)),
            ..Ask::new(loads.to_vec())
        };
        let runs = ask.runs(&machine).unwrap();
        let names = runs.iter().map(|run| {
            let spec = &run.spec;
            format!("{} {} {}", spec.load.size().1, spec.cpus, run.design)
        });
        assert_eq!(
            names.collect::<Vec<_>>()[..5],
            [
                "1 2 slub@2.6.24",
                "1 2 slab@2.6.23",
                "1 4 slub@2.6.24",
                "1 4 slab@2.6.23",
                "2 2 slub@2.6.24"
            ]
        );
        assert_eq!(runs[0].spec.warm_up_ns(), 200_000);
        let report = runs[0].run(&|_| ()).unwrap();
        assert_eq!((report.design, report.size), ("slub", 1));
    }
}
