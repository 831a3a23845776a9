//! The data structures of SLOB; the drawing is in the [module's documentation](super).

use core::ptr::NonNull;

use super::geometry::{LISTS_MAX, SlobEra};
use super::owners::Registry;
use crate::machine::{LockClass, SpinLock};
use crate::page::{ORDERS, PageList};
use crate::sync::{AtomicU32, AtomicU64};

/// State of one cache.
pub struct Slob {
    /// The cache's number in the table of owners.
    pub(super) id: u16,
    pub(super) shared: NonNull<Shared>,
    /// Objects in use.
    pub(super) live: AtomicU64,
    /// Bytes of their blocks, headers included.
    pub(super) block_bytes: AtomicU64,
    /// Those of them that are runs of pages, by order.
    pub(super) runs: [AtomicU64; ORDERS],
}

// SAFETY: `shared` is an address in the heap's structures, which outlive the cache
// (`Design::create`), and what it names is `Sync`; the rest is atomic or constant.
unsafe impl Send for Slob {}
// SAFETY: as for `Send`.
unsafe impl Sync for Slob {}

/// State that all caches of a heap share: the whole of SLOB.
pub struct Shared {
    pub(super) era: &'static SlobEra,
    pub(super) lists: SpinLock<Lists>,
    /// First page with deferred frees, as a link.
    pub(super) deferred: AtomicU32,
    pub(super) registry: Registry,
}

impl Shared {
    pub(super) fn new(era: &'static SlobEra) -> Self {
        let lists = Lists {
            pages: [PageList::EMPTY; LISTS_MAX],
        };
        Self {
            era,
            lists: SpinLock::new(LockClass::Slob, lists),
            deferred: AtomicU32::new(0),
            registry: Registry::new(),
        }
    }
}

/// Pages with free room, by the size of the blocks that they hold.
pub(super) struct Lists {
    pub(super) pages: [PageList; LISTS_MAX],
}

/// A block that is wanted.
#[derive(Clone, Copy)]
pub(super) struct Request {
    /// Its bytes, header included.
    pub(super) bytes: u32,
    /// Bytes of the header: the address behind it is the one that is aligned.
    pub(super) lead: u32,
    /// Alignment in bytes, a power of two, at least a word and at most a page.
    pub(super) align: u32,
}

impl Slob {
    pub(super) fn shared(&self) -> &Shared {
        // SAFETY: `Design::create`: what it was given outlives the cache, and it is only read
        // or changed through its own locks and atomics.
        unsafe { self.shared.as_ref() }
    }
}
