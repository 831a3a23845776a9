//! Flags of a cache, declared once with the names that users type.

use crate::name::Name;
use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// A set of cache flags (`slab_flags_t`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct CacheFlags(u32);

impl CacheFlags {
    /// No flag.
    pub const NONE: Self = CacheFlags(0);
    /// Align objects to the cache line, or to the part of one they fit in (`SLAB_HWCACHE_ALIGN`).
    pub const HWCACHE_ALIGN: Self = CacheFlags(1);
    /// A freed object stays an object of its type until a grace period has passed
    /// (`SLAB_TYPESAFE_BY_RCU`; `SLAB_DESTROY_BY_RCU` until 4.11).
    pub const RCU: Self = CacheFlags(1 << 1);
    /// Objects are set up by a constructor once per slab and stay so while free (`ctor`).
    pub const CTOR: Self = CacheFlags(1 << 2);
    /// Objects can be given back under memory pressure (`SLAB_RECLAIM_ACCOUNT`). Changes no size.
    pub const RECLAIM: Self = CacheFlags(1 << 3);
    /// The creator names a place inside the object that may hold the free pointer
    /// (`kmem_cache_args.use_freeptr_offset`); from 6.12 on it saves an RCU cache a word, in 7.0 a
    /// constructor cache too; earlier eras ignore it. The free pointer is put where the era puts it
    /// in plain objects.
    pub const FREEPTR_OFFSET: Self = CacheFlags(1 << 4);
    /// Red zones around the object (`SLAB_RED_ZONE`).
    pub const RED_ZONE: Self = CacheFlags(1 << 5);
    /// Fill free objects with a pattern (`SLAB_POISON`).
    pub const POISON: Self = CacheFlags(1 << 6);
    /// Record who allocated and who freed (`SLAB_STORE_USER`).
    pub const STORE_USER: Self = CacheFlags(1 << 7);
    /// Check consistency on every allocation and free (`SLAB_CONSISTENCY_CHECKS`;
    /// `SLAB_DEBUG_FREE` until 4.5). Changes no size.
    pub const CONSISTENCY: Self = CacheFlags(1 << 8);
    /// A kmalloc cache (`SLAB_KMALLOC`, 6.1 and later): with user tracking it records the size of
    /// each request.
    pub const KMALLOC: Self = CacheFlags(1 << 9);

    /// The kernel makes this cache before its secondary CPUs run. Only SLAB's `free_limit` asks.
    pub const EARLY: Self = CacheFlags(1 << 12);

    /// Report every allocation and free (`SLAB_TRACE`). Changes no size.
    pub const TRACE: Self = CacheFlags(1 << 10);
    /// Fail injection may choose the cache (`SLAB_FAILSLAB`). sysfs shows it; Quarry injects no failures.
    pub const FAILSLAB: Self = CacheFlags(1 << 11);
    /// No sheaves (`SLAB_NO_SHEAVES` [7.2]; 7.0 and 7.1 have other flags for the same caches). Changes no
    /// size.
    pub const NO_SHEAVES: Self = CacheFlags(1 << 13);

    /// The objects have a trailer, and the cache a facade ([`crate::harden`]). Heaps set it.
    pub const HARDENED: Self = CacheFlags(1 << 14);

    /// The flags that switch debugging on (`SLAB_DEBUG_FLAGS`).
    pub const DEBUG: Self = CacheFlags(
        Self::RED_ZONE.0
            | Self::POISON.0
            | Self::STORE_USER.0
            | Self::CONSISTENCY.0
            | Self::TRACE.0,
    );

    /// Default of the letters: consistency checks, red zones, poison, user tracking
    /// (`DEBUG_DEFAULT_FLAGS`).
    pub const DEBUG_DEFAULT: Self =
        CacheFlags(Self::RED_ZONE.0 | Self::POISON.0 | Self::STORE_USER.0 | Self::CONSISTENCY.0);

