//! A comparison as people read it: for each pair of runs a sentence, the numbers and the caches that changed.

use quarry_view::Form::{Bytes, Change, Count, Text};
use quarry_view::units::{bytes, count};
use quarry_view::value::{number, text};
use quarry_view::{Section, Spec, View, column, headed};
use serde_json::Value;

use crate::commands::diff::{CacheChange, Difference, Pair};

/// Members of `trace` and `snapshot` that get a line; the others follow from them.
const SHOWN: &[&str] = &[
    "trace.name",
    "trace.digest",
    "trace.kernel",
    "trace.assumptions",
    "snapshot.kernel",
    "snapshot.stage",
    "snapshot.page_size",
    "snapshot.cpus",
];

/// Tables of a comparison.
pub(crate) const TABLES: [Spec; 2] = [ROWS, CACHES];

const ROWS: Spec = Spec {
    title: "Numbers that changed",
    rows: "runs.rows",
    first: 0,
    columns: || {
        vec![
            column("number", "name", Text).worded(|row| label(text(row, "name"))),
            column("A", "a", Count).worded(|row| side(row, "a")),
            column("B", "b", Count).worded(|row| side(row, "b")),
            column("change", "a b", Count)
                .about("B less A.")
                .worded(|row| with_sign(text(row, "name"), delta(&change(row)))),
            column("of A", "relative", Count)
                .about("`new` if A lacks it or has 0, `gone` if B does.")
                .worded(|row| relative(&change(row))),
        ]
    },
};

const CACHES: Spec = Spec {
    title: "Caches that changed",
    rows: "runs.caches",
    first: 15,
    columns: || {
        vec![
            column("cache", "name", Text),
            column("A", "a", Bytes),
            column("B", "b", Bytes),
            column("change", "a b", Change)
                .about("B less A.")
                .computed(|row| Some(delta(&change(row)))),
            column("of A", "relative", Count)
                .about("`new` if A lacks it or has 0, `gone` if B does.")
                .worded(|row| relative(&change(row))),
            column("waste", "waste_bytes", Change).rare(),
            column("free", "free_bytes", Change).rare(),
        ]
    },
};

/// The change of a row as JSON.
fn change(row: &Value) -> super::Change {
    let [a, b] = ["a", "b"].map(|side| number(row, side));
    super::Change::new(text(row, "name"), a, b)
}

fn side(row: &Value, path: &str) -> String {
    size(text(row, "name"), number(row, path))
}

/// For each pair of runs a sentence, the numbers and the caches that changed; `all` has every number.
pub(crate) fn view(difference: &Difference, all: bool) -> anyhow::Result<View> {
    let mut view = View::new("Comparison");
    let pairs = difference.runs.iter();
    view.findings = pairs.map(|pair| finding(pair, &difference.of)).collect();
    let other_trace = difference
        .differs
        .iter()
        .any(|of| of.what == "trace.digest");
    if other_trace {
        let warning = "the traces differ, so changes come from the load as well";
        view.warnings.push(warning.to_string());
    }
    view = view.with(head(difference, other_trace));
    for pair in difference.runs.iter().filter(|pair| pair.changed()) {
        let title = pair.title();
        let shown: Vec<Value> = pair
            .printed(all)
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()?;
        let note = match pair.rows.len() - shown.len() {
            0 => String::new(),
            more => format!("--all has {more} more numbers that changed"),
        };
        let rows = Section::new(&title).with(ROWS.table(&shown).noted(note));
        let mut caches: Vec<&CacheChange> = pair.caches.iter().collect();
        caches.sort_by(|x, y| moved(y).total_cmp(&moved(x)));
        let caches = caches.into_iter().map(serde_json::to_value);
        let caches: Vec<Value> = caches.collect::<Result<_, _>>()?;
        view = view.with(rows);
        if !caches.is_empty() {
            view =
                view.with(Section::new(headed(CACHES.title, &title)).with(CACHES.table(&caches)));
        }
    }
    Ok(view)
}

impl Pair {
    fn changed(&self) -> bool {
        !(self.rows.is_empty() && self.caches.is_empty())
    }

    fn title(&self) -> String {
        match self.a == self.b {
            true => self.a.clone(),
            false => format!("{} > {}", self.a, self.b),
        }
    }
}

