//! A replay with what its recording tells filled in.

use std::collections::BTreeMap;
use std::path::Path;

use quarry_ask::{
    Axis, Bytes, DesignName, Json, Kind, PageBytes, Settings, Size, Value, choice, question,
};
use quarry_core::era::Era;
use quarry_core::machine::MAX_CPUS;
use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_designs::{DesignEntry, DesignError, DesignSpec, PagePolicy};
use quarry_trace::{Moment, ParseMomentError};
use quarry_work::load::MEMORY_BYTES;

use super::answers::{Answer, Answers, Cost, How, InputSize, Ready};
use super::{Clock, HeapFile, load};
use crate::error::LabError;
use crate::plan::{Axes, Plan};
use crate::replay::input::Input;
use crate::replay::lists;
use crate::replay::pages::PageMode;
use crate::replay::part::Part;
use crate::replay::timed::{Pace, Timing};
use quarry_state::{PartialSlabs, State};

/// Designs that are compared if none is named: of kernels that are in use, so that releases far apart do
/// not pass for designs. 6.3 is the last release that has SLAB, SLOB and SLUB, and 6.17 the last without sheaves. The
/// recorded kernel's own design is the first, in the place of the one of these that is nearest to it.
pub const DEFAULT_DESIGNS: [&str; 5] =
    ["slab@6.3", "slob@6.3", "slub@6.3", "slub@6.17", "sheaf@7.0"];

/// The usual designs of a recording.
fn usual_designs(mut usual: Vec<DesignSpec>, own: Option<DesignSpec>) -> Vec<DesignSpec> {
    let Some(own) = own else { return usual };
    let far = |other: &DesignSpec| (other.era as u8).abs_diff(own.era as u8);
    let is_other = |other: &DesignSpec| other.design.name != own.design.name;
    let nearest = (0..usual.len()).min_by_key(|at| (far(&usual[*at]), is_other(&usual[*at])));
    if let Some(nearest) = nearest {
        usual.remove(nearest);
    }
    usual.insert(0, own);
    usual
}

/// The design of the recorded release. Events do not tell SLAB from SLUB: it is SLUB then, as in nearly all kernels.
fn recorded_design(input: &Input) -> Option<DesignSpec> {
    let era = input.file.meta().kernel.as_deref().and_then(Era::parse)?;
    let design = DesignEntry::of_kernel(Some(era), false)?;
    Some(DesignSpec { design, era })
}

/// States that a check replays, for the range of growth.
const STATES: u32 = 8;

/// Beginning of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With what the recorded kernel held, if the recording tells it; copies and simulated time begin empty.
    #[default]
    Usual,
    /// Empty.
    Empty,
    /// With the recording's reports; there must be one.
    Reports,
    /// The same, and the end is compared with the last report.
    Check,
}

impl Start {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Usual, "usual"),
        (Self::Empty, "empty"),
        (Self::Reports, "initial"),
        (Self::Check, "check"),
    ];
}

choice!(Start, Start::ALL);
choice!(PageMode, PageMode::ALL);
choice!(Pace, Pace::ALL);

/// A moment of a recording, with the text that it was given by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    text: String,
    /// The moment.
    pub moment: Moment,
}

impl Value for When {
    const KIND: Kind = Kind::Time;

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let moment = text.parse();
        Ok(Self {
            moment: moment.map_err(|error: ParseMomentError| error.to_string())?,
            text: text.to_string(),
        })
    }

    fn json(&self) -> Json {
        self.text.clone().into()
    }
}

