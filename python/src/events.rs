//! Events of a recording as Arrow, and recordings of such.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{PrimitiveBuilder, StringDictionaryBuilder};
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use quarry_sweep::table::{self, Column, Kind, Table};
use quarry_trace::{
    Existing, Filter, FullRow, NO_CACHE, NO_OBJECT, Place, RowReader, TraceFile, TraceMeta,
    filter_file,
};

use crate::arrow;
use crate::error::{InputError, raised};

/// Rows of a batch.
const BATCH_ROWS: usize = 1 << 16;

/// The events of a recording, a row each, as a stream of Arrow in batches: pandas, polars, DuckDB and pyarrow take it. The
/// columns are those of the recording's Parquet file.
#[pyclass(module = "quarry", frozen)]
pub(crate) struct Events {
    file: TraceFile,
    name: String,
}

#[pymethods]
impl Events {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer keep its own types.
        let _ = requested_schema;
        arrow::stream(
            py,
            Batches {
                rows: self.file.rows(),
                schema: schema(&self.file)?,
                chunk: Vec::new(),
            },
        )
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_of(py, &*schema(&self.file)?)
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> PyResult<Vec<String>> {
        Ok(schema(&self.file)?
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect())
    }

    fn __len__(&self) -> usize {
        self.file.meta().rows as usize
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "Events are not pickled: send the path of the recording's file",
        ))
    }

    fn __repr__(&self) -> String {
        format!(
            "<quarry.Events of {}: {} rows>",
            self.name,
            self.file.meta().rows
        )
    }
}

impl Events {
    /// The events of a recording.
    pub(crate) fn of(file: TraceFile, name: &str) -> Self {
        Self {
            file,
            name: name.to_string(),
        }
    }
}

/// A trace of events that any library of data frames holds, in memory or in a file.
pub(crate) fn trace_of(
    events: &Bound<'_, PyAny>,
    like: Option<&TraceMeta>,
    output: Option<&Path>,
    existing: Existing,
) -> PyResult<TraceFile> {
    if !events.hasattr("__arrow_c_stream__")? {
        return Err(PyTypeError::new_err(
            "events have no __arrow_c_stream__: give a data frame of pandas, polars or pyarrow",
        ));
    }
    let capsule = events.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    let stream = pointer.as_ptr().cast::<FFI_ArrowArrayStream>();
    // SAFETY: the protocol has a capsule of this name point to a stream that its consumer may move out; `capsule` keeps it
    // alive, and no other thread has it, as the call above made it.
    let reader = unsafe { RecordBatchStreamReader::from_raw(stream) };
    let failed = |error: ArrowError| InputError::new_err(format!("events: {error}"));
    let reader = reader.map_err(failed)?;
    // A stream that calls Python takes the interpreter's lock itself.
    events.py().detach(|| {
        let mut table = table_of(reader).map_err(failed)?;
        if let Some(meta) = like {
            let footer = meta.footer().map_err(raised)?;
            let footer = footer.map(|(key, value)| (key.to_string(), value));
            table.notes.extend(footer);
        }
        let bytes = table.to_parquet().map_err(raised)?;
        let made = TraceFile::from_bytes(bytes).map_err(raised)?;
        let Some(output) = output else {
            return Ok(made);
        };
        filter_file(&made, &Filter::default(), output, existing).map_err(raised)?;
        TraceFile::open(output).map_err(raised)
    })
}

/// Reads a trace as batches.
struct Batches {
    rows: RowReader,
    schema: SchemaRef,
    chunk: Vec<FullRow>,
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_ROWS {
            match self.rows.next_chunk(&mut self.chunk) {
                Ok(true) => batch.append(&mut self.chunk),
                Ok(false) => break,
                Err(error) => return Some(Err(ArrowError::ExternalError(Box::new(error)))),
            }
        }
        (!batch.is_empty()).then(|| RecordBatch::try_new(self.schema.clone(), columns(&batch)))
    }
}

/// The columns of a trace's file.
fn schema(file: &TraceFile) -> PyResult<SchemaRef> {
    let text = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let of = |name: &str, of: DataType| Field::new(name, of, false);
    let maybe = |name: &str, of: DataType| Field::new(name, of, true);
    let fields = vec![
        of("time_ns", DataType::Int64),
        of("cpu", DataType::UInt16),
        of("pid", DataType::Int32),
        of("comm", text()),
        of("kind", DataType::UInt8),
        of("event", text()),
        maybe("cache", text()),
        of("cache_id", DataType::Int32),
        of("object", DataType::Int32),
        of("bytes_req", DataType::Int32),
        of("bytes_alloc", DataType::Int32),
        maybe("gfp_flags", text()),
        of("node", DataType::Int16),
        of("order", DataType::UInt8),
        of("migratetype", DataType::Int8),
        maybe("call_site", text()),
        of("flags", DataType::UInt8),
        maybe("page", DataType::Int32),
        maybe("stack", text()),
        maybe("pfn", DataType::Int64),
    ];
    let footer = file.meta().footer().map_err(raised)?;
    let footer = footer.map(|(key, value)| (key.to_string(), value));
    Ok(Arc::new(
        Schema::new(fields).with_metadata(HashMap::from(footer)),
    ))
}

