//! Texts of `quarry sweep`: a line for each setting, over all inputs.

use std::collections::BTreeMap;
use std::path::Path;

use quarry_sweep::ask::{Ask, Figure};
use quarry_sweep::table::{Column, Table};
use quarry_sweep::{Outcome, Sweep};

use crate::input::file_name;
use crate::output;
use crate::units::{bytes, count, median};

/// Settings that the table has at most: more are a matter for other tools.
const SETTINGS: usize = 30;
/// Errors that are printed at most.
const ERRORS: usize = 3;

/// Rows of one setting: for each of its inputs the figure's change in per cent, with the input.
#[derive(Default)]
struct Changes<'a> {
    all: Vec<(f64, &'a str)>,
    /// Sum of the figure.
    sum: f64,
    /// Inputs whose figure is above what it is compared with, wherever it lies in its bounds.
    surely: u64,
    /// Inputs that may be so.
    maybe: u64,
}

/// Everything that a sweep prints.
pub(crate) fn text(
    sweep: &Sweep,
    outcome: &Outcome,
    rows: Option<&Table>,
    folder: &Path,
) -> String {
    let mut text = format!(
        "{} cells, {} inputs; {} of them had rows before, {} failed\n",
        count(outcome.cells as u64),
        count(sweep.inputs.all.len() as u64),
        count(outcome.present as u64),
        count(outcome.failed as u64),
    );
    let Some(rows) = rows else {
        return text;
    };
    for (error, cells) in errors(rows).into_iter().take(ERRORS) {
        let line = format!("failed, {} cells: {error}", count(cells as u64));
        text.push_str(&format!("{}\n", output::wrap(&line)));
    }
    text.push_str(&format!("\n{}\n", compared(sweep.plan.ask, rows)));
    text.push_str(&format!(
        "rows: {}/part-*.parquet; quarry sweep --merge {} writes them to one file\n",
        folder.display(),
        folder.display()
    ));
    text
}

/// Errors with the number of their rows, most rows first.
fn errors(rows: &Table) -> Vec<(&str, usize)> {
    let mut errors: BTreeMap<&str, usize> = BTreeMap::new();
    if let Some(Column::Text(texts)) = rows.column("error") {
        for error in texts.iter().flatten() {
            *errors.entry(error).or_default() += 1;
        }
    }
    let mut errors: Vec<(&str, usize)> = errors.into_iter().collect();
    errors.sort_by_key(|(_, cells)| std::cmp::Reverse(*cells));
    errors
}

/// Name of what settings are compared by.
fn title(ask: Ask) -> &'static str {
    match ask {
        Ask::WhatIf => "slab memory beside that of the snapshot",
        Ask::Replay => "peak of slab memory above the least of the input",
        Ask::ReplayTime => "time of an operation above the least of the input",
        Ask::Hackbench | Ask::Tbench | Ask::TcpRr => "CPU time of an operation above the least",
    }
}

/// The value of a row as a number.
fn number(column: &Column, row: usize) -> Option<f64> {
    match column {
        Column::Int(values) => values.get(row).copied().flatten().map(|it| it as f64),
        Column::Float(values) => values.get(row).copied().flatten(),
        Column::Bool(_) | Column::Text(_) => None,
    }
}

/// A table with a line for each setting: how the figure changes over the inputs.
fn compared(ask: Ask, rows: &Table) -> String {
    let names = setting_columns(rows);
    let settings = changes(ask.figure(), &names, rows);
    let more = settings.len().saturating_sub(SETTINGS);
    let figures: &[&str] = match ask {
        Ask::WhatIf => &["inputs", "median", "most", "surely", "maybe"],
        Ask::Replay => &["inputs", "sum", "least", "median", "most"],
        _ => &["inputs", "least", "median", "most"],
    };
    let header: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let header = [header.as_slice(), figures, &["input with most"]].concat();
    let text_columns: Vec<usize> = (0..names.len()).chain([header.len() - 1]).collect();
    let mut table = output::table(&header, &text_columns);
    for (of, changes) in settings.into_iter().take(SETTINGS) {
        let cells = figures.iter().map(|figure| changes.figure(figure));
        let input = changes.all.last().map_or("-", |(_, input)| input);
        let input = file_name(input).to_string();
        table.add_row(of.into_iter().chain(cells).chain([input]));
    }
    let mut text = format!("{}:\n{table}\n", title(ask));
    if ask == Ask::WhatIf {
        let bounds = "surely: inputs that grow at the lower bound, too; maybe: those that grow at the upper one";
        text.push_str(&format!("{}\n", output::wrap(bounds)));
    }
    if more > 0 {
        text.push_str(&format!("{more} more settings are in the rows\n"));
    }
    text
}

