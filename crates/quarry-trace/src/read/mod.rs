//! Trace to events: opening a file, and what is checked before the first row.
//!
//! [`EventReader`] decodes the columns that a replay needs, chunk by chunk; [`RowReader`] decodes all of
//! them, texts included. Both own what they use, so several can read one [`TraceFile`] at once.

mod check;
mod events;
mod foreign;
mod group;
mod load;
mod numbers;
mod pages;
mod rows;
mod source;
mod tasks;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

pub use events::{CHUNK_EVENTS, EventReader};
pub(crate) use load::Owned;
pub use numbers::{NumberColumn, number_columns};
pub use pages::PageReader;
pub use rows::RowReader;
pub use tasks::TaskReader;

use crate::error::{Result, TraceError};
use crate::event::NO_CACHE;
use crate::guard::guarded;
use crate::meta::{
    CHECKSUM_KEY, CPUS_MAX, FORMAT_VERSION, FORMAT_VERSION_MIN, META_KEY, TraceMeta, VERSION_KEY,
};
use crate::schema::{COLUMNS, Checksum, PAGE, PFN, STACK, WRITER};
use source::Source;

/// More rows in one row group than any writer of ours makes: a group is what a reader holds at once.
const GROUP_ROWS_MAX: u64 = 1 << 22;

/// First bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// An open trace: its metadata is read and checked, its rows are not read yet.
#[derive(Clone)]
pub struct TraceFile {
    shared: Arc<Shared>,
}

/// State that the readers of one trace share.
struct Shared {
    path: PathBuf,
    source: Source,
    footer: ParquetMetaData,
    meta: TraceMeta,
    /// Index in the file of each column of [`COLUMNS`]; `None` of one that came with a later version.
    columns: Vec<Option<usize>>,
    /// The canonical cache by index.
    resolved: Vec<u16>,
}

impl std::fmt::Debug for TraceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceFile")
            .field("path", &self.shared.path)
            .field("rows", &self.shared.meta.rows)
            .finish()
    }
}

impl TraceFile {
    /// Opens a trace file.
    ///
    /// # Errors
    /// If it cannot be read, is no complete Parquet file, is not ours, is of another format
    /// version, or its footer contradicts itself.
    pub fn open(path: impl AsRef<Path>) -> Result<TraceFile> {
        let path = path.as_ref();
        let failed = |source| TraceError::Read {
            path: path.to_path_buf(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if found.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if found.len() == 0 {
            return Err(TraceError::Empty {
                path: path.to_path_buf(),
            });
        }
        let mut head = Vec::new();
        file.by_ref()
            .take(4)
            .read_to_end(&mut head)
            .map_err(failed)?;
        TraceFile::from_source(Source::file(file, found.len()), path, &head)
    }

    /// Opens a trace that is in memory, such as one that is built into the program.
    ///
    /// # Errors
    /// As [`TraceFile::open`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<TraceFile> {
        let bytes = bytes.into();
        let path = Path::new("<memory>");
        if bytes.is_empty() {
            return Err(TraceError::Empty {
                path: path.to_path_buf(),
            });
        }
        let head = bytes.slice(..bytes.len().min(4));
        TraceFile::from_source(Source::Bytes(bytes), path, &head)
    }

    fn from_source(source: Source, path: &Path, head: &[u8]) -> Result<TraceFile> {
        let is_parquet = head == MAGIC;
        let path = path.to_path_buf();
        let opened = guarded(|| SerializedFileReader::new(source.clone()));
        let reader = match opened.unwrap_or_else(|| Err(damaged())) {
            Ok(reader) => reader,
            Err(source) if is_parquet => return Err(TraceError::TruncatedParquet { path, source }),
            Err(_) => return Err(TraceError::NotParquet { path }),
        };
        let footer = reader.metadata().clone();
        check_places(&footer, &path)?;
        let writer = footer.file_metadata().created_by().unwrap_or_default();
        if !writer.starts_with(WRITER) {
            let told = match read_meta(&footer, &path) {
                Err(error @ TraceError::Version { .. }) => return Err(error),
                told => told.ok(),
            };
            let made = foreign::rebuild(&source, &footer, told, &path)?;
            return TraceFile::from_source(Source::Bytes(made), &path, MAGIC);
        }
        let meta = read_meta(&footer, &path)?;
        check_meta(&meta, &footer, &path)?;
        let columns = find_columns(&footer, meta.format_version, &path)?;
        let resolved = meta.caches.iter().map(|cache| cache.resolved).collect();
        Ok(TraceFile {
            shared: Arc::new(Shared {
                path,
                source,
                footer,
                meta,
                columns,
                resolved,
            }),
        })
    }

    /// The trace's metadata.
    #[must_use]
    pub fn meta(&self) -> &TraceMeta {
        &self.shared.meta
    }

    /// Path that it was opened by; `<memory>` for bytes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// A reader of what a replay needs, at the first event.
    #[must_use]
    pub fn events(&self) -> EventReader {
        EventReader::new(self.shared.clone(), false)
    }

    /// A quicker reader for what only page events tell, at the first event. It gives every event; of
    /// page events all but the CPU, of others the time and the kind.
    #[must_use]
    pub fn page_events(&self) -> EventReader {
        EventReader::new(self.shared.clone(), true)
    }

    /// A reader of what a replay needs and of the places of objects, at the first event.
    #[must_use]
    pub fn events_with_pages(&self) -> PageReader {
        PageReader::new(self.shared.clone())
    }

    /// A reader of what a replay needs and of the tasks, at the first event.
    #[must_use]
    pub fn events_with_tasks(&self) -> TaskReader {
        TaskReader::new(self.shared.clone())
    }

    /// A reader of everything, at the first row.
    #[must_use]
    pub fn rows(&self) -> RowReader {
        RowReader::new(self.shared.clone())
    }
}

fn read_meta(footer: &ParquetMetaData, path: &Path) -> Result<TraceMeta> {
    let value = |key: &'static str| {
        let pairs = footer.file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    };
    let path = || path.to_path_buf();
    let Some(version) = value(VERSION_KEY) else {
        return Err(TraceError::ForeignParquet {
            path: path(),
            key: VERSION_KEY,
        });
    };
    let read = FORMAT_VERSION_MIN..=FORMAT_VERSION;
    let known = version
        .parse()
        .ok()
        .filter(|version| read.contains(version));
    let Some(known) = known else {
        return Err(TraceError::Version {
            path: path(),
            found: version.to_string(),
            oldest: FORMAT_VERSION_MIN,
            supported: FORMAT_VERSION,
        });
    };
    let Some(json) = value(META_KEY) else {
        return Err(TraceError::ForeignParquet {
            path: path(),
            key: META_KEY,
        });
    };
    let found = Checksum::of(json.as_bytes());
    let footer = value(CHECKSUM_KEY).and_then(|text| u64::from_str_radix(text, 16).ok());
    if footer != Some(found) {
        let footer = footer.unwrap_or(0);
        return Err(TraceError::Inconsistent {
            path: path(),
            what: "metadata checksum",
            footer,
            found,
        });
    }
    let mut meta: TraceMeta =
        serde_json::from_str(json).map_err(|source| TraceError::Metadata {
            path: path(),
            key: META_KEY,
            source,
        })?;
    if meta.format_version != known {
        return Err(TraceError::Inconsistent {
            path: path(),
            what: "format version",
            footer: known.into(),
            found: meta.format_version.into(),
        });
    }
    meta.complete_assumptions();
    Ok(meta)
}

