//! Frames: rows of a report as columns, for Parquet, Arrow and comma-separated values.
//!
//! A column is a member of the report that is one value; its name is the path to it, as `quarry explain --all` has it. Lists of texts
//! become one text. Other lists have no column. Integers are signed, also those that cannot be negative: a
//! difference of two columns is right then. What does not fit is the largest integer.

mod parquet;
pub mod schema;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use self::parquet::FrameError;

/// Kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// 64 bits, signed.
    Int,
    /// 64 bits.
    Float,
    /// UTF-8.
    Text,
}

/// Name and kind of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Path of the member, such as `paths.hit.share`.
    pub name: String,
    /// Kind of its values.
    pub kind: Kind,
    /// Meaning, as the doc comment has it; empty if nothing is known.
    pub about: String,
}

impl Field {
    /// A field of these.
    #[must_use]
    pub fn new(name: &str, kind: Kind, about: &str) -> Self {
        Self {
            name: name.to_string(),
            kind,
            about: about.to_string(),
        }
    }
}

/// Values of a column; `None` where a row has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Values of [`Kind::Bool`].
    Bool(Vec<Option<bool>>),
    /// Values of [`Kind::Int`].
    Int(Vec<Option<i64>>),
    /// Values of [`Kind::Float`].
    Float(Vec<Option<f64>>),
    /// Values of [`Kind::Text`].
    Text(Vec<Option<String>>),
}

/// Rows as columns, all of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    fields: Vec<Field>,
    columns: Vec<Values>,
    rows: usize,
    /// Facts about all rows, by key.
    pub notes: BTreeMap<String, String>,
}

impl Values {
    /// A column without a value in any row.
    #[must_use]
    pub fn empty(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Bool => Self::Bool(vec![None; rows]),
            Kind::Int => Self::Int(vec![None; rows]),
            Kind::Float => Self::Float(vec![None; rows]),
            Kind::Text => Self::Text(vec![None; rows]),
        }
    }

    /// A column of values of JSON; what is of another kind is none.
    pub fn of_values<'a>(kind: Kind, values: impl IntoIterator<Item = Option<&'a Value>>) -> Self {
        let mut column = Self::empty(kind, 0);
        values.into_iter().for_each(|value| column.push(value));
        column
    }

    /// The order of two rows by their values, none first.
    #[must_use]
    pub fn compare(&self, a: usize, b: usize) -> Ordering {
        match self {
            Self::Bool(values) => values.get(a).cmp(&values.get(b)),
            Self::Int(values) => values.get(a).cmp(&values.get(b)),
            Self::Text(values) => values.get(a).cmp(&values.get(b)),
            Self::Float(values) => match (
                values.get(a).copied().flatten(),
                values.get(b).copied().flatten(),
            ) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// True without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kind of the values.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Float(_) => Kind::Float,
            Self::Text(_) => Kind::Text,
        }
    }

    /// The value of a row as JSON has it; null without one.
    #[must_use]
    pub fn value(&self, row: usize) -> Value {
        match self {
            Self::Bool(values) => values.get(row).copied().flatten().into(),
            Self::Int(values) => values.get(row).copied().flatten().into(),
            Self::Float(values) => values.get(row).copied().flatten().into(),
            Self::Text(values) => values.get(row).cloned().flatten().into(),
        }
    }

    /// Appends a value of JSON; what is of another kind is none.
    fn push(&mut self, value: Option<&Value>) {
        match self {
            Self::Bool(values) => values.push(value.and_then(Value::as_bool)),
            Self::Int(values) => values.push(value.and_then(integer)),
            Self::Float(values) => values.push(value.and_then(Value::as_f64)),
            Self::Text(values) => values.push(value.and_then(text)),
        }
    }

    /// Appends the rows of another column of the same kind.
    fn extend(&mut self, other: Self) {
        match (self, other) {
            (Self::Bool(values), Self::Bool(more)) => values.extend(more),
            (Self::Int(values), Self::Int(more)) => values.extend(more),
            (Self::Float(values), Self::Float(more)) => values.extend(more),
            (Self::Text(values), Self::Text(more)) => values.extend(more),
            (column, other) => {
                let values = (0..other.len()).map(|row| other.value(row));
                values.for_each(|value| column.push(Some(&value)));
            }
        }
    }

    fn select(&self, rows: &[usize]) -> Self {
        fn of<T: Clone>(values: &[Option<T>], rows: &[usize]) -> Vec<Option<T>> {
            let value = |row: &usize| values.get(*row).cloned().flatten();
            rows.iter().map(value).collect()
        }
        match self {
            Self::Bool(values) => Self::Bool(of(values, rows)),
            Self::Int(values) => Self::Int(of(values, rows)),
            Self::Float(values) => Self::Float(of(values, rows)),
            Self::Text(values) => Self::Text(of(values, rows)),
        }
    }
}

