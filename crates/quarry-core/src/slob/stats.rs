//! The counters of SLOB.

crate::stats::counters! {
    /// A counter of SLOB.
    shared:
    AllocSlowpath,
    FreeSlowpath,
    AllocSlab,
    FreeSlab,
    FreeDeferred,
}
