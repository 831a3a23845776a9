//! Errors of rings, with what to do next.

use std::fmt;
use std::io;

use crate::PoolCreateError;

/// The reason for which there is no ring.
pub enum RingError {
    /// The kernel refused a call.
    Refused {
        /// The call, as its manual page names it.
        call: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// A number of buffers that a buffer ring cannot have.
    Buffers(u16),
    /// The heap has no memory for the buffer ring, or for one buffer.
    Memory,
    /// The pool of a ring with registered buffers.
    Pool(PoolCreateError),
}

impl RingError {
    pub(super) fn refused(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Refused { call, error }
    }
}

/// The next step after an error of this number.
fn next_step(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring: use Linux 6.0 or later, or epoll",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here: see `sysctl kernel.io_uring_disabled`, and the seccomp profile of a container"
        }
        Some(libc::EINVAL) => "this kernel does not know the call: use Linux 6.0 or later",
        Some(libc::ENOMEM) => "raise the limit of locked memory (`ulimit -l`)",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (`ulimit -n`)",
        _ => "see its manual page",
    }
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { call, error } => {
                write!(f, "{call}: {error}; {}", next_step(error))
            }
            Self::Buffers(buffers) => {
                write!(f, "{buffers} buffers: a buffer ring has 1 to 32768")
            }
            Self::Memory => f.write_str(
                "the heap has no memory for the buffers: give it more (`Builder::memory_bytes`) or ask for fewer",
            ),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { error, .. } => Some(error),
            Self::Pool(error) => Some(error),
            Self::Buffers(_) | Self::Memory => None,
        }
    }
}
