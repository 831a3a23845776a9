//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::types::{CpuSlab, Slub};
use super::word::SlabWord;
use crate::debug;
use crate::design::{
    Busy, CheckError, CpuUsage, Env, NodeUsage, Show, SlabInconsistency, Slots, Usage,
};
use crate::machine::{CpuId, HeldSlots, Machine, NodeId};
use crate::page::{Page, Pfn};
use crate::rest::Rest;
use crate::slabs::{self, ObjectSet, cpus, slabs, slabs_from};
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

/// The free objects of a slab.
struct FreeObjects {
    free: ObjectSet,
    /// The slab's word when they were counted.
    word: SlabWord,
    /// Those on the slab's own list.
    own: u32,
    /// Those on a CPU's list.
    on_cpu: u32,
}

impl Show for Slub {
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats {
        let mut sum = env.cache.shared_stats.snapshot();
        slabs::on_each_cpu(env, &self.cpu, |state| state.stats.add_to(&mut sum));
        sum
    }

    fn usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        let mut usage = Usage::default();
        let mut free_on_nodes = 0;
        (usage.slabs, usage.num_objs) = slabs::totals(&self.nodes);
        if usage.slabs == 0 {
            return usage;
        }
        let map = env.map();
        (usage.cpu_slabs, usage.cpu_partial_slabs) = self.mark(env);
        let (mut uncounted, mut marks) = (usage.slabs, usage.cpu_slabs);
        for slab in slabs(env) {
            let page = map.page(slab);
            let on_cpu = Self::unmark(page);
            // Saturating: on a busy cache another walk may have set it.
            marks = marks.saturating_sub(u64::from(on_cpu));
            if uncounted > 0 {
                uncounted -= 1;
                Self::count(page, on_cpu, &mut usage, &mut free_on_nodes);
            }
            // Behind the last slab are the pages of all other caches.
            if uncounted == 0 && marks == 0 {
                break;
            }
        }
        usage.active_slabs = usage.slabs;
        // Saturating: a slab may come between the two counts on a busy cache.
        usage.active_objs = usage.num_objs.saturating_sub(free_on_nodes);
        usage
    }

    fn node_usage<M: Machine>(&self, env: Env<'_, M>, id: NodeId) -> NodeUsage {
        let (map, machine) = (env.map(), env.machine());
        let node = &self.nodes[id.0 as usize];
        let mut usage = NodeUsage {
            slabs: node.nr_slabs.load(Ordering::Relaxed),
            total_objects: node.total_objects.load(Ordering::Relaxed),
            ..NodeUsage::default()
        };
        let mut free = 0;
        if let Some(list) = node.partial.lock(machine) {
            usage.partial = u64::from(list.len());
            for slab in list.iter(map) {
                let page = map.page(slab);
                let inuse = SlabWord::peek(page).inuse;
                usage.objects_partial += u64::from(inuse);
                free += u64::from(page.objects.load(Ordering::Relaxed) - inuse);
            }
        }
        // Saturating: a slab may come or go between the counts on a busy cache.
        usage.objects = usage.total_objects.saturating_sub(free);
        for cpu in cpus(env) {
            self.cpu.try_with_remote(machine, cpu, |state| {
                let listed = core::iter::successors(state.partial(), |&slab| map.page(slab).next());
                usage.cpu_slabs += state
                    .slab()
                    .into_iter()
                    .chain(listed)
                    .filter(|&slab| env.pages().node_of_page(slab) == id)
                    .count() as u64;
            });
        }
        usage
    }

    fn cpu_usage<M: Machine>(&self, env: Env<'_, M>, cpu: CpuId) -> CpuUsage {
        let found = self
            .cpu
            .try_with_remote(env.machine(), cpu, |state| CpuUsage {
                stats: state.stats.snapshot(),
                slabs: u64::from(state.slab().is_some()),
                partial_slabs: u64::from(state.partial_slabs),
                partial_objects: u64::from(state.partial_objects),
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
        _flush: bool,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy> {
        if env.cache.has_deferred() {
            let _pass = env.enter();
            debug::settle_alone(env, || self.settle_deferred(env, None));
        }
        let rest = Rest::of(env, &self.cpu)?;
        self.walk_live_at_rest(env, rest.slots(), |_| Ok(()), from, found)
    }

    /// Lists, counters and free pointers of all slabs (see [`Slub`]'s states).
    fn check_consistency<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        let rest = Rest::of(env, &self.cpu)?;
        rest.verdict(self.check_at_rest(env, rest.slots()))
    }
}

impl Slots for Slub {
    type Shared = ();

    fn free_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), SlabInconsistency> {
        let page = env.map().page(slab);
        let word = SlabWord::peek(page);
        let free = u64::from(
            page.objects
                .load(Ordering::Relaxed)
                .saturating_sub(word.inuse),
        );
        let mut at = Self::first(env, slab, word);
        let mut count = 0;
        while let Some(slot) = NonNull::new(at) {
            if !self.is_slot(env, slab, slot) || count == free {
                return Err(SlabInconsistency {
                    what: "free pointer astray",
                    slab: Some(slab),
                    recorded: free,
                    found: count,
                });
            }
            count += 1;
            if !found(slot) {
                return Ok(());
            }
            // SAFETY: I1 - the object is on a list and inside its slab (checked above); no code
            // allocates from the cache meanwhile, and frees leave links alone.
            at = unsafe { self.next_free(env, slot) };
        }
        SlabInconsistency::equal("free objects", Some(slab), free, count)
    }

    fn isolate<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        let page = env.map().page(slab);
        let Some(mut list) = self.node_of(env, slab).partial.lock(env.machine()) else {
            return;
        };
        if page.on_list() {
            Self::remove_partial(env, &mut list, slab);
        }
        let full = SlabWord {
            first: 0,
            inuse: page.objects.load(Ordering::Relaxed),
            frozen: false,
        };
        let mut old = SlabWord::peek(page);
        while let Err(now) = old.replace(env.machine(), page, full) {
            old = now;
        }
    }
}