fn integer(value: &Value) -> Option<i64> {
    let large = || value.as_u64().map(|_| i64::MAX);
    value.as_i64().or_else(large)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(texts) => {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            Some(texts.join("; "))
        }
        _ => None,
    }
}

impl Frame {
    /// A table of reports, a row each.
    ///
    /// # Errors
    ///
    /// [`FrameError::Report`] if one cannot be written as JSON.
    pub fn of<T: Serialize + JsonSchema>(reports: &[T]) -> Result<Self, FrameError> {
        let rows = reports.iter().map(serde_json::to_value);
        let rows = rows.collect::<Result<Vec<_>, _>>();
        Ok(Self::of_values::<T>(&rows.map_err(FrameError::Report)?))
    }

    /// A table of reports that are JSON already; `T` is their type.
    #[must_use]
    pub fn of_values<T: JsonSchema>(rows: &[Value]) -> Self {
        Self::of_fields(schema::fields::<T>(), rows)
    }

    /// A table of reports whose type has these fields.
    pub fn of_fields(fields: Vec<Field>, rows: &[Value]) -> Self {
        let fields = fields.into_iter();
        let fields: Vec<Field> = fields.flat_map(|field| named(field, rows)).collect();
        let columns = fields.iter().map(|field| {
            Values::of_values(field.kind, rows.iter().map(|row| member(row, &field.name)))
        });
        Self {
            columns: columns.collect(),
            rows: rows.len(),
            fields,
            notes: BTreeMap::new(),
        }
    }

    /// A table of parts of reports, such as caches: a row for each part, before its members the report's of these names.
    ///
    /// # Errors
    ///
    /// As [`Self::of`].
    pub fn of_parts<T, P>(
        reports: &[T],
        parts: impl Fn(&T) -> &[P],
        lead: &[&str],
    ) -> Result<Self, FrameError>
    where
        T: Serialize + JsonSchema,
        P: Serialize + JsonSchema,
    {
        let values = |report: &T| parts(report).iter().map(serde_json::to_value).collect();
        let all = reports.iter().map(values).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(FrameError::Report)?;
        Ok(Self::of(reports)?.parts(schema::fields::<P>(), &all, lead))
    }

    /// A table of parts of this table's rows, which are JSON already: a row for each, before its members the row's of these
    /// names.
    #[must_use]
    pub fn parts(&self, fields: Vec<Field>, parts: &[Vec<Value>], lead: &[&str]) -> Self {
        let rows = parts.iter().enumerate();
        let rows: Vec<usize> = rows
            .flat_map(|(row, of)| of.iter().map(move |_| row))
            .collect();
        let mut table = Self::of_fields(fields, &parts.concat());
        let of = self.select(&rows);
        let found = |name: &&str| of.fields.iter().position(|field| field.name == *name);
        for (at, found) in lead.iter().filter_map(found).enumerate() {
            table.insert(at, of.fields[found].clone(), of.columns[found].clone());
        }
        table
    }

