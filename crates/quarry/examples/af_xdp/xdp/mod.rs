//! Page pools behind AF_XDP: packets from a driver straight into a pool's frames.
//!
//! # 1 Idea and source
//!
//! An AF_XDP socket has its packets in memory of the program (UMEM), cut into frames. The program gives frames by
//! the *fill* ring, and the kernel returns them with packets by the *rx* ring. Here the UMEM is the memory of a page
//! allocator and the frames are a page pool's: its map hook ([`Umem`]) turns a page into an address of the UMEM once, as a
//! driver's pool maps pages for its device. Written from `Documentation/networking/af_xdp.rst`.
//!
//! # 2 States of a frame
//!
//! home -> *given* (in the fill ring, in the driver, or in the rx ring) -> the program's, as a [`Buffer`] -> home, from
//! whichever thread drops it. The pool counts given frames as in flight.
//!
//! # 3 Invariants
//!
//! * **I1** A frame is given by value: its page has a bit in `given`, and no code reaches its memory. The bit goes, and the
//!   frame is made again, when the kernel returns a packet in it, once.
//! * **I2** Nothing says when the kernel has written to a closed socket's frames for the last time, and a copy of the
//!   descriptor keeps the socket open. So frames that are given when the socket is dropped stay in flight for ever,
//!   and their pool pending.
//! * **I3** The rings belong to the process that opened the socket. A child of a fork gives and receives nothing.
//!
//! # 4 Limits
//!
//! Frames of one page, of the system's page size; copy mode, which every driver has; receiving only. The pages of a UMEM
//! are pinned when the socket opens. If the heap gives memory back to the system (`trim`) afterwards, packets in those
//! pages do not arrive.

mod error;
mod ring;

pub(crate) use error::XdpError;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use quarry::kernel::page::Pfn;
use quarry::kernel::pool::Mapper;
use quarry::{Buffer, Era, HostMachine, PageAllocator, PagePool, PendingPool, PoolParams};

use ring::Ring;

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

/// Parameters of an [`XdpSocket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpParams {
    /// Number of the interface (`if_nametoindex(3)`), in the calling thread's network namespace.
    pub(crate) interface: u32,
    /// The interface's queue.
    pub(crate) queue: u32,
    /// Entries of a ring, a power of two, and most frames that the kernel has.
    pub(crate) frames: u32,
}

impl Default for XdpParams {
    fn default() -> Self {
        Self {
            interface: 0,
            queue: 0,
            frames: 1024,
        }
    }
}

/// Packets that the kernel dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// For want of frames.
    pub(crate) no_frame: u64,
    /// For want of room in the rx ring.
    pub(crate) no_room: u64,
    /// For other reasons.
    pub(crate) others: u64,
}

/// An AF_XDP socket that receives into the frames of a page pool.
///
/// A program in the kernel decides which packets it gets: attach one that redirects them to the socket's descriptor
/// ([`AsFd`]).
pub(crate) struct XdpSocket {
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    pool: PagePool<Umem>,
    /// A bit for each page of the UMEM that the kernel has (I1).
    given: Box<[u64]>,
    given_len: u32,
    params: XdpParams,
    /// The process that opened it (I3).
    process: u32,
    // Behind the rings, so that it is closed last.
    fd: OwnedFd,
}

