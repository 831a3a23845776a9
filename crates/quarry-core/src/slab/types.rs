//! The data structures of SLAB; the drawing is in the [module's documentation](super).

use core::mem::offset_of;
use core::ptr::NonNull;

use super::stats::{Stat, Stats};
pub(super) use crate::array::Array;
use crate::design::Env;
use crate::machine::{Line, LockClass, MAX_NODES, Machine, NodeId, PerCpu, PerCpuState, SpinLock};
use crate::page::PageList;
use crate::queue::{self, CpuStack};
pub(super) use crate::queue::{QueueConfig, alloc_entries, free_entries};
use crate::slab::geometry::SlabEra;
use crate::slabs::Nodes;
use crate::stack::{HasStack, Stack};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes in front of the entries of a shared array: what the kernel keeps of it there.
const SHARED_HEADER: usize = 16;
/// The same of an alien array, which has a lock besides.
const ALIEN_HEADER: usize = 24;

pub(super) type CpuQueue = queue::CpuQueue<Stat>;

/// State of one cache.
pub struct SlabCache {
    pub(super) cpu: PerCpu<CpuArray>,
    /// True if the machine has more than one node.
    pub(super) numa: bool,
    /// Bytes of one index of a slab.
    pub(super) index_bytes: u32,
    /// Distance in bytes from one object to the next.
    pub(super) size: usize,
    pub(super) era: &'static SlabEra,
    /// Objects moved per refill or flush (`batchcount`).
    pub(super) batch: AtomicU32,
    /// Entries per CPU as last configured (`limit`); [`QueueConfig`] decides.
    pub(super) limit: AtomicU32,
    /// Room of a shared array in batches (`sharedfactor`).
    pub(super) shared_factor: AtomicU32,
    /// Memory and limits of all CPUs' arrays; each CPU copies them at its next slow operation.
    pub(super) config: SpinLock<QueueConfig>,
    pub(super) nodes: Nodes<Lists>,
    pub(super) beside: [Beside; MAX_NODES],
    pub(super) heap: HeapWide,
}

/// State that all caches of a heap share: the number of shrinks under way. Meanwhile no arrays are made,
/// or the frees of a shrink would need new objects of the caches that are to be emptied.
pub struct Shrinks(AtomicU32);

impl Shrinks {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// Address of the heap's [`Shrinks`].
pub(super) struct HeapWide(NonNull<Shrinks>);

// SAFETY: what it points to is atomic and outlives the caches (`Design::create`).
unsafe impl Send for HeapWide {}
// SAFETY: as for `Send`: its target is atomic.
unsafe impl Sync for HeapWide {}

impl HeapWide {
    pub(super) fn new(shared: NonNull<Shrinks>) -> Self {
        Self(shared)
    }

    fn shrinks(&self) -> &AtomicU32 {
        // SAFETY: the heap keeps it longer than its caches (`Design::create`).
        &unsafe { self.0.as_ref() }.0
    }

    pub(super) fn shrink<R>(&self, shrink: impl FnOnce() -> R) -> R {
        self.shrinks().fetch_add(1, Ordering::Relaxed);
        let result = shrink();
        self.shrinks().fetch_sub(1, Ordering::Relaxed);
        result
    }

    pub(super) fn shrinking(&self) -> bool {
        self.shrinks().load(Ordering::Relaxed) > 0
    }
}

impl PerCpuState for CpuArray {
    const LINE: Line = Line::CpuState;
}

/// One CPU's array, behind its slot. All-zero is an empty array without room.
#[repr(C)]
pub(crate) struct CpuArray {
    pub(super) queue: CpuQueue,
    /// Allocations of this CPU when `touched` was last cleared: fast operations count themselves
    /// anyway, so they need not set a flag.
    untouched_at: u64,
    /// The node whose alien array is drained by the next reap, counted from this CPU's.
    pub(super) reap_node: u32,
}

impl HasStack for CpuArray {
    const ENDS: usize = offset_of!(Self, queue) + CpuQueue::ENDS;
    const POPS: usize = offset_of!(Self, queue) + CpuQueue::POPS;
    const PUSHES: usize = offset_of!(Self, queue) + CpuQueue::PUSHES;
}

impl CpuStack for CpuArray {
    type Counter = Stat;

    #[inline(always)]
    fn stack_and_stats(&mut self) -> (&mut Stack, &mut Stats) {
        self.queue.stack_and_stats()
    }
}

impl CpuArray {
    fn allocs(&self) -> u64 {
        let stats = &self.queue.stats;
        stats.get(Stat::AllocFastpath) + stats.get(Stat::AllocSlowpath)
    }

    /// True if objects were allocated through the array since [`CpuArray::clear_touched`].
    pub(super) fn touched(&self) -> bool {
        self.allocs() != self.untouched_at
    }

