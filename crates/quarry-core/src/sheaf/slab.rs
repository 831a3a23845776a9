//! Look-ups of an object's page, and sheaves made and freed.

use core::ptr::NonNull;

use super::Kind;
use super::stats::{Stat, Stats};
use super::types::{Sheaf, SheafList, Sheaves};
use crate::design::Env;
use crate::machine::{Machine, NodeId};
use crate::slabs;

impl<K: Kind> Sheaves<K> {
    /// True if an object is of the running CPU's node. The thread may move to another node right after; its sheaf
    /// then holds a remote object, which costs locality and nothing else.
    pub(super) fn seems_local<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        let is_local = |pfn| slabs::is_local(env, pfn, env.machine().current_cpu());
        env.map().pfn_of(object).is_some_and(is_local)
    }

    /// The node of an object, if it is in the machine's memory.
    pub(super) fn node_of_object<M: Machine>(
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Option<NodeId> {
        env.pages()
            .pfn_of(object)
            .map(|pfn| env.pages().node_of_page(pfn))
    }

    /// Objects of a new sheaf; 0 while the cache has none.
    #[inline]
    pub(super) fn capacity(&self) -> u32 {
        self.capacity.get()
    }

    /// A new, empty sheaf, from kmalloc.
    pub(super) fn new_sheaf<M: Machine>(
        &self,
        env: Env<'_, M>,
        stats: &mut Stats,
    ) -> Option<Sheaf> {
        let capacity = self.granted(env);
        self.sheaf_of(env, capacity, stats)
    }

    /// A new, empty sheaf of a granted capacity.
    pub(super) fn sheaf_of<M: Machine>(
        &self,
        env: Env<'_, M>,
        capacity: u32,
        stats: &mut Stats,
    ) -> Option<Sheaf> {
        if capacity == 0 {
            return None;
        }
        let bytes = Sheaf::bytes(capacity);
        let Some(block) = env.kmalloc_direct::<Self>(bytes, None) else {
            self.give_up(env, capacity);
            return None;
        };
        stats.count(Stat::SheafAlloc);
        // SAFETY: kmalloc hands out at least this many bytes, aligned to a word at least.
        Some(unsafe { Sheaf::new(block, capacity) })
    }

    /// Frees a sheaf. No list lock is held.
    pub(super) fn free_sheaf<M: Machine>(&self, env: Env<'_, M>, sheaf: Sheaf, stats: &mut Stats) {
        debug_assert!(sheaf.is_empty());
        stats.count(Stat::SheafFree);
        self.give_up(env, sheaf.capacity());
        // SAFETY: `new_sheaf` got the block from there, and the box was its only user (I3).
        unsafe { env.kfree_direct::<Self>(sheaf.into_block()) };
    }

    /// Brings the objects of sheaves back to their slabs and frees the sheaves. No lock is held.
    pub(super) fn dissolve<M: Machine>(
        &self,
        env: Env<'_, M>,
        mut sheaves: SheafList,
        stats: &mut Stats,
    ) {
        while let Some(mut sheaf) = sheaves.pop(env.machine()) {
            self.flush_sheaf(env, &mut sheaf, stats);
            self.free_sheaf(env, sheaf, stats);
        }
    }
}
