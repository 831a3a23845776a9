//! Rows to Parquet: a buffer of one row group, column by column.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;

use crate::error::{Result, TraceError};
use crate::event::{Kind, NO_CACHE, NO_OBJECT, NO_PAGE, NO_PFN, ReplayEvent};
use crate::intern::{Interner, NO_TEXT};
use crate::meta::{FORMAT_VERSION, META_KEY, Table, TraceMeta};
use crate::outfile::{Tap, TapHandle};
use crate::schema::{COLUMNS, Digest, PAGE, PFN, STACK, WRITER, schema};

/// Rows of one row group: the unit of memory for writer and reader.
pub(crate) const GROUP_ROWS: usize = 128 * 1024;

/// One row, its strings as numbers of the [`Texts`] tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) event: ReplayEvent,
    pub(crate) pid: i32,
    pub(crate) comm: u32,
    pub(crate) cache_name: u32,
    pub(crate) bytes_alloc: u32,
    pub(crate) gfp_flags: u32,
    pub(crate) node: i16,
    pub(crate) migratetype: i8,
    pub(crate) call_site: u32,
    /// A [`crate::Place`] as the column holds it, or [`NO_PAGE`].
    pub(crate) page: u32,
    pub(crate) stack: u32,
    /// A page frame number, or [`NO_PFN`].
    pub(crate) pfn: u64,
}

/// The string tables that rows refer to.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub(crate) comms: Interner,
    pub(crate) caches: Interner,
    pub(crate) gfp_flags: Interner,
    pub(crate) call_sites: Interner,
    pub(crate) stacks: Interner,
    /// Rows by thread.
    pub(crate) tasks: HashMap<(i32, u32), u64>,
}

impl Texts {
    /// Fills in the tables of texts.
    fn describe(&self, meta: &mut TraceMeta) {
        meta.call_sites = Table::new(self.call_sites.by_use());
        meta.gfp_flags = Table::new(self.gfp_flags.by_use());
        meta.comms = Table::new(self.comms.by_use());
        meta.tasks = self.busiest_tasks();
    }

    /// Threads by rows, busiest first, ties by pid: hash order must not show.
    fn busiest_tasks(&self) -> Table {
        let mut tasks: Vec<((i32, u32), u64)> = self
            .tasks
            .iter()
            .map(|(task, rows)| (*task, *rows))
            .collect();
        tasks.sort_by_key(|(task, rows)| (std::cmp::Reverse(*rows), *task));
        let name = |comm| String::from_utf8_lossy(self.comms.text(comm)).into_owned();
        Table::new(
            tasks
                .into_iter()
                .map(|((pid, comm), rows)| (format!("{pid} {}", name(comm)), rows))
                .collect(),
        )
    }
}

/// Writes rows; the footer comes with [`TraceWriter::finish`].
pub(crate) struct TraceWriter<W: Write + Send> {
    path: PathBuf,
    file: SerializedFileWriter<Tap<W>>,
    tapped: TapHandle,
    rows: Vec<Row>,
    digest: Digest,
    group_checksums: Vec<u64>,
    written: u64,
    with_stack: u64,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    int32: Vec<i32>,
    int64: Vec<i64>,
    text: Vec<ByteArray>,
    levels: Vec<i16>,
    table: Vec<Option<ByteArray>>,
}

