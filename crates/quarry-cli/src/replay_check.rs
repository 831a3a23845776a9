//! Tables of `quarry replay --check`: predicted memory next to observed.

use quarry_lab::RunReport;
use quarry_lab::replay::check::{CacheCheck, Check, Growth};

use crate::output;
use crate::units::{bytes, count, signed};

/// The table of a run's check and what is said below it.
pub(crate) fn text(title: &str, check: &Check) -> String {
    let (table, left_out) = check_table(check);
    let what = match check.recorded {
        true => "predicted next to observed",
        false => "and the kernel as it was recorded",
    };
    let mut text = format!("\n{title}, {what}, in KiB\n{table}\n");
    if left_out > 0 {
        text.push_str(&format!(
            "{left_out} caches beyond {HOLDING_PERCENT} % of the memory, which neither changed nor are predicted to, are left out\n"
        ));
    }
    if check.recorded {
        text.push_str(&same_slabs(check));
        text.push_str(&unseen(check));
    }
    text
}

/// The checks of runs, in a sentence for each; empty without checks.
pub(crate) fn finding(runs: &[RunReport]) -> String {
    let checked = runs
        .iter()
        .filter_map(|run| Some((run, run.check.as_ref()?)));
    let sentence = |(run, check): (&RunReport, &Check)| {
        let (predicted, observed) = (check.predicted_bytes, check.observed_bytes);
        let difference = share(
            i128::from(predicted) - i128::from(observed),
            observed.into(),
        );
        let name = format!(
            "{} with {} pages and {} CPUs",
            run.title(),
            bytes(run.page_size),
            run.cpus
        );
        match check.recorded {
            true => format!(
                "At its end the load has {} of slabs in the kernel and {} in the replay of {name} ({difference}){}.",
                bytes(observed),
                bytes(predicted),
                check
                    .growth
                    .as_ref()
                    .map_or_else(String::new, growth_sentence)
            ),
            false => format!(
                "{name} would hold {} where the recorded kernel held {} ({difference}).",
                bytes(predicted),
                bytes(observed)
            ),
        }
    };
    checked.map(sentence).collect::<Vec<_>>().join(" ")
}

/// The growth of all caches together, and what it says about the replay.
fn growth_sentence(growth: &Growth) -> String {
    let Growth {
        observed_bytes: observed,
        low_bytes: low,
        high_bytes: high,
        ..
    } = *growth;
    let verdict = match () {
        () if observed < low => format!("more than it did by {}", bytes(low.abs_diff(observed))),
        () if observed > high => format!("less than it did by {}", bytes(high.abs_diff(observed))),
        () if low <= 0 && high >= 0 => "not told apart from 0".to_string(),
        () => "as it did".to_string(),
    };
    format!(
        "; the kernel grew by {}, predicted is {} to {} from {} states that its report allows: {verdict}",
        signed(observed.into()),
        signed(low.into()),
        signed(high.into()),
        growth.states
    )
}

/// The caches that hold this much of the memory are always shown.
const HOLDING_PERCENT: u64 = 95;

/// Share of objects that came from the same slabs as in the kernel, if the trace records slabs.
fn same_slabs(check: &Check) -> String {
    let sum = |of: fn(&CacheCheck) -> u64| check.caches.iter().map(of).sum::<u64>();
    let told = sum(|cache| cache.same_slabs.told);
    if told == 0 {
        return String::new();
    }
    let same = sum(|cache| cache.same_slabs.same);
    let departed = |cache: &&CacheCheck| cache.same_slabs.first_departure.is_some();
    format!(
        "{} of {} allocations came from the slab that the kernel took them from; caches with others: {}\n",
        count(same),
        count(told),
        check.caches.iter().filter(departed).count()
    )
}

