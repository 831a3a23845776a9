//! Freeing: the fast path, then the slow path to the slab.

use core::ptr::NonNull;

use super::count;
use super::geometry::ListEnd;
use super::partial::CpuList;
use super::types::{CpuSlab, Detached, Slub};
use super::word::SlabWord;
use crate::design::{Env, FreeError};
use crate::machine::Machine;
use crate::page::Pfn;
use crate::stats::Stat;

/// How many objects of other slabs a bulk free looks past for more of the same slab.
const LOOKAHEAD: usize = 3;

impl Slub {
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    pub(crate) unsafe fn free_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller's contract is the same.
        if unsafe { self.free_step(env, object) } {
            return Ok(());
        }
        // SAFETY: as above; the object has not been freed.
        unsafe { self.free_locked(env, object) }
    }

    /// The one-step operation of the fast path.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    pub(super) unsafe fn free_step<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> bool {
        let machine = env.pages.machine();
        let link = Self::slab_link(env, object);
        if link == 0 {
            return false;
        }
        let (slot0, at) = (self.cpu.slot0(), self.free_pointer);
        // SAFETY: as for allocation; the list's owner is the CPU's slab, so the object is one of
        // this cache's, and the caller has given it up.
        unsafe { machine.percpu_push_list::<CpuSlab>(slot0, at, link, object) }
    }

    /// Frees with the CPU's slot held, if it can be had. [`Slub::free_step`] has accounted the look
    /// at the object's page.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline]
    pub(super) unsafe fn free_locked<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let machine = env.pages.machine();
        let map = env.pages.map();
        let pfn = map.pfn_of(object).ok_or(FreeError::Foreign)?;
        let slab = map.page(pfn).head().ok_or(FreeError::Foreign)?;
        let freed = self.cpu.try_with(machine, |cpu, _| {
            if cpu.slab() == Some(slab) {
                if cpu.freelist == object.as_ptr() {
                    return Err(FreeError::DoubleFree);
                }
                // SAFETY: the caller gave the object up; its slab is this CPU's.
                unsafe { self.set_next_free(env, object, cpu.freelist) };
                cpu.freelist = object.as_ptr();
                cpu.stats.count(Stat::FreeFastpath);
                return Ok(());
            }
            // SAFETY: the caller's contract is the same.
            unsafe { self.free_slow(env, Some(cpu), slab, object) }
        });
        match freed {
            Some(result) => result,
            // SAFETY: the caller's contract is the same.
            None => unsafe { self.free_without_slot(env, slab, object) },
        }
    }

    /// # Safety
    ///
    /// The object has no user left.
    #[cold]
    #[inline(never)]
    unsafe fn free_without_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.flags.debug() {
            return Err(FreeError::Unchecked);
        }
        let _pass = env.pages.gate().enter(env.pages.machine());
        env.cache.shared_stats.count(Stat::CpuSlotBusy);
        // SAFETY: the caller's contract is the same.
        unsafe { self.free_slow(env, None, slab, object) }
    }

    /// The object's slab is not the CPU's.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(never)]
    pub(crate) unsafe fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: Option<&mut CpuSlab>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        self.check_object(env, slab, object)?;
        // SAFETY: the caller's contract is the same; checked just now.
        unsafe { self.free_checked(env, cpu, slab, object) }
    }

    /// The same for an object that is one of the cache's slots.
    ///
    /// # Safety
    ///
    /// The object has no user left, and [`Slub::check_slot`] has accepted it.
    pub(super) unsafe fn free_checked<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut cpu: Option<&mut CpuSlab>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let word = SlabWord::load(env.pages.machine(), env.pages.map().page(slab));
        if word.first == Self::place(env, slab, object) || word.inuse == 0 {
            return Err(FreeError::DoubleFree);
        }
        if env.cache.has_deferred() {
            self.settle_deferred(env, cpu.as_deref_mut());
        }
        count(env, cpu.as_deref_mut(), Stat::FreeSlowpath);
        // SAFETY: the object is this cache's (checked) and given up by the caller.
        unsafe { self.free_to_slab(env, cpu, slab, Detached::one(object)) };
        Ok(())
    }

    /// Gives objects back to their slab and settles where the slab belongs now (`__slab_free()`;
    /// facts 2.5). With the list lock re-entered the objects are deferred.
    ///
    /// # Safety
    ///
    /// The caller owns the objects, which are the slab's and linked from head to tail.
    pub(crate) unsafe fn free_to_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut cpu: Option<&mut CpuSlab>,
        slab: Pfn,
        list: Detached,
    ) {
        let machine = env.pages.machine();
        let page = env.pages.map().page(slab);
        let may_keep = cpu.is_some() && self.cpu_list() != CpuList::None;
        let mut locked = None;
        let mut old = SlabWord::load(env.pages.machine(), page);
        let (before, after) = loop {
            let was_full = old.first == 0;
            let keeps = was_full && !old.frozen && may_keep;
            let becomes_empty = old.inuse <= list.count;
            if !old.frozen && !keeps && (was_full || becomes_empty) && locked.is_none() {
                // The lock comes first, so that list and word change as one.
                locked = self.node_of(env, slab).partial.lock(machine);
                if locked.is_none() {
                    // SAFETY: the caller owns the objects.
                    unsafe { self.defer_all(env, list) };
                    return;
                }
            }
            let freeze = old.frozen || (keeps && self.rules.freeze_cpu_partial);
            // SAFETY: the caller's contract is the same.
            match unsafe { self.push_freelist(env, slab, old, list, freeze) } {
                Ok(new) => break (old, new),
                Err(now) => {
                    count(env, cpu.as_deref_mut(), Stat::CmpxchgDoubleFail);
                    old = now;
                }
            }
        };
        let was_full = before.first == 0;
        if before.frozen {
            count(env, cpu, Stat::FreeFrozen);
            return;
        }
        if was_full
            && may_keep
            && let Some(cpu) = cpu.as_deref_mut()
        {
            drop(locked);
            self.put_cpu_partial(env, cpu, slab);
            return;
        }
        let Some(mut node_list) = locked else { return };
        if !was_full && !page.on_list() {
            // On some CPU's partial list or in somebody's hands; its owner will see it empty.
            return;
        }
        let keeps_empty = self.rules.empty_kept_if_below_min_partial;
        if after.inuse == 0 && (!keeps_empty || self.has_enough(&node_list)) {
            if !was_full {
                Self::remove_partial(env, &mut node_list, slab);
                count(env, cpu.as_deref_mut(), Stat::FreeRemovePartial);
            }
            drop(node_list);
            count(env, cpu, Stat::FreeSlab);
            self.discard(env, slab);
        } else if was_full {
            let end: ListEnd = self.rules.free_adds_to;
            Self::add_partial(env, &mut node_list, slab, end);
            count(env, cpu, Stat::FreeAddPartial);
        }
    }

    /// # Safety
    ///
    /// The caller owns the objects, linked from head to tail.
    #[cold]
    unsafe fn defer_all<M: Machine>(&self, env: Env<'_, M>, list: Detached) {
        let mut object = list.head;
        loop {
            // SAFETY: the caller owns the object. Its link is read before `defer` may overwrite it.
            let next = unsafe { self.next_free(env, object) };
            // SAFETY: the caller owns the object and gives it up.
            unsafe { env.cache.defer(object) };
            match NonNull::new(next) {
                Some(next) if object != list.tail => object = next,
                _ => return,
            }
        }
    }

    /// Frees many objects, those of one slab with one operation (facts 2.13).
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[inline]
    pub(crate) unsafe fn free_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let machine = env.pages.machine();
        let own = self.cpu.try_with(machine, |cpu, _| {
            // SAFETY: the caller's contract is the same.
            unsafe { self.put_run(env, cpu, slots) }
        });
        let left = slots.len() - own.unwrap_or(0);
        if left == 0 {
            return Ok(());
        }
        // SAFETY: as above; the slots behind these are empty.
        unsafe { self.free_rest(env, &mut slots[..left]) }
    }

    /// Puts the last objects, as far as they are of the CPU's slab, in front of its list, and empties
    /// their slots. Returns how many.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[inline(always)]
    unsafe fn put_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let Some(slab) = cpu.slab() else { return 0 };
        let map = env.pages.map();
        let base = map.address(slab).addr().get();
        let bytes = 1 << (map.page_shift() + map.page(slab).order());
        let free_pointer = self.free_pointer;
        let mut head = cpu.freelist;
        let mut first = slots.len();
        while first > 0 {
            let Some(object) = slots[first - 1] else {
                break;
            };
            let inside = object.addr().get().wrapping_sub(base) < bytes;
            if !inside || object.as_ptr() == head {
                break;
            }
            // SAFETY: the caller gave the object up; it is of the CPU's slab.
            unsafe { Self::set_link(env, object, free_pointer, head) };
            head = object.as_ptr();
            first -= 1;
        }
        let run = &mut slots[first..];
        if !run.is_empty() {
            cpu.freelist = head;
            self.count_fast_list(cpu, run.len() as u32);
            run.fill(None);
        }
        run.len()
    }

    /// Counts n objects that a bulk free put in front of the CPU's list at once.
    #[inline(always)]
    fn count_fast_list(&self, cpu: &mut CpuSlab, objects: u32) {
        let counted = match self.rules.bulk_counts_objects {
            true => objects,
            false => 1,
        };
        cpu.stats.count_by(Stat::FreeFastpath, counted.into());
    }

    /// Frees what is not the CPU slab's.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[inline(never)]
    unsafe fn free_rest<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let machine = env.pages.machine();
        let freed = self.cpu.try_with(machine, |cpu, _| {
            // SAFETY: the caller's contract is the same.
            unsafe { self.free_many_on(env, Some(cpu), slots) }
        });
        freed.unwrap_or_else(|| {
            let _pass = env.pages.gate().enter(machine);
            env.cache.shared_stats.count(Stat::CpuSlotBusy);
            // SAFETY: the caller's contract is the same.
            unsafe { self.free_many_on(env, None, slots) }
        })
    }

    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn free_many_on<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut cpu: Option<&mut CpuSlab>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let free = |slab, list| {
            // SAFETY: the list holds objects of one slab that the caller gave up.
            unsafe { self.free_list(env, cpu.as_deref_mut(), slab, list) };
        };
        // SAFETY: the caller's contract is the same.
        unsafe { self.for_each_list(env, slots, free) }
    }

    /// Takes the objects out of their slots, linked into lists of one slab each, for `free`.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    pub(crate) unsafe fn for_each_list<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
        mut free: impl FnMut(Pfn, Detached),
    ) -> Result<(), FreeError> {
        let mut result = Ok(());
        let mut end = slots.len();
        while let Some(last) = end.checked_sub(1) {
            end = last;
            let Some(object) = slots[last] else { continue };
            let checked = Self::slab_of(env, object).and_then(|slab| {
                self.check_object(env, slab, object)?;
                Ok(slab)
            });
            let slab = match checked {
                Ok(slab) => slab,
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            };
            slots[last] = None;
            // An object of the same slab is told by its address, without the descriptor.
            let map = env.pages.map();
            let base = map.address(slab).addr().get();
            let bytes = 1 << (map.page_shift() + map.page(slab).order());
            let inside = |other: NonNull<u8>| other.addr().get().wrapping_sub(base) < bytes;
            let mut list = Detached::one(object);
            let mut misses = 0;
            // The last object looked past; everything after it is freed.
            let mut passed = 0;
            for (at, slot) in slots[..last].iter_mut().enumerate().rev() {
                let Some(other) = *slot else { continue };
                let same = inside(other) && self.check_object(env, slab, other).is_ok();
                if same {
                    // SAFETY: the caller gave the object up; it is the same slab's.
                    unsafe { self.set_next_free(env, other, list.head.as_ptr()) };
                    list.head = other;
                    list.count += 1;
                    *slot = None;
                } else {
                    if misses == 0 {
                        passed = at + 1;
                    }
                    misses += 1;
                    if misses == LOOKAHEAD {
                        break;
                    }
                }
            }
            end = passed;
            free(slab, list);
        }
        result
    }

    /// # Safety
    ///
    /// The caller owns the objects, which are the slab's and linked from head to tail.
    unsafe fn free_list<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: Option<&mut CpuSlab>,
        slab: Pfn,
        list: Detached,
    ) {
        match cpu {
            Some(cpu) if cpu.slab() == Some(slab) => {
                // SAFETY: the caller owns the tail.
                unsafe { self.set_next_free(env, list.tail, cpu.freelist) };
                cpu.freelist = list.head.as_ptr();
                self.count_fast_list(cpu, list.count);
            }
            mut cpu => {
                count(env, cpu.as_deref_mut(), Stat::FreeSlowpath);
                // SAFETY: the caller's contract is the same.
                unsafe { self.free_to_slab(env, cpu, slab, list) };
            }
        }
    }
}
