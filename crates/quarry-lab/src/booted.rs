//! Heaps of machines that have run, for loads to begin on.
//!
//! A load on an empty heap gets whole slabs back that it gave away. On a machine that has run, long-lived objects pin them.
//! The state is a kernel's report, as replays and what-if take it: on the reported kernel's own settings its slabs, elsewhere
//! those that [`quarry_state`] predicts (`replay/initial`). Facts that no report contains are drawn in each state but the
//! first ([`quarry_work::Setup::state`]).

use std::sync::OnceLock;

use quarry_core::era::Era;
use quarry_sim::Config;
use quarry_snapshot::{ReportError, Snapshot};

use crate::error::LabError;
use quarry_state::State;

/// The report of a kernel that has run, inside of the program.
struct Bundled {
    design: &'static str,
    era: Era,
    about: &'static str,
    bytes: &'static [u8],
    /// The report, unpacked when it is first asked for: studies begin hundreds of runs on it.
    read: OnceLock<Snapshot>,
}

macro_rules! bundled {
    ($($design:literal $era:ident $file:literal $about:literal,)*) => {
        [$(Bundled {
            design: $design,
            era: Era::$era,
            about: $about,
            bytes: include_bytes!(concat!("../data/booted/", $file, ".json.gz")),
            read: OnceLock::new(),
        },)*]
    };
}

/// All of them (`data/booted/README.md`).
static BUNDLED: [Bundled; 6] = bundled! {
    "slab" V6_1 "slab-6.1" "6.1 with SLAB, booted to a shell",
    "slub" V6_1 "slub-6.1" "Debian 6.1, booted to a shell",
    "slub" V6_17 "slub-6.17" "Debian 6.17, its initramfs begun",
    "sheaf" V6_18 "sheaf-6.18" "6.18 that has compiled for four hours",
    "sheaf" V7_0 "sheaf-7.0" "Debian 7.0, its initramfs begun",
    "sheaf" V7_3 "sheaf-7.3" "Debian 7.3, its initramfs begun",
};

/// The design of bundled reports that stands for designs without one.
const USUAL: &str = "slub";

impl Bundled {
    /// The nearest release of a design, the older one of two as near.
    fn nearest(design: &str, era: Era) -> &'static Self {
        let of = |name: &str| {
            let of_design = BUNDLED.iter().filter(|bundled| bundled.design == name);
            of_design.min_by_key(|bundled| (bundled.era as i32).abs_diff(era as i32))
        };
        of(design).or_else(|| of(USUAL)).unwrap_or(&BUNDLED[0])
    }

    fn snapshot(&self) -> Result<&Snapshot, ReportError> {
        if let Some(read) = self.read.get() {
            return Ok(read);
        }
        let mut moments = Snapshot::of_bytes(self.about, self.bytes)?;
        Ok(self.read.get_or_init(|| moments.swap_remove(0)))
    }
}

/// A state for loads to begin in.
#[derive(Clone, Debug)]
pub enum Booted {
    /// A kernel's report.
    Reported(Box<Snapshot>),
    /// The bundled report that is nearest to each run's design and release.
    Bundled,
}

impl Booted {
    /// The state of a report.
    ///
    /// # Errors
    ///
    /// [`LabError`] if it does not say where objects lie, or this build does not have the kernel's design.
    pub fn of(snapshot: Snapshot) -> Result<Self, LabError> {
        State::of(&snapshot)?;
        Ok(Self::Reported(Box::new(snapshot)))
    }

    /// Facts that the report does not tell, and that were taken instead.
    #[must_use]
    pub fn guessed(&self) -> Vec<String> {
        let Self::Reported(snapshot) = self else {
            return Vec::new();
        };
        State::of(snapshot).map_or_else(|_| Vec::new(), |state| state.guessed())
    }

    /// The report that runs of a design begin on.
    pub(crate) fn snapshot(&self, design: &str, era: Era) -> Result<&Snapshot, ReportError> {
        match self {
            Self::Reported(snapshot) => Ok(snapshot),
            Self::Bundled => Bundled::nearest(design, era).snapshot(),
        }
    }

