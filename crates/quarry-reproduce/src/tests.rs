use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quarry_work::load::LoadSpec;

use crate::judge::Verdict;
use crate::others::Other;
use crate::plan::{Arms, Experiment};
use crate::spec::ClaimSpec;
use crate::threads::THREADS;
use crate::*;

/// Figures of any experiment.
const FIGURES: [&str; 24] = [
    "per_second",
    "mb_per_second",
    "us_per_operation",
    "kib",
    "observed_kib",
    "page_percent",
    "slab_slow_percent",
    "zone_wait_percent",
    "hits_4096",
    "mbit",
    "zone_percent",
    "objects",
    "pages",
    "cpu_partial",
    "kmalloc-2k total",
    "kmalloc-2k in use",
    "kmalloc-2k partial slabs",
    "kmalloc-2k partial slabs with one object",
    "profile: protocols, sockets",
    "profile: copy_user",
    "profile: schedule, __switch_to",
    "profile: system_call",
    "profile: idle exit, reschedule interrupt",
    "profile: kmem_cache_alloc, kmem_cache_free",
];

#[test]
fn claims_tables_and_plots_are_about_experiments_that_exist() {
    for thread in &THREADS {
        let mut results = Results::default();
        let experiments = (thread.experiments)(Mode::Full);
        let mut names: Vec<&str> = experiments.iter().map(|it| it.name.as_str()).collect();
        for name in &names {
            let figures = FIGURES.map(|figure| (figure.to_string(), 1.0));
            results.put(0, name, Some(figures.to_vec()));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), experiments.len(), "{}", thread.name);
        let judged = judge(thread, Mode::Full, &results);
        for claim in &judged.claims {
            assert!(claim.measured.is_some(), "{} {}", thread.name, claim.id);
            assert!(claim.range[0] < claim.range[1], "{}", claim.id);
        }
        for row in judged.tables.iter().flat_map(|table| &table.rows) {
            // Symbols of the published profile have no counterpart each.
            let is_measured = row.measured.is_some() || row.label.starts_with("· ");
            assert!(is_measured, "{} {}", thread.name, row.label);
        }
        for line in judged.plots.iter().flat_map(|plot| &plot.lines) {
            assert!(!line.points.is_empty(), "{} {}", thread.name, line.name);
        }
    }
}

#[test]
fn each_claim_has_a_verdict_from_before() {
    let rows = include_str!("../data/verdicts.csv").lines().skip(1);
    let rows: Vec<String> = rows
        .map(|row| row.split(',').take(2).collect::<Vec<_>>().join(","))
        .collect();
    let claims = THREADS.iter().flat_map(|thread| {
        let claims = (thread.claims)().into_iter();
        claims.map(|claim| format!("{},{}", thread.name, claim.id))
    });
    assert_eq!(rows, claims.collect::<Vec<_>>());
}

#[test]
fn each_cause_has_a_claim_and_each_claim_its_cause() {
    let pairs = |table: &'static str, at: usize| {
        let rows = table.lines().skip(1).map(|line| line.split('\t'));
        let pairs = rows.map(move |row| (row.clone().next(), row.clone().nth(at)));
        let named = pairs.filter(|(_, name)| *name != Some(""));
        named.collect::<BTreeSet<_>>()
    };
    let claims = pairs(include_str!("../data/claims.tsv"), 7);
    assert_eq!(claims, pairs(include_str!("../data/causes.tsv"), 1));
}

#[test]
fn the_documentation_counts_the_verdicts_of_both_modes() {
    let rows: Vec<&str> = include_str!("../data/verdicts.csv")
        .lines()
        .skip(1)
        .collect();
    let count = |column: usize, verdict: Verdict| {
        let verdicts = rows.iter().filter_map(|row| row.split(',').nth(column));
        verdicts.filter(|name| *name == verdict.name()).count()
    };
    let of =
        |column| [Verdict::Holds, Verdict::Undecided, Verdict::Fails].map(|it| count(column, it));
    let ([held, open, failed], not_run) = (of(2), count(2, Verdict::NotRun));
    let all = rows.len();
    let quick = format!(
        "Of {all} claims {held} hold in quick mode, {open} are undecided, {failed} fail, and {not_run} need the full mode"
    );
    let [held, open, failed] = of(3);
    let full =
        format!("longer loads {held} hold, {open} are undecided, and {failed} fail (full mode");
    assert_eq!(count(3, Verdict::NotRun), 0);
    let text = include_str!("../../../docs/loads.md").replace('\n', " ");
    for sentence in [quick, full] {
        assert!(
            text.contains(&sentence),
            "docs/loads.md should say: {sentence}"
        );
    }
}

