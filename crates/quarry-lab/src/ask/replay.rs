//! A replay with what its recording tells filled in.

use quarry_core::machine::MAX_CPUS;
use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_designs::DesignSpec;
use quarry_trace::Moment;
use quarry_work::load::MEMORY_BYTES;

use super::settings;
use crate::booted::Booted;
use crate::error::LabError;
use crate::plan::{Axes, Plan};
use crate::replay::input::Input;
use crate::replay::lists;
use crate::replay::pages::PageMode;
use crate::replay::part::Part;
use crate::replay::timed::Timing;
use crate::whatif::Baseline;

/// Designs that are compared if none is named: of kernels that are in use, so that releases far apart do
/// not pass for designs. 6.3 is the last release that has SLAB, SLOB and SLUB.
pub const DEFAULT_DESIGNS: [&str; 5] =
    ["slab@6.3", "slob@6.3", "slub@6.3", "slub@6.18", "sheaf@7.0"];

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

/// Every design with every page size, number of CPUs and combination of listed values. Empty lists are filled in from
/// the recording, or with [`DEFAULT_DESIGNS`], and pages of 4 and 64 KiB.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Designs, `DESIGN[@ERA]`.
    pub designs: Vec<String>,
    /// Bytes of a page.
    pub page_bytes: Vec<u64>,
    /// Numbers of CPUs.
    pub cpus: Vec<u32>,
    /// Copies of the load, side by side.
    pub copies: u32,
    /// Tunables, `[DESIGN[@ERA].]NAME=VALUE[,...]`.
    pub set: Vec<String>,
    /// Debugging, as the kernel's `slub_debug` says it.
    pub debug: Option<String>,
    /// Bytes of each machine's memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of a cache line; in simulated time the machine's.
    pub cache_line: u32,
    /// Bytes of a CPU's share of the last-level cache.
    pub cache_share_bytes: u64,
    /// Beginning of each run.
    pub start: Start,
    /// Heap of a machine that has run, for the load to begin on.
    pub booted: Option<Booted>,
    /// Page events to replay.
    pub pages: PageMode,
    /// The part between two moments alone; it begins empty.
    pub window: Option<[Option<Moment>; 2]>,
    /// Simulated time; `None` counts without it.
    pub timing: Option<Timing>,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            designs: Vec::new(),
            page_bytes: Vec::new(),
            cpus: Vec::new(),
            copies: 1,
            set: Vec::new(),
            debug: None,
            memory_bytes: None,
            cache_line: 64,
            cache_share_bytes: CACHE_SHARE_BYTES,
            start: Start::default(),
            booted: None,
            pages: PageMode::default(),
            window: None,
            timing: None,
        }
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
        input.pages = self.pages;
        input.copies = self.copies;
        input.cache_share_bytes = self.cache_share_bytes;
        // Copies share a machine that no report is of, time begins with the load, and another heap is not the reports'.
        let alone = self.copies == 1
            && self.timing.is_none()
            && self.window.is_none()
            && self.booted.is_none();
        if self.booted.is_some() && self.start != Start::Usual {
            let problem =
                "the heap of a machine that has run is a start of its own: leave out any other";
            return Err(LabError::Usage(problem.to_string()));
        }
        input.booted.clone_from(&self.booted);
        match self.start {
            Start::Check => {
                input.check_reports()?;
                input.states = STATES;
            }
            Start::Reports => input.start_from_reports()?,
            Start::Usual if alone && input.has_snapshot() => input.start_from_reports()?,
            Start::Usual | Start::Empty => input.take_load(),
        }
        if let Some(window) = self.window {
            if !matches!(self.start, Start::Usual | Start::Empty) {
                return Err(LabError::Usage(
                    "a part of the recording begins empty; it has no report to start with or to check"
                        .to_string(),
                ));
            }
            let first_ns = input.file.meta().first_time_ns;
            let [from_ns, until_ns] =
                window.map(|moment| moment.map(|moment| moment.clock_ns(first_ns)));
            input.part = Part { from_ns, until_ns };
        }
        let mut axes = self.axes()?;
        self.heed_recorded(input, &mut axes)?;
        if let Some(timing) = &self.timing {
            axes.cache_line = timing.machine.topology.line_bytes;
            if self.page_bytes.is_empty() {
                axes.page_bytes = vec![input.file.meta().page_size.into()];
            }
            if self.designs.is_empty() {
                // Its searches of long lists take minutes to simulate.
                axes.designs
                    .retain(|design| !design.design.features.shared_slabs);
            }
        }
        Ok(axes)
    }

    fn axes(&self) -> Result<Axes, LabError> {
        let asked: Vec<&str> = self.designs.iter().map(String::as_str).collect();
        let designs = match asked.as_slice() {
            [] => &DEFAULT_DESIGNS,
            asked => asked,
        };
        let designs: Result<_, _> = designs.iter().map(|text| DesignSpec::parse(text)).collect();
        let (settings, lists) = settings(&self.set)?;
        Ok(Axes {
            designs: designs?,
            page_bytes: match self.page_bytes.as_slice() {
                [] => vec![4096, 65536],
                sizes => sizes.to_vec(),
            },
            cpus: self.cpus.clone(),
            booted_with: Vec::new(),
            settings,
            lists,
            debug: self.debug.clone(),
            memory_bytes: self.memory_bytes.unwrap_or(MEMORY_BYTES),
            cache_line: self.cache_line,
        })
    }

    /// Completes the axes by what the recorded kernel had, as far as the trace and the reports tell it and the request
    /// does not.
    fn heed_recorded(&self, input: &Input, axes: &mut Axes) -> Result<(), LabError> {
        let recorded: u64 = input.file.meta().page_size.into();
        let at_begin = match &input.initial {
            Some(_) => None,
            None => input.snapshots()?.into_iter().next(),
        };
        if let Some(report) = input.initial.as_ref().or(at_begin.as_ref()) {
            let baseline = Baseline::of(report)?;
            // Tunables are the kernel's also where a replay starts empty.
            axes.booted_with = baseline.booted_with().to_vec();
            if input.initial.is_some() && self.designs.is_empty() {
                axes.designs = vec![baseline.design()];
            }
            if input.initial.is_some() && self.page_bytes.is_empty() {
                axes.page_bytes = vec![recorded];
            }
        }
        if let Some(zoneinfo) = &input.zoneinfo {
            if self.page_bytes.is_empty() {
                axes.page_bytes = vec![recorded];
            }
            if self.memory_bytes.is_none() {
                axes.memory_bytes = lists::memory_bytes(zoneinfo, recorded)?;
            }
        }
        if axes.cpus.is_empty() {
            axes.cpus.push(input.load_cpus().clamp(1, MAX_CPUS));
        }
        Ok(())
    }
}
