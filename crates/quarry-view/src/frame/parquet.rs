//! Tables as Parquet files.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, Type};

use super::{Field, Frame, Kind, Values};

/// Rows of a row group.
const GROUP_ROWS: usize = 64 * 1024;
/// Key of the texts about columns in the footer: an object of JSON.
const ABOUT_KEY: &str = "quarry.fields";
/// Compression: small files are read over networks.
const ZSTD_LEVEL: i32 = 3;

/// Error of a table.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A report is no JSON.
    #[error("a report cannot be written as a row: {0}")]
    Report(#[source] serde_json::Error),
    /// A file cannot be written or read as Parquet.
    #[error("Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// A column has a type that no table has.
    #[error("column {name} has the type {type_name}, which tables of Quarry do not have")]
    Column {
        /// Its name.
        name: String,
        /// Its type in Parquet's words.
        type_name: String,
    },
}

impl Frame {
    /// Writes the table as a Parquet file. The same table gives the same bytes.
    ///
    /// # Errors
    ///
    /// [`FrameError::Parquet`] if the output fails.
    pub fn write_parquet(&self, out: impl Write + Send) -> Result<(), FrameError> {
        let fields = self.fields.iter().map(|field| {
            let (physical, logical) = match field.kind {
                Kind::Bool => (Physical::BOOLEAN, None),
                Kind::Int => (Physical::INT64, None),
                Kind::Float => (Physical::DOUBLE, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let column = Type::primitive_type_builder(&field.name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical);
            Ok(Arc::new(column.build()?))
        });
        let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
        let schema = Type::group_type_builder("rows").with_fields(fields);
        let level = ZstdLevel::try_new(ZSTD_LEVEL)?;
        let properties = WriterProperties::builder()
            .set_created_by("quarry".to_string())
            .set_compression(Compression::ZSTD(level))
            .set_key_value_metadata(Some(self.metadata()));
        let mut file = SerializedFileWriter::new(
            out,
            Arc::new(schema.build()?),
            Arc::new(properties.build()),
        )?;
        for from in (0..self.rows.max(1)).step_by(GROUP_ROWS) {
            let until = self.rows.min(from + GROUP_ROWS);
            let mut group = file.next_row_group()?;
            for column in &self.columns {
                let mut writer = group.next_column()?.ok_or_else(too_few)?;
                write_column(column, from..until, writer.untyped())?;
                writer.close()?;
            }
            group.close()?;
        }
        file.close()?;
        Ok(())
    }

    /// The table as the bytes of a Parquet file.
    ///
    /// # Errors
    ///
    /// As [`Self::write_parquet`].
    pub fn to_parquet(&self) -> Result<Vec<u8>, FrameError> {
        let mut bytes = Vec::new();
        self.write_parquet(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads what [`Self::write_parquet`] wrote, or another program with columns of these kinds: the columns whose names
    /// `is_read` takes. Takes a file or bytes.
    ///
    /// # Errors
    ///
    /// [`FrameError::Parquet`] if it is no Parquet file or damaged, [`FrameError::Column`] if a column has lists or
    /// another type.
    pub fn of_parquet(
        file: impl ChunkReader + 'static,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<Self, FrameError> {
        let reader = SerializedFileReader::new(file)?;
        let metadata = reader.metadata().file_metadata();
        let mut notes: BTreeMap<String, String> = metadata
            .key_value_metadata()
            .into_iter()
            .flatten()
            .filter_map(|note| Some((note.key.clone(), note.value.clone()?)))
            .collect();
        let about: BTreeMap<String, String> = notes
            .remove(ABOUT_KEY)
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let columns = metadata.schema_descr().columns().iter().enumerate();
        let wanted: Vec<(usize, Field)> = columns
            .map(|(at, column)| Ok((at, field(column, &about)?)))
            .filter(|field| !matches!(field, Ok((_, field)) if !is_read(&field.name)))
            .collect::<Result<_, FrameError>>()?;
        let (places, fields): (Vec<usize>, Vec<Field>) = wanted.into_iter().unzip();
        let mut columns: Vec<Values> = fields
            .iter()
            .map(|field| Values::empty(field.kind, 0))
            .collect();
        for at in 0..reader.num_row_groups() {
            let group = reader.get_row_group(at)?;
            for (at, column) in places.iter().zip(&mut columns) {
                read_column(&*group, *at, column)?;
            }
        }
        let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
        Ok(Self {
            fields,
            columns,
            rows,
            notes,
        })
    }

    fn metadata(&self) -> Vec<KeyValue> {
        let about = self.fields.iter().filter(|field| !field.about.is_empty());
        let about: BTreeMap<&str, &str> = about
            .map(|field| (field.name.as_str(), field.about.as_str()))
            .collect();
        // A map of texts is always JSON.
        let about = serde_json::to_string(&about).unwrap_or_default();
        let notes = self.notes.iter().map(|(key, value)| (key.clone(), value));
        notes
            .chain([(ABOUT_KEY.to_string(), &about)])
            .map(|(key, value)| KeyValue::new(key, value.clone()))
            .collect()
    }
}

fn too_few() -> ParquetError {
    ParquetError::General("a row group has fewer columns than its schema".to_string())
}

/// Values that are there, and for each row whether it has one, as Parquet takes both.
fn split<T, U>(values: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<U>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some()));
    (values.iter().flatten().map(of).collect(), levels.collect())
}

fn write_column(
    column: &Values,
    rows: std::ops::Range<usize>,
    writer: &mut ColumnWriter<'_>,
) -> Result<(), FrameError> {
    match (column, writer) {
        (Values::Bool(values), ColumnWriter::BoolColumnWriter(writer)) => {
            let (values, levels) = split(&values[rows], |value| *value);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        (Values::Int(values), ColumnWriter::Int64ColumnWriter(writer)) => {
            let (values, levels) = split(&values[rows], |value| *value);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        (Values::Float(values), ColumnWriter::DoubleColumnWriter(writer)) => {
            let (values, levels) = split(&values[rows], |value| *value);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        (Values::Text(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let text = |value: &String| ByteArray::from(value.as_str());
            let (values, levels) = split(&values[rows], text);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        _ => return Err(too_few().into()),
    }
    Ok(())
}

fn field(column: &ColumnDescriptor, about: &BTreeMap<String, String>) -> Result<Field, FrameError> {
    let name = column.path().parts().join(".");
    let kind = match column.physical_type() {
        Physical::BOOLEAN => Some(Kind::Bool),
        Physical::INT32 | Physical::INT64 => Some(Kind::Int),
        Physical::FLOAT | Physical::DOUBLE => Some(Kind::Float),
        Physical::BYTE_ARRAY => Some(Kind::Text),
        _ => None,
    };
    match kind.filter(|_| column.max_rep_level() == 0 && column.max_def_level() <= 1) {
        Some(kind) => Ok(Field {
            about: about.get(&name).cloned().unwrap_or_default(),
            name,
            kind,
        }),
        None => Err(FrameError::Column {
            name,
            type_name: column.physical_type().to_string(),
        }),
    }
}

/// Appends a row group's values of a column.
fn read_column(
    group: &dyn RowGroupReader,
    at: usize,
    column: &mut Values,
) -> Result<(), FrameError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let has_nulls = group.metadata().column(at).column_descr().max_def_level() > 0;
    macro_rules! read {
        ($reader:expr, $into:expr, $of:expr) => {{
            let (mut values, mut levels) = (Vec::new(), Vec::new());
            let mut reader = $reader;
            let mut done = 0;
            while done < rows {
                let (records, _, _) =
                    reader.read_records(rows - done, Some(&mut levels), None, &mut values)?;
                if records == 0 {
                    return Err(too_few().into());
                }
                done += records;
            }
            let mut values = values.into_iter().map($of);
            match has_nulls {
                true => {
                    let value = |level: i16| (level > 0).then(|| values.next()).flatten();
                    $into.extend(levels.into_iter().map(value));
                }
                false => $into.extend(values.map(Some)),
            }
        }};
    }
    let lossy = |bytes: ByteArray| String::from_utf8_lossy(bytes.data()).into_owned();
    match (column, group.get_column_reader(at)?) {
        (Values::Bool(into), ColumnReader::BoolColumnReader(reader)) => read!(reader, into, |v| v),
        (Values::Int(into), ColumnReader::Int64ColumnReader(reader)) => read!(reader, into, |v| v),
        (Values::Int(into), ColumnReader::Int32ColumnReader(reader)) => {
            read!(reader, into, i64::from);
        }
        (Values::Float(into), ColumnReader::DoubleColumnReader(reader)) => {
            read!(reader, into, |v| v);
        }
        (Values::Float(into), ColumnReader::FloatColumnReader(reader)) => {
            read!(reader, into, f64::from);
        }
        (Values::Text(into), ColumnReader::ByteArrayColumnReader(reader)) => {
            read!(reader, into, lossy);
        }
        _ => return Err(too_few().into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(bytes: Vec<u8>) -> Result<Frame, FrameError> {
        Frame::of_parquet(Bytes::from(bytes), |_| true)
    }

    fn table() -> Frame {
        let mut table = Frame::default();
        let columns = [
            ("yes", Values::Bool(vec![Some(true), None, Some(false)])),
            ("n", Values::Int(vec![Some(-1), Some(i64::MAX), None])),
            ("x", Values::Float(vec![None, Some(0.1), Some(-3.0)])),
            (
                "text",
                Values::Text(vec![Some("é".to_string()), None, Some(String::new())]),
            ),
            ("none", Values::Text(vec![None; 3])),
        ];
        for (at, (name, column)) in columns.into_iter().enumerate() {
            let field = Field {
                name: name.to_string(),
                kind: column.kind(),
                about: format!("about {name}"),
            };
            table.insert(at, field, column);
        }
        table
            .notes
            .insert("quarry.version".to_string(), "1".to_string());
        table
    }

    #[test]
    fn a_file_is_the_frame_again() {
        let bytes = table().to_parquet().unwrap();
        assert_eq!(bytes, table().to_parquet().unwrap());
        let some = Frame::of_parquet(Bytes::from(bytes.clone()), |name| name == "x").unwrap();
        assert_eq!((some.rows(), some.fields().len()), (3, 1));
        assert_eq!(some.column("x"), table().column("x"));
        assert_eq!(read(bytes).unwrap(), table());
    }

    #[test]
    fn a_frame_without_rows_is_a_file() {
        let none = table().select(&[]);
        let again = read(none.to_parquet().unwrap()).unwrap();
        assert_eq!((again.rows(), again.fields().len()), (0, 5));
    }

    #[test]
    fn many_rows_have_several_groups() {
        let rows: Vec<usize> = (0..GROUP_ROWS + 7).map(|row| row % 3).collect();
        let many = table().select(&rows);
        let again = read(many.to_parquet().unwrap()).unwrap();
        assert_eq!(again, many);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert!(read(b"PAR1".to_vec()).is_err());
        let mut cut = table().to_parquet().unwrap();
        cut.truncate(cut.len() / 2);
        assert!(read(cut).is_err());
    }
}
