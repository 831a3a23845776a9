//! Per-CPU state that any thread reads.

use core::ptr::NonNull;

use super::{PerCpu, PerCpuState};
use crate::machine::{CpuId, Machine, Region, SlotLock};

/// A `T` for each CPU that any thread may read at any time: it is made of atomics. Holding a slot's word
/// gives the right to write.
pub(crate) struct PerCpuShared<T>(PerCpu<T>);

impl<T: Sync + PerCpuState> PerCpuShared<T> {
    /// As [`PerCpu::absent`].
    pub(crate) const fn absent() -> Self {
        Self(PerCpu::absent())
    }

    /// As [`PerCpu::exists`].
    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// As [`PerCpu::slot0`].
    #[inline(always)]
    pub(crate) fn slot0(&self) -> &NonNull<SlotLock> {
        self.0.slot0()
    }

    /// Reserves a slot per CPU. `None` when the per-CPU area is full.
    pub(crate) fn new<M: Machine>(
        machine: &M,
        areas: &Region,
        value: impl Fn() -> T,
    ) -> Option<Self> {
        // SAFETY: no code reads the zeroed values before they are replaced here.
        let new = Self(unsafe { PerCpu::new(machine, areas) }?);
        for cpu in (0..machine.topology().cpus).map(CpuId) {
            // SAFETY: the slot was reserved just now, and no other code knows it.
            unsafe { new.state::<M>(cpu).write(value()) };
        }
        Some(new)
    }

    #[inline(always)]
    fn state<M: Machine>(&self, cpu: CpuId) -> *mut T {
        // SAFETY: the slot lives as long as the handle (M3).
        let slot = unsafe { self.0.slot::<M>(cpu).as_ref() };
        slot.state.get()
    }

    /// A CPU's state, which may change at any time.
    #[inline(always)]
    pub(crate) fn get<M: Machine>(&self, cpu: CpuId) -> &T {
        // SAFETY: `new` made a value for each CPU, and this type makes only shared references.
        unsafe { &*self.state::<M>(cpu) }
    }

    /// As [`PerCpu::try_with`].
    pub(crate) fn try_with<M: Machine, R>(
        &self,
        machine: &M,
        f: impl FnOnce(&T, CpuId) -> R,
    ) -> Option<R> {
        let (slot, cpu) = self.0.try_take(machine)?;
        let result = f(self.get::<M>(cpu), cpu);
        // SAFETY: the caller that frees the slots takes their words before (`free`), so this one lives
        // until it is released.
        let word = unsafe { PerCpu::lock_of(slot).as_ref() };
        // SAFETY: `try_take` took the word.
        unsafe { machine.percpu_unlock(word) };
        Some(result)
    }

    /// As [`PerCpu::try_with_remote`].
    pub(crate) fn try_with_remote<M: Machine, R>(
        &self,
        machine: &M,
        cpu: CpuId,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        if !self.exists() || !self.0.lock_remote(machine, cpu) {
            return None;
        }
        PerCpu::<T>::taken(machine, self.0.slot::<M>(cpu));
        let result = f(self.get::<M>(cpu));
        // SAFETY: `lock_remote` took the word.
        unsafe { machine.percpu_unlock(self.0.word::<M>(cpu)) };
        Some(result)
    }

    /// As [`PerCpu::free`].
    ///
    /// # Safety
    ///
    /// As for [`PerCpu::free`]; no code holds a slot.
    pub(crate) unsafe fn free<M: Machine>(&self, machine: &M, areas: &Region) {
        // SAFETY: the caller promises that no code uses this handle or holds a slot any more.
        unsafe { self.0.free(machine, areas) };
    }
}
