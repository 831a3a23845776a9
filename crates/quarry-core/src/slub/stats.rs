//! The counters of SLUB.

use crate::stats::Counter;

crate::stats::counters! {
    /// A counter of SLUB.
    AllocFastpath,
    FreeFastpath,
    AllocSlowpath,
    FreeSlowpath,
    FreeFrozen,
    FreeAddPartial,
    FreeRemovePartial,
    AllocFromPartial,
    AllocSlab,
    AllocRefill,
    AllocNodeMismatch,
    FreeSlab,
    CpuslabFlush,
    DeactivateFull,
    DeactivateEmpty,
    DeactivateToHead,
    DeactivateToTail,
    DeactivateRemoteFrees,
    DeactivateBypass,
    OrderFallback,
    CpuPartialAlloc,
    CpuPartialFree,
    CpuPartialNode,
    CpuPartialDrain,
    CmpxchgDoubleFail,
    FreeDeferred,
}

/// The counters of a design that makes slabs as SLUB does.
pub(crate) trait CountsSlabs: Counter {
    /// A new slab.
    const ALLOC_SLAB: Self;
    /// A new slab of the order to fall back to.
    const ORDER_FALLBACK: Self;
}

impl CountsSlabs for Stat {
    const ALLOC_SLAB: Self = Self::AllocSlab;
    const ORDER_FALLBACK: Self = Self::OrderFallback;
}
