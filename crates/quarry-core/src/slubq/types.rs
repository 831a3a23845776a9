//! The data structures of SLUB+Queuing; the drawing is in the [module's documentation](super).

use core::ptr::NonNull;

use crate::design::Env;
use crate::machine::{CpuId, LockClass, MAX_NODES, Machine, PerCpu, SpinLock};
use crate::page::PageList;
use crate::stats::Stats;
use crate::sync::{AtomicU32, AtomicU64};

/// State of one cache.
pub struct Slubq {
    pub(super) cpu: PerCpu<CpuQueue>,
    /// Distance in bytes from one object to the next.
    pub(super) size: usize,
    /// Objects moved per refill or drain (`cpu_batch_size`).
    pub(super) batch: AtomicU32,
    /// Entries per CPU as last configured (`cpu_queue_size`); [`QueueConfig`] decides.
    pub(super) queue: AtomicU32,
    pub(super) min_partial: AtomicU32,
    /// Where the queues of all CPUs are; each CPU copies it at its next slow operation.
    pub(super) config: SpinLock<QueueConfig>,
    pub(super) nodes: [Node; MAX_NODES],
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
pub(super) struct CpuQueue {
    /// Filled entries.
    pub(super) objects: u32,
    /// Room for entries.
    pub(super) queue: u32,
    /// The entries; dangling while `queue` is 0.
    entries: *mut NonNull<u8>,
    pub(super) stats: Stats,
}

// SAFETY: the entries are memory that only the holder of the slot uses, and name objects that the
// allocator owns (I3).
unsafe impl Send for CpuQueue {}

impl CpuQueue {
    /// Takes the newest entry.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let newest = self.objects.checked_sub(1)?;
        self.objects = newest;
        // SAFETY: `newest` < objects <= queue, so the entry is inside the block.
        let entry = unsafe { self.entries.add(newest as usize) };
        // SAFETY: I3 - filled entries hold objects.
        Some(unsafe { entry.read() })
    }

    /// Adds an entry; `false` if there is no room.
    #[inline(always)]
    pub(super) fn push(&mut self, object: NonNull<u8>) -> bool {
        if self.objects >= self.queue {
            return false;
        }
        // SAFETY: objects < queue, so the entry is inside the block.
        let entry = unsafe { self.entries.add(self.objects as usize) };
        // SAFETY: the slot's holder owns the block.
        unsafe { entry.write(object) };
        self.objects += 1;
        true
    }

    /// The newest entry.
    #[inline(always)]
    pub(super) fn newest(&self) -> Option<NonNull<u8>> {
        self.filled().last().copied()
    }

    /// The filled entries, oldest first.
    #[inline(always)]
    pub(super) fn filled(&self) -> &[NonNull<u8>] {
        if self.queue == 0 {
            return &[];
        }
        // SAFETY: I3 - `objects` entries of the block are filled; the borrow of `self` keeps
        // others from changing them.
        unsafe { core::slice::from_raw_parts(self.entries, self.objects as usize) }
    }

    /// The first `room` entries, filled or not, to be written before they are read.
    pub(super) fn room(&mut self, room: u32) -> &mut [core::mem::MaybeUninit<NonNull<u8>>] {
        let room = room.min(self.queue) as usize;
        if room == 0 {
            return &mut [];
        }
        // SAFETY: the block has `queue` entries; `MaybeUninit` asks for no initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.entries.cast(), room) }
    }

    /// Removes the oldest entries.
    pub(super) fn forget_oldest(&mut self, n: u32) {
        let n = n.min(self.objects);
        let rest = (self.objects - n) as usize;
        if rest > 0 {
            // SAFETY: n + rest = objects, all inside the block.
            let from = unsafe { self.entries.add(n as usize) };
            // SAFETY: both ranges lie in the block; `copy` allows the overlap.
            unsafe { core::ptr::copy(from, self.entries, rest) };
        }
        self.objects = rest as u32;
    }

    /// Where the newest entry is, for accounting.
    #[inline(always)]
    pub(super) fn entry_address(&self) -> usize {
        self.entries.addr() + self.objects as usize * size_of::<usize>()
    }

    /// Takes up the configured memory. The queue must be empty.
    pub(super) fn adopt<M: Machine>(&mut self, config: &QueueConfig, cpu: CpuId) {
        let offset = (cpu.0 as usize) << M::PERCPU_SHIFT;
        self.entries = config.entries.as_ptr().wrapping_byte_add(offset).cast();
        self.queue = config.queue;
    }

    /// Lets go of the memory. The queue must be empty.
    pub(super) fn abandon(&mut self) {
        self.queue = 0;
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

/// One node's part.
#[repr(align(64))]
pub(super) struct Node {
    /// The partial list behind `list_lock`.
    pub(super) partial: SpinLock<PageList>,
    /// Slabs of the cache on this node.
    pub(super) nr_slabs: AtomicU64,
    /// Objects that those slabs could hold.
    pub(super) total_objects: AtomicU64,
}

impl Node {
    pub(super) fn new() -> Self {
        Self {
            partial: SpinLock::new(LockClass::NodeList, PageList::EMPTY),
            nr_slabs: AtomicU64::new(0),
            total_objects: AtomicU64::new(0),
        }
    }
}