/// Runs of the experiments below.
static RUNS: AtomicU32 = AtomicU32::new(0);

fn experiments(_: Mode) -> Vec<Experiment> {
    let experiment = |name: &str, value: f64| Experiment {
        name: name.to_string(),
        design: None,
        seconds: 1.0,
        arms: Arms::All,
        run: Box::new(move |setting| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            let changed = if setting.change.is_some() { 12.5 } else { 0.0 };
            Ok(vec![(
                "x".to_string(),
                value + changed + setting.seed as f64,
            )])
        }),
    };
    vec![experiment("a", 10.0), experiment("b", 0.0)]
}

fn claims() -> Vec<ClaimSpec> {
    let claim = |id, experiment, from, to| ClaimSpec {
        id,
        text: id,
        published: "",
        unit: "",
        range: [from, to],
        figure: Box::new(move |arm| arm.get(experiment, "x")),
        cause: "because",
    };
    // The figures are 11 and 1 with seed 1, and 12 and 2 with seed 2.
    vec![
        claim("holds", "a", 10.5, 14.5),
        claim("undecided", "a", 10.5, 11.5),
        claim("below", "a", 13.0, 14.0),
        claim("between", "a", 11.2, 11.8),
        claim("far below", "b", 13.0, 14.0),
    ]
}

static THREAD: Thread = Thread {
    name: "test",
    title: "",
    question: "",
    taken: "",
    why: "",
    experiments,
    claims,
    others: || {
        let shift = |spec: &mut LoadSpec| spec.time_ns = 0;
        vec![Other::load("a change", "no: a test", &["far"], shift)]
    },
    show: |_| (Vec::new(), Vec::new()),
};

#[test]
fn verdicts_follow_from_all_arms_and_an_interrupted_plan_goes_on() {
    let plan = Plan::new(vec![&THREAD], Mode::Quick, 1);
    let path = std::env::temp_dir().join(format!("quarry-plan-{}", std::process::id()));
    let stop = AtomicBool::new(false);
    let stop_after = |runs: u64| {
        let stop = &stop;
        move |at: Progress| stop.store(at.runs >= runs, Ordering::Relaxed)
    };
    let mut kept = Kept::open(&path, "1").unwrap();
    let results = plan.run(1, &mut kept, &stop, &stop_after(3)).unwrap();
    assert_eq!(RUNS.load(Ordering::Relaxed), 3);
    let judged = judge(&THREAD, Mode::Quick, &results[0]);
    // Both experiments with the values and one with the other seed ran: two of five arms say nothing of a claim.
    assert_eq!(judged.runs, [3, 10]);
    for claim in &judged.claims[..4] {
        assert_eq!((claim.verdict, claim.cause), (Verdict::Incomplete, ""));
        assert_eq!((claim.true_arms[1], claim.due_arms), (2, 5));
        assert_eq!(claim.measured, Some(11.0));
    }
    drop(kept);
    stop.store(false, Ordering::Relaxed);
    let mut kept = Kept::open(&path, "1").unwrap();
    assert_eq!(kept.len(), 3);
    let results = plan.run(3, &mut kept, &stop, &stop_after(100)).unwrap();
    // Two experiments with the values, another seed, another state and two draws.
    assert_eq!(RUNS.load(Ordering::Relaxed), 10);
    std::fs::remove_file(&path).unwrap();
    let judged = judge(&THREAD, Mode::Quick, &results[0]);
    let verdicts: Vec<Verdict> = judged.claims.iter().map(|claim| claim.verdict).collect();
    use Verdict::{Fails, Holds, Undecided};
    assert_eq!(verdicts, [Holds, Undecided, Fails, Undecided, Fails]);
    assert_eq!((judged.runs, judged.claims[0].due_arms), ([10, 10], 5));
    assert_eq!(judged.claims[1].band, Some([11.0, 12.0]));
    assert_eq!(
        (judged.claims[0].cause, judged.claims[2].cause),
        ("", "because")
    );
    assert!(!judged.claims[2].is_lost());
    no_arm_runs_for_a_verdict_that_is_found();
}

