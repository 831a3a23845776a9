//! The data structures of SLAB; the drawing is in the [module's documentation](super).

use core::mem::offset_of;
use core::ptr::NonNull;

use super::stats::Stat;
use crate::design::Env;
use crate::machine::{Line, LockClass, MAX_NODES, Machine, NodeId, PerCpu, PerCpuState, SpinLock};
use crate::page::PageList;
use crate::queue;
pub(super) use crate::queue::{QueueConfig, alloc_entries, free_entries};
use crate::slab::geometry::SlabEra;
use crate::slabs::Nodes;
use crate::stack::HasStack;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes in front of the entries of a shared array: what the kernel keeps of it there.
const SHARED_HEADER: usize = 16;
/// The same of an alien array, which has a lock besides.
const ALIEN_HEADER: usize = 24;

/// One CPU's queue.
pub(super) type CpuQueue = queue::CpuQueue<Stat>;

/// State of one cache.
pub struct Slab {
    pub(super) cpu: PerCpu<CpuArray>,
    /// Whether the machine has more than one node.
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
    /// Where the arrays of all CPUs are; each CPU copies it at its next slow operation.
    pub(super) config: SpinLock<QueueConfig>,
    pub(super) nodes: Nodes<Lists>,
    pub(super) beside: [Beside; MAX_NODES],
    pub(super) heap: HeapWide,
}

/// What all caches of a heap share: how many shrinks are under way. Meanwhile no arrays are made,
/// or the frees of a shrink would need new objects of the caches that are to be emptied.
pub struct Shrinks(AtomicU32);

impl Shrinks {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// Where that is.
pub(super) struct HeapWide(NonNull<Shrinks>);

// SAFETY: what it points to is atomic and outlives the caches (`Design::create`).
unsafe impl Send for HeapWide {}
// SAFETY: as above.
unsafe impl Sync for HeapWide {}

impl HeapWide {
    pub(super) fn new(shared: NonNull<Shrinks>) -> Self {
        Self(shared)
    }

    fn shrinks(&self) -> &AtomicU32 {
        // SAFETY: the heap keeps it longer than its caches (`Design::create`).
        &unsafe { self.0.as_ref() }.0
    }

    /// Runs a shrink.
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

impl CpuArray {
    fn allocs(&self) -> u64 {
        let stats = &self.queue.stats;
        stats.get(Stat::AllocFastpath) + stats.get(Stat::AllocSlowpath)
    }

    /// Whether objects were allocated through the array since [`CpuArray::clear_touched`].
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

/// What `list_lock` protects on a node.
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
    /// What the node's CPUs share.
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

    /// The list of slabs with so many objects taken out of `objects`.
    pub(super) fn of(&mut self, active: u32, objects: u32) -> &mut PageList {
        match active {
            0 => &mut self.free,
            active if active == objects => &mut self.full,
            _ => &mut self.partial,
        }
    }
}

/// What belongs to a node but not under its `list_lock`. The first two are copies of what is, for
/// a look without the lock.
pub(super) struct Beside {
    pub(super) free_objects: AtomicU64,
    pub(super) shared_avail: AtomicU32,
    /// Room of the shared array; 0 while there is none.
    pub(super) shared_limit: AtomicU32,
    /// Colour counter (`colour_next`).
    pub(super) colour_next: AtomicU32,
    /// 1 while somebody allocates an array for the node: it may need an object of this very cache.
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

    /// Runs `make` unless somebody does already.
    pub(super) fn make_once(&self, make: impl FnOnce()) {
        if self.making.swap(1, Ordering::Relaxed) == 0 {
            make();
            self.making.store(0, Ordering::Relaxed);
        }
    }
}

/// A shared or alien array: a stack of objects in an object of a general cache.
pub(super) struct Array {
    /// The general object; `None` without an array.
    object: Option<NonNull<u8>>,
    entries: *mut NonNull<u8>,
    /// Room for entries.
    pub(super) limit: u32,
    /// Filled entries.
    pub(super) avail: u32,
    /// It was used since the last reap of the node, as the era counts.
    pub(super) touched: bool,
}

// SAFETY: the entries are memory that only the holder of the array's lock uses.
unsafe impl Send for Array {}

impl Array {
    pub(super) const NONE: Self = Self {
        object: None,
        entries: core::ptr::null_mut(),
        limit: 0,
        avail: 0,
        touched: false,
    };

