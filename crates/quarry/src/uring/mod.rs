//! Page pools behind `io_uring`: provided-buffer rings and registered buffers.
//!
//! # 1 Idea and source
//!
//! A server with 10,000 idle connections should not keep 10,000 receive buffers. With a *provided-buffer ring*
//! (`IORING_REGISTER_PBUF_RING`, Linux 5.19) the kernel takes a buffer when data comes, not when the receive begins, and
//! names it in the completion. The program then owns a filled buffer, and owes the kernel an empty one. Who
//! consumes the bytes, and on which thread, is not the ring's affair: that is what a page pool is for. *Registered
//! buffers* (`io_uring_register_buffers(3)`) are pinned once instead of at each operation, as a driver's page pool maps a
//! page for its device once. Written from the manual pages `io_uring(7)`, `io_uring_register(2)`,
//! `io_uring_register_buf_ring(3)` and `io_uring_prep_recv_multishot(3)`.
//!
//! # 2 Objects
//!
//! ```text
//!      pool --alloc--> Provided: entries, slots[id] --the kernel fills--> Buffer --> any thread
//!       ^                                                                    |
//!       +---------------- lanes and ring of the pool <-----------drop--------+
//! ```
//!
//! A [`Ring`] has an io_uring, a [`PagePool`] that it alone allocates from, the buffer ring (`provided`), and a table of the
//! operations in flight with what they use (`operations`). [`RegisteredBuffers`] is a [`Mapper`]: the pool's pages are
//! in the kernel's table from when they come into the pool until they leave it.
//!
//! # 3 States of a frame
//!
//! home -> *provided* (in a slot; the kernel may write to it at any time) -> the program's, as a [`Buffer`](crate::Buffer) -> home; or the
//! program's -> *operating* (in the table; the kernel reads or writes it) -> the program's -> home. The pool
//! counts provided and operating frames as in flight; [`Ring::report`] says how many there are.
//!
//! # 4 Paths
//!
//! [`Ring::submit_and_wait`] refills the buffer ring, arms what has to be armed, and enters the kernel.
//! [`Ring::completion`] takes a completion, its buffer out of its slot, and gives both to the caller. A multishot receive
//! that the kernel ended, because it had no buffer (`ENOBUFS`), its thread ended (`ECANCELED`) or otherwise, is armed again at
//! the next submission. It ends with the stream, an error, or [`Ring::cancel`] alone. The kernel finishes operations when the thread enters it
//! (`IORING_SETUP_COOP_TASKRUN`), instead of by interrupts. While the pool has no memory for a single buffer, waits end each
//! millisecond to look for what came home.
//!
//! # 5 Locks
//!
//! None. A ring belongs to one thread at a time (it is [`Send`], and its calls take `&mut self`).
//!
//! # 6 Invariants
//!
//! * **I1** A provided frame is in its slot, where no code outside of `provided` reaches it. It leaves the slot for
//!   a completion that names its id, which the kernel posts once, after its last access.
//! * **I2** What an operation reads or writes is in the table, by value, from before its entry is queued until its last
//!   completion (the one without `IORING_CQE_F_MORE`). The file is there too: the entry's number names it until the kernel
//!   has its own reference.
//! * **I3** Frames of slots and table are dropped by code that took them out by I1 or I2, or in `close` after all
//!   operations have ended and the buffer ring is unregistered. Only requests take provided buffers, so none is written
//!   then. If operations do not end within five seconds, `drop` leaks frames and entries: they stay in flight, and
//!   their pool pending. A forgotten ring leaks, too.
//! * **I4** Only a ring makes queues of its io_uring, one at a time and under `&mut self`. The mapper, which any thread may
//!   call, registers memory and touches no queue.
//! * **I5** A child of a fork shares the queues with its parent. It uses neither them nor the kernel's table
//!   (`forks`): calls fail with `EOWNERDEAD`, and `drop` lets go of the child's copies, which no request of the parent
//!   writes to.
//!
//! # 7 Limits
//!
//! One buffer group for each ring. A buffer is consumed whole: many small messages are better received into fragments
//! ([`RingParams::fragment_bytes`]) than by incremental consumption (`IOU_PBUF_RING_INC`), whose parts of any length
//! the pool cannot count. The table of registered buffers has 16384 places, and their memory counts against the limit
//! of locked memory of users without privileges.
//!
//! # 8 Cost
//!
//! A received buffer costs an allocation from the pool, a store of an entry, and the loads of a completion. The
//! operations' table is a `Vec`; nothing is allocated while it does not grow.