/// Rows as columns in the order of the schema. -1 stands for none, as in the file.
fn columns(rows: &[FullRow]) -> Vec<ArrayRef> {
    fn numbers<T: ArrowPrimitiveType>(
        rows: &[FullRow],
        of: impl Fn(&FullRow) -> T::Native,
    ) -> ArrayRef {
        let mut column = PrimitiveBuilder::<T>::with_capacity(rows.len());
        rows.iter().for_each(|row| column.append_value(of(row)));
        Arc::new(column.finish())
    }
    fn texts<'a>(rows: &'a [FullRow], of: impl Fn(&'a FullRow) -> Option<&'a str>) -> ArrayRef {
        let mut column = StringDictionaryBuilder::<Int32Type>::new();
        rows.iter().for_each(|row| column.append_option(of(row)));
        Arc::new(column.finish())
    }
    let cache = |cache: u16| {
        if cache == NO_CACHE {
            -1
        } else {
            i32::from(cache)
        }
    };
    let object = |object: u32| {
        if object == NO_OBJECT {
            -1
        } else {
            object as i32
        }
    };
    let mut page = PrimitiveBuilder::<Int32Type>::with_capacity(rows.len());
    for row in rows {
        page.append_option(row.place.map(|place: Place| place.encode() as i32));
    }
    let mut pfn = PrimitiveBuilder::<Int64Type>::with_capacity(rows.len());
    rows.iter()
        .for_each(|row| pfn.append_option(row.pfn.map(|pfn| pfn as i64)));
    vec![
        numbers::<Int64Type>(rows, |row| row.event.time_ns as i64),
        numbers::<UInt16Type>(rows, |row| row.event.cpu),
        numbers::<Int32Type>(rows, |row| row.pid),
        texts(rows, |row| Some(row.comm.as_str())),
        numbers::<UInt8Type>(rows, |row| row.event.kind as u8),
        texts(rows, |row| Some(row.event.kind.name())),
        texts(rows, |row| row.cache.as_deref()),
        numbers::<Int32Type>(rows, |row| cache(row.event.cache)),
        numbers::<Int32Type>(rows, |row| object(row.event.object)),
        numbers::<Int32Type>(rows, |row| row.event.bytes_req as i32),
        numbers::<Int32Type>(rows, |row| row.bytes_alloc as i32),
        texts(rows, |row| row.gfp_flags.as_deref()),
        numbers::<Int16Type>(rows, |row| row.node as i16),
        numbers::<UInt8Type>(rows, |row| row.event.order),
        numbers::<Int8Type>(rows, |row| row.migratetype as i8),
        texts(rows, |row| row.call_site.as_deref()),
        numbers::<UInt8Type>(rows, |row| row.event.flags.0),
        Arc::new(page.finish()),
        texts(rows, |row| row.stack.as_deref()),
        Arc::new(pfn.finish()),
    ]
}

/// All rows of a stream as a table of integers and texts.
fn table_of(reader: RecordBatchStreamReader) -> Result<Table, ArrowError> {
    let schema = reader.schema();
    let mut columns: Vec<Option<Column>> = vec![None; schema.fields().len()];
    for batch in reader {
        for (array, column) in batch?.columns().iter().zip(&mut columns) {
            let more = column_of(array)?;
            match (column.as_mut(), more) {
                (Some(Column::Int(values)), Column::Int(more)) => values.extend(more),
                (Some(Column::Text(values)), Column::Text(more)) => values.extend(more),
                (_, more) => *column = Some(more),
            }
        }
    }
    let mut table = Table::default();
    for (at, (field, column)) in schema.fields().iter().zip(columns).enumerate() {
        let column = column.unwrap_or(Column::empty(Kind::Int, 0));
        let (name, kind) = (field.name().clone(), column.kind());
        let field = table::Field {
            name,
            kind,
            about: String::new(),
        };
        table.insert(at, field, column);
    }
    table.notes = schema.metadata().clone().into_iter().collect();
    Ok(table)
}

/// The values of an array as integers or texts; floating-point numbers, which pandas makes of integers with gaps, are
/// integers again.
fn column_of(array: &ArrayRef) -> Result<Column, ArrowError> {
    fn of<T: ArrowPrimitiveType>(array: &ArrayRef, integer: impl Fn(T::Native) -> i64) -> Column {
        Column::Int(
            array
                .as_primitive::<T>()
                .iter()
                .map(|value| value.map(&integer))
                .collect(),
        )
    }
    fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Column {
        Column::Text(values.map(|value| value.map(str::to_string)).collect())
    }
    Ok(match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array, i64::from),
        DataType::Int16 => of::<Int16Type>(array, i64::from),
        DataType::Int32 => of::<Int32Type>(array, i64::from),
        DataType::Int64 => of::<Int64Type>(array, |value| value),
        DataType::UInt8 => of::<UInt8Type>(array, i64::from),
        DataType::UInt16 => of::<UInt16Type>(array, i64::from),
        DataType::UInt32 => of::<UInt32Type>(array, i64::from),
        DataType::UInt64 => {
            of::<UInt64Type>(array, |value| i64::try_from(value).unwrap_or(i64::MAX))
        }
        DataType::Float32 => of::<Float32Type>(array, |value| value as i64),
        DataType::Float64 => of::<Float64Type>(array, |value| value as i64),
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(array.as_string_view().iter()),
        DataType::Null => Column::Int(vec![None; array.len()]),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                // No row has a value.
                return Ok(Column::Text(vec![None; array.len()]));
            }
            let (keys, values) = (
                dictionary.normalized_keys(),
                column_of(dictionary.values())?,
            );
            let valid = |row: usize| dictionary.keys().is_valid(row);
            let at = |row: usize| {
                if valid(row) {
                    keys.get(row).copied()
                } else {
                    None
                }
            };
            let rows = 0..array.len();
            match values {
                Column::Int(values) => {
                    Column::Int(rows.map(|row| values.get(at(row)?).copied()?).collect())
                }
                Column::Text(values) => {
                    Column::Text(rows.map(|row| values.get(at(row)?).cloned()?).collect())
                }
                other => other,
            }
        }
        other => {
            return Err(ArrowError::SchemaError(format!(
                "a column has the type {other}, which no trace has"
            )));
        }
    })
}
