//! Bytes to lines: gzip or plain, in blocks, with the number of each line.

use std::cell::Cell;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use memchr::{memchr, memrchr};

use crate::error::{Result, TraceError};

/// Bytes read at a time.
const BLOCK_BYTES: usize = 256 * 1024;
/// No event has a longer line.
pub(crate) const LINE_BYTES_MAX: usize = 1024 * 1024;

/// A recording of LTTng, whose folder or file was named.
pub(super) const CTF: &str = "a recording of LTTng (CTF)";
/// The way to get its text.
pub(super) const CTF_ADVICE: &str =
    "print its folder: `babeltrace2 --clock-seconds FOLDER | quarry import - -o OUT`";

/// First bytes of what people feed by mistake, what it is, and how to get text from it.
const NOT_TEXT: [(&[u8], &str, &str); 7] = [
    (
        b"PAR1",
        "a Parquet file",
        "it needs no import if it is a trace",
    ),
    (
        b"BZh",
        "bzip2 data",
        "decompress it: `bzip2 -dc FILE | quarry import - -o OUT`",
    ),
    (
        b"PK\x03\x04",
        "a zip archive",
        "unpack it: `unzip -p FILE | quarry import - -o OUT`",
    ),
    (b"\xc1\x1f\xfc\xc1", CTF, CTF_ADVICE),
    (b"\x57\x1d\xd1\x75", CTF, CTF_ADVICE),
    (
        b"\x7fELF",
        "a program",
        "name the text that `perf script` printed",
    ),
    (
        b"\xff\xfe",
        "UTF-16 text",
        "convert it to UTF-8: `iconv -f UTF-16 -t UTF-8 FILE`",
    ),
];

/// The lines of an input.
pub(crate) struct Lines<'a> {
    path: PathBuf,
    input: Box<dyn Read + 'a>,
    gzip: bool,
    bytes_in: Rc<Cell<u64>>,
    buffer: Vec<u8>,
    /// Unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Everything below is known to hold whole lines.
    whole: usize,
    at_end: bool,
    line: u64,
}

impl<'a> Lines<'a> {
    /// Looks at the first bytes: gzip is unpacked, what cannot be text is refused.
    pub(crate) fn open(
        mut input: Box<dyn Read + 'a>,
        path: &Path,
        bytes_in: Rc<Cell<u64>>,
    ) -> Result<Lines<'a>> {
        let mut head = Vec::with_capacity(16);
        input
            .by_ref()
            .take(16)
            .read_to_end(&mut head)
            .map_err(|source| TraceError::Read {
                path: path.to_path_buf(),
                source,
            })?;
        if head.is_empty() {
            return Err(TraceError::Empty {
                path: path.to_path_buf(),
            });
        }
        let gzip = head.starts_with(&[0x1f, 0x8b]);
        let chained = Cursor::new(head).chain(input);
        let input: Box<dyn Read + 'a> = if gzip {
            Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(
                64 * 1024,
                chained,
            )))
        } else {
            Box::new(chained)
        };
        let mut lines = Lines {
            path: path.to_path_buf(),
            input,
            gzip,
            bytes_in,
            buffer: vec![0; BLOCK_BYTES],
            start: 0,
            end: 0,
            whole: 0,
            at_end: false,
            line: 0,
        };
        lines.fill()?;
        lines.refuse_binary()?;
        Ok(lines)
    }

    fn refuse_binary(&self) -> Result<()> {
        let bytes = &self.buffer[..self.end];
        let path = || self.path.clone();
        if bytes.is_empty() {
            return Err(TraceError::Empty { path: path() });
        }
        for (magic, what, advice) in NOT_TEXT {
            if bytes.starts_with(magic) {
                return Err(TraceError::NotText {
                    path: path(),
                    what,
                    advice,
                });
            }
        }
        if memchr(0, bytes).is_some() {
            let (what, advice) = (
                "binary data",
                "name the text that `perf script` printed, or ftrace's `trace` file",
            );
            return Err(TraceError::NotText {
                path: path(),
                what,
                advice,
            });
        }
        Ok(())
    }

    /// Reads until there is a whole line, or the input ends.
    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.whole = 0;
        loop {
            if self.end == self.buffer.len() {
                if self.end >= LINE_BYTES_MAX {
                    let (path, line) = (self.path.clone(), self.line + 1);
                    return Err(TraceError::LineTooLong {
                        path,
                        line,
                        limit_bytes: LINE_BYTES_MAX,
                    });
                }
                self.buffer.resize(self.end * 2, 0);
            }
            let count = match self.input.read(&mut self.buffer[self.end..]) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.read_failed(error)),
            };
            if count == 0 {
                self.at_end = true;
                self.whole = self.end;
                return Ok(());
            }
            let fresh = self.end..self.end + count;
            self.end = fresh.end;
            if let Some(at) = memrchr(b'\n', &self.buffer[fresh.clone()]) {
                self.whole = fresh.start + at + 1;
                return Ok(());
            }
        }
    }

    fn read_failed(&self, source: io::Error) -> TraceError {
        let (path, bytes_in) = (self.path.clone(), self.bytes_in.get());
        match source.kind() {
            io::ErrorKind::UnexpectedEof if self.gzip => {
                TraceError::TruncatedGzip { path, bytes_in }
            }
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if self.gzip => {
                TraceError::CorruptGzip {
                    path,
                    bytes_in,
                    source,
                }
            }
            _ => TraceError::Read { path, source },
        }
    }

    /// The next line without its end, and whether it had one. `None` at the end of the input.
    pub(crate) fn next_line(&mut self) -> Result<Option<(&[u8], bool)>> {
        while self.start == self.whole {
            if self.at_end {
                return Ok(None);
            }
            self.fill()?;
        }
        self.line += 1;
        let from = self.start;
        let (mut to, ended) = match memchr(b'\n', &self.buffer[from..self.whole]) {
            Some(n) => (from + n, true),
            None => (self.whole, false),
        };
        self.start = if ended { to + 1 } else { to };
        if to > from && self.buffer[to - 1] == b'\r' {
            to -= 1;
        }
        Ok(Some((&self.buffer[from..to], ended)))
    }

    /// After a bad line: if the gzip data behind it turns out to be damaged, that is the error.
    ///
    /// gzip has its checksum at the end, so damage first looks like text. A bounded part is read.
    pub(crate) fn check_rest(&mut self) -> Result<()> {
        const REST_BYTES_MAX: u64 = 256 * 1024 * 1024;
        if !self.gzip {
            return Ok(());
        }
        let mut rest = self.input.by_ref().take(REST_BYTES_MAX);
        let drained = io::copy(&mut rest, &mut io::sink());
        drained.map(drop).map_err(|error| self.read_failed(error))
    }

    /// Number of the line that was given last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Compressed bytes read so far.
    pub(crate) fn bytes_in(&self) -> u64 {
        self.bytes_in.get()
    }
}
