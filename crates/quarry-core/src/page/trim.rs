//! Giving free memory back to the machine.
//!
//! # What is given back, and when
//!
//! Free blocks on buddy lists, the largest first, of at least [`TrimPolicy::min_order`], until no
//! more than [`TrimPolicy::keep_pages`] free pages have memory behind them. With the default order,
//! whole huge pages are given back and none is split; a lower one splits huge pages that are partly
//! free. [`PageAllocator::trim`] does so at once, after it has emptied the per-CPU lists. With
//! [`PageAllocator::set_auto_trim`] it also happens by itself:
//!
//! * after a free of pages that reached a zone, because it overflowed a per-CPU list or passed them:
//!   one block at most, so that the time of a free stays bounded by the machine's for one block;
//! * after [`PageAllocator::drain_all`] and at each `Heap::reap`: all above what is to be kept.
//!
//! Frees inside the slab designs do not give memory back, because they hold locks.
//!
//! A program whose memory comes and goes would pay a page fault for each page and round. So what is given back,
//! also by [`PageAllocator::trim`], and then allocated again is kept the next time, in addition to what the rule keeps. Each
//! second halves that: a program that has become smaller does not come back for it.
//!
//! # How
//!
//! A block leaves its list under one hold of the zone lock and comes back, at the list's end, under
//! another; the machine works in between. A hold looks at [`LOOK_MAX`] blocks at most. What has no
//! memory behind it is known by `buddy/vacancy.rs`, so nothing is given back twice; memory beyond
//! the frontier never had any.

use super::buddy::FreeArea;
use super::buddy::vacancy::UNIT_ORDER;
use super::types::{BlockType, MAX_ORDER};
use super::zone::Zone;
use super::{PageAllocator, Pfn};
use crate::machine::{Machine, Topology};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Blocks that one hold of a zone lock looks at.
const LOOK_MAX: u32 = 32;
/// log2 of a huge page's bytes on x86-64, and on aarch64 with small pages.
const HUGE_PAGE_SHIFT: u32 = 21;
/// Time in which a half of what was needed again is forgotten, in nanoseconds.
const HALVED_NS: u64 = 1_000_000_000;
/// `keep_pages` while nothing is given back by itself.
const OFF: u64 = u64::MAX;

/// Rule for the free memory that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimPolicy {
    /// Free pages that keep their memory.
    pub keep_pages: u64,
    /// Smallest order of a free block that is given back; taken as 4 (16 pages) if it is less, as
    /// [`PageAllocator::max_order`] if it is more.
    pub min_order: u32,
}

impl TrimPolicy {
    /// Gives back whole huge pages of 2 MiB only, beyond `keep_pages` free pages.
    #[must_use]
    pub fn huge_pages(topology: &Topology, keep_pages: u64) -> Self {
        let order = HUGE_PAGE_SHIFT.saturating_sub(topology.page_shift);
        Self {
            keep_pages,
            min_order: order.clamp(UNIT_ORDER, MAX_ORDER),
        }
    }
}

/// Outcome of a trim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Pages given back.
    pub pages: u64,
    /// Blocks that they were.
    pub blocks: u64,
    /// Blocks that the machine would not take.
    pub refused: u64,
    /// CPUs that were busy and kept the pages of their lists.
    pub busy_cpus: u32,
}

/// Memory behind a machine's pages, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// All pages.
    pub pages: u64,
    /// Never handed out, so without memory.
    pub untouched: u64,
    /// Free, and without memory because it was given back or never touched.
    pub vacant: u64,
    /// Free in the zones, and with memory, unless it was never written to.
    pub resident_free: u64,
    /// Given back so far, counted each time.
    pub released: u64,
    /// Blocks that the machine would not take, so far.
    pub refused: u64,
}

impl Residency {
    /// Most pages that can have memory: those in use, on per-CPU lists, or free and not vacant. Where the system has huge
    /// pages, their untouched rests have memory as well, and are not in it.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.pages - self.untouched - self.vacant
    }
}

/// When memory is given back by itself, and what was given back so far.
pub(super) struct Trimmer {
    keep_pages: AtomicU64,
    min_order: AtomicU32,
    released: AtomicU64,
    refused: AtomicU64,
    /// Pages that are kept beyond `keep_pages`, as some were needed again.
    missed: AtomicU64,
    /// The time of the last look that halved `missed`, in nanoseconds.
    halved_ns: AtomicU64,
    /// Pages that had got memory until the last automatic trim, counted each time.
    got: AtomicU64,
    /// Most pages that had memory at an automatic trim.
    most: AtomicU64,
}

