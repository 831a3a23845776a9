//! Outputs of `quarry run` as people read them: figures of the runs side by side, and what a study of the machine found.

mod host;
mod load;
mod micro;
mod pages;
mod rx;
pub mod study;

use quarry_core::machine::LockClass;
use quarry_view::Form::{Lines, Ns};
use quarry_view::units::rate;
use quarry_view::value::{number, text};
use quarry_view::{Column, Doc, Grid, Part, Section, Spec, View, column, figure, grouped, runs};
use serde_json::Value;

/// Tables of each command.
pub const TABLES: [(&str, &[Spec]); 5] = [
    (
        "run hackbench, run tbench, run tcp_rr, run will-it-scale",
        &load::TABLES,
    ),
    (
        "run hackbench, run tbench, run tcp_rr with --host",
        &host::TABLES,
    ),
    ("run micro", &micro::TABLES),
    ("run pages", &pages::TABLES),
    ("run rx", &rx::TABLES),
];

/// Id of the section with profiles of loads.
pub const PROFILES: &str = "profiles";

/// A workload's part of the view.
struct Workload {
    /// Figures that have charts.
    charts: &'static [&'static str],
    /// Result in sentences.
    told: fn(&Grid<'_>) -> Vec<String>,
    /// Notes before the tables.
    notes: fn(&Grid<'_>) -> Vec<String>,
    /// Tables.
    sections: fn(&Grid<'_>) -> Vec<Section>,
}

impl Workload {
    fn of(doc: &Doc) -> &'static Self {
        match text(&doc.content, "workload") {
            "micro" => &micro::MICRO,
            "pages" => &pages::PAGES,
            "rx" => &rx::RX,
            _ if doc.content["host"] == true => &host::HOST,
            _ => &load::LOAD,
        }
    }
}

/// The view of runs of one workload.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let Some(first) = docs.first() else {
        return View::default();
    };
    let workload = Workload::of(first);
    let all = load::sized(host::named(runs(docs)));
    let grid = Grid::of(&all);
    let mut view = View::new(format!("quarry {}", first.command()));
    view.findings = (workload.told)(&grid);
    view.note_first((workload.notes)(&grid));
    let mut charts = Section::new("Main figures");
    for name in workload.charts {
        let mut of = grid.charts(name, None);
        charts = match of.len() {
            0 => charts,
            1 => charts.with(of.remove(0)),
            _ => charts
                .with(Part::Heading(figure::titled(name)))
                .with(Part::Charts(of)),
        };
    }
    let sections = (workload.sections)(&grid);
    let view = sections.into_iter().fold(view.with(charts), View::with);
    study::with(view, docs)
}

/// The runs of a grid by their values on some axes, with the name that these give.
fn apart<'a>(grid: &Grid<'a>, names: &[&str]) -> Vec<(String, Vec<Value>)> {
    let axes = axes(grid, |name| names.contains(&name));
    let named = grid.runs.iter().map(|(run, places)| {
        let name = match axes.is_empty() {
            true => String::new(),
            false => grid.label(places, &axes),
        };
        (name, (*run).clone())
    });
    grouped(named)
}

/// Numbers of the axes whose names are wanted.
fn axes(grid: &Grid<'_>, is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    let all = grid.axes.iter().enumerate();
    let wanted = all.filter(|(_, axis)| is_wanted(&axis.name));
    wanted.map(|(at, _)| at).collect()
}

/// A table for each group of runs that differ in none of these axes.
fn tables(grid: &Grid<'_>, spec: &Spec, names: &[&str]) -> Vec<Section> {
    let groups = apart(grid, names).into_iter();
    let section = |(name, runs): (String, Vec<Value>)| {
        let heading = match name.is_empty() {
            true => spec.title.to_string(),
            false => name,
        };
        Section::new(heading).with(Grid::of(&runs).table(spec))
    };
    groups.map(section).collect()
}

/// Names the design that does most of all that did the same, in a sentence for each of these groups. A run about which
/// `doubt` has words orders nothing: the sentence has these instead. `also` has what follows the rate.
fn most(
    grid: &Grid<'_>,
    doubt: impl Fn(&Value) -> Option<String>,
    also: impl Fn(&Value) -> String,
) -> Vec<String> {
    // What an option with a list changes is another question.
    let has_asked = grid.runs.iter().any(|(run, _)| run["asked"].is_object());
    let is_compared = |name: &str| name == "design" || name == "file" && !has_asked;
    let compared = axes(grid, is_compared);
    let others = axes(grid, |name| !is_compared(name));
    let named = grid.runs.iter().map(|(run, places)| {
        let about = match others.is_empty() {
            true => String::new(),
            false => format!("{}: ", grid.label(places, &others)),
        };
        let name = match compared.is_empty() {
            true => design(run),
            false => grid.label(places, &compared),
        };
        let per_second = of(run, "per_second");
        let told = format!("{}{}", rate(per_second), also(run));
        (about, (name, per_second, told, doubt(run)))
    });
    let told = grouped(named).into_iter().map(|(about, mut runs)| {
        if let Some((name, reason)) = runs
            .iter()
            .find_map(|(name, .., it)| Some((name, it.as_ref()?)))
        {
            return format!("{about}no order of designs: {name} {reason}");
        }
        runs.sort_by(|(_, a, ..), (_, b, ..)| b.total_cmp(a));
        match runs.as_slice() {
            [(first, most, told, _), .., (_, least, ..)]
                if (most - least).abs() <= most * 0.001 =>
            {
                format!("{about}designs do the same within 0.1 %, {first} {told}.")
            }
            [(first, most, told, _), .., (last, least, ..)] => format!(
                "{about}{first} does most, {told}, {:.2} times {last}.",
                most / least.max(f64::MIN_POSITIVE)
            ),
            [(only, _, told, _)] => format!("{about}{only} does {told}."),
            [] => String::new(),
        }
    });
    told.collect()
}

/// The design and the release of a run.
fn design(run: &Value) -> String {
    match text(run, "era") {
        "" => text(run, "design").to_string(),
        era => format!("{}@{era}", text(run, "design")),
    }
}

/// A number of a run; 0 if it has none.
fn of(run: &Value, path: &str) -> f64 {
    number(run, path).unwrap_or(0.0)
}

/// Columns of what an operation's time went into.
pub(crate) fn causes() -> Vec<Column> {
    /// Note of rows about lines that move between CPUs.
    const DISTANCES: &str = "Sum over the distances, per operation.";
    let mut columns = vec![
        column("lock wait, ns", "causes.locks.wait_ns", Ns)
            .about("Sum over all classes of locks, per operation."),
    ];
    columns.extend(LockClass::ALL.map(|(_, class)| {
        let waits = column(format!("  {class}"), "", Ns);
        waits
            .of(format!("causes.locks.={class}.wait_ns"))
            .more()
            .rare()
    }));
    let distances = |name, field| column(name, field, Lines).about(DISTANCES).more();
    columns.extend([
        column(
            "lines of other CPUs",
            "causes.lines.clean causes.lines.dirty causes.lines.upgrades",
            Lines,
        )
        .about("Sum of all, per operation."),
        distances("  clean", "causes.lines.clean"),
        distances("  dirty", "causes.lines.dirty"),
        distances("  upgrades", "causes.lines.upgrades"),
        column("lines of own LLC", "causes.lines.llc", Lines)
            .about("Per operation.")
            .more(),
        column("lines from memory", "causes.lines.memory", Lines)
            .about("Sum of both, per operation."),
    ]);
    columns
}
