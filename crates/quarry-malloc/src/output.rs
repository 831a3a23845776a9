//! Text to a file descriptor, without a heap.

use core::fmt;

/// Bytes that are written together.
const ROOM: usize = 4096;

/// A file descriptor that takes text, which is written when it is full and at its end.
pub(crate) struct Output {
    descriptor: libc::c_int,
    text: [u8; ROOM],
    len: usize,
}

impl Output {
    /// The standard error output.
    pub(crate) fn errors() -> Self {
        Self::to(libc::STDERR_FILENO)
    }

    /// Text to a descriptor, which the caller closes afterwards.
    pub(crate) fn to(descriptor: libc::c_int) -> Self {
        Self {
            descriptor,
            text: [0; ROOM],
            len: 0,
        }
    }

    /// Writes what has been taken.
    pub(crate) fn flush(&mut self) -> fmt::Result {
        let mut left = &self.text[..self.len];
        self.len = 0;
        while !left.is_empty() {
            // SAFETY: the bytes are readable.
            let written = unsafe { libc::write(self.descriptor, left.as_ptr().cast(), left.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => left = &left[written.min(left.len())..],
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(ROOM) {
            if self.len + piece.len() > ROOM {
                self.flush()?;
            }
            self.text[self.len..self.len + piece.len()].copy_from_slice(piece);
            self.len += piece.len();
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // A failure to write has nowhere to be reported; who wants to know flushes before.
        let _ = self.flush();
    }
}

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
