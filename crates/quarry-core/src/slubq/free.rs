//! Freeing behind the CPU's queue: the drain, and objects of other nodes.

use core::ptr::NonNull;

use super::stats::Stat;
use super::types::{CpuQueue, Slubq};
use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Machine};
use crate::page::Pfn;
use crate::queue::CpuStack;
use crate::slabs;
use crate::sync::Ordering;

impl Slubq {
    /// The queue is full, or has no memory yet.
    pub(super) fn drain_and_push<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        self.check_object(env, slab, object)?;
        if env.cache.has_deferred() {
            self.settle_deferred(env, Some(&mut cpu.stats));
        }
        if cpu.stack.room() == 0
            && self.adopt_config(env, cpu, id)
            && cpu.push(env.machine(), object)
        {
            return Ok(());
        }
        cpu.stats.count(Stat::FreeSlowpath);
        let batch = self.batch.load(Ordering::Relaxed).max(1);
        let own = env.machine().node_of_cpu(id);
        let shared = self.push_shared(env, cpu, own, batch);
        self.drain(env, cpu, batch - shared);
        if !cpu.stack.push(env.machine(), object) {
            let slab = slabs::slab_of(env, object)?;
            self.free_to_slab(env, slab, &[object], Some(&mut cpu.stats));
        }
        Ok(())
    }

    /// Refuses an address where no object of the slab starts.
    pub(super) fn check_object<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let map = env.map();
        let offset = object.addr().get() - map.address(slab).addr().get();
        let objects = map.page(slab).objects.load(Ordering::Relaxed) as usize;
        match offset.is_multiple_of(self.size) && offset / self.size < objects {
            true => Ok(()),
            false => Err(FreeError::NotAnObject),
        }
    }
}
