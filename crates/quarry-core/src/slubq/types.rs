//! The data structures of SLUB+Queuing; the drawing is in the [module's documentation](super).

use core::mem::offset_of;
use core::ptr::NonNull;

use crate::design::Env;
use crate::machine::{CpuId, Machine, PerCpu, SpinLock, StackLayout};
use crate::slabs::Nodes;
use crate::stats::{Stat, Stats};
use crate::sync::AtomicU32;

/// State of one cache.
pub struct Slubq {
    pub(super) cpu: PerCpu<CpuQueue>,
    /// Distance in bytes from one object to the next.
    pub(super) size: usize,
    /// Objects moved per refill or drain (`cpu_batch_size`).
    pub(super) batch: AtomicU32,
    /// Entries per CPU as last configured (`cpu_queue_size`); [`QueueConfig`] decides.
    pub(super) queue: AtomicU32,
    /// Where the queues of all CPUs are; each CPU copies it at its next slow operation.
    pub(super) config: SpinLock<QueueConfig>,
    pub(super) nodes: Nodes,
}

/// Memory and size of the queues.
#[derive(Clone, Copy)]
pub(super) struct QueueConfig {
    /// CPU 0's entries; the other CPUs' are at the same offset of their areas.
    pub(super) entries: NonNull<u8>,
    /// Entries per CPU (`cpu_queue_size`).
    pub(super) queue: u32,
}

// SAFETY: the address is in the per-CPU range, which outlives the cache; each CPU's entries are
// only used by the holder of that CPU's slot.
unsafe impl Send for QueueConfig {}

/// One CPU's queue, behind its slot. All-zero is an empty queue without room, which the first slow
/// operation replaces.
///
/// The number of entries is not stored but follows from the counters of fast operations:
/// `free_fastpath - alloc_fastpath - floor`. An allocation then changes one counter and a free the
/// other, so neither waits for the other's store; slow operations move `floor`. The fields that
/// fast operations use share the lock word's cache line.
#[repr(C)]
pub(super) struct CpuQueue {
    /// Difference of the counters at which the queue is empty.
    floor: u64,
    /// Difference of the counters at which it is full.
    ceiling: u64,
    /// Where entry 0 would be if the queue were empty at a difference of 0.
    entries: *mut NonNull<u8>,
    pub(super) stats: Stats,
    /// Entry 0; dangling while `queue` is 0.
    base: *mut NonNull<u8>,
    /// Room for entries.
    pub(super) queue: u32,
}

// SAFETY: the entries are memory that only the holder of the slot uses, and name objects that the
// allocator owns (I3).
unsafe impl Send for CpuQueue {}

impl StackLayout for CpuQueue {
    const FLOOR: usize = PerCpu::<Self>::STATE + offset_of!(Self, floor);
    const CEILING: usize = PerCpu::<Self>::STATE + offset_of!(Self, ceiling);
    const ENTRIES: usize = PerCpu::<Self>::STATE + offset_of!(Self, entries);
    const POPS: usize =
        PerCpu::<Self>::STATE + offset_of!(Self, stats) + Stats::offset(Stat::AllocFastpath);
    const PUSHES: usize =
        PerCpu::<Self>::STATE + offset_of!(Self, stats) + Stats::offset(Stat::FreeFastpath);
}

impl CpuQueue {
    #[inline(always)]
    fn difference(&self) -> u64 {
        let pops = self.stats.get(Stat::AllocFastpath);
        self.stats.get(Stat::FreeFastpath).wrapping_sub(pops)
    }

    /// Filled entries.
    #[inline(always)]
    pub(super) fn objects(&self) -> u32 {
        self.difference().wrapping_sub(self.floor) as u32
    }

    /// Says how many entries are filled, without counting fast operations.
    pub(super) fn set_objects(&mut self, objects: u32) {
        self.floor = self.difference().wrapping_sub(u64::from(objects));
        self.ceiling = self.floor.wrapping_add(u64::from(self.queue));
        let bytes = (self.floor as usize).wrapping_mul(size_of::<usize>());
        self.entries = self.base.wrapping_byte_sub(bytes);
    }

    #[inline(always)]
    fn entry(&self, number: u32) -> *mut NonNull<u8> {
        self.base.wrapping_add(number as usize)
    }

