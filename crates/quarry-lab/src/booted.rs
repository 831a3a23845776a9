//! Heaps of machines that have run, for loads to begin on.
//!
//! A load on an empty heap gets whole slabs back that it gave away. On a machine that has run, long-lived objects pin them.
//! The state is a kernel's report, as replays and what-if take it: on the reported kernel's own settings its slabs, elsewhere
//! those that [`quarry_state`] predicts (`replay/initial`). All runs of a comparison begin on one report, or they would compare
//! reports. Facts that no report contains are drawn in each state but the first ([`quarry_work::Setup::state`]).

use std::sync::{Arc, OnceLock};

use quarry_core::era::Era;
use quarry_designs::DesignSpec;
use quarry_sim::Config;
use quarry_snapshot::{ReportError, Snapshot};

use crate::error::LabError;
use quarry_state::{Draw, PartialSlabs, State};

/// The report of a kernel that has run, inside of the program.
#[derive(Debug)]
struct Bundled {
    era: Era,
    about: &'static str,
    bytes: &'static [u8],
    /// The report, unpacked when it is first asked for: studies begin hundreds of runs on it.
    read: OnceLock<Snapshot>,
}

macro_rules! bundled {
    ($($era:ident $file:literal $about:literal,)*) => {
        [$(Bundled {
            era: Era::$era,
            about: $about,
            bytes: include_bytes!(concat!("../data/booted/", $file, ".json.gz")),
            read: OnceLock::new(),
        },)*]
    };
}

/// All of them, oldest release first (`data/booted/README.md`).
static BUNDLED: [Bundled; 3] = bundled! {
    V6_1 "slub-6.1" "Debian 6.1 with unread messages",
    V6_18 "sheaf-6.18" "6.18 with traffic",
    V7_3 "sheaf-7.3" "Debian 7.3 with unread messages",
};

impl Bundled {
    /// The report whose release is nearest to those of all designs together; the older one of two as near.
    fn nearest(designs: &[DesignSpec]) -> &'static Self {
        let distance = |of: &&Self| {
            let each = designs.iter();
            let each = each.map(|design| (design.era as u64).abs_diff(of.era as u64));
            each.sum::<u64>()
        };
        BUNDLED.iter().min_by_key(distance).unwrap_or(&BUNDLED[0])
    }

    fn snapshot(&self) -> Result<&Snapshot, ReportError> {
        if let Some(read) = self.read.get() {
            return Ok(read);
        }
        let mut moments = Snapshot::of_bytes(self.about, self.bytes)?;
        Ok(self.read.get_or_init(|| moments.swap_remove(0)))
    }
}

/// A state for loads to begin in: one report for all designs.
#[derive(Clone, Debug)]
pub struct Booted {
    report: Report,
    partial_slabs: PartialSlabs,
}

#[derive(Clone, Debug)]
enum Report {
    Given(Arc<Snapshot>),
    Bundled(&'static Bundled),
}

/// States after the expected one that are expected but for the slabs that have free places.
const ENDS: [PartialSlabs; 2] = [PartialSlabs::Few, PartialSlabs::Many];

impl Booted {
    /// The state of a report.
    ///
    /// # Errors
    ///
    /// [`LabError`] if it does not say where objects lie, or this build does not have the kernel's design.
    pub fn of(snapshot: Snapshot) -> Result<Self, LabError> {
        State::of(&snapshot)?;
        Ok(Self::from(Report::Given(Arc::new(snapshot))))
    }

    /// The bundled report that is nearest to the releases of all designs of a comparison.
    #[must_use]
    pub fn bundled(designs: &[DesignSpec]) -> Self {
        Self::from(Report::Bundled(Bundled::nearest(designs)))
    }

    /// The same with free places in few slabs, or in many.
    #[must_use]
    pub fn with_partial_slabs(self, partial_slabs: PartialSlabs) -> Self {
        Self {
            partial_slabs,
            ..self
        }
    }

    /// Facts that the report does not tell, and that were taken instead.
    #[must_use]
    pub fn guessed(&self) -> Vec<String> {
        let Report::Given(snapshot) = &self.report else {
            return Vec::new();
        };
        State::of(snapshot).map_or_else(|_| Vec::new(), |state| state.guessed())
    }

    /// The report that runs begin on.
    pub(crate) fn snapshot(&self) -> Result<&Snapshot, ReportError> {
        match &self.report {
            Report::Given(snapshot) => Ok(snapshot),
            Report::Bundled(bundled) => bundled.snapshot(),
        }
    }

