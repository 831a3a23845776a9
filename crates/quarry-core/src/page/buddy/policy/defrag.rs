//! `defrag_mode` (6.15): no type enters a pageblock of another one until memory was reclaimed and compacted.
//!
//! This is the half of it that allocates. A replay has no reclaim: a request that would have waited for it gets what
//! the release's rules give, and is counted.

use super::{Choice, PagePolicy, Request, ZoneView};
use crate::page::types::MAX_ORDER;

pub(super) struct Defrag;

impl PagePolicy for Defrag {
    fn name(&self) -> &'static str {
        "defrag"
    }

    fn about(&self) -> &'static str {
        "whole pageblocks change their type, and nothing else, until memory was reclaimed (defrag_mode, 6.15)"
    }

    fn choose(&self, zone: &ZoneView<'_>, request: &Request) -> Choice {
        if let Some(own) = zone.smallest(0, request, request.migratetype) {
            return Choice::Own(own);
        }
        let least = request.order.max(zone.block_order());
        let whole = (least..=MAX_ORDER).rev().find_map(|order| {
            let mut others = zone.others(request.migratetype).into_iter();
            others.find_map(|other| zone.first(0, order, other))
        });
        match whole {
            Some(block) => Choice::Claim(block),
            None if request.whole_blocks => Choice::Nothing,
            None => Choice::RulesAfterReclaim,
        }
    }
}
