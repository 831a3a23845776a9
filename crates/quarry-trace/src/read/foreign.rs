//! Parquet that another program wrote of a trace's rows.
//!
//! pandas, DuckDB, pyarrow and others read a trace and write what they made of it: with other row groups,
//! encodings and codecs, with columns that may be null or are wider, and often without our part of the
//! footer. Such a file is read twice, row by row: first to see what is in it and whether its rows are in order. A trace is
//! made of it in memory, so that every reader finds what it expects. What the footer says is advice: figures are counted
//! again, and without it the table of caches is made from the columns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Type as PhysicalType};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::SerializedPageReader;

use super::damaged;
use super::source::Source;
use crate::error::{Result, TraceError};
use crate::event::{Flags, FullRow, Kind, NO_CACHE, NO_OBJECT, ORDER_MAX, Place, ReplayEvent};
use crate::guard::guarded;
use crate::meta::{CPUS_MAX, CacheEntry, CacheOrigin, SlabMemory, TraceMeta};
use crate::rebuild::Rebuild;
use crate::schema::{COLUMNS, PAGE, PFN, STACK};

/// Rows that are decoded at once.
const CHUNK_ROWS: usize = 4096;
/// Columns without which there is no trace.
const NEEDED: [&str; 8] = [
    "time_ns",
    "cpu",
    "kind",
    "cache_id",
    "object",
    "bytes_req",
    "flags",
    "order",
];
/// Compression of the trace in memory.
const ZSTD_LEVEL: i32 = 1;

/// Makes a trace of the rows; `told` is what the footer tells, if it does.
pub(super) fn rebuild(
    source: &Source,
    footer: &ParquetMetaData,
    told: Option<TraceMeta>,
    path: &Path,
) -> Result<Bytes> {
    let file = Foreign::new(source, footer, path)?;
    let mut meta = told.unwrap_or_default();
    let found = file.survey()?;
    // A recording may step back in time itself; its footer says how often.
    if let Some(step) = found.first_step_back
        && found.steps_back > meta.time_regressions
    {
        let path = path.to_path_buf();
        let (row, time_ns, before_ns) = step;
        return Err(TraceError::OutOfOrder {
            path,
            row,
            time_ns,
            before_ns,
        });
    }
    if meta.caches.len() < found.caches.len() {
        meta.caches = found.caches;
    }
    if let Some(pages) = found.pages {
        let told = meta.slab_memory.unwrap_or_default();
        meta.slab_memory = Some(SlabMemory {
            pages: told.pages.max(pages),
            ..told
        });
    }
    if meta.source.is_empty() {
        meta.source = "a Parquet file without Quarry's footer".to_string();
        meta.assumptions.push(
            "another program wrote the file without Quarry's footer: lost events, orphans of the import and \
             names of caches are as the rows tell"
                .to_string(),
        );
    }
    let mut out = Vec::new();
    let mut trace = Rebuild::new(&mut out, path, ZSTD_LEVEL, meta)?;
    file.each_row(|row| trace.keep(row))?;
    trace.finish()?;
    Ok(out.into())
}

/// Result of a first pass over the rows.
#[derive(Default)]
struct Survey {
    caches: Vec<CacheEntry>,
    /// Ids of pages are below.
    pages: Option<u32>,
    /// Rows of an earlier time than the row before.
    steps_back: u64,
    /// The first of them, its time, and that of the row before.
    first_step_back: Option<(u64, u64, u64)>,
}

struct Foreign<'a> {
    source: Arc<Source>,
    footer: &'a ParquetMetaData,
    path: &'a Path,
    /// Index in the file of each of [`COLUMNS`].
    columns: Vec<Option<usize>>,
}

