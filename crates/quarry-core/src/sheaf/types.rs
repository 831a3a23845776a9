//! The data structures of sheaves; the drawing is in the [module's documentation](super).

use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;

use super::geometry::{HEADER_BYTES, RunRules, Sizing, sheaf_bytes};
use super::size::Setting;
use super::stats::{Stat, Stats};
use crate::machine::{
    Access, Line, MAX_NODES, Machine, NodeId, PerCpu, PerCpuState, SpinLock, access,
};
use crate::queue::CpuStack;
use crate::slub::Slub;
use crate::stack::{HasStack, Stack};
use crate::stats::Counter as _;
use crate::sync::{AtomicU32, AtomicU64};

/// State of one cache.
pub struct Sheaves<K> {
    pub(super) cpu: PerCpu<CpuSheaves>,
    /// The slabs, and the nodes' lists of them; in 6.18 with CPU slabs.
    pub(super) slub: Slub,
    pub(super) rules: &'static RunRules,
    /// True if the machine has one node, so that no object is remote.
    pub(super) one_node: bool,
    /// Objects of a new sheaf (`sheaf_capacity`); 0 while the cache has no sheaves.
    pub(super) capacity: Setting,
    /// Misses that the capacity follows.
    pub(super) sizes: Sizes,
    /// Full sheaves that a barn keeps.
    pub(super) barn_full: Setting,
    /// Empty sheaves that a barn keeps.
    pub(super) barn_empty: AtomicU32,
    /// Sheaves in barns that wait for readers.
    pub(super) waiting: AtomicU32,
    pub(super) barns: [SpinLock<Barn>; MAX_NODES],
    pub(super) kind: PhantomData<fn() -> K>,
}

/// State of a cache's capacity that follows misses ([`Capacity::Misses`](super::geometry::Capacity::Misses)).
// On lines of their own: each miss of any CPU writes here, and fast paths read what is beside.
#[repr(align(64))]
pub(super) struct Sizes {
    /// `None` if the capacity does not follow misses.
    pub(super) rules: Option<&'static Sizing>,
    /// Trips of CPUs to the barns or the slabs, so far.
    pub(super) misses: AtomicU32,
    /// The same at the last look.
    pub(super) misses_seen: AtomicU32,
    /// Time of the last look, in nanoseconds.
    pub(super) looked_ns: AtomicU64,
}

/// Head of a sheaf in its kmalloc object (`struct slab_sheaf`); the pointers follow it.
#[repr(C)]
struct SlabSheaf {
    /// Next sheaf in a stack of a barn.
    next: Option<Sheaf>,
    /// While the sheaf waits for readers: the grace period, as the machine names it.
    cookie: u64,
    /// Filled entries; of a main sheaf the CPU's top knows better.
    size: u32,
    /// Room for entries.
    capacity: u32,
    /// The node in whose barn the sheaf belongs when its grace period is over.
    node: u32,
    /// True if its objects go to their slabs then, and it is freed.
    dissolve: bool,
    _pad: [u8; 3],
}

const _: () = assert!(size_of::<SlabSheaf>() == HEADER_BYTES as usize);

/// A sheaf that the holder of this value owns (I3). It is not freed when dropped but must be put
/// somewhere.
#[repr(transparent)]
#[must_use]
pub(super) struct Sheaf(NonNull<SlabSheaf>);

// SAFETY: a sheaf is memory that only the holder of its box uses (I3), and its entries name
// objects that the allocator owns (I1).
unsafe impl Send for Sheaf {}

