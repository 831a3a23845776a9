//! A node's three lists and its shared array: how objects come from them and go back.

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::geometry::{ReleaseRule, SharedUse};
use super::stats::{Stat, Stats};
use super::types::{Array, Beside, Lists, SlabCache, free_array, new_alien, new_shared};
use crate::debug;
use crate::design::Env;
use crate::machine::{Guard, Machine, NodeId, Work, work};
use crate::page::{PageList, Pfn};
use crate::sync::Ordering;

/// Places for objects.
pub(super) type Room<'a> = &'a mut [MaybeUninit<NonNull<u8>>];

/// A node's lists, locked; what others look at without the lock is brought up to date at the end.
pub(super) struct LockedNode<'a, M: Machine> {
    lists: Guard<'a, M, Lists>,
    beside: &'a Beside,
}

impl<M: Machine> Deref for LockedNode<'_, M> {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        &self.lists
    }
}

impl<M: Machine> DerefMut for LockedNode<'_, M> {
    fn deref_mut(&mut self) -> &mut Lists {
        &mut self.lists
    }
}

impl<M: Machine> Drop for LockedNode<'_, M> {
    fn drop(&mut self) {
        let (lists, beside) = (&*self.lists, self.beside);
        beside
            .free_objects
            .store(lists.free_objects, Ordering::Relaxed);
        beside
            .shared_avail
            .store(lists.shared.avail(), Ordering::Relaxed);
        beside
            .shared_limit
            .store(lists.shared.limit(), Ordering::Relaxed);
    }
}

