//! Partial lists: the node's, a CPU's, and the ways between them.

use core::ptr::NonNull;

use super::count;
use super::geometry::{DeactivateEnd, ListEnd, PartialTake};
use super::stats::Stat;
use super::types::{CpuSlab, Detached, Slub};
use super::word::SlabWord;
use crate::debug;
use crate::design::Env;
use crate::machine::{Access, Guard, Line, Machine, NodeId, access};
use crate::page::{PageList, Pfn};
use crate::slabs::Node;
use crate::sync::Ordering;

/// Limit of a CPU's partial list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CpuList {
    /// Nothing: a slab that was full goes to its node's list.
    None,
    /// The era's limit, from `cpu_partial`.
    Era,
    /// At most this number of slabs, as `cpu_slabs` says.
    Slabs(u32),
}

impl Slub {
    pub(super) fn node_of<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) -> &Node {
        &self.nodes[env.pages().node_of_page(slab).0 as usize]
    }

    /// True if a node with this partial list gives empty slabs back.
    pub(crate) fn has_enough(&self, list: &PageList) -> bool {
        let kept = self.min_partial.load(Ordering::Relaxed);
        list.len() >= kept.saturating_add(self.rules.keeps_one_more.into())
    }

    /// Puts a slab on its node's list, whose lock is held.
    pub(crate) fn add_partial<M: Machine>(
        env: Env<'_, M>,
        list: &mut Guard<'_, M, PageList>,
        slab: Pfn,
        end: ListEnd,
    ) {
        let map = env.map();
        map.page(slab).set_on_list(true);
        match end {
            ListEnd::Head => list.push_front(env.links(), slab),
            ListEnd::Tail => list.push_back(env.links(), slab),
        }
    }

    /// Takes a slab off its node's list, whose lock is held.
    pub(crate) fn remove_partial<M: Machine>(
        env: Env<'_, M>,
        list: &mut Guard<'_, M, PageList>,
        slab: Pfn,
    ) {
        let map = env.map();
        map.page(slab).set_on_list(false);
        list.remove(env.links(), slab);
    }

    /// Takes the first slab of a node's list with all its free objects (`get_partial_node()`).
    /// Takes further slabs for the cpu partial list as the era allows.
    pub(super) fn take_from_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        node: NodeId,
    ) -> Option<(Pfn, NonNull<u8>)> {
        let node = self.nodes.get(node.0 as usize)?;
        let mut list = node.partial.lock(env.machine())?;
        let slab = list.first()?;
        // Both under the list's lock: taking the objects freezes the slab, and frees that find it frozen leave the lists
        // to this CPU.
        Self::remove_partial(env, &mut list, slab);
        // A slab on the list always has a free object: the list lock is needed to take the last.
        let (head, free) = self.take_freelist(env, slab)?;
        cpu.stats.count(Stat::AllocFromPartial);
        let mut available = match self.rules.first_slab_counts {
            true => free,
            false => 0,
        };
        let mut further = 0;
        while self.takes_more(cpu, available, further)
            && let Some(slab) = list.first()
        {
            Self::remove_partial(env, &mut list, slab);
            available += self.push_cpu_partial(env, cpu, slab, self.rules.freeze_cpu_partial);
            cpu.stats.count(Stat::CpuPartialNode);
            further += 1;
        }
        Some((slab, head))
    }

    /// True if one visit to the node's list goes on after `further` more slabs than the first, with `available`
    /// free objects gathered.
    fn takes_more(&self, cpu: &CpuSlab, available: u32, further: u32) -> bool {
        let slabs = self.cpu_partial_slabs.load(Ordering::Relaxed);
        match (self.cpu_list(), self.rules.partial_take) {
            (CpuList::None, _) | (_, PartialTake::One) => false,
            (CpuList::Slabs(max), _) => further <= max / 2 && cpu.partial_slabs < max,
            (CpuList::Era, PartialTake::HalfOfObjects) => {
                available <= self.cpu_partial.load(Ordering::Relaxed) / 2
            }
            (CpuList::Era, PartialTake::HalfOfSlabs) => further <= slabs / 2,
            (CpuList::Era, PartialTake::HalfOfSlabsUnlessZero) => {
                slabs != 0 && further <= slabs / 2
            }
        }
    }

    /// Limit of a CPU's partial list.
    pub(super) fn cpu_list(&self) -> CpuList {
        match self.cpu_slabs.load(Ordering::Relaxed) {
            0 if self.rules.has_cpu_partial => CpuList::Era,
            0 | 1 => CpuList::None,
            slabs => CpuList::Slabs(slabs - 1),
        }
    }

    /// Slabs that a CPU comes to hold by its own frees, its CPU slab among them.
    pub(super) fn cpu_slabs_max(&self) -> u32 {
        let objects = self.cpu_partial.load(Ordering::Relaxed);
        let slabs = self.cpu_partial_slabs.load(Ordering::Relaxed);
        let listed = match (self.cpu_list(), self.rules.partial_take) {
            (CpuList::None, _) | (CpuList::Era, PartialTake::One) => 0,
            (CpuList::Slabs(max), _) => max,
            // A slab with one free object more than the limit is put on the list before it drains.
            (CpuList::Era, PartialTake::HalfOfObjects) if objects == 0 => 0,
            (CpuList::Era, PartialTake::HalfOfObjects) => objects.saturating_add(1),
            // The slab that makes the list drain begins the next one.
            (CpuList::Era, _) => slabs.max(1),
        };
        listed.saturating_add(1)
    }

    /// Puts a slab that the caller owns on the CPU's partial list, freezing it first if it is to
    /// be frozen. Returns its free objects at this moment.
    fn push_cpu_partial<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slab: Pfn,
        freeze: bool,
    ) -> u32 {
        let page = env.map().page(slab);
        let mut word = SlabWord::load(env.machine(), page);
        while freeze && !word.frozen {
            let frozen = SlabWord {
                frozen: true,
                ..word
            };
            match word.replace(env.machine(), page, frozen) {
                Ok(()) => word = frozen,
                Err(now) => word = now,
            }
        }
        let free = page.objects.load(Ordering::Relaxed) - word.inuse;
        access(
            env.machine(),
            Line::Slab,
            Access::Store,
            env.map().page(slab),
        );
        page.set_next(cpu.partial());
        cpu.set_partial(Some(slab));
        cpu.partial_slabs += 1;
        // Each slab remembers the sum below it, which a pop restores.
        page.private
            .store(u64::from(cpu.partial_objects), Ordering::Relaxed);
        cpu.partial_objects += free;
        free
    }

    /// Takes the top slab of the CPU's partial list.
    pub(super) fn pop_cpu_partial<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
    ) -> Option<Pfn> {
        let slab = cpu.partial()?;
        access(
            env.machine(),
            Line::Slab,
            Access::Write,
            env.map().page(slab),
        );
        let page = env.map().page(slab);
        cpu.set_partial(page.next());
        page.set_next(None);
        cpu.partial_slabs -= 1;
        cpu.partial_objects = page.private.load(Ordering::Relaxed) as u32;
        Some(slab)
    }

    /// A free found a full slab: it goes on this CPU's partial list, which is first moved to the
    /// nodes if it is at its limit (`put_cpu_partial()`).
    pub(super) fn put_cpu_partial<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slab: Pfn,
    ) {
        let objects = self.cpu_partial.load(Ordering::Relaxed);
        let list = self.cpu_list();
        let full = match (list, self.rules.partial_take) {
            (CpuList::Slabs(max), _) => cpu.partial_slabs >= max,
            (_, PartialTake::One) => true,
            (_, PartialTake::HalfOfObjects) => cpu.partial_objects > objects,
            (_, PartialTake::HalfOfSlabs | PartialTake::HalfOfSlabsUnlessZero) => {
                cpu.partial_slabs >= self.cpu_partial_slabs.load(Ordering::Relaxed)
            }
        };
        // Mostly the list has room, and the free takes no lock. A drain takes one per run of slabs of a node, which the
        // limit spreads over that many frees. It comes before the push, so the slab just freed to stays warm here.
        if full && cpu.partial().is_some() {
            cpu.stats.count(Stat::CpuPartialDrain);
            self.drain_cpu_partial(env, cpu);
        }
        // A push by a free finds the slab frozen already if the era freezes.
        self.push_cpu_partial(env, cpu, slab, false);
        cpu.stats.count(Stat::CpuPartialFree);
        if self.rules.zero_cpu_partial_drains && list == CpuList::Era && objects == 0 {
            self.drain_cpu_partial(env, cpu);
        }
    }

    /// Moves the CPU's partial list to the nodes, holding a node's lock over consecutive slabs of
    /// it. Slabs stay where they are if a lock is re-entered.
    pub(super) fn drain_cpu_partial<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuSlab) {
        while self.rules.drain_frees_an_empty_slab
            && let Some(slab) = cpu.partial()
            && SlabWord::load(env.machine(), env.map().page(slab)).inuse == 0
        {
            self.pop_cpu_partial(env, cpu);
            self.unfreeze(env, slab);
            cpu.stats.count(Stat::DeactivateEmpty);
            cpu.stats.count(Stat::FreeSlab);
            self.discard(env, slab);
        }
        while let Some(slab) = cpu.partial() {
            let node = env.pages().node_of_page(slab);
            // Their pages may need a zone's lock, which is not taken under a list's.
            let mut discards = None;
            let Some(mut list) = self.nodes[node.0 as usize].partial.lock(env.machine()) else {
                return;
            };
            while let Some(slab) = cpu
                .partial()
                .filter(|&slab| env.pages().node_of_page(slab) == node)
            {
                self.pop_cpu_partial(env, cpu);
                if self.unfreeze(env, slab).inuse == 0 && self.has_enough(&list) {
                    env.map().page(slab).set_next(discards);
                    discards = Some(slab);
                } else {
                    Self::add_partial(env, &mut list, slab, ListEnd::Tail);
                    cpu.stats.count(Stat::FreeAddPartial);
                }
            }
            drop(list);
            while let Some(slab) = discards {
                discards = env.map().page(slab).next();
                cpu.stats.count(Stat::DeactivateEmpty);
                cpu.stats.count(Stat::FreeSlab);
                self.discard(env, slab);
            }
        }
    }

    /// Clears a slab's frozen mark; the caller owns it and holds its node's lock.
    fn unfreeze<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) -> SlabWord {
        let page = env.map().page(slab);
        let mut word = SlabWord::load(env.machine(), page);
        while word.frozen {
            let thawed = SlabWord {
                frozen: false,
                ..word
            };
            match word.replace(env.machine(), page, thawed) {
                Ok(()) => return thawed,
                Err(now) => word = now,
            }
        }
        word
    }

    /// Puts a slab from the cpu partial list on its node's list, or gives it back if it is empty
    /// and the node has enough. `false` if the lock is re-entered: the slab is back on the CPU's
    /// list then.
    pub(super) fn release_to_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slab: Pfn,
    ) -> bool {
        let Some(mut list) = self.node_of(env, slab).partial.lock(env.machine()) else {
            self.push_cpu_partial(env, cpu, slab, false);
            return false;
        };
        if self.unfreeze(env, slab).inuse == 0 && self.has_enough(&list) {
            drop(list);
            cpu.stats.count(Stat::DeactivateEmpty);
            cpu.stats.count(Stat::FreeSlab);
            self.discard(env, slab);
            return true;
        }
        Self::add_partial(env, &mut list, slab, ListEnd::Tail);
        cpu.stats.count(Stat::FreeAddPartial);
        true
    }

    /// Gives the CPU slab up: its list goes back to it, and it goes where its free objects say
    /// (`deactivate_slab()`). `false` if the list lock is re-entered; nothing has changed then.
    pub(super) fn deactivate<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuSlab) -> bool {
        let Some(slab) = cpu.slab() else { return true };
        let page = env.map().page(slab);
        // The walk comes before the lock, as it may miss the cache once per object. It changes nothing that a free of
        // another CPU could see, so a re-entered lock needs no undoing.
        // SAFETY: I1 - the list is this CPU's, whose slot the caller holds.
        let detached = unsafe { self.detach(env, slab, cpu.freelist) };
        let Some(mut list) = self.node_of(env, slab).partial.lock(env.machine()) else {
            return false;
        };
        // Under the lock, so that the slab is listed as soon as it is thawed: a free that finds it thawed and neither
        // full nor listed leaves it alone.
        let (before, after) = self.give_back(env, slab, detached);
        cpu.freelist = core::ptr::null_mut();
        cpu.set_slab(None);
        let remote_frees = before.first != 0;
        if remote_frees {
            cpu.stats.count(Stat::DeactivateRemoteFrees);
        }
        if after.inuse == 0 && self.has_enough(&list) {
            drop(list);
            cpu.stats.count(Stat::DeactivateEmpty);
            cpu.stats.count(Stat::FreeSlab);
            self.discard(env, slab);
        } else if after.first == 0 {
            cpu.stats.count(Stat::DeactivateFull);
        } else {
            let partly = match self.rules.deactivate_to {
                DeactivateEnd::Head => ListEnd::Head,
                DeactivateEnd::HeadIfCpuFreelist if detached.is_some() => ListEnd::Head,
                DeactivateEnd::TailIfRemoteFrees if !remote_frees => ListEnd::Head,
                _ => ListEnd::Tail,
            };
            let kept_empty = self.rules.deactivate_empty_to.filter(|_| after.inuse == 0);
            let end = kept_empty.unwrap_or(partly);
            debug_assert!(!page.on_list());
            Self::add_partial(env, &mut list, slab, end);
            cpu.stats.count(match end {
                _ if after.inuse == 0 && self.rules.kept_empty_counts_as_empty => {
                    Stat::DeactivateEmpty
                }
                ListEnd::Head => Stat::DeactivateToHead,
                ListEnd::Tail => Stat::DeactivateToTail,
            });
        }
        true
    }

    /// A CPU's list with its end and length. What is none of the slab's objects, though it was freed as one,
    /// is left out: it is in an object that stays in use.
    ///
    /// # Safety
    ///
    /// The caller owns the list, and its slab.
    unsafe fn detach<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        freelist: *mut u8,
    ) -> Option<Detached> {
        let mut list: Option<Detached> = None;
        let mut next = NonNull::new(freelist);
        let mut left_out = false;
        while let Some(object) = next {
            // SAFETY: the caller owns every object of the list.
            next = NonNull::new(unsafe { self.next_free(env, object) });
            if !self.is_slot(env, slab, object) {
                left_out = true;
                continue;
            }
            if let Some(list) = &mut list {
                if left_out {
                    // SAFETY: the caller owns every object of the list, the tail included.
                    unsafe { self.set_next_free(env, list.tail, object.as_ptr()) };
                    left_out = false;
                }
                list.tail = object;
                list.count += 1;
            } else {
                list = Some(Detached::one(object));
                left_out = false;
            }
        }
        list
    }

    /// Splices the CPU's list into its slab's and thaws the slab. The caller owns both and holds
    /// the node's lock. Returns the word before and after.
    fn give_back<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        list: Option<Detached>,
    ) -> (SlabWord, SlabWord) {
        let page = env.map().page(slab);
        let mut old = SlabWord::load(env.machine(), page);
        let Some(list) = list else {
            return (old, self.unfreeze(env, slab));
        };
        loop {
            // SAFETY: the caller owns the CPU's list.
            match unsafe { self.push_freelist(env, slab, old, list, false) } {
                Ok(new) => return (old, new),
                Err(now) => old = now,
            }
        }
    }

    /// Frees what was deferred; objects whose lock is re-entered are deferred again.
    pub(crate) fn settle_deferred<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut cpu: Option<&mut CpuSlab>,
    ) {
        for object in debug::take_deferred(env.cache) {
            count(env, cpu.as_deref_mut(), Stat::FreeDeferred);
            let Ok(slab) = Self::slab_of(env, object) else {
                continue;
            };
            // SAFETY: a deferred object was given up by its user.
            unsafe { self.free_to_slab(env, cpu.as_deref_mut(), slab, Detached::one(object)) };
        }
    }
}
