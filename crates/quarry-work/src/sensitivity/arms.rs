//! The arms of a study, and running them.

use quarry_core::machine::{LockClass, Work};
use quarry_machines::{Draw, Key, Machine};
use quarry_sim::Rng;
use quarry_sim::time::TimeCounters;

use super::Figure;
use super::bands::Samples;
use crate::parallel::run_all;

/// Draws of all constants at once.
pub const DRAWS: u32 = 32;
/// Other seeds of the null arm.
pub const SEEDS: u32 = 8;

/// Other states of the heap.
pub const STATES: u32 = 8;

/// Starts the draws' random numbers elsewhere than a run's own.
const DRAWS_STREAM: u64 = 0x6472_6177;

/// Difference of an arm from the runs that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmKind {
    /// Nothing.
    Value,
    /// A constant is at the low or the high end of its range.
    End {
        /// The constant.
        key: Key,
        /// The high end, not the low one.
        high: bool,
    },
    /// All constants are somewhere in their ranges.
    Draw,
    /// The seed.
    Seed,
    /// The state in which heaps begin.
    State,
}

/// Constants, a seed and a state of heaps for all runs.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Its number in the study, counted from 0.
    pub number: usize,
    /// Its difference from the values.
    pub kind: ArmKind,
    /// The constants.
    pub draw: Draw,
    /// The seed.
    pub seed: u64,
    /// Number of the state in which heaps begin.
    pub state: u32,
}

/// The arms of a study; the values are not one of them.
#[derive(Clone, Debug)]
pub struct Study {
    pub(super) arms: Vec<Arm>,
    pub(super) unused: Vec<Key>,
    /// Seed of all arms but those that change it.
    seed: u64,
}

impl Study {
    /// For runs on a machine that have spent this time each, with its constants as their values say. A constant is left
    /// out if none of them has spent time on it.
    #[must_use]
    pub fn new<'a>(
        machine: &Machine,
        spent: impl IntoIterator<Item = &'a TimeCounters>,
        seed: u64,
    ) -> Self {
        let spent = spent
            .into_iter()
            .fold(TimeCounters::default(), |mut all, run| {
                all.add(run);
                all
            });
        let uncertain = machine.costs().filter(|(_, cost)| cost.low < cost.high);
        // A constant that is 0 shows in no counter, even if it is used.
        let (used, unused): (Vec<_>, Vec<_>) =
            uncertain.partition(|(key, cost)| cost.value == 0.0 || takes_time(*key, &spent));
        let ends = used.iter().flat_map(|&(key, cost)| {
            let moves = [
                (false, cost.low < cost.value),
                (true, cost.high > cost.value),
            ];
            let moves = moves.into_iter().filter(|(_, moves)| *moves);
            moves.map(move |(high, _)| {
                let kind = ArmKind::End { key, high };
                (kind, Draw::end(key, high), seed)
            })
        });
        let mut rng = Rng::new(seed ^ DRAWS_STREAM);
        let draws = (0..DRAWS).map(|_| (ArmKind::Draw, Draw::random(&mut rng), seed));
        let seeds = (1..=u64::from(SEEDS)).map(|other| {
            let seed = seed.wrapping_add(other);
            (ArmKind::Seed, Draw::VALUES, seed)
        });
        let arms = ends.chain(draws).chain(seeds).enumerate();
        let arms = arms.map(|(number, (kind, draw, seed))| Arm {
            number,
            kind,
            draw,
            seed,
            state: 0,
        });
        Self {
            arms: arms.collect(),
            unused: unused.iter().map(|(key, _)| *key).collect(),
            seed,
        }
    }

    /// The same for heaps that begin in one of several states. The reported runs have the expected one, each draw has
    /// another one, and [`STATES`] arms change nothing else.
    #[must_use]
    pub fn over_states(mut self) -> Self {
        let seed = self.seed;
        let draws = self.arms.iter_mut();
        let draws = draws.filter(|arm| arm.kind == ArmKind::Draw);
        for (state, arm) in (1..).zip(draws) {
            arm.state = state;
        }
        for state in 1..=STATES {
            self.arms.push(Arm {
                number: self.arms.len(),
                kind: ArmKind::State,
                draw: Draw::VALUES,
                seed,
                state,
            });
        }
        self
    }

    /// The arms, in the order of their numbers. [`Study::run`] calls `run` for each run in each of them.
    #[must_use]
    pub fn arms(&self) -> &[Arm] {
        &self.arms
    }

    /// Runs all of them in all arms, on at most `jobs` threads, and calls `progress` after each. `values` are the figures
    /// of each run as already known; `run` returns figures of the same names in the same order.
    ///
    /// # Errors
    ///
    /// The error of the first arm that has one.
    pub fn run<T, E>(
        &self,
        runs: &[T],
        values: Vec<Vec<Figure>>,
        jobs: usize,
        progress: &(dyn Fn() + Sync),
        run: impl Fn(&T, &Arm) -> Result<Vec<Figure>, E> + Sync,
    ) -> Result<Samples, E>
    where
        T: Sync,
        E: Send,
    {
        let all: Vec<(&Arm, &T)> = self
            .arms
            .iter()
            .flat_map(|arm| runs.iter().map(move |run| (arm, run)))
            .collect();
        let mut found = run_all(&all, jobs, |(arm, of)| {
            let figures = run(of, arm);
            progress();
            figures
        })?
        .into_iter();
        let value = ArmKind::Value;
        let mut samples = vec![(value, values)];
        for arm in &self.arms {
            samples.push((arm.kind, found.by_ref().take(runs.len()).collect()));
        }
        Ok(Samples::new(samples, self.unused.clone()))
    }
}

