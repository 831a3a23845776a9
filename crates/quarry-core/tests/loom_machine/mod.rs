//! A machine whose atomics are the model checker's.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use loom::cell::{Cell, UnsafeCell};
use loom::sync::atomic::{AtomicUsize, Ordering};

use quarry_core::machine::{
    Access, Accounting, Clock, CpuId, Cpus, Line, ListLayout, LockClass, Locks, Memory, NodeId,
    PERCPU_FREE, PERCPU_OWNER, PERCPU_REMOTE, Ranges, RawLock, RawRange, Readers, Reentered,
    SlotLock, Slots, StackLayout, Steps, Threads, Topology,
};

const CPUS: u32 = 2;
const PAGES: usize = 6;
const PAGE: usize = 4096;
const META: usize = 128 << 10;
const DESCRIPTORS: usize = 16 << 10;
/// Attempts of a remote acquisition.
const ATTEMPTS: u32 = 2;

/// Who a thread is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Me {
    /// Its CPU; one that has no slot makes every operation go to the node level.
    pub(crate) cpu: u32,
    /// True for a handler that interrupted a holder of every list lock.
    pub(crate) reentered: bool,
}

/// A CPU without a slot.
pub(crate) const SLOTLESS: u32 = 7;

loom::thread_local! {
    static ME: Cell<(u32, bool)> = Cell::new((0, false));
}

/// Makes the calling thread `me`.
pub(crate) fn be(me: Me) {
    ME.with(|cell| cell.set((me.cpu, me.reentered)));
}

fn me() -> (u32, bool) {
    ME.with(Cell::get)
}

pub(crate) struct LoomMachine {
    topology: Topology,
    ranges: Ranges,
    base: NonNull<u8>,
    /// Spin locks that are held.
    pub(crate) held: AtomicUsize,
    /// The class whose locks do not exclude.
    without: Option<LockClass>,
    /// Claims to have steps; all of them fail.
    steps: bool,
    /// A cell for each address accessed on a watched line: two accesses that nothing orders end the model.
    watched: Option<Watched>,
}

/// The lines that are watched, and a cell by address.
struct Watched {
    lines: &'static [Line],
    cells: Mutex<HashMap<usize, Arc<UnsafeCell<()>>>>,
}

// SAFETY: the address only names the machine's own memory.
unsafe impl Send for LoomMachine {}
// SAFETY: the model's code reaches the memory by the protocols that are checked, and the rest is atomics or behind a
// mutex.
unsafe impl Sync for LoomMachine {}

fn layout() -> Layout {
    let bytes =
        PAGES * PAGE + DESCRIPTORS + META + (CPUS as usize) * (1 << LoomMachine::PERCPU_SHIFT);
    Layout::from_size_align(bytes, PAGE).unwrap()
}

impl LoomMachine {
    /// A machine whose locks all exclude.
    pub(crate) fn new() -> Self {
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout()) }).unwrap();
        let mut at = 0;
        let mut cut = |bytes| {
            // SAFETY: the sum of all ranges is the layout's size.
            let base = unsafe { base.byte_add(at) };
            at += bytes;
            RawRange { base, bytes }
        };
        let ranges = Ranges {
            pages: cut(PAGES * PAGE),
            descriptors: cut(DESCRIPTORS),
            meta: cut(META),
            percpu: cut((CPUS as usize) << Self::PERCPU_SHIFT),
        };
        Self {
            topology: Topology {
                cpus: CPUS,
                nodes: 1,
                page_shift: 12,
                cache_line: 64,
            },
            ranges,
            base,
            held: AtomicUsize::new(0),
            without: None,
            steps: false,
            watched: None,
        }
    }

    /// The same machine with locks of a class that do not exclude.
    pub(crate) fn without(mut self, class: LockClass) -> Self {
        self.without = Some(class);
        self
    }

    /// The same machine with accesses to these lines that have to be ordered by locks and slots.
    pub(crate) fn watching(mut self, lines: &'static [Line]) -> Self {
        self.watched = Some(Watched {
            lines,
            cells: Mutex::default(),
        });
        self
    }

    /// A machine whose steps are always interrupted.
    pub(crate) fn stepping() -> Self {
        let mut machine = Self::new();
        machine.steps = true;
        machine
    }
}

impl Drop for LoomMachine {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it.
        unsafe { dealloc(self.base.as_ptr(), layout()) };
    }
}

