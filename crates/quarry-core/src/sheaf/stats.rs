//! The counters of the design with sheaves. Fast operations are renamed where an era counts sheaves apart; in
//! 6.18 the slabs below count for themselves.

use crate::slub::stats::CountsSlabs;

crate::stats::counters! {
    /// A counter of the design with sheaves.
    AllocFastpath,
    FreeFastpath,
    AllocSlowpath,
    FreeSlowpath,
    AllocSlab,
    AllocNodeMismatch,
    FreeSlab,
    OrderFallback,
    FreeRcuSheaf,
    SheafFlush,
    SheafRefill,
    SheafAlloc,
    SheafFree,
    BarnGet,
    BarnGetFail,
    BarnPut,
    BarnPutFail,
    AllocCpuSheaf,
    FreeRcuSheafFail,
}

impl CountsSlabs for Stat {
    const ALLOC_SLAB: Self = Self::AllocSlab;
    const ORDER_FALLBACK: Self = Self::OrderFallback;
}