question! {
    /// Recorded allocations on every design with every page size, number of CPUs and combination of listed tunables. What is
    /// not asked is the recording's, or usual.
    pub struct Replay {
        /// Replay in simulated time: what an allocation and a free cost in nanoseconds, and why. The page size is the
        /// recorded one by default, slob is left out (its searches take minutes to simulate), and the cache line is the
        /// machine's.
        time: Axis<bool>, mode(), heading("Simulated time"), not_with(&["debug", "cache_line"]);
        /// The machine and the seed.
        clock: Clock, heading("Simulated time"), needs(&["time"]);
        /// When events happen: at their recorded times, and where a CPU is late as fast as it can; or all as fast as
        /// the CPUs can.
        pace: Axis<Pace> = "recorded", value("PACE"), heading("Simulated time"), needs(&["time"]);
        /// Beginning of each run: what the recorded kernel held if the recording says it (usual), nothing (empty), or
        /// what the recording's reports say (initial), which the end is compared with (check).
        start: Axis<Start> = "usual", long("check"), value("START"), hidden();
        /// Page events on the same page allocator: auto replays those outside the slabs if the trace
        /// tells which pages were slabs, all those of slabs too, off none.
        pages: Axis<PageMode> = "auto", value("WHICH");
        /// Replay events from this time on: seconds as recorded, or +SECONDS after the first event. The part begins empty.
        from: Axis<When>, value("TIME");
        /// Replay events before this time.
        until: Axis<When>, value("TIME");
        /// Begin on the heap of a real kernel that has run: one bundled report for all designs, the nearest to their releases.
        booted: Axis<bool>, not_with(&["heap"]);
        /// Begin on the heap of another machine: a snapshot, FILE#STAGE for a stage of one, or a recording with one.
        heap: Axis<HeapFile>, long("initial"), value("FILE[#STAGE]"), hidden(), local();
        /// Slabs that share the free places which the report does not place: few (each is nearly empty), many (each has few
        /// free places), or expected.
        partial_slabs: Axis<PartialSlabs> = "expected", value("NUMBER");
        /// Memory of each virtual machine; 16G by default. With --initial that of the kernel's zones by default,
        /// and more or less of it is the highest zone's. Only what is used becomes resident.
        memory: Axis<Bytes>, value("BYTES");
        /// Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
        cache_line: Axis<Size> = "64", value("BYTES");
        /// A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
        /// and later heed it when blocks of several pages are freed.
        cache_share: Axis<Bytes> = "1280k", value("BYTES");
        /// Debugging as in the kernel's slub_debug: FZPU for all caches, FZ,kmalloc-*;U,dentry for some.
        debug: Axis<String>, value("LETTERS[,CACHE,...][;...]"), whole();
        /// Designs with optional eras, separated by commas; with --initial or --check the recorded one
        /// by default, else five. These are slab, slob and slub of 6.3, the last release that has all three,
        /// slub of 6.17, the last without sheaves, and sheaf of 7.0, which has them in all caches. The
        /// recorded one comes first, in place of the nearest; 6.18 is sheaf@6.18, as some of its caches have
        /// sheaves. Older ones, and slubq of 2.6.35, are shown if they are named.
        design: Axis<DesignName>, value("DESIGN[@ERA]"), inner();
        /// Page sizes: 4k, 16k, 64k, separated by commas; 4k,64k by default, the recorded one with
        /// --initial or --check.
        page_size: Axis<PageBytes>, value("BYTES"), inner();
        /// Policies of the page allocator, side by side: release for the release's rules, defrag, steer; +block=N for
        /// pageblocks of 2^N pages, +no_highatomic for no reserves. The report then says where pages lie.
        policy: Axis<PagePolicy>, value("POLICY"), inner();
        /// CPUs of the virtual machine, 1 to 4096; several separated by commas; the trace's by default.
        cpus: Axis<u32>, value("N"), inner();
        /// Replay N independent copies of the recorded load, each on CPUs of its own: copy k of recorded
        /// CPU c is CPU k * recorded CPUs + c. Every machine has as many CPUs by default, and at least as
        /// many.
        copies: Axis<u32> = "1", value("N");
        /// Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0;
        /// a sysctl of the page allocator: page.min_free_kbytes=8192. A list, cpu_partial=0,6,13, has a run for each
        /// value beside the default; several lists have one for each combination.
        set: Settings, value("[DESIGN[@ERA].]NAME=VALUE[,...]");
    }
}

impl Replay {
    /// Checks all that needs no recording.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a design, a tunable or a machine does not exist.
    pub fn check(&self) -> Result<(), LabError> {
        let axes = self.axes()?;
        match axes.cpus.is_empty() {
            true => Ok(()),
            false => Plan::new(&axes).map(|_| ()),
        }
    }

