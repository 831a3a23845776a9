//! A node's partial list, and the way of objects from queues back to their slabs.

use core::ptr::NonNull;

use super::count;
use super::slab::LockedSlab;
use super::stats::{Stat, Stats};
use super::types::{CpuQueue, Slubq};
use crate::debug;
use crate::design::Env;
use crate::machine::{Machine, NodeId, Work, work};
use crate::page::Pfn;
use crate::slabs;

impl Slubq {
    /// True if the running thread holds a list lock already (it runs in a signal handler).
    pub(super) fn lists_reentered<M: Machine>(&self, env: Env<'_, M>) -> bool {
        let nodes = &self.nodes[..env.machine().topology().nodes as usize];
        nodes
            .iter()
            .any(|node| node.partial.lock(env.machine()).is_none())
    }

    /// Takes a slab of the wanted node's list, or else of another's that has more than
    /// `min_partial`, with its lock (`get_partial()`).
    pub(super) fn find_partial<'a, M: Machine>(
        &self,
        env: Env<'a, M>,
        wanted: NodeId,
        mut stats: Option<&mut Stats>,
    ) -> Option<LockedSlab<'a, M>> {
        let machine = env.machine();
        if let Some(found) = self.take_partial(env, wanted, stats.as_deref_mut()) {
            return Some(found);
        }
        self.remote.nodes(machine, wanted).find_map(|other| {
            let partial = &self.nodes[other.0 as usize].partial;
            let lends = partial.lock(machine)?.len() > self.min_partial;
            lends.then(|| self.take_partial(env, other, stats.as_deref_mut()))?
        })
    }

    /// Takes the first slab of a node's list whose lock is free, with its lock.
    fn take_partial<'a, M: Machine>(
        &self,
        env: Env<'a, M>,
        node: NodeId,
        stats: Option<&mut Stats>,
    ) -> Option<LockedSlab<'a, M>> {
        let map = env.map();
        let mut list = self
            .nodes
            .get(node.0 as usize)?
            .partial
            .lock(env.machine())?;
        // Frees lock the slab first, then the list. The other way round a lock is only tried: a slab that is being
        // freed to is passed over.
        let locked = list
            .iter(map)
            .find_map(|slab| LockedSlab::try_lock(env, slab))?;
        map.page(locked.slab).set_on_list(false);
        list.remove(env.links(), locked.slab);
        count(env, stats, Stat::AllocFromPartial);
        Some(locked)
    }

    /// Puts a slab at the tail of its node's list if it has free objects, and unlocks it. If the
    /// list's lock is re-entered, the free objects are deferred, which makes the slab full.
    pub(super) fn put_partial<M: Machine>(&self, env: Env<'_, M>, locked: LockedSlab<'_, M>) {
        if locked.free() == 0 {
            return;
        }
        let map = env.map();
        let node = &self.nodes[env.pages().node_of_page(locked.slab).0 as usize];
        if let Some(mut list) = node.partial.lock(env.machine()) {
            map.page(locked.slab).set_on_list(true);
            list.push_back(env.links(), locked.slab);
            return;
        }
        locked.take(self.size, locked.free(), |object| {
            // SAFETY: the object was free in the slab, so it is this cache's and has no user (I1).
            unsafe { env.cache.defer(object) };
        });
    }

    /// Gives the oldest entries of a queue back to their slabs. They leave the queue only then: a handler that
    /// interrupts this finds the slot held and does not see them.
    pub(super) fn drain<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuQueue, n: u32) {
        let machine = env.machine();
        let stats = self.drain_objects(env, cpu.stack.oldest(machine, n));
        cpu.stats.add(&stats);
        cpu.stack.forget_oldest(machine, n);
    }

    /// Gives objects back to their slabs, neighbours of one slab at once. Returns what is to be
    /// counted for it.
    pub(super) fn drain_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut rest: &[NonNull<u8>],
    ) -> Stats {
        let mut stats = Stats::default();
        while let Some(&object) = rest.first() {
            let Ok(slab) = slabs::slab_of(env, object) else {
                rest = &rest[1..];
                continue;
            };
            // Neighbours in a queue are mostly neighbours in memory, as a refill fills it slab by slab: one hold of the
            // slab's lock, and of the list's if the slab changes lists, serves the run.
            let same = rest
                .iter()
                .take_while(|&&other| slabs::slab_of(env, other) == Ok(slab));
            let (run, after) = rest.split_at(same.count());
            self.free_to_slab(env, slab, run, Some(&mut stats));
            rest = after;
        }
        stats
    }

    /// Marks objects of one slab as free and settles where the slab belongs now. With a lock
    /// re-entered the objects are deferred. An object that is free already is passed over; `false`
    /// if all are.
    pub(super) fn free_to_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        objects: &[NonNull<u8>],
        mut stats: Option<&mut Stats>,
    ) -> bool {
        let map = env.map();
        let defer = || {
            for &object in objects {
                // SAFETY: the objects are this cache's and given up by their users (I1).
                unsafe { env.cache.defer(object) };
            }
            true
        };
        let Some(locked) = LockedSlab::lock(env, slab) else {
            return defer();
        };
        // Mostly the slab is partial before and after, and the bitmap is all that changes. The list's lock is taken
        // before any bit is set, although it may turn out not to be needed: if it is re-entered, all objects can
        // still be deferred. `may_empty` counts objects that may be free already, so it errs on that side.
        let before = locked.free();
        let may_empty = before + objects.len() as u32 >= locked.objects();
        let node = &self.nodes[env.pages().node_of_page(slab).0 as usize];
        let mut list = None;
        if before == 0 || may_empty {
            list = node.partial.lock(env.machine());
            if list.is_none() {
                return defer();
            }
        }
        for &object in objects {
            work(env.machine(), Work::DrainObject);
            locked.give_back(self.size, object);
        }
        let freed = locked.free() > before;
        let Some(mut list) = list else { return freed };
        let page = map.page(slab);
        let empty = locked.free() == locked.objects();
        if empty && page.on_list() {
            page.set_on_list(false);
            list.remove(env.links(), slab);
            count(env, stats.as_deref_mut(), Stat::FreeRemovePartial);
        } else if !empty && before == 0 && locked.free() > 0 {
            page.set_on_list(true);
            list.push_back(env.links(), slab);
            count(env, stats.as_deref_mut(), Stat::FreeAddPartial);
        }
        // The slab is on no list and has no objects in use, so no other code locks it.
        drop(list);
        drop(locked);
        if empty {
            count(env, stats, Stat::FreeSlab);
            self.discard(env, slab);
        }
        freed
    }

    /// Frees what was deferred; objects whose lock is re-entered are deferred again.
    pub(super) fn settle_deferred<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut stats: Option<&mut Stats>,
    ) {
        for object in debug::take_deferred(env.cache) {
            count(env, stats.as_deref_mut(), Stat::FreeDeferred);
            let Ok(slab) = slabs::slab_of(env, object) else {
                continue;
            };
            self.free_to_slab(env, slab, &[object], stats.as_deref_mut());
        }
    }
}