impl Trimmer {
    /// Pages that the automatic rule keeps beyond the policy's, as of now: those that were given back and allocated again since
    /// the last call are missed.
    fn missed(&self, now: &Residency) -> u64 {
        // Relaxed here: numbers, which may be late; two trims at a time count some pages twice or not.
        let (relaxed, resident) = (Ordering::Relaxed, now.resident());
        let got = resident + now.released;
        let new = resident.saturating_sub(self.most.fetch_max(resident, relaxed));
        let again = got.saturating_sub(self.got.swap(got, relaxed) + new);
        let missed = again.max(self.missed.load(relaxed));
        self.missed.store(missed, relaxed);
        missed
    }

    /// Halves what is kept as missed, for each second since it was halved last.
    fn forget(&self, now_ns: u64) {
        let relaxed = Ordering::Relaxed;
        let seconds = now_ns.saturating_sub(self.halved_ns.load(relaxed)) / HALVED_NS;
        if seconds > 0 {
            self.halved_ns.store(now_ns, relaxed);
            let left = self.missed.load(relaxed) >> seconds.min(63);
            self.missed.store(left, relaxed);
        }
    }

    pub(super) fn new() -> Self {
        Self {
            keep_pages: AtomicU64::new(OFF),
            min_order: AtomicU32::new(MAX_ORDER),
            released: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            halved_ns: AtomicU64::new(0),
            got: AtomicU64::new(0),
            most: AtomicU64::new(0),
        }
    }
}

/// Outcome of one look at a list.
enum Look {
    /// A block with memory, now isolated, and the bits of its units without.
    Found(Pfn, u64),
    /// Only blocks that are no candidates; there may be more.
    Passed,
    /// No blocks are left to look at, or the calling thread holds the lock.
    End,
}

impl<M: Machine> PageAllocator<M> {
    /// Gives free memory back to the machine; see the rules in [`TrimPolicy`]. The per-CPU lists
    /// are emptied first.
    ///
    /// While the machine takes a block, that block can not be allocated.
    pub fn trim(&self, policy: TrimPolicy) -> Trimmed {
        let busy_cpus = self.drain_lists();
        Trimmed {
            busy_cpus,
            ..self.release_excess(policy, u64::MAX, &self.residency())
        }
    }

    /// Turns the automatic trim on or off.
    pub fn set_auto_trim(&self, policy: Option<TrimPolicy>) {
        let trimmer = &self.trimmer;
        // What was given back before is not missed.
        trimmer.missed(&self.residency());
        trimmer.missed.store(0, Ordering::Relaxed);
        if let Some(policy) = policy {
            trimmer.min_order.store(policy.min_order, Ordering::Relaxed);
        }
        let keep_pages = policy.map_or(OFF, |policy| policy.keep_pages);
        trimmer.keep_pages.store(keep_pages, Ordering::Relaxed);
    }

    /// Rule of the automatic trim; `None` if it is off.
    pub fn auto_trim_policy(&self) -> Option<TrimPolicy> {
        let keep_pages = self.trimmer.keep_pages.load(Ordering::Relaxed);
        (keep_pages != OFF).then(|| TrimPolicy {
            keep_pages,
            min_order: self.trimmer.min_order.load(Ordering::Relaxed),
        })
    }

    /// Memory behind the pages. A zone whose lock the calling thread holds is missing; a block that the machine
    /// is just taking back counts as in use.
    pub fn residency(&self) -> Residency {
        let _pass = self.gate().enter(self.machine());
        let mut all = Residency {
            released: self.trimmer.released.load(Ordering::Relaxed),
            refused: self.trimmer.refused.load(Ordering::Relaxed),
            ..Residency::default()
        };
        for zone in self.zones() {
            if let Some(area) = zone.lock(self.map_on()) {
                all.pages += u64::from(zone.end - zone.start);
                all.untouched += u64::from(zone.end - area.frontier());
                all.vacant += area.vacancy.pages();
                all.resident_free += area.resident_free_pages();
            }
        }
        all
    }

    /// Gives back now what the automatic rule does not keep; nothing if it is off.
    #[cold]
    pub fn auto_trim(&self) {
        if let Some(policy) = self.auto_trim_policy() {
            self.trimmer.forget(self.machine().now_ns());
            self.trim_by_rule(policy, u64::MAX);
        }
    }

