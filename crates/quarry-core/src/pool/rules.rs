//! What differs between eras, as data (`net/core/page_pool.c`).

use crate::era::Era;

/// The rules of one era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRules {
    /// Pages of order 0 that a slow allocation takes from the page allocator.
    pub bulk: u32,
    /// Most pages that a ring can hold.
    pub ring_limit: u32,
    /// Whether a larger ring is cut to the limit instead of refused.
    pub clamps: bool,
    /// Whether pages can be handed out in pieces.
    pub pieces: bool,
}

/// Until 5.12.
const SINGLE: PoolRules = PoolRules {
    bulk: 1,
    ring_limit: 32_768,
    clamps: false,
    pieces: false,
};
const BULK: PoolRules = PoolRules {
    bulk: super::types::REFILL_PAGES as u32,
    ring_limit: 32_768,
    clamps: false,
    pieces: false,
};
const PIECES: PoolRules = PoolRules {
    pieces: true,
    ..BULK
};
const CLAMPED: PoolRules = PoolRules {
    ring_limit: 16_384,
    clamps: true,
    ..PIECES
};

/// The rules of an era. Kernels before 4.18 have no page pool; on a machine of such an era it
/// follows the oldest rules known, 5.9's.
#[must_use]
pub fn pool_rules(era: Era) -> &'static PoolRules {
    match era {
        _ if era >= Era::V6_18 => &CLAMPED,
        _ if era >= Era::V6_1 => &PIECES,
        _ if era >= Era::V5_13 => &BULK,
        _ => &SINGLE,
    }
}
