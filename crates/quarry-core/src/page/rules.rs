//! What the per-CPU lists do, by era; what they hold and how much is in [`super::geometry`].
//!
//! # Per-CPU lists by era
//!
//! An era is a value of [`Rules`]; the paths are the same for all.
//!
//! | | lists | refill | drain, at `high` pages |
//! |---|---|---|---|
//! | 2.6.22, 2.6.24 | hot and cold, searched for the type | a batch | a batch, oldest first |
//! | 2.6.35 to 5.9 | by type; cold pages last until 4.13 | a batch | a batch, lists in turn |
//! | 6.1 | by order (0 to 3, huge) and type | a batch | doubled by each drain, halved by each allocation |
//! | 6.18, 7.0 | the same, two for huge pages | doubled by each refill, halved by each free | what was freed since |
//!
//! In 6.18 and 7.0 `high` moves between two bounds: up with each refill and with frees, down while
//! the zone is below its high watermark and with each statistics interval
//! ([`vmstat_update`](super::PageAllocator::vmstat_update)). At most 32 batches (2016 pages of
//! 4 KiB, [`PageConfig::batch_scale_max`]) move under one hold of the zone lock, and what the last free
//! of a spree brought beyond them; in 6.1 at most `high` less a batch; before 6.18 a flush, and in 6.1
//! the free of a larger block that ends a spree, move all that a CPU holds. In a process 32 pages move,
//! whatever the era ([`PageConfig::hold_pages`]).

use super::config::{BATCH_SCALE_LIMIT, PageConfig};
use super::geometry::{HighRule, PageEra, page_era};
use super::types::{MIGRATE_TYPES, MigrateType, ORDERS};
use crate::era::Era;

/// Lists that a CPU has at most for a zone.
pub(crate) const PCP_LISTS: usize = 14;
/// In [`Rules::list_of`]: no list holds such blocks.
pub(crate) const NO_LIST: u8 = u8::MAX;

/// How much the lists move at a time, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// A batch each time.
    Batch,
    /// Frees that no allocation interrupts drain more each time (`free_factor`).
    FreeFactor,
    /// `high` follows what is allocated and freed (`alloc_factor`, `free_count`).
    Auto,
}

/// Where pages go that their user says are in no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cold {
    /// On a list of their own.
    OwnList,
    /// To the end of the list.
    Tail,
    /// Where all others go.
    AsOthers,
}

/// The rules of an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) tuning: Tuning,
    /// How often `alloc_factor` and `free_count` may double a batch ([`Tuning::Auto`]).
    pub(crate) batch_scale_max: u32,
    /// Most pages of a hold of the zone lock.
    pub(crate) hold_pages: u32,
    pub(crate) cold: Cold,
    /// Free blocks are kept by migrate type.
    pub(crate) grouping: bool,
    /// Lower zones are tried before types are mixed in Normal: `ALLOC_NOFRAGMENT`, by which kernels
    /// since 5.0 "spread allocations across zones before introducing fragmentation" (the change's
    /// title). Seen in recordings of 6.18; that 5.9, 6.1 and 7.0 do it in the same way is assumed.
    pub(crate) spreads: bool,
    /// Blocks of all types are on one list, which is searched for the type.
    pub(crate) mixed: bool,
    /// Number of lists.
    pub(crate) lists: u8,
    /// The order of the blocks of a list.
    pub(crate) order_of: [u8; PCP_LISTS],
    /// The list of an order and type, or [`NO_LIST`].
    pub(crate) list_of: [[u8; MIGRATE_TYPES]; ORDERS],
}

impl Rules {
    /// The rules of a configuration's era for pages of this size.
    pub(crate) fn new(config: &PageConfig, page_shift: u32) -> Self {
        let era = config.era;
        let PageEra { lists, high, .. } = page_era(era);
        let grouping = era >= Era::V2_6_24;
        let cold = match era {
            _ if lists.cold_list => Cold::OwnList,
            _ if era < Era::V4_15 => Cold::Tail,
            _ => Cold::AsOthers,
        };
        let tuning = match high {
            HighRule::Batches => Tuning::Batch,
            HighRule::LowWatermark => Tuning::FreeFactor,
            HighRule::Tuned => Tuning::Auto,
        };
        let mut list_of = [[NO_LIST; MIGRATE_TYPES]; ORDERS];
        let mut next = 0;
        for order in 0..=lists.max_order {
            for (migratetype, list) in list_of[order as usize].iter_mut().enumerate() {
                *list = next + (migratetype as u8).min(lists.migrate_types as u8 - 1);
            }
            next += lists.migrate_types as u8;
        }
        if let Some(huge_order) = lists.huge_order(page_shift) {
            let own = u8::from(lists.huge_lists > 1);
            let huge = &mut list_of[huge_order as usize];
            *huge = [next; MIGRATE_TYPES];
            huge[MigrateType::Movable as usize] += own;
            next += 1 + own;
        }
        let mut order_of = [0; PCP_LISTS];
        for (order, lists) in (0..).zip(&list_of) {
            for &list in lists.iter().filter(|&&list| list != NO_LIST) {
                order_of[usize::from(list)] = order;
            }
        }
        Self {
            tuning,
            batch_scale_max: config.batch_scale_max.min(BATCH_SCALE_LIMIT),
            hold_pages: config.hold_pages.max(1),
            cold,
            grouping,
            spreads: era >= Era::V5_0,
            mixed: lists.migrate_types == 1,
            lists: next,
            order_of,
            list_of,
        }
    }

    /// The type of pageblocks that nobody has used.
    pub(crate) fn boot_type(&self) -> MigrateType {
        self.group(MigrateType::Movable)
    }

    /// The type that a request counts as.
    #[inline]
    pub(crate) fn group(&self, migratetype: MigrateType) -> MigrateType {
        if self.grouping {
            migratetype
        } else {
            MigrateType::Unmovable
        }
    }
}
