//! The counters of SLAB.

crate::stats::counters! {
    /// A counter of SLAB.
    AllocFastpath,
    FreeFastpath,
    AllocSlowpath,
    FreeSlowpath,
    FreeAddPartial,
    FreeRemovePartial,
    AllocFromPartial,
    AllocSlab,
    FreeSlab,
    Reaped,
    NodeAllocs,
    NodeFrees,
    AlienOverflow,
    QueueFlush,
    FreeDeferred,
}
