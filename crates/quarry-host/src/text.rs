//! Text to a file descriptor, without a heap.

use core::fmt;

use crate::os;

/// Bytes that are written together.
const ROOM: usize = 4096;

/// A file descriptor that takes text, which is written when it is full, and at its end. It allocates nothing.
///
/// # Examples
///
/// ```
/// use std::fmt::Write as _;
///
/// let mut errors = quarry_host::TextOut::errors();
/// writeln!(errors, "{} bytes", 4096)?;
/// errors.flush()?;
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Debug)]
pub struct TextOut {
    descriptor: libc::c_int,
    text: [u8; ROOM],
    len: usize,
}

impl TextOut {
    /// The standard error output.
    #[must_use]
    pub fn errors() -> Self {
        Self::to(libc::STDERR_FILENO)
    }

    /// Text to a descriptor, which the caller closes afterwards.
    #[must_use]
    pub fn to(descriptor: libc::c_int) -> Self {
        Self {
            descriptor,
            text: [0; ROOM],
            len: 0,
        }
    }

    /// Writes what has been taken, after interruptions by signals, too.
    ///
    /// # Errors
    ///
    /// The reason is in `errno`. The rest of the text is dropped.
    pub fn flush(&mut self) -> fmt::Result {
        let mut left = &self.text[..core::mem::take(&mut self.len)];
        while !left.is_empty() {
            // SAFETY: the bytes are readable.
            let written = unsafe { libc::write(self.descriptor, left.as_ptr().cast(), left.len()) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => left = left.get(written..).unwrap_or_default(),
                Err(_) if os::errno() == libc::EINTR => {}
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

impl fmt::Write for TextOut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(ROOM) {
            if self.len + piece.len() > ROOM {
                self.flush()?;
            }
            self.text[self.len..][..piece.len()].copy_from_slice(piece);
            self.len += piece.len();
        }
        Ok(())
    }
}

impl Drop for TextOut {
    fn drop(&mut self) {
        // A failure to write has nowhere to be reported; who wants to know flushes before.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::thread::JoinHandleExt as _;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: libc::c_int) {
        INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn signals_cost_no_text() {
        // SAFETY: all-zero is a valid `sigaction`: no flags, so that system calls are not restarted.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = count as *const () as usize;
        // SAFETY: the action is complete, and its handler uses an atomic alone.
        let set =
            unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, core::ptr::null_mut()) };
        assert_eq!(set, 0);
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        // Full: the next write waits.
        writer.write_all(&[b'-'; 1 << 16]).expect("room");
        let writing = thread::spawn(move || {
            let mut out = TextOut::to(writer.as_raw_fd());
            let text = "text\n".repeat(1000);
            out.write_str(&text).and_then(|()| out.flush())
        });
        while INTERRUPTS.load(Ordering::Relaxed) < 100 && !writing.is_finished() {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(writing.as_pthread_t(), libc::SIGUSR2) };
            thread::yield_now();
        }
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("what was written");
        assert_eq!(writing.join().expect("no panic"), Ok(()));
        assert_eq!(read.len(), (1 << 16) + 5000);
    }
}
