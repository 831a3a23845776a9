//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::types::{OBJECTS_MAX, Slub};
use super::word::SlabWord;
use crate::design::{CpuUsage, Env, NodeUsage, SlabInconsistency, Usage};
use crate::machine::{CpuId, Machine, NodeId};
use crate::page::Pfn;
use crate::slabs::{cpus, slabs};
use crate::sync::Ordering;

/// A set of object numbers of one slab.
struct ObjectSet([u64; OBJECTS_MAX.div_ceil(64) as usize]);

impl ObjectSet {
    fn new() -> Self {
        Self([0; OBJECTS_MAX.div_ceil(64) as usize])
    }

    /// `false` if it was in already.
    fn insert(&mut self, object: usize) -> bool {
        let (word, bit) = (object / 64, 1 << (object % 64));
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn contains(&self, object: usize) -> bool {
        self.0[object / 64] >> (object % 64) & 1 != 0
    }
}

impl Slub {
    pub(super) fn count_usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        let mut usage = Usage::default();
        let mut free_on_nodes = 0;
        for node in &self.nodes[..env.pages.machine().topology().nodes as usize] {
            usage.slabs += node.nr_slabs.load(Ordering::Relaxed);
            usage.num_objs += node.total_objects.load(Ordering::Relaxed);
        }
        if usage.slabs == 0 {
            return usage;
        }
        let map = env.pages.map();
        (usage.cpu_slabs, usage.cpu_partial_slabs) = self.mark(env);
        for slab in slabs(env) {
            let page = map.page(slab);
            let order = page.order() as usize;
            usage.slabs_by_order[order] += 1;
            usage.pages += 1 << order;
            let word = SlabWord::load(page);
            if page.on_list() {
                // Saturating: on a busy cache the pages may have become another slab meanwhile.
                let objects = page.objects.load(Ordering::Relaxed);
                free_on_nodes += u64::from(objects.saturating_sub(word.inuse));
            }
            if word.first != 0 && word.inuse > 0 && Self::marked(env, slab).is_none() {
                usage.partial_slabs += 1;
                usage.one_object_slabs += u64::from(word.inuse == 1);
            }
        }
        self.unmark(env);
        usage.active_slabs = usage.slabs;
        // Saturating: a slab may come between the two counts on a busy cache.
        usage.active_objs = usage.num_objs.saturating_sub(free_on_nodes);
        usage
    }

    /// Notes in every CPU slab's descriptor which CPU has it, until [`Slub::unmark`]. Returns how
    /// many CPU slabs there are, and how many slabs on cpu partial lists.
    fn mark<M: Machine>(&self, env: Env<'_, M>) -> (u64, u64) {
        let (mut cpu_slabs, mut partial) = (0, 0);
        for cpu in cpus(env) {
            self.cpu.try_with_remote(env.pages.machine(), cpu, |state| {
                partial += u64::from(state.partial_slabs);
                if let Some(slab) = state.slab() {
                    cpu_slabs += 1;
                    let page = env.pages.map().page(slab);
                    page.private2.store(u64::from(cpu.0) + 1, Ordering::Relaxed);
                }
            });
        }
        (cpu_slabs, partial)
    }

    fn unmark<M: Machine>(&self, env: Env<'_, M>) {
        for slab in slabs(env) {
            env.pages
                .map()
                .page(slab)
                .private2
                .store(0, Ordering::Relaxed);
        }
    }

    fn marked<M: Machine>(env: Env<'_, M>, slab: Pfn) -> Option<CpuId> {
        let mark = env.pages.map().page(slab).private2.load(Ordering::Relaxed);
        mark.checked_sub(1).map(|cpu| CpuId(cpu as u32))
    }

