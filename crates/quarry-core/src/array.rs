//! An array of free objects that CPUs share, behind a lock: SLAB's shared and alien arrays, the shared
//! queues of SLUB+Queuing.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::machine::{Access, Line, Machine, access};
use crate::stack::{OfNode, Stack};

/// A stack of objects in memory that its cache took from elsewhere. Each change accounts its head, which
/// the lock protects, besides the entries.
pub(crate) struct Array {
    /// Block that holds the entries; `None` without an array.
    block: Option<NonNull<u8>>,
    stack: Stack<OfNode>,
    /// It was used since the last expiry, as its cache counts.
    pub(crate) touched: bool,
}

// SAFETY: the block is memory that only the array's holder uses.
unsafe impl Send for Array {}

impl Array {
    pub(crate) const NONE: Self = Self {
        block: None,
        stack: Stack::NONE,
        touched: false,
    };

    /// An empty array with room for `limit` objects behind the first `header` bytes of a block.
    ///
    /// # Safety
    ///
    /// The block has that much room, aligned for addresses, and nothing else uses it until
    /// [`Array::into_block`] returns it.
    pub(crate) unsafe fn new(block: NonNull<u8>, header: usize, limit: u32) -> Self {
        // SAFETY: the caller gives a block that is longer than its header.
        let entries = unsafe { block.byte_add(header) };
        Self {
            block: Some(block),
            // SAFETY: behind the header the block has room for `limit` entries, all this array's.
            stack: unsafe { Stack::new(entries.cast(), 0, limit) },
            touched: false,
        }
    }

    /// The block, of an array that is empty.
    pub(crate) fn into_block(self) -> Option<NonNull<u8>> {
        debug_assert!(self.stack.is_empty(), "objects would be lost");
        self.block
    }

    /// Takes the array away if it is empty.
    pub(crate) fn take_if_empty(&mut self) -> Self {
        match self.stack.is_empty() {
            true => core::mem::replace(self, Self::NONE),
            false => Self::NONE,
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.block.is_none()
    }

    /// Room for objects.
    pub(crate) fn limit(&self) -> u32 {
        self.stack.room()
    }

    /// Objects in the array.
    pub(crate) fn avail(&self) -> u32 {
        self.stack.objects()
    }

    /// True if there is room for another object.
    pub(crate) fn has_room(&self) -> bool {
        !self.stack.is_full()
    }

    /// The objects, oldest first, for checks; not accounted.
    pub(crate) fn filled(&self) -> &[NonNull<u8>] {
        self.stack.filled()
    }

    /// The newest object; not accounted.
    pub(crate) fn newest(&self) -> Option<NonNull<u8>> {
        self.stack.newest()
    }

    /// Accounts the head and lends the stack.
    fn change<M: Machine>(&mut self, machine: &M) -> &mut Stack<OfNode> {
        if !self.is_none() {
            access(
                machine,
                Line::Node,
                Access::Write,
                core::ptr::from_ref(self),
            );
        }
        &mut self.stack
    }

    /// Adds an object; `false` if there is no room.
    pub(crate) fn push<M: Machine>(&mut self, machine: &M, object: NonNull<u8>) -> bool {
        self.change(machine).push(machine, object)
    }

    /// Takes the newest object.
    pub(crate) fn pop<M: Machine>(&mut self, machine: &M) -> Option<NonNull<u8>> {
        self.change(machine).pop(machine)
    }

    /// [`Stack::append`].
    pub(crate) fn append<M: Machine>(&mut self, machine: &M, objects: &[NonNull<u8>]) -> u32 {
        self.change(machine).append(machine, objects)
    }

    /// [`Stack::move_newest`].
    pub(crate) fn move_newest<M: Machine>(
        &mut self,
        machine: &M,
        room: &mut [MaybeUninit<NonNull<u8>>],
    ) -> u32 {
        self.change(machine).move_newest(machine, room)
    }

    /// Moves the newest objects, at most `most`, to a CPU's stack in their order. Returns how many.
    pub(crate) fn give<M: Machine>(&mut self, machine: &M, to: &mut Stack, most: u32) -> u32 {
        to.take_from(machine, self.change(machine), most)
    }

    /// Moves the newest objects of another array here in their order, while there is room. Returns
    /// how many.
    pub(crate) fn take_from<M: Machine>(&mut self, machine: &M, other: &mut Self) -> u32 {
        if !self.has_room() {
            return 0;
        }
        let from = other.change(machine);
        self.change(machine).take_from(machine, from, u32::MAX)
    }

    /// [`Stack::oldest`].
    pub(crate) fn oldest<M: Machine>(&self, machine: &M, most: u32) -> &[NonNull<u8>] {
        self.stack.oldest(machine, most)
    }

    /// [`Stack::forget_oldest`].
    pub(crate) fn forget_oldest<M: Machine>(&mut self, machine: &M, n: u32) {
        if n > 0 {
            self.change(machine).forget_oldest(machine, n);
        }
    }
}