impl Sheaf {
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
            _pad: [0; 3],
        };
        // SAFETY: the block is large enough, aligned, and the caller's: the caller says so.
        unsafe { head.write(sheaf) };
        Self(head)
    }

    /// The block of the sheaf.
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

    pub(super) fn size(&self) -> u32 {
        self.head().size
    }

    pub(super) fn capacity(&self) -> u32 {
        self.head().capacity
    }

    fn set_size(&mut self, size: u32) {
        debug_assert!(size <= self.capacity());
        self.head_mut().size = size;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.size() >= self.capacity()
    }

    fn base(&self) -> NonNull<NonNull<u8>> {
        // SAFETY: the entries follow the head in the sheaf's block (`new`).
        unsafe { self.0.byte_add(HEADER_BYTES as usize) }.cast()
    }

    /// The entries as a stack, filled as the head says. While it is used the box is kept, and
    /// nothing else works on the entries.
    fn stack(&self) -> Stack {
        // SAFETY: I3 - `capacity` entries are there, the first `size` of them are filled, and they are
        // this box's. Those who call this (`with`, `CpuSheaves`) use nothing but the stack.
        unsafe { Stack::new(self.base(), self.size(), self.capacity()) }
    }

    /// Accounts the head, which changes.
    fn account<M: Machine>(&self, machine: &M) {
        access(machine, Line::CpuQueue, Access::Write, self.0.as_ptr());
    }

    fn with<M: Machine, R>(&mut self, machine: &M, f: impl FnOnce(&mut Stack) -> R) -> R {
        self.account(machine);
        let mut stack = self.stack();
        let result = f(&mut stack);
        self.set_size(stack.objects());
        result
    }

    /// The filled entries, oldest first, for checks.
    pub(super) fn objects(&self) -> &[NonNull<u8>] {
        // SAFETY: I3 - the first `size` entries are filled; the box is borrowed.
        unsafe { core::slice::from_raw_parts(self.base().as_ptr(), self.size() as usize) }
    }

    /// Adds an object; `false` if there is no room.
    pub(super) fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        self.with(machine, |stack| stack.push(machine, object))
    }

    /// Takes the newest objects, at most `most`, and hands them out.
    pub(super) fn take<M: Machine>(
        &mut self,
        machine: &M,
        most: usize,
        give: impl FnOnce(&mut [Option<NonNull<u8>>]),
    ) {
        self.with(machine, |stack| give(stack.take_newest(machine, most)));
    }

    /// Lets `put` fill the empty slots that stand for the room above the objects, from the first on.
    /// Returns how many it filled.
    pub(super) fn fill<M: Machine>(
        &mut self,
        machine: &M,
        put: impl FnOnce(&mut [Option<NonNull<u8>>]),
    ) -> u32 {
        self.with(machine, |stack| stack.fill(machine, put))
    }

    /// Notes what the sheaf waits for, and in whose barn it belongs then unless it is to be dissolved.
    pub(super) fn wait_for(&mut self, cookie: u64, node: NodeId, dissolve: bool) {
        let head = self.head_mut();
        (head.cookie, head.node, head.dissolve) = (cookie, node.0, dissolve);
    }

    /// True if the sheaf is to be dissolved after waiting.
    pub(super) fn is_to_dissolve(&self) -> bool {
        self.head().dissolve
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
pub(super) struct SheafList {
    top: Option<Sheaf>,
    count: u32,
}

impl SheafList {
    pub(super) const EMPTY: Self = Self {
        top: None,
        count: 0,
    };

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn push<M: Machine>(&mut self, machine: &M, mut sheaf: Sheaf) {
        sheaf.account(machine);
        sheaf.head_mut().next = self.top.take();
        self.top = Some(sheaf);
        self.count += 1;
    }

    pub(super) fn pop<M: Machine>(&mut self, machine: &M) -> Option<Sheaf> {
        let mut sheaf = self.top.take()?;
        sheaf.account(machine);
        self.top = sheaf.head_mut().next.take();
        self.count -= 1;
        Some(sheaf)
    }

    /// The sheaves from the newest on.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sheaf> {
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
    pub(super) full: SheafList,
    /// Sheaves without.
    pub(super) empty: SheafList,
    /// Sheaves of deferred frees that wait for readers; the newest waits longest.
    pub(super) waiting: SheafList,
    /// Grace period of the one that has waited longest.
    pub(super) first_cookie: u64,
}

impl Barn {
    pub(super) const EMPTY: Self = Self {
        full: SheafList::EMPTY,
        empty: SheafList::EMPTY,
        waiting: SheafList::EMPTY,
        first_cookie: 0,
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
    /// The entries of the main sheaf.
    pub(super) stack: Stack,
    pub(super) stats: Stats,
    /// The sheaf that fast operations work on.
    main: Option<Sheaf>,
    /// A second one, to swap with it.
    pub(super) spare: Option<Sheaf>,
    /// Objects whose free is deferred (`rcu_free`).
    pub(super) rcu: Option<Sheaf>,
}

impl HasStack for CpuSheaves {
    const ENDS: usize = offset_of!(Self, stack);
    const POPS: usize = offset_of!(Self, stats) + Stat::POPS;
    const PUSHES: usize = offset_of!(Self, stats) + Stat::PUSHES;
}

impl CpuStack for CpuSheaves {
    type Counter = Stat;

    #[inline(always)]
    fn stack_and_stats(&mut self) -> (&mut Stack, &mut Stats) {
        (&mut self.stack, &mut self.stats)
    }
}

impl CpuSheaves {
    pub(super) fn has_main(&self) -> bool {
        self.main.is_some()
    }

    /// True if a flush has anything to do here.
    pub(super) fn is_used(&self) -> bool {
        !self.stack.is_empty() || self.spare.is_some() || self.rcu.is_some()
    }

    /// Puts a sheaf, or none, in the place of the main one, which is returned.
    pub(super) fn replace_main<M: Machine>(
        &mut self,
        machine: &M,
        new: Option<Sheaf>,
    ) -> Option<Sheaf> {
        let objects = self.stack.objects();
        let mut old = core::mem::replace(&mut self.main, new);
        if let Some(old) = &mut old {
            old.account(machine);
            old.set_size(objects);
        }
        if let Some(new) = &self.main {
            new.account(machine);
        }
        self.stack = self.main.as_ref().map_or(Stack::NONE, Sheaf::stack);
        old
    }
}
