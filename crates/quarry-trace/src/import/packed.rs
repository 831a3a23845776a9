//! Recordings that are packed as a whole: gzip, xz and zstd.

use std::cell::Cell;
use std::io::{self, Cursor, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

use super::binary::{Form, HEAD_BYTES};

/// Bytes of the packed file that are read to see what is in it.
const PACKED_HEAD_BYTES: u64 = 4096;
/// Bytes that a recording may unpack to: a binary one is held in memory.
const UNPACKED_BYTES_MAX: u64 = 8 << 30;
/// Memory that an xz file may ask for, in KiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

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
    let (form, input): (_, Box<dyn Read + 'a>) = match head.as_slice() {
        [0x1f, 0x8b, ..] => {
            let mut first = [0; HEAD_BYTES as usize];
            // A short one ends in an error, which the whole will have, too.
            let read = MultiGzDecoder::new(head.as_slice()).read(&mut first);
            let form = Form::of(first.get(..read.unwrap_or(0)).unwrap_or_default());
            let input: Box<dyn Read + 'a> = match form {
                Some(_) => Box::new(Limited::new(MultiGzDecoder::new(whole))),
                None => Box::new(whole),
            };
            (form, input)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            unpacked(XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB))?
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => unpacked(zstd::Decoder::new(whole)?)?,
        head => (Form::of(head), Box::new(whole)),
    };
    Ok(Opened {
        form,
        input,
        bytes_in,
    })
}

/// The form of what a decoder gives, and all of that.
fn unpacked<'a>(decoder: impl Read + 'a) -> io::Result<(Option<Form>, Box<dyn Read + 'a>)> {
    let mut decoder = Limited::new(decoder);
    let mut head = Vec::new();
    decoder.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    let form = Form::of(&head);
    Ok((form, Box::new(Cursor::new(head).chain(decoder))))
}

/// A reader that fails beyond the limit.
struct Limited<R> {
    reader: R,
    left: u64,
}

impl<R> Limited<R> {
    fn new(reader: R) -> Self {
        Self {
            reader,
            left: UNPACKED_BYTES_MAX,
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or_else(|| {
            let limit = UNPACKED_BYTES_MAX >> 30;
            io::Error::other(format!(
                "it unpacks to more than {limit} GiB; unpack it first"
            ))
        })?;
        Ok(count)
    }
}
