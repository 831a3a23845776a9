//! Flush, shrink: emptying per-CPU state and giving empty slabs back (facts 2.9).

use super::stats::Stat;
use super::types::{CpuSlab, Slub};
use super::word::SlabWord;
use crate::debug;
use crate::design::{Env, Upkeep};
use crate::era::Era;
use crate::machine::Machine;
use crate::page::{PageList, Pfn};
use crate::protection::Reach;
use crate::slabs::cpus;
use crate::sync::Ordering;

/// Slabs with more free objects than this keep their place when a list is sorted.
const SHRINK_PROMOTE_MAX: usize = 32;

/// The kernel's way to make CPUs give up their slabs.
fn reach(era: Era) -> Reach {
    match era >= Era::V5_15 {
        true => Reach::Worker,
        false => Reach::Interrupt,
    }
}

impl Upkeep for Slub {
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let _pass = env.enter();
        debug::settle_alone(env, || self.settle_deferred(env, None));
        if !self.cpu.exists() {
            return 0;
        }
        let busy = cpus(env).filter(|&cpu| {
            let flush = |state: &mut CpuSlab| {
                if state.slab().is_some() || state.partial().is_some() {
                    reach(env.cache.era).tell(env.machine(), cpu);
                }
                self.flush_cpu(env, state)
            };
            let flushed = self.cpu.try_with_remote(env.machine(), cpu, flush);
            flushed != Some(true)
        });
        busy.count() as u32
    }

    /// Flushes, then gives every empty slab back and sorts the partial lists, fullest first.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let busy = self.flush(env);
        let _pass = env.enter();
        let map = env.map();
        for node in &self.nodes[..env.machine().topology().nodes as usize] {
            let Some(mut list) = node.partial.lock(env.machine()) else {
                continue;
            };
            let mut discards = None;
            let mut next = list.first();
            while let Some(slab) = next {
                next = map.page(slab).next();
                if SlabWord::load(env.machine(), map.page(slab)).inuse == 0 {
                    Self::remove_partial(env, &mut list, slab);
                    map.page(slab).set_next(discards);
                    discards = Some(slab);
                }
            }
            if list.len() <= self.rules.shrink_sorts_above {
                // It stays as it is.
            } else if self.rules.shrink_sorts_all {
                Self::promote(env, &mut list, u32::MAX);
            } else {
                Self::promote(env, &mut list, SHRINK_PROMOTE_MAX as u32);
            }
            drop(list);
            while let Some(slab) = discards {
                discards = map.page(slab).next();
                env.cache.shared_stats.count(Stat::FreeSlab);
                self.discard(env, slab);
            }
        }
        busy
    }

    fn quiesce<M: Machine>(&self, env: Env<'_, M>, wait: bool) -> u32 {
        self.cpu.quiesce(env.machine(), wait)
    }

    fn resume<M: Machine>(&self, env: Env<'_, M>) {
        self.cpu.resume(env.machine());
    }
}

impl Slub {
    fn flush_cpu<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuSlab) -> bool {
        if cpu.slab().is_some() {
            cpu.stats.count(Stat::CpuslabFlush);
            if !self.deactivate(env, cpu) {
                return false;
            }
        }
        self.drain_cpu_partial(env, cpu);
        cpu.partial().is_none()
    }

    /// Brings the slabs with at most `limit` free objects to the front, fewest free first.
    fn promote<M: Machine>(env: Env<'_, M>, list: &mut PageList, limit: u32) {
        let map = env.map();
        let free = |slab: Pfn| {
            let page = map.page(slab);
            page.objects.load(Ordering::Relaxed) - SlabWord::load(env.machine(), page).inuse
        };
        // A selection by increasing count: each pass moves the slabs of one count behind those
        // moved before. The number of passes is bounded by the distinct counts.
        let mut sorted = PageList::EMPTY;
        loop {
            let least = list.iter(map).map(free).filter(|&n| n <= limit).min();
            let Some(least) = least else { break };
            let mut next = list.first();
            while let Some(slab) = next {
                next = map.page(slab).next();
                if free(slab) <= least {
                    list.remove(env.links(), slab);
                    sorted.push_back(env.call_links(), slab);
                }
            }
        }
        while let Some(slab) = sorted.pop_back(env.call_links()) {
            list.push_front(env.links(), slab);
        }
    }
}