    /// Takes out the column of this name, if it is there.
    pub fn remove(&mut self, name: &str) {
        if let Some(at) = self.fields.iter().position(|field| field.name == name) {
            self.fields.remove(at);
            self.columns.remove(at);
        }
    }

    /// Puts these columns before the others, in this order.
    pub fn lead(&mut self, names: &[&str]) {
        for name in names.iter().rev() {
            if let Some(at) = self.fields.iter().position(|field| field.name == *name) {
                self.fields[..=at].rotate_right(1);
                self.columns[..=at].rotate_right(1);
            }
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns' names and kinds.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The columns, in the order of the fields.
    #[must_use]
    pub fn columns(&self) -> &[Values] {
        &self.columns
    }

    /// The column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Values> {
        let at = self.fields.iter().position(|field| field.name == name)?;
        self.columns.get(at)
    }

    /// Puts a column before all others, or in place of the one of its name. A table without columns takes its number
    /// of rows; of another length the column is cut or filled with none.
    pub fn insert(&mut self, at: usize, field: Field, mut column: Values) {
        if self.fields.is_empty() {
            self.rows = column.len();
        }
        if column.len() != self.rows {
            let rows: Vec<usize> = (0..self.rows).collect();
            column = column.select(&rows);
        }
        self.remove(&field.name);
        let at = at.min(self.fields.len());
        self.fields.insert(at, field);
        self.columns.insert(at, column);
    }

    /// Appends the rows of another table. A column that one of them lacks has no values there; notes that differ are
    /// the first table's.
    pub fn append(&mut self, other: Self) {
        let rows = self.rows + other.rows;
        let mut others: Vec<Option<Values>> = other.columns.into_iter().map(Some).collect();
        for (field, column) in self.fields.iter().zip(&mut self.columns) {
            let at = other.fields.iter().position(|of| of.name == field.name);
            match at.and_then(|at| others.get_mut(at)?.take()) {
                Some(more) => column.extend(more),
                None => column.extend(Values::empty(field.kind, other.rows)),
            }
        }
        for (field, column) in other.fields.into_iter().zip(others) {
            if let Some(column) = column {
                let mut padded = Values::empty(field.kind, self.rows);
                padded.extend(column);
                self.fields.push(field);
                self.columns.push(padded);
            }
        }
        self.rows = rows;
        for (key, value) in other.notes {
            self.notes.entry(key).or_insert(value);
        }
    }

    /// The rows with these numbers, in their order.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let columns = self.columns.iter().map(|column| column.select(rows));
        Self {
            fields: self.fields.clone(),
            columns: columns.collect(),
            rows: rows.len(),
            notes: self.notes.clone(),
        }
    }

    /// A row.
    #[must_use]
    pub fn row(&self, row: usize) -> FrameRow<'_> {
        FrameRow { frame: self, row }
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub struct FrameRow<'a> {
    frame: &'a Frame,
    row: usize,
}

impl<'a> FrameRow<'a> {
    /// The value in the column of this name; null without one.
    #[must_use]
    pub fn value(&self, name: &str) -> Value {
        let column = self.frame.column(name);
        column.map_or(Value::Null, |column| column.value(self.row))
    }

    /// The number in the column of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.value(name).as_f64()
    }

    /// The text in the column of this name; empty without one.
    #[must_use]
    pub fn text(&self, name: &str) -> &'a str {
        match self.frame.column(name) {
            Some(Values::Text(texts)) => texts.get(self.row).and_then(Option::as_deref),
            _ => None,
        }
        .unwrap_or_default()
    }
}

/// The field, or one for each name that stands for `*` in it.
fn named(field: Field, rows: &[Value]) -> Vec<Field> {
    let Some((before, after)) = field.name.split_once('*') else {
        return vec![field];
    };
    let map = before.trim_end_matches('.');
    let names: BTreeSet<&String> = rows
        .iter()
        .filter_map(|row| member(row, map)?.as_object())
        .flat_map(serde_json::Map::keys)
        .collect();
    let of = |name: &String| Field {
        name: format!("{before}{name}{after}"),
        ..field.clone()
    };
    names.into_iter().map(of).collect()
}

