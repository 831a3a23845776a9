//! A stack of free objects: an array of their addresses that fills from its beginning.
//!
//! CPU queues, sheaves and the arrays that CPUs share are stacks. Each operation reports to the machine
//! which entries it reads and writes; only looks that no kernel takes do not (`newest`, `filled`).

use core::marker::PhantomData;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;

use crate::machine::{Access, Line, Machine, PerCpu, PerCpuState, StackLayout, access, access_run};

/// The ends of a stack, as the machine's single steps read and write them ([`StackLayout`]).
#[repr(C)]
pub(crate) struct Ends<T> {
    /// The entry above the newest.
    pub(crate) top: *mut T,
    /// Entry 0; null without entries.
    pub(crate) base: *mut T,
    /// The entry that may not be filled, nor any above it.
    pub(crate) limit: *mut T,
}

impl<T> Ends<T> {
    /// Filled entries.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        (self.top.addr() - self.base.addr()) / size_of::<T>()
    }
}

/// Layout of a per-CPU state with a stack for single steps: distances in bytes from the state.
pub(crate) trait HasStack: PerCpuState {
    /// Its [`Ends`].
    const ENDS: usize;
    /// Counter of objects taken by single steps.
    const POPS: usize;
    /// Counter of objects put by single steps.
    const PUSHES: usize;
}

impl<T: HasStack> StackLayout for T {
    const TOP: usize = PerCpu::<T>::STATE + T::ENDS + offset_of!(Ends<u8>, top);
    const BASE: usize = PerCpu::<T>::STATE + T::ENDS + offset_of!(Ends<u8>, base);
    const LIMIT: usize = PerCpu::<T>::STATE + T::ENDS + offset_of!(Ends<u8>, limit);
    const POPS: usize = PerCpu::<T>::STATE + T::POPS;
    const PUSHES: usize = PerCpu::<T>::STATE + T::PUSHES;
}

/// Owner of a stack, to which accesses to its entries are attributed.
pub(crate) trait Owner {
    const LINE: Line;
}

/// A stack that one CPU uses at a time, behind its slot or on its way there.
pub(crate) struct OfCpu;

impl Owner for OfCpu {
    const LINE: Line = Line::CpuQueue;
}

/// A stack that CPUs share, behind a lock.
pub(crate) struct OfNode;

impl Owner for OfNode {
    const LINE: Line = Line::Node;
}

/// See the module's documentation. All-zero is a stack without room.
///
/// Invariant: `base <= top <= limit`, all in one array of entries that only this value uses, and the
/// entries below the top are filled; or all three are null.
#[repr(transparent)]
pub(crate) struct Stack<O = OfCpu> {
    ends: Ends<NonNull<u8>>,
    owner: PhantomData<O>,
}

// SAFETY: the entries are memory that only the stack's holder uses, and name objects that the
// allocator owns.
unsafe impl<O> Send for Stack<O> {}

impl<O: Owner> Stack<O> {
    /// A stack without room.
    pub(crate) const NONE: Self = Self {
        ends: Ends {
            top: core::ptr::null_mut(),
            base: core::ptr::null_mut(),
            limit: core::ptr::null_mut(),
        },
        owner: PhantomData,
    };

    /// A stack over `room` entries that begin at `base`, with the first `filled` of them filled.
    ///
    /// # Safety
    ///
    /// The memory lives, aligned, as long as the stack is used, and nothing else uses it meanwhile.
    /// `filled <= room`, and the first `filled` entries name objects.
    #[inline(always)]
    pub(crate) unsafe fn new(base: NonNull<NonNull<u8>>, filled: u32, room: u32) -> Self {
        debug_assert!(filled <= room);
        let base = base.as_ptr();
        let ends = Ends {
            top: base.wrapping_add(filled as usize),
            base,
            limit: base.wrapping_add(room as usize),
        };
        Self {
            ends,
            owner: PhantomData,
        }
    }

    /// Filled entries.
    #[inline(always)]
    pub(crate) fn objects(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Entries, filled or not.
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        let bytes = self.ends.limit.addr() - self.ends.base.addr();
        (bytes / size_of::<NonNull<u8>>()) as u32
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.top == self.ends.base
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.ends.top == self.ends.limit
    }