impl Slub {
    /// Marks every CPU slab's descriptor, until [`Slub::unmark`]. Returns how many CPU slabs there are, and how many slabs on
    /// CPUs' partial lists.
    fn mark<M: Machine>(&self, env: Env<'_, M>) -> (u64, u64) {
        let (mut cpu_slabs, mut partial) = (0, 0);
        for cpu in cpus(env) {
            self.cpu.try_with_remote(env.machine(), cpu, |state| {
                partial += u64::from(state.partial_slabs);
                if let Some(slab) = state.slab() {
                    cpu_slabs += 1;
                    env.map().page(slab).private2.store(1, Ordering::Relaxed);
                }
            });
        }
        (cpu_slabs, partial)
    }

    /// Takes the mark of a slab; true if it had one.
    fn unmark(page: &Page) -> bool {
        let marked = page.private2.load(Ordering::Relaxed) != 0;
        if marked {
            page.private2.store(0, Ordering::Relaxed);
        }
        marked
    }

    /// Adds a slab to the use of its cache.
    fn count(page: &Page, on_cpu: bool, usage: &mut Usage, free_on_nodes: &mut u64) {
        let order = page.order() as usize;
        usage.slabs_by_order[order] += 1;
        usage.pages += 1 << order;
        let word = SlabWord::peek(page);
        if page.on_list() {
            // Saturating: on a busy cache the pages may have become another slab meanwhile.
            let objects = page.objects.load(Ordering::Relaxed);
            *free_on_nodes += u64::from(objects.saturating_sub(word.inuse));
        }
        if word.first != 0 && word.inuse > 0 && !on_cpu {
            usage.partial_slabs += 1;
            usage.one_object_slabs += u64::from(word.inuse == 1);
        }
    }

