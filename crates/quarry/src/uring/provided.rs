//! The ring of provided buffers: entries that the kernel reads, and the frames behind them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use quarry_core::machine::Cpus as _;
use quarry_core::page::OwnedBlock;
use quarry_core::pool::Mapper;
use quarry_host::HostMachine;

use super::error::RingError;
use super::{BUFFER_GROUP, RingParams};
use crate::{Buffer, PagePool};

/// Most entries of a buffer ring.
const BUFFERS_MAX: u16 = 1 << 15;

/// Provided buffers. It is dropped after the ring was unregistered and all operations have ended (I3).
pub(super) struct Provided<H: Mapper> {
    /// The entries' memory, whole pages as the kernel wants them.
    _block: OwnedBlock<'static, HostMachine>,
    entries: NonNull<BufRingEntry>,
    /// Position of the next entry to write, which the kernel knows modulo the length.
    tail: u16,
    /// Buffers that the kernel has, by their ids (I1).
    slots: Box<[Option<Buffer<H>>]>,
    /// Ids of no buffer.
    empty: Vec<u16>,
    fragment_bytes: Option<u32>,
}

// SAFETY: the entries are in the block, which may be sent, and only `&mut self` writes to them.
unsafe impl<H: Mapper + Send + Sync> Send for Provided<H> {}

impl<H: Mapper> Provided<H> {
    /// Memory for the entries, not registered yet.
    pub(super) fn new(pool: &PagePool<H>, params: &RingParams) -> Result<Self, RingError> {
        let buffers = Some(params.buffers).filter(|buffers| (1..=BUFFERS_MAX).contains(buffers));
        let buffers = buffers.ok_or(RingError::Buffers(params.buffers))?;
        let buffers = buffers.next_power_of_two();
        let bytes = usize::from(buffers) * size_of::<BufRingEntry>();
        let page_shift = pool.pages().machine().topology().page_shift;
        let order = bytes.div_ceil(1 << page_shift).next_power_of_two().ilog2();
        let block = pool.pages().alloc_owned(order);
        let mut block = block.ok_or(RingError::Memory)?;
        block
            .as_uninit_bytes_mut()
            .fill(std::mem::MaybeUninit::new(0));
        Ok(Self {
            entries: block.address().cast(),
            _block: block,
            tail: 0,
            slots: (0..buffers).map(|_| None).collect(),
            empty: (0..buffers).rev().collect(),
            fragment_bytes: params.fragment_bytes,
        })
    }

    /// Tells the kernel of the entries.
    pub(super) fn register(&self, uring: &IoUring) -> Result<(), RingError> {
        let address = self.entries.addr().get() as u64;
        let submitter = uring.submitter();
        // SAFETY: the entries are valid until the ring is unregistered (the type's contract).
        let registered = unsafe {
            submitter.register_buf_ring_with_flags(
                address,
                self.slots.len() as u16,
                BUFFER_GROUP,
                0,
            )
        };
        registered.map_err(RingError::refused("io_uring_register_buf_ring"))
    }

    /// Buffers that the kernel has.
    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.empty.len()
    }

    /// True if half of the ring or more is empty: it is refilled before the next submission.
    pub(super) fn is_low(&self) -> bool {
        self.empty.len() * 2 >= self.slots.len()
    }

    /// Gives the kernel buffers of the pool in the place of those that it filled. False if it got none, and has none.
    #[track_caller]
    pub(super) fn refill(&mut self, pool: &mut PagePool<H>) -> bool {
        let before = self.tail;
        while let Some(&id) = self.empty.last() {
            let buffer = match self.fragment_bytes {
                None => pool.alloc().map(|frame| frame.filled(0)),
                Some(bytes) => pool.alloc_fragment(bytes).ok().map(|piece| piece.filled(0)),
            };
            let Some(buffer) = buffer else { break };
            self.empty.pop();
            self.write(id, &buffer);
            self.slots[usize::from(id)] = Some(buffer);
            self.tail = self.tail.wrapping_add(1);
        }
        if self.tail != before {
            self.publish();
        }
        self.held() > 0
    }

    /// Writes the next entry.
    fn write(&mut self, id: u16, buffer: &Buffer<H>) {
        let at = usize::from(self.tail) & (self.slots.len() - 1);
        // SAFETY: the block has room for as many entries as there are slots, a power of two.
        let mut entry = unsafe { self.entries.add(at) };
        // SAFETY: the entry is initialised, by the zeros of `new` at least. The kernel reads entries up to the published
        // tail; this one is behind it and in no other's place, because there are no more ids than entries. The tail's own
        // bytes, in the first entry, are written by this thread alone.
        let entry = unsafe { entry.as_mut() };
        let memory = buffer.all();
        entry.set_addr(memory.cast::<u8>().addr().get() as u64);
        entry.set_len(memory.len() as u32);
        entry.set_bid(id);
    }

    /// Lets the kernel see the entries up to the tail.
    fn publish(&mut self) {
        // SAFETY: the address of the first entry, which is initialised.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: an aligned word of the block, which this side only writes atomically while the kernel may read it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's acquiring load; the entries are written before it sees them.
        tail.store(self.tail, Ordering::Release);
    }

    /// The buffer that the kernel filled and gave back.
    pub(super) fn take(&mut self, id: u16) -> Option<Buffer<H>> {
        let buffer = self.slots.get_mut(usize::from(id))?.take()?;
        self.empty.push(id);
        Some(buffer)
    }
}
