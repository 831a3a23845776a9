//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::types::{CpuArray, Shrinks, SlabCache};
use crate::design::{Busy, CheckError, Env, Show, SlabInconsistency, Slots, Upkeep, Usage};
use crate::machine::{HeldSlots, Machine, NodeId};
use crate::page::{PageList, Pfn};
use crate::rest::Rest;
use crate::slabs::{self, ObjectSet, slabs, slabs_from};
use crate::stats::Stats;

impl Show for SlabCache {
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats {
        let mut sum = env.cache.shared_stats.snapshot();
        slabs::on_each_cpu(env, &self.cpu, |state| state.queue.stats.add_to(&mut sum));
        sum
    }

    fn usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        let mut usage = Usage::default();
        let map = env.map();
        let (mut free_objects, mut free_slabs) = (0, 0);
        (usage.slabs, usage.num_objs) = slabs::totals(&self.nodes);
        for node in 0..env.machine().topology().nodes {
            let Some(lists) = self.lock_node(env, NodeId(node)) else {
                continue;
            };
            free_objects += lists.free_objects;
            free_slabs += u64::from(lists.free.len());
            usage.shared_avail += u64::from(lists.shared.avail());
            usage.partial_slabs += u64::from(lists.partial.len());
            let ones = lists
                .partial
                .iter(map)
                .filter(|&slab| self.open(env, slab).active() == 1);
            usage.one_object_slabs += ones.count() as u64;
        }
        // Saturating: a slab may come between the counts on a busy cache.
        usage.active_objs = usage.num_objs.saturating_sub(free_objects);
        usage.active_slabs = usage.slabs.saturating_sub(free_slabs);
        let order = env.cache.geometry.order;
        usage.pages = usage.slabs << order;
        usage.slabs_by_order[order as usize] = usage.slabs;
        usage
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
            let mut free = ObjectSet::new();
            let open = self.open(env, slab);
            let lists = self
                .lock_node(env, env.pages().node_of_page(slab))
                .ok_or(Busy)?;
            open.each_free(|number| {
                free.insert(number as usize);
            });
            drop(lists);
            self.each_queued(env, rest.slots(), &mut |object| {
                if let Some(number) = open.number(object) {
                    free.insert(number as usize);
                }
            })?;
            let at_from = |number: &u32| open.object(*number).addr().get() >= from;
            for number in (0..open.objects()).filter(at_from) {
                if !free.contains(number as usize) && !found(open.object(number)) {
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

impl Slots for SlabCache {
    type Shared = Shrinks;

    fn first_slot<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) -> NonNull<u8> {
        self.open(env, slab).first()
    }

    fn held_by<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) -> Option<(NonNull<u8>, u32)> {
        self.open(env, slab).holder()
    }

    fn isolate<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        if let Some(mut lists) = self.lock_node(env, env.pages().node_of_page(slab)) {
            self.isolate_listed(env, &mut lists, slab);
        }
    }

    fn free_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), SlabInconsistency> {
        let open = self.open(env, slab);
        if !open.names_each_once() {
            let what = "indices of free objects";
            let free = u64::from(open.objects() - open.active());
            return SlabInconsistency::equal(what, Some(slab), free, 0);
        }
        let mut more = true;
        open.each_free(|number| more = more && found(open.object(number)));
        Ok(())
    }
}

impl SlabCache {
    /// Calls `found` for the objects in all arrays. The cache is at rest.
    fn each_queued<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &HeldSlots<'_, M, CpuArray>,
        found: &mut dyn FnMut(NonNull<u8>),
    ) -> Result<(), Busy> {
        let queued = slots.states().flat_map(|cpu| cpu.queue.stack.filled());
        queued.for_each(|object| found(*object));
        let nodes = || (0..env.machine().topology().nodes).map(NodeId);
        for local in nodes() {
            let lists = self.lock_node(env, local).ok_or(Busy)?;
            lists
                .shared
                .filled()
                .iter()
                .for_each(|object| found(*object));
            drop(lists);
            for node in nodes() {
                let alien = &self.beside[local.0 as usize].aliens[node.0 as usize];
                let alien = alien.lock(env.machine()).ok_or(Busy)?;
                alien.filled().iter().for_each(|object| found(*object));
            }
        }
        Ok(())
    }

    fn check_at_rest<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        let equal = SlabInconsistency::equal;
        let mut listed = 0;
        for node in (0..env.machine().topology().nodes).map(NodeId) {
            let mut lists = self.lock_node(env, node).ok_or(CheckError::Busy)?;
            let objects = env.cache.geometry.objects;
            let mut free_objects = 0;
            let kinds = [
                ("objects taken of a partial slab", 1..objects),
                ("objects taken of a full slab", objects..objects + 1),
                ("objects taken of a free slab", 0..1),
            ];
            for (name, active) in kinds {
                let list = lists.of(active.start, objects);
                // With one object in a slab nothing is partial, and 1 is full.
                if active.is_empty() {
                    continue;
                }
                let (len, free) = self.check_list(env, node, list, name, &active)?;
                equal("length of a list", None, u64::from(list.len()), len)?;
                listed += len;
                free_objects += free;
            }
            equal(
                "free objects of a node",
                None,
                lists.free_objects,
                free_objects,
            )?;
            let shared = &lists.shared;
            let beyond = u64::from(shared.avail().saturating_sub(shared.limit()));
            equal("entries beyond a shared array", None, 0, beyond)?;
        }
        let (recorded, _) = slabs::totals(&self.nodes);
        equal("slabs on lists", None, recorded, listed)?;
        let found = slabs(env).count() as u64;
        Ok(equal("slabs", None, recorded, found)?)
    }

    /// Slabs of a list, and their free objects.
    fn check_list<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        list: &PageList,
        name: &'static str,
        valid: &core::ops::Range<u32>,
    ) -> Result<(u64, u64), SlabInconsistency> {
        let wrong = |what, slab: Pfn, recorded: u64, found: u64| {
            SlabInconsistency::equal(what, Some(slab), recorded, found)
        };
        let (mut slabs, mut free_objects) = (0, 0);
        for slab in list.iter(env.map()) {
            let open = self.open(env, slab);
            let (active, objects) = (open.active(), open.objects());
            if !valid.contains(&active) {
                return Err(SlabInconsistency {
                    what: name,
                    slab: Some(slab),
                    recorded: u64::from(valid.start),
                    found: u64::from(active),
                });
            }
            let of = env.pages().node_of_page(slab).0;
            wrong("node of a listed slab", slab, node.0.into(), of.into())?;
            let mut seen = ObjectSet::new();
            let mut named = 0;
            open.each_free(|number| {
                named += u64::from(number < objects && seen.insert(number as usize));
            });
            let free = u64::from(objects - active);
            wrong("free objects named once", slab, free, named)?;
            slabs += 1;
            free_objects += free;
        }
        Ok((slabs, free_objects))
    }
}