    /// Puts the objects of a list into a set. The cache is at rest and the lock of the slab's node held.
    fn collect<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        mut object: *mut u8,
        free: &mut ObjectSet,
    ) -> Result<u32, SlabInconsistency> {
        let base = env.map().address(slab).addr().get();
        let objects = env.map().page(slab).objects.load(Ordering::Relaxed) as usize;
        let mut count = 0;
        while let Some(at) = NonNull::new(object) {
            let offset = at.addr().get().wrapping_sub(base);
            let number = offset / self.size;
            let inside = offset % self.size == 0 && number < objects;
            if !inside || !free.insert(number) {
                let what = if inside {
                    "object on a list twice"
                } else {
                    "free pointer astray"
                };
                let (recorded, found) = (offset as u64, count);
                return Err(SlabInconsistency {
                    what,
                    slab: Some(slab),
                    recorded,
                    found,
                });
            }
            count += 1;
            // SAFETY: I1 - the object is on a list and inside its slab (checked above). No code takes
            // objects off the list: other threads do not work on the cache (`Rest`), and a signal
            // handler of this one finds the lock of the node re-entered.
            object = unsafe { self.next_free(env, at) };
        }
        Ok(count as u32)
    }

    /// All free objects of a slab: its own list's, and its CPU's if it is one's. The slab's own, and how
    /// many the CPU has.
    fn free_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &HeldSlots<'_, M, CpuSlab>,
        slab: Pfn,
    ) -> Result<FreeObjects, CheckError> {
        let node = &self.node_of(env, slab).partial;
        let _list = node.lock(env.machine()).ok_or(CheckError::Busy)?;
        let mut free = ObjectSet::new();
        let word = SlabWord::peek(env.map().page(slab));
        let own = self.collect(env, slab, Self::first(env, slab, word), &mut free)?;
        // A CPU's slab is frozen; a slab on a cpu partial list, which may be too, is no CPU's.
        let mut cpus = word.frozen.then(|| slots.states()).into_iter().flatten();
        let list = cpus
            .find(|cpu| cpu.slab() == Some(slab))
            .map_or(core::ptr::null_mut(), |cpu| cpu.freelist);
        let on_cpu = self.collect(env, slab, list, &mut free)?;
        Ok(FreeObjects {
            free,
            word,
            own,
            on_cpu,
        })
    }

    /// The same with the cache at rest. `queued` calls what it is given for free objects that are in no
    /// slab's list.
    pub(crate) fn walk_live_at_rest<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &HeldSlots<'_, M, CpuSlab>,
        queued: impl Fn(&mut dyn FnMut(NonNull<u8>)) -> Result<(), Busy>,
        from: usize,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy> {
        for slab in slabs_from(env, &self.nodes, from) {
            let mut free = match self.free_objects(env, slots, slab) {
                Ok(counted) => counted.free,
                Err(CheckError::Busy) => return Err(Busy),
                Err(CheckError::Inconsistent(_)) => continue,
            };
            let first = env.map().address(slab);
            let objects = env.map().page(slab).objects.load(Ordering::Relaxed) as usize;
            queued(&mut |object| {
                let number = object.addr().get().wrapping_sub(first.addr().get()) / self.size;
                if number < objects {
                    free.insert(number);
                }
            })?;
            let below = from.saturating_sub(first.addr().get()).div_ceil(self.size);
            for number in (below..objects).filter(|&number| !free.contains(number)) {
                // SAFETY: number < objects, and objects * size <= bytes of the slab (geometry).
                if !found(unsafe { first.byte_add(number * self.size) }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The same with the cache at rest.
    pub(crate) fn check_at_rest<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &HeldSlots<'_, M, CpuSlab>,
    ) -> Result<(), CheckError> {
        let equal = SlabInconsistency::equal;
        let mut listed = 0;
        for node in (0..env.machine().topology().nodes).map(NodeId) {
            listed += self.check_list(env, node)?;
        }
        let (mut total, mut marked) = (0, 0);
        for slab in slabs(env) {
            let page = env.map().page(slab);
            let objects = page.objects.load(Ordering::Relaxed);
            let counted = self.free_objects(env, slots, slab)?;
            let recorded = u64::from(objects.saturating_sub(counted.word.inuse));
            equal("free objects", Some(slab), recorded, counted.own.into())?;
            if counted.on_cpu > 0 {
                equal("CPU slab frozen", Some(slab), counted.word.frozen.into(), 1)?;
            }
            total += 1;
            marked += u64::from(page.on_list());
        }
        equal("slabs marked as listed", None, listed, marked)?;
        let (recorded, _) = slabs::totals(&self.nodes);
        Ok(equal("slabs", None, recorded, total)?)
    }

    /// Slabs on a node's list.
    fn check_list<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> Result<u64, CheckError> {
        let equal = SlabInconsistency::equal;
        let map = env.map();
        let partial = &self.nodes[node.0 as usize].partial;
        let list = partial.lock(env.machine()).ok_or(CheckError::Busy)?;
        let mut len = 0;
        for slab in list.iter(map) {
            let page = map.page(slab);
            let marked = u64::from(page.on_list());
            equal("listed slab's mark", Some(slab), marked, 1)?;
            let of = u64::from(env.pages().node_of_page(slab).0);
            equal("listed slab's node", Some(slab), node.0.into(), of)?;
            let word = SlabWord::peek(page);
            equal("listed slab frozen", Some(slab), word.frozen.into(), 0)?;
            let full = u64::from(word.first == 0);
            equal("listed slab full", Some(slab), full, 0)?;
            len += 1;
        }
        equal("length of a partial list", None, u64::from(list.len()), len)?;
        Ok(len)
    }
}
