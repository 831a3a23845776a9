//! Checks between operations: lists, counters, the census of pages.

use quarry_core::design::{CheckError, Design, NodeUsage, Usage};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::heap::CacheView;
use quarry_core::machine::{CpuId, Machine, NodeId};
use quarry_core::page::{PageCensus, PageInconsistency};
use quarry_core::stats::{Stat, Stats};

use super::design::{Driver, Tracked, calls, shares_pages};
use super::ledger::Owner;
use super::place::Placement;
use super::{Check, ensure, ensure_eq};

/// Attempts to reach CPUs that hide at random.
const ATTEMPTS: u32 = 2000;

/// True if a design keeps objects of its own in the kmalloc caches.
fn keeps_general_objects<D: Design>() -> bool {
    D::NAME == "slab" || D::FEATURES.sheaves
}

/// Shrinks of all caches until none keeps anything in another one.
const GENERAL_ROUNDS: u32 = 4;

/// The identities of a SLUB cache whose calls all succeeded on free slots.
fn slub_identities(stats: &Stats, era: Era, by_node: bool) -> Check {
    let get = |stat| stats.get(stat);
    let partial = get(Stat::CpuPartialAlloc);
    let mut sources = get(Stat::AllocRefill) + get(Stat::AllocFromPartial) + get(Stat::AllocSlab);
    if era >= Era::V6_8 || era < Era::V3_2 {
        sources += partial;
    } else {
        // A slab of another node than the wanted one is taken and put back.
        ensure!(
            partial <= get(Stat::AllocRefill) || by_node,
            "cpu_partial_alloc {partial} without alloc_refill"
        );
    }
    let slow = get(Stat::AllocSlowpath);
    // Until 3.0, looks at the CPU slab that found nothing count as refills, too.
    // 6.8 counts slabs of the CPU's list that are not of the wanted node among those allocated from.
    let at_least = sources
        - match era {
            _ if era < Era::V3_1 => get(Stat::AllocRefill),
            Era::V6_8 if by_node => partial,
            _ => 0,
        };
    ensure!(
        (at_least..=sources).contains(&slow),
        "alloc_slowpath {slow} and its sources {sources}"
    );
    let drained = get(Stat::CpuPartialDrain);
    let pushed = get(Stat::CpuPartialFree) + get(Stat::CpuPartialNode);
    ensure!(drained <= pushed, "{drained} drains of {pushed} slabs");
    Ok(())
}

/// SLUB+Queuing never counts these.
fn slubq_identities(stats: &Stats) -> Check {
    let never = [
        Stat::FreeFrozen,
        Stat::AllocRefill,
        Stat::CpuslabFlush,
        Stat::DeactivateFull,
        Stat::CpuPartialAlloc,
        Stat::CpuPartialFree,
        Stat::CpuPartialNode,
    ];
    for stat in never {
        ensure_eq!(stats.get(stat), 0, "{}", stat.name());
    }
    Ok(())
}

