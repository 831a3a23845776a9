//! A socket of AF_XDP: packets from a driver straight into a page pool's frames.
//!
//! # 1 Idea and source
//!
//! An AF_XDP socket has its packets in memory of the program (UMEM), cut into frames. The program gives frames by
//! the *fill* ring, and the kernel returns them with packets by the *rx* ring. Here the UMEM is the memory of a page
//! allocator and the frames are a page pool's: its map hook ([`Umem`]) turns a page into an address of the UMEM once, as a
//! driver's pool maps pages for its device. Written from `Documentation/networking/af_xdp.rst`.
//!
//! # 2 Invariants
//!
//! * **I1** A frame is given by value: its page has a bit in `given`, and no code reaches its memory. The bit goes, and the
//!   frame is made again, when the kernel returns a packet in it, once.
//! * **I2** Nothing says when the kernel has written to a closed socket's frames for the last time, and a copy of the
//!   descriptor keeps the socket open. So frames that are given when the socket is dropped stay in flight for ever,
//!   and their pool pending.
//!
//! # 3 Limits
//!
//! Frames of one page, of the system's page size; copy mode, which every driver has; receiving only, on queue 0, in the
//! process that opened the socket. The pages of a UMEM are pinned when the socket opens. If the heap gives memory back to
//! the system (`trim`) afterwards, packets in those pages do not arrive.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use quarry::{
    Era, Frame, HostMachine, Mapper, PageAllocator, PagePool, PendingPool, Pfn, PoolParams,
};

use super::ring::Ring;

/// The mapper of a socket's pool: a frame's address in the UMEM.
#[derive(Debug)]
pub(crate) struct Umem {
    base: usize,
}

impl Mapper for Umem {
    fn map(&self, block: NonNull<u8>, _bytes: usize) -> Option<u64> {
        Some((block.addr().get() - self.base) as u64)
    }

    fn unmap(&self, _mapping: u64, _bytes: usize) {}
}

/// A packet in the frame that the kernel wrote it to; dropped by any thread, the frame is home.
pub(crate) struct Packet {
    frame: Frame<Umem>,
    start: usize,
    bytes: usize,
}

impl Deref for Packet {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame[self.start..self.start + self.bytes]
    }
}

/// An AF_XDP socket that receives into the frames of a page pool. A program in the kernel decides which packets it gets.
pub(crate) struct XdpSocket {
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    pool: PagePool<Umem>,
    /// A bit for each page of the UMEM that the kernel has (I1).
    given: Box<[u64]>,
    given_len: u32,
    /// Entries of a ring, and most frames that the kernel has.
    frames: u32,
    // Behind the rings, so that it is closed last.
    fd: OwnedFd,
}

impl XdpSocket {
    /// Opens a socket on an interface, given by its number in the calling thread's network namespace. All pages of the
    /// allocator become its UMEM, which the kernel keeps in memory while the socket is open. `frames` is a power of two.
    pub(crate) fn open(
        pages: &'static PageAllocator<HostMachine>,
        pool: &PoolParams<'_>,
        interface: u32,
        frames: u32,
    ) -> Result<Self, String> {
        assert_eq!(pool.order, 0, "a UMEM has frames of one page");
        let base = pages.address(Pfn(0)).expect("a machine has a page");
        let umem = Umem {
            base: base.addr().get(),
        };
        let pool = PagePool::new_mapped(pages, Era::V6_18, pool, umem);
        let pool = pool.map_err(|error| error.to_string())?;
        let count = pages.pages() as usize;

        // SAFETY: opens a descriptor.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(refused("socket(AF_XDP)")(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and no other code knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let umem = libc::xdp_umem_reg {
            addr: base.addr().get() as u64,
            len: (count * pool.frame_bytes()) as u64,
            chunk_size: pool.frame_bytes() as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        // The kernel writes to frames that are given to it, no others (I1).
        set(&fd, libc::XDP_UMEM_REG, &umem).map_err(refused("XDP_UMEM_REG"))?;
        let len = frames;
        set(&fd, libc::XDP_UMEM_FILL_RING, &len).map_err(refused("XDP_UMEM_FILL_RING"))?;
        // The kernel asks for a completion ring, though nothing is sent.
        set(&fd, libc::XDP_UMEM_COMPLETION_RING, &len)
            .map_err(refused("XDP_UMEM_COMPLETION_RING"))?;
        set(&fd, libc::XDP_RX_RING, &len).map_err(refused("XDP_RX_RING"))?;
        // SAFETY: all-zero is valid for these numbers.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets).map_err(refused("XDP_MMAP_OFFSETS"))?;
        let position = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        // SAFETY: the socket's fill ring, which has addresses.
        let fill = unsafe { Ring::map(fd.as_fd(), &offsets.fr, position, len) };
        let fill = fill.map_err(refused("mmap of the fill ring"))?;
        // SAFETY: the socket's rx ring, which has descriptors.
        let received = unsafe { Ring::map(fd.as_fd(), &offsets.rx, libc::XDP_PGOFF_RX_RING, len) };
        let received = received.map_err(refused("mmap of the rx ring"))?;
        let socket = Self {
            fill,
            received,
            pool,
            given: vec![0; count.div_ceil(64)].into(),
            given_len: 0,
            frames,
            fd,
        };
        socket.bind(interface).map_err(refused("bind"))?;
        Ok(socket)
    }

