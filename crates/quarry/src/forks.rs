//! Things of a process that its children must not use.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use quarry_host::fork::{self, ForkError, ForkHooks, ForkNode};

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker(u32);

impl Maker {
    /// The calling process; `None` if forks cannot be counted ([`fork::register`]).
    pub(crate) fn this_process() -> Option<Self> {
        static NODE: ForkNode = ForkNode::new();
        let count = ForkHooks {
            prepare: |_| (),
            parent: |_| (),
            child: |_| _ = FORKS.fetch_add(1, Ordering::Relaxed),
        };
        // SAFETY: the hooks follow no address, and the node is never removed.
        let counted = unsafe { fork::register(&NODE, NonNull::dangling(), count) };
        let this = Self(FORKS.load(Ordering::Relaxed));
        matches!(counted, Ok(()) | Err(ForkError::Registered)).then_some(this)
    }

    /// True in a child that was forked since.
    #[inline]
    pub(crate) fn is_another(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}
