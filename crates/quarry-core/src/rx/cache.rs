//! The recycler: a ring of pages that the driver still has a reference to, oldest first.

use core::ptr::NonNull;

use super::page::is_local;
use crate::era::Era;
use crate::machine::Machine;
use crate::page::{PageAllocator, PageError, Pfn};

/// Entries of the ring of mlx5 [4.13, 4.14]: 4 times the larger of the 64 pages of a striding work
/// entry and the NAPI budget of 64. One of them always stays empty.
pub const CACHE_ENTRIES: u32 = 256;

/// Counters by the driver's names (`ethtool -S`: `rx_cache_reuse` and so on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCacheStats {
    /// The oldest page was idle and was taken.
    pub cache_reuse: u64,
    /// The ring was empty.
    pub cache_empty: u64,
    /// Somebody else still used the oldest page; younger ones are not looked at.
    pub cache_busy: u64,
    /// The ring was full, and a page was given up.
    pub cache_full: u64,
    /// A page of another node was given up.
    pub cache_waive: u64,
}

impl RxCacheStats {
    /// Times that a page was wanted.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.cache_reuse + self.cache_empty + self.cache_busy
    }
}

/// See the [module's documentation](super).
///
/// Its memory is a block of `entries` numbers that `new` reserved for it alone; nobody else knows
/// the address until `drop` gives it back.
pub struct RxCache<'p, M: Machine> {
    pages: &'p PageAllocator<M>,
    /// Numbers of pages, from `head` on, round: `entries` of them in a block of the region.
    ring: NonNull<u32>,
    /// A power of two.
    entries: usize,
    /// Entry of the oldest page.
    head: usize,
    /// Pages in the ring.
    len: usize,
    waives_remote: bool,
    stats: RxCacheStats,
}

// SAFETY: the ring's memory is reached through this value alone (see the type), so whichever thread
// has the value may use it; the page allocator is shared, which `Sync` allows.
unsafe impl<M: Machine> Send for RxCache<'_, M> where PageAllocator<M>: Sync {}

impl<'p, M: Machine> RxCache<'p, M> {
    /// An empty ring of `entries`, a power of two from 2 on, of which all but one can be used. Eras
    /// after 4.13 keep no pages of other nodes. `None` if the number is none of these or the
    /// machine's structure range is full.
    pub fn new(pages: &'p PageAllocator<M>, era: Era, entries: u32) -> Option<Self> {
        if entries < 2 || !entries.is_power_of_two() {
            return None;
        }
        let bytes = entries as usize * size_of::<u32>();
        // The lock on the structure range is not to be held at a fork.
        let _pass = pages.gate().enter(pages.machine());
        let ring = pages.meta().alloc(pages.machine(), bytes)?.cast();
        Some(Self {
            pages,
            ring,
            entries: entries as usize,
            head: 0,
            len: 0,
            waives_remote: era > Era::V4_13,
            stats: RxCacheStats::default(),
        })
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> RxCacheStats {
        self.stats
    }

    /// Pages in the ring, idle or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages that the ring can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries - 1
    }

    fn ring(&self) -> &[u32] {
        // SAFETY: the block holds this many zero-filled or written numbers, aligned to at least 64
        // bytes, stays where it is as long as the machine (M3), which the borrowed page allocator
        // owns, and nobody else reaches it (see the type).
        unsafe { core::slice::from_raw_parts(self.ring.as_ptr(), self.entries) }
    }

    fn ring_mut(&mut self) -> &mut [u32] {
        // SAFETY: as in `ring`; `&mut self` makes this the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.ring.as_ptr(), self.entries) }
    }

    /// The pages in the ring, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Pfn> + '_ {
        (0..self.len).map(|at| Pfn(self.ring()[self.slot(at)]))
    }

    /// Entry of the page that `at` others are older than.
    fn slot(&self, at: usize) -> usize {
        (self.head + at) & (self.entries - 1)
    }

    /// The oldest page, with the driver's reference, if nobody else has one. If somebody has, the
    /// younger pages behind it are not looked at (head-of-line blocking).
    pub fn get(&mut self) -> Option<Pfn> {
        if self.len == 0 {
            self.stats.cache_empty += 1;
            return None;
        }
        let oldest = Pfn(self.ring()[self.head]);
        // The count says that nobody else has the page; what they did with it is seen after
        // `is_sole_reference`, which is ordered behind their giving it back.
        let idle = self.pages.page_count(oldest) == 1;
        if !(idle && self.pages.map().page(oldest).is_sole_reference()) {
            self.stats.cache_busy += 1;
            return None;
        }
        self.head = self.slot(1);
        self.len -= 1;
        self.stats.cache_reuse += 1;
        Some(oldest)
    }

    /// Takes over the driver's reference to a page, which others may use still. If the ring is full,
    /// or does not keep pages of that node, the reference is dropped.
    ///
    /// # Errors
    ///
    /// [`PageError`] if there is no such reference: the page is not an allocated block.
    pub fn put(&mut self, pfn: Pfn) -> Result<(), PageError> {
        self.pages.check_referenced(pfn)?;
        if self.len == self.capacity() {
            self.stats.cache_full += 1;
        } else if self.waives_remote && !is_local(self.pages, pfn) {
            self.stats.cache_waive += 1;
        } else {
            let tail = self.slot(self.len);
            self.ring_mut()[tail] = pfn.0;
            self.len += 1;
            return Ok(());
        }
        self.pages.put_page(pfn).map(drop)
    }
}

impl<M: Machine> Drop for RxCache<'_, M> {
    /// Drops the references to all pages in the ring, and returns the ring's memory.
    fn drop(&mut self) {
        for pfn in self.iter() {
            // An error would mean that somebody has given back a reference that was the driver's.
            let _ = self.pages.put_page(pfn);
        }
        self.ring_mut().fill(0);
        let _pass = self.pages.gate().enter(self.pages.machine());
        let bytes = self.entries * size_of::<u32>();
        let block = self.ring.cast();
        // SAFETY: `new` reserved exactly this block, it is all zero, and nobody uses it after this.
        unsafe { self.pages.meta().free(self.pages.machine(), block, bytes) };
    }
}
