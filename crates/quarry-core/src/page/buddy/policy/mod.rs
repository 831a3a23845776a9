//! Policies: what a request gets in place of the release's rules for types.
//!
//! A policy sees a zone's free lists and names the block for a request ([`PagePolicy::choose`]); taking it, splitting
//! it and changing its pageblock's type are the zone's, and the same for all. It may have lists for each
//! region of memory, such as a gigabyte. It holds no state: what it needs to know is counted with the lists.
//!
//! A new policy is a file here, a line in [`POLICIES`], and a test.

mod cpus;
mod defrag;
mod steer;
mod view;

pub use view::{FreeBlock, ZoneView};

use super::{FreeArea, Mixing, Taken, Wanted};
use crate::machine::Machine;
use crate::page::memmap::MapOn;
use crate::page::types::{MAX_ORDER, MigrateType};

/// Rules that choose a free block for a request.
pub trait PagePolicy: Sync {
    /// The name by which it is chosen.
    fn name(&self) -> &'static str;

    /// Its rule, as a sentence without a full stop.
    fn about(&self) -> &'static str;

    /// Bytes of memory that have lists of their own, a power of two; `None` for one set of lists in a zone.
    fn region_bytes(&self) -> Option<u64> {
        None
    }

    /// Use of CPUs' lists.
    fn cpu_lists(&self) -> CpuLists {
        CpuLists::Release
    }

    /// The block for a request.
    fn choose(&self, zone: &ZoneView<'_>, request: &Request) -> Choice;
}

/// Use of the lists of free blocks that each CPU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuLists {
    /// As the release has them.
    #[default]
    Release,
    /// Blocks are split on the lists, and merge there.
    Merging,
    /// The same; and a CPU takes whole pageblocks, whose pages all come back to its lists.
    Owned,
}

/// A request for a block, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// log2 of its pages.
    pub order: u32,
    /// Mobility of what it is for.
    pub migratetype: MigrateType,
    /// Other zones are tried before types are mixed in this one: only whole pageblocks may change their type.
    pub whole_blocks: bool,
}

/// A policy's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A block of a list of the request's own type.
    Own(FreeBlock),
    /// The pageblocks of a block become the request's type with all their free blocks, and the smallest of these that
    /// is large enough is taken.
    Claim(FreeBlock),
    /// A block of another type; what is left of it stays there.
    Single(FreeBlock),
    /// As the release's rules say.
    Rules,
    /// As the release's rules say. A kernel with this policy would first have reclaimed or compacted memory.
    RulesAfterReclaim,
    /// None.
    Nothing,
}

/// A policy of [`POLICIES`].
#[derive(Clone, Copy)]
pub struct Policy(&'static dyn PagePolicy);

/// All policies that can be chosen by name.
pub static POLICIES: [Policy; 4] = [
    Policy(&defrag::Defrag),
    Policy(&steer::Steer),
    Policy(&cpus::OWNED),
    Policy(&cpus::MERGING),
];

impl Policy {
    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        POLICIES.into_iter().find(|policy| policy.0.name() == name)
    }

    /// Its rules.
    #[must_use]
    pub fn rules(self) -> &'static dyn PagePolicy {
        self.0
    }
}

impl core::fmt::Debug for Policy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Policy {}

impl FreeArea {
    /// The block that a policy chooses, off its list.
    #[cold]
    pub(super) fn take_by<M: Machine>(
        &mut self,
        policy: Policy,
        map: MapOn<'_, M>,
        wanted: &Wanted,
    ) -> Option<Taken> {
        // A policy sees what is on the lists, so no memory stays beyond the frontier.
        while self.extend(map) {}
        let request = Request {
            order: wanted.order,
            migratetype: wanted.migratetype,
            whole_blocks: wanted.mixing == Mixing::WholeBlocks,
        };
        let view = ZoneView::new(self, map.map);
        let choice = policy.0.choose(&view, &request);
        let looks = view.looks();
        self.looks += looks;
        let (block, stolen) = match choice {
            Choice::Own(block) => (block, false),
            Choice::Claim(block) => {
                for first in (block.pfn.0..block.pfn.0 + (1 << block.order))
                    .step_by(1 << map.blocks().order())
                {
                    let pfn = crate::page::types::Pfn(first);
                    self.retag(&map, pfn, request.migratetype.into());
                    self.move_block(map, pfn, request.migratetype.into());
                }
                (self.smallest_around(&map, block.pfn, &request)?, true)
            }
            Choice::Single(block) => (block, true),
            Choice::Nothing => return None,
            Choice::RulesAfterReclaim => {
                let before = self.extfrag;
                let taken = self.take_by_rules(map, wanted);
                self.forced += self.extfrag - before;
                return taken;
            }
            Choice::Rules => return self.take_by_rules(map, wanted),
        };
        debug_assert!(block.order >= request.order && block.order <= MAX_ORDER);
        self.remove(map, block.pfn, block.order, block.of);
        let taken = Taken {
            pfn: block.pfn,
            order: block.order,
            rest: block.of,
            stolen,
        };
        if stolen {
            self.note_foreign(&map, &taken, request.migratetype);
        }
        Some(taken)
    }
}
