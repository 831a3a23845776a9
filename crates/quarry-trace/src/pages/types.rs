//! Migrate types of blocks from before the recording, from those allocated beside them.
//!
//! A kernel groups pages by mobility: all of a pageblock are of one type, but for what was there
//! before the type changed. A pageblock is a huge page at least, so an allocation tells the type of
//! its surroundings. In 2.3 s of a machine that compiled programs (6.18), the allocations in each
//! of 671 pageblocks asked for one type only.

use std::collections::HashMap;

use crate::build::PAGE_SIZE_ASSUMED;

/// The smallest pageblock: the smallest huge page of the machines that Linux runs on, 2 MiB.
const PAGEBLOCK_BYTES: u32 = 2 << 20;

/// The type that was last asked for in each group of pages.
#[derive(Debug, Default)]
pub(super) struct PageTypes {
    groups: HashMap<u64, i8>,
}

fn group(page: u64, page_bytes: u32) -> u64 {
    let page_bytes = if page_bytes == 0 {
        PAGE_SIZE_ASSUMED
    } else {
        page_bytes
    };
    page / u64::from((PAGEBLOCK_BYTES / page_bytes).max(1))
}

impl PageTypes {
    pub(super) fn allocated(&mut self, page: u64, migratetype: i8, page_bytes: u32) {
        if migratetype >= 0 {
            self.groups.insert(group(page, page_bytes), migratetype);
        }
    }

    /// The type of a page's surroundings, -1 if nothing was allocated there so far.
    pub(super) fn of(&self, page: u64, page_bytes: u32) -> i8 {
        let found = self.groups.get(&group(page, page_bytes));
        found.copied().unwrap_or(-1)
    }
}