impl XdpSocket {
    /// Opens a socket on an interface's queue. All pages of the allocator become its UMEM, which the kernel keeps in memory
    /// while the socket is open.
    ///
    /// # Errors
    ///
    /// [`XdpError`], with the next step in its message.
    pub(crate) fn open(
        pages: &'static PageAllocator<HostMachine>,
        era: Era,
        pool: &PoolParams<'_>,
        params: &XdpParams,
    ) -> Result<Self, XdpError> {
        if pool.order != 0 {
            return Err(XdpError::Order(pool.order));
        }
        let base = pages.address(Pfn(0)).expect("a machine has a page");
        let umem = Umem {
            base: base.addr().get(),
        };
        let pool = PagePool::new_mapped(pages, era, pool, umem).map_err(XdpError::Pool)?;
        let count = pages.pages() as usize;

        // SAFETY: opens a descriptor.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(XdpError::refused("socket(AF_XDP)")(
                io::Error::last_os_error(),
            ));
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
        set(&fd, libc::XDP_UMEM_REG, &umem).map_err(XdpError::refused("XDP_UMEM_REG"))?;
        let len = params.frames;
        set(&fd, libc::XDP_UMEM_FILL_RING, &len)
            .map_err(XdpError::refused("XDP_UMEM_FILL_RING"))?;
        // The kernel asks for a completion ring, though nothing is sent.
        set(&fd, libc::XDP_UMEM_COMPLETION_RING, &len)
            .map_err(XdpError::refused("XDP_UMEM_COMPLETION_RING"))?;
        set(&fd, libc::XDP_RX_RING, &len).map_err(XdpError::refused("XDP_RX_RING"))?;
        // SAFETY: all-zero is valid for these numbers.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)
            .map_err(XdpError::refused("XDP_MMAP_OFFSETS"))?;
        let position = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        // SAFETY: the socket's fill ring, which has addresses.
        let fill = unsafe { Ring::map(fd.as_fd(), &offsets.fr, position, len) };
        let fill = fill.map_err(XdpError::refused("mmap of the fill ring"))?;
        // SAFETY: the socket's rx ring, which has descriptors.
        let received = unsafe { Ring::map(fd.as_fd(), &offsets.rx, libc::XDP_PGOFF_RX_RING, len) };
        let received = received.map_err(XdpError::refused("mmap of the rx ring"))?;
        let socket = Self {
            fill,
            received,
            pool,
            given: vec![0; count.div_ceil(64)].into(),
            given_len: 0,
            params: *params,
            process: std::process::id(),
            fd,
        };
        socket.bind().map_err(XdpError::refused("bind"))?;
        Ok(socket)
    }

    fn bind(&self) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: self.params.interface,
            sxdp_queue_id: self.params.queue,
            sxdp_shared_umem_fd: 0,
        };
        let bytes = size_of_val(&address) as u32;
        // SAFETY: the address is readable for its size.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), bytes) })
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The pool.
    #[must_use]
    pub(crate) fn pool(&self) -> &PagePool<Umem> {
        &self.pool
    }

    /// Takes a packet's frame back without the pool's ring, as [`PagePool::recycle`].
    pub(crate) fn recycle(&mut self, packet: Buffer<Umem>) {
        if let Ok(frame) = packet.into_frame() {
            self.pool.recycle(frame);
        }
    }

    /// Frames that the kernel has: those without a packet, and packets that were not received yet.
    #[must_use]
    pub(crate) fn given(&self) -> u32 {
        self.given_len
    }

    /// Gives the kernel frames until it has as many as a ring has entries. Returns the number of frames that it has:
    /// fewer if memory is exhausted.
    #[track_caller]
    pub(crate) fn refill(&mut self) -> u32 {
        let is_ours = self.is_ours();
        while is_ours && self.given_len < self.params.frames && self.fill.has_room() {
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
    pub(crate) fn receive(&mut self) -> Option<Buffer<Umem>> {
        if !self.is_ours() {
            return None;
        }
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
                if let Some(packet) = frame.filled(0).written_at(start, packet.len as usize) {
                    return Some(packet);
                }
            }
        }
    }

    /// Closes the socket, and gives the pool up with all frames that are home.
    ///
    /// # Errors
    ///
    /// [`PendingPool`] while frames are in flight, as those are that the kernel had.
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
    ///
    /// # Errors
    ///
    /// The system's (`poll(2)`), `Interrupted` by a signal among them.
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

    /// Packets that the kernel dropped since the socket was opened.
    ///
    /// # Errors
    ///
    /// The system's (`getsockopt(2)`).
    pub(crate) fn dropped(&self) -> io::Result<Dropped> {
        // SAFETY: all-zero is valid for these numbers.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get(&self.fd, libc::XDP_STATISTICS, &mut statistics)?;
        Ok(Dropped {
            no_frame: statistics.rx_fill_ring_empty_descs,
            no_room: statistics.rx_ring_full,
            others: statistics.rx_dropped + statistics.rx_invalid_descs,
        })
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for XdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (queue, interface) = (self.params.queue, self.params.interface);
        let given = self.given_len;
        write!(
            f,
            "XdpSocket(queue {queue} of interface {interface}, {given} frames given)"
        )
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
