//! Merging of caches: a new cache that an existing one can serve becomes an alias of it.
//!
//! The kernel does this unless booted with `slub_nomerge`; here it is done only on request
//! ([`BootParams::merge`]): a program that makes a cache for one type wants counters, limits and
//! memory of its own. A cache that is merged is one cache with several names: each name holds a
//! reference, and destroying the last name destroys the cache.
//!
//! [`BootParams::merge`]: crate::geometry::BootParams::merge

use core::fmt;

use crate::geometry::{CacheFlags, Layout, WORD_BYTES, up};
use crate::name::Name;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// Choice among several caches that match a new one. Two caches that both match would mostly have been merged
/// with each other, so this decides only after races between creations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeSearch {
    /// The one made last [until 3.18].
    NewestFirst,
    /// The one made first [3.19 and later].
    OldestFirst,
}

/// When caches are merged, by design and era (`find_mergeable()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergeRules {
    /// Choice among several matches.
    pub search: MergeSearch,
    /// kmalloc caches take others in; if not, the copying checks or memory cgroups keep them apart.
    pub into_kmalloc: bool,
    /// The new cache's alignment must divide the existing one's, too [SLAB 6.1].
    pub align_divides: bool,
    /// A cache with one of these flags is never merged.
    pub never: CacheFlags,
    /// These flags must agree.
    pub same: CacheFlags,
}

/// Flags common to all eras' [`MergeRules::never`].
pub const NEVER_MERGED: CacheFlags = CacheFlags::RED_ZONE
    .union(CacheFlags::POISON)
    .union(CacheFlags::STORE_USER)
    .union(CacheFlags::RCU)
    .union(CacheFlags::CTOR);

/// Request of a new cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Bytes of an object.
    pub(crate) object_size: u32,
    /// Its alignment, as the era computes it.
    pub(crate) align: u32,
    pub(crate) flags: CacheFlags,
}

impl MergeRules {
    /// True if a cache with these flags may be merged at all.
    fn allows(&self, flags: CacheFlags) -> bool {
        !flags.intersects(self.never)
    }

    /// True if a cache with these flags may have aliases.
    pub(crate) fn takes_others(&self, flags: CacheFlags) -> bool {
        self.allows(flags) && (self.into_kmalloc || !flags.contains(CacheFlags::KMALLOC))
    }

    /// True if a new cache may become an alias.
    pub(crate) fn allows_wish(&self, wish: &Wish) -> bool {
        // kmalloc caches are made at boot, without a look at others.
        self.allows(wish.flags) && !wish.flags.contains(CacheFlags::KMALLOC)
    }

    /// True if an existing cache of these flags and this layout can serve a new one.
    pub(crate) fn matches(&self, flags: CacheFlags, layout: &Layout, wish: &Wish) -> bool {
        /// An object may be in a slot with less slack than this, in bytes.
        const SLACK: u32 = WORD_BYTES;
        let flag_agrees = |flag| flags.contains(flag) == wish.flags.contains(flag);
        let agree = [CacheFlags::RECLAIM, CacheFlags::CONSISTENCY]
            .into_iter()
            .filter(|flag| self.same.contains(*flag))
            .all(flag_agrees);
        let size = up(up(wish.object_size, WORD_BYTES), wish.align);
        self.takes_others(flags)
            && agree
            && size <= layout.size
            && layout.size.is_multiple_of(wish.align)
            && layout.size - size < SLACK
            && (!self.align_divides || layout.align.is_multiple_of(wish.align))
    }
}

/// Another name of a cache. Lives in the heap's structures until the cache is destroyed.
pub(crate) struct Alias {
    pub(crate) next: *mut Alias,
    pub(crate) name: Name,
}

/// References and names of a cache that others were merged into.
pub(crate) struct Merged {
    /// Caches that were made of this one; changes only under the lock on the list of caches.
    pub(crate) references: AtomicU32,
    /// Newest alias.
    pub(crate) aliases: AtomicPtr<Alias>,
    /// Largest object size of all.
    pub(crate) object_size: AtomicU32,
}

impl Merged {
    pub(crate) fn new(object_size: u32) -> Self {
        Self {
            references: AtomicU32::new(1),
            aliases: AtomicPtr::new(core::ptr::null_mut()),
            object_size: AtomicU32::new(object_size),
        }
    }

    /// Calls `f` for each alias, newest first.
    ///
    /// # Safety
    ///
    /// The cache is not destroyed meanwhile.
    pub(crate) unsafe fn for_each(&self, mut f: impl FnMut(&str)) {
        // Acquire: pairs with the Release by which the heap adds an alias.
        let mut next = self.aliases.load(Ordering::Acquire);
        // SAFETY: aliases are initialised before they are added, never change, and live as long as
        // the cache, which the caller keeps.
        while let Some(alias) = unsafe { next.as_ref() } {
            f(alias.name.as_str());
            next = alias.next;
        }
    }
}

/// The name of a mergeable cache's directory in sysfs, such as `:0000192` or `:a-0000104`
/// (`create_unique_id()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId {
    pub(crate) flags: CacheFlags,
    pub(crate) slab_size: u32,
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(":")?;
        let letters = [(CacheFlags::RECLAIM, "a"), (CacheFlags::CONSISTENCY, "F")];
        let mut dash = "";
        for (flag, letter) in letters {
            if self.flags.contains(flag) {
                f.write_str(letter)?;
                dash = "-";
            }
        }
        write!(f, "{dash}{:07}", self.slab_size)
    }
}
