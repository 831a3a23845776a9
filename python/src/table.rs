//! Results: tables that every library of data frames takes.

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use quarry_lab::ask::Answer;
use quarry_sweep::table::{Column, Field, Kind, Table};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::arrow;
use crate::error::raised;
use crate::recording::existing;

/// Rows of a result. pandas, polars, DuckDB and pyarrow take it as it is, by `__arrow_c_stream__`.
///
/// A column is a field of the command's JSON, by its path; `about` says what each means. `notes` says where the rows come
/// from: version, input and its digest, what was asked, bounds. `runs` has the same with all lists.
#[pyclass(module = "quarry", name = "Table", frozen)]
pub(crate) struct PyTable {
    table: Table,
    /// The reports in full.
    runs: Vec<Value>,
}

/// Rows that `repr` prints.
const REPR_ROWS: usize = 10;
/// Letters of a line that `repr` prints.
const REPR_WIDTH: usize = 100;
/// Columns of the table in a notebook.
const HTML_COLUMNS: usize = 16;

impl PyTable {
    /// A row for each report; `lead` columns come first.
    pub(crate) fn of<T: Serialize + JsonSchema>(reports: &[T], lead: &[&str]) -> PyResult<Self> {
        let table = Table::of(reports).map_err(raised)?;
        let runs = reports.iter().map(serde_json::to_value).collect();
        let runs: Result<Vec<Value>, _> = runs;
        Ok(Self::of_rows(table, runs.map_err(raised)?, lead))
    }

    /// A row for each answer of a question whose reports have these columns, or for each of its caches after these columns
    /// of the run.
    pub(crate) fn of_answers(
        [of_run, of_cache]: [Vec<Field>; 2],
        answers: Vec<Answer>,
        caches: bool,
        lead: &[&str],
    ) -> Self {
        let (mut runs, mut parts) = (Vec::new(), Vec::new());
        for answer in answers {
            runs.push(answer.run);
            parts.push(answer.caches);
        }
        let mut table = Table::of_fields(of_run, &runs);
        asked_columns(&mut table, &runs);
        if caches {
            table = table.parts(of_cache, &parts, lead);
        }
        for (run, caches) in runs.iter_mut().zip(parts) {
            if let (Some(run), false) = (run.as_object_mut(), caches.is_empty()) {
                run.insert("caches".to_string(), caches.into());
            }
        }
        Self::of_rows(table, runs, lead)
    }

    fn of_rows(mut table: Table, runs: Vec<Value>, lead: &[&str]) -> Self {
        table.lead(lead);
        let version = env!("CARGO_PKG_VERSION").to_string();
        table.notes.insert("quarry.version".to_string(), version);
        Self { table, runs }
    }

    /// A table that was read; it has no reports.
    pub(crate) fn of_table(table: Table) -> Self {
        Self {
            table,
            runs: Vec::new(),
        }
    }

    /// The table with another fact about all rows.
    pub(crate) fn noted(mut self, key: &str, value: impl ToString) -> Self {
        self.table
            .notes
            .insert(format!("quarry.{key}"), value.to_string());
        self
    }
}