/// True if a constant may have cost time.
fn takes_time(key: Key, spent: &TimeCounters) -> bool {
    let work = |kind: Work| spent.work_ps[kind as usize] > 0;
    let moves = &spent.moves;
    let any = |counts: &[u64]| counts.iter().any(|count| *count > 0);
    match key {
        Key::Llc => moves.llc > 0,
        // A machine that lacks a distance has the nearer one's cost there.
        Key::CleanCluster => any(&moves.clean),
        Key::CleanSocket => any(&moves.clean[1..]),
        Key::CleanRemote => any(&moves.clean[2..]),
        Key::DirtyCluster => any(&moves.transfers),
        Key::DirtySocket => any(&moves.transfers[1..]),
        Key::DirtyRemote => any(&moves.transfers[2..]),
        Key::UpgradeCluster => any(&moves.upgrades),
        Key::UpgradeSocket => any(&moves.upgrades[1..]),
        Key::UpgradeRemote => any(&moves.upgrades[2..]),
        Key::MemoryLocal => any(&moves.memory),
        Key::MemoryRemote => any(&moves.memory[1..]),
        Key::Copy => spent.fill_ps > 0,
        Key::Call => work(Work::Call),
        Key::SlowPath => work(Work::SlowPath),
        Key::BulkObject => work(Work::BulkObject),
        Key::SlabObject => work(Work::SlabObject),
        Key::DrainObject => work(Work::DrainObject),
        Key::PageCall => work(Work::PageCall),
        Key::BuddyStep => work(Work::BuddyStep),
        Key::ZoneTake => work(Work::ZoneTake),
        Key::ZoneGive => work(Work::ZoneGive),
        Key::IrqSave => work(Work::IrqSave),
        Key::IrqDisable => work(Work::IrqDisable),
        Key::Preempt => work(Work::Preempt),
        Key::LocalLock => work(Work::LocalLock),
        Key::LocalCmpxchg => work(Work::LocalCmpxchg),
        Key::Ipi => work(Work::Ipi),
        Key::RemoteWake => work(Work::RemoteWake),
        Key::Switch => work(Work::Switch),
        Key::Syscall => work(Work::Syscall),
        Key::MicroCall => spent.outside_ps > 0,
        Key::LruPage => spent.locks[LockClass::Lru as usize].taken > 0,
        // No message without a call, and nothing counts it apart.
        Key::UnixMessage | Key::TcpSegment => work(Work::Syscall),
        // Nothing counts these apart.
        Key::L1 | Key::L2 | Key::Atomic | Key::Bus | Key::Misses | Key::Window => true,
        // Machines whose loads use no network have none.
        Key::RoundTrip | Key::InterruptEvery | Key::Queues | Key::Packet => true,
    }
}