    /// Takes the newest entry; a fast allocation.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let newest = self.newest()?;
        self.stats.count(Stat::AllocFastpath);
        Some(newest)
    }

    /// Takes the newest entry at the end of a slow allocation.
    pub(super) fn take_newest(&mut self) -> Option<NonNull<u8>> {
        let newest = self.newest()?;
        self.set_objects(self.objects() - 1);
        Some(newest)
    }

    /// Adds an entry, a fast free; `false` if there is no room.
    #[inline(always)]
    pub(super) fn push(&mut self, object: NonNull<u8>) -> bool {
        let pushed = self.write_next(object);
        if pushed {
            self.stats.count(Stat::FreeFastpath);
        }
        pushed
    }

    /// Adds an entry at the end of a slow free; `false` if there is no room.
    pub(super) fn put_newest(&mut self, object: NonNull<u8>) -> bool {
        let objects = self.objects();
        let put = self.write_next(object);
        if put {
            self.set_objects(objects + 1);
        }
        put
    }

    #[inline(always)]
    fn write_next(&mut self, object: NonNull<u8>) -> bool {
        let objects = self.objects();
        if objects >= self.queue {
            return false;
        }
        // SAFETY: objects < queue, so the entry is inside the block, which the slot's holder owns.
        unsafe { self.entry(objects).write(object) };
        true
    }

    /// The newest entry.
    #[inline(always)]
    pub(super) fn newest(&self) -> Option<NonNull<u8>> {
        let newest = self.objects().checked_sub(1)?;
        // SAFETY: I3 - newest < objects <= queue, and filled entries hold objects.
        Some(unsafe { self.entry(newest).read() })
    }

    /// The filled entries, oldest first.
    pub(super) fn filled(&self) -> &[NonNull<u8>] {
        if self.queue == 0 {
            return &[];
        }
        // SAFETY: I3 - this many entries of the block are filled; the borrow of `self` keeps
        // others from changing them.
        unsafe { core::slice::from_raw_parts(self.base, self.objects() as usize) }
    }

    /// The first `room` entries, filled or not, to be written before they are read.
    pub(super) fn room(&mut self, room: u32) -> &mut [core::mem::MaybeUninit<NonNull<u8>>] {
        let room = room.min(self.queue) as usize;
        if room == 0 {
            return &mut [];
        }
        // SAFETY: the block has `queue` entries; `MaybeUninit` asks for no initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.base.cast(), room) }
    }

    /// Removes the oldest entries.
    pub(super) fn forget_oldest(&mut self, n: u32) {
        let objects = self.objects();
        let n = n.min(objects);
        let rest = objects - n;
        if rest > 0 {
            // SAFETY: both ranges lie in the block, as n + rest = objects; `copy` allows the
            // overlap.
            unsafe { core::ptr::copy(self.entry(n), self.base, rest as usize) };
        }
        self.set_objects(rest);
    }

    /// Where the newest entry is, for accounting.
    #[inline(always)]
    pub(super) fn entry_address(&self) -> usize {
        self.entry(self.objects()).addr()
    }

    /// Takes up the configured memory. The queue must be empty.
    pub(super) fn adopt<M: Machine>(&mut self, config: &QueueConfig, cpu: CpuId) {
        let offset = (cpu.0 as usize) << M::PERCPU_SHIFT;
        self.base = config.entries.as_ptr().wrapping_byte_add(offset).cast();
        self.queue = config.queue;
        self.set_objects(0);
    }

    /// Lets go of the memory. The queue must be empty.
    pub(super) fn abandon(&mut self) {
        self.queue = 0;
        self.set_objects(0);
    }
}

/// Reserves entries for all CPUs.
pub(super) fn alloc_entries<M: Machine>(env: Env<'_, M>, queue: u32) -> Option<NonNull<u8>> {
    env.pages
        .percpu()
        .alloc(env.pages.machine(), queue as usize * size_of::<usize>())
}

/// Returns the entries of all CPUs.
///
/// # Safety
///
/// No CPU's queue uses them.
pub(super) unsafe fn free_entries<M: Machine>(env: Env<'_, M>, config: &QueueConfig) {
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
