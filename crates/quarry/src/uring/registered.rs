//! Registered ("fixed") buffers: frames that the kernel has pinned once, by their place in its table.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use io_uring::IoUring;
use quarry_core::era::Era;
use quarry_core::page::PageAllocator;
use quarry_core::pool::{Mapper, PoolParams};
use quarry_host::HostMachine;

#[cfg(doc)]
use super::Outcome;
use super::error::RingError;
use super::operations::{Kind, Operation};
use super::{Ring, RingParams, open};
use crate::forks::Maker;
use crate::{Buffer, Frame, PagePool};

/// Most registered buffers of an io_uring.
const BUFFERS_MAX: u32 = 1 << 14;

/// The mapper of pools whose frames are registered buffers ([`Ring::with_registered`](super::Ring::with_registered)):
/// a frame is registered when its page comes into the pool, and stays so while it circulates.
pub struct RegisteredBuffers {
    uring: Arc<IoUring>,
    /// A bit for each place of the table that is taken: puts of signal handlers may change it, too.
    taken: [AtomicU64; BUFFERS_MAX as usize / 64],
    /// Errno of the last registration that failed.
    error: Arc<AtomicI32>,
    maker: Maker,
}

impl RegisteredBuffers {
    /// Makes an empty table in the kernel.
    pub(super) fn new(uring: Arc<IoUring>, maker: Maker) -> Result<Self, RingError> {
        let made = uring.submitter().register_buffers_sparse(BUFFERS_MAX);
        made.map_err(RingError::refused("io_uring_register_buffers_sparse"))?;
        Ok(Self {
            uring,
            taken: [const { AtomicU64::new(0) }; BUFFERS_MAX as usize / 64],
            error: Arc::default(),
            maker,
        })
    }

    /// Takes a place of the table.
    fn take(&self) -> Option<u32> {
        for (at, word) in self.taken.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let free = bits.trailing_ones();
                // Acquire: pairs with the Release in `give_back`; the place's last registration has ended.
                bits = word.fetch_or(1 << free, Ordering::Acquire);
                if bits & 1 << free == 0 {
                    return Some(at as u32 * 64 + free);
                }
            }
        }
        None
    }

    fn give_back(&self, place: u32) {
        let word = &self.taken[place as usize / 64];
        // Release: pairs with the Acquire in `take`.
        word.fetch_and(!(1 << (place % 64)), Ordering::Release);
    }

    /// Writes a place of the kernel's table.
    ///
    /// # Safety
    ///
    /// The memory is a frame that stays mapped and its pool's until the place is written again, or empty.
    unsafe fn write(&self, place: u32, memory: libc::iovec) -> io::Result<()> {
        let submitter = self.uring.submitter();
        // SAFETY: by the caller's contract.
        unsafe { submitter.register_buffers_update(place, &[memory], None) }
    }
}

impl std::fmt::Debug for RegisteredBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let taken = self
            .taken
            .iter()
            .map(|word| word.load(Ordering::Relaxed).count_ones());
        write!(
            f,
            "RegisteredBuffers({} of {BUFFERS_MAX})",
            taken.sum::<u32>()
        )
    }
}

impl Mapper for RegisteredBuffers {
    fn map(&self, block: NonNull<u8>, bytes: usize) -> Option<u64> {
        if self.maker.is_another() {
            return None;
        }
        let place = self.take()?;
        let memory = libc::iovec {
            iov_base: block.as_ptr().cast(),
            iov_len: bytes,
        };
        // SAFETY: a pool maps blocks of its own, and ends the mapping before it gives them up.
        if let Err(error) = unsafe { self.write(place, memory) } {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            self.error.store(errno, Ordering::Relaxed);
            self.give_back(place);
            return None;
        }
        Some(u64::from(place))
    }

    fn unmap(&self, mapping: u64, _bytes: usize) {
        // The table of a parent's ring is the parent's.
        if self.maker.is_another() {
            return;
        }
        let place = mapping as u32;
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: no memory at all. If the kernel refuses, the place keeps its pages and is not used again.
        if unsafe { self.write(place, nothing) }.is_ok() {
            self.give_back(place);
        }
    }
}

impl Ring<RegisteredBuffers> {
    /// Makes a ring and a pool whose frames are all registered buffers, provided ones among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use quarry::uring::{Outcome, Ring, RingParams};
    /// use quarry::{Builder, PoolParams, Slub};
    ///
    /// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
    /// let params = RingParams { buffers: 8, ..RingParams::default() };
    /// let ring = Ring::with_registered(heap.pages(), heap.era(), &PoolParams::default(), &params);
    /// let mut ring = match ring {
    ///     Ok(ring) => ring,
    ///     Err(error) => return Ok(eprintln!("{error}")),
    /// };
    /// let file = Arc::new(std::fs::File::open("/proc/version")?.into());
    /// let frame = ring.pool_mut().alloc().ok_or("out of memory")?;
    /// ring.read_fixed(&file, frame, 0, 1)?;
    /// ring.submit_and_wait(1)?;
    /// let completion = ring.completion().ok_or("the file was read")?;
    /// let Outcome::Read(buffer) = completion.result? else { panic!("no bytes") };
    /// assert!(buffer.starts_with(b"Linux version"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RingError`], with the next step in its message.
    #[track_caller]
    pub fn with_registered(
        pages: &'static PageAllocator<HostMachine>,
        era: Era,
        pool: &PoolParams<'_>,
        params: &RingParams,
    ) -> Result<Self, RingError> {
        let maker = Maker::this_process().ok_or(RingError::Memory)?;
        let uring = open(params)?;
        let mapper = RegisteredBuffers::new(Arc::clone(&uring), maker)?;
        let last_error = Arc::clone(&mapper.error);
        let pool = PagePool::new_mapped(pages, era, pool, mapper).map_err(RingError::Pool)?;
        let ring = Self::on(uring, pool, params, maker);
        match (last_error.load(Ordering::Relaxed), ring) {
            // There was memory, but not to be pinned.
            (errno, Err(RingError::Memory)) if errno != 0 => Err(RingError::Refused {
                call: "io_uring_register_buffers_update",
                error: io::Error::from_raw_os_error(errno),
            }),
            (_, ring) => ring,
        }
    }

    /// Reads from a file into a registered frame, from an offset on ([`Outcome::Read`]).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a frame of another pool; else as [`Ring::submit_and_wait`], when the submission queue was full.
    pub fn read_fixed(
        &mut self,
        file: &Arc<OwnedFd>,
        frame: Frame<RegisteredBuffers>,
        offset: u64,
        user_data: u64,
    ) -> io::Result<Operation> {
        let place = self.place_of(Some(&frame))?;
        self.start(Kind::Read(frame, place, offset), Some(file), user_data)
    }

    /// Writes a registered frame's filled bytes to a file, from an offset on ([`Outcome::Written`]).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a fragment or a frame of another pool; else as [`Ring::submit_and_wait`], when the submission
    /// queue was full.
    pub fn write_fixed(
        &mut self,
        file: &Arc<OwnedFd>,
        buffer: Buffer<RegisteredBuffers>,
        offset: u64,
        user_data: u64,
    ) -> io::Result<Operation> {
        let place = self.place_of(buffer.frame())?;
        self.start(Kind::Write(buffer, place, offset), Some(file), user_data)
    }

    /// A frame's place in the kernel's table.
    fn place_of(&self, frame: Option<&Frame<RegisteredBuffers>>) -> io::Result<u16> {
        let mapping = frame.and_then(|frame| self.pool.mapping_of(frame));
        let place = mapping.and_then(|mapping| u16::try_from(mapping).ok());
        place.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}
