//! The kernel's watermark check by release (facts 7.8): whether a zone may serve a request, and what it lacks if not.
//!
//! A request takes a block if the zone keeps its mark, and what others have a claim to, without it. Then a free block
//! must be large enough, and of a type that the request may take.
//!
//! | from | rule | source |
//! |---|---|---|
//! | 2.6 | smaller blocks do not count, and the mark is halved for each order; [`Access::high`] takes half of it, [`Access::harder`] a quarter of what is left | Piggin, Sep 2004 |
//! | 4.4 | one mark for all orders, and one block of the order is enough; blocks are reserved for [`Access::harder`] requests of more than a page, up to a hundredth of the zone and a block, and others do not count them | Gorman, Sep 2015 |
//! | 5.9 | single pages of [`Access::high`] requests pass without the boost | Reddy, Jun 2020 |
//! | 6.8 | the reserve's limit is a hundredth rounded up to a block, none where a hundredth is below a block; it is given back before a task is killed | Kalla, Nov 2023 |
//! | 6.12 | free pages of the reserve are kept back, before all of it; single pages of [`Access::harder`] requests may come from it | Zhao, Fleming, Oct 2024 |
//!
//! Stable updates have some of these in older releases.

use crate::era::Era;

/// True if taking a block of an order leaves at least `kept` pages: the one comparison of all releases.
#[inline]
pub(crate) const fn leaves(free: u64, kept: u64, order: u32) -> bool {
    free >= kept + (1 << order)
}

/// Types of free blocks on the lists of an order, as letters of the kernel's reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockTypes(u8);

impl BlockTypes {
    /// Letters, in the order of [`BlockTypes::names`].
    const LETTERS: &'static str = "UMERHCI";
    const NAMES: [&'static str; 7] = [
        "Unmovable",
        "Movable",
        "Reclaimable",
        "Reserve",
        "HighAtomic",
        "CMA",
        "Isolate",
    ];
    /// Types that any request may take, the last as a last resort before 4.4.
    const COMMON: Self = Self(0b1111);
    /// Blocks kept for atomic requests.
    pub const HIGH_ATOMIC: Self = Self(1 << 4);
    /// Blocks of the contiguous memory allocator.
    pub const CMA: Self = Self(1 << 5);

    /// The types of letters such as `UMEH`; `None` for another letter.
    #[must_use]
    pub fn parse(letters: &str) -> Option<Self> {
        let mut types = Self::default();
        for letter in letters.chars() {
            types.0 |= 1 << Self::LETTERS.find(letter)?;
        }
        Some(types)
    }

    /// True without a type.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if one of the types is among others.
    #[must_use]
    pub const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// The types of both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Names of the types, as `/proc/pagetypeinfo` has them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = Self::NAMES.into_iter().enumerate();
        names.filter_map(move |(at, name)| (self.0 & 1 << at != 0).then_some(name))
    }
}

/// Free blocks of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeList {
    /// Blocks on all lists of the order.
    pub blocks: u64,
    /// Types that have one of them, or more; empty if untold, then the blocks count as usable.
    pub types: BlockTypes,
}

/// Memory below the mark, and blocks of other types, that a request may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Half of the mark (`__GFP_HIGH`).
    pub high: bool,
    /// A quarter of what is left of it, and the reserve (`GFP_ATOMIC`).
    pub harder: bool,
    /// The reserve, and half of the mark (a task that is being killed).
    pub oom_victim: bool,
    /// No mark at all (`__GFP_MEMALLOC`).
    pub no_watermarks: bool,
    /// Blocks of the contiguous memory allocator (`__GFP_MOVABLE`).
    pub cma: bool,
}

/// Pages of a zone, as a report has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZonePages<'a> {
    /// Free pages.
    pub free: u64,
    /// The mark, the boost included.
    pub mark: u64,
    /// Pages by which the mark is boosted.
    pub boost: u64,
    /// Pages kept back from requests that could have had a higher zone.
    pub lowmem_reserve: u64,
    /// Pages of blocks reserved for atomic requests.
    pub reserved_high_atomic: u64,
    /// Free ones of these.
    pub free_high_atomic: u64,
    /// Free pages of the contiguous memory allocator.
    pub free_cma: u64,
    /// Free blocks by order.
    pub lists: &'a [FreeList],
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The zone may serve the request.
    Passes,
    /// Pages are missing.
    Below {
        /// Their number.
        pages: u64,
    },
    /// No free block is large enough.
    NoBlock,
    /// Blocks are large enough, but all of types that the request may not take.
    OtherTypes {
        /// Their number.
        blocks: u64,
        /// Their types.
        types: BlockTypes,
    },
}

