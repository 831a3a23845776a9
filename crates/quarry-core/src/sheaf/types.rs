//! The data structures of sheaves; the drawing is in the [module's documentation](super).

use core::mem::offset_of;
use core::ptr::NonNull;

use super::geometry::{HEADER_BYTES, RunRules, sheaf_bytes};
use super::stats::{Stat, Stats};
use crate::design::Env;
use crate::machine::{
    Access, Line, MAX_NODES, Machine, NodeId, PerCpu, PerCpuState, SpinLock, StackLayout, access,
};
use crate::queue::{pop_run, push_run};
use crate::slub::Slub;
use crate::stats::Counter as _;
use crate::sync::AtomicU32;

/// State of one cache.
pub struct Sheaf {
    pub(super) cpu: PerCpu<CpuSheaves>,
    /// The slabs, and the nodes' lists of them; in 6.18 with CPU slabs.
    pub(super) slub: Slub,
    pub(super) rules: &'static RunRules,
    /// Whether the machine has one node, so that no object is remote.
    pub(super) one_node: bool,
    /// Objects of a new sheaf (`sheaf_capacity`); 0 while the cache has no sheaves.
    pub(super) capacity: AtomicU32,
    /// Full sheaves that a barn keeps.
    pub(super) barn_full: AtomicU32,
    /// Empty sheaves that a barn keeps.
    pub(super) barn_empty: AtomicU32,
    /// Sheaves in barns that wait for readers.
    pub(super) waiting: AtomicU32,
    pub(super) barns: [SpinLock<Barn>; MAX_NODES],
}

/// Head of a sheaf in its kmalloc object (`struct slab_sheaf`); the pointers follow it.
#[repr(C)]
struct SlabSheaf {
    /// Next sheaf in a stack of a barn.
    next: Option<SheafBox>,
    /// While the sheaf waits for readers: the grace period, as the machine names it.
    cookie: u64,
    /// Filled entries; of a main sheaf the CPU's top knows better.
    size: u32,
    /// Room for entries.
    capacity: u32,
    /// The node in whose barn the sheaf belongs when its grace period is over.
    node: u32,
    /// Whether its objects go to their slabs then, and it is freed.
    dissolve: bool,
    /// Whether it was made larger than sheaves of its cache then were, for one prefill.
    oversize: bool,
    _pad: u16,
}

const _: () = assert!(size_of::<SlabSheaf>() == HEADER_BYTES as usize);

/// A sheaf that the holder of this value owns (I3). It is not freed when dropped but must be put
/// somewhere.
#[repr(transparent)]
#[must_use]
pub(crate) struct SheafBox(NonNull<SlabSheaf>);

// SAFETY: a sheaf is memory that only the holder of its box uses (I3), and its entries name
// objects that the allocator owns (I1).
unsafe impl Send for SheafBox {}

impl SheafBox {
    /// A new, empty sheaf in a block of memory.
    ///
    /// # Safety
    ///
    /// The block is word-aligned, has [`sheaf_bytes`] of the capacity, and is the caller's.
    pub(super) unsafe fn new(block: NonNull<u8>, capacity: u32) -> Self {
        let head = block.cast::<SlabSheaf>();
        let sheaf = SlabSheaf {
            next: None,
            cookie: 0,
            size: 0,
            capacity,
            node: 0,
            dissolve: false,
            oversize: false,
            _pad: 0,
        };
        // SAFETY: the caller's contract: the block is large enough, aligned, and the caller's.
        unsafe { head.write(sheaf) };
        Self(head)
    }

    /// The block that the sheaf lies in.
    pub(super) fn into_block(self) -> NonNull<u8> {
        self.0.cast()
    }

    fn head(&self) -> &SlabSheaf {
        // SAFETY: I3 - the box owns an initialised sheaf (`new`).
        unsafe { self.0.as_ref() }
    }

    fn head_mut(&mut self) -> &mut SlabSheaf {
        // SAFETY: as in `head`, and the box is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    pub(crate) fn size(&self) -> u32 {
        self.head().size
    }

    pub(super) fn capacity(&self) -> u32 {
        self.head().capacity
    }

    pub(super) fn set_size(&mut self, size: u32) {
        debug_assert!(size <= self.capacity());
        self.head_mut().size = size;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.size() >= self.capacity()
    }

    /// Entry 0.
    fn base(&self) -> *mut NonNull<u8> {
        let offset = HEADER_BYTES as usize;
        self.0.as_ptr().wrapping_byte_add(offset).cast()
    }

    /// The filled entries, oldest first.
    pub(super) fn objects(&self) -> &[NonNull<u8>] {
        // SAFETY: I3 - the first `size` entries are filled; the box is borrowed.
        unsafe { core::slice::from_raw_parts(self.base(), self.size() as usize) }
    }

