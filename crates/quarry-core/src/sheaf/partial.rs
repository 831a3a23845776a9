//! The way of objects from slabs into sheaves and back, over the nodes' partial lists.

use core::ptr::NonNull;

use super::Kind;
use super::geometry::RefillOrder;
use super::stats::{Stat, Stats};
use super::types::{Sheaf, Sheaves};
use crate::design::Env;
use crate::front;
use crate::machine::{Machine, NodeId};
use crate::page::{PageList, Pfn};
use crate::slabs;
use crate::slub::Slub;
use crate::slub::geometry::ListEnd;
use crate::slub::types::Detached;
use crate::slub::word::SlabWord;
use crate::sync::Ordering;

/// Objects that one flush of the main sheaf takes out at most (`PCS_BATCH_MAX`).
pub(super) const FLUSH_BATCH: usize = 32;

/// Slabs whose lists a refill follows at a time.
const ABREAST: usize = 8;

/// Slots that are being filled with objects.
struct Filling<'a> {
    slots: &'a mut [Option<NonNull<u8>>],
    filled: usize,
}

impl Filling<'_> {
    fn wanted(&self) -> u32 {
        (self.slots.len() - self.filled) as u32
    }

    fn put(&mut self, object: NonNull<u8>) {
        self.slots[self.filled] = Some(object);
        self.filled += 1;
    }
}

