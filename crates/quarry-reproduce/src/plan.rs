//! Plans: the experiments that run in each arm, and running them.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use quarry_designs::DesignSpec;
use quarry_lab::booted::Booted;
use quarry_machines::Draw;
use quarry_sim::Rng;
use quarry_work::run_all;

use crate::error::ReproduceError;
use crate::keep::Kept;
use crate::results::{Figures, Results};
use crate::threads::Thread;

/// Amount of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Short loads and few arms: under two minutes on two cores.
    Quick,
    /// Longer loads and 32 draws of all constants.
    Full,
}

impl Mode {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// Draws of all constants, other seeds, and other states of the heap.
    const fn arms(self) -> [u32; 3] {
        match self {
            Self::Quick => [2, 1, 1],
            Self::Full => [32, 3, 4],
        }
    }
}

/// The constants, the seed and the heap of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) draw: Draw,
    pub(crate) seed: u64,
    /// Heap with which loads begin; `None` for an empty one.
    pub(crate) booted: Option<Booted>,
    /// Number of its state, among those that its report allows.
    pub(crate) state: u32,
}

/// Body of an experiment.
type Body = Box<dyn Fn(&Setting) -> Result<Figures, ReproduceError> + Send + Sync>;

/// Arms in which an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arms {
    /// The one with the values alone.
    Values,
    /// That and other states of the heap: nothing else decides.
    States,
    /// All.
    All,
}

/// Something that gives figures.
pub(crate) struct Experiment {
    /// Its name in the thread.
    pub(crate) name: String,
    /// Its design, if it is a load: one report stands for all designs of a thread.
    pub(crate) design: Option<&'static str>,
    /// About the seconds that it takes.
    pub(crate) seconds: f64,
    /// Arms in which it runs.
    pub(crate) arms: Arms,
    pub(crate) run: Body,
}

/// Progress of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Runs that are done.
    pub runs: u64,
    /// All runs.
    pub all_runs: u64,
    /// Expected seconds of a core of those that are done.
    pub seconds: f64,
    /// Seconds of all runs.
    pub all_seconds: f64,
}

/// Threads that are to be run.
pub struct Plan {
    threads: Vec<&'static Thread>,
    mode: Mode,
    seed: u64,
    /// Loads begin on heaps of kernels that have run.
    is_booted: bool,
    experiments: Vec<Vec<Experiment>>,
}

/// A run of an experiment in an arm.
#[derive(Clone, Copy)]
struct Run {
    thread: usize,
    experiment: usize,
    arm: usize,
}

impl Plan {
    /// A plan of some threads. Their loads begin on the heaps of kernels that have run.
    #[must_use]
    pub fn new(threads: Vec<&'static Thread>, mode: Mode, seed: u64) -> Self {
        let experiments = threads.iter().map(|thread| (thread.experiments)(mode));
        Self {
            mode,
            seed,
            is_booted: true,
            experiments: experiments.collect(),
            threads,
        }
    }

    /// The same with loads that begin on empty heaps: the difference is what the state decides.
    #[must_use]
    pub fn on_empty_heaps(self) -> Self {
        Self {
            is_booted: false,
            ..self
        }
    }

    /// The threads.
    #[must_use]
    pub fn threads(&self) -> &[&'static Thread] {
        &self.threads
    }

    /// Amount of runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Draws of all constants, other seeds, and other states of the heap.
    #[must_use]
    pub fn arms(&self) -> [u32; 3] {
        let [draws, seeds, states] = self.mode.arms();
        [draws, seeds, if self.is_booted { states } else { 0 }]
    }

    /// The report on which the loads of a thread begin, whatever their designs; `None` for an empty heap.
    fn booted(&self, experiments: &[Experiment]) -> Option<Booted> {
        let designs = experiments.iter().filter_map(|it| it.design);
        let designs = designs.filter_map(|design| DesignSpec::parse(design).ok());
        let designs: Vec<DesignSpec> = designs.collect();
        self.is_booted.then(|| Booted::bundled(&designs))
    }