// SAFETY: the topology never changes.
unsafe impl Cpus for LoomMachine {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.topology.dealt_node(cpu)
    }

    fn cpus_of_node(&self, node: NodeId) -> u32 {
        self.topology.dealt_cpus(node)
    }

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
}

// SAFETY: the ranges are disjoint parts of zero-filled memory that lives as long as the machine.
unsafe impl Memory for LoomMachine {
    fn ranges(&self) -> &Ranges {
        &self.ranges
    }
}

// SAFETY: slots are taken by compare-and-swap.
unsafe impl Slots for LoomMachine {
    const PERCPU_SHIFT: u32 = 13;

    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        let (cpu, _) = me();
        if cpu >= CPUS {
            return None;
        }
        // SAFETY: every CPU has a slot at this distance.
        let slot = unsafe { slot0.byte_add((cpu as usize) << Self::PERCPU_SHIFT) };
        // SAFETY: the slot lives as long as the machine.
        let word = unsafe { slot.as_ref() }.word();
        // Acquire: pairs with the Release in `SlotLock::release`.
        word.compare_exchange(
            PERCPU_FREE,
            PERCPU_OWNER,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .is_ok()
        .then_some(slot)
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, _cpu: CpuId) -> bool {
        (0..ATTEMPTS).any(|attempt| {
            // Acquire: as above.
            let took = slot.word().compare_exchange(
                PERCPU_FREE,
                PERCPU_REMOTE,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if took.is_err() {
                self.pause(attempt);
            }
            took.is_ok()
        })
    }

    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        slot.release();
    }
}

// SAFETY: every step is interrupted before it begins.
unsafe impl Steps for LoomMachine {
    fn has_steps(&self) -> bool {
        self.steps
    }

    unsafe fn percpu_pop_list<L: ListLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
        _link: usize,
    ) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn percpu_push_list<L: ListLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
        _link: usize,
        _owner: u32,
        _object: NonNull<u8>,
    ) -> bool {
        false
    }

    unsafe fn percpu_pop_stack<L: StackLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
    ) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn percpu_push_stack<L: StackLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
        _object: NonNull<u8>,
    ) -> bool {
        false
    }
}

// SAFETY: each modelled thread has its own CPU or is a handler on it.
unsafe impl Threads for LoomMachine {
    fn thread_id(&self) -> usize {
        let (cpu, reentered) = me();
        1 + cpu as usize * 2 + usize::from(reentered)
    }

    fn task(&self) -> u32 {
        self.thread_id() as u32
    }

    fn pause(&self, _attempt: u32) {
        loom::thread::yield_now();
    }
}

// SAFETY: locks exclude by `RawLock`; those of the class `without` break the contract, which is what
// the tests of such machines want to see.
unsafe impl Locks for LoomMachine {
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        if class == LockClass::NodeList && me().1 {
            return Err(Reentered);
        }
        if self.without == Some(class) {
            return Ok(());
        }
        while !lock.acquire(self.thread_id()) {
            loom::thread::yield_now();
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn try_lock(&self, lock: &RawLock, _class: LockClass) -> bool {
        let took = lock.acquire(self.thread_id());
        self.held.fetch_add(usize::from(took), Ordering::Relaxed);
        took
    }

    unsafe fn unlock(&self, lock: &RawLock, class: LockClass) {
        if self.without == Some(class) {
            return;
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        lock.release();
    }
}

// SAFETY: no grace period ever ends.
unsafe impl Readers for LoomMachine {
    fn rcu_cookie(&self) -> u64 {
        u64::MAX
    }

    fn rcu_elapsed(&self, _cookie: u64) -> bool {
        false
    }
}

impl Clock for LoomMachine {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Accounting for LoomMachine {
    fn access(&self, at: *const u8, _bytes: usize, access: Access, line: Line) {
        let Some(watched) = &self.watched else { return };
        if !watched.lines.contains(&line) {
            return;
        }
        let mut cells = watched.cells.lock().unwrap();
        let cell = Arc::clone(cells.entry(at.addr()).or_default());
        drop(cells);
        match access {
            Access::Read | Access::Check => cell.with(|_| ()),
            Access::Write | Access::Store => cell.with_mut(|_| ()),
            Access::Atomic | Access::Prefetch => (),
        }
    }
}
