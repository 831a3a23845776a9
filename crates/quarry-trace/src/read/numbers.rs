//! Numbers of a Parquet file that is no trace.

use std::fs::File;
use std::path::Path;

use parquet::basic::{LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::source::Source;
use super::{check_places, damaged};
use crate::error::{Result, TraceError};
use crate::guard::guarded;

/// Rows that are decoded at once.
const CHUNK_ROWS: usize = 4096;
/// Values of all columns together that are kept.
const VALUES_MAX: u64 = 1 << 24;

/// A column of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberColumn {
    /// Name.
    pub name: String,
    /// A number for each row; `None` where it is null. Times are in seconds.
    pub values: Vec<Option<f64>>,
}

/// The columns of numbers in a Parquet file whose names are wanted; those of texts and of lists are passed over.
///
/// # Errors
/// [`TraceError`] if the file cannot be read, is no complete Parquet file, or has more numbers than fit into memory.
pub fn number_columns(
    path: &Path,
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<Vec<NumberColumn>> {
    let failed = |source| TraceError::Read {
        path: path.to_path_buf(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let read = guarded(|| {
        let reader = SerializedFileReader::new(Source::file(file, length))?;
        let columns = check_places(reader.metadata(), path).map(|()| columns(&reader, &mut wanted));
        Ok(columns)
    });
    let truncated = |source| TraceError::TruncatedParquet {
        path: path.to_path_buf(),
        source,
    };
    let columns = read.unwrap_or_else(|| Err(damaged())).map_err(truncated)?;
    columns?.map_err(truncated)
}

fn columns(
    reader: &SerializedFileReader<Source>,
    wanted: &mut impl FnMut(&str) -> bool,
) -> ParquetResult<Vec<NumberColumn>> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let mut flat = |column: &ColumnDescriptor| {
        column.max_rep_level() == 0 && column.max_def_level() <= 1 && wanted(column.name())
    };
    let found: Vec<usize> = (0..schema.num_columns())
        .filter(|index| flat(&schema.column(*index)))
        .collect();
    let mut columns: Vec<NumberColumn> = Vec::new();
    let mut left = VALUES_MAX;
    for index in found {
        let column = schema.column(index);
        let mut values = Vec::new();
        let mut is_number = true;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            is_number &= match group.get_column_reader(index)? {
                ColumnReader::Int32ColumnReader(reader) => {
                    read(reader, &mut values, &mut left, |value| f64::from(*value))?
                }
                ColumnReader::Int64ColumnReader(reader) => {
                    let scale = seconds(&column);
                    read(reader, &mut values, &mut left, |value| {
                        *value as f64 * scale
                    })?
                }
                ColumnReader::FloatColumnReader(reader) => {
                    read(reader, &mut values, &mut left, |value| f64::from(*value))?
                }
                ColumnReader::DoubleColumnReader(reader) => {
                    read(reader, &mut values, &mut left, |value| *value)?
                }
                _ => false,
            };
        }
        if is_number {
            columns.push(NumberColumn {
                name: column.name().to_string(),
                values,
            });
        }
    }
    Ok(columns)
}

/// Seconds of a column's unit; 1 for numbers that are no times.
fn seconds(column: &ColumnDescriptor) -> f64 {
    match column.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => match time.unit {
            TimeUnit::MILLIS => 1e-3,
            TimeUnit::MICROS => 1e-6,
            TimeUnit::NANOS => 1e-9,
        },
        _ => 1.0,
    }
}

/// Appends the values of a row group; true, since they are numbers.
fn read<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    values: &mut Vec<Option<f64>>,
    left: &mut u64,
    number: impl Fn(&T::T) -> f64,
) -> ParquetResult<bool> {
    let (mut levels, mut decoded) = (Vec::new(), Vec::new());
    loop {
        levels.clear();
        decoded.clear();
        let (rows, found, _) =
            reader.read_records(CHUNK_ROWS, Some(&mut levels), None, &mut decoded)?;
        if rows == 0 {
            return Ok(true);
        }
        *left = left.checked_sub(rows as u64).ok_or_else(damaged)?;
        if found == rows {
            values.extend(decoded.iter().map(|value| Some(number(value))));
            continue;
        }
        let mut decoded = decoded.iter();
        let levels = levels.iter().map(|level| *level > 0);
        values.extend(levels.map(|is_there| is_there.then(|| decoded.next().map(&number))?));
    }
}
