//! Behaviour of the per-CPU lists by release. Their orders and sizes are in [`super::geometry`], fallbacks
//! between migrate types in `buddy/fallback.rs`.
//!
//! # Per-CPU lists by release
//!
//! A release is a value of [`Rules`]; the paths are the same for all.
//!
//! | from | lists | refill | drain, at `high` pages |
//! |---|---|---|---|
//! | 2.6.22 | hot and cold, searched for the type | a batch | a batch, oldest first |
//! | 2.6.25 | one, searched for the type | a batch | a batch, oldest first |
//! | 2.6.32 | by type | a batch | a batch, lists in turn |
//! | 4.17 | by type | a batch | a batch, lists in turn; picked before the zone lock is taken |
//! | 5.14 | by order (0 to 3, huge) and type | a batch | doubled by each drain, halved by each allocation |
//! | 5.18 | the same | a batch | the same; the list of the block just freed first, wholly; picked under the lock |
//! | 6.7 | the same | doubled by each refill, halved by each free | what was freed since |
//! | 6.19 | the same | the same | the same, a batch under each hold of the zone lock |
//!
//! From 6.7 on `high` moves between two bounds: up with each refill and with frees, down while
//! the zone is below its high watermark and with each statistics interval
//! ([`vmstat_update`](super::PageAllocator::vmstat_update)).
//!
//! Larger blocks that are freed one after the other end a spree of frees: from 5.18 on, while it grows,
//! the free of one empties the lists. From 6.7 on the second such block gives at most 32 batches, once a
//! batch of frees is counted. From 6.16 on that is a batch and half of the least `high`. Where a CPU has
//! much cache ([`PageConfig::cache_share_bytes`]), the lists must hold a batch as well.
//!
//! # Pages under one hold of the zone lock
//!
//! At most 32 batches (2016 pages of 4 KiB, [`PageConfig::batch_scale_max`]) from 6.7 on, and what the last
//! free of a spree brought beyond them; from 6.19 on drains move a batch each and refills as many as
//! before. From 5.14 to 6.6 at most `high` less a batch. Before 6.10 a flush moves all that a CPU holds,
//! and so does the end of a spree before 6.7. In a process 32 pages move, whatever the release
//! ([`PageConfig::hold_pages`]).

use super::config::{BATCH_SCALE_LIMIT, PageConfig};
use super::geometry::{HighRule, PageEra, page_era};
use super::policy::{CpuLists, Policy};
use super::types::{BlockType, MIGRATE_TYPES, MigrateType, ORDERS};
use crate::era::Era;
use crate::machine::Work;
use crate::protection::Reach;

/// Lists that a CPU has at most for a zone: 5.14 to 5.19.
pub(crate) const PCP_LISTS: usize = 15;
/// In [`Rules::list_of`]: no list holds such blocks.
pub(crate) const NO_LIST: u8 = u8::MAX;

/// Rule for the pages that lists move at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// A batch each time.
    Batch,
    /// Frees that no allocation interrupts drain more each time (`free_factor`).
    FreeFactor,
    /// `high` follows what is allocated and freed (`alloc_factor`, `free_count`).
    Auto,
}

/// The rules of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) era: Era,
    /// log2 of the pages of the largest block.
    pub(crate) max_order: u32,
    /// Chooses blocks in place of the release's rules.
    pub(crate) policy: Option<Policy>,
    /// Pageblocks are reserved for requests of several pages that cannot wait.
    pub(crate) high_atomic: bool,
    pub(crate) tuning: Tuning,
    /// Doublings of a batch by `alloc_factor` and `free_count`, at most ([`Tuning::Auto`]).
    pub(crate) batch_scale_max: u32,
    /// Most pages of a hold of the zone lock.
    pub(crate) hold_pages: u32,
    /// Pages of the CPU's share of the last-level cache.
    pub(crate) cache_share_pages: u32,
    /// The release reports a list for cold pages next to the hot one.
    pub(crate) cold_list: bool,
    /// Blocks of all types are on one list, which is searched for the type.
    pub(crate) mixed: bool,
    /// Use of CPUs' lists by the policy.
    pub(crate) cpu_lists: CpuLists,
    /// Each list has blocks of one order and type, and keeps them as they are.
    pub(crate) plain: bool,
    pub(crate) lists: u8,
    /// The order of the blocks of a list.
    pub(crate) order_of: [u8; PCP_LISTS],
    /// The list of an order and type, or [`NO_LIST`].
    pub(crate) list_of: [[u8; MIGRATE_TYPES]; ORDERS],
}

