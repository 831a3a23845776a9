//! CPUs' lists that split and merge: pageblocks owned by CPUs, and merging alone.
//!
//! The zone's lists are the release's. What the CPUs' lists do is in `pcp/policy.rs`.

use super::{Choice, CpuLists, PagePolicy, Request, ZoneView};

/// J. Weiner's RFC of 3 April 2026: a CPU takes whole pageblocks, and their pages come back to it.
pub(super) struct Owned;

impl PagePolicy for Owned {
    fn name(&self) -> &'static str {
        "owned"
    }

    fn about(&self) -> &'static str {
        "CPUs own whole pageblocks, whose pages come back to their lists (Weiner, 2026)"
    }

    fn cpu_lists(&self) -> CpuLists {
        CpuLists::Owned
    }

    fn choose(&self, _: &ZoneView<'_>, _: &Request) -> Choice {
        Choice::Rules
    }
}

/// Z. Yan's proposal: free neighbours merge on the lists of a CPU.
pub(super) struct Merging;

impl PagePolicy for Merging {
    fn name(&self) -> &'static str {
        "merging"
    }

    fn about(&self) -> &'static str {
        "free neighbours merge on the lists of a CPU (Yan, 2026)"
    }

    fn cpu_lists(&self) -> CpuLists {
        CpuLists::Merging
    }

    fn choose(&self, _: &ZoneView<'_>, _: &Request) -> Choice {
        Choice::Rules
    }
}
