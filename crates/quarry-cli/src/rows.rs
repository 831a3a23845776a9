//! Rows of tables that compare runs: each has a name and a value, and names the fields of the JSON that it shows.

use serde::Serialize;
use serde_json::Value;

use crate::units;

/// A row of a table, one value per run.
pub(crate) struct Row<R: 'static> {
    /// Name and fields.
    pub(crate) label: Label,
    /// True if the row is printed without `--all`.
    pub(crate) first: bool,
    /// Form of the cells.
    form: Form<R>,
}

/// Form of the sum of a row's fields. A run without them, such as one without page events, has `-`.
#[derive(Clone, Copy)]
pub(crate) enum Form<R: 'static> {
    Bytes,
    Count,
    /// Numbers by order, from order 0 on; a line for each that is not 0.
    Orders,
    /// Part of the sum of these fields, in per cent.
    Of(&'static str),
    /// A share of 1, in per cent.
    Share,
    /// Events per second.
    Rate,
    /// Nanoseconds; `-` if the field's struct has the `count` 0.
    Ns,
    /// Cache lines per operation.
    Lines,
    /// A text of its own.
    Own(fn(&R) -> String),
}

/// A name of a row or a column, and its meaning.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    /// Name, which `quarry explain` takes; indented below the row that it is a part of.
    pub(crate) name: &'static str,
    /// Paths of the fields that it shows, below `runs`, with spaces between. Their doc comments are its meaning.
    fields: &'static str,
    /// Facts about the row that are not about a field: a unit, a ratio, a condition.
    pub(crate) note: &'static str,
}

impl Label {
    /// A name for fields.
    pub(crate) const fn new(name: &'static str, fields: &'static str) -> Self {
        Self {
            name,
            fields,
            note: "",
        }
    }

    /// Adds a note.
    pub(crate) const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// The name in one line.
    pub(crate) fn plain(&self) -> String {
        self.name.trim().replace('\n', " ")
    }

    /// Paths of the fields below `runs`.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.fields.split_whitespace()
    }
}

impl<R> Row<R> {
    /// Adds a note to the label.
    pub(crate) const fn note(self, note: &'static str) -> Self {
        Self {
            label: self.label.note(note),
            ..self
        }
    }

    /// The cell of a run, whose fields are in `json`.
    fn cell(&self, run: &R, json: &Value) -> String {
        if let Form::Own(cell) = self.form {
            return cell(run);
        }
        let fields = self.label.fields;
        let Some(sum) = numbers(json, fields) else {
            return "-".to_string();
        };
        match self.form {
            Form::Bytes => units::bytes(sum as u64),
            Form::Count => units::count(sum as u64),
            Form::Orders => orders(field(json, fields)),
            Form::Of(whole) => {
                let whole = numbers(json, whole).unwrap_or(0.0);
                units::percent(sum as u64, whole as u64)
            }
            Form::Share => format!("{:.1} %", sum * 100.0),
            Form::Rate => units::rate(sum),
            Form::Ns => {
                let of = fields.rsplit_once('.').map_or("", |(of, _)| of);
                match &field(json, of)["count"] {
                    count if *count == 0 => "-".to_string(),
                    _ => format!("{sum:.1}"),
                }
            }
            Form::Lines | Form::Own(_) => format!("{sum:.3}"),
        }
    }
}

/// The rows with the cells of all runs: those of `--all`, or the first ones.
pub(crate) fn lines<R: Serialize>(
    rows: &[Row<R>],
    runs: &[&R],
    all: bool,
) -> Vec<(&'static str, Vec<String>)> {
    let json = |run: &&R| serde_json::to_value(run).unwrap_or_default();
    let runs: Vec<(&R, Value)> = runs.iter().map(|run| (*run, json(run))).collect();
    let shown = rows.iter().filter(|row| all || row.first);
    let shown = shown.map(|row| {
        let cells = runs.iter().map(|(run, json)| row.cell(run, json));
        (row.label.name, cells.collect())
    });
    shown.collect()
}

/// The member of a run with a path.
fn field<'a>(run: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(run, |value, name| &value[name])
}

/// The sum of the numbers that fields have or list; `None` if the run lacks one of them.
fn numbers(run: &Value, fields: &str) -> Option<f64> {
    let mut all = Vec::new();
    for path in fields.split_whitespace() {
        match field(run, path) {
            Value::Null => return None,
            Value::Array(list) => all.extend(list.iter().filter_map(Value::as_f64)),
            number => all.extend(number.as_f64()),
        }
    }
    Some(all.into_iter().fold(0.0, |sum, number| sum + number))
}

/// A line for each order that has some.
fn orders(list: &Value) -> String {
    let counts = list.as_array().into_iter().flatten();
    let counts = counts.filter_map(Value::as_u64).enumerate();
    let lines = counts.filter(|(_, count)| *count > 0);
    let lines = lines.map(|(order, count)| format!("{order}: {:>5}", units::count(count)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A row that is printed without `--all`.
pub(crate) const fn first<R>(name: &'static str, fields: &'static str, form: Form<R>) -> Row<R> {
    Row {
        label: Label::new(name, fields),
        first: true,
        form,
    }
}

/// A row that `--all` prints.
pub(crate) const fn more<R>(name: &'static str, fields: &'static str, form: Form<R>) -> Row<R> {
    Row {
        first: false,
        ..first(name, fields, form)
    }
}

/// A name and the cells of all runs.
pub(crate) fn line(
    name: impl Into<String>,
    cells: impl IntoIterator<Item = String>,
) -> Vec<String> {
    std::iter::once(name.into()).chain(cells).collect()
}
