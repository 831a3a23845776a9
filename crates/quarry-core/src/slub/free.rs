//! Freeing: the fast path, then the slow path to the slab.

use core::ptr::NonNull;

use super::count;
use super::geometry::ListEnd;
use super::partial::CpuList;
use super::stats::Stat;
use super::types::{CpuSlab, Detached, Slub};
use super::word::SlabWord;
use crate::design::{Env, FreeError};
use crate::front::CpuFront;
use crate::machine::Machine;
use crate::page::Pfn;
use crate::sync::Ordering;

/// Number of objects of other slabs that a bulk free looks past for more of the same slab.
const LOOKAHEAD: usize = 3;

impl Slub {
    /// The object's slab is not the CPU's.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    pub(super) unsafe fn free_past_list<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut cpu: Option<&mut CpuSlab>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        self.check_object(env, slab, object)?;
        let word = SlabWord::load(env.machine(), env.map().page(slab));
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
        let machine = env.machine();
        let page = env.map().page(slab);
        let may_keep = cpu.is_some() && self.cpu_list() != CpuList::None;
        // Mostly the slab is frozen, by the CPU that allocates from it, or is partial before and after: one exchange
        // of its word, no lock. Lists change in two cases only: the slab was full, or becomes empty.
        let mut locked = None;
        let mut old = SlabWord::load(env.machine(), page);
        let (before, after) = loop {
            let was_full = old.first == 0;
            // A full slab is on no list and has no owner, so the exchange that ends this makes it this CPU's. No
            // other free can find it full any more: no list lock is needed.
            let keeps = was_full && !old.frozen && may_keep;
            let becomes_empty = old.inuse <= list.count;
            if !old.frozen && !keeps && (was_full || becomes_empty) && locked.is_none() {
                // The lock comes first, so that list and word change as one: a refill that holds it would else see
                // a word that does not fit the list. It stays held over failed exchanges.
                locked = self.node_of(env, slab).partial.lock(machine);
                if locked.is_none() {
                    // SAFETY: the caller owns the objects.
                    unsafe { self.defer_all(env, list) };
                    return;
                }
            }
            let freeze = old.frozen || (keeps && self.rules.freeze_cpu_partial);
            // SAFETY: the caller owns the objects, which are the slab's and linked from head to tail.
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
            // The CPU that froze the slab puts it on a list, or frees it, when it gives it up.
            count(env, cpu, Stat::FreeFrozen);
            return;
        }
        if was_full
            && may_keep
            && let Some(cpu) = cpu.as_deref_mut()
        {
            // Held only if an earlier attempt saw the slab partial; a full partial list takes node locks itself.
            drop(locked);
            self.put_cpu_partial(env, cpu, slab);
            return;
        }
        // Partial before and after: the slab stays where it is.
        let Some(mut node_list) = locked else { return };
        if !was_full && !page.on_list() {
            // It is a CPU's, or an operation has it off the list; its owner (I3) will see it empty.
            return;
        }
        let keeps_empty = self.rules.empty_kept_if_below_min_partial;
        if after.inuse == 0 && (!keeps_empty || self.has_enough(&node_list)) {
            if !was_full {
                Self::remove_partial(env, &mut node_list, slab);
                count(env, cpu.as_deref_mut(), Stat::FreeRemovePartial);
            }
            // The slab is unreachable now. Its pages may need the zone's lock, which is not taken under a list's.
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

    /// # Safety
    ///
    /// The objects have no user left.
    pub(super) unsafe fn free_lists<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut cpu: Option<&mut CpuSlab>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let free = |slab, list| {
            // SAFETY: the list holds objects of one slab that the caller gave up.
            unsafe { self.free_list(env, cpu.as_deref_mut(), slab, list) };
        };
        // SAFETY: the caller vouches that the objects have no user left.
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
                    env.cache.dropped.store(object.as_ptr(), Ordering::Relaxed);
                    result = result.and(Err(error));
                    continue;
                }
            };
            slots[last] = None;
            // The address alone shows if another object is in the same slab.
            let map = env.map();
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
        let protection = Self::protections(env.cache.era).free;
        match cpu {
            Some(cpu) if cpu.slab() == Some(slab) => {
                protection.hit(env.machine());
                // SAFETY: the caller owns the tail.
                unsafe { self.set_next_free(env, list.tail, cpu.freelist) };
                cpu.freelist = list.head.as_ptr();
                self.count_fast_list(cpu, list.count);
            }
            mut cpu => {
                if cpu.is_some() {
                    protection.behind(env.machine());
                }
                count(env, cpu.as_deref_mut(), Stat::FreeSlowpath);
                // SAFETY: the caller owns the objects, which are the slab's and linked from head to tail.
                unsafe { self.free_to_slab(env, cpu, slab, list) };
            }
        }
    }
}
