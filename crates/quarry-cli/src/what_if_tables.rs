//! The tables of `quarry what-if`: a line for each prediction, and its caches.

use quarry_lab::whatif::{CachePrediction, Cause, Fit, Prediction, known_errors};
use quarry_snapshot::Snapshot;

use crate::units::{bytes, count, signed};
use quarry_lab::known;

use crate::output;

/// Caches that are shown unless all are asked for.
const CACHES_SHOWN: usize = 12;

/// Everything that the command prints.
pub(crate) fn text(snapshot: &Snapshot, predictions: &[Prediction], all: bool) -> String {
    let mut text = match predictions {
        [one] => answer(one),
        several => format!("{}\n", totals(several)),
    };
    text.push_str(&head(snapshot, predictions));
    for prediction in predictions {
        text.push_str(&notes(prediction));
    }
    for prediction in predictions {
        text.push_str(&caches(prediction, all));
    }
    text
}

fn head(snapshot: &Snapshot, predictions: &[Prediction]) -> String {
    let stage = snapshot.stage.as_deref();
    let stage = stage.map_or(String::new(), |stage| format!(", stage {stage}"));
    let mut text = format!("{}{stage}: {}\n", snapshot.file, known::machine(snapshot));
    for note in known::notes(snapshot) {
        text.push_str(&format!("{note}\n"));
    }
    if let Some(first) = predictions.first() {
        text.push_str(&format!(
            "taken as {}: its formulas give the slabs of {} of {} caches\n",
            first.snapshot_design,
            first.explained_caches,
            snapshot.slabinfo.rows.len(),
        ));
        if let Fit::Doubtful(cause) | Fit::Bad(cause) = first.fit(snapshot) {
            text.push_str(&format!(
                "warning: that is {:.0} %: {cause}\n",
                first.fit_percent(snapshot)
            ));
        }
        let [low, high] = known_errors(snapshot.detail());
        text.push_str(&format!(
            "known errors from such a file are {low:+} to {high:+} % (docs/what-if.md)\n"
        ));
        if predictions.iter().any(|told| told.sheaves_bytes > 0) {
            text.push_str(SHRUNK);
        }
        for guess in &first.guessed {
            text.push_str(&format!("{guess}\n"));
        }
        if !first.snapshot_debugging.is_empty() {
            text.push_str(&format!("debugging is on: {}\n", first.snapshot_debugging));
        }
    }
    text
}

/// A snapshot does not tell what a shrink has emptied; docs/what-if.md has the boots that this is from.
const SHRUNK: &str =
    "sheaves are taken as a load leaves them: just after a shrink of all caches +63 to +131 %\n";

/// The answer to one question; of several the ends of what is predicted.
pub(crate) fn finding(predictions: &[Prediction]) -> String {
    let by_bytes = |told: &&Prediction| told.predicted_bytes;
    let ends = predictions
        .iter()
        .min_by_key(by_bytes)
        .zip(predictions.iter().max_by_key(by_bytes));
    let Some((least, most)) = ends else {
        return String::new();
    };
    if predictions.len() == 1 {
        let answer = answer(least);
        return format!(
            "S{}.",
            answer.trim_end().strip_prefix('s').unwrap_or(&answer)
        );
    }
    let told = |told: &Prediction| {
        let set = match told.set.as_str() {
            "" => String::new(),
            set => format!(" ({set})"),
        };
        format!(
            "{} ({}) with {}{set}, {} pages and {}",
            mib(told.predicted_bytes),
            change(told.predicted_bytes, told.observed_bytes),
            told.design,
            bytes(told.page_size),
            cpus(told)
        )
    };
    // The bounds tell them apart if they do not meet.
    let certain = match least.high_bytes < most.low_bytes {
        true => "their bounds do not overlap",
        false => "but their bounds overlap",
    };
    format!(
        "Slab memory is {} now; predicted is {} at least and {} at most: {certain}.",
        mib(least.observed_bytes),
        told(least),
        told(most)
    )
}

/// The answer to one question, in a line.
fn answer(told: &Prediction) -> String {
    let observed = told.observed_bytes;
    let to = format!(
        "{}, {} pages, {}",
        told.design,
        bytes(told.page_size),
        cpus(told)
    );
    if [told.low_bytes, told.predicted_bytes, told.high_bytes] == [observed; 3] {
        return format!(
            "slab memory {} now, the same with {to}: nothing differs\n",
            mib(observed)
        );
    }
    format!(
        "slab memory {} now, {} ({}) with {to}; between {} ({}) and {} ({})\n",
        mib(observed),
        mib(told.predicted_bytes),
        change(told.predicted_bytes, observed),
        mib(told.low_bytes),
        change(told.low_bytes, observed),
        mib(told.high_bytes),
        change(told.high_bytes, observed),
    )
}

