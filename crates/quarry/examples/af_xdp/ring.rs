//! A ring that a socket shares with the kernel: one side writes, the other reads.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The mapping of a ring's memory.
pub(super) struct Ring<T> {
    map: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// A power of two.
    len: u32,
    of: PhantomData<T>,
}

// SAFETY: the mapping is the ring's alone, and its owner works on it through `&mut self`; entries are numbers.
unsafe impl<T: Copy + Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of a socket that has `len` entries.
    ///
    /// # Safety
    ///
    /// The kernel gave the offsets for this ring of the socket, at this position, and its entries are `T`s.
    pub(super) unsafe fn map(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        position: libc::off_t,
        len: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + len as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                position,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast::<u8>()).expect("a mapping is not at address 0");
        // SAFETY: the kernel's offsets of this ring are in the mapping, by the caller's contract.
        let at = |offset: u64| unsafe { map.byte_add(offset as usize) };
        Ok(Self {
            map,
            bytes,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            entries: at(offsets.desc).cast(),
            len,
            of: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as the ring.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as the ring.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mapping has `len` entries.
        unsafe { self.entries.add((index & (self.len - 1)) as usize) }
    }

    /// True if there is room for another entry.
    pub(super) fn has_room(&self) -> bool {
        let at = self.producer().load(Ordering::Relaxed);
        // Acquire: pairs with the kernel's release; it has read the entry before it moved on.
        at.wrapping_sub(self.consumer().load(Ordering::Acquire)) < self.len
    }

    /// Adds an entry; `false` if the ring is full.
    pub(super) fn push(&mut self, value: T) -> bool {
        if !self.has_room() {
            return false;
        }
        let at = self.producer().load(Ordering::Relaxed);
        // SAFETY: the entries from consumer to producer are the kernel's; this one is not, and only this side writes.
        unsafe { self.entry(at).write(value) };
        // Release: pairs with the kernel's acquire; the entry is written before it is seen.
        self.producer().store(at.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let at = self.consumer().load(Ordering::Relaxed);
        // Acquire: pairs with the kernel's release; it has written the entry before it moved on.
        if at == self.producer().load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the entry is written, and the kernel does not change it before it is consumed.
        let value = unsafe { self.entry(at).read() };
        // Release: pairs with the kernel's acquire; the entry is read before it is written again.
        self.consumer().store(at.wrapping_add(1), Ordering::Release);
        Some(value)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and nothing else points into it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.bytes) };
    }
}