impl Rules {
    /// The rules of a configuration's release for pages of this size.
    pub(crate) fn new(config: &PageConfig, page_shift: u32) -> Self {
        let era = config.era;
        let PageEra { lists, high, .. } = page_era(era);
        let tuning = match high {
            HighRule::Batches => Tuning::Batch,
            HighRule::LowWatermark => Tuning::FreeFactor,
            HighRule::Tuned => Tuning::Auto,
        };
        let mut list_of = [[NO_LIST; MIGRATE_TYPES]; ORDERS];
        let mut next = 0;
        for order in 0..=lists.max_order.min(config.max_order) {
            for (migratetype, list) in list_of[order as usize].iter_mut().enumerate() {
                *list = next + (migratetype as u8).min(lists.migrate_types as u8 - 1);
            }
            next += lists.migrate_types as u8;
        }
        let huge_order = lists.huge_order(page_shift);
        if let Some(huge_order) = huge_order.filter(|order| *order <= config.max_order) {
            list_of[huge_order as usize] = match lists.huge_lists {
                1 => [next; MIGRATE_TYPES],
                2 => MigrateType::ALL.map(|of| next + u8::from(of == MigrateType::Movable)),
                _ => MigrateType::ALL.map(|of| next + of as u8),
            };
            next += lists.huge_lists as u8;
        }
        let mut order_of = [0; PCP_LISTS];
        for (order, lists) in (0..).zip(&list_of) {
            for &list in lists.iter().filter(|&&list| list != NO_LIST) {
                order_of[usize::from(list)] = order;
            }
        }
        let mixed = lists.migrate_types == 1;
        let of_policy = config.policy.map(|policy| policy.rules().cpu_lists());
        let cpu_lists = of_policy.filter(|_| !mixed).unwrap_or_default();
        let cache_pages = config.cache_share_bytes >> page_shift;
        Self {
            era,
            max_order: config.max_order,
            policy: config.policy,
            high_atomic: config.high_atomic,
            tuning,
            batch_scale_max: config.batch_scale_max.min(BATCH_SCALE_LIMIT),
            hold_pages: config.hold_pages.max(1),
            cache_share_pages: u32::try_from(cache_pages).unwrap_or(u32::MAX),
            cold_list: lists.cold_list,
            mixed,
            cpu_lists,
            plain: !mixed && cpu_lists == CpuLists::Release,
            lists: next,
            order_of,
            list_of,
        }
    }

    /// Free blocks are kept by migrate type.
    #[inline]
    fn groups(&self) -> bool {
        self.era >= Era::V2_6_24
    }

    /// Protection of a CPU's lists: interrupts off, from 6.2 on only preemption (facts 7.6).
    pub(crate) fn pcp_protection(&self) -> Work {
        match self.era >= Era::V6_2 {
            true => Work::Preempt,
            false => Work::IrqSave,
        }
    }

    /// True if each CPU's lists also have a spin lock.
    pub(crate) fn has_pcp_lock(&self) -> bool {
        self.era >= Era::V6_0
    }

    /// Means by which the lists of other CPUs are drained: an interrupt up to 4.10, their workers up to 5.19,
    /// then under the lists' locks.
    pub(crate) fn pcp_reach(&self) -> Reach {
        match self.era {
            era if era < Era::V4_11 => Reach::Interrupt,
            era if era < Era::V6_0 => Reach::Worker,
            _ => Reach::Lock,
        }
    }

