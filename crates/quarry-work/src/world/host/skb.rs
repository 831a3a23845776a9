//! Socket buffers of real memory.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use quarry_core::design::Design;
use quarry_core::heap::OwnedObject;
use quarry_core::page::OwnedBlock;
use quarry_host::HostMachine;

use super::kernel::{HostTask, Kernel};
use crate::net::DataFrom;
use crate::world::Over;
use crate::world::skb::HeadKind;

/// Bytes of the shared info that are cleared with a buffer.
const SHARED_CLEARED_BYTES: usize = 32;

/// A block of pages. Several buffers may share it, so a lock stands between the copies.
pub(super) type Block<'h> = Arc<Mutex<OwnedBlock<'h, HostMachine>>>;

/// A part of a block.
pub(super) struct Fragment<'h> {
    pub(super) block: Block<'h>,
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// A socket buffer. Data goes before the head, as in a kernel.
pub(super) struct Skb<'h, D: Design> {
    /// Behind the linear bytes.
    pub(super) fragments: Vec<Fragment<'h>>,
    data: OwnedObject<'h, HostMachine, D>,
    _head: OwnedObject<'h, HostMachine, D>,
    /// Bytes in the data area, and in all.
    pub(super) linear: usize,
    pub(super) bytes: usize,
    /// Word of the message that its first byte begins; 0 in the message's later buffers.
    pub(super) word: u64,
    /// Bytes for which it counts in its socket's send buffer.
    pub(super) true_size: u32,
}

/// A buffer that its receiver alone has, or its sender, too, until it is acknowledged.
///
/// Only the second is counted by an `Arc`, which the process's own allocator allocates and another thread frees: that would cost
/// more than all else of a message through a Unix socket.
pub(super) enum Held<'h, D: Design> {
    Alone(Skb<'h, D>),
    Shared(Arc<Skb<'h, D>>),
}

impl<'h, D: Design> Deref for Held<'h, D> {
    type Target = Skb<'h, D>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Alone(skb) => skb,
            Self::Shared(skb) => skb,
        }
    }
}

/// A buffer in a receiver's queue.
pub(super) struct Queued<'h, D: Design> {
    pub(super) skb: Held<'h, D>,
    /// Bytes that were read.
    pub(super) taken: usize,
}

/// Copies bytes into memory at a place.
fn copy_in(memory: &mut [MaybeUninit<u8>], at: usize, from: &[MaybeUninit<u8>]) {
    memory[at..at + from.len()].copy_from_slice(from);
}

impl<'h, D: Design> Kernel<'h, D> {
    /// A buffer with bytes of the task's in its data area.
    pub(super) fn alloc_skb(
        &self,
        task: &HostTask<'_, 'h, D>,
        kind: HeadKind,
        from: DataFrom,
        linear: usize,
    ) -> Result<Skb<'h, D>, Over> {
        let rules = &self.rules;
        let head = self.caches.of_head(kind).alloc_owned();
        let mut head = head.ok_or_else(|| self.exhausted())?;
        let data = match (from, &self.caches.small_head) {
            (DataFrom::SmallHead, Some(cache)) => cache.alloc_owned(),
            (from, _) => self.heap.kmalloc_owned(rules.bytes(from) as usize),
        };
        let mut data = data.ok_or_else(|| self.exhausted())?;
        let zero = MaybeUninit::new(0);
        head.as_uninit_bytes_mut()[..rules.head_bytes as usize].fill(zero);
        let memory = data.as_uninit_bytes_mut();
        copy_in(memory, 0, &task.buffer()[..linear]);
        let shared = (rules.bytes(from) - rules.shared_info) as usize;
        memory[shared..shared + SHARED_CLEARED_BYTES].fill(zero);
        Ok(Skb {
            fragments: Vec::new(),
            data,
            _head: head,
            linear,
            bytes: linear,
            word: 0,
            true_size: rules.true_size(from),
        })
    }

    /// A block of 2^order pages to cut fragments from.
    pub(super) fn alloc_block(&self, order: u32) -> Result<Block<'h>, Over> {
        let block = self.heap.pages().alloc_owned(order);
        let block = block.ok_or_else(|| self.exhausted())?;
        Ok(Arc::new(Mutex::new(block)))
    }

    /// Copies bytes of the task's to a block.
    pub(super) fn copy_to_block(
        &self,
        task: &HostTask<'_, 'h, D>,
        block: &Block<'h>,
        at: usize,
        bytes: usize,
    ) {
        let mut block = block.lock().unwrap_or_else(PoisonError::into_inner);
        copy_in(block.as_uninit_bytes_mut(), at, &task.buffer()[..bytes]);
    }

    /// Copies bytes of a block to the task.
    pub(super) fn copy_from_block(
        &self,
        task: &HostTask<'_, 'h, D>,
        block: &Block<'h>,
        at: usize,
        bytes: usize,
    ) {
        let mut block = block.lock().unwrap_or_else(PoisonError::into_inner);
        let from = &block.as_uninit_bytes_mut()[at..at + bytes];
        task.buffer_mut()[..bytes].copy_from_slice(from);
    }

    /// Copies what a buffer has from one of its bytes on to the task, `most` at most. Returns the number of bytes.
    pub(super) fn take(
        &self,
        task: &HostTask<'_, 'h, D>,
        queued: &mut Queued<'h, D>,
        most: usize,
    ) -> usize {
        let skb = &queued.skb;
        let bytes = most.min(skb.bytes - queued.taken);
        let end = queued.taken + bytes;
        if queued.taken < skb.linear {
            let from = &skb.data.as_uninit_bytes()[queued.taken..skb.linear.min(end)];
            task.buffer_mut()[..from.len()].copy_from_slice(from);
        }
        let mut first = skb.linear;
        for fragment in &skb.fragments {
            let last = first + fragment.bytes;
            let (from, to) = (queued.taken.max(first), end.min(last));
            if from < to {
                let at = fragment.at + from - first;
                self.copy_from_block(task, &fragment.block, at, to - from);
            }
            first = last;
        }
        queued.taken = end;
        bytes
    }
}
