//! The columns that a replay needs, decoded chunk by chunk and checked row by row.
//!
//! The check that every row passes is branch-free, for several rows at once; only when some row of a
//! chunk fails it is the chunk walked again to name the row.

use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};

use super::Shared;
use super::check::{Limits, RawColumns};
use super::group::Group;
use super::load::{LoadFilter, PidColumn, retain};
use crate::error::{Result, TraceError};
use crate::event::{NO_CACHE, ReplayEvent};
use crate::schema::COLUMNS;

/// Most events that [`EventReader::next_chunk`] gives at once.
pub const CHUNK_EVENTS: usize = 4096;

/// Columns of the projection after `time_ns`, in the order of [`Projection::numbers`]; and what a
/// reader of page events has for those that it leaves out: what such an event may have there.
const NUMBERS: [(&str, Option<i32>); 9] = [
    ("cpu", Some(0)),
    ("kind", None),
    ("cache_id", Some(-1)),
    ("object", None),
    ("bytes_req", Some(0)),
    ("flags", None),
    ("order", None),
    ("node", Some(-1)),
    ("migratetype", None),
];

/// Reads a trace's events in order, a chunk at a time.
///
/// Memory does not depend on the trace's length: one row group of compressed columns and one chunk.
///
/// ```no_run
/// let trace = quarry_trace::TraceFile::open("kmem.parquet")?;
/// let (mut events, mut chunk) = (trace.events(), Vec::new());
/// while events.next_chunk(&mut chunk)? {
///     for event in &chunk {
///         println!("{} {}", event.time_ns, event.kind.name());
///     }
/// }
/// # Ok::<(), quarry_trace::TraceError>(())
/// ```
pub struct EventReader {
    shared: Arc<Shared>,
    /// The next row group to open.
    next_group: usize,
    open: Option<Projection>,
    times: Vec<i64>,
    numbers: [Vec<i32>; NUMBERS.len()],
    limits: Limits,
    /// Tells the recorder's events, if the trace says whose they are.
    load: Option<LoadFilter>,
    pid_column: PidColumn,
    pids: Vec<i32>,
    /// Rows read so far.
    row: u64,
}

/// The columns of one row group.
struct Projection {
    group: Group,
    rows_left: usize,
    time: ColumnReaderImpl<Int64Type>,
    /// Those that are read.
    numbers: Vec<Option<ColumnReaderImpl<Int32Type>>>,
}

impl EventReader {
    /// Reader of all events; with `pages_only`, of other events only the time and the kind.
    pub(super) fn new(shared: Arc<Shared>, pages_only: bool) -> EventReader {
        let meta = &shared.meta;
        let limits = Limits {
            cpus: meta.cpus,
            caches: meta.caches.len() as u32,
            objects: meta.object_slots,
            pages: meta.page_slots,
            pages_only,
        };
        EventReader {
            load: LoadFilter::of(&shared.meta),
            pid_column: PidColumn::default(),
            pids: Vec::new(),
            shared,
            next_group: 0,
            open: None,
            times: Vec::with_capacity(CHUNK_EVENTS),
            numbers: std::array::from_fn(|_| Vec::with_capacity(CHUNK_EVENTS)),
            limits,
            row: 0,
        }
    }