    /// Lower zones are tried before types are mixed in Normal: `ALLOC_NOFRAGMENT`, by which kernels
    /// since 5.0 "spread allocations across zones before introducing fragmentation" (the change's
    /// title). Seen in recordings of 6.18.
    pub(crate) fn spreads(&self) -> bool {
        self.era >= Era::V5_0
    }

    /// A bulk allocation asks whether what is missing is above the low watermark, not all that the
    /// caller's array has room for.
    pub(crate) fn bulk_asks_for_missing(&self) -> bool {
        self.era >= Era::V7_1
    }

    /// A drain picks its blocks, and prefetches buddies, before it takes the zone lock. Before, and again since it
    /// goes over the lists once, it picks them under the lock.
    pub(crate) fn picks_unlocked(&self) -> bool {
        (Era::V4_17..Era::V5_18).contains(&self.era)
    }

    /// A drain begins with the list of the block just freed and empties it, before it goes on to the next
    /// one; before, the lists took turns.
    pub(crate) fn drains_from_freed(&self) -> bool {
        self.era >= Era::V5_18
    }

    /// True if the free of a larger block empties the lists while the free factor grows
    /// ([`Tuning::FreeFactor`]).
    pub(crate) fn larger_frees_empty(&self) -> bool {
        self.era >= Era::V5_18
    }

    /// Pages that must have been freed before the second free of a larger block in a row drains the lists
    /// ([`Tuning::Auto`]).
    pub(crate) fn spree_least(&self, batch: u32, high_min: u32) -> u32 {
        if self.era >= Era::V6_16 {
            batch + high_min / 2
        } else {
            batch
        }
    }

    /// Pages that the lists must hold for that: a batch where the CPU's share of the last-level cache is
    /// larger than three batches. What one CPU frees then stays in the cache that others share.
    pub(crate) fn spree_kept(&self, batch: u32) -> u32 {
        if self.cache_share_pages > 3 * batch {
            batch
        } else {
            0
        }
    }

    /// Pages that a drain by frees or by the periodic work gives back under one hold of the zone lock.
    pub(crate) fn drain_hold(&self, batch: u32) -> u32 {
        if self.era >= Era::V6_19 {
            batch
        } else {
            u32::MAX
        }
    }

    /// As [`Rules::drain_hold`], of what empties the lists on request.
    pub(crate) fn flush_hold(&self, batch: u32) -> u32 {
        if self.era >= Era::V6_10 {
            batch << self.batch_scale_max
        } else {
            u32::MAX
        }
    }

    /// The type of pageblocks that no code has used.
    pub(crate) fn boot_type(&self) -> MigrateType {
        self.group(MigrateType::Movable)
    }

    /// The type that a block counts as.
    pub(crate) fn block_group(&self, of: BlockType) -> BlockType {
        match self.groups() {
            true => of,
            false => MigrateType::Unmovable.into(),
        }
    }

    /// The type that a request counts as.
    #[inline]
    pub(crate) fn group(&self, migratetype: MigrateType) -> MigrateType {
        if self.groups() {
            migratetype
        } else {
            MigrateType::Unmovable
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(era: Era) -> (Work, bool, Reach) {
        let rules = Rules::new(&PageConfig::new(era), 12);
        (
            rules.pcp_protection(),
            rules.has_pcp_lock(),
            rules.pcp_reach(),
        )
    }

    #[test]
    fn the_protection_of_lists_changes_at_three_releases() {
        for (last, first, before, after) in [
            (
                Era::V4_10,
                Era::V4_11,
                (Work::IrqSave, false, Reach::Interrupt),
                (Work::IrqSave, false, Reach::Worker),
            ),
            (
                Era::V5_19,
                Era::V6_0,
                (Work::IrqSave, false, Reach::Worker),
                (Work::IrqSave, true, Reach::Lock),
            ),
            (
                Era::V6_1,
                Era::V6_2,
                (Work::IrqSave, true, Reach::Lock),
                (Work::Preempt, true, Reach::Lock),
            ),
        ] {
            assert_eq!((of(last), of(first)), (before, after), "{first}");
        }
    }
}
