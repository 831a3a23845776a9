//! Recordings that are packed as a whole: gzip, xz and zstd.

use std::cell::Cell;
use std::io::{self, Cursor, Read};
use std::rc::Rc;

use super::binary::{Form, HEAD_BYTES};
use crate::packing::Packing;

/// Bytes of the packed file that are read to see what is in it.
const PACKED_HEAD_BYTES: u64 = 4096;
/// Bytes that a recording may unpack to: a binary one is held in memory.
const UNPACKED_BYTES_MAX: u64 = 8 << 30;

/// Counts the bytes of the file, packed as they are, and tells them on.
struct Counted<'a, R> {
    file: R,
    bytes: Rc<Cell<u64>>,
    progress: &'a mut dyn FnMut(u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        (self.progress)(self.bytes.get());
        Ok(count)
    }
}

/// An input whose first bytes have been read, and its form if it is binary.
pub(super) struct Opened<'a> {
    pub(super) form: Option<Form>,
    pub(super) input: Box<dyn Read + 'a>,
    /// Bytes of the file that have been read.
    pub(super) bytes_in: Rc<Cell<u64>>,
}

/// Takes away what is around a recording. Text in gzip stays as it is: its reader knows where damaged data begin.
pub(super) fn open<'a>(
    file: impl Read + 'a,
    progress: &'a mut dyn FnMut(u64),
) -> io::Result<Opened<'a>> {
    let bytes_in = Rc::new(Cell::new(0));
    let mut file = Counted {
        file,
        bytes: bytes_in.clone(),
        progress,
    };
    let mut head = Vec::new();
    file.by_ref()
        .take(PACKED_HEAD_BYTES)
        .read_to_end(&mut head)?;
    let whole = Cursor::new(head.clone()).chain(file);
    let packing = Packing::of(&head);
    if packing == Some(Packing::Gzip) {
        let mut first = [0; HEAD_BYTES as usize];
        // A short one ends in an error, which the whole will have, too.
        let read = Packing::Gzip
            .unpack(head.as_slice(), HEAD_BYTES)?
            .read(&mut first);
        let form = Form::of(first.get(..read.unwrap_or(0)).unwrap_or_default());
        let input: Box<dyn Read + 'a> = match form {
            Some(_) => Packing::Gzip.unpack(whole, UNPACKED_BYTES_MAX)?,
            None => Box::new(whole),
        };
        return Ok(Opened {
            form,
            input,
            bytes_in,
        });
    }
    let mut input: Box<dyn Read + 'a> = match packing {
        Some(packing) => packing.unpack(whole, UNPACKED_BYTES_MAX)?,
        None => Box::new(whole),
    };
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(Opened {
        form: Form::of(&head),
        input: Box::new(Cursor::new(head).chain(input)),
        bytes_in,
    })
}
