//! A CPU's stack of objects, on which fast operations are one step of the machine: the queue of
//! SLUB+Queuing, the array cache of SLAB.

use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;

use crate::design::Env;
use crate::machine::{
    Access, CpuId, Line, Machine, PerCpu, PerCpuState, StackLayout, access, access_run,
};
use crate::slabs::SeenSlab;
use crate::stats::{Counter, Counters};

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
    /// The entry above the newest.
    top: *mut NonNull<u8>,
    /// Entry 0; null while `queue` is 0.
    base: *mut NonNull<u8>,
    /// Behind the last entry.
    limit: *mut NonNull<u8>,
    pub(crate) stats: Counters<C>,
    /// Room for entries.
    pub(crate) queue: u32,
    /// [`CpuQueue::uses`] at the last expiry, plus one; 0 before the first.
    expired_at: u64,
}

// SAFETY: the entries are memory that only the holder of the slot uses, and name objects that the
// allocator owns (I3).
unsafe impl<C: Counter> Send for CpuQueue<C> {}

/// Per-CPU state of a cache that begins with a queue.
///
/// # Safety
///
/// The type is `repr(C)` and its first field is a [`CpuQueue`] of these counters.
pub(crate) unsafe trait BeginsWithQueue {
    /// What is counted there.
    type Counter: Counter;
}

// SAFETY: it is one.
unsafe impl<C: Counter> BeginsWithQueue for CpuQueue<C> {
    type Counter = C;
}

impl<T: BeginsWithQueue + PerCpuState> StackLayout for T {
    const TOP: usize = PerCpu::<T>::STATE + offset_of!(CpuQueue<T::Counter>, top);
    const BASE: usize = PerCpu::<T>::STATE + offset_of!(CpuQueue<T::Counter>, base);
    const LIMIT: usize = PerCpu::<T>::STATE + offset_of!(CpuQueue<T::Counter>, limit);
    const POPS: usize =
        PerCpu::<T>::STATE + offset_of!(CpuQueue<T::Counter>, stats) + T::Counter::POPS;
    const PUSHES: usize =
        PerCpu::<T>::STATE + offset_of!(CpuQueue<T::Counter>, stats) + T::Counter::PUSHES;
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

    /// Whether nobody used the queue since its last expiry.
    pub(crate) fn is_idle(&self) -> bool {
        self.expired_at == self.uses().wrapping_add(1)
    }

    /// Begins another time between expiries.
    pub(crate) fn set_expired(&mut self) {
        self.expired_at = self.uses().wrapping_add(1);
    }

    /// Filled entries.
    #[inline(always)]
    pub(crate) fn objects(&self) -> u32 {
        let bytes = self.top.addr() - self.base.addr();
        (bytes / size_of::<NonNull<u8>>()) as u32
    }

    /// Says that entries were filled up to this number, without counting fast operations.
    pub(crate) fn set_filled<M: Machine>(&mut self, machine: &M, objects: u32) {
        let before = self.objects();
        debug_assert!(before <= objects);
        let filled = objects.saturating_sub(before) as usize;
        access_run(
            machine,
            Line::CpuQueue,
            Access::Write,
            self.entry(before),
            filled,
        );
        self.set_objects(objects);
    }

    fn set_objects(&mut self, objects: u32) {
        debug_assert!(objects <= self.queue);
        self.top = self.entry(objects);
    }

    #[inline(always)]
    fn entry(&self, number: u32) -> *mut NonNull<u8> {
        self.base.wrapping_add(number as usize)
    }

    /// Takes the newest entry; a fast allocation.
    #[inline(always)]
    pub(crate) fn pop<M: Machine>(&mut self, machine: &M) -> Option<NonNull<u8>> {
        let newest = self.take_newest(machine)?;
        self.stats.count(C::ALLOC_FASTPATH);
        Some(newest)
    }

    /// Takes the newest entry at the end of a slow allocation.
    #[inline(always)]
    pub(crate) fn take_newest<M: Machine>(&mut self, machine: &M) -> Option<NonNull<u8>> {
        let newest = self.newest()?;
        self.top = self.top.wrapping_sub(1);
        access(machine, Line::CpuQueue, Access::Read, self.top);
        Some(newest)
    }

