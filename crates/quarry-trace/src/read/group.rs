//! One row group in memory: read at once, its checksum compared before anything decodes it.
//!
//! The decoders trust their input more than a file deserves; after the comparison they see only bytes
//! that our writer made.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};

use super::Shared;
use crate::error::{Result, TraceError};
use crate::schema::Checksum;

/// The bytes of one row group, under the offsets that they have in the file.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) index: usize,
    pub(super) rows: usize,
    bytes: Arc<GroupBytes>,
}

struct GroupBytes {
    offset: u64,
    bytes: Bytes,
}

impl Group {
    /// Reads row group `index`, whose first row is `row` (from 1).
    pub(super) fn read(shared: &Shared, index: usize, row: u64) -> Result<Group> {
        let path = || shared.path.clone();
        let decode = |source| TraceError::Decode {
            path: path(),
            row,
            source,
        };
        let group = shared.footer.row_group(index);
        let (start, end) = range(group).ok_or_else(|| decode(bad_range()))?;
        let length = usize::try_from(end - start).map_err(|_| decode(bad_range()))?;
        let bytes = shared.source.get_bytes(start, length).map_err(decode)?;
        let footer = shared.meta.group_checksums[index];
        let found = Checksum::of(&bytes);
        if footer != found {
            return Err(TraceError::Damaged {
                path: path(),
                row,
                offset: start,
            });
        }
        let bytes = Arc::new(GroupBytes {
            offset: start,
            bytes,
        });
        Ok(Group {
            index,
            rows: group.num_rows() as usize,
            bytes,
        })
    }

    /// A decoder of one of our columns.
    pub(super) fn column<T: DataType>(
        &self,
        shared: &Shared,
        name: &str,
    ) -> ParquetResult<ColumnReaderImpl<T>> {
        let index = shared
            .column(name)
            .ok_or_else(|| ParquetError::General(format!("there is no column {name}")))?;
        let chunk = shared.footer.row_group(self.index).column(index);
        let pages = SerializedPageReader::new(self.bytes.clone(), chunk, self.rows, None)?;
        Ok(ColumnReaderImpl::new(
            chunk.column_descr_ptr(),
            Box::new(pages),
        ))
    }
}

/// From the first byte of the group's first column to the last of its last; `None` if that makes no
/// sense.
fn range(group: &RowGroupMetaData) -> Option<(u64, u64)> {
    let (mut start, mut end) = (u64::MAX, 0);
    for column in group.columns() {
        let first = column
            .dictionary_page_offset()
            .unwrap_or_else(|| column.data_page_offset());
        let first = u64::try_from(first).ok()?;
        let last = first.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
        start = start.min(first);
        end = end.max(last);
    }
    (start <= end).then_some((start, end))
}

fn bad_range() -> ParquetError {
    ParquetError::General("the footer places a row group outside of the file".to_string())
}

impl Length for GroupBytes {
    fn len(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl ChunkReader for GroupBytes {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let from = start
            .checked_sub(self.offset)
            .filter(|from| *from <= self.bytes.len() as u64);
        Ok(self
            .bytes
            .slice(from.ok_or_else(bad_range)? as usize..)
            .reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let from = start.checked_sub(self.offset).ok_or_else(bad_range)?;
        let end = from
            .checked_add(length as u64)
            .filter(|end| *end <= self.bytes.len() as u64);
        Ok(self
            .bytes
            .slice(from as usize..end.ok_or_else(bad_range)? as usize))
    }
}