impl<'a> Foreign<'a> {
    fn new(source: &Source, footer: &'a ParquetMetaData, path: &'a Path) -> Result<Self> {
        let schema = footer.file_metadata().schema_descr();
        let mut columns = Vec::with_capacity(COLUMNS.len());
        for column in &COLUMNS {
            let number = column.physical != PhysicalType::BYTE_ARRAY;
            let index = schema.columns().iter().position(|other| {
                let is_number = match other.physical_type() {
                    PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::DOUBLE => true,
                    PhysicalType::BYTE_ARRAY => false,
                    _ => return false,
                };
                other.path().string() == column.name
                    && is_number == number
                    && other.max_def_level() <= 1
                    && other.max_rep_level() == 0
            });
            if index.is_none() && NEEDED.contains(&column.name) {
                let path = path.to_path_buf();
                let column = column.name;
                return Err(TraceError::Column { path, column });
            }
            columns.push(index);
        }
        for group in footer.row_groups() {
            for index in columns.iter().flatten() {
                let codec = group.column(*index).compression();
                let known = matches!(
                    codec,
                    Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)
                );
                if !known {
                    return Err(TraceError::Codec {
                        path: path.to_path_buf(),
                        codec: codec.to_string(),
                    });
                }
            }
        }
        Ok(Foreign {
            source: Arc::new(source.clone()),
            footer,
            path,
            columns,
        })
    }

    /// The caches and pages that the rows name.
    fn survey(&self) -> Result<Survey> {
        let mut caches: BTreeMap<u16, CacheEntry> = BTreeMap::new();
        caches.insert(0, entry(0, "kmalloc".to_string(), CacheOrigin::Kmalloc));
        let mut pages = None;
        let (mut steps_back, mut first_step_back) = (0, None);
        let (mut number, mut before_ns) = (0_u64, 0);
        self.each_row(|row| {
            number += 1;
            let time_ns = row.event.time_ns;
            if time_ns < before_ns {
                steps_back += 1;
                first_step_back = first_step_back.or(Some((number, time_ns, before_ns)));
            }
            before_ns = time_ns;
            if let Some(place) = row.place {
                pages = pages.max(Some(place.page + 1));
            }
            let index = row.event.cache;
            if index == NO_CACHE || index == 0 {
                return Ok(());
            }
            let cache = caches
                .entry(index)
                .or_insert_with(|| entry(index, String::new(), CacheOrigin::Event));
            if cache.name.is_empty()
                && let Some(name) = &row.cache
            {
                cache.name.clone_from(name);
            }
            cache.object_size = cache.object_size.max(row.event.bytes_req);
            cache.slab_size = cache.slab_size.max(row.bytes_alloc);
            Ok(())
        })?;
        let last = caches.keys().next_back().copied().unwrap_or(0);
        let mut table = Vec::new();
        for index in 0..=last {
            let mut cache = caches
                .remove(&index)
                .unwrap_or_else(|| entry(index, String::new(), CacheOrigin::Synthetic));
            if cache.name.is_empty() {
                cache.name = format!("anon-{}-{}", cache.object_size, cache.slab_size);
                cache.origin = CacheOrigin::Synthetic;
            }
            table.push(cache);
        }
        Ok(Survey {
            caches: table,
            pages,
            steps_back,
            first_step_back,
        })
    }

    /// Calls `take` with every row in the order of the file.
    fn each_row(&self, mut take: impl FnMut(&FullRow) -> Result<()>) -> Result<()> {
        let mut row = 0_u64;
        for index in 0..self.footer.num_row_groups() {
            let failed = |row: u64, source| TraceError::Decode {
                path: self.path.to_path_buf(),
                row: row + 1,
                source,
            };
            let rows = self.footer.row_group(index).num_rows();
            let mut left = usize::try_from(rows).unwrap_or(0);
            let mut columns = self.open(index).map_err(|error| failed(row, error))?;
            while left > 0 {
                let count = left.min(CHUNK_ROWS);
                left -= count;
                for column in &mut columns {
                    column.read(count).map_err(|error| failed(row, error))?;
                }
                for at in 0..count {
                    let whole =
                        full_row(&columns, at).map_err(|(column, value)| TraceError::BadRow {
                            path: self.path.to_path_buf(),
                            row: row + 1,
                            column,
                            value,
                            expected: "a value that an import writes".to_string(),
                        })?;
                    take(&whole)?;
                    row += 1;
                }
            }
        }
        Ok(())
    }

    fn open(&self, group: usize) -> ParquetResult<Vec<Column>> {
        let group = self.footer.row_group(group);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let mut columns = Vec::with_capacity(self.columns.len());
        for index in &self.columns {
            let Some(index) = index else {
                columns.push(Column::default());
                continue;
            };
            let chunk = group.column(*index);
            let pages = SerializedPageReader::new(self.source.clone(), chunk, rows, None)?;
            let (pages, about) = (Box::new(pages), chunk.column_descr_ptr());
            let optional = about.max_def_level() > 0;
            let reader = match about.physical_type() {
                PhysicalType::INT32 => Reader::Int32(ColumnReaderImpl::new(about, pages)),
                PhysicalType::INT64 => Reader::Int64(ColumnReaderImpl::new(about, pages)),
                PhysicalType::DOUBLE => Reader::Double(ColumnReaderImpl::new(about, pages)),
                _ => Reader::Text(ColumnReaderImpl::new(about, pages)),
            };
            columns.push(Column {
                reader,
                optional,
                ..Column::default()
            });
        }
        Ok(columns)
    }
}

/// A decoder of one column in whatever type it has.
#[derive(Default)]
enum Reader {
    Int32(ColumnReaderImpl<Int32Type>),
    Int64(ColumnReaderImpl<Int64Type>),
    Double(ColumnReaderImpl<DoubleType>),
    Text(ColumnReaderImpl<ByteArrayType>),
    /// The file does not have the column.
    #[default]
    Absent,
}

#[derive(Default)]
struct Column {
    reader: Reader,
    optional: bool,
    numbers: Vec<Option<i64>>,
    texts: Vec<Option<String>>,
}

