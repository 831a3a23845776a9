//! Processes that fault and exit.

use quarry_ask::{Axis, Bytes, PageBytes, Release, Settings, question};
use quarry_core::design::Design as _;
use quarry_core::era::Era;
use quarry_core::slub::Slub;
use quarry_designs::{DesignSpec, Tuning};
use quarry_machines::Machine;
use quarry_work::pages::{self, PagesSpec};
use quarry_work::{Setup, WorkError, run_all};

use super::Clock;
use super::answers::{Answer, Answers, Cost, How, InputSize, Ready};
use super::load::{memory_bytes, page_bytes, tunings};
use crate::error::LabError;

/// Releases that are compared if none is named.
const ERAS: [Era; 2] = [Era::V4_13, Era::V6_18];
/// Numbers of processes if none is named.
const PROCESSES: [u32; 3] = [1, 4, 12];

question! {
    /// Pages of order 0 that processes fault in and free.
    pub struct Pages {
        /// Machine and seed.
        clock: Clock;
        /// Memory of each virtual machine. Only what is used becomes resident.
        memory: Axis<Bytes> = "16G", value("BYTES");
        /// Release of Linux with the page allocator to use: 2.6.22 or later.
        era: Axis<Release> = "4.13,6.18", value("ERA"), inner();
        /// Page size: 4k, 16k, 64k.
        page_size: Axis<PageBytes> = "4k", value("BYTES");
        /// Processes, each on a CPU of its own.
        processes: Axis<u32> = "1,4,12", value("N"), inner();
        /// Pages that each process faults in and frees in a round.
        pages: Axis<u32> = "1024", value("N");
        /// Rounds that each process ends while counting, after one in step and one out of step.
        rounds: Axis<u32> = "1", value("N");
        /// Let a process move to another CPU after this many pages that it touches or frees, in the mean; one more than there are
        /// CPUs waits for one. By default none moves.
        move_every: Axis<u32>, value("PAGES"), inner();
        /// Keep pages on lists for reclaim (LRU), whose lock is taken for batches of pages. By default they are left out.
        lru: Axis<bool>;
        /// Set a sysctl of the page allocator; may be repeated.
        set: Settings, value("page.NAME=VALUE");
    }
}

impl Pages {
    /// All runs on a machine: each page size, number of processes, distance of moves and release.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a sysctl does not exist, a number is out of range, or the machine cannot have the CPUs.
    pub fn runs(&self) -> Result<(Machine, Vec<PagesSpec>), WorkError> {
        let machine = self.clock.machine();
        let (machine, draw) = machine.map_err(|error| WorkError::Usage(error.to_string()))?;
        let eras = self.era.or_all(ERAS.map(Release::from)).into_iter();
        let eras: Vec<Era> = eras.map(|release| release.era).collect();
        let tunings = self.sysctls(&eras)?;
        let moves = match self.move_every.all() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let mut runs = Vec::new();
        for page_bytes in page_bytes(&self.page_size) {
            for processes in self.processes.or_all(PROCESSES) {
                for &move_every in &moves {
                    for (&era, tuning) in eras.iter().zip(&tunings) {
                        let usual = PagesSpec::new(Setup {
                            page_bytes,
                            memory_bytes: memory_bytes(&self.memory),
                            tuning: tuning.clone(),
                            draw: draw.clone(),
                            seed: self.clock.seed.or(1),
                            ..Setup::new(era, machine.clone())
                        });
                        let spec = PagesSpec {
                            processes,
                            pages: self.pages.or(usual.pages),
                            rounds: self.rounds.or(usual.rounds),
                            move_every,
                            lru: self.lru.is_true(),
                            ..usual
                        };
                        spec.config()?;
                        runs.push(spec);
                    }
                }
            }
        }
        Ok((machine, runs))
    }

    /// The sysctls of each release.
    fn sysctls(&self, eras: &[Era]) -> Result<Vec<Tuning>, WorkError> {
        let other = self
            .set
            .texts()
            .iter()
            .find(|text| !text.starts_with("page."));
        if let Some(text) = other {
            return Err(WorkError::Usage(format!(
                "set {text}: pages heed sysctls of the page allocator only; write page.NAME=VALUE"
            )));
        }
        // Sysctls are looked up beside a design; any that the release has will do.
        let designs = eras.iter().map(|era| match Slub::RELEASES.contains(era) {
            true => DesignSpec::parse(&format!("slub@{era}")),
            false => DesignSpec::parse(&format!("sheaf@{era}")),
        });
        let designs: Vec<DesignSpec> = designs.collect::<Result<_, _>>()?;
        tunings(&self.set, &designs)
    }
}

impl Answers for Pages {
    fn steps(&self, _: &Ready<'_>) -> Result<u64, LabError> {
        Ok(self.runs()?.1.len() as u64)
    }

    fn cost(&self, _: InputSize) -> Cost {
        Cost::of_load(100)
    }

    fn answer(&self, _: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
        let (_, runs) = self.runs()?;
        let run = |run: &PagesSpec| {
            let report = pages::run(run);
            how.progress.advance(1);
            report
        };
        Answer::all(&run_all(&runs, how.jobs, run)?)
    }
}
