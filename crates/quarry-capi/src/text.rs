//! Texts to callers' buffers and to the standard error output, without a heap.

use core::ffi::c_char;
use core::fmt::{self, Write};
use core::ptr::NonNull;

use quarry::TextOut;

/// A caller's buffer, which takes as much of a text as fits, always with a zero behind it.
pub(crate) struct Buffer {
    start: Option<NonNull<u8>>,
    bytes: usize,
    /// Bytes of the text so far, whether they fit or not.
    length: usize,
}

impl Buffer {
    /// A buffer at `start`, which may be null if it has no bytes.
    ///
    /// # Safety
    ///
    /// That many bytes can be written there as long as the value is used.
    pub(crate) unsafe fn new(start: *mut c_char, bytes: usize) -> Self {
        let start = NonNull::new(start.cast());
        let bytes = if start.is_some() { bytes } else { 0 };
        Self {
            start,
            bytes,
            length: 0,
        }
    }

    /// Ends the text. Returns its length, zero not counted, also of what did not fit.
    pub(crate) fn finish(self) -> isize {
        if let (Some(start), Some(last)) = (self.start, self.bytes.checked_sub(1)) {
            // SAFETY: inside the buffer.
            let end = unsafe { start.byte_add(self.length.min(last)) };
            // SAFETY: `new`'s caller vouches for the buffer.
            unsafe { end.write(0) };
        }
        isize::try_from(self.length).unwrap_or(isize::MAX)
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is left for the zero.
        let room = self.bytes.saturating_sub(1).saturating_sub(self.length);
        let bytes = text.len().min(room);
        if let Some(start) = self.start.filter(|_| bytes > 0) {
            // SAFETY: inside the buffer, as there is room.
            let to = unsafe { start.byte_add(self.length) };
            // SAFETY: `new`'s caller vouches for the buffer, which is no part of the text.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(text).cast(), bytes) };
        }
        self.length += text.len();
        Ok(())
    }
}

/// Reports a mistake on the standard error output.
#[cold]
pub(crate) fn report(message: fmt::Arguments<'_>) {
    // A failure to write has nowhere to be reported.
    let _ = writeln!(TextOut::errors(), "{message}");
}
