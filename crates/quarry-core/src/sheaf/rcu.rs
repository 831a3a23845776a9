//! Deferred frees: rcu sheaves, which wait for readers and then stock the barn (facts 6.8).

use core::ptr::NonNull;

use super::Kind;
use super::stats::{Stat, Stats};
use super::types::{CpuSheaves, Sheaf, SheafList, Sheaves};
use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Machine, NodeId, Work, work};
use crate::rcu;
use crate::slabs;
use crate::sync::Ordering;

impl<K: Kind> Sheaves<K> {
    /// Puts an object in the CPU's rcu sheaf, or notes it as other designs do.
    ///
    /// # Safety
    ///
    /// Only readers that run already may still use the object.
    pub(super) unsafe fn defer_free<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.flags().checked() {
            // SAFETY: the caller vouches that only readers that run already use the object.
            return unsafe { rcu::defer(self, env, object) };
        }
        let slab = slabs::lookup(env, object)?;
        self.slub.check_object(env, slab, object)?;
        let put = match self.capacity() {
            0 => None,
            _ => self.cpu.try_with(env.machine(), |cpu, id| {
                work(env.machine(), Work::Preempt);
                (self.one_node || slabs::is_local(env, slab, id))
                    && self.put_rcu(env, cpu, id, object)
            }),
        };
        if put == Some(true) {
            return Ok(());
        }
        env.cache.shared_stats.count(Stat::FreeRcuSheafFail);
        // SAFETY: the caller vouches that only readers that run already use the object.
        unsafe { rcu::defer(self, env, object) }
    }

    /// Puts an object in the rcu sheaf and lets this wait once it is full. `false` if there is no
    /// memory for a sheaf.
    fn put_rcu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        object: NonNull<u8>,
    ) -> bool {
        let node = env.machine().node_of_cpu(id);
        if cpu.rcu.is_none() {
            self.settle_waiting(env, node, &mut cpu.stats);
            let spare = cpu.spare.take_if(|spare| spare.is_empty());
            cpu.rcu = spare.or_else(|| self.empty_sheaf(env, node, &mut cpu.stats));
        }
        let Some(sheaf) = &mut cpu.rcu else {
            return false;
        };
        if !sheaf.push(env.machine(), object) {
            // It is full because it could not be handed over.
            return false;
        }
        cpu.stats.count(Stat::FreeRcuSheaf);
        if sheaf.is_full() {
            self.hand_over(env, cpu, node, false);
        }
        true
    }

    /// Lets a CPU's rcu sheaf wait for the readers that run now, to become a full sheaf of the barn or
    /// to be dissolved. It stays if the lock of the barn is re-entered.
    pub(super) fn hand_over<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
        dissolve: bool,
    ) {
        if cpu.rcu.is_some()
            && let Some(mut barn) = self.barn(env, node)
            && let Some(mut sheaf) = cpu.rcu.take()
        {
            let cookie = env.machine().rcu_cookie();
            if barn.waiting.count() == 0 {
                barn.first_cookie = cookie;
            }
            sheaf.wait_for(cookie, node, dissolve);
            barn.waiting.push(env.machine(), sheaf);
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts the sheaves whose readers have finished in the barn, or flushes them if it has enough or a
    /// flush handed them over.
    pub(super) fn settle_waiting<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let machine = env.machine();
        let over = |sheaf: &Sheaf| machine.rcu_elapsed(sheaf.cookie());
        let mut elapsed = SheafList::EMPTY;
        // All others of the list wait at least as long as its first one.
        if let Some(mut barn) = self.barn(env, node)
            && machine.rcu_elapsed(barn.first_cookie)
        {
            let mut waiting = barn.waiting.take();
            let mut kept = SheafList::EMPTY;
            while let Some(sheaf) = waiting.pop(env.machine()) {
                match over(&sheaf) {
                    true => elapsed.push(env.machine(), sheaf),
                    false => {
                        // The last one that is taken has waited longest.
                        barn.first_cookie = sheaf.cookie();
                        kept.push(env.machine(), sheaf);
                    }
                }
            }
            while let Some(sheaf) = kept.pop(env.machine()) {
                barn.waiting.push(env.machine(), sheaf);
            }
        }
        self.waiting.fetch_sub(elapsed.count(), Ordering::Relaxed);
        while let Some(sheaf) = elapsed.pop(env.machine()) {
            self.settle_sheaf(env, sheaf, stats);
        }
    }

    /// A deferred sheaf's grace period is over.
    fn settle_sheaf<M: Machine>(&self, env: Env<'_, M>, mut sheaf: Sheaf, stats: &mut Stats) {
        let node = sheaf.node();
        if sheaf.is_to_dissolve() {
            self.flush_sheaf(env, &mut sheaf, stats);
            return self.free_sheaf(env, sheaf, stats);
        }
        if let Some(mut barn) = self.barn(env, node)
            && barn.full.count() < self.barn_full.get()
        {
            barn.full.push(env.machine(), sheaf);
            stats.count(Stat::BarnPut);
            return;
        }
        stats.count(Stat::BarnPutFail);
        self.flush_sheaf(env, &mut sheaf, stats);
        let limit = self.barn_empty.load(Ordering::Relaxed);
        self.put_empty(env, node, sheaf, limit, stats);
    }

    /// [`Sheaves::settle_waiting`] of all nodes. The gate has been entered.
    pub(super) fn settle_all_waiting<M: Machine>(&self, env: Env<'_, M>) {
        let mut stats = Stats::default();
        for node in 0..env.machine().topology().nodes {
            self.settle_waiting(env, NodeId(node), &mut stats);
        }
        env.cache.shared_stats.add(&stats);
    }
}
