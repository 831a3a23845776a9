//! The tables of `quarry diff`: for each pair of runs a sentence, the rows and the caches that changed.

use serde_json::Value;

use crate::commands::diff::{CacheChange, Change, Difference, Pair};
use crate::output;
use crate::units::{bytes, count};

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

/// Everything that the command prints.
pub(crate) fn text(difference: &Difference, all: bool, top: usize) -> String {
    let mut text = String::new();
    for pair in &difference.runs {
        text.push_str(&format!(
            "{}\n",
            output::wrap(&finding(pair, &difference.of))
        ));
    }
    text.push_str(&format!("\n{}", head(difference)));
    for pair in difference.runs.iter().filter(|pair| pair.changed()) {
        text.push_str(&tables(pair, all, top));
    }
    text
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
    let mut text = match parts.is_empty() {
        true if of.starts_with("replay") || of == "what-if" => {
            format!("{}: as much slab memory, other counts", pair.title())
        }
        true => format!("{}: {}", pair.title(), first_change(pair)),
        false => format!("{}: slab memory {}", pair.title(), parts.join(", ")),
    };
    let moved = |cache: &&CacheChange| delta(&cache.memory).abs();
    let most = pair
        .caches
        .iter()
        .max_by(|x, y| moved(x).total_cmp(&moved(y)));
    if let Some(most) = most {
        let by = signed(delta(&most.memory));
        text.push_str(&format!(
            "; {} changed most of all caches, by {by}",
            most.memory.name
        ));
    }
    text
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
fn head(difference: &Difference) -> String {
    let mut text = output::wrap(&format!(
        "A: {}; B: {} (quarry {})",
        difference.a, difference.b, difference.of
    ));
    text.push('\n');
    let other_trace = difference
        .differs
        .iter()
        .any(|of| of.what == "trace.digest");
    if other_trace {
        text.push_str(&output::wrap(
            "warning: the traces differ, so changes come from the load as well",
        ));
        text.push('\n');
    }
    for of in &difference.differs {
        let traced = of.what.starts_with("trace.") || of.what.starts_with("snapshot.");
        let of_trace = of.what.starts_with("trace.") && !other_trace;
        if of_trace || (traced && !SHOWN.contains(&of.what.as_str())) {
            continue;
        }
        let line = format!("differs: {} {} > {}", of.what, plain(&of.a), plain(&of.b));
        text.push_str(&format!("{}\n", output::wrap(&line)));
    }
    for (names, file) in [(&difference.only_in_a, "A"), (&difference.only_in_b, "B")] {
        if !names.is_empty() {
            let line = format!("only in {file}: {}", names.join("; "));
            text.push_str(&format!("{}\n", output::wrap(&line)));
        }
    }
    text
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn tables(pair: &Pair, all: bool, top: usize) -> String {
    let mut text = format!("\n{}\n", pair.title());
    let shown: Vec<&Change> = pair.printed(all).collect();
    let mut rows = vec![
        ["", "A", "B", "change", "of A"]
            .map(str::to_string)
            .to_vec(),
    ];
    rows.extend(shown.iter().map(|row| {
        let by = match row.name.contains("bytes") {
            true => signed(delta(row)),
            false => signed_number(delta(row)),
        };
        vec![
            label(&row.name),
            size(&row.name, row.a),
            size(&row.name, row.b),
            by,
            relative(row),
        ]
    }));
    if rows.len() > 1 {
        text.push_str(&format!("{}\n", output::side_by_side(&rows).join("\n\n")));
    }
    let more = pair.rows.len() - shown.len();
    if more > 0 {
        text.push_str(&format!("--all has {more} more numbers that changed\n"));
    }
    if !pair.caches.is_empty() && top > 0 {
        text.push_str(&format!("\n{}\n", cache_table(&pair.caches, top)));
    }
    text
}

/// The caches that moved most bytes, by relative change as they are given.
fn cache_table(caches: &[CacheChange], top: usize) -> String {
    let mut by_bytes: Vec<usize> = (0..caches.len()).collect();
    by_bytes.sort_by(|x, y| {
        let moved = |at: &usize| delta(&caches[*at].memory).abs();
        moved(y).total_cmp(&moved(x))
    });
    by_bytes.truncate(top);
    by_bytes.sort_unstable();
    let told = caches.iter().any(|cache| cache.waste_bytes.is_some());
    let mut header = vec!["cache", "A", "B", "change", "of A"];
    if told {
        header.extend(["waste", "free"]);
    }
    let mut rows = vec![header.into_iter().map(String::from).collect::<Vec<_>>()];
    for cache in by_bytes.iter().map(|at| &caches[*at]) {
        let memory = &cache.memory;
        let mut row = vec![
            memory.name.clone(),
            size("bytes", memory.a),
            size("bytes", memory.b),
            signed(delta(memory)),
            relative(memory),
        ];
        if told {
            let part = |bytes: Option<f64>| bytes.map_or_else(|| "-".to_string(), signed);
            row.extend([part(cache.waste_bytes), part(cache.free_bytes)]);
        }
        rows.push(row);
    }
    let shown = match caches.len() > top {
        true => format!(
            "{top} of {} caches that changed, by most bytes",
            caches.len()
        ),
        false => "caches that changed".to_string(),
    };
    format!("{shown}\n{}", output::side_by_side(&rows).join("\n\n"))
}

/// The name of a row where `quarry replay` has one.
fn label(field: &str) -> String {
    let row = quarry_lab::replay::label_of(field);
    match (field, row) {
        // These rows are parts of memory; here they are bytes.
        ("object_bytes" | "final_object_bytes", Some(row)) => format!("{row}, bytes"),
        ("alloc_slowpath", _) => "slow paths of allocations".to_string(),
        ("free_slowpath", _) => "slow paths of frees".to_string(),
        (_, Some(row)) => row,
        (_, None) => field.to_string(),
    }
}

fn delta(of: &Change) -> f64 {
    of.b.unwrap_or(0.0) - of.a.unwrap_or(0.0)
}

/// By how much of A: `+12.5 %`, `new`, `gone`.
fn relative(of: &Change) -> String {
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

fn signed(value: f64) -> String {
    with_sign(value, "bytes")
}

fn signed_number(value: f64) -> String {
    with_sign(value, "")
}

fn with_sign(value: f64, field: &str) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    format!("{sign}{}", size(field, Some(value.abs())))
}
