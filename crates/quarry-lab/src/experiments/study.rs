//! Results of `--sensitivity`: how far figures move when the machine's constants are other than their values say.

use quarry_view::Form::{Number, Ratio, Text};
use quarry_view::value::{list, number, text};
use quarry_view::{
    Cell, Column, Doc, Grid, Section, Spec, Tone, View, column, headed, short_names,
};
use serde_json::Value;

/// Tables of studies.
pub const TABLES: [Spec; 2] = [FIGURES, CLAIMS];

const FIGURES: Spec = Spec {
    title: "Figures with their bands",
    rows: "sensitivity.figures",
    first: 0,
    columns: || {
        vec![
            column("figure", "name", Text).worded(|band| text(band, "name").replace('_', " ")),
            column("value", "value", Number),
            column("one at a\ntime, %", "one", Ratio)
                .about("The column is relative to the value.")
                .worded(|band| range(band, "one")),
            column("draws\n%", "drawn", Ratio)
                .about("The column is relative to the value.")
                .worded(|band| range(band, "drawn")),
            column("seeds\n%", "seeds", Ratio)
                .about("The width of the band, relative to the value.")
                .worded(|band| {
                    let [low, high] = ends(band, "seeds");
                    format!("{:.1}", percent(band, high - low))
                }),
            column("states\n%", "states", Ratio)
                .about("The column is relative to the value.")
                .worded(|band| match list(band, "states") {
                    [] => String::new(),
                    _ => range(band, "states"),
                })
                .rare(),
            column("moved most by", "most decides", Text).worded(moved),
        ]
    },
};

const CLAIMS: Spec = Spec {
    title: "Claims",
    rows: "sensitivity.claims",
    first: 0,
    columns: || {
        vec![
            column("runs", "about", Text),
            column("claim", "claim", Text),
            column(
                "verdict",
                "verdict true_draws true_seeds true_states changed_by",
                Text,
            )
            .worded(verdict),
        ]
    },
};

fn ends(of: &Value, path: &str) -> [f64; 2] {
    match list(of, path) {
        [low, high] => [low, high].map(|end| end.as_f64().unwrap_or(0.0)),
        _ => [0.0; 2],
    }
}

/// Per cent of a figure's value.
fn percent(band: &Value, part: f64) -> f64 {
    match number(band, "value") {
        Some(value) if value != 0.0 => part / value * 100.0,
        _ => 0.0,
    }
}

fn range(band: &Value, path: &str) -> String {
    let value = number(band, "value").unwrap_or(0.0);
    let [low, high] = ends(band, path).map(|end| percent(band, end - value));
    format!("{low:+.0} {high:+.0}")
}

/// The constant that moves a figure farthest, the state of the heap, or chance.
fn moved(band: &Value) -> String {
    let told = match text(band, "decides") {
        "constant" => text(band, "most"),
        "state" => "state of the heap",
        "chance" => "chance",
        _ => "nothing",
    };
    told.to_string()
}

/// A verdict; of an undecided claim with the arms in which it is true, and the constants that change it.
fn verdict(claim: &Value) -> String {
    let verdict = text(claim, "verdict");
    if verdict != "undecided" {
        return verdict.to_string();
    }
    let arms = [
        ("true_draws", "draws"),
        ("true_seeds", "other seeds"),
        ("true_states", "states of the heap"),
    ];
    let arms = arms.iter().filter_map(|(path, what)| {
        let [some, all] = ends(claim, path);
        (all > 0.0).then(|| format!("{some} of {all} {what}"))
    });
    let arms: Vec<String> = arms.collect();
    let constants = list(claim, "changed_by").iter().filter_map(Value::as_str);
    let constants: Vec<&str> = constants.collect();
    let changed = match constants.as_slice() {
        [] => String::new(),
        [one] => format!("; changed by {one}"),
        [one, other] => format!("; changed by {one}, {other}"),
        [one, more @ ..] => format!("; changed by {one} and {} others", more.len()),
    };
    format!("undecided: true in {}{changed}", arms.join(", "))
}

/// The view with what studies of the machine's constants found.
#[must_use]
pub fn with(view: View, docs: &[Doc]) -> View {
    let studies = docs.iter().zip(short_names(docs));
    studies.fold(
        view,
        |view, (doc, name)| match &doc.content["sensitivity"] {
            study if study.is_object() => view.with(claims(study, &name)).with(figures(doc, study)),
            _ => view,
        },
    )
}

/// Claims with their verdicts.
fn claims(study: &Value, file: &str) -> Section {
    let section =
        Section::new(headed("Sensitivity to the machine's constants", file)).id("sensitivity");
    let claims = list(study, "claims");
    let count = |verdict: &str| {
        claims
            .iter()
            .filter(|claim| claim["verdict"] == verdict)
            .count()
    };
    let section = section.text(format!(
        "Claims that hold {}, undecided {}, that fail {}.",
        count("holds"),
        count("undecided"),
        count("fails")
    ));
    let mut table = CLAIMS.table(claims);
    table.blocks = true;
    for (row, claim) in table.rows.iter_mut().zip(claims) {
        row.cells[2].tone = match text(claim, "verdict") {
            "holds" => Tone::Good,
            "fails" => Tone::Bad,
            _ => Tone::Plain,
        };
    }
    match claims.is_empty() {
        true => section,
        false => section.with(table),
    }
}

/// Figures of all runs with their bands.
fn figures(doc: &Doc, study: &Value) -> Section {
    let [draws, seeds, states] =
        ["draws", "seeds", "states"].map(|path| number(study, path).unwrap_or(0.0));
    let figures = list(study, "figures");
    let grid = Grid::of(doc.runs());
    let named = figures.iter().map(|band| {
        let run = grid.runs.get(number(band, "run").unwrap_or(0.0) as usize);
        let name = run.map_or_else(String::new, |(_, places)| match grid.axes.is_empty() {
            true => grid.cells(places).remove(0).text,
            false => grid.whole_label(places),
        });
        (vec![Cell::text(name)], band)
    });
    let mut section = Section::new(FIGURES.title).with(FIGURES.led(vec![Column::text("run")], named)).note(format!(
        "One at a time: each constant of the machine at the ends of its range. Draws: all of them anywhere in their ranges, \
         {draws} times. Seeds: the width of chance alone, with {seeds} others."
    ));
    if states > 0.0 {
        section = section.note(format!(
            "States: facts about the heap that no report has, drawn anew {states} times."
        ));
    }
    let is_even = |band: &Value| ends(band, "seeds")[0] == ends(band, "seeds")[1];
    if figures.iter().all(is_even) {
        section = section
            .note("No run depends on the seed; another recording or load may differ all the same.");
    }
    section
}