mod completion;
mod error;
mod operations;
mod provided;
mod registered;
mod submission;

pub use completion::{Completion, Outcome, RingReport};
pub use error::RingError;
pub use operations::Operation;
pub use registered::RegisteredBuffers;

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::IoUring;
use io_uring::types::{CancelBuilder, Timespec};
use quarry_core::pool::{Mapper, NoMapper};

use crate::forks::Maker;
use crate::{PagePool, PendingPool};
use operations::Operations;
use provided::Provided;

/// The buffer group of a ring's provided buffers, for entries of [`Ring::push`].
pub const BUFFER_GROUP: u16 = 0;

/// Longest wait of `drop` for the end of operations.
const CANCEL_SECONDS: u64 = 5;

/// Parameters of a [`Ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingParams {
    /// Entries of the submission queue.
    pub entries: u32,
    /// Buffers that wait in the kernel, rounded up to a power of two: those that may be filled between two submissions.
    pub buffers: u16,
    /// Bytes of the fragments to receive into, which share frames; `None` for whole frames.
    pub fragment_bytes: Option<u32>,
}

impl Default for RingParams {
    fn default() -> Self {
        Self {
            entries: 256,
            buffers: 256,
            fragment_bytes: None,
        }
    }
}

/// An io_uring that receives into the frames of a page pool.
///
/// It can go to another thread. Sends, reads and writes may fail with `ECANCELED` if the thread that submitted them ends.
///
/// # Examples
///
/// A datagram is received into a frame, which goes home from another thread:
///
/// ```
/// use std::net::UdpSocket;
/// use std::os::fd::OwnedFd;
/// use std::sync::Arc;
///
/// use quarry::uring::{Outcome, Ring, RingParams};
/// use quarry::{Builder, PagePool, PoolParams, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
/// let pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
/// let mut ring = match Ring::new(pool, &RingParams::default()) {
///     Ok(ring) => ring,
///     Err(error) => return Ok(eprintln!("{error}")),
/// };
///
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let address = socket.local_addr()?;
/// ring.recv_multi(&Arc::new(OwnedFd::from(socket)), 7)?;
/// UdpSocket::bind("127.0.0.1:0")?.send_to(b"hello", address)?;
///
/// ring.submit_and_wait(1)?;
/// let completion = ring.completion().ok_or("a datagram was sent")?;
/// assert_eq!((completion.user_data, completion.more), (7, true));
/// let Outcome::Received(buffer) = completion.result? else { panic!("no datagram") };
/// std::thread::spawn(move || assert_eq!(&buffer[..], b"hello")).join().unwrap();
/// assert_eq!(ring.pool().stats().ring, 1);
/// assert_eq!(ring.report().pool.pages, ring.report().provided as u64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ring<H: Mapper = NoMapper> {
    uring: Arc<IoUring>,
    /// Dropped by I3.
    provided: ManuallyDrop<Provided<H>>,
    /// Dropped by I3.
    operations: ManuallyDrop<Operations<H>>,
    /// Taken by `destroy`.
    pool: ManuallyDrop<PagePool<H>>,
    is_closed: bool,
    /// Results that no completion of the kernel stands for.
    ready: VecDeque<Completion<H>>,
    /// Multishot operations that the kernel ended.
    unarmed: Vec<Operation>,
    maker: Maker,
}

impl<H: Mapper> Ring<H> {
    /// Makes a ring whose buffers are the pool's.
    ///
    /// # Errors
    ///
    /// [`RingError`], with the next step in its message.
    #[track_caller]
    pub fn new(pool: PagePool<H>, params: &RingParams) -> Result<Self, RingError> {
        let maker = Maker::this_process().ok_or(RingError::Memory)?;
        Self::on(open(params)?, pool, params, maker)
    }

