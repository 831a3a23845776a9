//! What SLOB counts.

crate::stats::counters! {
    /// A counter of SLOB.
    shared:
    AllocSlowpath,
    FreeSlowpath,
    AllocSlab,
    FreeSlab,
    FreeDeferred,
}