/// A claim that may hold takes all 40 arms, one that is far off the values, a seed, a state and six draws.
fn no_arm_runs_for_a_verdict_that_is_found() {
    let plan = Plan::new(vec![&THREAD], Mode::Full, 1);
    let stop = AtomicBool::new(false);
    let seen = std::sync::Mutex::new(Vec::new());
    let progress = |at: Progress| seen.lock().unwrap().push(at);
    let results = plan.run(2, &mut Kept::nothing(), &stop, &progress).unwrap();
    let judged = judge(&THREAD, Mode::Full, &results[0]);
    let arms = |at: usize| (judged.claims[at].verdict, judged.claims[at].true_arms[1]);
    assert_eq!(arms(0), (Verdict::Holds, 40));
    assert_eq!(arms(4), (Verdict::Fails, 9));
    // And one run of the experiment that fails, with the single change: 12.5 more than 1.
    assert_eq!(judged.runs, [50, 50]);
    let near = judged.claims[4].nearest.as_ref().unwrap();
    assert_eq!((near.figure, near.holds, near.tried), (13.5, true, 1));
    assert!(judged.claims[0].nearest.is_none() && judged.claims[1].nearest.is_none());
    let seen = seen.into_inner().unwrap();
    let all = [0, 48, 49].map(|at| seen[at].all_runs);
    assert_eq!(all, [80, 49, 50]);
    assert_eq!(
        (seen[49].runs, seen[49].seconds),
        (50, seen[49].all_seconds)
    );
}

/// An experiment that begins on no heap. Its figure is 10 and the seed.
fn heapless(_: Mode) -> Vec<Experiment> {
    vec![Experiment {
        name: "a".to_string(),
        design: None,
        seconds: 1.0,
        arms: Arms::Heapless,
        run: Box::new(|setting| Ok(vec![("x".to_string(), 10.0 + setting.seed as f64)])),
    }]
}

/// Runs of the full mode for claims about it.
fn runs_without_heap(claims: fn() -> Vec<ClaimSpec>) -> usize {
    let thread: &'static Thread = Box::leak(Box::new(Thread {
        experiments: heapless,
        claims,
        ..THREAD
    }));
    let plan = Plan::new(vec![thread], Mode::Full, 1);
    let stop = AtomicBool::new(false);
    let results = plan.run(1, &mut Kept::nothing(), &stop, &|_| ()).unwrap();
    results[0].runs()[0]
}

#[test]
fn no_state_repeats_the_values_and_four_arms_may_decide() {
    // One that holds needs all 40 arms but the four other states.
    assert_eq!(runs_without_heap(|| vec![claims().remove(0)]), 36);
    // The values, another seed and two draws; the fourth arm beside them is a state.
    assert_eq!(runs_without_heap(|| vec![claims().remove(1)]), 4);
}

#[test]
fn a_claim_is_due_in_the_arms_of_its_experiments() {
    let figures = || Some(vec![("x".to_string(), 11.0)]);
    let mut results = Results::default();
    // The claims' experiment runs with the values alone, another one in all arms.
    results.put(0, "a", figures());
    results.put(0, "b", None);
    results.put(1, "b", None);
    let of_first = |results: &Results| judge(&THREAD, Mode::Quick, results).claims.remove(0);
    let first = of_first(&results);
    assert_eq!((first.verdict, first.due_arms), (Verdict::Holds, 1));
    results.put(0, "a", None);
    let first = of_first(&results);
    assert_eq!((first.verdict, first.measured), (Verdict::Incomplete, None));
    let first = of_first(&Results::default());
    assert_eq!((first.verdict, first.due_arms), (Verdict::NotRun, 0));
}

#[test]
fn a_thread_that_does_not_exist_is_refused_with_those_that_do() {
    let error = find("none").err().map(|error| error.to_string()).unwrap();
    assert!(
        error.contains("tbench-2007") && error.ends_with("and all"),
        "{error}"
    );
    assert_eq!(find("all").unwrap().len(), 5);
}

#[test]
fn memory_is_predicted_from_each_snapshot_and_recording() {
    let thread = find("pages64k-2020").unwrap()[0];
    let setting = crate::setting::Setting {
        draw: quarry_machines::Draw::VALUES,
        seed: 1,
        booted: None,
        state: 0,
        change: None,
    };
    let mut formulas = Results::default();
    let predictions = (thread.experiments)(Mode::Quick).into_iter();
    for experiment in predictions.filter(|it| it.arms != Arms::All) {
        let figures = (experiment.run)(&setting).unwrap();
        match figures[0].0.as_str() {
            "kib" => assert!(figures[0].1 > 10_000.0, "{} {figures:?}", experiment.name),
            _ => formulas.put(0, &experiment.name, Some(figures)),
        }
    }
    let tables = judge(thread, Mode::Quick, &formulas).tables;
    let rows = tables.iter().flat_map(|table| &table.rows);
    let exact = rows.filter(|row| row.measured.is_some());
    let exact = exact.map(|row| assert_eq!(row.measured, row.published, "{}", row.label));
    assert_eq!(
        exact.count(),
        10,
        "task_struct by orders, cpu_partial by sizes"
    );
}