/// A check, with what it compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The mark for this request.
    pub mark: u64,
    /// Free pages that do not count for it.
    pub kept_back: u64,
    /// Free blocks that are large enough and may have a type that it can take.
    pub usable_blocks: u64,
    /// The outcome.
    pub verdict: Verdict,
}

/// Checks a request of 2^`order` pages as a release does.
#[must_use]
pub fn check(era: Era, order: u32, access: Access, zone: &ZonePages<'_>) -> Checked {
    let mark = lowered(era, order, access, zone);
    let kept_back = kept_back(era, access, zone);
    let mut allowed = BlockTypes::COMMON;
    if access.cma {
        allowed = allowed.and(BlockTypes::CMA);
    }
    let from_reserve = access.harder && (order > 0 || era >= Era::V6_12);
    if from_reserve || access.oom_victim || access.no_watermarks {
        allowed = allowed.and(BlockTypes::HIGH_ATOMIC);
    }
    let (mut usable_blocks, mut others, mut types) = (0_u64, 0_u64, BlockTypes::default());
    for list in zone.lists.iter().skip(order as usize) {
        if list.types.is_empty() || list.types.meets(allowed) {
            usable_blocks = usable_blocks.saturating_add(list.blocks);
        } else if list.blocks > 0 {
            others = others.saturating_add(list.blocks);
            types = types.and(list.types);
        }
    }
    let missing = match access.no_watermarks {
        true => 0,
        false => missing(era, order, mark, kept_back, zone),
    };
    let verdict = match (missing, usable_blocks, others) {
        (1.., _, _) => Verdict::Below { pages: missing },
        (_, 1.., _) => Verdict::Passes,
        // Without lists nothing is known of blocks.
        _ if zone.lists.is_empty() => Verdict::Passes,
        (_, _, 0) => Verdict::NoBlock,
        _ => Verdict::OtherTypes {
            blocks: others,
            types,
        },
    };
    Checked {
        mark,
        kept_back,
        usable_blocks,
        verdict,
    }
}

/// The mark that a request must leave.
fn lowered(era: Era, order: u32, access: Access, zone: &ZonePages<'_>) -> u64 {
    let without_boost = era >= Era::V5_9 && order == 0 && access.high;
    let mut mark = match without_boost {
        true => zone.mark.saturating_sub(zone.boost),
        false => zone.mark,
    };
    if access.high {
        mark -= mark / 2;
    }
    if access.oom_victim {
        mark -= mark / 2;
    } else if access.harder {
        mark -= mark / 4;
    }
    mark
}

/// Free pages that do not count for a request.
fn kept_back(era: Era, access: Access, zone: &ZonePages<'_>) -> u64 {
    let reserved = match era {
        _ if access.harder || access.oom_victim || era < Era::V4_4 => 0,
        _ if era >= Era::V6_12 => zone.free_high_atomic,
        _ => zone.reserved_high_atomic,
    };
    let cma = if access.cma { 0 } else { zone.free_cma };
    reserved.saturating_add(cma)
}

/// Pages that a zone lacks to leave its marks.
fn missing(era: Era, order: u32, mark: u64, kept_back: u64, zone: &ZonePages<'_>) -> u64 {
    let free = zone.free.saturating_sub(kept_back);
    let lacks = |free: u64, kept: u64| {
        // A report may have any number.
        let kept = kept.min(u64::MAX / 2);
        match leaves(free, kept, order) {
            true => 0,
            false => (kept + (1 << order)) - free,
        }
    };
    let all = lacks(free, mark.saturating_add(zone.lowmem_reserve));
    if all > 0 || era >= Era::V4_4 {
        return all;
    }
    let (mut free, mut mark) = (free, mark);
    for (list, below) in zone.lists.iter().zip(0..order) {
        free = free.saturating_sub(list.blocks.saturating_mul(1 << below));
        mark /= 2;
        let missing = lacks(free, mark);
        if missing > 0 {
            return missing;
        }
    }
    0
}

/// Pages that a release reserves at most for atomic requests, in a zone of `managed` pages with blocks of
/// `block_pages`.
#[must_use]
pub const fn reserve_limit(era: Era, managed: u64, block_pages: u64) -> u64 {
    let hundredth = managed / 100;
    if !era.since(Era::V4_4) || block_pages == 0 {
        0
    } else if !era.since(Era::V6_8) {
        // The last block is added while less than this is reserved.
        (hundredth + block_pages).next_multiple_of(block_pages)
    } else if hundredth < block_pages {
        0
    } else {
        hundredth.next_multiple_of(block_pages)
    }
}

