//! The page of `quarry run`, and what all comparisons of runs have.

use quarry_view::figure::{figure, titled};
use quarry_view::{Cell, Column, Part, Section, Table, Tone, View};
use quarry_view::{Doc, headed, short_names};
use quarry_view::{Grid, figure_cell, plain};
use serde_json::Value;

use crate::commands::diff;
use crate::commands::diff::runs;

/// Figures that have charts.
const CHARTS: usize = 3;

/// The page of loads and micro-benchmarks.
pub(crate) fn page(documents: &[Doc]) -> View {
    let all = quarry_view::runs(documents);
    let grid = Grid::of(&all);
    let command = documents.first().map_or("", Doc::command);
    let numbers: Vec<_> = all.iter().map(runs::numbers).collect();
    let has = |name: &str| {
        numbers
            .iter()
            .any(|run| run.get(name).is_some_and(|value| *value != 0.0))
    };
    let main: Vec<&str> = diff::MAIN
        .iter()
        .copied()
        .filter(|name| has(name))
        .collect();
    let mut others: Vec<&String> = numbers.iter().flat_map(|run| run.keys()).collect();
    others.sort();
    others.dedup();
    others.retain(|name| has(name) && !main.contains(&name.as_str()));
    let mut page = View::new(format!("quarry {command}"));
    page.findings
        .extend(main.first().and_then(|name| best(&grid, name)));
    let mut charts = Section::new("Main figures");
    for name in main.iter().take(CHARTS) {
        let mut of = grid.charts(name, None);
        charts = match of.len() {
            0 => charts,
            1 => charts.with(of.remove(0)),
            _ => charts
                .with(Part::Heading(titled(name)))
                .with(Part::Charts(of)),
        };
    }
    let number = |name: &str| Column::number(plain(name)).of(name.to_string());
    let main_columns = main.iter().map(|name| number(name));
    let more_columns = others.iter().map(|name| number(name).more());
    let columns = grid
        .columns()
        .into_iter()
        .chain(main_columns)
        .chain(more_columns);
    let mut table = Table::new(columns).noted(grid.common());
    table.of = "runs";
    for (run, places) in &grid.runs {
        let names = main
            .iter()
            .copied()
            .chain(others.iter().map(|name| name.as_str()));
        table.row(
            grid.cells(places)
                .into_iter()
                .chain(names.map(|name| figure_cell(run, name))),
        );
    }
    let page = page.with(charts).with(Section::new("Figures").with(table));
    with_sensitivity(page, documents)
}

/// The view of replays in simulated time, with studies of the machine.
pub(crate) fn timed(documents: &[Doc]) -> View {
    with_sensitivity(quarry_lab::replay::timed::view(documents), documents)
}

/// Id of the sections of studies.
pub(crate) const SENSITIVITY: &str = "sensitivity";

/// The view with what studies of the machine's constants found.
fn with_sensitivity(view: View, documents: &[Doc]) -> View {
    let studies = documents.iter().zip(short_names(documents));
    studies.fold(view, |view, (document, name)| {
        view.with(sensitivity(&document.content["sensitivity"], &name))
    })
}

/// Names the runs with the best and the worst value of a figure.
pub(crate) fn best(grid: &Grid<'_>, name: &str) -> Option<String> {
    let value = |run: &Value| quarry_view::value::at(run, name).as_f64();
    let mut runs: Vec<(f64, String)> = grid
        .runs
        .iter()
        .filter_map(|(run, places)| Some((value(run)?, grid.whole_label(places))))
        .collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    if diff::more_is_better(name) {
        runs.reverse();
    }
    let (first, last) = (runs.first()?, runs.last()?);
    let unit = match quarry_view::figure::unit(name) {
        "MiB" | "" => String::new(),
        unit => format!(" {unit}"),
    };
    let text = |value: f64| format!("{}{unit}", figure(name, value));
    let name = plain(name.trim_end_matches("_bytes").trim_end_matches("_ns"));
    let name = name
        .trim_end_matches(" per second")
        .trim_end_matches("per second");
    let name = if name.is_empty() { "operations" } else { name };
    Some(match runs.len() {
        1 => format!("{}: {name} {}.", first.1, text(first.0)),
        _ if first.0 == last.0 => format!("All runs have the same {name}: {}.", text(first.0)),
        _ => format!(
            "{} is best in {name}, {}, and {} is worst, {}.",
            first.1,
            text(first.0),
            last.1,
            text(last.0)
        ),
    })
}

/// Claims of a study of the machine's constants.
fn sensitivity(study: &Value, file: &str) -> Section {
    let heading = headed("Sensitivity to the machine's constants", file);
    let section = Section::new(heading).id(SENSITIVITY);
    let Some(claims) = study["claims"]
        .as_array()
        .filter(|claims| !claims.is_empty())
    else {
        return section;
    };
    let mut table = Table::new([Column::text("claim"), Column::text("verdict")]);
    for claim in claims {
        let text = |name: &str| claim[name].as_str().unwrap_or_default().to_string();
        let tone = match text("verdict").as_str() {
            "holds" => Tone::Good,
            "fails" => Tone::Bad,
            _ => Tone::Plain,
        };
        table.row([
            Cell::text(text("claim")),
            Cell::text(text("verdict")).tone(tone),
        ]);
    }
    section.with(table)
}
