//! The counters of SLUB with queues.

crate::stats::counters! {
    /// A counter of SLUB with queues.
    AllocFastpath,
    FreeFastpath,
    AllocSlowpath,
    FreeSlowpath,
    FreeAddPartial,
    FreeRemovePartial,
    AllocFromPartial,
    AllocSlab,
    FreeSlab,
    QueueFlush,
    AllocShared,
    FreeShared,
    AllocAlien,
    FreeAlien,
    AllocDirect,
    FreeDirect,
    OrderFallback,
    FreeDeferred,
}
