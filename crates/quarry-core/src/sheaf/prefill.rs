//! Prefilled sheaves: objects set aside, so that allocating them cannot fail (facts 6.9).

use core::ptr::NonNull;

use super::stats::{Stat, Stats};
use super::types::{Sheaf, SheafCache};
use crate::design::Env;
use crate::machine::{Machine, NodeId, Work, work};
use crate::sync::Ordering;

impl SheafCache {
    /// A sheaf with at least `objects` objects (`kmem_cache_prefill_sheaf()`). `None` if memory is
    /// exhausted.
    pub(crate) fn prefill<M: Machine>(&self, env: Env<'_, M>, objects: u32) -> Option<Sheaf> {
        let _pass = env.enter();
        let mut stats = Stats::default();
        let node = env.machine().current_node();
        let oversize = objects > self.capacity();
        let sheaf = if oversize {
            stats.count(Stat::SheafPrefillOversize);
            let mut uncounted = Stats::default();
            let counted = match self.rules.counts_oversize {
                true => &mut stats,
                false => &mut uncounted,
            };
            let mut sheaf = Self::new_sheaf(env, objects, counted);
            if let Some(sheaf) = &mut sheaf {
                sheaf.set_oversize();
            }
            sheaf
        } else {
            let found = self.sheaf_to_prefill(env, node, &mut stats);
            match found {
                // From before the capacity was raised.
                Some(small) if small.capacity() < objects => {
                    self.dissolve_one(env, small, &mut stats);
                    Self::new_sheaf(env, self.capacity().max(objects), &mut stats)
                }
                found => found,
            }
        };
        let filled = sheaf.and_then(|sheaf| self.fill_up(env, sheaf, objects, node, &mut stats));
        env.cache.shared_stats.add(&stats);
        filled
    }

    /// The spare, or one of the barn, or a new one.
    fn sheaf_to_prefill<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<Sheaf> {
        let machine = env.machine();
        let spare = self.cpu.try_with(machine, |cpu, _| {
            work(machine, Work::Preempt);
            cpu.spare.take()
        });
        if let Some(spare) = spare.flatten() {
            stats.count(Stat::SheafPrefillFast);
            return Some(spare);
        }
        stats.count(Stat::SheafPrefillSlow);
        let full = self
            .barn(env, node)
            .and_then(|mut barn| barn.full.pop(env.machine()));
        let stat = match full {
            Some(_) => Stat::BarnGet,
            None => Stat::BarnGetFail,
        };
        stats.count(stat);
        full.or_else(|| self.empty_sheaf(env, node, stats))
    }

    /// Fills a sheaf if it has fewer objects than wanted; if memory does not reach that far, it is
    /// dissolved.
    fn fill_up<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut sheaf: Sheaf,
        objects: u32,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<Sheaf> {
        if sheaf.size() < objects {
            self.fill_sheaf(env, &mut sheaf, node, stats);
        }
        if sheaf.size() >= objects {
            return Some(sheaf);
        }
        self.dissolve_one(env, sheaf, stats);
        None
    }

    /// Brings a sheaf's objects back to their slabs and frees it; an oversize one is counted where the era
    /// counts them.
    fn dissolve_one<M: Machine>(&self, env: Env<'_, M>, mut sheaf: Sheaf, stats: &mut Stats) {
        self.flush_sheaf(env, &mut sheaf, stats);
        let mut uncounted = Stats::default();
        let counts = self.rules.counts_oversize || !sheaf.is_oversize();
        let counted = if counts { stats } else { &mut uncounted };
        Self::free_sheaf(env, sheaf, counted);
    }

    /// Takes an object out of a prefilled sheaf; `None` if it is empty.
    pub(crate) fn alloc_prefilled<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaf: &mut Sheaf,
    ) -> Option<NonNull<u8>> {
        let object = sheaf.pop(env.machine())?;
        env.cache
            .shared_stats
            .count(if self.rules.sheaf_is_fastpath {
                Stat::AllocFastpath
            } else {
                Stat::AllocCpuSheaf
            });
        Some(object)
    }

    /// Brings a prefilled sheaf to at least `objects` objects; a larger sheaf replaces one that is too
    /// small (`kmem_cache_refill_sheaf()`). Returns `false`, with its objects kept, if memory is
    /// exhausted.
    pub(crate) fn top_up<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaf: &mut Sheaf,
        objects: u32,
    ) -> bool {
        if sheaf.size() >= objects {
            return true;
        }
        if sheaf.capacity() >= objects {
            let _pass = env.enter();
            let mut stats = Stats::default();
            self.fill_sheaf(env, sheaf, env.machine().current_node(), &mut stats);
            env.cache.shared_stats.add(&stats);
            return sheaf.size() >= objects;
        }
        let Some(larger) = self.prefill(env, objects) else {
            return false;
        };
        self.return_prefilled(env, core::mem::replace(sheaf, larger));
        true
    }

    /// Takes a prefilled sheaf back (`kmem_cache_return_sheaf()`): as the spare; else, filled, in
    /// the barn; else it is dissolved, as those are that have another size than new ones.
    pub(crate) fn return_prefilled<M: Machine>(&self, env: Env<'_, M>, sheaf: Sheaf) {
        let machine = env.machine();
        let _pass = env.enter();
        let mut stats = Stats::default();
        let mut returned = Some(sheaf);
        let regular = |sheaf: &Sheaf| sheaf.capacity() == self.capacity() && !sheaf.is_oversize();
        if returned.as_ref().is_some_and(regular) {
            self.cpu.try_with(machine, |cpu, _| {
                work(machine, Work::Preempt);
                if cpu.spare.is_none() {
                    cpu.spare = returned.take();
                }
            });
            stats.count(match returned {
                None => Stat::SheafReturnFast,
                Some(_) => Stat::SheafReturnSlow,
            });
            returned = returned.and_then(|sheaf| self.return_to_barn(env, sheaf, &mut stats));
        }
        if let Some(sheaf) = returned {
            self.dissolve_one(env, sheaf, &mut stats);
        }
        env.cache.shared_stats.add(&stats);
    }

    /// Fills a sheaf and puts it in the barn; gives it back if the barn has enough or it cannot be
    /// filled.
    fn return_to_barn<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut sheaf: Sheaf,
        stats: &mut Stats,
    ) -> Option<Sheaf> {
        let node = env.machine().current_node();
        let limit = self.barn_full.load(Ordering::Relaxed);
        let wanted = self
            .barn(env, node)
            .is_some_and(|barn| barn.full.count() < limit);
        if !wanted {
            return Some(sheaf);
        }
        if !sheaf.is_full() {
            self.fill_sheaf(env, &mut sheaf, node, stats);
        }
        if !sheaf.is_full() {
            return Some(sheaf);
        }
        self.put_full(env, node, sheaf, stats);
        None
    }
}