/// CPUs of a prediction: no number if it is assumed.
fn cpus(told: &Prediction) -> String {
    match told.cpus_are_assumed {
        true => "CPUs not known".to_string(),
        false => format!("{} CPUs", told.cpus),
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn totals(predictions: &[Prediction]) -> String {
    let header = [
        "design",
        "pages",
        "CPUs",
        "observed",
        "predicted",
        "change",
        "low",
        "high",
    ];
    let mut table = output::grid(&header, &[]);
    for told in predictions {
        let set = match told.set.as_str() {
            "" => String::new(),
            set => format!("\n  {}", set.replace(' ', "\n  ")),
        };
        table.add_row([
            format!("{}{set}", told.design),
            bytes(told.page_size),
            match told.cpus_are_assumed {
                true => "?".to_string(),
                false => count(told.cpus.into()),
            },
            bytes(told.observed_bytes),
            bytes(told.predicted_bytes),
            change(told.predicted_bytes, told.observed_bytes),
            bytes(told.low_bytes),
            bytes(told.high_bytes),
        ]);
    }
    table.to_string()
}

/// By how much more or less, in per cent.
fn change(predicted: u64, observed: u64) -> String {
    if observed == 0 {
        return "-".to_string();
    }
    let percent = (predicted as f64 / observed as f64 - 1.0) * 100.0;
    // Not "-0.0".
    let percent = (percent * 10.0).round() / 10.0 + 0.0;
    format!("{percent:+.1} %")
}

/// Memory that moves between slabs and the page allocator.
fn notes(told: &Prediction) -> String {
    let mut text = String::new();
    let pages = bytes(told.page_size);
    for cost in &told.configuration {
        let sign = |bytes: i64| signed(bytes.into());
        text.push_str(&format!(
            "{}: {} costs {}, between {} and {}\n",
            told.design,
            cost.config,
            sign(cost.bytes),
            sign(cost.low_bytes),
            sign(cost.high_bytes)
        ));
    }
    for unmodelled in &told.unmodelled {
        text.push_str(&format!(
            "not computed, in the bounds: {} ({})\n",
            unmodelled.what,
            match (bytes(unmodelled.less_bytes), bytes(unmodelled.more_bytes)) {
                (less, _) if unmodelled.more_bytes == 0 => format!("up to -{less}"),
                (_, more) if unmodelled.less_bytes == 0 => format!("up to +{more}"),
                (less, more) => format!("-{less} to +{more}"),
            }
        ));
    }
    if told.debugging != told.snapshot_debugging {
        let with = match told.debugging.as_str() {
            "" => "without debugging",
            debugging => debugging,
        };
        text.push_str(&format!("{}: {with}\n", told.design));
    }
    if told.to_pages_bytes > 0 {
        text.push_str(&format!(
            "with {pages} pages: about {} of objects go to the page allocator, outside of all \
             slabs\n",
            bytes(told.to_pages_bytes)
        ));
    }
    if told.from_pages_bytes > 0 {
        text.push_str(&format!(
            "with {pages} pages: {} of large kmallocs, now pages, come into slabs\n",
            bytes(told.from_pages_bytes)
        ));
    }
    if told.sheaves_bytes > 0 {
        let kept = told.caches.iter().map(|cache| cache.kept_objects);
        text.push_str(&format!(
            "{}: sheaves and barns keep about {} objects; the sheaves themselves take {}\n",
            told.design,
            count(kept.sum()),
            bytes(told.sheaves_bytes.unsigned_abs()),
        ));
    }
    text
}

fn caches(told: &Prediction, all: bool) -> String {
    let mut rows: Vec<&CachePrediction> = told
        .caches
        .iter()
        .filter(|cache| cache.observed_bytes > 0 || cache.predicted_bytes > 0)
        .collect();
    rows.sort_by(|a, b| {
        let size = |cache: &CachePrediction| {
            let changed = cache.predicted_bytes.abs_diff(cache.observed_bytes);
            let largest = cache.predicted_bytes.max(cache.observed_bytes);
            if all {
                (largest, changed)
            } else {
                (changed, largest)
            }
        };
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    let total = rows.len();
    if !all {
        rows.truncate(CACHES_SHOWN);
    }
    let header = [
        "name",
        "observed",
        "predicted",
        "change",
        "because",
        "low",
        "high",
        "slab\nsize",
        "objs per\nslab",
        "pages per\nslab",
    ];
    let mut table = output::grid(&header, &[4]);
    for cache in &rows {
        table.add_row([
            cache.name.clone(),
            bytes(cache.observed_bytes),
            bytes(cache.predicted_bytes),
            change(cache.predicted_bytes, cache.observed_bytes),
            because(cache),
            bytes(cache.low_bytes),
            bytes(cache.high_bytes),
            cache.slab_size.to_string(),
            became(cache.observed_objs_per_slab, cache.objs_per_slab),
            became(cache.observed_pages_per_slab, cache.pages_per_slab),
        ]);
    }
    let set = match told.set.as_str() {
        "" => String::new(),
        set => format!(" ({set})"),
    };
    let shown = if rows.len() < total {
        format!(", {} of {total} caches: those that change most", rows.len())
    } else {
        String::new()
    };
    format!(
        "\n{}{set}, {} pages, {}{shown}\n{table}\n",
        told.design,
        bytes(told.page_size),
        cpus(told)
    )
}

/// Cause of a change, with the numbers behind it.
fn because(cache: &CachePrediction) -> String {
    match cache.cause {
        Cause::SheavesKeep if cache.kept_objects > 0 => {
            format!("sheaves keep {} objects", count(cache.kept_objects))
        }
        cause => cause.to_string(),
    }
}

/// `32` or `32 > 8`.
fn became(old: u64, new: u64) -> String {
    if old == new {
        old.to_string()
    } else {
        format!("{old} > {new}")
    }
}
