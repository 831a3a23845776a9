//! All columns, texts included: for people, exports and tests. A replay uses [`EventReader`].

use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};

use super::Shared;
use super::events::read_exactly;
use super::group::Group;
use super::pages::PageReader;
use crate::error::{Result, TraceError};
use crate::event::Place;
use crate::event::{FullRow, ReplayEvent};
use crate::schema::{PFN, STACK};

const NUMBERS: [&str; 4] = ["pid", "bytes_alloc", "node", "migratetype"];
const TEXTS: [&str; 5] = ["comm", "cache", "gfp_flags", "call_site", STACK];

/// Reads a trace's rows in order, a chunk at a time.
pub struct RowReader {
    shared: Arc<Shared>,
    events: PageReader,
    chunk: Vec<ReplayEvent>,
    places: Vec<Option<Place>>,
    open: Option<Columns>,
    /// Index of the row group that `open` belongs to.
    opened: Option<usize>,
}

/// The further columns of one row group.
struct Columns {
    numbers: Vec<ColumnReaderImpl<Int32Type>>,
    /// `None` of a column that the file does not have.
    texts: Vec<Option<(bool, ColumnReaderImpl<ByteArrayType>)>>,
    /// `None` if the file does not have it.
    pfns: Option<ColumnReaderImpl<Int64Type>>,
}

impl RowReader {
    pub(super) fn new(shared: Arc<Shared>) -> RowReader {
        let events = PageReader::new(shared.clone());
        RowReader {
            shared,
            events,
            chunk: Vec::new(),
            places: Vec::new(),
            open: None,
            opened: None,
        }
    }

    /// Replaces `out` by the next rows, those of the recorder among them; false at the end of the trace.
    ///
    /// # Errors
    /// As [`PageReader::next_chunk`].
    pub fn next_chunk(&mut self, out: &mut Vec<FullRow>) -> Result<bool> {
        out.clear();
        let first = self.events.position() + 1;
        if !self.events.next_rows(&mut self.chunk, &mut self.places)? {
            return Ok(false);
        }
        let rows = self.decode();
        let path = || self.shared.path.clone();
        out.extend(rows.map_err(|source| TraceError::Decode {
            path: path(),
            row: first,
            source,
        })?);
        Ok(true)
    }

    fn decode(&mut self) -> ParquetResult<Vec<FullRow>> {
        let Some(group) = self.events.group() else {
            return Ok(Vec::new());
        };
        if self.opened != Some(group.index) {
            self.opened = Some(group.index);
            self.open = Some(open(&self.shared, group)?);
        }
        let Some(columns) = self.open.as_mut() else {
            return Ok(Vec::new());
        };
        let count = self.chunk.len();
        let mut numbers = [(); NUMBERS.len()].map(|()| Vec::new());
        for (reader, values) in columns.numbers.iter_mut().zip(&mut numbers) {
            read_exactly(reader, count, values)?;
        }
        let mut texts = [(); TEXTS.len()].map(|()| Vec::new());
        for (column, values) in columns.texts.iter_mut().zip(&mut texts) {
            *values = match column {
                Some((optional, reader)) => read_texts(reader, *optional, count)?,
                None => vec![None; count],
            };
        }
        let pfns = match &mut columns.pfns {
            Some(reader) => read_pfns(reader, count)?,
            None => vec![None; count],
        };
        let [pid, bytes_alloc, node, migratetype] = numbers;
        let [mut comm, mut cache, mut gfp_flags, mut call_site, mut stack] = texts;
        let rows = self.chunk.iter().enumerate().map(|(i, event)| FullRow {
            event: *event,
            pid: pid[i],
            comm: comm[i].take().unwrap_or_default(),
            cache: cache[i].take(),
            bytes_alloc: bytes_alloc[i] as u32,
            gfp_flags: gfp_flags[i].take(),
            node: node[i],
            migratetype: migratetype[i],
            call_site: call_site[i].take(),
            place: self.places[i],
            stack: stack[i].take(),
            pfn: pfns[i],
        });
        Ok(rows.collect())
    }
}

fn open(shared: &Shared, group: &Group) -> ParquetResult<Columns> {
    let mut columns = Columns {
        numbers: Vec::new(),
        texts: Vec::new(),
        pfns: (shared.column(PFN).is_some())
            .then(|| group.column(shared, PFN))
            .transpose()?,
    };
    for name in NUMBERS {
        columns.numbers.push(group.column(shared, name)?);
    }
    for name in TEXTS {
        let is_there = name != STACK || shared.column(name).is_some();
        let column = is_there.then(|| group.column(shared, name)).transpose()?;
        columns
            .texts
            .push(column.map(|column| (name != "comm", column)));
    }
    Ok(columns)
}

fn read_pfns(
    reader: &mut ColumnReaderImpl<Int64Type>,
    count: usize,
) -> ParquetResult<Vec<Option<u64>>> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (records, _, _) = reader.read_records(count, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter();
    let pfns = levels.iter().map(|level| {
        let value = (*level == 1).then(|| values.next());
        value.flatten().map(|pfn| pfn as u64)
    });
    let pfns: Vec<_> = pfns.collect();
    if records != count || pfns.len() != count {
        return Err(ParquetError::General(
            "the column pfn ends early".to_string(),
        ));
    }
    Ok(pfns)
}

fn read_texts(
    reader: &mut ColumnReaderImpl<ByteArrayType>,
    optional: bool,
    count: usize,
) -> ParquetResult<Vec<Option<String>>> {
    let (mut values, mut levels): (Vec<ByteArray>, Vec<i16>) = (Vec::new(), Vec::new());
    let (records, _, _) =
        reader.read_records(count, optional.then_some(&mut levels), None, &mut values)?;
    if records != count {
        return Err(ParquetError::General(
            "a text column ends early".to_string(),
        ));
    }
    let mut values = values.into_iter();
    let mut next = || match values.next() {
        Some(value) => Ok(Some(String::from_utf8_lossy(value.data()).into_owned())),
        None => Err(ParquetError::General(
            "a text column has too few values".to_string(),
        )),
    };
    (0..count)
        .map(|i| {
            if optional && levels.get(i) != Some(&1) {
                Ok(None)
            } else {
                next()
            }
        })
        .collect()
}
