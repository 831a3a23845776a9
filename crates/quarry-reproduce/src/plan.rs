//! Plans: the experiments that run in each arm, and running them.

use std::collections::BTreeSet;
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
use crate::others::Other;
use crate::results::{Figures, Results};
use crate::setting::{Mode, Setting};
use crate::spec::{ClaimSpec, is_missed, is_settled};
use crate::threads::Thread;

/// Draws among the first arms. With the values, a seed and a state they are what a claim needs to fail.
const FIRST_DRAWS: usize = 6;
/// Arms that run side by side before verdicts are looked for, at most: their runs keep a few cores busy.
const WAVE_ARMS_MAX: usize = 4;

/// Body of an experiment.
type Body = Box<dyn Fn(&Setting) -> Result<Figures, ReproduceError> + Send + Sync>;

/// Arms in which an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arms {
    /// The one with the values alone.
    Values,
    /// That and other states of the heap: nothing else decides.
    States,
    /// All but other states of the heap: it begins on none, so these would repeat the values.
    Heapless,
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

/// A run of an experiment.
#[derive(Clone, Copy)]
struct Run {
    thread: usize,
    experiment: usize,
    place: Place,
}

/// Place of a run.
#[derive(Clone, Copy)]
enum Place {
    /// In an arm.
    Arm(usize),
    /// With one of the thread's single changes.
    Elsewhere(usize),
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
            change: None,
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

    /// The arms by number, in the order in which they run: the values alone, so that an interrupted plan has them; then
    /// as many at a time as there are draws, to [`WAVE_ARMS_MAX`]: a seed, a state and [`FIRST_DRAWS`] draws first.
    fn waves(&self) -> Vec<Vec<usize>> {
        let [draws, seeds, states] = self.arms().map(|count| count as usize);
        let (first_state, first_draw) = (seeds + 1, seeds + states + 1);
        let all = seeds + states + draws;
        let first = (1..first_state).take(1);
        let first = first.chain((first_state..first_draw).take(1));
        let mut order: Vec<usize> = first.chain((first_draw..=all).take(FIRST_DRAWS)).collect();
        let rest: Vec<usize> = (1..=all).filter(|arm| !order.contains(arm)).collect();
        order.extend(rest);
        let waves = order.chunks(draws.clamp(1, WAVE_ARMS_MAX));
        let waves = waves.map(<[usize]>::to_vec);
        [vec![0]].into_iter().chain(waves).collect()
    }

    /// The runs of some arms, the longest first, so that no thread is left alone with one. In all arms but that of the values only
    /// the experiments that open claims ask for.
    fn runs(&self, arms: &[usize], open: &[BTreeSet<String>]) -> Vec<Run> {
        let mut runs = Vec::new();
        let [_, seeds, states] = self.arms().map(|count| count as usize);
        let of_states = seeds + 1..=seeds + states;
        for &arm in arms {
            for (thread, experiments) in self.experiments.iter().enumerate() {
                for (experiment, it) in experiments.iter().enumerate() {
                    let runs_in = match it.arms {
                        _ if arm == 0 => true,
                        _ if !open[thread].contains(&it.name) => false,
                        Arms::Values => false,
                        Arms::States => of_states.contains(&arm),
                        Arms::Heapless => !of_states.contains(&arm),
                        Arms::All => true,
                    };
                    if runs_in {
                        runs.push(Run {
                            thread,
                            experiment,
                            place: Place::Arm(arm),
                        });
                    }
                }
            }
        }
        self.longest_first(runs)
    }

    fn longest_first(&self, mut runs: Vec<Run>) -> Vec<Run> {
        runs.sort_by(|one, other| self.of(*other).seconds.total_cmp(&self.of(*one).seconds));
        runs
    }

