//! Data behind spin locks as the machine takes them.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::{LockClass, Machine, RawLock, Work, work};

/// Data that only the holder of a lock may touch.
pub(crate) struct SpinLock<T> {
    raw: RawLock,
    class: LockClass,
    data: UnsafeCell<T>,
}

// SAFETY: `data` is only reached through a `Guard`, which exists only while `raw` is held.
// `Machine`'s contract makes acquisitions exclude each other and order the accesses.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    #[cfg_attr(loom, allow(clippy::missing_const_for_fn))]
    pub(crate) fn new(class: LockClass, data: T) -> Self {
        Self {
            raw: RawLock::new(),
            class,
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock<'a, M: Machine>(&'a self, machine: &'a M) -> Option<Guard<'a, M, T>> {
        // The guard must not exist unless the lock was taken: its drop would free another's.
        if !machine.try_lock(&self.raw, self.class) {
            return None;
        }
        Some(self.taken(machine))
    }

    /// True if the calling thread holds the lock.
    pub(crate) fn is_mine<M: Machine>(&self, machine: &M) -> bool {
        // Only this thread stores its own number.
        self.raw.owner() == machine.thread_id()
    }

    /// Waits for the lock; `None` if the calling thread holds it already (see
    /// [`Reentered`](super::Reentered)).
    #[inline]
    pub(crate) fn lock<'a, M: Machine>(&'a self, machine: &'a M) -> Option<Guard<'a, M, T>> {
        machine.lock(&self.raw, self.class).ok()?;
        Some(self.taken(machine))
    }

    /// The guard of a lock that the machine has taken.
    #[inline]
    fn taken<'a, M: Machine>(&'a self, machine: &'a M) -> Guard<'a, M, T> {
        if self.class.irqs_off() {
            work(machine, Work::IrqSave);
        }
        Guard {
            lock: self,
            machine,
        }
    }
}

/// Exclusive access to the data of a [`SpinLock`]; releases it when dropped.
pub(crate) struct Guard<'a, M: Machine, T> {
    lock: &'a SpinLock<T>,
    machine: &'a M,
}

impl<M: Machine, T> Deref for Guard<'_, M, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its lock is held (constructor `SpinLock::lock`), so
        // no other reference to the data exists but through this guard.
        unsafe { &*self.lock.data.get() }
    }
}

impl<M: Machine, T> DerefMut for Guard<'_, M, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists only while its lock is held, so data is reached through it alone; `&mut self` makes
        // the reference unique.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<M: Machine, T> Drop for Guard<'_, M, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by a successful acquisition and is dropped once.
        unsafe { self.machine.unlock(&self.lock.raw, self.lock.class) }
    }
}
