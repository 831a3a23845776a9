//! Things of a process that its children must not use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    // A process that has just been forked has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker(u32);

impl Maker {
    /// The calling process; `None` if the C library has no memory for a handler of forks.
    pub(crate) fn this_process() -> Option<Self> {
        static INSTALLED: OnceLock<bool> = OnceLock::new();
        // SAFETY: the handler is a function of the program, and only adds to a number.
        let install = || unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0;
        let this = Self(FORKS.load(Ordering::Relaxed));
        INSTALLED.get_or_init(install).then_some(this)
    }

    /// True in a child that was forked since.
    #[inline]
    pub(crate) fn is_another(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}
