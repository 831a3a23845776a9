//! Allocation behind the CPU's list: the CPU's slab, its partial list, the nodes, new slabs.

use core::ptr::NonNull;

use super::geometry::{CpuPartialMismatch, ExplicitNode};
use super::stats::{CountsSlabs, Stat, Stats};
use super::types::{CpuSlab, Slub};
use super::word::SlabWord;
use crate::design::Env;
use crate::machine::{Machine, NodeId};
use crate::page::Pfn;
use crate::slabs;
use crate::stats::Counters;
use crate::sync::Ordering;

impl Slub {
    /// The CPU's list is empty, or of the wrong node.
    pub(super) fn reload<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.has_deferred() {
            self.settle_deferred(env, Some(cpu));
        }
        if !self.rules.slowpath_counts_success {
            cpu.stats.count(Stat::AllocSlowpath);
            return self.alloc_from_any(env, cpu, node);
        }
        let object = self.alloc_from_any(env, cpu, node)?;
        cpu.stats.count(Stat::AllocSlowpath);
        Some(object)
    }

    /// One object from the first source that has any.
    fn alloc_from_any<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        // In the order of cost: the CPU's own slab (one exchange), its partial list (one exchange), a node's list (a
        // lock), new pages. Mostly others' frees have refilled the CPU's slab or the partial list has one.
        if let Some(slab) = cpu.slab() {
            if Self::matches(env, cpu, node) {
                let taken = self.take_freelist(env, slab);
                if taken.is_some() || self.rules.refill_counts_attempts {
                    cpu.stats.count(Stat::AllocRefill);
                }
                if let Some((head, _)) = taken {
                    // SAFETY: the list was taken whole, so it is this CPU's.
                    return Some(unsafe { self.load(env, cpu, slab, head) });
                }
                // Full, with no owner: its next free will find it.
                cpu.set_slab(None);
                cpu.stats.count(if self.rules.exhausted_is_deactivated {
                    Stat::DeactivateFull
                } else {
                    Stat::DeactivateBypass
                });
            } else {
                cpu.stats.count(Stat::AllocNodeMismatch);
                if !self.deactivate(env, cpu) {
                    return None;
                }
            }
        }
        if let Some(object) = self.alloc_from_cpu_partial(env, cpu, node) {
            return Some(object);
        }
        let there = self.rules.explicit_node == ExplicitNode::NewSlabThere;
        if let Some(only) = node.filter(|_| there) {
            if let Some((slab, head)) = self.take_from_node(env, cpu, only) {
                // SAFETY: the list was taken whole, so it is this CPU's.
                return Some(unsafe { self.load(env, cpu, slab, head) });
            }
            let pages = |order| slabs::block_on(env, order, only);
            if let Some((slab, first, _)) = self.new_slab(env, &mut cpu.stats, pages) {
                // SAFETY: the objects of a new slab are the caller's.
                return Some(unsafe { self.load(env, cpu, slab, first) });
            }
        }
        if let Some((slab, head)) = self.take_from_nodes(env, cpu, node) {
            // SAFETY: as for one node's list.
            return Some(unsafe { self.load(env, cpu, slab, head) });
        }
        let pages = |order| slabs::block(env, order, node);
        let (slab, first, _) = self.new_slab(env, &mut cpu.stats, pages)?;
        // SAFETY: as for a new slab of one node.
        Some(unsafe { self.load(env, cpu, slab, first) })
    }

    /// Makes a slab the CPU's and returns the first object of its list.
    ///
    /// # Safety
    ///
    /// The caller owns the slab and the list that starts at `head`; the CPU has no slab.
    unsafe fn load<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slab: Pfn,
        head: NonNull<u8>,
    ) -> NonNull<u8> {
        cpu.set_slab(Some(slab));
        // SAFETY: the caller owns the list.
        cpu.freelist = unsafe { self.next_free(env, head) };
        head
    }

    fn alloc_from_cpu_partial<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        while let Some(slab) = self.pop_cpu_partial(env, cpu) {
            if node.is_some_and(|node| env.pages().node_of_page(slab) != node) {
                if !self.let_go_of_cpu_partial(env, cpu, slab) {
                    return None;
                }
                continue;
            }
            cpu.stats.count(Stat::CpuPartialAlloc);
            // Slabs on this list have free objects and no other owner, so this finds some.
            if let Some((head, _)) = self.take_freelist(env, slab) {
                if self.rules.refill_counts_cpu_partial_as_refill {
                    cpu.stats.count(Stat::AllocRefill);
                }
                // SAFETY: the list was taken whole, so it is this CPU's.
                return Some(unsafe { self.load(env, cpu, slab, head) });
            }
        }
        None
    }

    /// A slab off the cpu partial list is not of the wanted node. `false` if a lock is re-entered.
    #[cold]
    fn let_go_of_cpu_partial<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slab: Pfn,
    ) -> bool {
        if self.rules.mismatch_counts_cpu_partial_alloc {
            cpu.stats.count(Stat::CpuPartialAlloc);
        }
        match self.rules.cpu_partial_mismatch {
            CpuPartialMismatch::Deactivate => {
                cpu.set_slab(Some(slab));
                cpu.stats.count(Stat::AllocNodeMismatch);
                self.deactivate(env, cpu)
            }
            CpuPartialMismatch::PutBack => self.release_to_node(env, cpu, slab),
        }
    }

    /// Slabs from the wanted node's list, or from another's if any will do.
    fn take_from_nodes<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        node: Option<NodeId>,
    ) -> Option<(Pfn, NonNull<u8>)> {
        let machine = env.machine();
        let wanted = node.unwrap_or_else(|| machine.current_node());
        if let Some(found) = self.take_from_node(env, cpu, wanted) {
            return Some(found);
        }
        let bound = node.is_some() && self.rules.explicit_node == ExplicitNode::NewSlab;
        if bound {
            return None;
        }
        self.remote.nodes(machine, wanted).find_map(|other| {
            let partial = &self.nodes[other.0 as usize].partial;
            let enough = {
                let list = partial.lock(machine)?;
                list.len() > self.min_partial.load(Ordering::Relaxed)
            };
            if enough {
                self.take_from_node(env, cpu, other)
            } else {
                None
            }
        })
    }

    /// One object from a node's list or a new slab.
    pub(super) fn alloc_one_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.machine();
        let wanted = node.unwrap_or_else(|| machine.current_node());
        if let Some(object) = self.alloc_one_from_node(env, wanted) {
            return Some(object);
        }
        let mut stats = Stats::default();
        let pages = |order| slabs::block(env, order, node);
        let object = self.alloc_one_from_new(env, pages, &mut stats);
        env.cache.shared_stats.add(&stats);
        object
    }

    /// One object of a new slab, whose others go on its node's list.
    pub(crate) fn alloc_one_from_new<M: Machine, C: CountsSlabs>(
        &self,
        env: Env<'_, M>,
        pages: impl Fn(u32) -> Option<Pfn>,
        stats: &mut Counters<C>,
    ) -> Option<NonNull<u8>> {
        let (slab, first, objects) = self.new_slab(env, stats, pages)?;
        // SAFETY: the objects of a new slab are the caller's.
        let rest = NonNull::new(unsafe { self.next_free(env, first) });
        let kept = self.put_new_slab(env, slab, rest, objects, 1);
        kept.then_some(first)
    }

    /// Puts a new slab at the head of its node's list. The caller keeps the slab's first `taken` objects;
    /// if that is all, the slab is full and has no owner. Returns `false` if the list's lock is
    /// re-entered: the slab has gone back then as if never made, and its objects with it.
    pub(crate) fn put_new_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        rest: Option<NonNull<u8>>,
        objects: u32,
        taken: u32,
    ) -> bool {
        let page = env.map().page(slab);
        SlabWord {
            first: rest.map_or(0, |rest| Self::place(env, slab, rest)),
            inuse: if rest.is_some() { taken } else { objects },
            frozen: false,
        }
        .init(page);
        if rest.is_none() {
            return true;
        }
        let owner = &self.nodes[env.pages().node_of_page(slab).0 as usize];
        let Some(mut list) = owner.partial.lock(env.machine()) else {
            // No other code knows the slab yet.
            self.discard(env, slab);
            return false;
        };
        page.set_on_list(true);
        list.push_front(env.links(), slab);
        true
    }

    /// One object off the first slab of a node's list. The list lock makes the caller the slab's
    /// owner (I3), so no other code takes objects off it.
    pub(crate) fn alloc_one_from_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
    ) -> Option<NonNull<u8>> {
        let map = env.map();
        let mut list = self.nodes[node.0 as usize].partial.lock(env.machine())?;
        let slab = list.first()?;
        let page = map.page(slab);
        let mut old = SlabWord::load(env.machine(), page);
        loop {
            let object = NonNull::new(Self::first(env, slab, old))?;
            // SAFETY: I3 - the list lock is held, so the slab's list is this caller's but for
            // pushes, which leave this object's link alone.
            let link = NonNull::new(unsafe { self.next_free(env, object) });
            let next = link.filter(|next| self.is_slot(env, slab, *next));
            let first = next.map_or(0, |next| Self::place(env, slab, next));
            // A list that leads astray ends here: what was behind counts as in use.
            let astray = link.is_some() && next.is_none();
            let inuse = if astray {
                page.objects.load(Ordering::Relaxed)
            } else {
                old.inuse + 1
            };
            let new = SlabWord {
                first,
                inuse,
                frozen: false,
            };
            // Once the slab is full, the next free may take it, and its links, to a cpu partial
            // list without the list lock: it leaves the list before.
            if first == 0 {
                page.set_on_list(false);
                list.remove(env.links(), slab);
            }
            match old.replace(env.machine(), page, new) {
                Ok(()) => {
                    if let Some(debug) = env.cache.debug().filter(|_| astray) {
                        debug.note_damaged(slab, None);
                    }
                    return Some(object);
                }
                Err(now) => old = now,
            }
            if first == 0 {
                page.set_on_list(true);
                list.push_front(env.links(), slab);
            }
        }
    }
}