impl SlabCache {
    /// Waits for a node's lists; `None` if there is no such node, or if the calling thread has them.
    pub(super) fn lock_node<'a, M: Machine>(
        &'a self,
        env: Env<'a, M>,
        node: NodeId,
    ) -> Option<LockedNode<'a, M>> {
        let machine = env.machine();
        if node.0 >= machine.topology().nodes {
            return None;
        }
        let at = &self.nodes[node.0 as usize];
        Some(LockedNode {
            lists: at.partial.lock(machine)?,
            beside: &self.beside[node.0 as usize],
        })
    }

    /// Node of an object's slab.
    #[inline(always)]
    pub(super) fn node_of<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> NodeId {
        if !self.numa {
            return NodeId(0);
        }
        let pfn = env.map().pfn_of(object);
        pfn.map_or(NodeId(0), |pfn| env.pages().node_of_page(pfn))
    }

    /// Takes objects of the node: the shared array's newest if it has any and is asked, else from
    /// slabs in the order of the lists. Says how many.
    pub(super) fn draw<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        room: Room<'_>,
        ask_shared: bool,
        stats: &mut Stats,
    ) -> u32 {
        if ask_shared && lists.shared.avail() > 0 {
            let moved = lists.shared.move_newest(env.machine(), room);
            lists.shared.touched |= self.era.run.shared_use == SharedUse::Refill;
            return moved;
        }
        let mut drawn = 0;
        while drawn < room.len() {
            let slab = match lists.partial.first() {
                Some(slab) => {
                    stats.count(Stat::AllocFromPartial);
                    slab
                }
                None => {
                    lists.free_touched = true;
                    let Some(slab) = lists.free.first() else {
                        break;
                    };
                    slab
                }
            };
            let open = self.open(env, slab);
            if env.cache.flags().debug() && !open.names_each_once() {
                self.isolate_listed(env, lists, slab);
                continue;
            }
            let objects = open.objects();
            // Off its list before the count changes, which decides on what list the slab is looked for.
            lists
                .of(open.active(), objects)
                .remove(Self::links(env), slab);
            let taken = Self::take_into(&open, &mut room[drawn..]);
            lists
                .of(open.active(), objects)
                .push_front(Self::links(env), slab);
            lists.free_objects -= u64::from(taken);
            drawn += taken as usize;
        }
        drawn as u32
    }

    /// Makes a slab whose indices were overwritten full: the objects that they named are lost.
    pub(super) fn isolate_listed<M: Machine>(&self, env: Env<'_, M>, lists: &mut Lists, slab: Pfn) {
        let open = self.open(env, slab);
        let (active, objects) = (open.active(), open.objects());
        if active == objects {
            return;
        }
        lists.of(active, objects).remove(Self::links(env), slab);
        lists.free_objects -= u64::from(objects - active);
        if let Some(debug) = env.cache.debug() {
            debug.note_damaged(slab, open.holder().map(|(slot, _)| slot));
        }
        open.make_full();
        lists.full.push_front(Self::links(env), slab);
    }

    pub(super) fn take_into<M: Machine>(
        open: &super::slab::OpenSlab<'_, M>,
        room: Room<'_>,
    ) -> u32 {
        let mut places = room.iter_mut();
        open.take(places.len() as u32, |object| {
            if let Some(place) = places.next() {
                place.write(object);
            }
        })
    }

    /// Puts objects of the node back in their slabs (`free_block()`). Slabs that are to go are put
    /// on `released`. Says how many objects were not free already.
    pub(super) fn free_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        objects: &[NonNull<u8>],
        released: &mut PageList,
        stats: &mut Stats,
    ) -> u32 {
        let mut freed = 0;
        for &object in objects {
            work(env.machine(), Work::DrainObject);
            let Ok(slab) = Self::slab_of(env, object) else {
                continue;
            };
            let open = self.open(env, slab);
            let (before, in_slab) = (open.active(), open.objects());
            if !open.give_back(object) {
                continue;
            }
            freed += 1;
            lists.free_objects += 1;
            lists.of(before, in_slab).remove(Self::links(env), slab);
            if before == in_slab && before > 1 {
                stats.count(Stat::FreeAddPartial);
            }
            // Most frees end here. The slab moves to the tail even if it was partial: allocations take from the
            // head, so it has time to become empty.
            if before > 1 {
                lists.partial.push_back(Self::links(env), slab);
                continue;
            }
            if in_slab > 1 {
                stats.count(Stat::FreeRemovePartial);
            }
            let gone = self.era.run.release == ReleaseRule::JustEmptied
                && lists.free_objects > lists.free_limit;
            if gone {
                lists.free_objects -= u64::from(in_slab);
                released.push_back(Self::call_links(env), slab);
            } else {
                lists.free.push_front(Self::links(env), slab);
            }
        }
        if self.era.run.release == ReleaseRule::TailAfterGroup {
            while lists.free_objects > lists.free_limit
                && self.unlist_last_free(env, lists, released)
            {}
        }
        freed
    }

    /// Takes the last slab off the free list, to be released; `false` if there is none.
    pub(super) fn unlist_last_free<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        released: &mut PageList,
    ) -> bool {
        let Some(slab) = lists.free.pop_back(Self::links(env)) else {
            return false;
        };
        lists.free_objects -= u64::from(self.open(env, slab).objects());
        released.push_back(Self::call_links(env), slab);
        true
    }

    /// Gives slabs back that are on no list of a node any more. No lock is held.
    pub(super) fn release_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut released: PageList,
        stats: &mut Stats,
    ) {
        while let Some(slab) = released.pop_front(Self::call_links(env)) {
            stats.count(Stat::FreeSlab);
            self.discard(env, slab);
        }
    }

    /// Puts objects of any node back in their slabs. With a lock re-entered they are deferred.
    /// Says how many were not free already.
    pub(super) fn free_to_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        objects: &[NonNull<u8>],
        stats: &mut Stats,
    ) -> u32 {
        let mut freed = 0;
        let mut rest = objects;
        while let Some(&first) = rest.first() {
            let node = self.node_of(env, first);
            let (run, after) = rest.split_at(self.run_of(env, node, rest));
            rest = after;
            let Some(mut lists) = self.lock_node(env, node) else {
                freed += Self::defer(env, run);
                continue;
            };
            let mut released = PageList::EMPTY;
            freed += self.free_block(env, &mut lists, run, &mut released, stats);
            drop(lists);
            self.release_slabs(env, released, stats);
        }
        freed
    }

    /// Number of objects, from the first on, of one node.
    pub(super) fn run_of<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        objects: &[NonNull<u8>],
    ) -> usize {
        if !self.numa {
            return objects.len();
        }
        let same = objects
            .iter()
            .take_while(|&&object| self.node_of(env, object) == node);
        same.count()
    }

    /// Leaves objects for a time when no lock is re-entered. Says how many.
    pub(super) fn defer<M: Machine>(env: Env<'_, M>, objects: &[NonNull<u8>]) -> u32 {
        for &object in objects {
            // SAFETY: the objects are this cache's, given up by their users and in no slab (I1).
            unsafe { env.cache.defer(object) };
        }
        objects.len() as u32
    }

    /// Frees what was deferred; objects whose lock is re-entered are deferred again.
    pub(super) fn settle_deferred<M: Machine>(&self, env: Env<'_, M>, stats: &mut Stats) {
        for object in debug::take_deferred(env.cache) {
            stats.count(Stat::FreeDeferred);
            self.free_to_slabs(env, &[object], stats);
        }
    }

    /// Gives a node the shared array that the tunables ask for, if it has none.
    pub(super) fn make_shared<M: Machine>(&self, env: Env<'_, M>, node: NodeId) {
        let factor = self.shared_factor.load(Ordering::Relaxed);
        let limit = factor.saturating_mul(self.batch.load(Ordering::Relaxed));
        let beside = &self.beside[node.0 as usize];
        let there = beside.shared_limit.load(Ordering::Relaxed) != 0;
        if limit == 0 || there || self.heap.shrinking() {
            return;
        }
        beside.make_once(|| {
            let Some(mut array) = new_shared(env, limit, node) else {
                return;
            };
            if let Some(mut lists) = self.lock_node(env, node)
                && lists.shared.is_none()
            {
                core::mem::swap(&mut lists.shared, &mut array);
            }
            free_array(env, array);
        });
    }

    /// Gives a node the array for another node's objects, if it has none.
    pub(super) fn make_alien<M: Machine>(&self, env: Env<'_, M>, local: NodeId, node: NodeId) {
        let limit = match self.limit.load(Ordering::Relaxed) {
            1 => 1,
            _ => self.era.limits.alien_limit,
        };
        let beside = &self.beside[local.0 as usize];
        if beside.has_alien(node) || self.heap.shrinking() {
            return;
        }
        beside.make_once(|| {
            let Some(mut array) = new_alien(env, limit, local) else {
                return;
            };
            if let Some(mut alien) = beside.aliens[node.0 as usize].lock(env.machine())
                && alien.is_none()
            {
                core::mem::swap(&mut *alien, &mut array);
                beside.set_has_alien(node, true);
            }
            free_array(env, array);
        });
    }

    /// Moves an alien array's objects home: to their node's shared array while there is room,
    /// the newest first, else to their slabs. `false` if their node's lock is re-entered.
    pub(super) fn drain_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        alien: &mut Array,
        node: NodeId,
        released: &mut PageList,
        stats: &mut Stats,
    ) -> bool {
        let Some(mut lists) = self.lock_node(env, node) else {
            return false;
        };
        let machine = env.machine();
        let shared = lists.shared.take_from(machine, alien);
        let used = shared > 0 && self.era.run.shared_use == SharedUse::AlienOverflow;
        lists.shared.touched |= used;
        let rest = alien.oldest(machine, u32::MAX);
        self.free_block(env, &mut lists, rest, released, stats);
        alien.forget_oldest(machine, u32::MAX);
        true
    }
}