/// The member at a path. A name may have dots itself.
fn member<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let members = value.as_object()?;
    if let Some(found) = members.get(path) {
        return Some(found);
    }
    let mut dots = path.match_indices('.');
    dots.find_map(|(at, _)| member(members.get(&path[..at])?, &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema, Serialize)]
    struct Inner {
        /// Share of the time.
        share: f64,
        list: Vec<u64>,
    }

    #[derive(JsonSchema, Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Cause {
        /// One.
        LayOut,
    }

    #[derive(JsonSchema, Serialize)]
    struct Report {
        /// Name of it.
        name: &'static str,
        bytes: u64,
        less: i64,
        inner: Inner,
        maybe: Option<Inner>,
        notes: Vec<String>,
        stats: BTreeMap<String, u64>,
        is_good: bool,
        cause: Cause,
        set: Option<u32>,
    }

    fn report(bytes: u64, set: Option<u32>) -> Report {
        let inner = |share| Inner {
            share,
            list: vec![1],
        };
        Report {
            name: "a",
            bytes,
            less: -3,
            inner: inner(1.0),
            maybe: set.map(|_| inner(0.5)),
            notes: vec!["one".to_string(), "two".to_string()],
            stats: set.map(|_| ("slab.x".to_string(), 7)).into_iter().collect(),
            is_good: true,
            cause: Cause::LayOut,
            set,
        }
    }

    #[test]
    fn a_report_is_a_row() {
        let table = Frame::of(&[report(u64::MAX, None), report(5, Some(2))]).unwrap();
        let names: Vec<&str> = table.fields().iter().map(|of| of.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "name",
                "bytes",
                "less",
                "inner.share",
                "maybe.share",
                "notes",
                "stats.slab.x",
                "is_good",
                "cause",
                "set"
            ]
        );
        assert_eq!(
            table.column("bytes"),
            Some(&Values::Int(vec![Some(i64::MAX), Some(5)]))
        );
        assert_eq!(
            table.column("maybe.share"),
            Some(&Values::Float(vec![None, Some(0.5)]))
        );
        assert_eq!(
            table.column("stats.slab.x"),
            Some(&Values::Int(vec![None, Some(7)]))
        );
        let row = table.row(1);
        assert_eq!(
            [row.text("notes"), row.text("cause")],
            ["one; two", "lay_out"]
        );
        assert_eq!((row.number("less"), row.number("none")), (Some(-3.0), None));
        assert_eq!(table.row(0).value("set"), Value::Null);
        assert_eq!(table.fields()[0].about, "Name of it.");
    }

    #[test]
    fn the_columns_do_not_depend_on_the_rows_but_for_maps() {
        let none = Frame::of::<Report>(&[]).unwrap();
        let one = Frame::of(&[report(1, Some(1))]).unwrap();
        let without: Vec<&Field> = one
            .fields()
            .iter()
            .filter(|field| !field.name.starts_with("stats"))
            .collect();
        assert_eq!(none.fields().iter().collect::<Vec<_>>(), without);
    }

    #[test]
    fn tables_are_appended_by_name() {
        let mut all = Frame::of(&[report(1, None)]).unwrap();
        all.append(Frame::of(&[report(2, Some(9))]).unwrap());
        assert_eq!(all.rows(), 2);
        assert_eq!(
            all.column("stats.slab.x"),
            Some(&Values::Int(vec![None, Some(7)]))
        );
        assert!(all.columns().iter().all(|column| column.len() == 2));
        let last = all.select(&[1]);
        assert_eq!(last.column("bytes"), Some(&Values::Int(vec![Some(2)])));
    }
}