    /// The runs with the threads' single changes, of the experiments of claims whose figures are missed.
    fn elsewhere(&self, others: &[Vec<Other>], results: &[Results]) -> Vec<Run> {
        let mut runs = Vec::new();
        for (thread, (of_thread, results)) in self.threads.iter().zip(results).enumerate() {
            let claims = (of_thread.claims)().into_iter();
            let claims: Vec<ClaimSpec> = claims.filter(|claim| is_missed(claim, results)).collect();
            for (at, other) in others[thread].iter().enumerate() {
                let decided = claims.iter().filter(|claim| other.decides(claim));
                let asked: BTreeSet<String> = decided
                    .flat_map(|claim| Results::asked(&claim.figure))
                    .collect();
                let experiments = self.experiments[thread].iter().enumerate();
                // What runs in some arms only is too long, or of no time and load.
                let wanted = experiments.filter(|(_, it)| {
                    matches!(it.arms, Arms::All | Arms::Heapless) && asked.contains(&it.name)
                });
                runs.extend(wanted.map(|(experiment, _)| Run {
                    thread,
                    experiment,
                    place: Place::Elsewhere(at),
                }));
            }
        }
        self.longest_first(runs)
    }

    /// The experiments of each thread that claims ask for whose verdict may still change.
    fn open(&self, results: &[Results]) -> Vec<BTreeSet<String>> {
        let of_threads = self.threads.iter().zip(results);
        let open = of_threads.map(|(thread, results)| {
            let claims = (thread.claims)().into_iter();
            let open = claims.filter(|claim| !is_settled(claim, results));
            open.flat_map(|claim| Results::asked(&claim.figure))
                .collect()
        });
        open.collect()
    }

    /// Runs what is not kept yet, on at most `jobs` threads. Stops early if `stop` is set; the results are then those of the
    /// runs that ended. Calls `progress` after each. What all runs take shrinks where verdicts are found early.
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
        let others: Vec<Vec<Other>> = self
            .threads
            .iter()
            .map(|thread| (thread.others)())
            .collect();
        let setting = |run: &Run| match run.place {
            Place::Arm(arm) => settings[run.thread][arm].clone(),
            Place::Elsewhere(at) => others[run.thread][at].setting(&settings[run.thread][0]),
        };
        let mut results = vec![Results::default(); self.threads.len()];
        let state = Mutex::new((Progress::default(), kept));
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |run: &Run| -> Result<Option<Figures>, ReproduceError> {
            let name = self.name(*run);
            let known = lock().1.get(&name).cloned();
            let figures = match known {
                Some(figures) => figures,
                // Relaxed: the flag orders nothing else.
                None if stop.load(Ordering::Relaxed) => return Ok(None),
                None => {
                    let figures = (self.of(*run).run)(&setting(run))?;
                    lock().1.add(&name, &figures)?;
                    figures
                }
            };
            let mut state = lock();
            state.0.runs += 1;
            state.0.seconds += self.of(*run).seconds;
            progress(state.0);
            Ok(Some(figures))
        };
        let expect = |due: &[Run]| {
            let mut state = lock();
            let seconds = due.iter().map(|run| self.of(*run).seconds);
            state.0.all_runs = state.0.runs + due.len() as u64;
            state.0.all_seconds = state.0.seconds + seconds.sum::<f64>();
        };
        let waves = self.waves();
        for (at, wave) in waves.iter().enumerate() {
            let open = self.open(&results);
            expect(&self.runs(&waves[at..].concat(), &open));
            let runs = self.runs(wave, &open);
            let found = run_all(&runs, jobs, one)?;
            self.put(&mut results, &runs, found);
        }
        if self.mode.tries_changes() {
            let runs = self.elsewhere(&others, &results);
            expect(&runs);
            let found = run_all(&runs, jobs, one)?;
            self.put(&mut results, &runs, found);
        }
        Ok(results)
    }

    /// Notes what some runs found.
    fn put(&self, results: &mut [Results], runs: &[Run], found: Vec<Option<Figures>>) {
        for (run, figures) in runs.iter().zip(found) {
            let (results, name) = (&mut results[run.thread], &self.of(*run).name);
            match run.place {
                Place::Arm(arm) => results.put(arm, name, figures),
                Place::Elsewhere(at) => results.put_elsewhere(at, name, figures),
            }
        }
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
        let place = match run.place {
            Place::Arm(arm) => format!("arm {arm}"),
            Place::Elsewhere(at) => format!("change {at}"),
        };
        format!("{mode} seed {seed} {heap}/{thread}/{experiment}/{place}")
    }
}