/// The memory of each cache before, as predicted and as observed, and the number of caches that
/// are left out.
fn check_table(check: &Check) -> (output::Grid, usize) {
    // Settings that the kernel did not have are no prediction of it: the difference is theirs.
    let header = match check.recorded {
        true => [
            "cache",
            "before",
            "predicted",
            "observed",
            "difference",
            "of it",
        ],
        false => [
            "cache",
            "kernel before",
            "at the end",
            "kernel",
            "change",
            "of it",
        ],
    };
    let mut table = output::grid(&header, &[]);
    let kib = |bytes: u64| (bytes >> 10).to_string();
    let mut row = |name: &str, before: Option<u64>, predicted: u64, observed: u64| {
        let difference = i128::from(predicted) - i128::from(observed);
        let share = share(difference, observed.into());
        table.add_row([
            name.to_string(),
            before.map_or_else(|| "-".to_string(), kib),
            kib(predicted),
            kib(observed),
            format!("{:+}", difference / 1024),
            share,
        ]);
    };
    let holding = check.holding(HOLDING_PERCENT).len();
    let tells = |cache: &CacheCheck| {
        let same = cache.predicted_bytes == cache.observed_bytes;
        let before = cache.initial_bytes;
        !same || before.is_some_and(|before| before != cache.observed_bytes)
    };
    let mut left_out = 0;
    for (at, cache) in check.caches.iter().enumerate() {
        let (predicted, observed) = (cache.predicted_bytes, cache.observed_bytes);
        if at < holding || tells(cache) {
            let mark = if cache.misses_events() { " *" } else { "" };
            let name = format!("{}{mark}", cache.name);
            row(&name, cache.initial_bytes, predicted, observed);
        } else {
            left_out += 1;
        }
    }
    let (predicted, observed) = (check.predicted_bytes, check.observed_bytes);
    row("all caches", check.initial_bytes, predicted, observed);
    if let Some(before) = check.initial_bytes.filter(|_| check.recorded) {
        table.add_row(growth("growth", before, predicted, observed));
    }
    let seen = &check.seen;
    if let (Some(before), true) = (seen.initial_bytes, check.recorded && seen.left_out > 0) {
        let (predicted, observed) = (seen.predicted_bytes, seen.observed_bytes);
        table.add_row(growth("growth without *", before, predicted, observed));
    }
    (table, left_out)
}

/// By how much memory grew.
fn growth(name: &str, before: u64, predicted: u64, observed: u64) -> [String; 6] {
    let grown = |bytes: u64| (i128::from(bytes) - i128::from(before)) / 1024;
    let (predicted, observed) = (grown(predicted), grown(observed));
    let difference = predicted - observed;
    [
        name.to_string(),
        String::new(),
        format!("{predicted:+}"),
        format!("{observed:+}"),
        format!("{difference:+}"),
        share(difference, observed),
    ]
}

/// A difference as a part of what was observed, in per cent; `-` of nothing.
fn share(difference: i128, observed: i128) -> String {
    match observed {
        0 => "-".to_string(),
        _ => format!(
            "{:+.1} %",
            difference as f64 / observed.abs() as f64 * 100.0
        ),
    }
}

/// Legend of the mark on caches, if any has it.
fn unseen(check: &Check) -> String {
    let sum = |of: fn(&CacheCheck) -> u64| {
        let counts = check.caches.iter().map(of).filter(|count| *count > 0);
        counts.fold((0_u64, 0), |(sum, caches), count| {
            (sum.saturating_add(count), caches + 1)
        })
    };
    let mut text = String::new();
    let (frees, caches) = sum(|cache| cache.implied_frees);
    if caches > 0 {
        text.push_str(&format!(
            "* {} frees of {caches} caches had no event (bulk frees have none): only the later use \
             of the memory told them, so these caches may hold more here than in the kernel\n",
            count(frees)
        ));
    }
    let (allocs, caches) = sum(|cache| cache.unseen_allocs);
    if caches > 0 {
        text.push_str(&format!(
            "* {} slabs of {caches} caches were made for allocations without an event, or with another cache's \
             name: these caches may hold less here than in the kernel\n",
            count(allocs)
        ));
    }
    text
}
