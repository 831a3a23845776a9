//! Per-CPU state behind a try-lock (the drawing is in the [parent module](super)).

mod shared;

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::{Access, CpuId, Line, Machine, PERCPU_FREE, PERCPU_QUIESCED, Region, SlotLock, access};
use crate::sync::Ordering;
pub(crate) use shared::PerCpuShared;

/// One CPU's slot; aligned so that two slots never share a cache line.
#[repr(C, align(64))]
struct Slot<T> {
    lock: SlotLock,
    state: UnsafeCell<T>,
}

/// State of a slot.
pub(crate) trait PerCpuState {
    /// Kind of line that its accesses count as.
    const LINE: Line;
}

/// A `T` for each CPU; the bytes of a new one are all zero.
pub(crate) struct PerCpu<T> {
    slot0: NonNull<Slot<T>>,
    state: PhantomData<T>,
}

// SAFETY: M1 - the state of a slot is only reached by the holder of its lock word. So sharing the
// handle moves a `T` between threads but never shares one.
unsafe impl<T: Send> Sync for PerCpu<T> {}
// SAFETY: M1, as for `Sync`; the handle itself is an address that never changes (M3).
unsafe impl<T: Send> Send for PerCpu<T> {}

// Another handle to the same slots: whose state it is the lock word says.
impl<T> Clone for PerCpu<T> {
    fn clone(&self) -> Self {
        Self {
            slot0: self.slot0,
            state: PhantomData,
        }
    }
}

impl<T> PerCpu<T> {
    const BYTES: usize = size_of::<Slot<T>>();

    /// Distance in bytes of the state from the lock word.
    pub(crate) const STATE: usize = core::mem::offset_of!(Slot<T>, state);

    /// CPU 0's lock word, for the machine's one-step operations. By reference, so that the address
    /// can be an operand in memory.
    #[inline(always)]
    pub(crate) fn slot0(&self) -> &NonNull<SlotLock> {
        let slot0: *const NonNull<Slot<T>> = &self.slot0;
        // SAFETY: both are addresses of the same size; a slot begins with its lock word.
        unsafe { &*slot0.cast() }
    }

    /// Slots that no CPU has: a caller that tries one finds it held. They take no memory.
    pub(crate) const fn absent() -> Self {
        Self {
            slot0: NonNull::dangling(),
            state: PhantomData,
        }
    }

    /// True if there are slots.
    pub(crate) fn exists(&self) -> bool {
        self.slot0 != NonNull::dangling()
    }

    /// Reserves a slot per CPU. `None` when the per-CPU area is full.
    ///
    /// # Safety
    ///
    /// The all-zero bit pattern is a valid `T`.
    pub(crate) unsafe fn new<M: Machine>(machine: &M, areas: &Region) -> Option<Self> {
        let slot0 = areas.alloc(machine, Self::BYTES)?.cast();
        let new = Self {
            slot0,
            state: PhantomData,
        };
        #[cfg(loom)]
        for cpu in (0..machine.topology().cpus).map(CpuId) {
            // SAFETY: the block was reserved just now, and no other code knows it. A modelled atomic
            // is not valid when it is all zero.
            unsafe {
                Self::lock_of(new.slot::<M>(cpu)).write(SlotLock::new());
            }
        }
        Some(new)
    }

    /// Runs `f` on a CPU's state whether its word is held or not.
    ///
    /// # Safety
    ///
    /// No other code uses the slots meanwhile, on any CPU.
    pub(crate) unsafe fn with_unused<M: Machine, R>(
        &self,
        cpu: CpuId,
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        let slot = self.slot::<M>(cpu);
        // SAFETY: the slot is valid (M3); only shared access to its fields is made from this reference.
        let slot = unsafe { slot.as_ref() };
        // SAFETY: the caller promises that no other code uses the slots, so this is the only reference to the state.
        f(unsafe { &mut *slot.state.get() })
    }

    /// Returns the slots of all CPUs to the area; they are zeroed for the next user.
    ///
    /// # Safety
    ///
    /// No code uses this handle or a clone of it any more.
    pub(crate) unsafe fn free<M: Machine>(&self, machine: &M, areas: &Region) {
        if !self.exists() {
            return;
        }
        for cpu in (0..machine.topology().cpus).map(CpuId) {
            let slot = self.slot::<M>(cpu).cast::<u8>();
            // SAFETY: the slot is `BYTES` long, inside the per-CPU range (`new` reserved it), and
            // by the caller's contract no other code looks at it.
            unsafe { slot.write_bytes(0, Self::BYTES) };
        }
        // SAFETY: `new` reserved exactly this block, and it goes back once.
        unsafe { areas.free(machine, self.slot0.cast(), Self::BYTES) };
    }

