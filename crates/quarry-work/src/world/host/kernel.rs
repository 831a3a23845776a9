//! Sockets of this process, and the threads that use them.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quarry_core::design::Design;
use quarry_core::heap::{Cache, Heap};
use quarry_host::HostMachine;

use super::pipe::PipeState;
use super::skb::{Block, Held, Queued, Skb};
use super::usage::Usage;
use super::waiters::Waiters;
use crate::net::NetRules;
use crate::world::skb::SkbCaches;
use crate::world::{End, Over, Received, Request, Task, Transport};

/// State of one end of a connection.
pub(super) struct State<'h, D: Design> {
    /// Buffers that have come and are not read.
    pub(super) queue: VecDeque<Queued<'h, D>>,
    /// No more comes.
    pub(super) ended: bool,
    /// Segments that were sent from here and not acknowledged.
    pub(super) unacked: Vec<Arc<Skb<'h, D>>>,
    /// Bytes that have come here and were not acknowledged.
    pub(super) owes: usize,
    /// Block that fragments are cut from, and the offset of the next one.
    pub(super) block: Option<(Block<'h>, usize)>,
    pub(super) pipe: PipeState<'h>,
}

/// One end of a connection.
pub(super) struct Side<'h, D: Design> {
    pub(super) transport: Transport,
    state: Mutex<State<'h, D>>,
    /// True sizes of what was sent from here and is not read. Relaxed: who waits for less looks at it with the lock.
    pub(super) sent: AtomicU32,
    /// Something came, or no more comes.
    pub(super) readable: Waiters,
    /// There is room to send from here.
    pub(super) writable: Waiters,
}

impl<'h, D: Design> Side<'h, D> {
    fn new(transport: Transport) -> Self {
        Self {
            transport,
            sent: AtomicU32::new(0),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                ended: false,
                unacked: Vec::new(),
                owes: 0,
                block: None,
                pipe: PipeState::default(),
            }),
            readable: Waiters::default(),
            writable: Waiters::default(),
        }
    }

    /// Puts a buffer into the queue, and wakes a reader. Gives the lock back.
    pub(super) fn queue(&self, mut state: MutexGuard<'_, State<'h, D>>, skb: Held<'h, D>) {
        state.queue.push_back(Queued { skb, taken: 0 });
        self.readable.wake(state);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<'h, D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sockets over a heap of this process.
pub(crate) struct Kernel<'h, D: Design> {
    pub(super) heap: &'h Heap<HostMachine, D>,
    pub(super) rules: NetRules,
    pub(super) caches: SkbCaches<Cache<'h, HostMachine, D>>,
    pub(super) page_bytes: usize,
    sides: Vec<Side<'h, D>>,
    /// The run has ended before its tasks have: all that wait go on, and end.
    over: AtomicBool,
    exhausted: AtomicBool,
}

impl<'h, D: Design> Kernel<'h, D> {
    /// Sockets with these connections. `None` if there is no room for their caches.
    pub(crate) fn new(
        heap: &'h Heap<HostMachine, D>,
        rules: NetRules,
        page_bytes: usize,
        connections: &[Transport],
    ) -> Option<Self> {
        let sides = connections.iter().flat_map(|transport| [*transport; 2]);
        Some(Self {
            caches: SkbCaches::new(&rules, |spec| heap.create_cache(spec).ok())?,
            heap,
            rules,
            page_bytes,
            sides: sides.map(Side::new).collect(),
            over: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
        })
    }

    pub(crate) fn heap(&self) -> &'h Heap<HostMachine, D> {
        self.heap
    }

    pub(super) fn side(&self, end: End) -> &Side<'h, D> {
        &self.sides[end.0 as usize]
    }

    /// Memory is exhausted. The caller may hold a socket's lock, so its thread ends the run when the task has returned.
    pub(super) fn exhausted(&self) -> Over {
        // Relaxed: read after all threads were joined.
        self.exhausted.store(true, Ordering::Relaxed);
        Over
    }

    /// True if memory was exhausted.
    pub(crate) fn was_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Ends the run: threads that wait go on, and find that it is over. The caller holds no socket's lock.
    pub(crate) fn end(&self) {
        // Relaxed: threads that wait look again under the lock that is taken below.
        self.over.store(true, Ordering::Relaxed);
        for side in &self.sides {
            side.readable.wake_all(side.lock());
            side.writable.wake_all(side.lock());
        }
    }

    /// Waits on a side's condition. The caller looks again at what it waits for.
    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State<'h, D>>,
        on: &Waiters,
    ) -> Result<MutexGuard<'a, State<'h, D>>, Over> {
        if self.over.load(Ordering::Relaxed) {
            return Err(Over);
        }
        let state = on.wait(state);
        match self.over.load(Ordering::Relaxed) {
            true => Err(Over),
            false => Ok(state),
        }
    }

    /// Frees all that sockets still have.
    pub(crate) fn shut_down(&self) {
        for side in &self.sides {
            let mut state = side.lock();
            state.unacked.clear();
            state.queue.clear();
            state.block = None;
            state.pipe = PipeState::default();
        }
    }
}