    /// Gives back one block by the automatic rule.
    #[cold]
    pub(super) fn trim_after_free(&self) {
        if let Some(policy) = self.auto_trim_policy() {
            self.trim_by_rule(policy, 1);
        }
    }

    fn trim_by_rule(&self, mut policy: TrimPolicy, blocks_max: u64) {
        let residency = self.residency();
        let missed = self.trimmer.missed(&residency);
        policy.keep_pages = policy.keep_pages.saturating_add(missed);
        self.release_excess(policy, blocks_max, &residency);
    }

    fn release_excess(
        &self,
        policy: TrimPolicy,
        blocks_max: u64,
        residency: &Residency,
    ) -> Trimmed {
        let mut trimmed = Trimmed::default();
        let free = residency.resident_free;
        let mut excess = free.saturating_sub(policy.keep_pages);
        let largest = self.max_order().max(UNIT_ORDER);
        let orders = (policy.min_order.clamp(UNIT_ORDER, largest)..=largest).rev();
        let lists = orders.flat_map(|order| BlockType::all().map(move |list| (order, list)));
        for (order, list) in lists {
            for zone in self.zones() {
                let mut left = None;
                while excess > 0 && trimmed.blocks + trimmed.refused < blocks_max {
                    // A fork waits for one block, not for all.
                    let _pass = self.gate().enter(self.machine());
                    match self.look(zone, (order, list), excess, &mut left) {
                        Look::Found(pfn, vacant) => {
                            let pages = self.release_block(zone, pfn, order, vacant);
                            trimmed.blocks += u64::from(pages > 0);
                            trimmed.refused += u64::from(pages == 0);
                            trimmed.pages += pages;
                            excess -= pages;
                        }
                        Look::Passed => (),
                        Look::End => break,
                    }
                }
            }
        }
        self.trimmer
            .released
            .fetch_add(trimmed.pages, Ordering::Relaxed);
        self.trimmer
            .refused
            .fetch_add(trimmed.refused, Ordering::Relaxed);
        trimmed
    }

    /// Looks for a block with memory, up to the first block in which more than `excess` pages have memory.
    /// `left` is the number of blocks of the list that were not looked at yet.
    fn look(
        &self,
        zone: &Zone,
        (order, list): (u32, BlockType),
        excess: u64,
        left: &mut Option<u32>,
    ) -> Look {
        let Some(mut area) = zone.lock(self.map_on()) else {
            return Look::End;
        };
        let left = left.get_or_insert(area.listed(order, list));
        for _ in 0..LOOK_MAX {
            if *left == 0 {
                return Look::End;
            }
            *left -= 1;
            let area: &mut FreeArea = &mut area;
            let Some(first) = area.blocks(self.map(), order, list).next() else {
                return Look::End;
            };
            let vacant = area.vacancy.of_block(first, order);
            let resident = (1u64 << order) - (u64::from(vacant.count_ones()) << UNIT_ORDER);
            if resident > excess {
                // Stays where it is, to be used before those without memory.
                return Look::End;
            }
            let Some(pfn) = area.isolate(self.map_on(), order, list) else {
                return Look::End;
            };
            if resident > 0 {
                return Look::Found(pfn, vacant);
            }
            area.restore(self.map_on(), (pfn, order), vacant);
        }
        Look::Passed
    }

    /// Gives back the memory of an isolated block and puts the block back; the number of pages.
    fn release_block(&self, zone: &Zone, pfn: Pfn, order: u32, vacant: u64) -> u64 {
        let units = 1u32 << (order - UNIT_ORDER);
        let mut taken = 0u64;
        let mut at = 0;
        while at < units {
            let resident = (!vacant >> at).trailing_ones().min(units - at);
            if resident == 0 {
                at += (vacant >> at).trailing_ones();
                continue;
            }
            let first = pfn.0 + (at << UNIT_ORDER);
            let range = self.map().range(&(first..first + (resident << UNIT_ORDER)));
            // SAFETY: the pages are of an isolated block, which is free and on no list, so they
            // are this thread's alone until `restore`.
            if unsafe { self.machine().release(range) } {
                taken |= (u64::MAX >> (u64::BITS - resident)) << at;
            }
            at += resident;
        }
        match zone.lock(self.map_on()) {
            Some(mut area) => {
                area.restore(self.map_on(), (pfn, order), vacant | taken);
            }
            // The next holder takes it back as an ordinary free block. All of it counts as
            // having memory.
            None => zone.defer(self.map(), pfn),
        }
        u64::from(taken.count_ones()) << UNIT_ORDER
    }
}