/// The changes of each setting, in the order of the rows; those of a setting from the least to the most.
fn changes<'a>(
    figure: Figure,
    names: &[(&str, &Column)],
    rows: &'a Table,
) -> Vec<(Vec<String>, Changes<'a>)> {
    let (Some(values), Some(Column::Text(inputs))) =
        (rows.column(figure.column), rows.column("input"))
    else {
        return Vec::new();
    };
    let found: Vec<(usize, &str, f64)> = inputs
        .iter()
        .enumerate()
        .filter_map(|(row, input)| Some((row, input.as_deref()?, number(values, row)?)))
        .collect();
    let mut least: BTreeMap<&str, f64> = BTreeMap::new();
    for (_, input, value) in &found {
        let known = least.entry(input).or_insert(*value);
        *known = known.min(*value);
    }
    let base = figure.now.and_then(|name| rows.column(name));
    let bounds = figure
        .bounds
        .map(|names| names.map(|name| rows.column(name)));
    let mut settings: Vec<(Vec<String>, Changes<'_>)> = Vec::new();
    for (row, input, value) in found {
        let against = match base {
            Some(base) => number(base, row),
            None => least.get(input).copied(),
        };
        let Some(against) = against.filter(|against| *against > 0.0) else {
            continue;
        };
        let of: Vec<String> = names.iter().map(|(_, column)| shown(column, row)).collect();
        let at = settings.iter().position(|(known, _)| *known == of);
        let at = at.unwrap_or_else(|| {
            settings.push((of, Changes::default()));
            settings.len() - 1
        });
        let changes = &mut settings[at].1;
        changes.all.push((100.0 * (value / against - 1.0), input));
        changes.sum += value;
        let [low, high] = bounds.map_or([None; 2], |bounds| bounds.map(|of| number(of?, row)));
        changes.surely += u64::from(low.is_some_and(|low| low > against));
        changes.maybe += u64::from(high.is_some_and(|high| high > against));
    }
    for (_, changes) in &mut settings {
        changes.all.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    settings
}

impl Changes<'_> {
    /// A column of the table.
    fn figure(&self, name: &str) -> String {
        let last = self.all.len().saturating_sub(1);
        let at = |at: usize| self.all.get(at).map(|(change, _)| *change);
        let shown = |change: Option<f64>| change.map_or("-".to_string(), percent);
        match name {
            "inputs" => count(self.all.len() as u64),
            "sum" => bytes(self.sum as u64),
            "least" => shown(at(0)),
            "median" => {
                let changes: Vec<f64> = self.all.iter().map(|(change, _)| *change).collect();
                percent(median(&changes))
            }
            "most" => shown(at(last)),
            "surely" => count(self.surely),
            _ => count(self.maybe),
        }
    }
}

fn percent(change: f64) -> String {
    format!("{change:+.1} %")
}

/// Columns of settings that differ between rows, with short names.
fn setting_columns(rows: &Table) -> Vec<(&str, &Column)> {
    let fields = rows.fields().iter().zip(rows.columns());
    let varies = |column: &Column| (1..rows.rows()).any(|row| column.compare(0, row).is_ne());
    fields
        .filter_map(|(field, column)| {
            let name = &field.name;
            let short = name
                .strip_prefix("asked.")
                .or_else(|| name.strip_prefix("set."))?;
            varies(column).then_some((short, column))
        })
        .collect()
}

/// A setting's value as people write it.
fn shown(column: &Column, row: usize) -> String {
    match column.value(row) {
        serde_json::Value::Null => "default".to_string(),
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}