    /// A shared array for so many objects. `None` when memory is exhausted.
    pub(super) fn shared<M: Machine>(env: Env<'_, M>, limit: u32, node: NodeId) -> Option<Self> {
        Self::alloc(env, SHARED_HEADER, limit, node)
    }

    /// An alien array for so many objects. `None` when memory is exhausted.
    pub(super) fn alien<M: Machine>(env: Env<'_, M>, limit: u32, node: NodeId) -> Option<Self> {
        Self::alloc(env, ALIEN_HEADER, limit, node)
    }

    fn alloc<M: Machine>(env: Env<'_, M>, header: usize, limit: u32, node: NodeId) -> Option<Self> {
        let bytes = header + limit as usize * size_of::<usize>();
        let object = env.kmalloc(bytes, Some(node))?;
        // SAFETY: the object has header + 8 * limit bytes.
        let entries = unsafe { object.byte_add(header) };
        Some(Self {
            object: Some(object),
            entries: entries.cast().as_ptr(),
            limit,
            avail: 0,
            touched: false,
        })
    }

    /// Gives the array's memory back. It must be empty.
    pub(super) fn free<M: Machine>(self, env: Env<'_, M>) {
        debug_assert!(self.avail == 0, "{} objects would be lost", self.avail);
        if let Some(object) = self.object {
            // SAFETY: `alloc` got it from there, and taking `self` makes this its last use.
            unsafe { env.kfree(object) };
        }
    }

    /// Takes the array away if it is empty.
    pub(super) fn take_if_empty(&mut self) -> Self {
        if self.avail > 0 {
            return Self::NONE;
        }
        core::mem::replace(self, Self::NONE)
    }

    pub(super) fn is_none(&self) -> bool {
        self.object.is_none()
    }

    /// Entries that can still be filled.
    pub(super) fn room(&self) -> u32 {
        self.limit - self.avail
    }

    /// The filled entries, oldest first.
    pub(super) fn filled(&self) -> &[NonNull<u8>] {
        if self.avail == 0 {
            return &[];
        }
        // SAFETY: I3 - `avail` entries of the general object are filled.
        unsafe { core::slice::from_raw_parts(self.entries, self.avail as usize) }
    }

    /// The newest entries, in their order; at most `n`.
    pub(super) fn newest(&self, n: u32) -> &[NonNull<u8>] {
        let filled = self.filled();
        &filled[filled.len() - (n as usize).min(filled.len())..]
    }

    /// Adds as many objects as there is room for, and says how many.
    pub(super) fn push(&mut self, objects: &[NonNull<u8>]) -> u32 {
        let n = self.room().min(objects.len() as u32);
        if n > 0 {
            let end = self.entries.wrapping_add(self.avail as usize);
            // SAFETY: the general object has room for `limit` entries, and avail + n are not
            // more; the objects' slice is not part of it, as it is borrowed.
            unsafe { core::ptr::copy_nonoverlapping(objects.as_ptr(), end, n as usize) };
            self.avail += n;
        }
        n
    }

    /// Removes the newest entries.
    pub(super) fn forget_newest(&mut self, n: u32) {
        self.avail -= n.min(self.avail);
    }

    /// Removes the oldest entries.
    pub(super) fn forget_oldest(&mut self, n: u32) {
        let n = n.min(self.avail);
        self.avail -= n;
        if n > 0 && self.avail > 0 {
            let from = self.entries.wrapping_add(n as usize);
            // SAFETY: both ranges lie in the filled entries, as n + avail were filled; `copy`
            // allows the overlap.
            unsafe { core::ptr::copy(from, self.entries, self.avail as usize) };
        }
    }
}
