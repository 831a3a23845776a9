//! A file's bytes, read from front to back. No length in the file is believed.

/// Reason why a file cannot be read.
pub(super) type Fault = String;

/// A place in a file's bytes. Numbers are little-endian.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// From a place in a file on.
    pub(super) fn at(file: &'a [u8], offset: u64) -> Result<Self, Fault> {
        let rest = usize::try_from(offset).ok().and_then(|at| file.get(at..));
        let rest = rest.ok_or_else(|| {
            let bytes = file.len();
            format!("a part begins at byte {offset}, and the file has {bytes}; it is cut off")
        })?;
        Ok(Self { rest })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub(super) fn all(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let found = usize::try_from(count)
            .ok()
            .and_then(|count| self.rest.split_at_checked(count));
        let Some((bytes, rest)) = found else {
            let left = self.rest.len();
            return Err(format!(
                "a part of {count} bytes has {left}; the file is cut off or damaged"
            ));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self, bytes: u64) -> Result<u64, Fault> {
        let bytes = self.take(bytes)?.iter().rev();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.number(1)? as u8)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        Ok(self.number(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(self.number(4)? as u32)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.number(8)
    }

    /// A text that ends with a zero byte.
    pub(super) fn string(&mut self) -> Result<String, Fault> {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or("a name does not end; the file is cut off or damaged")?;
        let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// A text of a number of bytes.
    pub(super) fn text(&mut self, bytes: u64) -> Result<String, Fault> {
        Ok(text(self.take(bytes)?))
    }

    /// Passes over these bytes.
    pub(super) fn expect(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.take(bytes.len() as u64)? == bytes {
            return Ok(());
        }
        let name = String::from_utf8_lossy(bytes);
        Err(format!("{:?} is missing", name.trim_end_matches('\0')))
    }
}

/// The text before the first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