impl Column {
    /// Replaces the values by those of the next `count` rows.
    fn read(&mut self, count: usize) -> ParquetResult<()> {
        let optional = self.optional;
        match &mut self.reader {
            Reader::Int32(reader) => {
                self.numbers = values(reader, optional, count, |value| Some((*value).into()))?;
            }
            Reader::Int64(reader) => {
                self.numbers = values(reader, optional, count, |value| Some(*value))?;
            }
            // pandas makes doubles of whole numbers beside nulls, and a null is no number.
            Reader::Double(reader) => {
                let whole = |value: &f64| (value.fract() == 0.0).then_some(*value as i64);
                self.numbers = values(reader, optional, count, whole)?;
            }
            Reader::Text(reader) => {
                let text =
                    |value: &ByteArray| Some(String::from_utf8_lossy(value.data()).into_owned());
                self.texts = values(reader, optional, count, text)?;
            }
            Reader::Absent => {
                self.numbers = vec![None; count];
                self.texts = vec![None; count];
            }
        }
        Ok(())
    }
}

fn values<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    optional: bool,
    count: usize,
    convert: impl Fn(&T::T) -> Option<V>,
) -> ParquetResult<Vec<Option<V>>> {
    let (mut read, mut levels) = (Vec::new(), Vec::new());
    let wanted = optional.then_some(&mut levels);
    let result = guarded(|| reader.read_records(count, wanted, None, &mut read));
    let (records, _, _) = result.unwrap_or_else(|| Err(damaged()))?;
    let short = || ParquetError::General("a column ends early".to_string());
    if records != count {
        return Err(short());
    }
    let mut read = read.iter();
    (0..count)
        .map(|at| {
            if optional && levels.get(at) != Some(&1) {
                Ok(None)
            } else {
                read.next().map(&convert).ok_or_else(short)
            }
        })
        .collect()
}

/// A row, or the column and value that no import writes.
fn full_row(columns: &[Column], at: usize) -> std::result::Result<FullRow, (&'static str, i64)> {
    let position = |name: &str| COLUMNS.iter().position(|column| column.name == name);
    let column = |name: &str| position(name).and_then(|index| columns.get(index));
    let get = |name: &str| column(name).and_then(|column| *column.numbers.get(at)?);
    let text = |name: &str| column(name).and_then(|column| column.texts.get(at)?.clone());
    let within = |name: &'static str, low: i64, high: i64| {
        let value = get(name).unwrap_or(-1);
        let good = (low..=high).contains(&value);
        good.then_some(value).ok_or((name, value))
    };
    let code = within("kind", 0, Kind::ALL.len() as i64 - 1)?;
    let kind = Kind::ALL[code as usize];
    let flags = Flags(within("flags", 0, 255)? as u8);
    let unknown = flags.has(Flags::UNKNOWN);
    let lowest = if kind.is_free() { -1 } else { 0 };
    let object = within("object", lowest, i64::from(i32::MAX))?;
    let cache = if kind.is_page() {
        -1
    } else {
        let lowest = if kind.is_free() { -1 } else { 0 };
        within("cache_id", lowest, i64::from(NO_CACHE) - 1)?
    };
    let small = |name: &str, high: i64| get(name).filter(|value| (0..=high).contains(value));
    let node = small("node", 1023).unwrap_or(-1);
    let migratetype = small("migratetype", 15).unwrap_or(-1);
    let place = if kind.is_page() { migratetype } else { node };
    let page = small(PAGE, i64::from(i32::MAX));
    Ok(FullRow {
        event: ReplayEvent {
            time_ns: within("time_ns", 0, i64::MAX)? as u64,
            object: if unknown { NO_OBJECT } else { object as u32 },
            bytes_req: within("bytes_req", 0, i64::from(i32::MAX))? as u32,
            cache: cache as u16,
            cpu: within("cpu", 0, i64::from(CPUS_MAX) - 1)? as u16,
            kind,
            flags,
            order: within("order", 0, i64::from(ORDER_MAX))? as u8,
            place: i8::try_from(place).unwrap_or(-1),
        },
        pid: get("pid").and_then(|pid| pid.try_into().ok()).unwrap_or(0),
        comm: text("comm").unwrap_or_default(),
        cache: text("cache"),
        bytes_alloc: small("bytes_alloc", i64::from(i32::MAX)).unwrap_or(0) as u32,
        gfp_flags: text("gfp_flags"),
        node: node as i32,
        migratetype: migratetype as i32,
        call_site: text("call_site"),
        place: page.map(|page| Place::decode(page as u32)),
        stack: text(STACK),
        pfn: small(PFN, i64::MAX).map(|pfn| pfn as u64),
    })
}

fn entry(index: u16, name: String, origin: CacheOrigin) -> CacheEntry {
    CacheEntry {
        name,
        origin,
        object_size: 0,
        slab_size: 0,
        accounted: false,
        allocs: 0,
        frees: 0,
        resolved: index,
        call_site: None,
    }
}