/// Counts of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// A task of a run: one thread's.
pub(crate) struct HostTask<'k, 'h, D: Design> {
    kernel: &'k Kernel<'h, D>,
    began: Cell<Instant>,
    /// When counting begins and ends, of runs that are limited by time.
    window: Option<(Duration, Duration)>,
    counts: Cell<Counts>,
    /// CPU time and switches of the thread when counting began.
    used_before: Cell<Option<Usage>>,
    buffer: RefCell<Box<[MaybeUninit<u8>]>>,
}

impl<'k, 'h, D: Design> HostTask<'k, 'h, D> {
    /// A task with a buffer for its largest message.
    pub(crate) fn new(
        kernel: &'k Kernel<'h, D>,
        window: Option<(Duration, Duration)>,
        buffer_bytes: u32,
    ) -> Self {
        Self {
            kernel,
            began: Cell::new(Instant::now()),
            window,
            counts: Cell::default(),
            used_before: Cell::new(None),
            buffer: RefCell::new(vec![MaybeUninit::new(0); buffer_bytes as usize].into()),
        }
    }

    /// The run has begun then.
    pub(crate) fn begin(&self, then: Instant) {
        self.began.set(then);
        self.used_before.set(Usage::of_thread());
    }

    /// CPU time and switches of its thread since counting began.
    pub(crate) fn used(&self) -> Option<Usage> {
        Some(Usage::of_thread()? - self.used_before.get()?)
    }

    /// Counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.get()
    }

    pub(super) fn buffer(&self) -> Ref<'_, Box<[MaybeUninit<u8>]>> {
        self.buffer.borrow()
    }

    pub(super) fn buffer_mut(&self) -> RefMut<'_, Box<[MaybeUninit<u8>]>> {
        self.buffer.borrow_mut()
    }
}

impl<D: Design> Task for HostTask<'_, '_, D> {
    fn send(&self, from: End, bytes: u32, word: u64) -> Result<(), Over> {
        let (kernel, bytes) = (self.kernel, bytes as usize);
        match kernel.side(from).transport {
            Transport::Unix => kernel.send_unix(self, from, bytes, word),
            Transport::Datagram => kernel.send_unix_buffer(self, from, bytes, word),
            Transport::Pipe => kernel.write_pipe(self, from, bytes),
            Transport::Tcp => kernel.send_tcp(self, from, bytes, word),
            // Refused before a run begins.
            Transport::Remote(_) => Err(Over),
        }
    }

    fn receive(&self, at: End, most: u32) -> Result<Received, Over> {
        let (kernel, most) = (self.kernel, most as usize);
        match kernel.side(at).transport {
            Transport::Unix | Transport::Tcp | Transport::Remote(_) => {
                kernel.receive_stream(self, at, most)
            }
            Transport::Datagram => kernel.receive_datagram(self, at, most),
            Transport::Pipe => kernel.read_pipe(self, at, most),
        }
    }

    fn close(&self, end: End) {
        let peer = self.kernel.side(end.peer());
        let mut state = peer.lock();
        state.ended = true;
        peer.readable.wake_all(state);
    }

    fn request(&self, _request: Request) -> Result<(), Over> {
        // Refused before a run begins.
        Err(Over)
    }

    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }

    fn give_up_cpu(&self) {
        std::thread::yield_now();
    }

    fn now_ns(&self) -> u64 {
        self.began.get().elapsed().as_nanos() as u64
    }

    fn is_over(&self) -> bool {
        let ends = self.window.map(|(_, to)| to);
        self.kernel.over.load(Ordering::Relaxed)
            || ends.is_some_and(|to| self.began.get().elapsed() >= to)
    }

    fn done(&self, operations: u64, bytes: u64) {
        if let Some((from, to)) = self.window
            && !(from..to).contains(&self.began.get().elapsed())
        {
            return;
        }
        let Counts {
            operations: before,
            bytes: bytes_before,
        } = self.counts.get();
        if self.window.is_some() && before == 0 {
            self.used_before.set(Usage::of_thread());
        }
        self.counts.set(Counts {
            operations: before + operations,
            bytes: bytes_before + bytes,
        });
    }
}
