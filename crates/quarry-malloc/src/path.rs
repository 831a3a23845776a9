//! Paths, without a heap.

use core::fmt;

/// A path on the stack, for system calls.
pub(crate) struct Path {
    /// The text, zeros behind it.
    bytes: [u8; libc::PATH_MAX as usize],
    len: usize,
}

impl Path {
    /// A path of this text; `None` if it is too long.
    pub(crate) fn new(text: fmt::Arguments<'_>) -> Option<Self> {
        let mut path = Self {
            bytes: [0; libc::PATH_MAX as usize],
            len: 0,
        };
        fmt::write(&mut path, text).ok()?;
        Some(path)
    }

    /// The path as text.
    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// The path as a C string.
    pub(crate) fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }
}

impl fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        // One byte stays zero, for the end.
        if end >= self.bytes.len() {
            return Err(fmt::Error);
        }
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
