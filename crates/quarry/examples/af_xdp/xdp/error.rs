//! Errors of sockets, with what to do next.

use std::fmt;
use std::io;

use quarry::PoolCreateError;

/// The reason for which there is no socket.
pub(crate) enum XdpError {
    /// The kernel refused a call.
    Refused {
        /// The call, or the option that was set.
        call: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Its pool cannot be made.
    Pool(PoolCreateError),
    /// The pool's frames have several pages; those of a UMEM have one.
    Order(u32),
}

impl XdpError {
    pub(super) fn refused(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Refused { call, error }
    }
}

/// The next step after an error of this number.
fn next_step(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run it as root, or with CAP_NET_RAW",
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        Some(libc::EBUSY) => "the interface's queue has a socket already",
        Some(libc::ENODEV) => "there is no such interface",
        Some(libc::ENOMEM | libc::ENOBUFS) => "raise the limit of locked memory (`ulimit -l`)",
        Some(libc::EINVAL) => {
            "the heap's pages must have the system's page size, rings a power of two of entries, and the interface that queue"
        }
        _ => "see Documentation/networking/af_xdp.rst of the kernel",
    }
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { call, error } => write!(f, "{call}: {error}; {}", next_step(error)),
            Self::Pool(error) => error.fmt(f),
            Self::Order(order) => {
                write!(f, "frames of order {order}: a UMEM has frames of one page")
            }
        }
    }
}

impl fmt::Debug for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { error, .. } => Some(error),
            Self::Pool(error) => Some(error),
            Self::Order(_) => None,
        }
    }
}