/// True if a release gives the whole reserve back before it kills a task.
#[must_use]
pub const fn empties_reserve_before_kill(era: Era) -> bool {
    era.since(Era::V6_8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATOMIC: Access = Access {
        high: true,
        harder: true,
        oom_victim: false,
        no_watermarks: false,
        cma: false,
    };

    fn lists<const N: usize>(of: [(u64, &str); N]) -> [FreeList; N] {
        of.map(|(blocks, letters)| FreeList {
            blocks,
            types: BlockTypes::parse(letters).unwrap(),
        })
    }

    fn verdict(era: Era, order: u32, access: Access, zone: &ZonePages<'_>) -> Verdict {
        check(era, order, access, zone).verdict
    }

    /// Zhao, Oct 2024: free 1482936 kB, min 410416 kB, reserved 1073152 kB with no free page in it. 370734 - 268288 =
    /// 102446 pages are less than 102604 and the page asked for.
    #[test]
    fn all_reserved_pages_are_kept_back_before_6_12() {
        let free = lists([(1292, "ME"), (1920, "E"), (383, "UE")]);
        let zone = ZonePages {
            free: 370_734,
            mark: 102_604,
            reserved_high_atomic: 268_288,
            lists: &free,
            ..ZonePages::default()
        };
        let cma = Access {
            cma: true,
            ..Access::default()
        };
        for (era, expected) in [
            (Era::V4_3, Verdict::Passes),
            (Era::V4_4, Verdict::Below { pages: 159 }),
            (Era::V6_11, Verdict::Below { pages: 159 }),
            (Era::V6_12, Verdict::Passes),
        ] {
            assert_eq!(verdict(era, 0, cma, &zone), expected, "{era}");
        }
        assert_eq!(verdict(Era::V6_11, 0, ATOMIC, &zone), Verdict::Passes);
        assert_eq!(check(Era::V6_11, 0, cma, &zone).kept_back, 268_288);
    }

    /// The mark of 1000: half for high, then a quarter of 500 for harder; a boost of 200 does not count for single pages
    /// from 5.9 on (800 / 2 = 400, less a quarter).
    #[test]
    fn marks_are_lowered_by_what_a_request_may_do() {
        let zone = ZonePages {
            mark: 1000,
            boost: 200,
            ..ZonePages::default()
        };
        let high = Access {
            high: true,
            ..Access::default()
        };
        let harder = Access {
            harder: true,
            ..Access::default()
        };
        let victim = Access {
            oom_victim: true,
            harder: true,
            ..Access::default()
        };
        for (era, order, access, expected) in [
            (Era::V6_1, 0, Access::default(), 1000),
            (Era::V6_1, 1, high, 500),
            (Era::V6_1, 1, harder, 750),
            (Era::V6_1, 1, ATOMIC, 375),
            (Era::V6_1, 1, victim, 500),
            (Era::V5_8, 0, ATOMIC, 375),
            (Era::V5_9, 0, ATOMIC, 300),
            (Era::V5_9, 0, high, 400),
        ] {
            let checked = check(era, order, access, &zone);
            assert_eq!(checked.mark, expected, "{era} {order} {access:?}");
        }
    }

    /// 116 pages are exactly what a mark of 100 and a request of 16 pages need; a page less fails, on each side of each
    /// term.
    #[test]
    fn every_term_counts_to_the_page() {
        let free = lists([(0, ""), (0, ""), (0, ""), (0, ""), (1, "U")]);
        let enough = ZonePages {
            free: 116,
            mark: 100,
            lists: &free,
            ..ZonePages::default()
        };
        let order_4 = |zone| verdict(Era::V6_12, 4, Access::default(), &zone);
        assert_eq!(order_4(enough), Verdict::Passes);
        let one = Verdict::Below { pages: 1 };
        let lacking = [
            ZonePages {
                free: 115,
                ..enough
            },
            ZonePages {
                mark: 101,
                ..enough
            },
            ZonePages {
                lowmem_reserve: 1,
                ..enough
            },
            ZonePages {
                free_high_atomic: 1,
                ..enough
            },
            ZonePages {
                free_cma: 1,
                ..enough
            },
        ];
        assert_eq!(lacking.map(order_4), [one; 5]);
        let memalloc = Access {
            no_watermarks: true,
            ..Access::default()
        };
        let endless = ZonePages {
            mark: u64::MAX,
            ..enough
        };
        assert!(matches!(order_4(endless), Verdict::Below { .. }));
        let none = ZonePages { free: 16, ..enough };
        assert_eq!(verdict(Era::V6_12, 4, memalloc, &none), Verdict::Passes);
    }

    #[test]
    fn blocks_have_to_be_large_enough_and_of_a_type() {
        let of = |letters| lists([(500, "UM"), (0, ""), (3, letters), (2, letters)]);
        let told = |order, access, letters, era| {
            let free = of(letters);
            let zone = ZonePages {
                free: 528,
                lists: &free,
                ..ZonePages::default()
            };
            verdict(era, order, access, &zone)
        };
        let other = |letters| Verdict::OtherTypes {
            blocks: 5,
            types: BlockTypes::parse(letters).unwrap(),
        };
        let plain = Access::default();
        let cma = Access { cma: true, ..plain };
        let era = Era::V6_1;
        assert_eq!(told(4, plain, "U", era), Verdict::NoBlock);
        assert_eq!(told(2, plain, "UH", era), Verdict::Passes);
        assert_eq!(told(2, plain, "H", era), other("H"));
        assert_eq!(told(2, ATOMIC, "H", era), Verdict::Passes);
        assert_eq!(told(2, plain, "C", era), other("C"));
        assert_eq!(told(2, cma, "C", era), Verdict::Passes);
        assert_eq!(told(2, ATOMIC, "CI", era), other("IC"));
        assert_eq!(told(2, plain, "", era), Verdict::Passes, "untold types");
        let names = BlockTypes::parse("HC").unwrap().names();
        assert!(names.eq(["HighAtomic", "CMA"]));
        assert_eq!(BlockTypes::parse("UX"), None);
    }

    /// Fleming, Oct 2024: single pages for atomic requests passed the check, and could not have the reserve's.
    #[test]
    fn single_pages_come_from_the_reserve_from_6_12() {
        let free = lists([(40, "H"), (2, "H")]);
        let zone = ZonePages {
            free: 44,
            reserved_high_atomic: 512,
            free_high_atomic: 44,
            lists: &free,
            ..ZonePages::default()
        };
        let types = BlockTypes::HIGH_ATOMIC;
        let other = Verdict::OtherTypes { blocks: 42, types };
        assert_eq!(verdict(Era::V6_11, 0, ATOMIC, &zone), other);
        assert_eq!(verdict(Era::V6_12, 0, ATOMIC, &zone), Verdict::Passes);
        assert_eq!(verdict(Era::V6_11, 1, ATOMIC, &zone), Verdict::Passes);
    }

    /// Before 4.4: 100 single pages and 10 blocks of two do not count for a block of four pages, the mark of 60 is halved
    /// twice. 136 - 60 passes first; 36 against 30 + 4; 16 against 15 + 4 lacks three pages.
    #[test]
    fn smaller_blocks_did_not_count_before_4_4() {
        let free = lists([(100, "U"), (10, "U"), (4, "R")]);
        let zone = ZonePages {
            free: 136,
            mark: 60,
            lists: &free,
            ..ZonePages::default()
        };
        let old = |zone| verdict(Era::V4_3, 2, Access::default(), &zone);
        assert_eq!(old(zone), Verdict::Below { pages: 3 });
        assert_eq!(old(ZonePages { mark: 48, ..zone }), Verdict::Passes);
        let new = verdict(Era::V4_4, 2, Access::default(), &zone);
        assert_eq!(new, Verdict::Passes);
    }

    /// Kalla, Nov 2023: a zone of 49,224 kB had 8,192 kB reserved, a sixth. 123 + 1,024 pages are two blocks of 1,024. The
    /// 1,073,152 kB of Zhao's zone are 524 blocks of 512.
    #[test]
    fn the_reserve_is_limited_by_release() {
        let managed = 49_224 / 4;
        assert_eq!(reserve_limit(Era::V4_3, managed, 1024), 0);
        assert_eq!(reserve_limit(Era::V4_4, managed, 1024), 8192 / 4);
        assert_eq!(reserve_limit(Era::V6_7, managed, 1024), 8192 / 4);
        assert_eq!(reserve_limit(Era::V6_8, managed, 1024), 0);
        assert_eq!(reserve_limit(Era::V6_8, 51_200, 512), 512);
        assert_eq!(reserve_limit(Era::V6_8, 51_300, 512), 1024);
        assert_eq!(reserve_limit(Era::V6_7, 51_200, 512), 1024);
        assert!(empties_reserve_before_kill(Era::V6_8) && !empties_reserve_before_kill(Era::V6_7));
    }
}
