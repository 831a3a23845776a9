//! The page of `quarry what-if`: predictions with their bounds, and the caches that change.

use quarry_view::Doc;
use quarry_view::file_name;
use quarry_view::{Axis, Cell, Chart, Column, Range, Section, Table, View};
use quarry_view::{Grid, figure_cell};
use serde_json::Value;

use crate::units::signed;

/// Caches that a table shows at first.
const SHOWN: usize = 12;
const MIB: f64 = 1_048_576.0;

/// The page of predictions of any files.
pub(crate) fn page(documents: &[Doc]) -> View {
    let all = quarry_view::runs(documents);
    let grid = Grid::of(&all);
    let of = documents.iter().map(|document| {
        let file = document.content["snapshot"]["file"]
            .as_str()
            .unwrap_or_default();
        file_name(file).to_string()
    });
    let mut of: Vec<String> = of.collect();
    of.dedup();
    let mut page = View::new(format!(
        "Slab memory of {} with other settings",
        of.join(", ")
    ));
    page.findings = View::of("", documents).findings;
    let mut about = Section::default();
    for document in documents {
        let notes = document.content["snapshot"]["notes"].as_array();
        for note in notes.into_iter().flatten().filter_map(Value::as_str) {
            about = about.note(note);
        }
    }
    let mut page = page.with(about).with(totals(&grid));
    for (run, places) in &grid.runs {
        page = page.with(caches(run, &grid.whole_label(places), grid.runs.len() > 1));
    }
    page
}

fn totals(grid: &Grid<'_>) -> Section {
    let meanings = super::meanings("what-if");
    let number = |name: &'static str, field: &str| {
        let about = meanings
            .get(&format!("runs.{field}"))
            .cloned()
            .unwrap_or_default();
        Column::number(name).about(about)
    };
    let figures = [
        number("now", "observed_bytes"),
        number("predicted", "predicted_bytes"),
        Column::number("change"),
        Column::number("change, %"),
        number("low", "low_bytes"),
        number("high", "high_bytes"),
        number("to page allocator", "to_pages_bytes"),
        number("from page allocator", "from_pages_bytes"),
        number("sheaves", "sheaves_bytes"),
    ];
    let mut table = Table::new(grid.columns().into_iter().chain(figures)).noted(grid.common());
    let mut ranges = Vec::new();
    for (run, places) in &grid.runs {
        let bytes = |name: &str| run[name].as_f64().unwrap_or(0.0);
        let (now, predicted) = (bytes("observed_bytes"), bytes("predicted_bytes"));
        let percent = match now > 0.0 {
            // Not "-0.0".
            true => Some(((predicted / now - 1.0) * 1000.0).round() / 10.0 + 0.0),
            false => None,
        };
        table.row(grid.cells(places).into_iter().chain([
            figure_cell(run, "observed_bytes"),
            figure_cell(run, "predicted_bytes"),
            Cell::number(signed((predicted - now) as i128), predicted - now),
            Cell::maybe(percent.map(|percent| (format!("{percent:+.1}"), percent))),
            figure_cell(run, "low_bytes"),
            figure_cell(run, "high_bytes"),
            figure_cell(run, "to_pages_bytes"),
            figure_cell(run, "from_pages_bytes"),
            figure_cell(run, "sheaves_bytes"),
        ]));
        ranges.push(Range {
            name: grid.whole_label(places),
            low: bytes("low_bytes") / MIB,
            middle: predicted / MIB,
            high: bytes("high_bytes") / MIB,
        });
    }
    let mut now: Vec<f64> = grid
        .runs
        .iter()
        .filter_map(|(run, _)| run["observed_bytes"].as_f64())
        .collect();
    now.dedup();
    let now = match now.as_slice() {
        [one] => Some(("now", one / MIB)),
        _ => None,
    };
    let mut chart = Chart::ranges("Predicted slab memory", Axis::linear("MiB"), ranges, now);
    if now.is_some() {
        chart =
            chart.noted("The dashed line is the slab memory now, the thick mark the prediction.");
    }
    Section::new("Predictions").with(chart).with(table)
}

/// The caches of a prediction, those that change most first.
fn caches(run: &Value, name: &str, is_folded: bool) -> Section {
    let bytes = |cache: &Value, name: &str| cache[name].as_f64().unwrap_or(0.0);
    let caches = run["caches"].as_array().into_iter().flatten();
    let mut caches: Vec<&Value> = caches
        .filter(|cache| bytes(cache, "observed_bytes") + bytes(cache, "predicted_bytes") > 0.0)
        .collect();
    let change = |cache: &Value| bytes(cache, "predicted_bytes") - bytes(cache, "observed_bytes");
    caches.sort_by(|a, b| change(b).abs().total_cmp(&change(a).abs()));
    let columns = [
        Column::text("cache"),
        Column::number("now"),
        Column::number("predicted"),
        Column::number("change"),
        Column::text("because"),
        Column::number("low"),
        Column::number("high"),
        Column::number("slab size"),
        Column::number("objects per slab"),
        Column::number("pages per slab"),
    ];
    let mut table = Table::new(columns).shown(SHOWN);
    for cache in caches {
        let became = |old: &str, new: &str| {
            let (old, new) = (
                quarry_view::value::at(cache, old).as_f64(),
                quarry_view::value::at(cache, new).as_f64(),
            );
            Cell::maybe(old.zip(new).map(|(old, new)| match old == new {
                true => (new.to_string(), new),
                false => (format!("{old} > {new}"), new),
            }))
        };
        let cause = cache["cause"]
            .as_str()
            .unwrap_or_default()
            .replace('_', " ");
        table.row([
            Cell::text(cache["name"].as_str().unwrap_or_default()),
            figure_cell(cache, "observed_bytes"),
            figure_cell(cache, "predicted_bytes"),
            Cell::number(signed(change(cache) as i128), change(cache)),
            Cell::text(cause),
            figure_cell(cache, "low_bytes"),
            figure_cell(cache, "high_bytes"),
            figure_cell(cache, "slab_size"),
            became("observed_objs_per_slab", "objs_per_slab"),
            became("observed_pages_per_slab", "pages_per_slab"),
        ]);
    }
    let section = Section::new(format!("Caches: {name}")).with(table);
    if is_folded { section.folded() } else { section }
}