    /// Adds an entry, a fast free; `false` if there is no room.
    #[inline(always)]
    pub(crate) fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        let pushed = self.put_newest(machine, object);
        if pushed {
            self.stats.count(C::FREE_FASTPATH);
        }
        pushed
    }

    /// Adds an entry at the end of a slow free; `false` if there is no room.
    #[inline(always)]
    pub(crate) fn put_newest<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        if self.top == self.limit {
            return false;
        }
        access(machine, Line::CpuQueue, Access::Write, self.top);
        // SAFETY: below the limit, so the entry is inside the block, which the slot's holder owns.
        unsafe { self.top.write(object) };
        self.top = self.top.wrapping_add(1);
        true
    }

    /// The newest entry.
    #[inline(always)]
    pub(crate) fn newest(&self) -> Option<NonNull<u8>> {
        if self.top == self.base {
            return None;
        }
        // SAFETY: the entry below the top is filled, and the slot's holder may read it.
        Some(unsafe { self.top.wrapping_sub(1).read() })
    }

    /// The filled entries, oldest first.
    pub(crate) fn filled(&self) -> &[NonNull<u8>] {
        if self.queue == 0 {
            return &[];
        }
        // SAFETY: this many entries of the block are filled; they are the slot's holder's, and the
        // borrow of `self` keeps it from changing them.
        unsafe { core::slice::from_raw_parts(self.base, self.objects() as usize) }
    }

    /// The first `room` entries, filled or not, to be written before they are read.
    pub(crate) fn room(&mut self, room: u32) -> &mut [MaybeUninit<NonNull<u8>>] {
        let room = room.min(self.queue) as usize;
        if room == 0 {
            return &mut [];
        }
        // SAFETY: the block has `queue` entries; `MaybeUninit` asks for no initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.base.cast(), room) }
    }

    /// At most `room` entries above the filled ones, to be written before
    /// [`CpuQueue::set_filled`] counts them.
    #[inline(always)]
    pub(crate) fn vacant(&mut self, room: u32) -> &mut [MaybeUninit<NonNull<u8>>] {
        let room = room.min(self.queue - self.objects()) as usize;
        if room == 0 {
            return &mut [];
        }
        // SAFETY: so many entries lie between the top and the limit; `MaybeUninit` asks for no
        // initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.top.cast(), room) }
    }

    /// Adds the objects of slots from the first on, as far as there is room, they lie in slabs of
    /// the cache and none is the newest already, and empties these slots; fast frees. Returns how
    /// many.
    #[inline(always)]
    pub(crate) fn push_many<M: Machine>(
        &mut self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let newest = self.newest();
        // SAFETY: top and limit are those of the queue, whose slot the caller holds.
        let pushed = unsafe { push_run(env, newest, self.top, self.limit, slots) };
        self.top = self.top.wrapping_add(pushed);
        self.stats.count_by(C::FREE_FASTPATH, pushed as u64);
        pushed
    }

    /// Takes up to as many entries as there are slots, newest first; fast allocations. Returns how
    /// many.
    #[inline(always)]
    pub(crate) fn pop_many<M: Machine>(
        &mut self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        // SAFETY: the entries between base and top are filled, and the slot's holder may read them.
        let popped = unsafe { pop_run(env, self.base, self.top, slots) };
        self.top = self.top.wrapping_sub(popped);
        self.stats.count_by(C::ALLOC_FASTPATH, popped as u64);
        popped
    }

    /// Removes the oldest entries, which the caller has read, and moves the others to their place.
    pub(crate) fn forget_oldest<M: Machine>(&mut self, machine: &M, n: u32) {
        let objects = self.objects();
        let n = n.min(objects);
        let rest = objects - n;
        access_run(
            machine,
            Line::CpuQueue,
            Access::Read,
            self.base,
            objects as usize,
        );
        access_run(
            machine,
            Line::CpuQueue,
            Access::Write,
            self.base,
            rest as usize,
        );
        if rest > 0 {
            // SAFETY: both ranges lie in the block, as n + rest = objects; `copy` allows the
            // overlap.
            unsafe { core::ptr::copy(self.entry(n), self.base, rest as usize) };
        }
        self.set_objects(rest);
    }

    /// Takes up the configured memory. The queue must be empty.
    pub(crate) fn adopt<M: Machine>(&mut self, config: &QueueConfig, cpu: CpuId) {
        let offset = (cpu.0 as usize) << M::PERCPU_SHIFT;
        self.base = config.entries.as_ptr().wrapping_byte_add(offset).cast();
        self.queue = config.queue;
        self.limit = self.entry(config.queue);
        self.top = self.base;
    }

    /// Lets go of the memory. The queue must be empty.
    pub(crate) fn abandon(&mut self) {
        self.queue = 0;
        self.base = core::ptr::null_mut();
        (self.top, self.limit) = (self.base, self.base);
    }
}

