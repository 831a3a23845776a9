//! A virtual machine that also has the single steps of the fast paths, done as their contract in
//! [`Steps`] says.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use quarry_core::machine::{
    CpuId, ListLayout, Memory, NodeId, Ranges, RawRange, SlotLock, Slots, StackLayout, Steps,
};
use quarry_sim::VirtualMachine;

use super::place::Placement;

thread_local! {
    /// True if other CPUs' slots stay held, as if their holders were gone.
    pub(crate) static STUCK: Cell<bool> = const { Cell::new(false) };
    /// Addresses that were announced to be written soon, if they are noted.
    pub(crate) static PREFETCHED: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
}

/// See the module's documentation.
pub(crate) struct Stepping(pub(crate) VirtualMachine);

/// It runs on the CPU that the caller names, too.
#[derive(Clone, Copy)]
pub(crate) struct OnSteps;

impl Placement<Stepping> for OnSteps {
    fn on<'m>(&self, machine: &'m Stepping) -> &'m VirtualMachine {
        &machine.0
    }
}

/// A slot whose word is held.
#[derive(Clone, Copy)]
struct Held(NonNull<SlotLock>);

impl Held {
    fn get<T: Copy>(self, field: usize) -> T {
        // SAFETY: the layout says where the field is; the slot is at least that long.
        let field = unsafe { self.0.byte_add(field) }.cast::<T>();
        // SAFETY: M1 - the word is held.
        unsafe { field.read() }
    }

    fn set<T: Copy>(self, field: usize, value: T) {
        // SAFETY: as in `get`.
        let field = unsafe { self.0.byte_add(field) }.cast::<T>();
        // SAFETY: as in `get`.
        unsafe { field.write(value) };
    }

    fn add_one(self, field: usize) {
        self.set(field, self.get::<u64>(field).wrapping_add(1));
    }

    fn pop_list<L: ListLayout>(self, link: usize) -> Option<NonNull<u8>> {
        let first = NonNull::new(self.get::<*mut u8>(L::HEAD))?;
        // SAFETY: the contract of `percpu_pop_list`: a link is there.
        let next = unsafe { first.byte_add(link) }.cast::<*mut u8>();
        // SAFETY: as above.
        self.set(L::HEAD, unsafe { next.read() });
        self.add_one(L::POPS);
        Some(first)
    }

    fn push_list<L: ListLayout>(self, link: usize, owner: u32, object: NonNull<u8>) -> bool {
        let head: *mut u8 = self.get(L::HEAD);
        if self.get::<u32>(L::OWNER) != owner || head == object.as_ptr() {
            return false;
        }
        // SAFETY: the contract of `percpu_push_list`: the caller owns the object.
        let next = unsafe { object.byte_add(link) }.cast::<*mut u8>();
        // SAFETY: as above.
        unsafe { next.write(head) };
        self.set(L::HEAD, object.as_ptr());
        self.add_one(L::PUSHES);
        true
    }

    fn pop_stack<L: StackLayout>(self) -> Option<NonNull<u8>> {
        let top: *mut Option<NonNull<u8>> = self.get(L::TOP);
        if top == self.get(L::BASE) {
            return None;
        }
        let newest = top.wrapping_sub(1);
        self.set(L::TOP, newest);
        self.add_one(L::POPS);
        // SAFETY: the contract of `StackLayout`: filled entries can be read.
        unsafe { newest.read() }
    }

    fn push_stack<L: StackLayout>(self, object: NonNull<u8>) -> bool {
        if L::NARROW {
            return self.push_narrow::<L>(object.addr().get() as u32);
        }
        let top: *mut Option<NonNull<u8>> = self.get(L::TOP);
        if top >= self.get(L::LIMIT) {
            return false;
        }
        // SAFETY: the contract of `StackLayout`: even the word in front of the first entry can be.
        if unsafe { top.wrapping_sub(1).read() } == Some(object) {
            return false;
        }
        // SAFETY: the stack is not full, so the entry is the stack's.
        unsafe { top.write(Some(object)) };
        self.set(L::TOP, top.wrapping_add(1));
        self.add_one(L::PUSHES);
        true
    }

    fn push_narrow<L: StackLayout>(self, object: u32) -> bool {
        let top: *mut u32 = self.get(L::TOP);
        if top >= self.get(L::LIMIT) {
            return false;
        }
        // SAFETY: as in `push_stack`.
        if unsafe { top.wrapping_sub(1).read() } == object {
            return false;
        }
        // SAFETY: as in `push_stack`.
        unsafe { top.write(object) };
        self.set(L::TOP, top.wrapping_add(1));
        self.add_one(L::PUSHES);
        true
    }
}

impl Stepping {
    /// Does something with the running CPU's slot, if it is free.
    ///
    /// # Safety
    ///
    /// As for [`Slots::percpu_try_lock`].
    unsafe fn step<R>(&self, slot0: NonNull<SlotLock>, f: impl FnOnce(Held) -> R) -> Option<R> {
        // SAFETY: the caller's contract is the same.
        let lock = unsafe { self.0.percpu_try_lock(slot0) }?;
        let result = f(Held(lock));
        // SAFETY: the word lives as long as the machine.
        let word = unsafe { lock.as_ref() };
        // SAFETY: it was taken above.
        unsafe { self.0.percpu_unlock(word) };
        Some(result)
    }
}

quarry_core::forward_machine! {
    unsafe Cpus, Threads, Locks, Readers, Clock, Accounting for Stepping => 0: VirtualMachine
}

// SAFETY: all memory is the virtual machine's.
unsafe impl Memory for Stepping {
    fn ranges(&self) -> &Ranges {
        self.0.ranges()
    }

    unsafe fn release(&self, range: RawRange) -> bool {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.release(range) }
    }

    fn bind(&self, range: RawRange, node: NodeId) {
        self.0.bind(range, node);
    }

    fn prefetch_for_write(&self, address: *const u8) {
        PREFETCHED.with_borrow_mut(|noted| {
            if let Some(noted) = noted {
                noted.push(address.addr());
            }
        });
    }
}

// SAFETY: the virtual machine keeps the contract; more refusals do not break it.
unsafe impl Slots for Stepping {
    const PERCPU_SHIFT: u32 = VirtualMachine::PERCPU_SHIFT;

    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.percpu_try_lock(slot0) }
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool {
        !STUCK.get() && self.0.percpu_lock_remote(slot, cpu)
    }

    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.percpu_unlock(slot) };
    }
}

// SAFETY: a step holds the slot's word from its beginning to its end.
unsafe impl Steps for Stepping {
    fn has_steps(&self) -> bool {
        true
    }

    unsafe fn percpu_pop_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.step(*slot0, |held| held.pop_list::<L>(link)) }.flatten()
    }

    unsafe fn percpu_push_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
        owner: u32,
        object: NonNull<u8>,
    ) -> bool {
        // SAFETY: the caller's contract is the same.
        let pushed = unsafe { self.step(*slot0, |held| held.push_list::<L>(link, owner, object)) };
        pushed == Some(true)
    }

    unsafe fn percpu_pop_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.step(*slot0, |held| held.pop_stack::<L>()) }.flatten()
    }

    unsafe fn percpu_push_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        // SAFETY: the caller's contract is the same.
        let pushed = unsafe { self.step(*slot0, |held| held.push_stack::<L>(object)) };
        pushed == Some(true)
    }
}
