use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_machines::{Key, Machine};

use super::*;
use crate::Setup;
use crate::WorkError;
use crate::micro::{self, MicroReport, MicroSpec, Pattern};

fn machine() -> Machine {
    Machine::bundled("haswell-ep-2x12").unwrap()
}

/// Two runs whose figures are 10 and 20 but where `change` says otherwise.
fn synthetic(change: fn(&str, &Arm) -> Option<f64>) -> Samples {
    in_study(Study::new(&machine(), [], 7), change)
}

fn in_study(study: Study, change: fn(&str, &Arm) -> Option<f64>) -> Samples {
    let runs = [("a", 10.0), ("b", 20.0)];
    let values = runs.map(|(_, value)| vec![("mops", value)]).to_vec();
    let run = |(name, value): &(&str, f64), arm: &Arm| {
        Ok::<_, ()>(vec![("mops", change(name, arm).unwrap_or(*value))])
    };
    study.run(&runs, values, 2, &|| (), run).unwrap()
}

const MOST: (&str, First) = ("mops", First::Most);

fn a_below_b(samples: &Samples) -> Claim {
    let below = |sample: Sample<'_>| Some(sample.figure(0, "mops")? < sample.figure(1, "mops")?);
    samples.claim("a and b", "a below b", below).unwrap()
}

const ATOMIC_HIGH: ArmKind = ArmKind::End {
    key: Key::Atomic,
    high: true,
};

#[test]
fn a_claim_holds_or_fails_where_nothing_moves() {
    let samples = synthetic(|_, _| None);
    let claim = a_below_b(&samples);
    assert_eq!(claim.to_string(), "a below b: holds");
    assert_eq!((claim.true_draws, claim.true_seeds), ([32, 32], [8, 8]));
    let above = samples.claim("", "a above b", |sample| {
        Some(sample.figure(0, "mops")? > sample.figure(1, "mops")?)
    });
    assert_eq!(above.unwrap().to_string(), "a above b: fails");
    let near = |percent| {
        let claim = samples.claim("", "a is 11", |sample| {
            Some(within(sample.figure(0, "mops")?, percent, 11.0))
        });
        claim.unwrap().verdict
    };
    assert_eq!((near(15.0), near(5.0)), (Verdict::Holds, Verdict::Fails));
    assert_eq!(
        samples.claim("", "", |sample| Some(sample.figure(2, "mops")? > 0.0)),
        None
    );
}

#[test]
fn one_constant_decides() {
    let samples = synthetic(|name, arm| (name == "a" && arm.kind == ATOMIC_HIGH).then_some(25.0));
    let claim = a_below_b(&samples);
    assert_eq!(
        claim.to_string(),
        "a below b: undecided (true in 32 of 32 draws, with 8 of 8 other seeds; changed by latency.atomic high)"
    );
    let [a, b] = samples.bands().try_into().unwrap();
    assert_eq!(
        (a.one, a.drawn, a.seeds),
        ([10.0, 25.0], [10.0; 2], [10.0; 2])
    );
    assert_eq!(a.most.as_deref(), Some("latency.atomic"));
    let atomic = a
        .constants
        .iter()
        .find(|of| of.constant == "latency.atomic");
    assert_eq!(atomic.map(|of| of.high), Some(25.0));
    assert_eq!((b.one, b.most), ([20.0; 2], None));
}

#[test]
fn what_chance_does_as_well_is_no_effect() {
    // Every arm takes run b elsewhere, and a high atomic takes it far.
    let noisy = |name: &str, arm: &Arm| {
        let noise = [3.0, -2.0, 1.0, -3.0, 2.0][arm.number % 5];
        (name == "b").then_some(20.0 + noise)
    };
    let [a, b] = synthetic(noisy).bands().try_into().unwrap();
    assert_eq!((a.decides, a.chance), (Decides::Nothing, 0.0));
    assert_eq!((b.decides, b.most.as_deref()), (Decides::Chance, None));
    assert!(b.one[0] < 18.0 && b.chance > 3.0, "{b:?}");
    let far = synthetic(|name, arm| match (name, arm.kind) {
        ("b", ATOMIC_HIGH) => Some(60.0),
        _ => (name == "b").then_some(20.0 + (arm.number % 3) as f64),
    });
    let b = far.bands().remove(1);
    assert_eq!(
        (b.decides, b.most.as_deref()),
        (Decides::Constant, Some("latency.atomic"))
    );
    // A claim that a seed changes is changed by no constant.
    assert_eq!(
        a_below_b(&synthetic(|name, arm| {
            (name == "b" && (arm.seed == 9 || arm.kind == ATOMIC_HIGH)).then_some(9.0)
        }))
        .changed_by,
        Vec::<String>::new()
    );
    let study = Study::new(&machine(), [], 7).over_states();
    let of_states = in_study(study, |name, arm| {
        (name == "b" && arm.kind == ArmKind::State).then_some(20.0 + f64::from(arm.state))
    });
    assert_eq!(of_states.bands()[1].decides, Decides::State);
}

#[test]
fn draws_and_seeds_decide() {
    let drawn = synthetic(|name, arm| (name == "b" && arm.kind == ArmKind::Draw).then_some(9.0));
    assert_eq!(
        a_below_b(&drawn).to_string(),
        "a below b: undecided (true in 0 of 32 draws, with 8 of 8 other seeds)"
    );
    assert_eq!(drawn.bands()[1].drawn, [9.0; 2]);
    let chance = synthetic(|name, arm| (name == "b" && arm.seed == 9).then_some(9.0));
    assert_eq!(
        a_below_b(&chance).to_string(),
        "a below b: undecided (true in 32 of 32 draws, with 7 of 8 other seeds)"
    );
    assert_eq!(chance.bands()[1].seeds, [9.0, 20.0]);
}