    /// The room above the filled entries, cleared.
    pub(super) fn room(&mut self) -> &mut [Option<NonNull<u8>>] {
        let (size, room) = (self.size(), self.capacity() - self.size());
        let first = self.base().wrapping_add(size as usize);
        // SAFETY: I3 - `capacity` entries follow the head, of which `room` lie from here on; a
        // pointer of all zero is `None`.
        unsafe { first.write_bytes(0, room as usize) };
        // SAFETY: as above, now initialised; the box is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(first.cast(), room as usize) }
    }

    /// Takes the newest objects out, at most so many, to be read before the sheaf is used again.
    pub(super) fn take_newest(&mut self, most: usize) -> &mut [Option<NonNull<u8>>] {
        let taken = most.min(self.size() as usize);
        let size = self.size() - taken as u32;
        self.set_size(size);
        let first = self.base().wrapping_add(size as usize);
        // SAFETY: I3 - these entries are filled, and a pointer that is not null is `Some` of it;
        // the box is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(first.cast(), taken) }
    }

    /// Adds an object; `false` if there is no room.
    pub(super) fn push(&mut self, object: NonNull<u8>) -> bool {
        if self.is_full() {
            return false;
        }
        let size = self.size();
        // SAFETY: I3 - size < capacity, so the entry lies in the sheaf.
        unsafe { self.base().wrapping_add(size as usize).write(object) };
        self.set_size(size + 1);
        true
    }

    /// Notes what the sheaf waits for, and in whose barn it belongs then unless it is to be dissolved.
    pub(super) fn wait_for(&mut self, cookie: u64, node: NodeId, dissolve: bool) {
        let head = self.head_mut();
        (head.cookie, head.node, head.dissolve) = (cookie, node.0, dissolve);
    }

    /// Whether the sheaf is to be dissolved after waiting.
    pub(super) fn is_to_dissolve(&self) -> bool {
        self.head().dissolve
    }

    /// Whether the sheaf was made for one prefill.
    pub(super) fn is_oversize(&self) -> bool {
        self.head().oversize
    }

    /// Notes that the sheaf was made for one prefill.
    pub(super) fn set_oversize(&mut self) {
        self.head_mut().oversize = true;
    }

    /// The grace period waited for.
    pub(super) fn cookie(&self) -> u64 {
        self.head().cookie
    }

    /// The node in whose barn the sheaf belongs after waiting.
    pub(super) fn node(&self) -> NodeId {
        NodeId(self.head().node)
    }

    /// Bytes of the block.
    pub(super) fn bytes(capacity: u32) -> usize {
        sheaf_bytes(capacity) as usize
    }
}

/// Sheaves linked through their heads, last in first out. All-zero is the empty stack.
pub(super) struct Stack {
    top: Option<SheafBox>,
    count: u32,
}

impl Stack {
    pub(super) const EMPTY: Self = Self {
        top: None,
        count: 0,
    };

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn push(&mut self, mut sheaf: SheafBox) {
        sheaf.head_mut().next = self.top.take();
        self.top = Some(sheaf);
        self.count += 1;
    }

    pub(super) fn pop(&mut self) -> Option<SheafBox> {
        let mut sheaf = self.top.take()?;
        self.top = sheaf.head_mut().next.take();
        self.count -= 1;
        Some(sheaf)
    }

    /// The sheaves from the newest on.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SheafBox> {
        core::iter::successors(self.top.as_ref(), |sheaf| sheaf.head().next.as_ref())
    }

    /// Takes all sheaves.
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

/// A node's stock of sheaves, behind its lock (`struct node_barn`).
pub(super) struct Barn {
    /// Sheaves with objects; all but those that came from elsewhere are full.
    pub(super) full: Stack,
    /// Sheaves without.
    pub(super) empty: Stack,
    /// Sheaves of deferred frees that wait for readers; the newest waits longest.
    pub(super) waiting: Stack,
}

impl Barn {
    pub(super) const EMPTY: Self = Self {
        full: Stack::EMPTY,
        empty: Stack::EMPTY,
        waiting: Stack::EMPTY,
    };
}

impl PerCpuState for CpuSheaves {
    const LINE: Line = Line::CpuState;
}

/// One CPU's sheaves, behind its slot (`struct slub_percpu_sheaves`). All-zero is a CPU without
/// any, which the first slow operation changes. The fields that fast operations use share the lock
/// word's cache line.
#[repr(C)]
pub(crate) struct CpuSheaves {
    /// The entry of the main sheaf above its newest.
    top: *mut NonNull<u8>,
    /// Entry 0 of the main sheaf; null if there is none.
    base: *mut NonNull<u8>,
    /// Behind its last entry.
    limit: *mut NonNull<u8>,
    pub(super) stats: Stats,
    /// The sheaf that fast operations work on.
    main: Option<SheafBox>,
    /// A second one, to swap with it.
    pub(super) spare: Option<SheafBox>,
    /// Objects whose free is deferred (`rcu_free`).
    pub(super) rcu: Option<SheafBox>,
}