    #[inline(always)]
    fn slot<M: Machine>(&self, cpu: CpuId) -> NonNull<Slot<T>> {
        // SAFETY: `new` reserved the block at the same offset in the area of every CPU.
        unsafe { self.slot0.byte_add((cpu.0 as usize) << M::PERCPU_SHIFT) }
    }

    #[inline(always)]
    fn lock_of(slot: NonNull<Slot<T>>) -> NonNull<SlotLock> {
        // The lock is the first field of a `repr(C)` struct.
        slot.cast()
    }

    /// Runs `f` on the running CPU's state, or returns `None` at once if its word is held.
    #[inline(always)]
    pub(crate) fn try_with<M: Machine, R>(
        &self,
        machine: &M,
        f: impl FnOnce(&mut T, CpuId) -> R,
    ) -> Option<R>
    where
        T: PerCpuState,
    {
        let (slot, cpu) = self.try_take(machine)?;
        // SAFETY: M1 - the word of this slot is held until the end of the function.
        let result = unsafe { Self::run(machine, slot, cpu, f) };
        Some(result)
    }

    /// Takes the word of the running CPU's slot.
    #[inline(always)]
    fn try_take<M: Machine>(&self, machine: &M) -> Option<(NonNull<Slot<T>>, CpuId)>
    where
        T: PerCpuState,
    {
        if !self.exists() {
            return None;
        }
        // SAFETY: `slot0` is CPU 0's slot of a block in the per-CPU range (`new`).
        let lock = unsafe { machine.percpu_try_lock(Self::lock_of(self.slot0)) }?;
        let slot = lock.cast::<Slot<T>>();
        Self::taken(machine, slot);
        let cpu = CpuId(((slot.addr().get() - self.slot0.addr().get()) >> M::PERCPU_SHIFT) as u32);
        Some((slot, cpu))
    }

    /// Runs `f` on another CPU's state; `None` if its holder does not let go in bounded time.
    pub(crate) fn try_with_remote<M: Machine, R>(
        &self,
        machine: &M,
        cpu: CpuId,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R>
    where
        T: PerCpuState,
    {
        if !self.exists() || !self.lock_remote(machine, cpu) {
            return None;
        }
        Self::taken(machine, self.slot::<M>(cpu));
        // SAFETY: M1 - `lock_remote` took the word of this CPU's slot.
        let result = unsafe { Self::run(machine, self.slot::<M>(cpu), cpu, |state, _| f(state)) };
        Some(result)
    }

    /// [`PerCpu::try_with_remote`] of new slots: without waiting for what runs on the CPU.
    ///
    /// # Safety
    ///
    /// No other thread has the slots yet.
    pub(crate) unsafe fn try_with_new<M: Machine, R>(
        &self,
        machine: &M,
        cpu: CpuId,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R>
    where
        T: PerCpuState,
    {
        // SAFETY: no other thread has the slots: the caller says so.
        if !self.exists() || !unsafe { machine.percpu_lock_new(self.word::<M>(cpu), cpu) } {
            return None;
        }
        Self::taken(machine, self.slot::<M>(cpu));
        // SAFETY: M1 - the word of this CPU's slot was taken.
        let result = unsafe { Self::run(machine, self.slot::<M>(cpu), cpu, |state, _| f(state)) };
        Some(result)
    }

    fn lock_remote<M: Machine>(&self, machine: &M, cpu: CpuId) -> bool {
        machine.percpu_lock_remote(self.word::<M>(cpu), cpu)
    }

    /// Accounts what every holder of a slot works with: its first line.
    #[inline(always)]
    fn taken<M: Machine>(machine: &M, slot: NonNull<Slot<T>>)
    where
        T: PerCpuState,
    {
        let first = slot.as_ptr().cast::<[u8; align_of::<Slot<()>>()]>();
        access(machine, T::LINE, Access::Write, first);
    }

    fn word<M: Machine>(&self, cpu: CpuId) -> &SlotLock {
        // SAFETY: the slot lives as long as the handle (M3), and its word is atomic.
        unsafe { Self::lock_of(self.slot::<M>(cpu)).as_ref() }
    }

    /// Takes the slots of all CPUs, or none.
    ///
    /// # Errors
    ///
    /// The CPU whose holder does not let go in bounded time.
    pub(crate) fn hold_all<'a, M: Machine>(
        &'a self,
        machine: &'a M,
    ) -> Result<HeldSlots<'a, M, T>, CpuId> {
        let mut held = HeldSlots {
            slots: self,
            cpus: 0,
            machine,
            thread: PhantomData,
        };
        if self.exists() {
            for cpu in (0..machine.topology().cpus).map(CpuId) {
                // On a miss the drop releases what was taken.
                if !self.lock_remote(machine, cpu) {
                    return Err(cpu);
                }
                held.cpus += 1;
            }
        }
        Ok(held)
    }