    /// The report that a run begins on, in words; `None` if it cannot be read.
    pub(crate) fn told(&self, design: &str, era: Era, config: &Config) -> Option<String> {
        let snapshot = self.snapshot(design, era).ok()?;
        let name = match (self, &snapshot.stage) {
            (Self::Bundled, _) => Bundled::nearest(design, era).about.to_string(),
            (Self::Reported(_), Some(stage)) => format!("{}, stage {stage}", snapshot.file),
            (Self::Reported(_), None) => snapshot.file.clone(),
        };
        Some(
            match State::of(snapshot).ok()?.unlike(design, era, config) {
                None => name,
                Some(kernel) => format!("predicted of {name} ({kernel})"),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use quarry_designs::DesignSpec;
    use quarry_machines::Machine;
    use quarry_state::Draw;
    use quarry_work::load::{Hackbench, Load, LoadReport, LoadRun, LoadSpec};
    use quarry_work::{Setup, Start as _};
    use serde_json::json;

    use super::*;
    use crate::ask::Replay;
    use crate::plan::Plan;
    use crate::replay::input::Input;
    use crate::run::RunSpec;

    fn run(design: &str, booted: Option<&Booted>, state: u32) -> LoadReport {
        let design = DesignSpec::parse(design).unwrap();
        let machine = Machine::bundled("harpertown-2x4").unwrap();
        let load = Hackbench {
            groups: 1,
            descriptors: 4,
            loops: 20,
            ..Hackbench::default()
        };
        let mut spec = LoadSpec::new(Load::Hackbench(load), Setup::new(design.era, machine));
        spec.setup.state = state;
        spec.count_start = true;
        spec.cpus = 4;
        let start = booted.cloned();
        LoadRun { design, spec }.run_from(&start, &|_| ()).unwrap()
    }

    /// Bytes that the bundled kernel's slabs have in a design, as `what-if` predicts it.
    fn predicted(design: &str) -> f64 {
        let design = DesignSpec::parse(design).unwrap();
        let bundled = Bundled::nearest(design.design.name, design.era);
        let snapshot = bundled.snapshot().unwrap();
        let config = Config {
            cpus: 4,
            ..Config::default()
        };
        let run = RunSpec {
            design,
            config,
            settings: quarry_designs::Tuning::default(),
            set: String::new(),
            state: 0,
            missing: std::collections::BTreeMap::new(),
            inspect: None,
        };
        let told = State::of(snapshot)
            .unwrap()
            .held_in(&run.kernel(), &mut Draw::of_state(0));
        let slabs = |cache: &quarry_state::CachePrediction| {
            cache.holding.slabs * cache.pages_per_slab * 4096
        };
        told.caches.iter().map(slabs).sum::<u64>() as f64
    }

    #[test]
    fn a_load_begins_with_the_slabs_that_are_predicted() {
        for design in [
            "slab@2.6.24",
            "slub@2.6.24",
            "slubq@2.6.35",
            "slab@6.1",
            "slub@6.1",
            "slub@6.17",
            "sheaf@6.18",
            "sheaf@7.0",
            "sheaf@7.3",
        ] {
            let [empty, booted] =
                [None, Some(&Booted::Bundled)].map(|booted| run(design, booted, 0));
            let grown = (booted.slab_kib - empty.slab_kib) as f64 * 1024.0;
            let expected = predicted(design);
            // The load's own objects take free places of the state.
            let ratio = grown / expected;
            assert!(
                (0.8..1.05).contains(&ratio),
                "{design}: {grown} of {expected}"
            );
            assert_eq!(
                (empty.initial.is_some(), booted.initial.is_some()),
                (false, true)
            );
            // What made the state is counted nowhere.
            let allocs = |report: &LoadReport| -> u64 {
                let heads = report.caches.iter();
                let heads = heads.filter(|cache| cache.name == "skbuff_head_cache");
                heads.map(|cache| cache.allocs).sum()
            };
            assert_eq!(allocs(&empty), allocs(&booted), "{design}");
        }
    }

    #[test]
    fn replays_of_copies_begin_with_them_too() {
        let design = "slub@6.1";
        let replay = |booted: bool, state| {
            let mut input = Input::open("kv").unwrap();
            let asked: Replay = quarry_ask::of(&json!({
                "design": design, "page_size": "4k", "copies": 2, "booted": booted,
            }))
            .unwrap();
            let mut plan = Plan::new(&asked.on(&mut input).unwrap()).unwrap();
            plan.runs[0].state = state;
            plan.execute(&input, 1, &|_| ()).unwrap().swap_remove(0)
        };
        let (empty, booted) = (replay(false, 0), replay(true, 0));
        assert_eq!((empty.initial, empty.initial_slab_bytes), (None, 0));
        let about = Some("predicted of Debian 6.1, booted to a shell (2 CPUs)".to_string());
        assert_eq!(booted.initial, about);
        let ratio = booted.initial_slab_bytes as f64 / predicted(design);
        assert!((0.9..1.05).contains(&ratio), "{ratio}");
        // Some objects of the load go to free places of the state.
        let grown = booted.final_slab_bytes - booted.initial_slab_bytes;
        assert!((1..empty.final_slab_bytes).contains(&grown), "{grown}");
        // Its caches take the settings, but for those that never have sheaves.
        let mut input = Input::open("kv").unwrap();
        let asked: Replay = quarry_ask::of(&json!({
            "design": "sheaf@7.0", "page_size": 4096, "set": {"sheaf_capacity": 60}, "booted": true,
        }))
        .unwrap();
        let plan = Plan::new(&asked.on(&mut input).unwrap()).unwrap();
        plan.execute(&input, 1, &|_| ()).unwrap();
        let other = replay(true, 3);
        assert_ne!(other.partial_slabs, booted.partial_slabs);
        let both: Replay = quarry_ask::of(&json!({"start": "empty", "booted": true})).unwrap();
        let refused = both.on(&mut Input::open("kv").unwrap()).unwrap_err();
        assert!(
            refused.to_string().contains("leave out any other"),
            "{refused}"
        );
    }

    #[test]
    fn states_differ_and_repeat() {
        let booted = Booted::Bundled;
        let of = |state| run("slub@2.6.24", Some(&booted), state).cpu_us;
        assert_eq!(of(3), of(3));
        assert!((1..4).any(|state| of(state) != of(0)));
    }

    #[test]
    fn the_nearest_release_of_a_design_stands_for_it() {
        let about = |design: &str| {
            let design = DesignSpec::parse(design).unwrap();
            Booted::Bundled
                .about(
                    design.design.name,
                    design.era,
                    &Config {
                        cpus: 2,
                        ..Config::default()
                    },
                )
                .unwrap()
        };
        assert_eq!(about("slub@6.1"), "Debian 6.1, booted to a shell");
        assert_eq!(
            about("slab@2.6.24"),
            "predicted of 6.1 with SLAB, booted to a shell (slab@6.1)"
        );
        assert_eq!(
            about("slob@6.1"),
            "predicted of Debian 6.1, booted to a shell (slub@6.1)"
        );
        assert_eq!(
            about("sheaf@7.2"),
            "predicted of Debian 7.3, its initramfs begun (sheaf@7.3, 8 CPUs)"
        );
    }
}