    /// Answers to what the report leaves open in a state, by its number. Unless they are asked for, the first two beside the
    /// expected one have free places in as few slabs as there can be, and in as many.
    pub(crate) fn draw(&self, state: u32) -> Draw {
        let end = (state as usize).checked_sub(1).and_then(|at| ENDS.get(at));
        match (self.partial_slabs, end) {
            (PartialSlabs::Expected, Some(end)) => Draw::of_state(0).with_partial_slabs(*end),
            (asked, _) => Draw::of_state(state).with_partial_slabs(asked),
        }
    }

    /// The report that a run begins on, in words; `None` if it cannot be read.
    pub(crate) fn told(&self, design: &str, era: Era, config: &Config) -> Option<String> {
        let snapshot = self.snapshot().ok()?;
        let name = match (&self.report, &snapshot.stage) {
            (Report::Bundled(bundled), _) => bundled.about.to_string(),
            (Report::Given(_), Some(stage)) => format!("{}, stage {stage}", snapshot.file),
            (Report::Given(_), None) => snapshot.file.clone(),
        };
        Some(
            match State::of(snapshot).ok()?.unlike(design, era, config) {
                None => name,
                Some(kernel) => format!("predicted of {name} ({kernel})"),
            },
        )
    }
}

impl From<Report> for Booted {
    fn from(report: Report) -> Self {
        let partial_slabs = PartialSlabs::Expected;
        Self {
            report,
            partial_slabs,
        }
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

    fn bundled(design: &str) -> Booted {
        Booted::bundled(&[DesignSpec::parse(design).unwrap()])
    }

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
        let snapshot = Bundled::nearest(&[design]).snapshot().unwrap();
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
            let bundled = bundled(design);
            let [empty, booted] = [None, Some(&bundled)].map(|booted| run(design, booted, 0));
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
        let about = Some("predicted of Debian 6.1 with unread messages (2 CPUs)".to_string());
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
        let booted = bundled("slub@2.6.24");
        let of = |state| run("slub@2.6.24", Some(&booted), state).cpu_us;
        assert_eq!(of(3), of(3));
        assert!((3..6).any(|state| of(state) != of(0)));
    }

    #[test]
    fn free_places_lie_in_few_slabs_or_in_many() {
        let hits = |booted: &Booted, state| {
            let report = run("slub@2.6.24", Some(booted), state);
            let data = report.cache("kmalloc-512").unwrap();
            data.alloc_hits
        };
        let expected = bundled("slub@2.6.24");
        let [few, many] = ENDS.map(|end| expected.clone().with_partial_slabs(end));
        let [fewest, most] = [&few, &many].map(|booted| hits(booted, 0));
        // A slab that is nearly empty serves a CPU for longer.
        assert!(fewest > most + 2.0, "{fewest} {most}");
        // Other states begin with both ends, unless one is asked for.
        assert_eq!([1, 2].map(|state| hits(&expected, state)), [fewest, most]);
        assert_eq!(
            few.draw(2).pick(0, 5, 1000),
            Draw::of_state(2).pick(0, 5, 1000)
        );
    }

    #[test]
    fn one_report_stands_for_all_designs_of_a_comparison() {
        let about = |designs: &str| {
            let designs = designs
                .split(' ')
                .map(|name| DesignSpec::parse(name).unwrap());
            let designs: Vec<DesignSpec> = designs.collect();
            let (booted, config) = (
                Booted::bundled(&designs),
                Config {
                    cpus: 2,
                    ..Config::default()
                },
            );
            let about = |of: &DesignSpec| booted.about(of.design.name, of.era, &config);
            designs
                .iter()
                .filter_map(about)
                .collect::<Vec<_>>()
                .join("; ")
        };
        let old = "predicted of Debian 6.1 with unread messages (slub@6.1)";
        assert_eq!(about("slub@6.1"), "Debian 6.1 with unread messages");
        assert_eq!(about("slab@2.6.24 slub@2.6.24"), format!("{old}; {old}"));
        assert_eq!(about("slab@6.1"), old);
        let near = "predicted of 6.18 with traffic (sheaf@6.18)";
        assert_eq!(about("slub@6.17 sheaf@7.0"), format!("{near}; {near}"));
        // 6.1 is as far from 6.18 as 7.3 is beyond it, or farther.
        assert_eq!(about("sheaf@6.18"), "6.18 with traffic");
        assert_eq!(about("sheaf@7.3"), "Debian 7.3 with unread messages");
    }
}
