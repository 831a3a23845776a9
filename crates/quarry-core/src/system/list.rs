//! The list of a heap's caches, newest first, with an index by name.
//!
//! Links are in the caches' heads. They and the index change only under the lock of [`System::caches`](super::System).
//! They are numbers of places in the range of structures: a head of another size would move the lines of the structures
//! behind it, and change what simulated machines measure.

use core::ptr::NonNull;

use crate::design::CacheHead;

/// Chains of the index: with the thousands of caches that a heap has room for, a look-up compares some tens of names.
const CHAINS: usize = 256;

/// log2 of the distance of places: caches' structures are at multiples of it from the range's start, as
/// [`Region`](crate::machine::Region) aligns blocks of this size and more.
const PLACE_SHIFT: u32 = 10;
/// The smallest block that a cache's structure may have.
pub(crate) const PLACE_BYTES: usize = 1 << PLACE_SHIFT;

/// The place of a cache plus 1; 0 for none.
type Link = u32;

/// Places of a cache in the list and in the index, under the list's lock.
#[derive(Clone, Copy)]
pub(crate) struct ListLinks {
    older: Link,
    newer: Link,
    /// The next cache of the same chain.
    next_named: Link,
}

impl ListLinks {
    pub(crate) const fn new() -> Self {
        Self {
            older: 0,
            newer: 0,
            next_named: 0,
        }
    }
}

/// The caches of a heap.
pub(crate) struct CacheList {
    /// Start of the range that the caches are in.
    base: NonNull<u8>,
    newest: Link,
    chains: [Link; CHAINS],
}

impl CacheList {
    /// An empty list for caches in the range that starts at `base`.
    pub(crate) const fn new(base: NonNull<u8>) -> Self {
        Self {
            base,
            newest: 0,
            chains: [0; CHAINS],
        }
    }

    /// The caches, newest first.
    ///
    /// # Safety
    ///
    /// The caller holds the list's lock, and lets go of what this lends before the lock.
    pub(crate) unsafe fn iter<'a>(&self) -> impl Iterator<Item = &'a CacheHead> + use<'a> {
        // SAFETY: the caller holds the lock.
        unsafe { self.follow(self.newest, |links| links.older) }
    }

    /// True if a cache has the name.
    ///
    /// # Safety
    ///
    /// The caller holds the list's lock.
    pub(crate) unsafe fn has_named(&self, name: &str) -> bool {
        let first = self.chains[chain_of(name)];
        // SAFETY: the caller holds the lock.
        let mut chain = unsafe { self.follow(first, |links| links.next_named) };
        chain.any(|head| head.name() == name)
    }

    /// Adds a cache as the newest.
    ///
    /// # Safety
    ///
    /// The caller holds the list's lock. The head begins a block of at least [`PLACE_BYTES`] of the list's
    /// range, is on no list, and lives until it is removed.
    pub(crate) unsafe fn insert(&mut self, head: &CacheHead) {
        let link = self.link_to(head);
        let chain = &mut self.chains[chain_of(head.name())];
        let links = ListLinks {
            older: self.newest,
            newer: 0,
            next_named: *chain,
        };
        *chain = link;
        // SAFETY: the caller holds the lock.
        unsafe { change(head, |own| *own = links) };
        // SAFETY: a link of the list, whose lock the caller holds.
        if let Some(older) = unsafe { head_at(self.base, self.newest) } {
            // SAFETY: the caller holds the lock.
            unsafe { change(older, |older| older.newer = link) };
        }
        self.newest = link;
    }

    /// Removes a cache.
    ///
    /// # Safety
    ///
    /// The caller holds the list's lock, and the head is on the list.
    pub(crate) unsafe fn remove(&mut self, head: &CacheHead) {
        let mut links = ListLinks::new();
        // SAFETY: the caller holds the lock.
        unsafe { change(head, |own| core::mem::swap(own, &mut links)) };
        // SAFETY: a link of a listed cache, whose list's lock the caller holds.
        match unsafe { head_at(self.base, links.newer) } {
            // SAFETY: the caller holds the lock.
            Some(newer) => unsafe { change(newer, |newer| newer.older = links.older) },
            None => self.newest = links.older,
        }
        // SAFETY: as for the newer one.
        if let Some(older) = unsafe { head_at(self.base, links.older) } {
            // SAFETY: the caller holds the lock.
            unsafe { change(older, |older| older.newer = links.newer) };
        }
        let (me, chain) = (self.link_to(head), chain_of(head.name()));
        if self.chains[chain] == me {
            self.chains[chain] = links.next_named;
            return;
        }
        // SAFETY: the caller holds the lock.
        for other in unsafe { self.follow(self.chains[chain], |links| links.next_named) } {
            let unlink = |other: &mut ListLinks| {
                if other.next_named == me {
                    other.next_named = links.next_named;
                }
            };
            // SAFETY: the caller holds the lock.
            unsafe { change(other, unlink) };
        }
    }

    fn link_to(&self, head: &CacheHead) -> Link {
        let offset = core::ptr::from_ref(head).addr() - self.base.addr().get();
        debug_assert!(
            offset.is_multiple_of(1 << PLACE_SHIFT) && offset >> PLACE_SHIFT < u32::MAX as usize
        );
        (offset >> PLACE_SHIFT) as u32 + 1
    }

    /// A cache and those that its links lead to.
    ///
    /// # Safety
    ///
    /// As for [`head_at`].
    unsafe fn follow<'a>(
        &self,
        first: Link,
        next: fn(&ListLinks) -> Link,
    ) -> impl Iterator<Item = &'a CacheHead> + use<'a> {
        let (base, mut at) = (self.base, first);
        core::iter::from_fn(move || {
            // SAFETY: a link of the list, whose lock the caller holds.
            let head = unsafe { head_at(base, at) }?;
            // SAFETY: links are only touched under the list's lock, which the caller holds.
            at = next(unsafe { &*head.links.get() });
            Some(head)
        })
    }
}