    /// Prepares a recording for the replay, and fills in what it tells.
    ///
    /// # Errors
    ///
    /// As [`Self::check`]; [`LabError::Report`] if the recording's reports cannot be read, [`LabError::Usage`] if it lacks
    /// those that are asked for.
    pub fn on(&self, input: &mut Input) -> Result<Axes, LabError> {
        let start = self.start.or(Start::Usual);
        let has_run = self.booted.is_true() || !self.heap.is_empty();
        let part = self.part(input);
        input.pages = self.pages.or(PageMode::Auto);
        input.copies = self.copies.or(1);
        input.cache_share_bytes = self
            .cache_share
            .one()
            .map_or(CACHE_SHARE_BYTES, |share| share.0);
        // Copies share a machine that no report is of, and another heap is not the reports'. Time begins with the load; of
        // reports it heeds where memory lies.
        let heeds = !self.time.is_true() || !self.policy.is_empty();
        let alone = input.copies == 1 && heeds && part.is_none() && !has_run;
        if has_run && start != Start::Usual {
            let problem =
                "the heap of a machine that has run is a start of its own: leave out any other";
            return Err(LabError::Usage(problem.to_string()));
        }
        match start {
            Start::Check => {
                input.check_reports()?;
                input.states = STATES;
            }
            Start::Reports => input.start_from_reports()?,
            Start::Usual if alone && input.has_snapshot() => input.start_from_reports()?,
            Start::Usual | Start::Empty => input.take_load(),
        }
        if let Some(part) = part {
            if !matches!(start, Start::Usual | Start::Empty) {
                return Err(LabError::Usage(
                    "a part of the recording begins empty; it has no report to start with or to check"
                        .to_string(),
                ));
            }
            input.part = part;
        }
        let mut axes = self.axes()?;
        self.heed_recorded(input, &mut axes)?;
        if let Some(timing) = self.timing()? {
            axes.cache_line = timing.machine.topology.line_bytes;
            if self.page_size.is_empty() {
                axes.page_bytes = vec![input.file.meta().page_size.into()];
            }
            if self.design.is_empty() {
                // Its searches of long lists take minutes to simulate.
                axes.designs
                    .retain(|design| !design.design.features.shared_slabs);
            }
        }
        let booted = load::start(&self.heap, &self.booted, &self.partial_slabs, &axes.designs);
        input.booted = booted.map_err(|problem| LabError::Usage(problem.to_string()))?;
        Ok(axes)
    }

    /// Simulated time; `None` if it is not asked for.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if the machine is not there.
    pub fn timing(&self) -> Result<Option<Timing>, LabError> {
        if !self.time.is_true() {
            return Ok(None);
        }
        let (machine, draw) = self
            .clock
            .machine()
            .map_err(|error| LabError::Usage(error.to_string()))?;
        Ok(Some(Timing {
            machine,
            draw,
            pace: self.pace.or(Pace::Recorded),
            seed: self.clock.seed.or(1),
        }))
    }

    /// The part of a recording that is replayed alone.
    fn part(&self, input: &Input) -> Option<Part> {
        if self.from.is_empty() && self.until.is_empty() {
            return None;
        }
        let first_ns = input.file.meta().first_time_ns;
        let [from_ns, until_ns] = [&self.from, &self.until]
            .map(|when| when.one().map(|when| when.moment.clock_ns(first_ns)));
        Some(Part { from_ns, until_ns })
    }

    fn axes(&self) -> Result<Axes, LabError> {
        let designs = match self.design.all() {
            [] => DEFAULT_DESIGNS.map(DesignSpec::parse).into_iter().collect(),
            asked => asked.iter().map(|name| name.in_era(None)).collect(),
        };
        let designs: Result<_, DesignError> = designs;
        let set = self.set.parsed().map_err(LabError::Usage)?;
        if let Some(value) = set.debug.first() {
            return Err(LabError::Usage(format!(
                "set slub_debug={value}: a replay takes it as debug"
            )));
        }
        Ok(Axes {
            designs: designs?,
            page_bytes: match self.page_size.all() {
                [] => vec![4096, 65536],
                sizes => sizes.iter().map(|size| size.0).collect(),
            },
            cpus: self.cpus.all().to_vec(),
            policies: self.policy.all().to_vec(),
            booted_with: Vec::new(),
            settings: set.single,
            lists: set.lists,
            debug: self.debug.one().cloned(),
            memory_bytes: self.memory.one().map_or(MEMORY_BYTES, |memory| memory.0),
            cache_line: self.cache_line.one().map_or(64, |line| line.0),
        })
    }

    /// Completes the axes by what the recorded kernel had, as far as the trace and the reports tell it and the request
    /// does not.
    fn heed_recorded(&self, input: &mut Input, axes: &mut Axes) -> Result<(), LabError> {
        let recorded: u64 = input.file.meta().page_size.into();
        let at_begin = match &input.initial {
            Some(_) => None,
            None => input.snapshots()?.into_iter().next(),
        };
        let (mut own, mut aliases) = (recorded_design(input), BTreeMap::new());
        if let Some(report) = input.initial.as_ref().or(at_begin.as_ref()) {
            let state = State::of(report)?;
            // Tunables are the kernel's also where a replay starts empty.
            axes.booted_with = state.booted_with().to_vec();
            own = Some(state.design());
            aliases = report.all_aliases();
            if input.initial.is_some() && self.page_size.is_empty() {
                axes.page_bytes = vec![recorded];
            }
        }
        if self.design.is_empty() {
            axes.designs = match (own, &input.initial) {
                (Some(own), Some(_)) => vec![own],
                (own, _) => usual_designs(std::mem::take(&mut axes.designs), own),
            };
        }
        if let Some(zoneinfo) = &input.zoneinfo {
            if self.page_size.is_empty() {
                axes.page_bytes = vec![recorded];
            }
            if self.memory.is_empty() {
                axes.memory_bytes = lists::memory_bytes(zoneinfo, recorded)?;
            }
        }
        input.aliases = aliases;
        if axes.cpus.is_empty() {
            axes.cpus.push(input.load_cpus().clamp(1, MAX_CPUS));
        }
        Ok(())
    }
}

