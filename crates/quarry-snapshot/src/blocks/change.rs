//! Blocks that became tainted, or clean, between two maps of one boot.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{BlockMap, PageSums};

/// Blocks of one size by what changed in them, of those that have memory in both maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct SpreadChange {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that have slabs now, and had none.
    pub got_slabs: u64,
    /// Blocks that had slabs, and have none now.
    pub lost_slabs: u64,
    /// Blocks that surely had no page of the kernel, and have one now.
    pub tainted: u64,
    /// Blocks that had a page of the kernel, and surely have none now.
    pub cleaned: u64,
    /// Blocks with pages without a flag, then or now, that leave open whether they became tainted or clean.
    pub open: u64,
}

impl SpreadChange {
    fn add(&mut self, from: &PageSums, to: &PageSums) {
        let is_tainted = |pages: &PageSums| match (pages.kernels(), pages.untold) {
            (0, 0) => Some(false),
            (0, _) => None,
            _ => Some(true),
        };
        let tainted = (is_tainted(from), is_tainted(to));
        let counted = [
            (&mut self.got_slabs, from.slab == 0 && to.slab > 0),
            (&mut self.lost_slabs, from.slab > 0 && to.slab == 0),
            (&mut self.tainted, tainted == (Some(false), Some(true))),
            (&mut self.cleaned, tainted == (Some(true), Some(false))),
            (&mut self.open, tainted.0.is_none() || tainted.1.is_none()),
        ];
        for (count, is_such) in counted {
            *count += u64::from(is_such);
        }
    }
}

impl BlockMap {
    /// Blocks of a size, a multiple of [`BLOCK_BYTES`](super::BLOCK_BYTES), by what changed in them since an earlier map of the same boot.
    #[must_use]
    pub fn change_since(&self, earlier: &Self, block_bytes: u64) -> SpreadChange {
        let before: BTreeMap<u64, PageSums> = earlier.by(block_bytes).collect();
        let mut change = SpreadChange {
            block_bytes,
            ..SpreadChange::default()
        };
        for (index, now) in self.by(block_bytes) {
            if let Some(before) = before.get(&index) {
                change.add(before, &now);
            }
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::super::BLOCK_BYTES;
    use super::super::tests::map;
    use super::*;

    #[test]
    fn blocks_that_pages_without_a_flag_leave_open_are_no_certain_change() {
        let first = map(&[
            (0, [512, 0, 0, 0, 0, 0]),
            (1, [511, 0, 0, 0, 0, 1]),
            (2, [500, 0, 12, 0, 0, 0]),
            (3, [500, 0, 10, 2, 0, 0]),
            (4, [512, 0, 0, 0, 0, 0]),
        ]);
        let last = map(&[
            (0, [511, 0, 1, 0, 0, 0]),
            (1, [510, 0, 1, 0, 0, 1]),
            (2, [512, 0, 0, 0, 0, 0]),
            (3, [510, 0, 0, 2, 0, 0]),
            (5, [0, 0, 9, 0, 0, 0]),
        ]);
        let expected = SpreadChange {
            block_bytes: BLOCK_BYTES,
            got_slabs: 2,
            lost_slabs: 2,
            tainted: 1,
            cleaned: 1,
            open: 1,
        };
        assert_eq!(last.change_since(&first, BLOCK_BYTES), expected);
        let none = SpreadChange {
            block_bytes: 1 << 30,
            ..SpreadChange::default()
        };
        assert_eq!(last.change_since(&first, 1 << 30), none);
    }
}