impl<M: Machine, D: Design, P: Placement<M>> Driver<'_, M, D, P> {
    /// Everything but the walk over objects, which changes slubq's queues.
    pub(crate) fn audit(&self) -> Check {
        let (mut slab_pages, mut shared_bytes) = (0, 0);
        let mut first_error = Ok(());
        self.heap.for_each_cache(|cache| {
            slab_pages += cache.usage().pages;
            shared_bytes += cache.usage().shared_bytes;
            let checked = self.audit_cache(cache);
            let named = checked.map_err(|error| format!("{}: {error}", cache.name()));
            first_error = std::mem::replace(&mut first_error, Ok(())).and(named);
        });
        first_error?;
        for tracked in &self.caches {
            if self.limits.debug {
                let found = tracked.cache.validate().findings;
                ensure_eq!(found, 0, "{}: findings of validate", tracked.cache.name());
            }
            self.audit_calls(tracked)
                .map_err(|error| format!("{}: {error}", tracked.cache.name()))?;
        }
        self.ledger.borrow().all_intact()?;
        let (allocs, frees) = self.heap.large_counts();
        // A large array of the design's own comes from there too; at the end none is left.
        let (large, large_pages) = self.large.get();
        let own = allocs - frees - large;
        ensure!(
            own == 0 || keeps_general_objects::<D>(),
            "{own} large kmallocs without an owner"
        );
        let Some(census) = self.census()? else {
            return Ok(());
        };
        if shares_pages::<D>(self.heap.era()) {
            ensure!(census.slab >= slab_pages, "pages of slabs: {census:?}");
            let page_size = self.heap.machine().topology().page_size() as u64;
            let shared = (census.slab - slab_pages) * page_size;
            ensure!(shared_bytes <= shared, "{shared_bytes} bytes in {shared}");
            // No page without an object is kept.
            let objects = self.ledger.borrow().all() as u64;
            ensure!(
                census.slab - slab_pages <= objects,
                "{objects} objects: {census:?}"
            );
        } else {
            ensure_eq!(census.slab, slab_pages, "pages of slabs");
        }
        let counted = self.heap.pages().slab_pages();
        ensure_eq!(census.slab, counted, "pages of slabs, walked and counted");
        ensure!(
            census.large == large_pages || own > 0,
            "pages of large kmallocs: {} is not {large_pages}",
            census.large
        );
        ensure_eq!(census.allocated, 0, "allocated pages without an owner");
        Ok(())
    }

    fn census(&self) -> Check<Option<PageCensus>> {
        match self.heap.pages().check_consistency() {
            Ok(census) => Ok(Some(census)),
            Err(PageInconsistency::Busy(_)) if self.limits.cpus_hide => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn audit_cache(&self, cache: CacheView<'_, M, D>) -> Check {
        match cache.check_consistency() {
            Err(CheckError::Busy) if self.limits.cpus_hide => {}
            checked => checked.map_err(|error| error.to_string())?,
        }
        let usage = cache.usage();
        let by_order: u64 = usage.slabs_by_order.iter().sum();
        ensure_eq!(by_order, usage.slabs, "slabs by order");
        ensure!(usage.active_objs <= usage.num_objs, "{usage:?}");
        ensure!(usage.one_object_slabs <= usage.partial_slabs, "{usage:?}");
        ensure!(usage.partial_slabs <= usage.slabs, "{usage:?}");
        if self.limits.cpus_hide {
            return Ok(());
        }
        self.audit_parts(cache, &usage)?;
        let stats = cache.stats();
        let alive = stats.get(Stat::AllocSlab) - stats.get(Stat::FreeSlab);
        // Sheaves of 7.0 give back without a count what became empty while it was off its list.
        let era = self.heap.era();
        let uncounted =
            self.limits.raced && D::NAME == "sheaf" && (Era::V7_0..Era::V7_2).contains(&era);
        ensure!(
            alive == usage.slabs || uncounted && alive > usage.slabs,
            "alloc_slab - free_slab is {alive}, but {} slabs are alive",
            usage.slabs
        );
        let busy = stats.get(Stat::CpuSlotBusy);
        // A cache that keeps objects in the general ones may come back to itself.
        let nests =
            keeps_general_objects::<D>() && cache.head().flags().contains(CacheFlags::KMALLOC);
        ensure!(
            busy == 0 || self.limits.slots_fail || nests,
            "cpu_slot_busy {busy}"
        );
        ensure_eq!(stats.get(Stat::FreeDeferred), 0, "deferred frees");
        if D::NAME == "slubq" {
            slubq_identities(&stats)?;
        }
        Ok(())
    }

    /// Checks the parts of nodes and CPUs against the whole.
    fn audit_parts(&self, cache: CacheView<'_, M, D>, usage: &Usage) -> Check {
        let topology = self.heap.machine().topology();
        let mut nodes = NodeUsage::default();
        for node in (0..topology.nodes).map(NodeId) {
            let node = cache.node_usage(node);
            ensure!(node.objects <= node.total_objects, "{node:?}");
            nodes.slabs += node.slabs;
            nodes.total_objects += node.total_objects;
            nodes.objects += node.objects;
            nodes.cpu_slabs += node.cpu_slabs;
        }
        ensure_eq!(nodes.slabs, usage.slabs, "slabs of nodes");
        ensure_eq!(nodes.total_objects, usage.num_objs, "objects of nodes");
        ensure_eq!(nodes.objects, usage.active_objs, "active objects of nodes");
        let held = usage.cpu_slabs + usage.cpu_partial_slabs;
        ensure_eq!(nodes.cpu_slabs, held, "slabs of CPUs");
        let mut counted = Stats::default();
        for cpu in (0..topology.cpus).map(CpuId) {
            counted.add(&cache.cpu_usage(cpu).stats);
        }
        let all = cache.stats();
        for (stat, value) in counted.iter() {
            // What happens without a slot is no CPU's.
            let fits = value <= all.get(stat);
            ensure!(fits, "{} of CPUs: {value}", stat.name());
        }
        Ok(())
    }

    /// The counters of calls against what was called.
    fn audit_calls(&self, tracked: &Tracked<'_, M, D>) -> Check {
        let live = self.ledger.borrow().count(tracked.owner) as u64;
        let usage = tracked.cache.usage();
        ensure!(
            usage.active_objs >= live,
            "{live} objects live in {usage:?}"
        );
        if self.limits.cpus_hide {
            return Ok(());
        }
        let stats = tracked.cache.stats();
        let counted = calls(tracked.era, &stats);
        let made = (tracked.allocs.get(), tracked.frees.get());
        if D::NAME == "sheaf" && tracked.era < Era::V7_0 && stats.get(Stat::SheafAlloc) > 0 {
            // 6.18 flushes sheaves by calls that count like those of users, and may fail to fill one.
            ensure!(
                (counted.0 == made.0 || self.limits.scarce) && counted.1 >= made.1,
                "calls counted: {counted:?}, made: {made:?}"
            );
            return Ok(());
        }
        ensure_eq!(counted, made, "calls counted");
        let limits = &self.limits;
        if D::NAME == "slub" && !limits.scarce && !limits.slots_fail && !limits.debug {
            slub_identities(&stats, self.heap.era(), tracked.by_node.get())?;
        }
        Ok(())
    }

    /// Compares the objects that the caches say are live with the model's.
    pub(crate) fn walk(&self) -> Check {
        let check =
            |name: &str, mut found: Vec<usize>, expected: &[usize], others: bool| -> Check {
                let ascending = found.is_sorted();
                ensure!(ascending, "{name}: live objects are not in address order");
                if others || self.limits.cpus_hide {
                    found.retain(|address| expected.binary_search(address).is_ok());
                }
                ensure_eq!(found.as_slice(), expected, "{name}: live objects");
                Ok(())
            };
        for tracked in &self.caches {
            let mut found = Vec::new();
            let walked = tracked
                .cache
                .for_each_live(|object| found.push(object.addr().get()));
            if walked.is_err() && self.limits.cpus_hide {
                continue;
            }
            walked.map_err(|error| error.to_string())?;
            check(
                tracked.cache.name(),
                found,
                &self.ledger.borrow().addresses(tracked.owner),
                false,
            )?;
        }
        let mut found = Vec::new();
        let rules = D::kmalloc_rules(self.heap.era()).ok_or("an era without kmalloc")?;
        let mut walked = Ok(());
        self.heap.for_each_cache(|cache| {
            if cache.name().starts_with(rules.prefix) || cache.name() == "kmalloc" {
                let class = cache.for_each_live(|object| found.push(object.addr().get()));
                walked = walked.and(class);
            }
        });
        if walked.is_err() && self.limits.cpus_hide {
            return Ok(());
        }
        walked.map_err(|error| error.to_string())?;
        found.sort_unstable();
        let mut expected = self.ledger.borrow().addresses(Owner::Kmalloc);
        expected.retain(|&address| {
            let object = std::ptr::NonNull::new(std::ptr::without_provenance_mut(address));
            // SAFETY: the handle is not used.
            object.is_some_and(|object| unsafe { self.heap.cache_of(object) }.is_some())
        });
        check("kmalloc", found, &expected, keeps_general_objects::<D>())
    }

    /// Frees everything and checks that nothing stays behind.
    pub(crate) fn finish(&mut self) -> Check {
        self.walk()?;
        let owners = self.ledger.borrow().owners();
        for owner in owners {
            self.free_all(owner)?;
        }
        self.audit()?;
        self.walk()?;
        self.shrink_to_nothing()?;
        self.audit()?;
        while !self.caches.is_empty() && !self.limits.cpus_hide {
            let before = self.caches.len();
            self.destroy(before - 1)?;
            ensure!(
                self.caches.len() < before,
                "an empty cache was not destroyed"
            );
        }
        let pages = self.heap.pages();
        let attempts = if self.limits.cpus_hide { ATTEMPTS } else { 1 };
        let drained = (0..attempts).any(|_| pages.drain_all() == 0);
        ensure!(drained, "CPUs kept their page lists");
        let census = (0..attempts).find_map(|_| self.census().transpose());
        let Some(census) = census.transpose()? else {
            return Err("no census could be made".into());
        };
        ensure_eq!(
            census.slab + census.large + census.allocated,
            0,
            "pages in use"
        );
        ensure_eq!(census.pcp, 0, "pages on per-CPU lists after a drain");
        ensure_eq!(
            pages.stats().free_blocks,
            self.boot_blocks,
            "free blocks, now and at boot"
        );
        Ok(())
    }

    fn shrink_to_nothing(&self) -> Check {
        let rounds = match (self.limits.cpus_hide, keeps_general_objects::<D>()) {
            (true, _) => ATTEMPTS,
            (false, true) => GENERAL_ROUNDS,
            (false, false) => 1,
        };
        // CPUs keep their main sheaf for as long as the cache has sheaves.
        self.heap.for_each_cache(|cache| {
            cache.set_attribute("sheaf_capacity", 0);
        });
        let mut left = None;
        for _ in 0..rounds {
            left = None;
            self.heap.for_each_cache(|cache| {
                cache.shrink();
                let usage = cache.usage();
                if usage.slabs > 0 {
                    left = Some(format!("{}: slabs stay: {usage:?}", cache.name()));
                }
            });
            if left.is_none() {
                break;
            }
        }
        left.map_or(Ok(()), Err)
    }
}
