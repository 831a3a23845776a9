//! Rows of tables that compare runs: each has a name and a value, and names the fields of the JSON that it shows.

use serde::Serialize;
use serde_json::Value;

use quarry_view::units;

/// A row of a table, one value per run.
pub(crate) struct Row {
    /// Name and fields.
    pub(crate) label: Label,
    /// True if the row is printed without `--all`.
    pub(crate) first: bool,
    /// Form of the cells.
    form: Form,
}

/// Form of the sum of a row's fields. A run without them, such as one without page events, has `-`; so has a part of nothing.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Bytes with a unit.
    Bytes,
    /// A count.
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
    /// A number that its function computes from a run, and its text; `-` if there is none.
    Own(fn(&Value) -> Option<f64>, fn(f64) -> String),
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

impl Row {
    /// Adds a note to the label.
    pub(crate) const fn note(self, note: &'static str) -> Self {
        Self {
            label: self.label.note(note),
            ..self
        }
    }

    /// The number of a run's cell; `None` if it has none, or lists several.
    pub(crate) fn number(&self, run: &Value) -> Option<f64> {
        let fields = self.label.fields;
        match self.form {
            Form::Own(number, _) => number(run),
            Form::Orders => None,
            Form::Of(whole) => {
                let (part, whole) = (numbers(run, fields)?, numbers(run, whole)?);
                (whole > 0.0).then(|| part / whole)
            }
            Form::Ns => {
                let of = fields.rsplit_once('.').map_or("", |(of, _)| of);
                let is_empty = field(run, of)["count"] == 0;
                numbers(run, fields).filter(|_| !is_empty)
            }
            _ => numbers(run, fields),
        }
    }

    /// The cell of a run.
    pub(crate) fn cell(&self, run: &Value) -> String {
        if let Form::Orders = self.form {
            return orders(field(run, self.label.fields));
        }
        let Some(number) = self.number(run) else {
            return "-".to_string();
        };
        match self.form {
            Form::Bytes => units::bytes(number as u64),
            Form::Count => units::count(number as u64),
            Form::Of(_) | Form::Share => format!("{:.1} %", number * 100.0),
            Form::Rate => units::rate(number),
            Form::Ns => format!("{number:.1}"),
            Form::Lines | Form::Orders => format!("{number:.3}"),
            Form::Own(_, text) => text(number),
        }
    }
}

/// The rows with the cells of all runs: those of `--all`, or the first ones.
pub(crate) fn lines<R: Serialize>(
    rows: &[Row],
    runs: &[&R],
    all: bool,
) -> Vec<(&'static str, Vec<String>)> {
    let json = |run: &&R| serde_json::to_value(run).unwrap_or_default();
    let runs: Vec<Value> = runs.iter().map(json).collect();
    let shown = rows.iter().filter(|row| all || row.first);
    let shown = shown.map(|row| {
        let cells = runs.iter().map(|run| row.cell(run));
        (row.label.name, cells.collect())
    });
    shown.collect()
}

/// The member of a run with a path.
pub(crate) fn field<'a>(run: &'a Value, path: &str) -> &'a Value {
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
pub(crate) const fn first(name: &'static str, fields: &'static str, form: Form) -> Row {
    Row {
        label: Label::new(name, fields),
        first: true,
        form,
    }
}

/// A row that `--all` prints.
pub(crate) const fn more(name: &'static str, fields: &'static str, form: Form) -> Row {
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