    /// The newest entry; not accounted.
    #[inline(always)]
    pub(crate) fn newest(&self) -> Option<NonNull<u8>> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the invariant - the entry below the top is filled.
        Some(unsafe { self.ends.top.wrapping_sub(1).read() })
    }

    /// The filled entries, oldest first, for checks; not accounted.
    pub(crate) fn filled(&self) -> &[NonNull<u8>] {
        if self.is_empty() {
            return &[];
        }
        // SAFETY: the invariant - these entries are filled, and the borrow of `self` keeps them so.
        unsafe { core::slice::from_raw_parts(self.ends.base, self.ends.len()) }
    }

    /// Takes the newest entry.
    #[inline(always)]
    pub(crate) fn pop<M: Machine>(&mut self, machine: &M) -> Option<NonNull<u8>> {
        let newest = self.newest()?;
        self.ends.top = self.ends.top.wrapping_sub(1);
        access(machine, O::LINE, Access::Read, self.ends.top);
        Some(newest)
    }

    /// Adds an entry; `false` if there is no room.
    #[inline(always)]
    pub(crate) fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        if self.is_full() {
            return false;
        }
        access(machine, O::LINE, Access::Store, self.ends.top);
        // SAFETY: the invariant - below the limit, so the entry is this stack's.
        unsafe { self.ends.top.write(object) };
        self.ends.top = self.ends.top.wrapping_add(1);
        true
    }

    /// Takes up to as many entries as there are slots, newest first. Returns how many.
    #[inline(always)]
    pub(crate) fn pop_many<M: Machine>(
        &mut self,
        machine: &M,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let run = self.ends.len().min(slots.len());
        let mut entry = self.ends.top;
        for slot in &mut slots[..run] {
            entry = entry.wrapping_sub(1);
            access(machine, O::LINE, Access::Read, entry);
            // Volatile, so that entries are read one by one, as they were written: a wide load of what
            // narrow stores have just written waits until these have left the store buffer.
            // SAFETY: the invariant - `run` entries below the top are filled.
            *slot = Some(unsafe { entry.read_volatile() });
        }
        self.ends.top = entry;
        run
    }

    /// Adds the objects of slots from the first on and empties these slots. Goes on while there is
    /// room, `accept` takes them and none is the newest already. Returns how many.
    #[inline(always)]
    pub(crate) fn push_many<M: Machine>(
        &mut self,
        machine: &M,
        slots: &mut [Option<NonNull<u8>>],
        mut accept: impl FnMut(NonNull<u8>) -> bool,
    ) -> usize {
        let mut newest = self.newest();
        let vacant = self.vacant(usize::MAX);
        if vacant.is_empty() {
            return 0;
        }
        let mut run = 0;
        for (&slot, entry) in slots.iter().zip(vacant) {
            let Some(object) = slot else { break };
            if newest == slot || !accept(object) {
                break;
            }
            access(
                machine,
                O::LINE,
                Access::Store,
                core::ptr::from_ref(&*entry),
            );
            entry.write(object);
            newest = slot;
            run += 1;
        }
        self.ends.top = self.ends.top.wrapping_add(run);
        // At once, because clearing many words is a few wide stores.
        slots[..run].fill(None);
        run
    }

    /// At most `most` entries above the filled ones, to be written before [`Stack::grow`] counts them.
    #[inline(always)]
    pub(crate) fn vacant(&mut self, most: usize) -> &mut [MaybeUninit<NonNull<u8>>] {
        let bytes = self.ends.limit.addr() - self.ends.top.addr();
        let vacant = (bytes / size_of::<NonNull<u8>>()).min(most);
        if vacant == 0 {
            return &mut [];
        }
        // SAFETY: the invariant - these entries are between the top and the limit; `MaybeUninit` asks for
        // no initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.ends.top.cast(), vacant) }
    }

    /// Counts entries above the filled ones as filled.
    ///
    /// # Safety
    ///
    /// The first `filled` entries of [`Stack::vacant`] have been written.
    pub(crate) unsafe fn grow<M: Machine>(&mut self, machine: &M, filled: u32) {
        let filled = filled as usize;
        access_run(machine, O::LINE, Access::Store, self.ends.top, filled);
        self.ends.top = self.ends.top.wrapping_add(filled);
        debug_assert!(self.ends.top <= self.ends.limit);
    }

    /// Lets `put` fill empty slots that stand for all vacant entries, from the first on. Returns how many
    /// it filled.
    pub(crate) fn fill<M: Machine>(
        &mut self,
        machine: &M,
        put: impl FnOnce(&mut [Option<NonNull<u8>>]),
    ) -> u32 {
        let vacant = self.vacant(usize::MAX);
        let (first, room) = (vacant.as_mut_ptr(), vacant.len());
        // SAFETY: these entries may be written.
        unsafe { first.write_bytes(0, room) };
        // SAFETY: an entry of all zero is `None`, and the borrow of `self` lasts until the end.
        let slots = unsafe { core::slice::from_raw_parts_mut(first.cast(), room) };
        put(slots);
        let filled = slots.iter().take_while(|slot| slot.is_some()).count() as u32;
        // SAFETY: this many entries are addresses.
        unsafe { self.grow(machine, filled) };
        filled
    }

    /// Adds as many objects as there is room for, from the first on. Returns how many.
    pub(crate) fn append<M: Machine>(&mut self, machine: &M, objects: &[NonNull<u8>]) -> u32 {
        let vacant = self.vacant(usize::MAX);
        let added = vacant.len().min(objects.len());
        vacant[..added].write_copy_of_slice(&objects[..added]);
        // SAFETY: this many entries have been written.
        unsafe { self.grow(machine, added as u32) };
        added as u32
    }

    /// Moves the newest entries to other places in their order, the newest last: as many as there are
    /// and as there are places. Returns how many.
    pub(crate) fn move_newest<M: Machine>(
        &mut self,
        machine: &M,
        room: &mut [MaybeUninit<NonNull<u8>>],
    ) -> u32 {
        let filled = self.filled();
        let newest = &filled[filled.len().saturating_sub(room.len())..];
        access_run(
            machine,
            O::LINE,
            Access::Read,
            newest.as_ptr(),
            newest.len(),
        );
        room[..newest.len()].write_copy_of_slice(newest);
        let moved = newest.len();
        self.ends.top = self.ends.top.wrapping_sub(moved);
        moved as u32
    }

    /// Adds the newest entries of another stack, at most `most`, in their order. Returns how many.
    pub(crate) fn take_from<M: Machine, P: Owner>(
        &mut self,
        machine: &M,
        other: &mut Stack<P>,
        most: u32,
    ) -> u32 {
        let moved = other.move_newest(machine, self.vacant(most as usize));
        // SAFETY: `move_newest` has written as many entries as it says.
        unsafe { self.grow(machine, moved) };
        moved
    }

    /// Takes the newest entries, at most `most`, to be read before the stack is used again.
    pub(crate) fn take_newest<M: Machine>(
        &mut self,
        machine: &M,
        most: usize,
    ) -> &mut [Option<NonNull<u8>>] {
        let taken = most.min(self.ends.len());
        if taken == 0 {
            return &mut [];
        }
        self.ends.top = self.ends.top.wrapping_sub(taken);
        access_run(machine, O::LINE, Access::Read, self.ends.top, taken);
        // SAFETY: the invariant - these entries were filled, and an address is `Some` of it; above the
        // top they may become anything.
        unsafe { core::slice::from_raw_parts_mut(self.ends.top.cast(), taken) }
    }

    /// The oldest entries, at most `most`, to be freed before [`Stack::forget_oldest`] removes them.
    pub(crate) fn oldest<M: Machine>(&self, machine: &M, most: u32) -> &[NonNull<u8>] {
        let filled = self.filled();
        let oldest = &filled[..filled.len().min(most as usize)];
        access_run(
            machine,
            O::LINE,
            Access::Read,
            oldest.as_ptr(),
            oldest.len(),
        );
        oldest
    }

    /// Removes the oldest entries, which the caller has read, and moves the others to their place.
    pub(crate) fn forget_oldest<M: Machine>(&mut self, machine: &M, n: u32) {
        let objects = self.ends.len();
        let n = objects.min(n as usize);
        let (rest, base) = (objects - n, self.ends.base);
        self.ends.top = base.wrapping_add(rest);
        if n == 0 || rest == 0 {
            return;
        }
        let from = base.wrapping_add(n);
        access_run(machine, O::LINE, Access::Read, from, rest);
        access_run(machine, O::LINE, Access::Store, base, rest);
        // SAFETY: the invariant - both ranges are in the filled entries, as n + rest = objects; `copy`
        // allows the overlap.
        unsafe { core::ptr::copy(from, base, rest) };
    }
}