    /// Takes the words of all CPUs that it has not yet and keeps them until [`PerCpu::resume`]; those that are held only if it
    /// shall wait for them. Returns the number of slots that stayed with their holders.
    pub(crate) fn quiesce<M: Machine>(&self, machine: &M, wait: bool) -> u32 {
        let mut missed = 0;
        if !self.exists() {
            return missed;
        }
        for cpu in (0..machine.topology().cpus).map(CpuId) {
            let word = self.word::<M>(cpu).word();
            // Relaxed: this thread alone stores and frees that value.
            let taken = match word.load(Ordering::Relaxed) {
                PERCPU_QUIESCED => continue,
                PERCPU_FREE => self.lock_remote(machine, cpu),
                _ => wait && self.lock_remote(machine, cpu),
            };
            match taken {
                true => word.store(PERCPU_QUIESCED, Ordering::Relaxed),
                false => missed += 1,
            }
        }
        missed
    }

    /// Frees the words that [`PerCpu::quiesce`] took.
    pub(crate) fn resume<M: Machine>(&self, machine: &M) {
        if !self.exists() {
            return;
        }
        for cpu in (0..machine.topology().cpus).map(CpuId) {
            let word = self.word::<M>(cpu);
            if word.word().load(Ordering::Relaxed) == PERCPU_QUIESCED {
                // SAFETY: `quiesce` took the word and left that value.
                unsafe { machine.percpu_unlock(word) };
            }
        }
    }

    /// Runs `f` on the state of a slot whose word the caller holds, then frees the word.
    ///
    /// # Safety
    ///
    /// The caller holds the word of `slot`.
    #[inline(always)]
    unsafe fn run<M: Machine, R>(
        machine: &M,
        slot: NonNull<Slot<T>>,
        cpu: CpuId,
        f: impl FnOnce(&mut T, CpuId) -> R,
    ) -> R {
        // SAFETY: the slot is valid (M3); only shared access to its two fields is made from this
        // reference.
        let slot = unsafe { slot.as_ref() };
        // SAFETY: M1 - the caller holds the word, so this is the only reference to the state.
        let result = f(unsafe { &mut *slot.state.get() }, cpu);
        // SAFETY: the caller holds the word of `slot`, by its promise, and lets go of it here.
        unsafe { machine.percpu_unlock(&slot.lock) };
        result
    }
}

/// The slots of all CPUs, none if there are none; frees their words when dropped.
pub(crate) struct HeldSlots<'a, M: Machine, T> {
    slots: &'a PerCpu<T>,
    /// CPUs from 0 on whose words are held.
    cpus: u32,
    machine: &'a M,
    /// Keeps the value, and what it lends, on its thread: `T` need not be `Sync`.
    thread: PhantomData<*const T>,
}

impl<M: Machine, T> HeldSlots<'_, M, T> {
    /// The states of the CPUs, in their order.
    pub(crate) fn states(&self) -> impl Iterator<Item = &T> {
        (0..self.cpus).map(CpuId).map(|cpu| {
            // SAFETY: the slot lives as long as the handle (M3); only shared access to its fields is
            // made from this reference.
            let slot = unsafe { self.slots.slot::<M>(cpu).as_ref() };
            // SAFETY: M1 - this value holds the word of the slot, and it lends the state only shared.
            unsafe { &*slot.state.get() }
        })
    }
}

impl<M: Machine, T> Drop for HeldSlots<'_, M, T> {
    fn drop(&mut self) {
        for cpu in (0..self.cpus).map(CpuId) {
            // SAFETY: `hold_all` took the word, and it is freed once.
            unsafe { self.machine.percpu_unlock(self.slots.word::<M>(cpu)) };
        }
    }
}