    /// Names of the flags that describe objects, as users type them.
    pub const NAMES: &'static [(&'static str, CacheFlags)] = &[
        ("hwcache", Self::HWCACHE_ALIGN),
        ("rcu", Self::RCU),
        ("ctor", Self::CTOR),
        ("reclaim", Self::RECLAIM),
        ("freeptr", Self::FREEPTR_OFFSET),
    ];

    /// Letters of the `slub_debug` boot parameter that set a flag.
    pub const DEBUG_LETTERS: &'static [(&'static str, CacheFlags)] = &[
        ("F", Self::CONSISTENCY),
        ("Z", Self::RED_ZONE),
        ("P", Self::POISON),
        ("U", Self::STORE_USER),
        ("T", Self::TRACE),
        ("A", Self::FAILSLAB),
    ];

    /// True if every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    pub const fn union(self, other: Self) -> Self {
        CacheFlags(self.0 | other.0)
    }

    /// True if no flag is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags of the first set that are not in the second.
    pub const fn without(self, other: Self) -> Self {
        CacheFlags(self.0 & !other.0)
    }

    /// True if allocations and frees have to pass [`crate::debug`].
    pub const fn debug(self) -> bool {
        self.intersects(Self::DEBUG)
    }

    /// True if allocations and frees have to pass [`crate::debug`] or [`crate::harden`], one by one.
    pub const fn checked(self) -> bool {
        self.intersects(Self::DEBUG.union(Self::HARDENED))
    }

    /// The flags of a list such as `hwcache,rcu`; the empty list is no flags.
    ///
    /// # Errors
    /// [`FlagError`] with the first name that is not in [`CacheFlags::NAMES`].
    ///
    /// ```
    /// use quarry_core::geometry::CacheFlags;
    /// let flags = CacheFlags::parse_list("hwcache,ctor").unwrap();
    /// assert!(flags.contains(CacheFlags::CTOR) && !flags.contains(CacheFlags::RCU));
    /// ```
    pub fn parse_list(list: &str) -> Result<Self, FlagError> {
        let mut flags = Self::NONE;
        for name in list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            flags |= lookup(Self::NAMES, name)?;
        }
        Ok(flags)
    }

    /// The flags of `slub_debug` letters such as `FZPU`; `-` and the empty string are no flags.
    ///
    /// # Errors
    /// [`FlagError`] with the first letter that is not in [`CacheFlags::DEBUG_LETTERS`].
    pub fn parse_debug_letters(letters: &str) -> Result<Self, FlagError> {
        let mut flags = Self::NONE;
        if letters == "-" {
            return Ok(flags);
        }
        for letter in letters.split("").filter(|letter| !letter.is_empty()) {
            flags |= lookup(Self::DEBUG_LETTERS, letter)?;
        }
        Ok(flags)
    }
}

fn lookup(
    valid: &'static [(&'static str, CacheFlags)],
    name: &str,
) -> Result<CacheFlags, FlagError> {
    match valid.iter().find(|(known, _)| *known == name) {
        Some((_, flag)) => Ok(*flag),
        None => Err(FlagError {
            name: Name::new(name),
            valid,
        }),
    }
}

impl BitOr for CacheFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for CacheFlags {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

impl fmt::Debug for CacheFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().chain(Self::DEBUG_LETTERS);
        f.write_str("CacheFlags(")?;
        let mut separator = "";
        for (name, _) in names
            .chain(&[("kmalloc", Self::KMALLOC), ("early", Self::EARLY)])
            .filter(|n| self.contains(n.1))
        {
            write!(f, "{separator}{name}")?;
            separator = " ";
        }
        f.write_str(")")
    }
}

/// A flag name that does not exist. Its message lists the valid ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlagError {
    name: Name,
    valid: &'static [(&'static str, CacheFlags)],
}

impl FlagError {
    /// The name that was not found.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown cache flag {:?}; valid are", self.name)?;
        for (index, (name, _)) in self.valid.iter().enumerate() {
            write!(f, "{} {name}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

crate::error::debug_is_display!(FlagError);

impl core::error::Error for FlagError {}
