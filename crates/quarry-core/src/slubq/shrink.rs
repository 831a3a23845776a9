//! Flush, shrink, and resizing of the queues.

use super::stats::Stat;
use super::types;
use super::types::{CpuQueue, QueueConfig, Slubq};
use crate::debug;
use crate::design::{Env, Upkeep};
use crate::machine::{Machine, Work, work};
use crate::protection::Reach;
use crate::slabs::cpus;
use crate::sync::Ordering;

impl Upkeep for Slubq {
    /// Drains every queue. Returns how many CPUs were busy.
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let busy = self.flush_with(env, |_| ());
        let _pass = env.enter();
        self.flush_shared(env);
        busy
    }

    /// Empty slabs are given back whenever they become empty, so this is a flush.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        self.flush(env)
    }

    fn reap<M: Machine>(&self, env: Env<'_, M>, _now_ns: u64) {
        if self.idle_expiry.load(Ordering::Relaxed) != 0 {
            self.expire(env);
        }
    }

    fn quiesce<M: Machine>(&self, env: Env<'_, M>, wait: bool) -> u32 {
        self.cpu.quiesce(env.machine(), wait)
    }

    fn resume<M: Machine>(&self, env: Env<'_, M>) {
        self.cpu.resume(env.machine());
    }
}

impl Slubq {
    /// Drains the running CPU's queue, and those that it shares, if no code used them since the last
    /// time.
    pub(super) fn expire<M: Machine>(&self, env: Env<'_, M>) {
        let machine = env.machine();
        let _pass = env.enter();
        self.cpu.try_with(machine, |cpu, _| {
            work(machine, Work::IrqSave);
            if cpu.is_idle() && !cpu.stack.is_empty() {
                cpu.stats.count(Stat::QueueFlush);
                self.drain(env, cpu, cpu.stack.objects());
            }
            cpu.set_expired();
        });
        self.expire_shared(env, machine.current_node());
    }

    /// Drains every CPU's queue and then does something with it.
    fn flush_with<M: Machine>(&self, env: Env<'_, M>, then: impl Fn(&mut CpuQueue)) -> u32 {
        let _pass = env.enter();
        debug::settle_alone(env, || self.settle_deferred(env, None));
        let busy = cpus(env).filter(|&cpu| {
            let flushed = self.cpu.try_with_remote(env.machine(), cpu, |state| {
                Reach::Interrupt.tell(env.machine(), cpu);
                if !state.stack.is_empty() {
                    state.stats.count(Stat::QueueFlush);
                    self.drain(env, state, state.stack.objects());
                }
                then(state);
            });
            flushed.is_none()
        });
        busy.count() as u32
    }

    /// Gives all CPUs queues of another size and batches of half of it; a CPU that is busy keeps its old one. `false`, with
    /// nothing changed, if there is no room.
    pub(super) fn resize<M: Machine>(&self, env: Env<'_, M>, queue: u32) -> bool {
        let _pass = env.enter();
        let Some(entries) = types::alloc_entries(env, queue) else {
            return false;
        };
        let new = QueueConfig { entries, queue };
        let Some(mut config) = self.config.lock(env.machine()) else {
            // SAFETY: no code has seen the entries.
            unsafe { types::free_entries(env, &new) };
            return false;
        };
        let old = core::mem::replace(&mut *config, new);
        self.queue.store(queue, Ordering::Relaxed);
        self.batch.store(queue.div_ceil(2), Ordering::Relaxed);
        drop(config);
        if self.flush_with(env, CpuQueue::abandon) > 0 {
            // A busy CPU may still use the old entries, so these stay reserved.
            return true;
        }
        // SAFETY: every CPU has let go of the old entries and adopts the new ones from now on.
        unsafe { types::free_entries(env, &old) };
        true
    }
}