/// Copies the newest entries of a stack to slots, newest first; returns how many.
///
/// # Safety
///
/// From `base` to `top` lie filled entries that the caller may read.
#[inline(always)]
pub(crate) unsafe fn pop_run<M: Machine>(
    env: Env<'_, M>,
    base: *mut NonNull<u8>,
    top: *mut NonNull<u8>,
    slots: &mut [Option<NonNull<u8>>],
) -> usize {
    let filled = (top.addr() - base.addr()) / size_of::<NonNull<u8>>();
    let run = filled.min(slots.len());
    let mut entry = top;
    for slot in &mut slots[..run] {
        entry = entry.wrapping_sub(1);
        access(env.pages.machine(), Line::CpuQueue, Access::Read, entry);
        // Volatile, so that entries are read one by one, as they were written: a wide load of what
        // narrow stores have just written waits until these have left the store buffer.
        // SAFETY: `run` entries lie below the top, by the caller's contract.
        *slot = Some(unsafe { entry.read_volatile() });
    }
    run
}

/// Copies the objects of slots from the first on to a stack, as far as there is room, they lie in
/// slabs of the cache and none is the newest already; empties these slots and returns how many.
///
/// # Safety
///
/// From `top` to `limit` lie entries that are the caller's, or both are null.
#[inline(always)]
pub(crate) unsafe fn push_run<M: Machine>(
    env: Env<'_, M>,
    mut newest: Option<NonNull<u8>>,
    top: *mut NonNull<u8>,
    limit: *mut NonNull<u8>,
    slots: &mut [Option<NonNull<u8>>],
) -> usize {
    let room = (limit.addr() - top.addr()) / size_of::<NonNull<u8>>();
    if room == 0 {
        return 0;
    }
    let mut seen = SeenSlab::NONE;
    // SAFETY: the caller's contract; `MaybeUninit` asks for no initialised value.
    let vacant = unsafe { core::slice::from_raw_parts_mut(top.cast::<MaybeUninit<_>>(), room) };
    let mut run = 0;
    for (&slot, entry) in slots.iter().zip(vacant) {
        let Some(object) = slot else { break };
        if newest == slot || !seen.holds(env, object) {
            break;
        }
        access(
            env.pages.machine(),
            Line::CpuQueue,
            Access::Write,
            core::ptr::from_ref(&*entry),
        );
        entry.write(object);
        newest = slot;
        run += 1;
    }
    // At once, because clearing many words is a few wide stores.
    slots[..run].fill(None);
    run
}

/// Reserves entries for all CPUs.
pub(crate) fn alloc_entries<M: Machine>(env: Env<'_, M>, queue: u32) -> Option<NonNull<u8>> {
    env.pages
        .percpu()
        .alloc(env.pages.machine(), queue as usize * size_of::<usize>())
}

/// Returns the entries of all CPUs.
///
/// # Safety
///
/// No CPU's queue uses them.
pub(crate) unsafe fn free_entries<M: Machine>(env: Env<'_, M>, config: &QueueConfig) {
    let machine = env.pages.machine();
    let bytes = config.queue as usize * size_of::<usize>();
    for cpu in 0..machine.topology().cpus as usize {
        // SAFETY: the block lies at the same offset in the area of every CPU.
        let entries = unsafe { config.entries.byte_add(cpu << M::PERCPU_SHIFT) };
        // SAFETY: the block has this many bytes, and nobody uses it.
        unsafe { entries.write_bytes(0, bytes) };
    }
    // SAFETY: `alloc_entries` reserved exactly this block; it is zeroed and goes back once.
    unsafe { env.pages.percpu().free(machine, config.entries, bytes) };
}