    /// Rows read so far; those of the recorder's own work are not given out.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.row
    }

    /// The row group that the last chunk came from, for a reader that goes along.
    pub(super) fn group(&self) -> Option<&Group> {
        self.open.as_ref().map(|open| &open.group)
    }

    /// Replaces `out` by the next events of the load, at most [`CHUNK_EVENTS`] and perhaps none; false at the end of the
    /// trace. Left out is the recorder's own work, if the trace tells it ([`crate::TraceMeta::recorder_pids`]).
    ///
    /// Caches are resolved: [`ReplayEvent::cache`] is always a canonical index.
    ///
    /// # Errors
    /// If a row group does not match its checksum, the rows do not decode, or a row is impossible.
    pub fn next_chunk(&mut self, out: &mut Vec<ReplayEvent>) -> Result<bool> {
        let more = self.next_rows(out)?;
        let keep = self.of_load(out)?;
        if let Some(keep) = keep {
            retain(out, keep);
        }
        Ok(more)
    }

    /// For each of the rows that were read last, true if it is the load's; `None` if all are.
    pub(super) fn of_load(&mut self, rows: &[ReplayEvent]) -> Result<Option<&[bool]>> {
        let (Some(load), Some(open), false) = (&mut self.load, &self.open, rows.is_empty()) else {
            return Ok(None);
        };
        let count = rows.len();
        let read = self
            .pid_column
            .read(&self.shared, &open.group, count, &mut self.pids);
        read.map_err(|source| TraceError::Decode {
            path: self.shared.path.clone(),
            row: self.row + 1 - count as u64,
            source,
        })?;
        Ok(Some(load.keep(&self.shared.meta, rows, &self.pids)))
    }

    /// Replaces `out` by the next rows, whosever they are.
    pub(super) fn next_rows(&mut self, out: &mut Vec<ReplayEvent>) -> Result<bool> {
        out.clear();
        while self.open.as_ref().is_none_or(|open| open.rows_left == 0) {
            if self.next_group == self.shared.footer.num_row_groups() {
                return Ok(false);
            }
            self.open = Some(self.open_group()?);
            self.next_group += 1;
        }
        let count = self.read_columns()?;
        self.assemble(count, out)?;
        self.row += count as u64;
        Ok(true)
    }

    fn decode_error(&self, source: ParquetError) -> TraceError {
        TraceError::Decode {
            path: self.shared.path.clone(),
            row: self.row + 1,
            source,
        }
    }

    fn open_group(&self) -> Result<Projection> {
        let shared = &self.shared;
        let group = Group::read(shared, self.next_group, self.row + 1)?;
        let open = || -> ParquetResult<Projection> {
            let time = group.column(shared, "time_ns")?;
            let mut numbers = Vec::with_capacity(NUMBERS.len());
            for (name, in_place) in NUMBERS {
                let is_read = !self.limits.pages_only || in_place.is_none();
                let column = is_read.then(|| group.column(shared, name));
                numbers.push(column.transpose()?);
            }
            Ok(Projection {
                rows_left: group.rows,
                time,
                numbers,
                group: group.clone(),
            })
        };
        open().map_err(|e| self.decode_error(e))
    }

    fn read_columns(&mut self) -> Result<usize> {
        let Some(open) = self.open.as_mut() else {
            return Ok(0);
        };
        let count = open.rows_left.min(CHUNK_EVENTS);
        open.rows_left -= count;
        let mut result = read_exactly(&mut open.time, count, &mut self.times);
        let readers = open.numbers.iter_mut().zip(NUMBERS);
        for ((reader, (_, in_place)), values) in readers.zip(&mut self.numbers) {
            match reader {
                Some(reader) => {
                    result = result.and_then(|()| read_exactly(reader, count, values));
                }
                // The values stay the same from chunk to chunk.
                None => values.resize(count, in_place.unwrap_or_default()),
            }
        }
        result.map_err(|e| self.decode_error(e))?;
        Ok(count)
    }

    /// Columns to rows.
    fn assemble(&mut self, count: usize, out: &mut Vec<ReplayEvent>) -> Result<()> {
        let columns = RawColumns::new(count, &self.times, &self.numbers);
        if !columns.are_possible(&self.limits) {
            self.first_bad_row(columns)?;
        }
        let resolved = self.shared.resolved.as_slice();
        out.extend((0..count).map(|at| {
            let mut event = columns.row(at).event();
            event.cache = resolved
                .get(usize::from(event.cache))
                .copied()
                .unwrap_or(NO_CACHE);
            event
        }));
        Ok(())
    }

    /// Names the first row of the chunk that is impossible.
    #[cold]
    fn first_bad_row(&self, columns: RawColumns<'_>) -> Result<()> {
        for at in 0..columns.time.len() {
            let row = columns.row(at);
            // Every row has a time.
            let fault = row.fault(&self.limits);
            let fault =
                fault.filter(|(column, ..)| row.is_checked(&self.limits) || *column == "time_ns");
            if let Some((column, value, expected)) = fault {
                return Err(TraceError::BadRow {
                    path: self.shared.path.clone(),
                    row: self.row + at as u64 + 1,
                    column,
                    value,
                    expected,
                });
            }
        }
        debug_assert!(false, "the quick check and the naming one disagree");
        Ok(())
    }
}

impl Shared {
    /// Index in the file of one of our columns; `None` if the file's version does not have it.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        let position = COLUMNS.iter().position(|column| column.name == name);
        self.columns[position.expect("only columns of the table are asked for")]
    }
}

/// Replaces `values` by the next `count` ones of a required column.
pub(super) fn read_exactly<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    values: &mut Vec<T::T>,
) -> ParquetResult<()> {
    values.clear();
    let (records, read, _) = reader.read_records(count, None, None, values)?;
    if records != count || read != count || values.len() != count {
        return Err(ParquetError::General(format!(
            "a column ends {} rows early",
            count - records.min(count)
        )));
    }
    Ok(())
}
