//! A machine that is interrupted: at any of its hooks a handler may run, as a signal handler runs
//! on top of the code it interrupts. The handler may use the same heap.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use quarry_core::machine::{
    Access, Accounting, CpuId, Line, LockClass, Locks, Memory, NodeId, Ranges, RawLock, RawRange,
    Reentered, SlotLock, Slots, Work,
};
use quarry_sim::{Rng, VirtualMachine};

type Handler = Box<dyn FnMut()>;

/// A virtual machine with interrupts.
pub(crate) struct Interrupted {
    inner: VirtualMachine,
    handler: RefCell<Option<Handler>>,
    rng: RefCell<Rng>,
    /// Interrupted hooks per 1000.
    per_mille: Cell<u16>,
    /// Interrupts so far.
    taken: Cell<u64>,
    /// Ranges of memory that the machine will not take back, from the next one on.
    refusals: Cell<u32>,
}

impl Interrupted {
    /// Nothing interrupts the machine until a handler is set.
    pub(crate) fn new(inner: VirtualMachine, seed: u64) -> Self {
        Self {
            inner,
            handler: RefCell::new(None),
            rng: RefCell::new(Rng::new(seed)),
            per_mille: Cell::new(0),
            taken: Cell::new(0),
            refusals: Cell::new(0),
        }
    }

    /// Refuses to take back the next `count` ranges of memory.
    pub(crate) fn refuse_releases(&self, count: u32) {
        self.refusals.set(count);
    }

    /// From now on the handler runs at `per_mille` of 1000 hooks. It is not interrupted itself.
    pub(crate) fn interrupt(&self, per_mille: u16, handler: Handler) {
        *self.handler.borrow_mut() = Some(handler);
        self.per_mille.set(per_mille);
    }

    /// Ends the interrupts and drops the handler. Returns how many there were.
    pub(crate) fn quiet(&self) -> u64 {
        self.per_mille.set(0);
        self.handler.borrow_mut().take();
        self.taken.get()
    }

    /// The CPU on which what follows runs.
    pub(crate) fn run_on(&self, cpu: CpuId) {
        self.inner.run_on(cpu);
    }

    fn hook(&self) {
        let per_mille = self.per_mille.get();
        if per_mille == 0 || !self.rng.borrow_mut().chance(per_mille) {
            return;
        }
        // Taken out while it runs, so that it does not interrupt itself.
        let Some(mut handler) = self.handler.borrow_mut().take() else {
            return;
        };
        self.taken.set(self.taken.get() + 1);
        self.inner.interrupt(&mut handler);
        *self.handler.borrow_mut() = Some(handler);
    }
}

quarry_core::forward_machine! {
    unsafe Cpus, Steps, Threads, Readers, Clock for Interrupted => inner: VirtualMachine
}

// SAFETY: all memory is the virtual machine's.
unsafe impl Memory for Interrupted {
    fn ranges(&self) -> &Ranges {
        self.inner.ranges()
    }

    unsafe fn release(&self, range: RawRange) -> bool {
        self.hook();
        let refusals = self.refusals.get();
        if refusals > 0 {
            self.refusals.set(refusals - 1);
            return false;
        }
        // SAFETY: the caller's contract is the same.
        let released = unsafe { self.inner.release(range) };
        self.hook();
        released
    }

    fn bind(&self, range: RawRange, node: NodeId) {
        self.inner.bind(range, node);
    }

    fn prefetch_for_write(&self, address: *const u8) {
        self.inner.prefetch_for_write(address);
    }
}

// SAFETY: all operations are the virtual machine's, which keeps the contract. A handler runs between
// them, on the same thread, and works with the same words, so it finds what is held by the code it
// interrupted.
unsafe impl Slots for Interrupted {
    const PERCPU_SHIFT: u32 = VirtualMachine::PERCPU_SHIFT;

    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        self.hook();
        // SAFETY: the caller's contract is the same.
        let taken = unsafe { self.inner.percpu_try_lock(slot0) };
        self.hook();
        taken
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool {
        self.hook();
        let taken = self.inner.percpu_lock_remote(slot, cpu);
        self.hook();
        taken
    }

    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        self.hook();
        // SAFETY: the caller's contract is the same.
        unsafe { self.inner.percpu_unlock(slot) };
        self.hook();
    }
}

// SAFETY: as for `Slots`.
unsafe impl Locks for Interrupted {
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        self.hook();
        let taken = self.inner.lock(lock, class);
        self.hook();
        taken
    }

    fn try_lock(&self, lock: &RawLock, class: LockClass) -> bool {
        self.hook();
        let taken = self.inner.try_lock(lock, class);
        self.hook();
        taken
    }

    unsafe fn unlock(&self, lock: &RawLock, class: LockClass) {
        self.hook();
        // SAFETY: the caller's contract is the same.
        unsafe { self.inner.unlock(lock, class) };
        self.hook();
    }
}

impl Accounting for Interrupted {
    fn access(&self, at: *const u8, bytes: usize, access: Access, line: Line) {
        self.inner.access(at, bytes, access, line);
        self.hook();
    }

    fn work(&self, work: Work) {
        self.inner.work(work);
        self.hook();
    }

    fn zero(&self, at: *const u8, bytes: usize) {
        self.inner.zero(at, bytes);
    }

    fn copy(&self, kernel: *const u8, bytes: usize) {
        self.inner.copy(kernel, bytes);
    }
}