/// The cache that a link leads to, in the range that starts at `base`.
///
/// # Safety
///
/// The link is one of a list of this range, whose lock the caller holds until it lets go of what this lends.
unsafe fn head_at<'a>(base: NonNull<u8>, link: Link) -> Option<&'a CacheHead> {
    let place = link.checked_sub(1)? as usize;
    // SAFETY: `link_to` made the link of a head in the range.
    let head = unsafe { base.byte_add(place << PLACE_SHIFT) };
    // SAFETY: a listed head lives: a cache is removed before it is freed, under the lock that the caller holds.
    Some(unsafe { head.cast().as_ref() })
}

/// Changes the links of a cache.
///
/// # Safety
///
/// The caller holds the lock of the cache's list.
unsafe fn change(head: &CacheHead, f: impl FnOnce(&mut ListLinks)) {
    // SAFETY: links are only touched under the list's lock, which the caller holds, and `f` has no way to others.
    f(unsafe { &mut *head.links.get() });
}

/// The chain of a name (FNV-1a).
fn chain_of(name: &str) -> usize {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, step);
    (hash ^ hash >> 16) as usize % CHAINS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::format;
    use std::vec::Vec;

    use super::*;
    use crate::design::{CacheSpec, Design};
    use crate::geometry::{BootParams, CacheFlags, CacheParams, MachineParams};
    use crate::slub::Slub;

    /// A head as a region places it.
    #[repr(align(1024))]
    struct Placed(CacheHead);

    fn head(name: &str) -> Placed {
        let machine = MachineParams {
            page_shift: 12,
            nr_cpus: 1,
            cache_line: 64,
        };
        let params = CacheParams {
            object_size: 64,
            align: 0,
            flags: CacheFlags::NONE,
            sheaf_capacity: 0,
        };
        let era = Slub::DEFAULT_ERA;
        let geometry = Slub::geometry(era, &machine, &BootParams::default(), &params).unwrap();
        Placed(CacheHead::new(&CacheSpec::new(name, 64), era, geometry))
    }

    fn names(list: &CacheList) -> Vec<&str> {
        // SAFETY: the list is this test's alone.
        unsafe { list.iter() }.map(CacheHead::name).collect()
    }

    #[test]
    fn caches_are_listed_and_found_until_they_are_removed() {
        // More than there are chains, so that some share one.
        let all = Vec::from_iter((0..1000).map(|number| head(&format!("cache-{number}"))));
        let mut list = CacheList::new(NonNull::from(&all[..]).cast());
        for Placed(head) in &all {
            // SAFETY: the list is this test's alone, and outlived by the heads.
            assert!(!unsafe { list.has_named(head.name()) });
            // SAFETY: as above, and no head is inserted twice.
            unsafe { list.insert(head) };
        }
        let (gone, kept): (Vec<_>, Vec<_>) =
            all.iter().enumerate().partition(|(at, _)| at % 3 != 1);
        // The newest, the oldest, and neighbours.
        for (_, Placed(head)) in &gone {
            // SAFETY: the list is this test's alone, and the head is listed.
            unsafe { list.remove(head) };
        }
        for (at, Placed(head)) in all.iter().enumerate() {
            // SAFETY: the list is this test's alone.
            assert_eq!(unsafe { list.has_named(head.name()) }, at % 3 == 1);
        }
        let newest_first = kept.iter().rev().map(|(_, Placed(head))| head.name());
        assert_eq!(names(&list), newest_first.collect::<Vec<_>>());
    }

    /// A new cache is compared with few of those that there are.
    #[test]
    fn thousands_of_names_share_the_chains() {
        let mut lengths = [0; CHAINS];
        for number in 0..8000 {
            lengths[chain_of(&format!("cache-{number}"))] += 1;
        }
        assert!(lengths.iter().all(|length| *length < 3 * 8000 / CHAINS));
    }
}