/// Nominal milliseconds of a replay beside its events.
const REPLAY_MS: u64 = 30;
/// Events that a nominal millisecond replays, and replays in simulated time.
const EVENTS_A_MS: u64 = 2000;
const TIMED_EVENTS_A_MS: u64 = 800;
/// A virtual machine with the decoded chunk of a trace.
const REPLAY_BYTES: u64 = 96 << 20;
/// An object that can be alive: its place in the table, and the slab that it may keep alone, in the records of the virtual
/// machine.
const SLOT_BYTES: u64 = 128;

impl Replay {
    /// The recording prepared, and all runs.
    fn planned(&self, ready: &Ready<'_>) -> Result<(Input, Plan), LabError> {
        let Ready::Recording(trace) = ready else {
            return Err(LabError::Usage("replay needs a recording".to_string()));
        };
        let mut input = (*trace).clone();
        let axes = self.on(&mut input)?;
        Ok((input, Plan::new(&axes)?))
    }
}

impl Answers for Replay {
    fn begin(&mut self, heap: HeapFile) -> Result<(), LabError> {
        self.heap = heap.into();
        Ok(())
    }

    fn check(&self) -> Result<(), LabError> {
        Replay::check(self)
    }

    fn cost(&self, size: InputSize) -> Cost {
        let copies = u64::from(self.copies.or(1));
        let a_ms = match self.time.is_true() {
            true => TIMED_EVENTS_A_MS,
            false => EVENTS_A_MS,
        };
        let slots = size.slots.saturating_mul(copies);
        Cost {
            reading_ms: 0,
            ms: REPLAY_MS + size.events.saturating_mul(copies) / a_ms,
            bytes: REPLAY_BYTES.saturating_add(slots.saturating_mul(SLOT_BYTES)),
        }
    }

    /// Events of all runs.
    fn steps(&self, ready: &Ready<'_>) -> Result<u64, LabError> {
        let (input, plan) = self.planned(ready)?;
        let runs = plan.runs.len() as u64;
        Ok(input.file.meta().rows * runs * u64::from(input.states))
    }

    fn answer(&self, ready: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
        let (input, plan) = self.planned(ready)?;
        match self.timing()? {
            None => {
                plan.check_debug(&input)?;
                let runs = plan.execute(&input, how.jobs, how.progress)?;
                Answer::apart(runs, |run| std::mem::take(&mut run.caches), how)
            }
            Some(timing) => {
                let runs = plan.execute_timed(&input, &timing, how.jobs, how.progress)?;
                Answer::apart(runs, |run| std::mem::take(&mut run.caches), how)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_design_stands_for_the_nearest() {
        let usual = || DEFAULT_DESIGNS.map(|text| DesignSpec::parse(text).unwrap());
        let with = |own: Option<&str>| -> String {
            let own = own.map(|own| DesignSpec::parse(own).unwrap());
            let all = usual_designs(usual().to_vec(), own).into_iter();
            all.map(|design| design.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (slab, slob, slub) = ("slab@6.3", "slob@6.3", "slub@6.3");
        for (own, all) in [
            (
                "sheaf@6.18",
                format!("sheaf@6.18 {slab} {slob} {slub} sheaf@7.0"),
            ),
            (
                "slub@6.12",
                format!("slub@6.12 {slab} {slob} {slub} sheaf@7.0"),
            ),
            (
                "slub@5.10",
                format!("slub@5.10 {slab} {slob} slub@6.17 sheaf@7.0"),
            ),
            (
                "slab@6.1",
                format!("slab@6.1 {slob} {slub} slub@6.17 sheaf@7.0"),
            ),
            (
                "sheaf@7.3",
                format!("sheaf@7.3 {slab} {slob} {slub} slub@6.17"),
            ),
        ] {
            assert_eq!(with(Some(own)), all);
        }
        assert_eq!(with(None), DEFAULT_DESIGNS.join(" "));
    }
}