impl<K: Kind> Sheaves<K> {
    /// Fills a sheaf until it is full or memory is short; in 6.18 whole or not at all. The caller holds a CPU's slot or
    /// has entered the gate.
    pub(super) fn fill_sheaf<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaf: &mut Sheaf,
        node: NodeId,
        stats: &mut Stats,
    ) {
        let came = sheaf.fill(env.machine(), |slots| {
            let filled = self.fill(env, slots, node, stats);
            // The last object is handed out first.
            if self.rules.refill == RefillOrder::Abreast {
                slots[..filled].reverse();
            }
        });
        stats.count_by(Stat::SheafRefill, u64::from(came));
    }

    /// Fills slots from the front with objects from slabs, of this node if it has any, and returns
    /// how many. The caller holds a CPU's slot or has entered the gate.
    pub(super) fn fill<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
        node: NodeId,
        stats: &mut Stats,
    ) -> usize {
        if self.rules.cpu_slabs {
            return match front::alloc_many(&self.slub, env, None, slots) {
                true => slots.len(),
                false => 0,
            };
        }
        let mut filling = Filling { slots, filled: 0 };
        self.fill_from_node(env, &mut filling, node, false);
        let nodes = env.machine().topology().nodes;
        if filling.wanted() > 0 && nodes > 1 && self.slub.remote.looks_at_other_nodes() {
            for other in (1..nodes).map(|i| NodeId((node.0 + i) % nodes)) {
                self.fill_from_node(env, &mut filling, other, true);
            }
        }
        while filling.wanted() > 0 && self.fill_from_new(env, &mut filling, stats) {}
        filling.filled
    }

    /// Takes slabs off a node's list, under one hold of its lock, until their free objects suffice,
    /// and then their objects (`__refill_objects_node()`). Of another node's list the lock is only
    /// tried, and it must be longer than `min_partial`.
    fn fill_from_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        filling: &mut Filling<'_>,
        node: NodeId,
        other: bool,
    ) {
        let (machine, map) = (env.machine(), env.map());
        let wanted = filling.wanted();
        if wanted == 0 {
            return;
        }
        let partial = &self.slub.nodes[node.0 as usize].partial;
        let list = match other {
            true => partial.try_lock(machine),
            false => partial.lock(machine),
        };
        let Some(mut list) = list else { return };
        if other && list.len() <= self.slub.min_partial.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = PageList::EMPTY;
        let mut available = 0;
        while available < wanted
            && let Some(slab) = list.first()
        {
            let page = map.page(slab);
            available +=
                page.objects.load(Ordering::Relaxed) - SlabWord::load(env.machine(), page).inuse;
            Slub::remove_partial(env, &mut list, slab);
            match self.rules.refill {
                RefillOrder::LastFirst => taken.push_front(env.call_links(), slab),
                RefillOrder::FirstFirst | RefillOrder::Abreast => {
                    taken.push_back(env.call_links(), slab);
                }
            }
        }
        drop(list);
        if self.rules.refill == RefillOrder::Abreast {
            self.fill_abreast(env, filling, &mut taken);
        }
        while let Some(slab) = taken.pop_front(env.call_links()) {
            if filling.wanted() == 0 {
                self.return_partial(env, slab);
            } else {
                self.fill_from_slab(env, filling, slab);
            }
        }
    }

    /// Takes the whole free lists of slabs that are the caller's, several abreast, up to the first that has more than
    /// there is room for.
    fn fill_abreast<M: Machine>(
        &self,
        env: Env<'_, M>,
        filling: &mut Filling<'_>,
        slabs: &mut PageList,
    ) {
        // The next object of each list under way, and how many are left of it. The number ends a list, not only its end: a
        // program that freed an object twice made a ring of it.
        let mut lanes: [Option<(NonNull<u8>, u32)>; ABREAST] = [None; ABREAST];
        let mut last = None;
        // Objects of the lists under way.
        let mut pledged = 0;
        loop {
            let mut under_way = false;
            for lane in &mut lanes {
                if lane.is_none()
                    && last.is_none()
                    && pledged < filling.wanted()
                    && let Some(slab) = slabs.pop_front(env.call_links())
                    && let Some((first, count)) = self.slub.take_objects(env, slab, false)
                    && count > 0
                {
                    // Others may have freed objects of it since it was counted.
                    match pledged + count <= filling.wanted() {
                        true => (*lane, pledged) = (Some((first, count)), pledged + count),
                        false => last = Some((slab, first, count)),
                    }
                }
                let Some((object, left)) = *lane else {
                    continue;
                };
                under_way = true;
                // SAFETY: `take_objects` gave the list.
                let next = NonNull::new(unsafe { self.slub.next_free(env, object) });
                filling.put(object);
                *lane = next.filter(|_| left > 1).map(|next| (next, left - 1));
                pledged -= if lane.is_none() { left } else { 1 };
            }
            if !under_way {
                break;
            }
        }
        if let Some((slab, first, count)) = last {
            self.fill_from_list(env, filling, slab, (first, count));
        }
    }

    /// Takes the whole free list of a slab that is the caller's; what is too much goes back to it.
    fn fill_from_slab<M: Machine>(&self, env: Env<'_, M>, filling: &mut Filling<'_>, slab: Pfn) {
        if let Some(list) = self.slub.take_objects(env, slab, false) {
            self.fill_from_list(env, filling, slab, list);
        }
    }

    /// Takes objects of a slab's whole free list, which `take_objects` gave; what is too much goes back to the slab.
    fn fill_from_list<M: Machine>(
        &self,
        env: Env<'_, M>,
        filling: &mut Filling<'_>,
        slab: Pfn,
        (head, count): (NonNull<u8>, u32),
    ) {
        // SAFETY: `take_objects` gave the list.
        let (rest, left) = unsafe { self.move_objects(env, filling, head, count) };
        let Some(rest) = rest else { return };
        match self.rules.refill {
            RefillOrder::FirstFirst | RefillOrder::Abreast
                if self.hand_back(env, slab, rest, left) => {}
            // SAFETY: the rest of a list that `take_objects` gave.
            _ => unsafe { self.give_back(env, slab, rest, left) },
        }
    }

    /// Makes the rest of a slab's list its list again, and puts it at the tail of its node's list.
    /// `false`, with nothing done, if others have freed objects of it meanwhile.
    fn hand_back<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        rest: NonNull<u8>,
        count: u32,
    ) -> bool {
        let page = env.map().page(slab);
        let node = &self.slub.nodes[env.pages().node_of_page(slab).0 as usize];
        let Some(mut list) = node.partial.lock(env.machine()) else {
            return false;
        };
        let old = SlabWord::load(env.machine(), page);
        let objects = page.objects.load(Ordering::Relaxed);
        let new = SlabWord {
            first: Slub::place(env, slab, rest),
            inuse: objects - count,
            frozen: false,
        };
        if old.first != 0 || old.replace(env.machine(), page, new).is_err() {
            return false;
        }
        Slub::add_partial(env, &mut list, slab, ListEnd::Tail);
        true
    }

    /// Moves objects of a list that the caller owns into slots until these are full. Returns the
    /// rest of the list and its length.
    ///
    /// # Safety
    ///
    /// The list has these objects, and they are the caller's.
    unsafe fn move_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        filling: &mut Filling<'_>,
        head: NonNull<u8>,
        count: u32,
    ) -> (Option<NonNull<u8>>, u32) {
        let mut next = Some(head);
        let mut left = count;
        while filling.wanted() > 0
            && left > 0
            && let Some(object) = next
        {
            // SAFETY: the caller owns the list.
            next = NonNull::new(unsafe { self.slub.next_free(env, object) });
            filling.put(object);
            left -= 1;
        }
        (next.filter(|_| left > 0), left)
    }

    /// Gives a list of objects of one slab back to it.
    ///
    /// # Safety
    ///
    /// The list has these objects of the slab, and they are the caller's.
    unsafe fn give_back<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        head: NonNull<u8>,
        count: u32,
    ) {
        let mut tail = head;
        // SAFETY: the caller owns the list.
        while let Some(next) = NonNull::new(unsafe { self.slub.next_free(env, tail) }) {
            tail = next;
        }
        let list = Detached { head, tail, count };
        // SAFETY: the caller owns the objects, which are the slab's.
        unsafe { self.slub.free_to_slab(env, None, slab, list) };
    }

    /// Puts a slab that was taken off its node's list for nothing back. At the head of it, its pages go if
    /// it is empty by now and the node has enough; no code counts that.
    fn return_partial<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        let node = &self.slub.nodes[env.pages().node_of_page(slab).0 as usize];
        let Some(mut list) = node.partial.lock(env.machine()) else {
            // This thread took and freed the lock before, so this is not reached; but no slab may be lost.
            if let Some((head, count)) = self.slub.take_objects(env, slab, false) {
                // SAFETY: `take_objects` gave the list.
                unsafe { self.give_back(env, slab, head, count) };
            }
            return;
        };
        let word = SlabWord::load(env.machine(), env.map().page(slab));
        match self.rules.refill {
            RefillOrder::LastFirst if word.inuse == 0 && self.slub.has_enough(&list) => {
                drop(list);
                self.slub.discard(env, slab);
            }
            RefillOrder::LastFirst => Slub::add_partial(env, &mut list, slab, ListEnd::Head),
            RefillOrder::FirstFirst | RefillOrder::Abreast => {
                Slub::add_partial(env, &mut list, slab, ListEnd::Tail);
            }
        }
    }

    /// Takes objects of a new slab; `false` if there is none. The rest stays on the slab, at the
    /// head of its node's list.
    fn fill_from_new<M: Machine>(
        &self,
        env: Env<'_, M>,
        filling: &mut Filling<'_>,
        stats: &mut Stats,
    ) -> bool {
        let pages = |order| slabs::block(env, order, None);
        let Some((slab, first, objects)) = self.slub.new_slab(env, stats, pages) else {
            return false;
        };
        let before = filling.filled;
        // SAFETY: `new_slab` gave the list of all its objects.
        let (rest, left) = unsafe { self.move_objects(env, filling, first, objects) };
        if self
            .slub
            .put_new_slab(env, slab, rest, objects, objects - left)
        {
            return true;
        }
        filling.slots[before..].fill(None);
        filling.filled = before;
        // Made and given back; no code has seen it.
        stats.count(Stat::FreeSlab);
        false
    }

    /// Brings all objects of a sheaf back to their slabs.
    pub(super) fn flush_sheaf<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaf: &mut Sheaf,
        stats: &mut Stats,
    ) {
        stats.count_by(Stat::SheafFlush, u64::from(sheaf.size()));
        while !sheaf.is_empty() {
            sheaf.take(env.machine(), FLUSH_BATCH, |objects| {
                // SAFETY: the objects of a sheaf have no user (I1), and these leave it.
                unsafe { self.free_to_slabs(env, objects) };
            });
        }
    }

    /// Brings objects back to their slabs, those of one slab together. The caller holds a CPU's
    /// slot or has entered the gate.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn free_to_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        objects: &mut [Option<NonNull<u8>>],
    ) {
        let freed = if self.rules.cpu_slabs {
            // SAFETY: the caller vouches that the objects have no user left.
            unsafe { front::free_many(&self.slub, env, objects) }
        } else {
            slabs::prefetch_for_free(env, objects);
            let free = |slab, list| {
                // SAFETY: the list holds objects of one slab that have no user.
                unsafe { self.slub.free_to_slab(env, None, slab, list) };
            };
            // SAFETY: the caller vouches that the objects have no user left.
            unsafe { self.slub.for_each_list(env, objects, free) }
        };
        // An object that its slab refuses was not one when it was freed to a sheaf; it is dropped.
        let _ = freed;
    }
}
