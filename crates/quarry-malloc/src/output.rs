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
