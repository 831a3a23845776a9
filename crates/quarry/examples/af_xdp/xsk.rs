//! An AF_XDP socket whose frames lie in the caller's memory.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of the rings.
pub(crate) const RING: u32 = 1024;

/// A packet: where it begins, in bytes from the start of the registered memory, and how long it is.
pub(crate) type Packet = libc::xdp_desc;

/// A ring shared with the kernel; one side writes, the other reads.
struct Ring<T> {
    map: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(socket: RawFd, offsets: &libc::xdp_ring_offset, page: i64) -> io::Result<Self> {
        let bytes = offsets.desc as usize + RING as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket,
                page,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast::<u8>()).expect("a mapping");
        // SAFETY: the kernel says where in the mapping its parts are.
        let at = |offset: u64| unsafe { map.byte_add(offset as usize) };
        Ok(Self {
            map,
            bytes,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            entries: at(offsets.desc).cast(),
            of: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as the ring.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the ring has `RING` entries, a power of two.
        unsafe { self.entries.add((index % RING) as usize) }
    }

    /// True if there is room for another entry.
    fn has_room(&self) -> bool {
        let at = self.producer().load(Ordering::Relaxed);
        // Acquire: the kernel has read the entry before it moved on.
        at.wrapping_sub(self.consumer().load(Ordering::Acquire)) != RING
    }

    /// Adds an entry; `false` if the ring is full.
    fn push(&mut self, value: T) -> bool {
        if !self.has_room() {
            return false;
        }
        let at = self.producer().load(Ordering::Relaxed);
        // SAFETY: between consumer and producer lie the filled entries; this one is free, and only
        // this side writes entries.
        unsafe { self.entry(at).write(value) };
        // Release: the entry is written before the kernel sees it.
        self.producer().store(at.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest entry.
    fn pop(&mut self) -> Option<T> {
        let at = self.consumer().load(Ordering::Relaxed);
        // Acquire: the kernel has written the entry before it moved on.
        if at == self.producer().load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the entry is filled, and the kernel does not change it before it is consumed.
        let value = unsafe { self.entry(at).read() };
        // Release: the entry is read before the kernel may fill it again.
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

/// A socket that receives what a program redirects to it.
pub(crate) struct Socket {
    fill: Ring<u64>,
    received: Ring<Packet>,
    // Behind the rings, so that it is closed last.
    fd: OwnedFd,
}

// SAFETY: the rings are only used through `&mut self`, and the kernel does not mind which thread
// that is.
unsafe impl Send for Socket {}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Socket {
    /// Opens a socket in the calling thread's namespace whose frames are the chunks of
    /// `memory..memory + bytes`. The kernel keeps these pages in memory while the socket is open.
    ///
    /// # Safety
    ///
    /// While the socket is open, the socket alone writes to frames that were given to
    /// [`Socket::give`] and did not come out of [`Socket::receive`], and the memory stays mapped.
    pub(crate) unsafe fn open(memory: NonNull<u8>, bytes: usize, frame: u32) -> io::Result<Self> {
        // SAFETY: opens a descriptor.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and no other code knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let umem = libc::xdp_umem_reg {
            addr: memory.addr().get() as u64,
            len: bytes as u64,
            chunk_size: frame,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&fd, libc::XDP_UMEM_REG, &umem)?;
        set(&fd, libc::XDP_UMEM_FILL_RING, &RING)?;
        // The kernel asks for a completion ring, though nothing is sent.
        set(&fd, libc::XDP_UMEM_COMPLETION_RING, &RING)?;
        set(&fd, libc::XDP_RX_RING, &RING)?;
        // SAFETY: all-zero is valid for these numbers.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        Ok(Self {
            fill: Ring::new(
                fd.as_raw_fd(),
                &offsets.fr,
                libc::XDP_UMEM_PGOFF_FILL_RING as i64,
            )?,
            received: Ring::new(fd.as_raw_fd(), &offsets.rx, libc::XDP_PGOFF_RX_RING)?,
            fd,
        })
    }

    /// Binds to queue 0 of an interface; packets are copied into the frames (generic mode).
    pub(crate) fn bind(&self, interface: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the address is readable for its size.
        let bound = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        check(bound)
    }

    /// True if the kernel would take a frame. It may have used some and not have said so yet.
    pub(crate) fn wants(&self) -> bool {
        self.fill.has_room()
    }

    /// Gives the kernel a frame to fill; `false` if it has enough.
    pub(crate) fn give(&mut self, frame: u64) -> bool {
        self.fill.push(frame)
    }

    /// Takes a received packet.
    pub(crate) fn receive(&mut self) -> Option<Packet> {
        self.received.pop()
    }

    /// Waits until there are packets, at most so long. `false` if there are none.
    pub(crate) fn wait(&self, milliseconds: i32) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, valid for the call.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }

    /// Packets that the kernel dropped for want of frames, for want of room in the ring, and for
    /// other reasons.
    pub(crate) fn dropped(&self) -> io::Result<[u64; 3]> {
        // SAFETY: all-zero is valid for these numbers.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get(&self.fd, libc::XDP_STATISTICS, &mut statistics)?;
        Ok([
            statistics.rx_fill_ring_empty_descs,
            statistics.rx_ring_full,
            statistics.rx_dropped + statistics.rx_invalid_descs,
        ])
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value is readable for its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    })
}

fn get<T>(fd: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as u32;
    // SAFETY: the value is writable for its size, and made of numbers.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            std::ptr::from_mut(value).cast(),
            &raw mut bytes,
        )
    })
}