    /// The arms of a thread: the values, other seeds, other states, draws with a state each.
    fn settings(&self, experiments: &[Experiment]) -> Vec<Setting> {
        let [draws, seeds, states] = self.arms();
        let mut rng = Rng::new(self.seed ^ 0x7265_7072);
        let values = Setting {
            draw: Draw::VALUES,
            seed: self.seed,
            booted: self.booted(experiments),
            state: 0,
        };
        let of_seed = |more| Setting {
            seed: self.seed + u64::from(more),
            ..values.clone()
        };
        let of_state = |state| Setting {
            state,
            ..values.clone()
        };
        let mut all: Vec<Setting> = (0..=seeds).map(of_seed).collect();
        all.extend((1..=states).map(of_state));
        all.extend((1..=draws).map(|state| Setting {
            draw: Draw::random(&mut rng),
            ..of_state(state)
        }));
        all
    }

    /// The runs: those with the values first, so that an interrupted plan has them.
    fn runs(&self, arms: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        let [_, seeds, states] = self.arms().map(|count| count as usize);
        let of_states = seeds + 1..=seeds + states;
        for arm in 0..arms {
            for (thread, experiments) in self.experiments.iter().enumerate() {
                for (experiment, it) in experiments.iter().enumerate() {
                    let runs_in = match it.arms {
                        Arms::Values => arm == 0,
                        Arms::States => arm == 0 || of_states.contains(&arm),
                        Arms::All => true,
                    };
                    if runs_in {
                        runs.push(Run {
                            thread,
                            experiment,
                            arm,
                        });
                    }
                }
            }
        }
        runs
    }

    /// Runs what is not kept yet, on at most `jobs` threads. Stops early if `stop` is set; the results are then those of the
    /// runs that ended. Calls `progress` after each.
    ///
    /// # Errors
    ///
    /// The error of the first run that has one.
    pub fn run(
        &self,
        jobs: usize,
        kept: &mut Kept,
        stop: &AtomicBool,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Results>, ReproduceError> {
        let settings = self.experiments.iter();
        let settings: Vec<Vec<Setting>> = settings.map(|all| self.settings(all)).collect();
        let runs = self.runs(settings.first().map_or(0, Vec::len));
        let all = Progress {
            all_runs: runs.len() as u64,
            all_seconds: runs.iter().map(|run| self.of(*run).seconds).sum(),
            ..Progress::default()
        };
        let state = Mutex::new((all, kept));
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = run_all(
            &runs,
            jobs,
            |run| -> Result<Option<Figures>, ReproduceError> {
                let experiment = self.of(*run);
                let name = self.name(*run);
                let known = lock().1.get(&name).cloned();
                let figures = match known {
                    Some(figures) => figures,
                    // Relaxed: the flag orders nothing else.
                    None if stop.load(Ordering::Relaxed) => return Ok(None),
                    None => {
                        let figures = (experiment.run)(&settings[run.thread][run.arm])?;
                        lock().1.add(&name, &figures)?;
                        figures
                    }
                };
                let mut state = lock();
                state.0.runs += 1;
                state.0.seconds += experiment.seconds;
                progress(state.0);
                Ok(Some(figures))
            },
        )?;
        let mut results = vec![Results::default(); self.threads.len()];
        for (run, figures) in runs.iter().zip(found) {
            results[run.thread].put(run.arm, &self.of(*run).name, figures);
        }
        Ok(results)
    }

    fn of(&self, run: Run) -> &Experiment {
        &self.experiments[run.thread][run.experiment]
    }

    /// Names a run among all that the program ever does.
    fn name(&self, run: Run) -> String {
        let (mode, seed) = (self.mode.name(), self.seed);
        let thread = self.threads[run.thread].name;
        let experiment = &self.of(run).name;
        let heap = if self.is_booted { "booted" } else { "empty" };
        format!(
            "{mode} seed {seed} {heap}/{thread}/{experiment}/arm {}",
            run.arm
        )
    }
}
