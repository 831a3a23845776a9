//! Stacks of objects per CPU, on which fast operations are one step of the machine: the queue of
//! SLUB+Queuing, the array cache of SLAB.

use core::mem::offset_of;
use core::ptr::NonNull;

use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Line, Machine, PerCpuState};
use crate::slabs::SeenSlab;
use crate::stack::{HasStack, Stack};
use crate::stats::{Counter, Counters};

/// A CPU's state with a stack of objects: fast operations on it are counted.
pub(crate) trait CpuStack {
    /// Counters of the state.
    type Counter: Counter;

    /// The stack, and what counts the operations.
    fn stack_and_stats(&mut self) -> (&mut Stack, &mut Counters<Self::Counter>);

    /// Takes the newest object; a fast allocation.
    #[inline(always)]
    fn pop<M: Machine>(&mut self, machine: &M) -> Option<NonNull<u8>> {
        let (stack, stats) = self.stack_and_stats();
        let newest = stack.pop(machine)?;
        stats.count(Self::Counter::ALLOC_FASTPATH);
        Some(newest)
    }

    /// Adds an object, a fast free; `false` if there is no room.
    #[inline(always)]
    fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        let (stack, stats) = self.stack_and_stats();
        let pushed = stack.push(machine, object);
        if pushed {
            stats.count(Self::Counter::FREE_FASTPATH);
        }
        pushed
    }

    /// [`CpuStack::push`], which refuses the newest object: it is free already.
    #[inline(always)]
    fn push_freed<M: Machine>(
        &mut self,
        machine: &M,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        if self.stack_and_stats().0.newest() == Some(object) {
            return Err(FreeError::DoubleFree);
        }
        Ok(self.push(machine, object))
    }

    /// Takes up to as many objects as there are slots, newest first; fast allocations. Returns how
    /// many.
    #[inline(always)]
    fn pop_many<M: Machine>(
        &mut self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let (stack, stats) = self.stack_and_stats();
        let popped = stack.pop_many(env.machine(), slots);
        stats.count_by(Self::Counter::ALLOC_FASTPATH, popped as u64);
        popped
    }

    /// Adds the objects of slots from the first on and empties these slots. Goes on while there is
    /// room, objects are in slabs of the cache and none is the newest already; fast frees. Returns
    /// how many.
    #[inline(always)]
    fn push_many<M: Machine>(
        &mut self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let (stack, stats) = self.stack_and_stats();
        let mut seen = SeenSlab::NONE;
        let accept = |object| seen.holds(env, object);
        let pushed = stack.push_many(env.machine(), slots, accept);
        stats.count_by(Self::Counter::FREE_FASTPATH, pushed as u64);
        pushed
    }
}

/// Memory and size of the queues.
#[derive(Clone, Copy)]
pub(crate) struct QueueConfig {
    /// CPU 0's entries; the other CPUs' are at the same offset of their areas.
    pub(crate) entries: NonNull<u8>,
    /// Entries per CPU (`cpu_queue_size`).
    pub(crate) queue: u32,
}

// SAFETY: the address is in the per-CPU range, which outlives the cache; each CPU's entries are
// only used by the holder of that CPU's slot.
unsafe impl Send for QueueConfig {}

impl<C: Counter> PerCpuState for CpuQueue<C> {
    const LINE: Line = Line::CpuState;
}

/// One CPU's queue, behind its slot. All-zero is an empty queue without room, which the first slow
/// operation replaces. The fields that fast operations use share the lock word's cache line.
#[repr(C)]
pub(crate) struct CpuQueue<C: Counter> {
    pub(crate) stack: Stack,
    pub(crate) stats: Counters<C>,
    /// [`CpuQueue::uses`] at the last expiry, plus one; 0 before the first.
    expired_at: u64,
}

impl<C: Counter> HasStack for CpuQueue<C> {
    const ENDS: usize = offset_of!(Self, stack);
    const POPS: usize = offset_of!(Self, stats) + C::POPS;
    const PUSHES: usize = offset_of!(Self, stats) + C::PUSHES;
}

impl<C: Counter> CpuStack for CpuQueue<C> {
    type Counter = C;

    #[inline(always)]
    fn stack_and_stats(&mut self) -> (&mut Stack, &mut Counters<C>) {
        (&mut self.stack, &mut self.stats)
    }
}

impl<C: Counter> CpuQueue<C> {
    /// Calls that used the queue.
    fn uses(&self) -> u64 {
        let calls = [
            C::ALLOC_FASTPATH,
            C::ALLOC_SLOWPATH,
            C::FREE_FASTPATH,
            C::FREE_SLOWPATH,
        ];
        calls.into_iter().map(|call| self.stats.get(call)).sum()
    }

    /// True if no operation used the queue since its last expiry.
    pub(crate) fn is_idle(&self) -> bool {
        self.expired_at == self.uses().wrapping_add(1)
    }

    /// Begins another time between expiries.
    pub(crate) fn set_expired(&mut self) {
        self.expired_at = self.uses().wrapping_add(1);
    }

    /// Takes up the configured memory. The queue is empty.
    ///
    /// # Safety
    ///
    /// The memory was reserved by [`alloc_entries`], and the queue is `cpu`'s.
    pub(crate) unsafe fn adopt<M: Machine>(&mut self, config: &QueueConfig, cpu: CpuId) {
        debug_assert!(self.stack.is_empty());
        // SAFETY: the block is at the same offset in the area of every CPU.
        let entries = unsafe { config.entries.byte_add((cpu.0 as usize) << M::PERCPU_SHIFT) };
        // SAFETY: the block has this many entries, which only this CPU's queue uses.
        self.stack = unsafe { Stack::new(entries.cast(), 0, config.queue) };
    }

    /// Lets go of the memory. The queue is empty.
    pub(crate) fn abandon(&mut self) {
        debug_assert!(self.stack.is_empty());
        self.stack = Stack::NONE;
    }
}

/// Reserves entries for all CPUs.
pub(crate) fn alloc_entries<M: Machine>(env: Env<'_, M>, queue: u32) -> Option<NonNull<u8>> {
    env.pages()
        .percpu()
        .alloc(env.machine(), queue as usize * size_of::<usize>())
}

/// Returns the entries of all CPUs.
///
/// # Safety
///
/// No CPU's queue uses them.
pub(crate) unsafe fn free_entries<M: Machine>(env: Env<'_, M>, config: &QueueConfig) {
    let machine = env.machine();
    let bytes = config.queue as usize * size_of::<usize>();
    for cpu in 0..machine.topology().cpus as usize {
        // SAFETY: the block is at the same offset in the area of every CPU.
        let entries = unsafe { config.entries.byte_add(cpu << M::PERCPU_SHIFT) };
        // SAFETY: the block has this many bytes, and no code uses it.
        unsafe { entries.write_bytes(0, bytes) };
    }
    // SAFETY: `alloc_entries` reserved exactly this block; it is zeroed and goes back once.
    unsafe { env.pages().percpu().free(machine, config.entries, bytes) };
}
