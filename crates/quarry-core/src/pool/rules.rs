//! Differences between eras, as data (`net/core/page_pool.c`).

use crate::era::Era;

/// Pages that a refill or a slow allocation takes at a time at most (`PP_ALLOC_CACHE_REFILL`).
pub const REFILL_PAGES: usize = if cfg!(loom) { 2 } else { 64 };

/// The rules of a release for pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRules {
    /// Pages that a refill takes from the ring.
    pub refill: u32,
    /// Pages of order 0 that a slow allocation takes from the page allocator.
    pub bulk: u32,
    /// Most pages that a ring can hold.
    pub ring_limit: u32,
    /// A larger ring is cut to the limit instead of refused.
    pub clamps: bool,
    /// Pages can be handed out in pieces.
    pub pieces: bool,
}

/// The rules of a release. Kernels before 4.18 have no page pool; on a machine of such a release it
/// follows 4.18's.
///
/// From 5.13 on a slow allocation takes as many pages as a refill; from 7.1 on a refill takes 256 KiB: 64
/// pages of 4 KiB, 16 of 16 KiB, 4 of 64 KiB (facts on versions, 9).
#[must_use]
pub fn pool_rules(era: Era, page_shift: u32) -> PoolRules {
    let all = REFILL_PAGES as u32;
    let refill = if era >= Era::V7_1 {
        (all >> page_shift.saturating_sub(12)).max(1)
    } else {
        all
    };
    let clamps = era >= Era::V6_18;
    PoolRules {
        refill,
        bulk: if era >= Era::V5_13 { refill } else { 1 },
        ring_limit: if clamps { 16_384 } else { 32_768 },
        clamps,
        pieces: era >= Era::V6_1,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Facts on versions, 9.
    #[test]
    fn refills_by_release_and_page_size() {
        let sizes = |era| [12, 14, 16].map(|shift| pool_rules(era, shift).refill);
        assert_eq!(sizes(Era::V7_0), [64, 64, 64]);
        assert_eq!(sizes(Era::V7_1), [64, 16, 4]);
        let bulk = |era| pool_rules(era, 16).bulk;
        let releases = [Era::V5_12, Era::V5_13, Era::V7_0, Era::V7_1];
        assert_eq!(releases.map(bulk), [1, 64, 64, 4]);
    }
}
