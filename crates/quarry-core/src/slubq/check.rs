//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::slab::LockedSlab;
use super::types::{CpuQueue, Slubq};
use crate::design::{
    Busy, CheckError, CpuUsage, Env, NodeUsage, Show, SlabInconsistency, Slots, Upkeep, Usage,
};
use crate::machine::{CpuId, HeldSlots, Machine, NodeId};
use crate::page::Pfn;
use crate::rest::Rest;
use crate::slabs::{self, slabs, slabs_from};
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

impl Show for Slubq {
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats {
        let mut sum = env.cache.shared_stats.snapshot();
        slabs::on_each_cpu(env, &self.cpu, |state| state.stats.add_to(&mut sum));
        sum
    }

    fn usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        let mut usage = Usage::default();
        (usage.slabs, usage.num_objs) = slabs::totals(&self.nodes);
        if usage.slabs == 0 {
            return usage;
        }
        let mut free = 0;
        // The walk ends with the last slab: behind it are the pages of all other caches.
        for slab in slabs(env).take(usage.slabs as usize) {
            let Some(locked) = LockedSlab::lock(env, slab) else {
                continue;
            };
            let order = env.map().page(slab).order() as usize;
            usage.slabs_by_order[order] += 1;
            usage.pages += 1 << order;
            free += u64::from(locked.free());
            // Saturating: on a busy cache the pages may have become something else meanwhile.
            let used = locked.objects().saturating_sub(locked.free());
            if locked.free() > 0 && used > 0 {
                usage.partial_slabs += 1;
                usage.one_object_slabs += u64::from(used == 1);
            }
        }
        usage.shared_avail = self.shared_objects(env);
        usage.active_slabs = usage.slabs;
        // Saturating: a slab may come between the two counts on a busy cache.
        usage.active_objs = usage.num_objs.saturating_sub(free);
        usage
    }

    fn node_usage<M: Machine>(&self, env: Env<'_, M>, id: NodeId) -> NodeUsage {
        let node = &self.nodes[id.0 as usize];
        let mut usage = NodeUsage {
            slabs: node.nr_slabs.load(Ordering::Relaxed),
            total_objects: node.total_objects.load(Ordering::Relaxed),
            ..NodeUsage::default()
        };
        if usage.slabs == 0 {
            return usage;
        }
        let mut free = 0;
        // Not by the list: slab locks come before the list's lock.
        for slab in slabs(env).filter(|&slab| env.pages().node_of_page(slab) == id) {
            let Some(locked) = LockedSlab::lock(env, slab) else {
                continue;
            };
            if locked.free() > 0 {
                usage.partial += 1;
                // Saturating: as in `count_usage`.
                let used = locked.objects().saturating_sub(locked.free());
                usage.objects_partial += u64::from(used);
                free += u64::from(locked.free());
            }
        }
        // Saturating: a slab may come or go between the counts on a busy cache.
        usage.objects = usage.total_objects.saturating_sub(free);
        usage
    }

    fn cpu_usage<M: Machine>(&self, env: Env<'_, M>, cpu: CpuId) -> CpuUsage {
        let found = self
            .cpu
            .try_with_remote(env.machine(), cpu, |state| CpuUsage {
                stats: state.stats.snapshot(),
                ..CpuUsage::default()
            });
        found.unwrap_or_default()
    }

    fn clear_stat<M: Machine>(&self, env: Env<'_, M>, stat: Stat) -> u32 {
        env.cache.shared_stats.clear(stat);
        slabs::on_each_cpu(env, &self.cpu, |state| state.stats.clear(stat))
    }

    fn at_rest<M: Machine, R>(&self, env: Env<'_, M>, f: impl FnOnce() -> R) -> Result<R, Busy> {
        let _rest = Rest::of(env, &self.cpu)?;
        Ok(f())
    }

    fn live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        from: usize,
        flush: bool,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy> {
        if flush {
            self.flush(env);
        }
        let rest = Rest::of(env, &self.cpu)?;
        for slab in slabs_from(env, &self.nodes, from) {
            let first = env.map().address(slab);
            let objects = env.map().page(slab).objects.load(Ordering::Relaxed);
            for number in 0..objects {
                // SAFETY: number < objects, and the objects are in the slab (geometry).
                let object = unsafe { first.byte_add(number as usize * self.size) };
                if object.addr().get() < from {
                    continue;
                }
                let locked = LockedSlab::lock(env, slab).ok_or(Busy)?;
                let free = locked.is_free(self.size, number);
                // The locks of queues come before those of slabs.
                drop(locked);
                let live = !free && !self.is_queued(env, rest.slots(), object)?;
                if live && !found(object) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn check_consistency<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        let rest = Rest::of(env, &self.cpu)?;
        rest.verdict(self.check_at_rest(env))
    }
}

impl Slots for Slubq {
    type Shared = ();

    fn free_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), SlabInconsistency> {
        let Some(locked) = LockedSlab::lock(env, slab) else {
            return Ok(());
        };
        let first = env.map().address(slab);
        for number in (0..locked.objects()).filter(|&n| locked.is_free(self.size, n)) {
            // SAFETY: number < objects, and the objects are in the slab (geometry).
            if !found(unsafe { first.byte_add(number as usize * self.size) }) {
                break;
            }
        }
        Ok(())
    }
}

impl Slubq {
    /// True if an object is in a queue. The cache is at rest.
    fn is_queued<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &HeldSlots<'_, M, CpuQueue>,
        object: NonNull<u8>,
    ) -> Result<bool, Busy> {
        let mut of_cpus = slots.states().flat_map(|cpu| cpu.stack.filled());
        Ok(of_cpus.any(|queued| *queued == object) || self.is_shared(env, object)?)
    }

    fn check_at_rest<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        let equal = SlabInconsistency::equal;
        let map = env.map();
        let mut listed = 0;
        for (node, at) in self.nodes.iter().zip(0..env.machine().topology().nodes) {
            let list = node.partial.lock(env.machine());
            let list = list.ok_or(CheckError::Busy)?;
            let mut len = 0;
            for slab in list.iter(map) {
                equal(
                    "listed slab's mark",
                    Some(slab),
                    u64::from(map.page(slab).on_list()),
                    1,
                )?;
                let node_number = u64::from(env.pages().node_of_page(slab).0);
                equal("listed slab's node", Some(slab), u64::from(at), node_number)?;
                len += 1;
            }
            equal("length of a partial list", None, u64::from(list.len()), len)?;
            listed += len;
        }
        let (mut total, mut marked) = (0, 0);
        for slab in slabs(env) {
            let locked = LockedSlab::lock(env, slab).ok_or(CheckError::Busy)?;
            let bits = (0..locked.objects())
                .filter(|&n| locked.is_free(self.size, n))
                .count();
            let free = u64::from(locked.free());
            equal("free objects", Some(slab), free, bits as u64)?;
            let on_list = u64::from(map.page(slab).on_list());
            equal(
                "slab with free objects listed",
                Some(slab),
                on_list,
                u64::from(free > 0),
            )?;
            if free == u64::from(locked.objects()) {
                equal("empty slab kept", Some(slab), 0, 1)?;
            }
            total += 1;
            marked += on_list;
        }
        equal("slabs marked as listed", None, listed, marked)?;
        let (recorded, _) = slabs::totals(&self.nodes);
        Ok(equal("slabs", None, recorded, total)?)
    }
}
