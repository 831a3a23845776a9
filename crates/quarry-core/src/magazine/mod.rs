//! Magazines: sheaves for programs, the default design of a heap in a process.
//!
//! # 1 Idea and source
//!
//! No kernel has this design. It is the kernel's sheaves ([`crate::sheaf`], whose code it is) with other numbers and three
//! rules of its own, which were taken for what they do to times and memory (`docs/speed.md`, `docs/programs.md`):
//!
//! * Sheaves grow where CPUs miss, within a budget, as Bonwick's and Adams's magazines do (*Magazines and vmem*,
//!   USENIX 2001), after which the design is named, and shrink again.
//! * A sheaf is filled from several slabs abreast, in the order in which objects are handed out.
//! * kmalloc has four classes for each doubling, or eight, up to 256 KiB.
//!
//! Slabs, page lists and names are those of the release that it is given, the newest.
//!
//! # 2 Objects and 3 states
//!
//! Those of sheaves.
//!
//! # 4 Paths
//!
//! The fast paths are those of sheaves: one restartable sequence. What differs lies behind them.
//!
//! **Sizes.** A *miss* is a trip of a CPU to its node's barn or to slabs. After each eighth miss of a cache its new sheaves
//! hold twice as many objects, up to 64 KiB of them or sixteen, and a CPU changes its sheaves at its next misses. What they
//! hold beyond a new cache's comes from a budget of the heap, 6 MiB for each CPU; a capacity for which it has no room is halved.
//! Two sheaves for each CPU are the *half flush*: one is full when the other is emptied, so that as many operations of
//! either kind follow without a miss.
//!
//! **Going back.** A cache that did not miss for a second, as [reaping](crate::heap::Heap::reap) sees it, halves what its
//! new sheaves hold, down to a new cache's, and empties its barns. CPUs change their own at their next misses. Heaps of a
//! process reap by themselves, others when their user does. Of empty slabs a node keeps 128 KiB for each cache, and never
//! more slabs than the kernel. A shrink or a trim takes all that is free, also from CPUs. Free pages go back to the system
//! by the page allocator's [`TrimPolicy`](crate::page::TrimPolicy).
//!
//! **Refills.** A free object has the address of the next one, so that a list is read one cache miss after another. A
//! refill that takes slabs from the node's list follows eight lists at once, whose misses overlap. Objects are handed out in the
//! order in which they were taken: those of a new slab by ascending addresses.
//!
//! **Free pointer.** It is an object's first word, not one in its middle: the line that a user most likely writes first.
//! The kernel has it in the middle, so that an overrun of the object before meets data.
//!
//! **kmalloc.** Each multiple of 8 bytes up to 64 has a class, then come four for each doubling, so that at most a fifth of a larger block is
//! rounding. From 1 to 8 KiB there are eight: a page of 4 KiB with a header is a common block. The largest class has 256 KiB; the
//! kernel's has two pages. Larger blocks come from the page
//! allocator, behind a lock.
//!
//! # 5 Locks and 6 invariants
//!
//! Those of sheaves. A sheaf's part of the budget is its own from when it is made until it is freed.
//!
//! # 7 Departures
//!
//! It is compared with no kernel, so predictions of kernels refuse it. Replays of recordings take it. Its slabs and the
//! page allocator under it stay those of 7.3 when newer kernels come.
//!
//! # 8 Memory
//!
//! Beyond sheaves: the budget, 6 MiB for each possible CPU (one CPU may have all of it); and barns of 128 KiB, or three
//! sheaves, for each cache and node instead of ten sheaves. Capacities that a user sets are outside of the budget.

mod numbers;

use core::ops::RangeInclusive;

use crate::era::Era;
use crate::sheaf::geometry::SheafEra;
use crate::sheaf::{self, Sheaves};
use crate::tunables::Table;

/// The kernel whose slabs and page allocator it has. A newer kernel changes no program.
const ERA: Era = Era::V7_3;

/// The numbers of magazines.
#[derive(Debug)]
pub struct Programs;

/// State of one cache.
pub type Magazine = Sheaves<Programs>;

impl sheaf::Kind for Programs {
    const NAME: &'static str = "magazine";
    const RELEASES: RangeInclusive<Era> = ERA..=ERA;
    const ERAS: &'static [Era] = &[ERA];
    const DEFAULT_ERA: Era = ERA;
    const TUNABLES: &'static Table = &Table {
        design: Self::NAME,
        rows: numbers::ROWS,
    };
    const FOR_PROGRAMS: bool = true;

    fn numbers(era: Era) -> Option<&'static SheafEra> {
        Self::RELEASES.contains(&era).then_some(&numbers::NUMBERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Design as _;

    /// Who adds a release leaves programs as they are.
    #[test]
    fn a_new_kernel_changes_no_program() {
        let releases = (*Magazine::RELEASES.start(), *Magazine::RELEASES.end());
        assert_eq!(releases, (Era::V7_3, Era::V7_3));
        assert_eq!(Magazine::DEFAULT_ERA, Era::V7_3);
        assert_eq!(numbers::NUMBERS.era, Era::V7_3);
    }
}
