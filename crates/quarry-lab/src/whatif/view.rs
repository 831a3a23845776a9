//! The answer as people read it: predictions with their bounds, and the caches that change.

use quarry_view::Form::{Bytes, Change, Count, Ratio, Text};
use quarry_view::units::{bytes, count, signed};
use quarry_view::value::{at, list, merged, number, text};
use quarry_view::{Chart, Column, Doc, Grid, Section, Spec, View, column, file_name, headed, runs};
use serde_json::{Value, json};

/// Tables of predictions.
pub const TABLES: [Spec; 2] = [PREDICTIONS, CACHES];

const PREDICTIONS: Spec = Spec {
    title: "Predictions",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = sizes().to_vec();
        columns.extend([
            column("difference", "", Change)
                .about("Predicted less observed.")
                .computed(difference)
                .more(),
            column("to page allocator", "to_pages_bytes", Bytes).more(),
            column("from page allocator", "from_pages_bytes", Bytes).more(),
            column("sheaves", "sheaves_bytes", Change).more(),
        ]);
        columns
    },
};

const CACHES: Spec = Spec {
    title: "Caches",
    rows: "runs.caches",
    first: 12,
    columns: || {
        let mut columns = sizes().to_vec();
        columns.insert(0, column("name", "name aliases", Text).worded(merged));
        columns.insert(4, column("because", "cause", Text).worded(because));
        columns.extend([
            column("slab\nsize", "slab_size", Count),
            column("objs per\nslab", "objs_per_slab", Count)
                .about("`32 > 8` is the snapshot's, then the prediction's.")
                .worded(|cache| became(cache, "observed_objs_per_slab", "objs_per_slab")),
            column("pages per\nslab", "pages_per_slab", Count)
                .about("`2 > 1` is the snapshot's, then the prediction's.")
                .worded(|cache| became(cache, "observed_pages_per_slab", "pages_per_slab")),
        ]);
        columns
    },
};

/// Columns of both tables.
fn sizes() -> [Column; 7] {
    [
        column("observed", "observed_bytes", Bytes),
        column("predicted", "predicted_bytes", Bytes),
        column("change", "", Ratio)
            .about("Predicted less observed, as a part of what was observed.")
            .computed(relative),
        column("9 in 10\nfrom", "likely_low_bytes", Bytes),
        column("9 in 10\nto", "likely_high_bytes", Bytes),
        column("low", "low_bytes", Bytes).more(),
        column("high", "high_bytes", Bytes).more(),
    ]
}

fn difference(told: &Value) -> Option<f64> {
    Some(number(told, "predicted_bytes")? - number(told, "observed_bytes")?)
}

fn relative(told: &Value) -> Option<f64> {
    let observed = number(told, "observed_bytes").filter(|bytes| *bytes > 0.0)?;
    Some(difference(told)? / observed)
}

/// `32` or `32 > 8`.
fn became(cache: &Value, old: &str, new: &str) -> String {
    match (at(cache, old), at(cache, new)) {
        (old, new) if old == new => new.to_string(),
        (old, new) => format!("{old} > {new}"),
    }
}

/// Cause of a change, with the numbers behind it.
fn because(cache: &Value) -> String {
    let kept = number(cache, "kept_objects").unwrap_or(0.0);
    let told = match text(cache, "cause") {
        "sheaves_keep" if kept > 0.0 => {
            return format!("sheaves keep {} objects", count(kept as u64));
        }
        "sheaves_keep" => "what sheaves keep",
        "sheaves_themselves" => "the sheaves themselves",
        "layout" => "layout of slabs",
        "page_size" => "page size",
        "held" => "what CPUs and nodes hold",
        _ => "",
    };
    told.to_string()
}

/// The view of predictions of any outputs.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let mut all = runs(docs);
    for run in &mut all {
        if run["cpus_are_assumed"] == true {
            run["cpus"] = Value::Null;
        }
    }
    let grid = Grid::of(&all);
    let files = docs
        .iter()
        .map(|doc| file_name(text(&doc.content, "snapshot.file")));
    let mut files: Vec<&str> = files.collect();
    files.dedup();
    let title = format!("Slab memory of {} with other settings", files.join(", "));
    let about = docs.iter().flat_map(|doc| notes(&doc.content));
    let mut view = View::of(title, docs).with(about.fold(Section::default(), Section::note));
    view = view.with(predictions(&grid));
    for (run, places) in &grid.runs {
        view = view.with(match grid.runs.len() {
            1 => caches(run, ""),
            _ => caches(run, &grid.whole_label(places)).folded(),
        });
    }
    view
}

/// Sentences about the snapshot, and what of it is guessed.
fn notes(answer: &Value) -> Vec<String> {
    let texts = |value: &Value, path: &str| -> Vec<String> {
        let texts = list(value, path).iter().filter_map(Value::as_str);
        texts.map(str::to_string).collect()
    };
    let mut told = texts(answer, "snapshot.notes");
    if let [low, high] = list(answer, "snapshot.known_errors_percent") {
        let [low, high] = [low, high].map(|end| end.as_i64().unwrap_or(0));
        told.push(format!(
            "known errors are {low:+} to {high:+} % (docs/what-if.md)"
        ));
    }
    let runs = list(answer, "runs");
    if let Some(first) = runs.first() {
        told.extend(texts(first, "guessed"));
        let debugging = text(first, "snapshot_debugging");
        told.extend((!debugging.is_empty()).then(|| format!("debugging is on: {debugging}")));
    }
    for run in runs {
        let mut more = texts(run, "guessed");
        more.retain(|note| !told.contains(note));
        told.extend(more);
    }
    told
}