    fn bind(&self, interface: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let bytes = size_of_val(&address) as u32;
        // SAFETY: the address is readable for its size.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), bytes) })
    }

    pub(crate) fn pool(&self) -> &PagePool<Umem> {
        &self.pool
    }

    /// Takes a packet's frame back without the pool's ring.
    pub(crate) fn recycle(&mut self, packet: Packet) {
        self.pool.recycle(packet.frame);
    }

    /// Frames that the kernel has: those without a packet, and packets that were not received yet.
    pub(crate) fn given(&self) -> u32 {
        self.given_len
    }

    /// Gives the kernel frames until it has as many as a ring has entries. Returns the number of frames that it has:
    /// fewer if memory is exhausted.
    pub(crate) fn refill(&mut self) -> u32 {
        while self.given_len < self.frames && self.fill.has_room() {
            let Some(frame) = self.pool.alloc() else {
                break;
            };
            let Some(address) = self.pool.mapping_of(&frame) else {
                break;
            };
            let page = frame.into_raw().0 as usize;
            self.given[page / 64] |= 1 << (page % 64);
            self.given_len += 1;
            // There is room. Else the frame would be lost, and nothing worse.
            self.fill.push(address);
        }
        self.given_len
    }

    /// Takes the next packet, without waiting.
    pub(crate) fn receive(&mut self) -> Option<Packet> {
        loop {
            let packet = self.received.pop()?;
            let bytes = self.pool.frame_bytes() as u64;
            let (page, start) = (
                (packet.addr / bytes) as usize,
                (packet.addr % bytes) as usize,
            );
            let word = self.given.get_mut(page / 64)?;
            let bit = 1 << (page % 64);
            // A page that was not given is none of a correct kernel's.
            if *word & bit != 0 {
                *word &= !bit;
                self.given_len -= 1;
                // SAFETY: `refill` made the number of a frame of this pool and set the bit, which has just been cleared (I1).
                let frame = unsafe { self.pool.from_raw(Pfn(page as u32)) };
                let bytes = packet.len as usize;
                if start + bytes <= frame.len() {
                    return Some(Packet {
                        frame,
                        start,
                        bytes,
                    });
                }
            }
        }
    }

    /// Closes the socket, and gives the pool up with all frames that are home.
    pub(crate) fn destroy(self) -> Result<(), PendingPool<Umem>> {
        let Self {
            fill,
            received,
            pool,
            fd,
            ..
        } = self;
        drop((fill, received, fd));
        pool.destroy()
    }

    /// Waits for packets. `false` if none came in time.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = time.as_millis().try_into().unwrap_or(i32::MAX);
        // SAFETY: one entry, valid for the call.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }

    /// Packets that the kernel dropped since the socket was opened, by reason, as a line for people.
    pub(crate) fn dropped(&self) -> io::Result<String> {
        // SAFETY: all-zero is valid for these numbers.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get(&self.fd, libc::XDP_STATISTICS, &mut statistics)?;
        let (no_frame, no_room) = (statistics.rx_fill_ring_empty_descs, statistics.rx_ring_full);
        let others = statistics.rx_dropped + statistics.rx_invalid_descs;
        Ok(format!(
            "dropped: {no_frame} without a frame, {no_room} without room in the ring, {others} others"
        ))
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Message of a refused call, with the next step.
fn refused(call: &'static str) -> impl FnOnce(io::Error) -> String {
    move |error| {
        let next_step = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "run it as root, or with CAP_NET_RAW",
            Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
            Some(libc::ENODEV) => "there is no such interface",
            Some(libc::ENOMEM | libc::ENOBUFS) => "raise the limit of locked memory (`ulimit -l`)",
            _ => "see Documentation/networking/af_xdp.rst of the kernel",
        };
        format!("{call}: {error}; {next_step}")
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (fd, bytes) = (fd.as_raw_fd(), size_of::<T>() as u32);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value is readable for its size.
    check(unsafe { libc::setsockopt(fd, libc::SOL_XDP, option, value, bytes) })
}

fn get<T>(fd: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let (fd, mut bytes) = (fd.as_raw_fd(), size_of::<T>() as u32);
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the value is writable for its size, and made of numbers.
    check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, value, &raw mut bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs no privileges: without them, the first call is refused.
    #[test]
    fn errors_name_the_call_and_the_next_step() {
        let heap = quarry::Builder::<quarry::Slub>::new().memory_bytes(1 << 20);
        let heap = heap.build().expect("a heap").leak();
        let socket = XdpSocket::open(heap.pages(), &PoolParams::default(), 0, 1024);
        let text = socket.map(drop).expect_err("there is no interface 0");
        let known = [
            "socket(AF_XDP): Operation not permitted (os error 1); run it as root, or with CAP_NET_RAW",
            "socket(AF_XDP): Address family not supported by protocol (os error 97); this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
            "bind: No such device (os error 19); there is no such interface",
        ];
        assert!(known.contains(&&*text), "{text}");
    }
}