impl<W: Write + Send> TraceWriter<W> {
    pub(crate) fn new(out: W, path: &Path, zstd_level: i32) -> Result<TraceWriter<W>> {
        let encode = |source| TraceError::Encode {
            path: path.to_path_buf(),
            source,
        };
        let level = ZstdLevel::try_new(zstd_level).map_err(encode)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("{WRITER} {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(level))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            // One page per column and group: the fewest headers, the most for zstd to see.
            .set_data_page_row_count_limit(GROUP_ROWS)
            .set_data_page_size_limit(16 * 1024 * 1024)
            .set_dictionary_page_size_limit(4 * 1024 * 1024);
        for column in &COLUMNS {
            if let Some(encoding) = column.encoding {
                let path = ColumnPath::from(column.name);
                properties = properties.set_column_dictionary_enabled(path.clone(), false);
                properties = properties.set_column_encoding(path, encoding);
            }
        }
        let (tap, tapped) = Tap::new(out);
        let mut file = SerializedFileWriter::new(tap, schema(), Arc::new(properties.build()))
            .map_err(|error| failure(path, &tapped, error))?;
        flush_file(&mut file).map_err(|error| failure(path, &tapped, error))?;
        // The file's first bytes belong to no group.
        tapped.take_checksum();
        Ok(TraceWriter {
            path: path.to_path_buf(),
            file,
            tapped,
            rows: Vec::with_capacity(GROUP_ROWS),
            digest: Digest::new(),
            group_checksums: Vec::new(),
            written: 0,
            with_stack: 0,
            scratch: Scratch::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row; a full group goes out.
    pub(crate) fn push(&mut self, row: Row, texts: &Texts) -> Result<()> {
        self.digest.add(&row.event, row.page);
        self.with_stack += u64::from(row.stack != NO_TEXT);
        self.rows.push(row);
        if self.rows.len() == GROUP_ROWS {
            self.flush(texts)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, texts: &Texts) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        write_group(&mut self.file, &self.rows, texts, &mut self.scratch)
            .and_then(|()| flush_file(&mut self.file))
            .map_err(|error| failure(&self.path, &self.tapped, error))?;
        self.group_checksums.push(self.tapped.take_checksum());
        self.written += self.rows.len() as u64;
        self.rows.clear();
        Ok(())
    }

    /// Writes what is left and the footer. Fills in of `meta` what the rows and texts tell: their number, the
    /// checksums and the tables of texts.
    pub(crate) fn finish(mut self, meta: &mut TraceMeta, texts: &Texts) -> Result<()> {
        self.flush(texts)?;
        texts.describe(meta);
        meta.format_version = FORMAT_VERSION;
        meta.rows = self.written;
        meta.stack_rows = self.with_stack;
        meta.digest = self.digest.value();
        meta.group_checksums = std::mem::take(&mut self.group_checksums);
        let footer = meta.footer().map_err(|source| TraceError::Metadata {
            path: self.path.clone(),
            key: META_KEY,
            source,
        })?;
        for (key, value) in footer {
            let pair = KeyValue::new(key.to_string(), value);
            self.file.append_key_value_metadata(pair);
        }
        let TraceWriter {
            path,
            mut file,
            tapped,
            ..
        } = self;
        let closed = file.finish().and_then(|_| flush_file(&mut file));
        closed.map_err(|error| failure(&path, &tapped, error))
    }
}

/// Everything that is buffered goes to the tap.
fn flush_file<W: Write + Send>(file: &mut SerializedFileWriter<W>) -> ParquetResult<()> {
    Ok(file.flush()?)
}

/// The system's error if there was one, else the encoder's.
fn failure(path: &Path, tapped: &TapHandle, error: ParquetError) -> TraceError {
    let path = path.to_path_buf();
    match tapped.take_error() {
        Some(source) => TraceError::Write { path, source },
        None => TraceError::Encode {
            path,
            source: error,
        },
    }
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    rows: &[Row],
    texts: &Texts,
    scratch: &mut Scratch,
) -> ParquetResult<()> {
    let mut group = file.next_row_group()?;
    for column in &COLUMNS {
        let Some(mut out) = group.next_column()? else {
            return Err(ParquetError::General(format!(
                "no column writer for {}",
                column.name
            )));
        };
        match column.name {
            "time_ns" => {
                scratch.int64.clear();
                scratch
                    .int64
                    .extend(rows.iter().map(|row| row.event.time_ns as i64));
                out.typed::<Int64Type>()
                    .write_batch(&scratch.int64, None, None)?;
            }
            "comm" => write_text(&mut out, scratch, rows, &texts.comms, false, |row| row.comm)?,
            "cache" => write_text(&mut out, scratch, rows, &texts.caches, true, |row| {
                row.cache_name
            })?,
            "gfp_flags" => write_text(&mut out, scratch, rows, &texts.gfp_flags, true, |row| {
                row.gfp_flags
            })?,
            "call_site" => write_text(&mut out, scratch, rows, &texts.call_sites, true, |row| {
                row.call_site
            })?,
            STACK => write_text(&mut out, scratch, rows, &texts.stacks, true, |row| {
                row.stack
            })?,
            PAGE => write_pages(&mut out, scratch, rows)?,
            PFN => write_pfns(&mut out, scratch, rows)?,
            "event" => write_kind_names(&mut out, scratch, rows)?,
            name => {
                scratch.int32.clear();
                scratch
                    .int32
                    .extend(rows.iter().map(|row| int32_of(name, row)));
                out.typed::<Int32Type>()
                    .write_batch(&scratch.int32, None, None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    Ok(())
}

/// A number column of a row. -1 stands for "none".
#[inline]
fn int32_of(column: &'static str, row: &Row) -> i32 {
    let event = &row.event;
    match column {
        "cpu" => i32::from(event.cpu),
        "pid" => row.pid,
        "kind" => event.kind as i32,
        "cache_id" if event.cache == NO_CACHE => -1,
        "cache_id" => i32::from(event.cache),
        "object" if event.object == NO_OBJECT => -1,
        "object" => event.object as i32,
        "bytes_req" => event.bytes_req as i32,
        "bytes_alloc" => row.bytes_alloc as i32,
        "node" => i32::from(row.node),
        "order" => i32::from(event.order),
        "migratetype" => i32::from(row.migratetype),
        "flags" => i32::from(event.flags.0),
        _ => unreachable!("column {column} is no number"),
    }
}

fn write_text(
    out: &mut SerializedColumnWriter<'_>,
    scratch: &mut Scratch,
    rows: &[Row],
    texts: &Interner,
    optional: bool,
    id_of: impl Fn(&Row) -> u32,
) -> ParquetResult<()> {
    scratch.text.clear();
    scratch.levels.clear();
    // Each distinct text of the group is made once; the rows share it.
    scratch.table.clear();
    scratch.table.resize(texts.len(), None);
    for row in rows {
        let id = id_of(row);
        scratch.levels.push(i16::from(id != NO_TEXT));
        if id != NO_TEXT {
            let text = scratch.table[id as usize].get_or_insert_with(|| {
                ByteArray::from(
                    String::from_utf8_lossy(texts.text(id))
                        .into_owned()
                        .into_bytes(),
                )
            });
            scratch.text.push(text.clone());
        }
    }
    let levels = optional.then_some(scratch.levels.as_slice());
    out.typed::<ByteArrayType>()
        .write_batch(&scratch.text, levels, None)?;
    Ok(())
}

fn write_pages(
    out: &mut SerializedColumnWriter<'_>,
    scratch: &mut Scratch,
    rows: &[Row],
) -> ParquetResult<()> {
    let levels = rows.iter().map(|row| i16::from(row.page != NO_PAGE));
    scratch.levels.clear();
    scratch.levels.extend(levels);
    let pages = rows.iter().map(|row| row.page);
    scratch.int32.clear();
    scratch.int32.extend(
        pages
            .filter(|page| *page != NO_PAGE)
            .map(|page| page as i32),
    );
    out.typed::<Int32Type>()
        .write_batch(&scratch.int32, Some(&scratch.levels), None)?;
    Ok(())
}

fn write_pfns(
    out: &mut SerializedColumnWriter<'_>,
    scratch: &mut Scratch,
    rows: &[Row],
) -> ParquetResult<()> {
    let levels = rows.iter().map(|row| i16::from(row.pfn != NO_PFN));
    scratch.levels.clear();
    scratch.levels.extend(levels);
    let pfns = rows.iter().map(|row| row.pfn).filter(|pfn| *pfn != NO_PFN);
    scratch.int64.clear();
    scratch.int64.extend(pfns.map(|pfn| pfn as i64));
    out.typed::<Int64Type>()
        .write_batch(&scratch.int64, Some(&scratch.levels), None)?;
    Ok(())
}

fn write_kind_names(
    out: &mut SerializedColumnWriter<'_>,
    scratch: &mut Scratch,
    rows: &[Row],
) -> ParquetResult<()> {
    let names = Kind::ALL.map(|kind| ByteArray::from(kind.name()));
    scratch.text.clear();
    scratch.text.extend(
        rows.iter()
            .map(|row| names[row.event.kind as usize].clone()),
    );
    out.typed::<ByteArrayType>()
        .write_batch(&scratch.text, None, None)?;
    Ok(())
}