/// Notes on a prediction besides its numbers: its farthest bounds, memory that moves between slabs and the page allocator, and
/// what is not computed.
fn besides(design: &str, run: &Value) -> Vec<String> {
    let of = |value: &Value, path: &str| number(value, path).unwrap_or(0.0);
    let pages = bytes(of(run, "page_size") as u64);
    let mut told = Vec::new();
    let [low, high] = ["low_bytes", "high_bytes"].map(|path| of(run, path) as u64);
    if low < high {
        told.push(format!(
            "{design}: less than {} and more than {} can be excluded",
            bytes(low),
            bytes(high)
        ));
    }
    for cost in list(run, "configuration") {
        let [expected, low, high] =
            ["bytes", "low_bytes", "high_bytes"].map(|path| signed(of(cost, path) as i128));
        let config = text(cost, "config");
        told.push(format!(
            "{design}: {config} costs {expected}, between {low} and {high}"
        ));
    }
    if let Some(guests) = number(run, "guests.count") {
        let [low, high] =
            ["guests.low_bytes", "guests.high_bytes"].map(|path| of(run, path) as u64);
        told.push(format!(
            "{design}: {} guests share no slab; what each boot has by chance evens out, but sizes, options and the \
             model's own errors are the same in all: less than {} and more than {} can be excluded",
            count(guests as u64),
            bytes(low),
            bytes(high)
        ));
    }
    for unmodelled in list(run, "unmodelled") {
        let [less, more] = ["less_bytes", "more_bytes"].map(|path| of(unmodelled, path) as u64);
        let bounds = match (bytes(less), bytes(more)) {
            (less, _) if more == 0 => format!("up to -{less}"),
            (_, more) if less == 0 => format!("up to +{more}"),
            (less, more) => format!("-{less} to +{more}"),
        };
        let what = text(unmodelled, "what");
        told.push(format!("not computed, in the bounds: {what} ({bounds})"));
    }
    match text(run, "debugging") {
        same if same == text(run, "snapshot_debugging") => {}
        "" => told.push(format!("{design}: without debugging")),
        debugging => told.push(format!("{design}: {debugging}")),
    }
    let [to, from] = ["to_pages_bytes", "from_pages_bytes"].map(|path| of(run, path) as u64);
    if to > 0 {
        told.push(format!(
            "with {pages} pages: about {} of objects go to the page allocator, outside of all slabs",
            bytes(to)
        ));
    }
    if from > 0 {
        told.push(format!(
            "with {pages} pages: {} of large kmallocs, now pages, come into slabs",
            bytes(from)
        ));
    }
    let unlisted = of(run, "unlisted_bytes") as u64;
    if unlisted > 0 {
        told.push(format!(
            "with {pages} pages: {} of meminfo's Slab are of no listed cache and in no sum; large kmallocs among them would come \
             into slabs",
            bytes(unlisted)
        ));
    }
    let sheaves = of(run, "sheaves_bytes");
    if sheaves > 0.0 {
        let keep = match of(run, "caches.kept_objects") as u64 {
            0 => String::new(),
            objects => format!("sheaves and barns keep about {} objects; ", count(objects)),
        };
        let sheaves = bytes(sheaves as u64);
        told.push(format!(
            "{design}: {keep}the sheaves themselves take {sheaves}"
        ));
    }
    told
}

fn predictions(grid: &Grid<'_>) -> Section {
    let mut table = grid.table(&PREDICTIONS);
    table.turned = None;
    let named = grid.runs.iter().map(|(run, places)| {
        json!({"name": grid.whole_label(places), "low": run["likely_low_bytes"],
            "middle": run["predicted_bytes"], "high": run["likely_high_bytes"]})
    });
    let named: Vec<Value> = named.collect();
    let mut now: Vec<Option<f64>> = grid
        .runs
        .iter()
        .map(|(run, _)| number(run, "observed_bytes"))
        .collect();
    now.dedup();
    let now = now.first().copied().flatten().filter(|_| now.len() == 1);
    let paths = ["name", "low", "middle", "high"];
    let chart = Chart::ranges_of("Predicted slab memory", &named, paths, now);
    let section = Section::new(PREDICTIONS.title).with(chart).with(table);
    let mut told: Vec<String> = Vec::new();
    for (run, places) in &grid.runs {
        let name = match grid.runs.len() {
            1 => text(run, "design").to_string(),
            _ => grid.whole_label(places),
        };
        let mut more = besides(&name, run);
        more.retain(|note| !told.contains(note));
        told.extend(more);
    }
    told.into_iter().fold(section, Section::note)
}

/// The caches of a prediction, those that change most first.
fn caches(run: &Value, name: &str) -> Section {
    let caches = list(run, "caches").iter();
    let mut caches: Vec<&Value> = caches
        .filter(|cache| {
            number(cache, "observed_bytes") != Some(0.0)
                || number(cache, "predicted_bytes") != Some(0.0)
        })
        .collect();
    let change = |cache: &Value| difference(cache).unwrap_or(0.0).abs();
    let largest = |cache: &Value| {
        let bytes =
            ["observed_bytes", "predicted_bytes"].map(|path| number(cache, path).unwrap_or(0.0));
        bytes[0].max(bytes[1])
    };
    caches.sort_by(|a, b| {
        let by_size = change(b)
            .total_cmp(&change(a))
            .then(largest(b).total_cmp(&largest(a)));
        by_size.then_with(|| text(a, "name").cmp(text(b, "name")))
    });
    Section::new(headed("Caches that change most", name)).with(CACHES.table(caches))
}