#[pymethods]
impl PyTable {
    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.table
            .fields()
            .iter()
            .map(|field| field.name.as_str())
            .collect()
    }

    /// Meaning of each column.
    #[getter]
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        for field in self.table.fields() {
            about.set_item(&field.name, &field.about)?;
        }
        Ok(about)
    }

    /// Facts about all rows: version, input and its digest, what was asked, bounds.
    #[getter]
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let notes = PyDict::new(py);
        for (key, value) in &self.table.notes {
            notes.set_item(key, value)?;
        }
        Ok(notes)
    }

    /// The reports in full, as the command's JSON has them under `runs`.
    #[getter]
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.runs).map_err(raised)?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// The rows as dictionaries; a column without a value is None.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for row in 0..self.table.rows() {
            let values = PyDict::new(py);
            for (field, column) in self.table.fields().iter().zip(self.table.columns()) {
                values.set_item(&field.name, object(py, &column.value(row))?)?;
            }
            all.append(values)?;
        }
        Ok(all)
    }

    /// Writes the rows as a Parquet file, which appears when it is complete. A file of this name stays, unless it is to be
    /// replaced.
    #[pyo3(signature = (path, *, force = false))]
    fn write_parquet(&self, path: std::path::PathBuf, force: bool) -> PyResult<()> {
        let mut out = quarry_trace::OutFile::create(&path, existing(force)).map_err(raised)?;
        self.table.write_parquet(out.file()).map_err(raised)?;
        out.commit().map_err(raised)?;
        Ok(())
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer keep its own types.
        let _ = requested_schema;
        arrow::stream_of(py, &self.table)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_of(py, &arrow::schema(&self.table))
    }

    fn __len__(&self) -> usize {
        self.table.rows()
    }

    /// The values of a column.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(column) = self.table.column(name) else {
            let names = self.table.fields().iter().map(|field| field.name.as_str());
            let near = quarry_designs::nearest(name, names).unwrap_or("none");
            return Err(PyKeyError::new_err(format!(
                "{name}: the nearest column is {near}"
            )));
        };
        let values = (0..column.len()).map(|row| object(py, &column.value(row)));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    fn __contains__(&self, name: &str) -> bool {
        self.table.column(name).is_some()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Table is not pickled: send pyarrow.table(table), or what write_parquet wrote",
        ))
    }

    fn __repr__(&self) -> String {
        let rows = self.table.rows().min(REPR_ROWS);
        let mut lines = vec![String::new(); rows + 1];
        let mut shown = 0;
        for (field, column) in self.table.fields().iter().zip(self.table.columns()) {
            let cells = (0..rows).map(|row| cell(&column.value(row)));
            let cells: Vec<String> = std::iter::once(field.name.clone()).chain(cells).collect();
            let width = cells
                .iter()
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0);
            if shown > 0 && lines[0].chars().count() + 2 + width > REPR_WIDTH {
                break;
            }
            for (line, cell) in lines.iter_mut().zip(cells) {
                let gap = if shown > 0 { "  " } else { "" };
                *line += &match field.kind {
                    Kind::Text => format!("{gap}{cell:<width$}"),
                    _ => format!("{gap}{cell:>width$}"),
                };
            }
            shown += 1;
        }
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        format!("{}\n{}", lines.join("\n"), self.size(rows, shown))
    }

    fn _repr_html_(&self) -> String {
        let fields = self.table.fields().iter().take(HTML_COLUMNS);
        let mut html = String::from("<table><thead><tr>");
        for field in fields {
            let (name, about) = (escaped(&field.name), escaped(&field.about));
            html += &format!("<th title=\"{about}\">{name}</th>");
        }
        html += "</tr></thead><tbody>";
        let rows = self.table.rows().min(REPR_ROWS);
        for row in 0..rows {
            html += "<tr>";
            for column in self.table.columns().iter().take(HTML_COLUMNS) {
                html += &format!("<td>{}</td>", escaped(&cell(&column.value(row))));
            }
            html += "</tr>";
        }
        let size = self.size(rows, self.table.fields().len().min(HTML_COLUMNS));
        format!("{html}</tbody></table><p>{size}</p>")
    }
}

impl PyTable {
    /// Rows and columns, and those that are not shown.
    fn size(&self, rows: usize, columns: usize) -> String {
        let (all_rows, all_columns) = (self.table.rows(), self.table.fields().len());
        let part = |shown: usize, all: usize| match shown < all {
            true => format!("{shown} of {all}"),
            false => all.to_string(),
        };
        format!(
            "{} rows, {} columns",
            part(rows, all_rows),
            part(columns, all_columns)
        )
    }
}

/// Adds a column for each name whose values differ from run to run.
fn asked_columns(table: &mut Table, runs: &[Value]) {
    let asked = |run: &Value| run.get("asked").and_then(Value::as_object).cloned();
    let first = runs.first().and_then(asked).unwrap_or_default();
    for (name, value) in first {
        let kind = match value {
            Value::Bool(_) => Kind::Bool,
            Value::Number(_) => Kind::Int,
            _ => Kind::Text,
        };
        let values = runs.iter().map(|run| run.get("asked")?.get(&name));
        let column = Column::of_values(kind, values);
        let field = Field::new(&format!("asked.{name}"), kind, "The value that was asked.");
        table.insert(table.fields().len(), field, column);
    }
}

/// A value as a cell of text.
fn cell(value: &Value) -> String {
    const LETTERS: usize = 40;
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) if text.chars().count() > LETTERS => {
            format!("{}...", text.chars().take(LETTERS - 3).collect::<String>())
        }
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(number)) => format!("{number:.4}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// The text with what HTML reads escaped.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A value that is no list as Python has it.
fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(value) => match (value.as_i64(), value.as_f64()) {
            (Some(value), _) => value.into_pyobject(py)?.into_any(),
            (None, value) => value.unwrap_or(f64::NAN).into_pyobject(py)?.into_any(),
        },
        Value::String(value) => value.into_pyobject(py)?.into_any(),
        _ => py.None().into_bound(py),
    })
}
