//! Results: tables that every library of data frames takes.

use std::collections::BTreeMap;

use pyo3::exceptions::{PyImportError, PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyIterator, PyList, PySlice, PyString};
use quarry_lab::ask::{Answer, Ask};
use quarry_lab::callers::{self, By, taints};
use quarry_lab::look;
use quarry_sweep::table::{Column, Field, Kind, Table};
use quarry_view::{Level, Part, Section, Spec, View};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::arrow;
use crate::error::{raised, usage};
use crate::recording::existing;

/// Rows of a result. pandas, polars, DuckDB and pyarrow take it as it is, by `__arrow_c_stream__`.
///
/// A column is a field of the command's JSON, by its path; `about` says what each means. Names end with their unit: `_bytes`,
/// `_ns`, `_us`, `_percent`. `notes` says where the rows come from: version, input and its digest, what was asked, bounds.
/// `runs` has the same with all lists. Printed, it shows what the command prints.
///
/// >>> import quarry
/// >>> table = quarry.geometry([192, 9856], page_size="64k", cpus=16)
/// >>> len(table), table[0]["objects_per_slab"], table["order"]
/// (2, 341, [0, 2])
/// >>> [row["slab_bytes"] for row in table]
/// [65536, 262144]
#[pyclass(module = "quarry", name = "Table", frozen)]
pub(crate) struct PyTable {
    table: Table,
    /// The reports in full.
    runs: Vec<Value>,
    /// Name of what it shows; empty for its columns in their order.
    shown: String,
}

/// Rows that `repr` prints.
const REPR_ROWS: usize = 10;
/// Letters of a line that `repr` prints.
const REPR_WIDTH: usize = 100;
/// Columns of the table in a notebook.
const HTML_COLUMNS: usize = 16;

/// Tables of reports that are no answers of an [`Ask`], by the names that [`PyTable::shows`] takes.
const SPECS: [(&str, Spec); 5] = [
    ("look parts", look::PARTS),
    ("look caches", look::CACHES),
    ("look growth", look::GROWTH),
    ("look what-ifs", look::WHAT_IFS),
    ("taints", taints::TAINTS),
];

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
        let shown = String::new();
        Self { table, runs, shown }
    }

    /// A table that was read; it has no reports.
    pub(crate) fn of_table(table: Table) -> Self {
        Self {
            table,
            runs: Vec::new(),
            shown: String::new(),
        }
    }

    /// The table that shows the view of this name: that of an [`Ask`], one of [`SPECS`], or callers by what follows the word.
    pub(crate) fn shows(mut self, view: impl ToString) -> Self {
        self.shown = view.to_string();
        self
    }

    /// The first rows as the command shows them; none of rows that no command shows.
    fn view(&self) -> Option<View> {
        if self.shown == "sweep" {
            // Rows that were taken from it may have no figure.
            return quarry_cli::swept(self.table.clone()).ok();
        }
        let spec = SPECS.iter().find(|(name, _)| *name == self.shown);
        let by = self.shown.strip_prefix("callers ");
        let by = by.and_then(|name| quarry_designs::named("by", &By::ALL, name).ok());
        let mut view = match (spec, by) {
            (Some((name, spec)), _) => {
                let rows = self.runs.iter().map(|run| match *name {
                    "look parts" => run["parts"].clone(),
                    _ => {
                        let mut run = run.clone();
                        let now = self.table.notes.get("quarry.slab_bytes");
                        let now: Option<u64> = now.and_then(|bytes| bytes.parse().ok());
                        run["now"] = now.into();
                        run
                    }
                });
                let rows: Vec<Value> = rows.collect();
                let table = spec.table(&rows);
                let is_one = *name == "look parts";
                let table = if is_one { table.turned(0) } else { table };
                View::default().with(Section::new(spec.title).with(table))
            }
            (None, Some(by)) => {
                let table = callers::table(&self.runs, by);
                View::default().with(Section::new(callers::CALLERS.title).with(table))
            }
            (None, None) => self.answer(Ask::parse(&self.shown).ok()?),
        };
        let about = |field: &Field| {
            let of = self.rows_of();
            (format!("{of}.{}", field.name), field.about.clone())
        };
        let meanings: BTreeMap<String, String> = self.table.fields().iter().map(about).collect();
        view.explain(&meanings);
        let has_cells = |section: &Section| {
            let tables = section.parts.iter();
            tables
                .filter(|part| matches!(part, Part::Table(table) if !table.rows.is_empty()))
                .count()
                > 0
        };
        view.sections.iter().any(has_cells).then_some(view)
    }

    /// Path of the rows in the command's JSON.
    fn rows_of(&self) -> &'static str {
        match self.table.rows() == self.runs.len() {
            true => "runs",
            false => "runs.caches",
        }
    }

    /// The tables of an answer that have the rows.
    fn answer(&self, ask: Ask) -> View {
        let of = self.rows_of();
        let mut view = ask.view(&self.runs[..self.runs.len().min(REPR_ROWS)]);
        for section in &mut view.sections {
            section
                .parts
                .retain(|part| matches!(part, Part::Table(table) if table.of == of));
        }
        view.sections.retain(|section| !section.parts.is_empty());
        view
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
            all.append(self.row(py, row)?)?;
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

    /// The values of a column by its name, a row as a dictionary by its number, or several rows by a slice.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(name) = key.cast::<PyString>() {
            return Ok(self.values(py, &name.to_string())?.into_any());
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let rows = slice.indices(self.table.rows() as isize)?;
            let rows = (0..rows.slicelength as isize).map(|at| rows.start + at * rows.step);
            let rows = rows.map(|row| self.row(py, row as usize));
            let rows = PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?;
            return Ok(rows.into_any());
        }
        let asked: i64 = key.extract().map_err(|problem: PyErr| {
            match problem.is_instance_of::<PyOverflowError>(py) {
                true => PyIndexError::new_err(format!("row {key}: it is out of range")),
                false => {
                    PyTypeError::new_err(format!("{key}: a key is a name, a number or a slice"))
                }
            }
        })?;
        let count = self.table.rows() as i64;
        let row = if asked < 0 { asked + count } else { asked };
        if !(0..count).contains(&row) {
            let text = format!("row {asked}: the table has {count}");
            return Err(PyIndexError::new_err(text));
        }
        Ok(self.row(py, row as usize)?.into_any())
    }

    /// The rows as dictionaries, one after the other.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_dicts(py)?.try_iter()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.table.column(name).is_some()
    }

    /// The table as a frame of pandas; needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wanted(slf.py(), "to_pandas", "pandas")?;
        Self::to_arrow(slf)?.call_method0("to_pandas")
    }

    /// The table as a frame of polars; needs polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wanted(slf.py(), "to_polars", "polars")?.call_method1("DataFrame", (slf,))
    }

    /// The table as one of pyarrow; needs pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wanted(slf.py(), "to_arrow", "pyarrow")?.call_method1("table", (slf,))
    }

    /// Pickled as Parquet, with the reports.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        let rows = self.table.to_parquet().map_err(raised)?;
        let runs = serde_json::to_string(&self.runs).map_err(raised)?;
        let make = py.import("quarry._quarry")?.getattr("unpickled")?;
        Ok((make, (PyBytes::new(py, &rows), runs, self.shown.clone())))
    }

    fn __repr__(&self) -> String {
        if let Some(view) = self.view() {
            return format!("{}\n{}", quarry_cli::text(&view), self.whole());
        }
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
        if let Some(view) = self.view() {
            return format!("{}<p>{}</p>", html(&view), self.whole());
        }
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

/// The call that makes a pickled table again.
type Pickled<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, String, String));

