//! Errors of frees, and of walks over a cache.

use crate::page::Pfn;

/// Reason why an object was not freed. Nothing has changed when this is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FreeError {
    /// The address is not in this machine's memory, or not in a slab.
    Foreign,
    /// The object belongs to another cache.
    WrongCache,
    /// The address is inside a slab of this cache but is not the start of an object.
    NotAnObject,
    /// The object is free already.
    DoubleFree,
    /// The size that the free names is not that of the allocation.
    WrongSize,
    /// There is no memory to note a deferred free: wait until no reader can hold the object, then
    /// free it at once.
    NoRoom,
    /// Debugging found the object overrun. It is not used again; the report says
    /// more.
    Corrupt,
    /// The cache has debugging: the object has to pass [`crate::debug`]. Designs say this to their
    /// heap; no heap says it to its users.
    Unchecked,
}

impl core::fmt::Display for FreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Foreign => "the address is not in a slab of this allocator",
            Self::WrongCache => "the object belongs to another cache",
            Self::NotAnObject => "the address is not the start of an object",
            Self::DoubleFree => "the object is free already",
            Self::WrongSize => "the object was allocated with another size",
            Self::NoRoom => "there is no memory to defer the free; wait for readers, then free it",
            Self::Corrupt => "memory around the object was overwritten",
            Self::Unchecked => "the cache has debugging and the object was not checked",
        })
    }
}

crate::error::debug_is_display!(FreeError);

impl core::error::Error for FreeError {}

/// Contradiction that a design's consistency check found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlabInconsistency {
    /// Broken rule.
    pub what: &'static str,
    /// The slab, if the contradiction is in one.
    pub slab: Option<Pfn>,
    /// Value in the lists or counters.
    pub recorded: u64,
    /// Value that the walk found.
    pub found: u64,
}

impl SlabInconsistency {
    pub(crate) fn equal(
        what: &'static str,
        slab: Option<Pfn>,
        recorded: u64,
        found: u64,
    ) -> Result<(), Self> {
        if recorded == found {
            Ok(())
        } else {
            Err(Self {
                what,
                slab,
                recorded,
                found,
            })
        }
    }
}

impl core::fmt::Display for SlabInconsistency {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(slab) = self.slab {
            write!(f, "slab at page {}: ", slab.0)?;
        }
        write!(
            f,
            "{}: recorded {}, found {}",
            self.what, self.recorded, self.found
        )
    }
}

crate::error::debug_is_display!(SlabInconsistency);

impl core::error::Error for SlabInconsistency {}

/// A cache could not be brought to rest in bounded time: other threads hold a CPU's slot or work
/// without one, or the calling thread itself is in the middle of an operation. Nothing was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the cache is busy and was not looked at; try again")
    }
}

crate::error::debug_is_display!(Busy);

impl core::error::Error for Busy {}

/// Reason why a check of a cache did not succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CheckError {
    /// The cache could not be brought to rest.
    Busy,
    /// The first contradiction.
    Inconsistent(SlabInconsistency),
}

impl CheckError {
    /// The contradiction; `None` if nothing was looked at.
    #[must_use]
    pub const fn found(&self) -> Option<&SlabInconsistency> {
        match self {
            Self::Busy => None,
            Self::Inconsistent(found) => Some(found),
        }
    }
}

impl core::fmt::Display for CheckError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Busy => Busy.fmt(f),
            Self::Inconsistent(found) => found.fmt(f),
        }
    }
}

crate::error::debug_is_display!(CheckError);

impl core::error::Error for CheckError {}

impl From<Busy> for CheckError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<SlabInconsistency> for CheckError {
    fn from(found: SlabInconsistency) -> Self {
        Self::Inconsistent(found)
    }
}
