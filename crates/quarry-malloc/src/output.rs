//! Text to a file descriptor, without a heap.

use core::fmt;

/// A file descriptor that takes text. Each piece of a text is a system call, so texts are short or rare.
pub(crate) struct Output(libc::c_int);

impl Output {
    /// The standard error output.
    pub(crate) fn errors() -> Self {
        Self(libc::STDERR_FILENO)
    }

    /// Text to a descriptor, which the caller closes.
    pub(crate) fn to(descriptor: libc::c_int) -> Self {
        Self(descriptor)
    }
}

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut left = text.as_bytes();
        while !left.is_empty() {
            // SAFETY: the bytes are readable.
            let written = unsafe { libc::write(self.0, left.as_ptr().cast(), left.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => left = &left[written.min(left.len())..],
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
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