    pub(super) fn count_node_usage<M: Machine>(&self, env: Env<'_, M>, id: NodeId) -> NodeUsage {
        let (map, machine) = (env.pages.map(), env.pages.machine());
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
                let inuse = SlabWord::load(page).inuse;
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
                    .filter(|&slab| env.pages.node_of_page(slab) == id)
                    .count() as u64;
            });
        }
        usage
    }

    pub(super) fn count_cpu_usage<M: Machine>(&self, env: Env<'_, M>, cpu: CpuId) -> CpuUsage {
        let found = self
            .cpu
            .try_with_remote(env.pages.machine(), cpu, |state| CpuUsage {
                stats: state.stats,
                slabs: u64::from(state.slab().is_some()),
                partial_slabs: u64::from(state.partial_slabs),
                partial_objects: u64::from(state.partial_objects),
            });
        found.unwrap_or_default()
    }

    /// Puts the objects of a list into a set.
    fn collect<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        mut object: *mut u8,
        free: &mut ObjectSet,
    ) -> Result<u32, SlabInconsistency> {
        let base = env.pages.map().address(slab).addr().get();
        let objects = env.pages.map().page(slab).objects.load(Ordering::Relaxed) as usize;
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
            // SAFETY: I1 - the object is on a list and inside its slab (checked above); the
            // caller's contract keeps the cache idle meanwhile.
            object = unsafe { self.next_free(env, at) };
        }
        Ok(count as u32)
    }

    /// All free objects of a slab: its own list's, and its CPU's if it is marked as a CPU slab.
    fn free_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
    ) -> Result<(ObjectSet, u32, u32), SlabInconsistency> {
        let mut free = ObjectSet::new();
        let word = SlabWord::load(env.pages.map().page(slab));
        let own = self.collect(env, slab, Self::first(env, slab, word), &mut free)?;
        let list = Self::marked(env, slab).and_then(|cpu| {
            self.cpu.try_with_remote(env.pages.machine(), cpu, |state| {
                if state.slab() == Some(slab) {
                    state.freelist
                } else {
                    core::ptr::null_mut()
                }
            })
        });
        let list = list.unwrap_or(core::ptr::null_mut());
        let on_cpu = self.collect(env, slab, list, &mut free)?;
        Ok((free, own, on_cpu))
    }

    /// The slab's own list; a cache with debugging has no other.
    pub(super) fn walk_free_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), SlabInconsistency> {
        let page = env.pages.map().page(slab);
        let word = SlabWord::load(page);
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
            // SAFETY: I1 - the object is on a list and inside its slab (checked above); nobody
            // allocates from the cache meanwhile, and frees leave links alone.
            at = unsafe { self.next_free(env, slot) };
        }
        SlabInconsistency::equal("free objects", Some(slab), free, count)
    }

    /// Takes all free objects of a slab out of circulation.
    pub(super) fn make_full<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        let page = env.pages.map().page(slab);
        let Some(mut list) = self.node_of(env, slab).partial.lock(env.pages.machine()) else {
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
        let mut old = SlabWord::load(page);
        while let Err(now) = old.replace(page, full) {
            old = now;
        }
    }

    pub(super) fn walk_live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        found: &mut dyn FnMut(NonNull<u8>),
    ) {
        if env.cache.has_deferred() {
            self.settle_deferred(env, None);
        }
        self.mark(env);
        for slab in slabs(env) {
            let Ok((free, ..)) = self.free_objects(env, slab) else {
                continue;
            };
            let objects = env.pages.map().page(slab).objects.load(Ordering::Relaxed) as usize;
            for number in (0..objects).filter(|&number| !free.contains(number)) {
                let first = env.pages.map().address(slab);
                // SAFETY: number < objects, and objects * size <= bytes of the slab (geometry).
                found(unsafe { first.byte_add(number * self.size) });
            }
        }
        self.unmark(env);
    }

    /// Lists, counters and free pointers of all slabs (see [`Slub`]'s states).
    pub(super) fn check<M: Machine>(&self, env: Env<'_, M>) -> Result<(), SlabInconsistency> {
        let equal = SlabInconsistency::equal;
        let map = env.pages.map();
        let mut listed = 0;
        for (node, at) in self
            .nodes
            .iter()
            .zip(0..env.pages.machine().topology().nodes)
        {
            let Some(list) = node.partial.lock(env.pages.machine()) else {
                continue;
            };
            let mut len = 0;
            for slab in list.iter(map) {
                let page = map.page(slab);
                equal(
                    "listed slab's mark",
                    Some(slab),
                    u64::from(page.on_list()),
                    1,
                )?;
                let node_number = u64::from(env.pages.node_of_page(slab).0);
                equal(
                    "listed slab's node",
                    Some(slab),
                    u64::from(NodeId(at).0),
                    node_number,
                )?;
                let word = SlabWord::load(page);
                equal("listed slab frozen", Some(slab), u64::from(word.frozen), 0)?;
                equal(
                    "listed slab full",
                    Some(slab),
                    u64::from(word.first == 0),
                    0,
                )?;
                len += 1;
            }
            equal("length of a partial list", None, u64::from(list.len()), len)?;
            listed += len;
        }
        let (mut total, mut marked) = (0, 0);
        self.mark(env);
        for slab in slabs(env) {
            let page = map.page(slab);
            let objects = page.objects.load(Ordering::Relaxed);
            let (_, own, on_cpu) = self.free_objects(env, slab)?;
            let word = SlabWord::load(page);
            equal(
                "free objects",
                Some(slab),
                u64::from(objects - word.inuse),
                u64::from(own),
            )?;
            if on_cpu > 0 {
                equal("CPU slab frozen", Some(slab), u64::from(word.frozen), 1)?;
            }
            total += 1;
            marked += u64::from(page.on_list());
        }
        self.unmark(env);
        equal("slabs marked as listed", None, listed, marked)?;
        let nodes = self
            .nodes
            .iter()
            .map(|node| node.nr_slabs.load(Ordering::Relaxed))
            .sum();
        equal("slabs", None, nodes, total)
    }
}