/// Error for a file at which the reader of Parquet panics.
fn damaged() -> ParquetError {
    ParquetError::General("the file is damaged".to_string())
}

/// The reader of columns panics where a place or a length is negative.
fn check_places(footer: &ParquetMetaData, path: &Path) -> Result<()> {
    let columns = footer.row_groups().iter().flat_map(|group| group.columns());
    for column in columns {
        let begin = column.dictionary_page_offset();
        let begin = begin.unwrap_or_else(|| column.data_page_offset());
        for value in [begin, column.data_page_offset(), column.compressed_size()] {
            if value < 0 {
                return Err(TraceError::Inconsistent {
                    path: path.to_path_buf(),
                    what: "places of columns",
                    footer: value.unsigned_abs(),
                    found: 0,
                });
            }
        }
    }
    Ok(())
}

fn check_meta(meta: &TraceMeta, footer: &ParquetMetaData, path: &Path) -> Result<()> {
    let contradiction = |what, footer, found| {
        Err(TraceError::Inconsistent {
            path: path.to_path_buf(),
            what,
            footer,
            found,
        })
    };
    let mut found_rows = 0_u64;
    for group in footer.row_groups() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
        if rows > GROUP_ROWS_MAX {
            return contradiction("most rows of a row group", GROUP_ROWS_MAX, rows);
        }
        found_rows += rows;
    }
    let groups = footer.num_row_groups() as u64;
    if meta.group_checksums.len() as u64 != groups {
        return contradiction("row groups", meta.group_checksums.len() as u64, groups);
    }
    if meta.rows != found_rows {
        return contradiction("rows", meta.rows, found_rows);
    }
    if !(1..=CPUS_MAX).contains(&meta.cpus) {
        return contradiction("cpus", u64::from(meta.cpus), u64::from(CPUS_MAX));
    }
    // A table with more slots than rows would make a replay ask for memory that it cannot need.
    for (what, slots) in [
        ("object_slots", meta.object_slots),
        ("page_slots", meta.page_slots),
    ] {
        if u64::from(slots) > meta.rows {
            return contradiction(what, u64::from(slots), meta.rows);
        }
    }
    let caches = meta.caches.len();
    if caches == 0 || caches > usize::from(NO_CACHE) {
        return contradiction("caches", caches as u64, u64::from(NO_CACHE));
    }
    for entry in &meta.caches {
        let canonical = meta
            .caches
            .get(usize::from(entry.resolved))
            .map(|cache| cache.resolved);
        if canonical != Some(entry.resolved) {
            return contradiction("resolved cache", u64::from(entry.resolved), caches as u64);
        }
    }
    Ok(())
}

/// Finds our columns by name: other programs may have added some or changed their order.
fn find_columns(footer: &ParquetMetaData, version: u32, path: &Path) -> Result<Vec<Option<usize>>> {
    let schema = footer.file_metadata().schema_descr();
    let mut found = Vec::with_capacity(COLUMNS.len());
    for column in &COLUMNS {
        let index = schema.columns().iter().position(|other| {
            other.path().string() == column.name
                && other.physical_type() == column.physical
                && other.max_def_level() == i16::from(column.optional)
                && other.max_rep_level() == 0
        });
        let came_later = version == 1 && column.name == PAGE || [STACK, PFN].contains(&column.name);
        if index.is_none() && !came_later {
            return Err(TraceError::Column {
                path: path.to_path_buf(),
                column: column.name,
            });
        }
        found.push(index);
    }
    Ok(found)
}
