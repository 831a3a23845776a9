//! Storage of a trace's bytes: a file, or memory.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// A file is read by position, so that readers of one trace in several threads do not disturb each other.
#[derive(Clone, Debug)]
pub(super) enum Source {
    File { file: Arc<File>, length: u64 },
    Bytes(Bytes),
}

/// A reader of a [`Source`] from some position on.
pub(super) enum Section {
    File(BufReader<At>),
    Bytes(Cursor<Bytes>),
}

/// The file from a position on.
pub(super) struct At {
    file: Arc<File>,
    offset: u64,
}

impl Source {
    pub(super) fn file(file: File, length: u64) -> Source {
        Source::File {
            file: Arc::new(file),
            length,
        }
    }
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Section::File(file) => file.read(buffer),
            Section::Bytes(bytes) => bytes.read(buffer),
        }
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Source::File { length, .. } => *length,
            Source::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

impl ChunkReader for Source {
    type T = Section;

    fn get_read(&self, start: u64) -> Result<Section> {
        Ok(match self {
            // Page headers are short: a small buffer wastes little of what the page itself reads again.
            Source::File { file, .. } => Section::File(BufReader::with_capacity(
                512,
                At {
                    file: file.clone(),
                    offset: start,
                },
            )),
            Source::Bytes(bytes) => {
                let mut cursor = Cursor::new(bytes.clone());
                cursor.set_position(start);
                Section::Bytes(cursor)
            }
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start
            .checked_add(length as u64)
            .filter(|end| *end <= self.len());
        let Some(end) = end else {
            let message = format!(
                "{length} bytes at {start} lie beyond the end at {}",
                self.len()
            );
            return Err(ParquetError::EOF(message));
        };
        match self {
            Source::File { file, .. } => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, start)?;
                Ok(buffer.into())
            }
            Source::Bytes(bytes) => Ok(bytes.slice(start as usize..end as usize)),
        }
    }
}
