//! The allocators on a machine of one's own: one CPU, and memory that a boot loader gave.
//!
//! This is what a kernel or a firmware without `std` writes. Everything but `main` uses `core` alone. On one CPU
//! all exclusion is a matter of interrupts: where the comments say so, a kernel disables them.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use quarry_core::design::CacheSpec;
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::heap::Heap;
use quarry_core::machine::{
    Accounting, Clock, CpuId, Cpus, DESCRIPTOR_BYTES, LockClass, Locks, Memory, NodeId,
    PERCPU_FREE, PERCPU_OWNER, PERCPU_REMOTE, Ranges, RawLock, RawRange, Readers, Reentered,
    SlotLock, Slots, Threads, Topology,
};
use quarry_core::sheaf::SheafCache;

const PAGE: usize = 4096;
/// The page allocator's largest block: its memory begins at a multiple of it.
const LARGEST_BLOCK: usize = PAGE << 10;
/// For the allocators' own structures.
const META_BYTES: usize = 1 << 20;

/// One CPU and its memory.
struct Uniprocessor {
    topology: Topology,
    ranges: Ranges,
    /// Grace periods that are over.
    periods: Cell<u64>,
    /// Counted by the timer's interrupt in a kernel.
    ticks: Cell<u64>,
}

impl Uniprocessor {
    /// Takes memory for good. It must be zero-filled.
    ///
    /// Returns `None` if less than one of the largest blocks is left beside the allocators' structures.
    fn new(memory: &'static mut [u8]) -> Option<Self> {
        let mut left = Carve {
            bytes: memory.len(),
            base: NonNull::from(memory).cast(),
        };
        let percpu = left.take(1 << Self::PERCPU_SHIFT, PAGE)?;
        let meta = left.take(META_BYTES, PAGE)?;
        // A descriptor for each page that could still be there.
        let descriptors = left.take(left.bytes / PAGE * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES)?;
        left.take(0, LARGEST_BLOCK)?;
        let pages = left.take(left.bytes / LARGEST_BLOCK * LARGEST_BLOCK, PAGE)?;
        if pages.bytes == 0 {
            return None;
        }
        Some(Self {
            topology: Topology {
                cpus: 1,
                nodes: 1,
                page_shift: PAGE.ilog2(),
                cache_line: 64,
            },
            ranges: Ranges {
                pages,
                descriptors,
                meta,
                percpu,
            },
            periods: Cell::new(0),
            ticks: Cell::new(0),
        })
    }

    /// Called where no reader runs, such as the scheduler: ends a grace period.
    fn quiescent(&self) {
        self.periods.set(self.periods.get() + 1);
    }
}

/// Memory that is not given away yet.
struct Carve {
    base: NonNull<u8>,
    bytes: usize,
}

impl Carve {
    /// Cuts a range off; its base is a multiple of `align`, a power of two.
    fn take(&mut self, bytes: usize, align: usize) -> Option<RawRange> {
        let skip = self.base.addr().get().next_multiple_of(align) - self.base.addr().get();
        let rest = self.bytes.checked_sub(skip)?.checked_sub(bytes)?;
        // SAFETY: the range ends inside of what is left, by the line above.
        let base = unsafe { self.base.byte_add(skip) };
        // SAFETY: as above.
        self.base = unsafe { base.byte_add(bytes) };
        self.bytes = rest;
        Some(RawRange { base, bytes })
    }
}

// SAFETY: the topology is fixed, with one CPU on one node.
unsafe impl Cpus for Uniprocessor {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn node_of_cpu(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }

    fn cpus_of_node(&self, _node: NodeId) -> u32 {
        1
    }

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
}

// SAFETY: M2, M3: `new` cut the ranges out of zero-filled memory that is the machine's for good.
unsafe impl Memory for Uniprocessor {
    fn ranges(&self) -> &Ranges {
        &self.ranges
    }
}

// SAFETY: one CPU runs all code, and a handler that interrupts a holder finds the word held.
unsafe impl Slots for Uniprocessor {
    const PERCPU_SHIFT: u32 = 16;

    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        // SAFETY: by the caller's contract the word is one of the per-CPU range.
        let word = unsafe { slot0.as_ref() }.word();
        let free = word.compare_exchange(
            PERCPU_FREE,
            PERCPU_OWNER,
            // Acquire: pairs with the Release in `SlotLock::release`.
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        free.is_ok().then_some(slot0)
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, _cpu: CpuId) -> bool {
        let word = slot.word();
        // Acquire: as above. A waiter could not let the holder run, so there is one attempt.
        word.compare_exchange(
            PERCPU_FREE,
            PERCPU_REMOTE,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .is_ok()
    }

    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        slot.release();
    }
}

quarry_core::machine_without_steps!(Uniprocessor);

// SAFETY: there is one thread, and its handlers share its number.
unsafe impl Threads for Uniprocessor {
    fn thread_id(&self) -> usize {
        1
    }

    fn task(&self) -> u32 {
        1
    }

    fn pause(&self, _attempt: u32) {
        core::hint::spin_loop();
    }
}

// SAFETY: with one thread a lock that is held is held by the caller, who is refused. A kernel with
// interrupts disables them in `lock`, and enables them in `unlock`.
unsafe impl Locks for Uniprocessor {
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        match self.try_lock(lock, class) {
            true => Ok(()),
            false => Err(Reentered),
        }
    }

    fn try_lock(&self, lock: &RawLock, _class: LockClass) -> bool {
        lock.acquire(self.thread_id())
    }

    unsafe fn unlock(&self, lock: &RawLock, _class: LockClass) {
        lock.release();
    }
}

// SAFETY: `quiescent` is called where no reader runs.
unsafe impl Readers for Uniprocessor {
    fn rcu_cookie(&self) -> u64 {
        self.periods.get() + 1
    }

    fn rcu_elapsed(&self, cookie: u64) -> bool {
        self.periods.get() >= cookie
    }
}

impl Clock for Uniprocessor {
    fn now_ns(&self) -> u64 {
        self.ticks.get() * 1_000_000
    }
}

/// No cost is modelled.
impl Accounting for Uniprocessor {}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // What a boot loader would give.
    let memory = vec![0_u8; 24 << 20].leak();
    let machine = Uniprocessor::new(memory).ok_or("too little memory")?;
    let heap = Heap::<_, SheafCache>::new(machine, Era::V7_0, BootParams::default())?;

    let cache = heap.create_cache(&CacheSpec::new("task", 320))?;
    let tasks: Vec<_> = (0..1000).map_while(|_| cache.alloc()).collect();
    println!("{} objects of {} bytes", tasks.len(), 320);
    for task in tasks {
        // SAFETY: allocated from this cache above, and used by nothing.
        unsafe { cache.free(task) }?;
    }

    // Memory that readers may still look at goes back after a grace period.
    let last = cache.alloc().ok_or("no memory")?;
    // SAFETY: as above.
    unsafe { cache.free_rcu(last) }?;
    heap.machine().quiescent();

    let buffer = heap.kmalloc(10_000, None).ok_or("no memory")?;
    // SAFETY: allocated above, and used by nothing.
    unsafe { heap.kfree(buffer) }?;

    let mut text = String::new();
    heap.write_slabinfo(&mut text)?;
    print!("{text}");
    Ok(())
}