/// The answer for one pair: what became of slab memory, and which cache moved most of it.
fn finding(pair: &Pair, of: &str) -> String {
    if !pair.changed() {
        return format!("{}: nothing changed", pair.title());
    }
    let moments = [
        ("peak_slab_bytes", " at the peak"),
        ("final_slab_bytes", " at the end"),
        ("predicted_bytes", " predicted"),
    ];
    let memory = |(field, when): &(&str, &str)| {
        let row = pair.rows.iter().find(|row| row.name == *field)?;
        let (a, b) = (size(field, row.a), size(field, row.b));
        Some(format!("{a} > {b} ({}){when}", relative(row)))
    };
    let parts: Vec<String> = moments.iter().filter_map(memory).collect();
    let mut told = match parts.is_empty() {
        true if of.starts_with("replay") || of == "what-if" => {
            format!("{}: as much slab memory, other counts", pair.title())
        }
        true => format!("{}: {}", pair.title(), first_change(pair)),
        false => format!("{}: slab memory {}", pair.title(), parts.join(", ")),
    };
    let caches = pair.caches.iter();
    if let Some(most) = caches.max_by(|x, y| moved(x).total_cmp(&moved(y))) {
        let by = with_sign("bytes", delta(&most.memory));
        told.push_str(&format!(
            "; {} changed most of all caches, by {by}",
            most.memory.name
        ));
    }
    told
}

/// The printed number that changed most.
fn first_change(pair: &Pair) -> String {
    let row = pair.printed(false).next().or(pair.rows.first());
    row.map_or_else(
        || "other caches".to_string(),
        |row| {
            let (a, b) = (size(&row.name, row.a), size(&row.name, row.b));
            format!("{} {a} > {b} ({})", label(&row.name), relative(row))
        },
    )
}

/// The files, and the settings and inputs in which they differ.
fn head(difference: &Difference, other_trace: bool) -> Section {
    let (a, b, of) = (&difference.a, &difference.b, &difference.of);
    let mut head = Section::default().note(format!("A: {a}; B: {b} (quarry {of})"));
    for of in &difference.differs {
        let traced = of.what.starts_with("trace.") || of.what.starts_with("snapshot.");
        let of_trace = of.what.starts_with("trace.") && !other_trace;
        if !of_trace && (!traced || SHOWN.contains(&of.what.as_str())) {
            let (a, b) = (plain(&of.a), plain(&of.b));
            head = head.note(format!("differs: {} {a} > {b}", of.what));
        }
    }
    for (names, file) in [(&difference.only_in_a, "A"), (&difference.only_in_b, "B")] {
        if !names.is_empty() {
            head = head.note(format!("only in {file}: {}", names.join("; ")));
        }
    }
    head
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The name of a row where `quarry replay` has one of its own. The rows of these fields show parts and sums.
fn label(field: &str) -> String {
    const OTHERS: [&str; 4] = [
        "object_bytes",
        "final_object_bytes",
        "alloc_slowpath",
        "free_slowpath",
    ];
    let row = quarry_lab::replay::label_of(field).filter(|_| !OTHERS.contains(&field));
    row.unwrap_or_else(|| field.to_string())
}

fn moved(cache: &CacheChange) -> f64 {
    delta(&cache.memory).abs()
}

fn delta(of: &super::Change) -> f64 {
    of.b.unwrap_or(0.0) - of.a.unwrap_or(0.0)
}

/// By how much of A: `+12.5 %`, `new`, `gone`.
fn relative(of: &super::Change) -> String {
    match (of.relative, of.b) {
        (_, None) => "gone".to_string(),
        (Some(_), Some(0.0)) => "gone".to_string(),
        (Some(relative), _) if relative.abs() < 0.0005 => format!("{:+.3} %", relative * 100.0),
        (Some(relative), _) => format!("{:+.1} %", relative * 100.0),
        (None, _) => "new".to_string(),
    }
}

fn size(field: &str, value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(value) if value < 0.0 => format!("-{}", size(field, Some(-value))),
        Some(value) if field.contains("bytes") => bytes(value as u64),
        Some(value) if value.fract() == 0.0 => count(value as u64),
        Some(value) => format!("{value:.4}"),
    }
}

/// A change of a number, which is of bytes if its name says so.
fn with_sign(field: &str, value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    format!("{sign}{}", size(field, Some(value.abs())))
}
