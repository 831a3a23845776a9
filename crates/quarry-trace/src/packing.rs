//! Files that are packed as a whole.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

/// Memory that an xz file may ask for, in KiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Form in which a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
}

impl Packing {
    /// The form by the first bytes of a file; `None` for one that is not packed in a form that is known.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Unpacks a file. Reading fails beyond `limit` bytes: a small file may unpack to any number.
    ///
    /// # Errors
    ///
    /// Where zstd cannot get its memory.
    pub fn unpack<'a>(self, file: impl Read + 'a, limit: u64) -> io::Result<Box<dyn Read + 'a>> {
        let reader: Box<dyn Read + 'a> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(file)),
            Self::Xz => Box::new(XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB)),
            Self::Zstd => Box::new(zstd::Decoder::new(file)?),
        };
        Ok(Box::new(Limited {
            reader,
            left: limit,
            limit,
        }))
    }
}

/// A reader that fails when more is read than allowed.
struct Limited<'a> {
    reader: Box<dyn Read + 'a>,
    left: u64,
    limit: u64,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                return Err(io::Error::other(format!(
                    "it unpacks to more than {} bytes, the limit of a packed file",
                    self.limit
                )));
            }
        }
        Ok(read)
    }
}