#[test]
fn states_of_the_heap_decide() {
    let study = Study::new(&machine(), [], 7).over_states();
    let states: Vec<u32> = study
        .arms()
        .iter()
        .filter(|arm| arm.kind == ArmKind::Draw)
        .map(|arm| arm.state)
        .collect();
    assert_eq!(states, (1..=DRAWS).collect::<Vec<_>>());
    let of_state = |name: &str, arm: &Arm| (name == "b" && arm.state == 3).then_some(9.0);
    let samples = in_study(study, of_state);
    assert_eq!(
        a_below_b(&samples).to_string(),
        "a below b: undecided (true in 31 of 32 draws, with 8 of 8 other seeds, in 7 of 8 states of the heap)"
    );
    let [a, b] = samples.bands().try_into().unwrap();
    assert_eq!((a.states, b.states), (Some([10.0; 2]), Some([9.0, 20.0])));
    assert_eq!(synthetic(|_, _| None).bands()[0].states, None);
}

#[test]
fn an_order_is_a_claim_for_each_two_neighbours() {
    let samples = synthetic(|name, arm| (name == "a" && arm.kind == ATOMIC_HIGH).then_some(25.0));
    let names = [(0, "a".to_string()), (1, "b".to_string())];
    let [claim] = samples.order("", MOST, &names).try_into().unwrap();
    assert_eq!(
        (claim.claim.as_str(), claim.verdict),
        ("b before a", Verdict::Undecided)
    );
    let twice = [(1, "b".to_string()), (1, "c".to_string())];
    let [claim] = samples.order("", MOST, &twice).try_into().unwrap();
    assert_eq!(claim.to_string(), "b the same as c: holds");
    assert!(samples.order("", MOST, &names[..1]).is_empty());
    let [claim] = samples
        .order("", ("mops", First::Least), &names)
        .try_into()
        .unwrap();
    assert_eq!(
        (claim.claim.as_str(), claim.true_draws),
        ("a before b", [32, 32])
    );
}

fn spec(era: Era) -> MicroSpec {
    MicroSpec {
        pattern: Pattern::Cross,
        count: 100,
        bulk: 1,
        cpus: 4,
        rounds: 1,
        ..MicroSpec::new(Setup {
            memory_bytes: 1 << 28,
            ..Setup::new(era, machine())
        })
    }
}

/// SLUB and sheaves in all arms.
fn measured(jobs: usize) -> (Study, Samples) {
    type Run = fn(&MicroSpec) -> Result<MicroReport, WorkError>;
    let runs: [(Run, MicroSpec); 2] = [
        (micro::run::<Slub>, spec(Era::V6_1)),
        (micro::run::<SheafCache>, spec(Era::V7_0)),
    ];
    let figures = |report: &MicroReport| {
        let free = report.free.unwrap();
        vec![("alloc_ns", report.alloc.ns), ("free_ns", free.ns)]
    };
    let reports = runs.each_ref().map(|(run, spec)| run(spec).unwrap());
    let study = Study::new(&machine(), reports.iter().map(|report| &report.spent), 1);
    let values = reports.iter().map(figures).collect();
    let samples = study.run(&runs, values, jobs, &|| (), |(run, spec), arm| {
        let spec = MicroSpec {
            setup: spec.setup.in_arm(arm),
            ..spec.clone()
        };
        run(&spec).map(|report| figures(&report))
    });
    (study, samples.unwrap())
}

#[test]
fn constants_that_are_used_move_figures_and_others_are_left_out() {
    let (study, samples) = measured(1);
    let unused = samples.unused();
    for constant in ["work.ipi", "latency.dirty_remote", "throughput.copy"] {
        assert!(unused.iter().any(|name| name == constant), "{unused:?}");
    }
    assert_eq!(unused.len(), study.unused.len());
    let slub = &samples.bands()[0];
    assert!(
        !slub
            .constants
            .iter()
            .any(|of| unused.contains(&of.constant))
    );
    let call = slub.constants.iter().find(|of| of.constant == "work.call");
    let call = call.unwrap();
    assert!(call.low < slub.value && slub.value < call.high, "{call:?}");
    // 0 as its value says, so no time went into it; kernels with preemption pay for it. CPUs then meet at other moments,
    // so the figure may move either way.
    let sheaf = &samples.bands()[2];
    let preempt = sheaf
        .constants
        .iter()
        .find(|of| of.constant == "work.preempt");
    assert!(preempt.unwrap().high != sheaf.value, "{preempt:?}");
    assert!(slub.one[0] < slub.value && slub.value < slub.one[1]);
    assert!(slub.drawn[0] < slub.drawn[1]);
    assert!(slub.most.is_some());
}

#[test]
fn other_seeds_move_figures_less_than_constants_do() {
    let (study, samples) = measured(1);
    let seeds = study.arms.iter().filter(|arm| arm.kind == ArmKind::Seed);
    assert_eq!(seeds.count(), SEEDS as usize);
    let bands = samples.bands();
    let widths = |of: fn(&FigureBand) -> [f64; 2]| -> f64 {
        let relative = |band: &FigureBand| (of(band)[1] - of(band)[0]) / band.value;
        bands.iter().map(relative).sum()
    };
    let (seeds, drawn) = (widths(|band| band.seeds), widths(|band| band.drawn));
    assert!(
        0.0 < seeds && seeds < drawn,
        "{seeds} and {drawn}: {bands:?}"
    );
}

#[test]
fn the_number_of_threads_changes_nothing() {
    assert_eq!(measured(1).1.bands(), measured(3).1.bands());
}
