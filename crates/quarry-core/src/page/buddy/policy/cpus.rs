//! CPUs' lists that split and merge: pageblocks owned by CPUs, and merging alone.
//!
//! The zone's lists are the release's. What the CPUs' lists do is in `pcp/policy.rs`.

use super::{Choice, CpuLists, PagePolicy, Request, ZoneView};

/// The release's rules behind other lists of CPUs.
pub(super) struct ByLists {
    name: &'static str,
    about: &'static str,
    lists: CpuLists,
}

/// J. Weiner's RFC of 3 April 2026: a CPU takes whole pageblocks, and their pages come back to it.
pub(super) static OWNED: ByLists = ByLists {
    name: "owned",
    about: "CPUs own whole pageblocks, whose pages come back to their lists (Weiner, 2026)",
    lists: CpuLists::Owned,
};

/// Z. Yan's proposal: free neighbours merge on the lists of a CPU.
pub(super) static MERGING: ByLists = ByLists {
    name: "merging",
    about: "free neighbours merge on the lists of a CPU (Yan, 2026)",
    lists: CpuLists::Merging,
};

impl PagePolicy for ByLists {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn cpu_lists(&self) -> CpuLists {
        self.lists
    }

    fn choose(&self, _: &ZoneView<'_>, _: &Request) -> Choice {
        Choice::Rules
    }
}