    pub(super) fn clear_touched(&mut self) {
        self.untouched_at = self.allocs();
    }

    /// Counts a slow allocation that did not use the array.
    pub(super) fn count_past_array(&mut self) {
        self.queue.stats.count(Stat::AllocSlowpath);
        self.untouched_at += 1;
    }
}

/// State of a node under its `list_lock`.
pub(super) struct Lists {
    pub(super) partial: PageList,
    pub(super) full: PageList,
    pub(super) free: PageList,
    /// Objects that the slabs of the three lists could still hand out.
    pub(super) free_objects: u64,
    /// More of them give empty slabs back.
    pub(super) free_limit: u64,
    /// The free list was used since the last reap of the node.
    pub(super) free_touched: bool,
    /// When the node is reaped next; `None` until the first look.
    pub(super) next_reap_ns: Option<u64>,
    /// Array that the node's CPUs share.
    pub(super) shared: Array,
}

impl Lists {
    /// The lists of a new cache.
    pub(super) const fn new(free_limit: u64) -> Self {
        Self {
            partial: PageList::EMPTY,
            full: PageList::EMPTY,
            free: PageList::EMPTY,
            free_objects: 0,
            free_limit,
            free_touched: false,
            next_reap_ns: None,
            shared: Array::NONE,
        }
    }

    /// The list of slabs with `active` objects taken out of `objects`.
    pub(super) fn of(&mut self, active: u32, objects: u32) -> &mut PageList {
        match active {
            0 => &mut self.free,
            active if active == objects => &mut self.full,
            _ => &mut self.partial,
        }
    }
}

/// State of a node that is not under its `list_lock`. The first two fields are copies of fields that are, for
/// a look without the lock.
pub(super) struct Beside {
    pub(super) free_objects: AtomicU64,
    pub(super) shared_avail: AtomicU32,
    /// Room of the shared array; 0 while there is none.
    pub(super) shared_limit: AtomicU32,
    /// Colour counter (`colour_next`).
    pub(super) colour_next: AtomicU32,
    /// 1 while a thread allocates an array for the node: it may need an object of this very cache.
    making: AtomicU32,
    /// Objects of other nodes, by node, that CPUs of this one freed.
    pub(super) aliens: [SpinLock<Array>; MAX_NODES],
    /// Bit n: there is an array for node n. Changed under that array's lock.
    alien_bits: AtomicU32,
}

impl Beside {
    pub(super) fn new() -> Self {
        Self {
            free_objects: AtomicU64::new(0),
            shared_avail: AtomicU32::new(0),
            shared_limit: AtomicU32::new(0),
            colour_next: AtomicU32::new(0),
            making: AtomicU32::new(0),
            aliens: core::array::from_fn(|_| SpinLock::new(LockClass::Alien, Array::NONE)),
            alien_bits: AtomicU32::new(0),
        }
    }

    pub(super) fn has_alien(&self, node: NodeId) -> bool {
        self.alien_bits.load(Ordering::Relaxed) >> node.0 & 1 != 0
    }

    pub(super) fn set_has_alien(&self, node: NodeId, has: bool) {
        if has {
            self.alien_bits.fetch_or(1 << node.0, Ordering::Relaxed);
        } else {
            self.alien_bits.fetch_and(!(1 << node.0), Ordering::Relaxed);
        }
    }

    /// Runs `make`, unless another thread or an earlier call on this one runs it already.
    pub(super) fn make_once(&self, make: impl FnOnce()) {
        if self.making.swap(1, Ordering::Relaxed) == 0 {
            make();
            self.making.store(0, Ordering::Relaxed);
        }
    }
}

/// A shared array of `limit` objects, in an object of a general cache. `None` when memory is exhausted.
pub(super) fn new_shared<M: Machine>(env: Env<'_, M>, limit: u32, node: NodeId) -> Option<Array> {
    new_array(env, SHARED_HEADER, limit, node)
}

/// An alien array of `limit` objects. `None` when memory is exhausted.
pub(super) fn new_alien<M: Machine>(env: Env<'_, M>, limit: u32, node: NodeId) -> Option<Array> {
    new_array(env, ALIEN_HEADER, limit, node)
}

fn new_array<M: Machine>(
    env: Env<'_, M>,
    header: usize,
    limit: u32,
    node: NodeId,
) -> Option<Array> {
    let object =
        env.kmalloc::<SlabCache>(header + limit as usize * size_of::<usize>(), Some(node))?;
    // SAFETY: the object has this many bytes and is this array's until `free_array`.
    Some(unsafe { Array::new(object, header, limit) })
}

/// Gives an empty array's memory back.
pub(super) fn free_array<M: Machine>(env: Env<'_, M>, array: Array) {
    if let Some(object) = array.into_block() {
        // SAFETY: `new_array` got it from there, and the array is gone.
        unsafe { env.kfree::<SlabCache>(object) };
    }
}