// SAFETY: `top` and its bounds point into the main sheaf, which the holder of the slot owns.
unsafe impl Send for CpuSheaves {}

impl StackLayout for CpuSheaves {
    const TOP: usize = PerCpu::<Self>::STATE + offset_of!(Self, top);
    const BASE: usize = PerCpu::<Self>::STATE + offset_of!(Self, base);
    const LIMIT: usize = PerCpu::<Self>::STATE + offset_of!(Self, limit);
    const POPS: usize = PerCpu::<Self>::STATE + offset_of!(Self, stats) + Stat::POPS;
    const PUSHES: usize = PerCpu::<Self>::STATE + offset_of!(Self, stats) + Stat::PUSHES;
}

impl CpuSheaves {
    /// Objects in the main sheaf.
    #[inline(always)]
    pub(super) fn objects(&self) -> u32 {
        let bytes = self.top.addr() - self.base.addr();
        (bytes / size_of::<NonNull<u8>>()) as u32
    }

    /// Room for objects in the main sheaf.
    pub(super) fn room(&self) -> u32 {
        self.main.as_ref().map_or(0, SheafBox::capacity)
    }

    /// The objects in the main sheaf, oldest first.
    pub(super) fn filled(&self) -> &[NonNull<u8>] {
        if self.is_empty() {
            return &[];
        }
        // SAFETY: I3 - the entries of the main sheaf from base to top are filled.
        unsafe { core::slice::from_raw_parts(self.base, self.objects() as usize) }
    }

    pub(super) fn has_main(&self) -> bool {
        self.main.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.top == self.base
    }

    /// Puts a sheaf, or none, in the place of the main one, which is returned.
    pub(super) fn replace_main(&mut self, new: Option<SheafBox>) -> Option<SheafBox> {
        let objects = self.objects();
        let mut old = core::mem::replace(&mut self.main, new);
        if let Some(old) = &mut old {
            old.set_size(objects);
        }
        self.load();
        old
    }

    /// Takes the bounds of fast operations from the main sheaf.
    fn load(&mut self) {
        let (size, capacity, base) = match &self.main {
            Some(main) => (main.size(), main.capacity(), main.base()),
            None => (0, 0, core::ptr::null_mut()),
        };
        self.base = base;
        self.top = base.wrapping_add(size as usize);
        self.limit = base.wrapping_add(capacity as usize);
    }

    /// Takes the newest object; a fast allocation.
    #[inline(always)]
    pub(super) fn pop<M: Machine>(&mut self, machine: &M) -> Option<NonNull<u8>> {
        let newest = self.newest()?;
        self.top = self.top.wrapping_sub(1);
        access(machine, Line::CpuQueue, Access::Read, self.top);
        self.stats.count(Stat::AllocFastpath);
        Some(newest)
    }

    /// Adds an object, a fast free; `false` if there is no room.
    #[inline(always)]
    pub(super) fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        if self.top == self.limit {
            return false;
        }
        access(machine, Line::CpuQueue, Access::Write, self.top);
        // SAFETY: I3 - below the limit, so the entry lies in the main sheaf.
        unsafe { self.top.write(object) };
        self.top = self.top.wrapping_add(1);
        self.stats.count(Stat::FreeFastpath);
        true
    }

    /// Adds the objects of slots from the first on to the main sheaf, as
    /// [`CpuQueue::push_many`](crate::queue::CpuQueue::push_many) does.
    #[inline(always)]
    pub(super) fn push_many<M: Machine>(
        &mut self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let newest = self.newest();
        // SAFETY: I3 - top and limit are those of the main sheaf.
        let pushed = unsafe { push_run(env, newest, self.top, self.limit, slots) };
        self.top = self.top.wrapping_add(pushed);
        self.stats.count_by(Stat::FreeFastpath, pushed as u64);
        pushed
    }

    /// Takes up to as many objects as there are slots, newest first; fast allocations.
    #[inline(always)]
    pub(super) fn pop_many<M: Machine>(
        &mut self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        // SAFETY: I3 - the entries of the main sheaf from base to top are filled.
        let popped = unsafe { pop_run(env, self.base, self.top, slots) };
        self.top = self.top.wrapping_sub(popped);
        self.stats.count_by(Stat::AllocFastpath, popped as u64);
        popped
    }

    /// The newest object.
    #[inline(always)]
    pub(super) fn newest(&self) -> Option<NonNull<u8>> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: I3 - the entry below the top is filled.
        Some(unsafe { self.top.wrapping_sub(1).read() })
    }
}