    #[track_caller]
    fn on(
        uring: Arc<IoUring>,
        mut pool: PagePool<H>,
        params: &RingParams,
        maker: Maker,
    ) -> Result<Self, RingError> {
        let mut provided = Provided::new(&pool, params)?;
        provided.register(&uring)?;
        let is_filled = provided.refill(&mut pool);
        let ring = Self {
            uring,
            provided: ManuallyDrop::new(provided),
            operations: ManuallyDrop::new(Operations::new()),
            pool: ManuallyDrop::new(pool),
            is_closed: false,
            ready: VecDeque::new(),
            unarmed: Vec::new(),
            maker,
        };
        if is_filled {
            Ok(ring)
        } else {
            Err(RingError::Memory)
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &PagePool<H> {
        &self.pool
    }

    /// The pool, to allocate frames for sends, and to recycle buffers without its ring.
    #[must_use]
    pub fn pool_mut(&mut self) -> &mut PagePool<H> {
        &mut self.pool
    }

    /// Returns the places of all buffers. Costs what [`PagePool::in_flight_report`] does.
    #[must_use]
    pub fn report(&self) -> RingReport {
        RingReport {
            provided: self.provided.held(),
            operating: self.operations.buffers(),
            pool: self.pool.in_flight_report(),
        }
    }

    /// Ends all operations, and gives the pool up with all frames that are home.
    ///
    /// # Errors
    ///
    /// [`PendingPool`] while buffers are in flight; its report names the calls that received them.
    pub fn destroy(mut self) -> Result<(), PendingPool<H>> {
        self.close();
        // SAFETY: the ring is closed, so its `drop` leaves the pool alone, and it is not used again.
        let pool = unsafe { ManuallyDrop::take(&mut self.pool) };
        drop(self);
        pool.destroy()
    }

    /// Gives up what the kernel had, once, for `destroy` and `drop`; the ring is not used again.
    fn close(&mut self) {
        self.is_closed = true;
        if !self.maker.is_another() && !self.shut_down() {
            // I3: the kernel may still write, so everything stays where it is.
            return;
        }
        // SAFETY: I3, or I5 in a child; the field is not used again.
        unsafe { ManuallyDrop::drop(&mut self.operations) };
        // SAFETY: the same.
        unsafe { ManuallyDrop::drop(&mut self.provided) };
    }

    /// Ends all operations and the kernel's use of provided buffers. False if that did not succeed in time.
    fn shut_down(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(CANCEL_SECONDS);
        for operation in std::mem::take(&mut self.unarmed) {
            self.operations.remove(operation);
        }
        if self.operations.len() > 0 {
            let submitted = self.enter(0, None).is_ok();
            let timeout = Timespec::new().sec(CANCEL_SECONDS);
            let all = CancelBuilder::any();
            // Its result is of no use: completions tell.
            let _ = self
                .uring
                .submitter()
                .register_sync_cancel(Some(timeout), all);
            while submitted && self.operations.len() > 0 && Instant::now() < until {
                while self.completion().is_some() {}
                for operation in std::mem::take(&mut self.unarmed) {
                    self.operations.remove(operation);
                }
                if self.operations.len() > 0 {
                    let _ = self.enter(1, Some(Duration::from_millis(10)));
                }
            }
        }
        let submitter = self.uring.submitter();
        self.operations.len() == 0 && submitter.unregister_buf_ring(BUFFER_GROUP).is_ok()
    }
}

impl<H: Mapper> Drop for Ring<H> {
    fn drop(&mut self) {
        if !self.is_closed {
            self.close();
            // SAFETY: `destroy`, which takes the pool, closes the ring first.
            unsafe { ManuallyDrop::drop(&mut self.pool) };
        }
    }
}

impl<H: Mapper> std::fmt::Debug for Ring<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (provided, operations) = (self.provided.held(), self.operations.len());
        write!(
            f,
            "Ring({provided} buffers in the kernel, {operations} operations)"
        )
    }
}

/// Opens an io_uring.
fn open(params: &RingParams) -> Result<Arc<IoUring>, RingError> {
    // Its thread enters the kernel for completions anyway, and is not interrupted for each.
    let uring = IoUring::builder()
        .setup_coop_taskrun()
        .build(params.entries);
    uring
        .map(Arc::new)
        .map_err(RingError::refused("io_uring_setup"))
}
