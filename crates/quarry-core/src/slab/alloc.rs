//! Allocation behind the CPU's array: the refill, and objects past it.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::geometry::GrowRule;
use super::partial::Room;
use super::stats::{Stat, Stats};
use super::types::{CpuArray, SlabCache};
use crate::design::Env;
use crate::machine::{CpuId, Machine, NodeId};
use crate::sync::Ordering;

impl SlabCache {
    /// The array is empty, or of the wrong node.
    pub(super) fn refill_and_pop<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        let local = env.machine().node_of_cpu(id);
        let past_array = match node {
            Some(node) if node != local || !cpu.queue.stack.is_empty() => Some(node),
            _ => None,
        };
        let object = match past_array {
            Some(node) => {
                stats.count(Stat::NodeAllocs);
                self.take_one(env, node, &mut stats)
            }
            None => {
                self.refill(env, cpu, id, local, &mut stats);
                cpu.queue.stack.pop(env.machine())
            }
        };
        let through_array = object.is_some() && past_array.is_none();
        let object =
            object.or_else(|| self.take_of_any_node(env, node.unwrap_or(local), &mut stats));
        cpu.queue.stats.add(&stats);
        if through_array {
            cpu.queue.stats.count(Stat::AllocSlowpath);
        } else {
            cpu.count_past_array();
        }
        object
    }

    /// Gives a CPU the configured array; `false` if the lock on it is re-entered.
    pub(super) fn adopt_config<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
    ) -> bool {
        let Some(config) = self.config.lock(env.machine()) else {
            return false;
        };
        // SAFETY: the configured memory is that of `alloc_entries`, and the slot is `id`'s.
        unsafe { cpu.queue.adopt::<M>(&config, id) };
        true
    }

    /// Brings up to a batch of objects into an empty array (`cache_alloc_refill()`).
    fn refill<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        local: NodeId,
        stats: &mut Stats,
    ) {
        // No room in an empty array: it has no memory yet, or a tunable changed its limit.
        if cpu.queue.stack.room() == 0 && !self.adopt_config(env, cpu, id) {
            return;
        }
        // A kmalloc, which may come back to this cache: not under the lists' lock.
        self.make_shared(env, local);
        let mut batch = self.batch.load(Ordering::Relaxed).max(1);
        // A CPU that allocated nothing since the last reap gets less, or each reap would move a batch back and forth.
        if !cpu.touched() {
            batch = batch.min(self.era.run.untouched_batch);
        }
        let filled = self.fill(env, local, cpu.queue.stack.vacant(batch as usize), stats);
        // SAFETY: `fill` has written as many places as it says.
        unsafe { cpu.queue.stack.grow(env.machine(), filled) };
    }

    /// Fills places with objects of a node, which grows if it has none. Says how many.
    fn fill<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        room: Room<'_>,
        stats: &mut Stats,
    ) -> u32 {
        if room.is_empty() {
            return 0;
        }
        let beside = &self.beside[node.0 as usize];
        let look = !self.era.run.looks_before_lock
            || beside.free_objects.load(Ordering::Relaxed) > 0
            || beside.shared_avail.load(Ordering::Relaxed) > 0;
        if look {
            let Some(mut lists) = self.lock_node(env, node) else {
                return 0;
            };
            // Mostly this is enough. Fewer than a batch is success, too: growing for the rest would make slabs while
            // others' frees are on their way.
            let drawn = self.draw(env, &mut lists, room, true, stats);
            if drawn > 0 {
                return drawn;
            }
        }
        // Without the lock: a new slab takes pages, and with indices off the slab a kmalloc.
        self.grow(env, node, false, room, true, stats)
    }

    /// Takes objects of a node, or of another one if `anywhere`, when a slab has been made for it. Says how many.
    ///
    /// From 4.7 on the slab feeds the caller before it joins the node's lists, without their lock.
    fn grow<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        anywhere: bool,
        room: Room<'_>,
        ask_shared: bool,
        stats: &mut Stats,
    ) -> u32 {
        let Some(slab) = self.new_slab(env, node, anywhere, stats) else {
            return 0;
        };
        let open = self.open(env, slab);
        let objects = open.objects();
        let feeds = self.era.run.grow == GrowRule::FeedArray;
        let fed = if feeds {
            Self::take_into(&open, room)
        } else {
            0
        };
        let Some(mut lists) = self.lock_node(env, env.pages().node_of_page(slab)) else {
            // What it has fed goes with it: the caller gets none.
            stats.count(Stat::FreeSlab);
            self.discard(env, slab);
            return 0;
        };
        lists.free_objects += u64::from(objects - fed);
        if feeds {
            lists.of(fed, objects).push_front(Self::links(env), slab);
            return fed;
        }
        lists.free.push_back(Self::links(env), slab);
        self.draw(env, &mut lists, room, ask_shared, stats)
    }

    /// One object of a node's slabs, which grows if it has none (`____cache_alloc_node()`).
    pub(super) fn take_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<NonNull<u8>> {
        if let Some(object) = self.take_listed(env, node, stats)? {
            return Some(object);
        }
        self.take_new(env, node, false, stats)
    }

    /// One object of a new slab.
    fn take_new<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        anywhere: bool,
        stats: &mut Stats,
    ) -> Option<NonNull<u8>> {
        let mut room = [MaybeUninit::uninit()];
        let drawn = self.grow(env, node, anywhere, &mut room, false, stats);
        Self::only(drawn, room)
    }

    /// One object of a node's slabs, `Some(None)` if it has none. `None` if its lock is re-entered
    /// or there is no such node.
    #[expect(clippy::option_option, reason = "two ways to have none")]
    fn take_listed<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<Option<NonNull<u8>>> {
        let mut lists = self.lock_node(env, node)?;
        let mut room = [MaybeUninit::uninit()];
        let drawn = self.draw(env, &mut lists, &mut room, false, stats);
        Some(Self::only(drawn, room))
    }

    fn only(drawn: u32, room: [MaybeUninit<NonNull<u8>>; 1]) -> Option<NonNull<u8>> {
        // SAFETY: `draw` and `grow` have written as many places as they say.
        (drawn == 1).then(|| unsafe { room[0].assume_init() })
    }

    /// One object of any node's slabs, or of a new slab of any node (`fallback_alloc()`): the wanted
    /// node cannot grow.
    pub(super) fn take_of_any_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        wanted: NodeId,
        stats: &mut Stats,
    ) -> Option<NonNull<u8>> {
        let nodes = env.machine().topology().nodes;
        if !self.numa || wanted.0 >= nodes {
            return None;
        }
        for distance in 0..nodes {
            let node = NodeId((wanted.0 + distance) % nodes);
            if let Some(object) = self.take_listed(env, node, stats)? {
                return Some(object);
            }
        }
        self.take_new(env, wanted, true, stats)
    }
}
