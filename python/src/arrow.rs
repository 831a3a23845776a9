//! Tables as streams of Arrow, by the C data interface.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator,
    RecordBatchOptions, RecordBatchReader, StringArray,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use quarry_sweep::table::{Column, Kind, Table};

use crate::error::InternalError;

/// Key of a column's meaning in its metadata.
const ABOUT: &str = "about";

/// The schema of a table: notes in its metadata, the meaning of a column in that of its field.
pub(crate) fn schema(table: &Table) -> SchemaRef {
    let fields = table.fields().iter().map(|field| {
        let of = match field.kind {
            Kind::Bool => DataType::Boolean,
            Kind::Int => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::Text => DataType::Utf8,
        };
        let about = (ABOUT.to_string(), field.about.clone());
        Field::new(&field.name, of, true).with_metadata(HashMap::from([about]))
    });
    let notes: HashMap<String, String> = table.notes.clone().into_iter().collect();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()).with_metadata(notes))
}

/// A table as one batch.
pub(crate) fn batch(table: &Table) -> Result<RecordBatch, ArrowError> {
    let columns = table.columns().iter().map(|column| -> ArrayRef {
        match column {
            Column::Bool(values) => Arc::new(BooleanArray::from(values.clone())),
            Column::Int(values) => Arc::new(Int64Array::from(values.clone())),
            Column::Float(values) => Arc::new(Float64Array::from(values.clone())),
            Column::Text(values) => Arc::new(StringArray::from_iter(values)),
        }
    });
    let rows = RecordBatchOptions::new().with_row_count(Some(table.rows()));
    RecordBatch::try_new_with_options(schema(table), columns.collect(), &rows)
}

/// The capsule of `__arrow_c_stream__` with one batch.
pub(crate) fn stream_of<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyCapsule>> {
    let batch = batch(table).map_err(|error| InternalError::new_err(error.to_string()))?;
    let schema = batch.schema();
    stream(py, RecordBatchIterator::new([Ok(batch)], schema))
}

/// The capsule of `__arrow_c_stream__`.
pub(crate) fn stream(
    py: Python<'_>,
    reader: impl RecordBatchReader + Send + 'static,
) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(Box::new(reader));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// The capsule of `__arrow_c_schema__`.
pub(crate) fn schema_of<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema);
    let schema = schema.map_err(|error| InternalError::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}