/// Makes a table of what its pickle has.
#[pyfunction]
pub(crate) fn unpickled(rows: Vec<u8>, runs: &str, shown: String) -> PyResult<PyTable> {
    let table = Table::of_parquet(bytes::Bytes::from(rows), |_| true).map_err(raised)?;
    let runs = serde_json::from_str(runs).map_err(raised)?;
    Ok(PyTable { table, runs, shown })
}

impl PyTable {
    fn row<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        for (field, column) in self.table.fields().iter().zip(self.table.columns()) {
            values.set_item(&field.name, object(py, &column.value(row))?)?;
        }
        Ok(values)
    }

    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(column) = self.table.column(name) else {
            let names = self.table.fields().iter().map(|field| field.name.as_str());
            let near = quarry_designs::nearest(name, names).unwrap_or("none");
            return Err(usage(format!("{name}: the nearest column is {near}")));
        };
        let values = (0..column.len()).map(|row| object(py, &column.value(row)));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// Rows and columns of the whole table, below those that are shown.
    fn whole(&self) -> String {
        let (rows, columns) = (self.table.rows(), self.table.fields().len());
        let plural = if rows == 1 { "" } else { "s" };
        format!("{rows} row{plural}, {columns} columns (table.columns)")
    }

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

/// A package that a method needs.
fn wanted<'py>(py: Python<'py>, method: &str, package: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|error| {
        let text = format!("{method} needs the package {package}: pip install {package}");
        let told = PyImportError::new_err(text);
        told.set_cause(py, Some(error));
        told
    })
}

/// The tables of a view, a row for each run.
fn html(view: &View) -> String {
    let mut html = String::new();
    for section in &view.sections {
        html += &format!("<p>{}</p>", escaped(&section.heading));
        for part in &section.parts {
            let Part::Table(table) = part else { continue };
            html += "<table><thead><tr>";
            let columns: Vec<usize> = (0..table.columns.len())
                .filter(|at| table.columns[*at].level == Level::First)
                .filter(|at| !table.columns[*at].is_bar())
                .collect();
            for at in &columns {
                let column = &table.columns[*at];
                let (name, about) = (escaped(&column.plain()), escaped(&column.about));
                html += &format!("<th title=\"{about}\">{name}</th>");
            }
            html += "</tr></thead><tbody>";
            for row in &table.rows[..table.rows.len().min(REPR_ROWS)] {
                html += "<tr>";
                for cell in columns.iter().filter_map(|at| row.cells.get(*at)) {
                    html += &format!("<td>{}</td>", escaped(&cell.text));
                }
                html += "</tr>";
            }
            html += "</tbody></table>";
        }
    }
    html
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
