//! CPUs that poll rings and run readers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use quarry_core::design::Design;
use quarry_core::machine::{Accounting as _, CpuId, LockClass, NodeId, Threads as _, Work};
use quarry_core::page::PageAllocator;
use quarry_core::page::geometry::PcpParams;
use quarry_sim::driver::{CacheIndex, Driver};
use quarry_sim::time::TimeCounters;
use quarry_sim::{Rng, VirtualMachine};

use super::arrivals::{Arrivals, Skb, readers};
use super::counts::RxCounts;
use super::heads::{HEAD_CACHE, Heads, RingHeads};
use super::queue::{RxHome, RxQueue};
use super::spec::{ETHERNET_BYTES, RxSpec, TCP_HEADER_BYTES};
use super::{LINE_BITS_PER_SECOND, RxRun, WIRE_BYTES};
use crate::card::{Card, NAPI_BUDGET};
use crate::error::WorkError;
use crate::progress::Progress;

/// Bytes of a packet's shared info that a driver clears.
const SHARED_INFO_CLEARED_BYTES: usize = 32;

/// A ring, which its CPU works on.
struct Ring<'h> {
    queue: RxQueue<'h>,
    heads: RingHeads<'h>,
    arrivals: Arrivals<'h, 'h>,
    rng: Rng,
    /// Packets that the card has offered so far.
    offered: u64,
    /// Packets in buffers that have not been polled.
    pending: u64,
    polled: u64,
}

/// A stream's socket.
#[derive(Default)]
struct Socket<'h> {
    queue: VecDeque<Skb<'h, 'h>>,
    packets: u32,
    /// Its reader runs or is about to.
    reading: bool,
}

/// Readers of a CPU, and its idle time.
#[derive(Default)]
struct Cpu {
    /// Streams whose readers can run.
    ready: RefCell<VecDeque<u32>>,
    /// The reader that ran last.
    last: Cell<Option<u32>>,
    idle_ps: Cell<u64>,
    /// [`Receiver::before`] has its counts.
    counted: Cell<bool>,
}

/// Counts at a moment.
#[derive(Clone, Default)]
struct Moment {
    ps: u64,
    spent: TimeCounters,
    idle_ps: Vec<u64>,
    offered: u64,
    lost: u64,
    read: u64,
    /// Allocations and frees that passed the per-CPU lists by.
    direct: [u64; 2],
}

/// Counts from one moment to another.
pub(super) struct Span {
    pub(super) ps: u64,
    pub(super) spent: TimeCounters,
    /// Time that each CPU was busy.
    pub(super) busy_ps: Vec<u64>,
    pub(super) offered: u64,
    pub(super) lost: u64,
    /// Packets that readers got.
    pub(super) read: u64,
    pub(super) counts: RxCounts,
    /// Limits of the per-CPU lists of the first node.
    pub(super) lists: Option<PcpParams>,
}

impl Span {
    fn between(begun: &Moment, ended: &Moment) -> Self {
        let spent = ended.spent.since(&begun.spent);
        let idle = ended.idle_ps.iter().zip(&begun.idle_ps);
        let clocks = spent.cpu_ps.iter().zip(idle);
        // A CPU that sleeps adds its sleep when it ends: what it slept before the beginning is not to be taken off.
        let busy = clocks.map(|(ps, (end, begin))| ps.saturating_sub(end - begin));
        let mut counts = RxCounts::default();
        let direct = [0, 1].map(|at| ended.direct[at] - begun.direct[at]);
        counts.pages.add_direct(direct);
        counts.pages.zone_locks = spent.locks[LockClass::Zone as usize].taken;
        Self {
            ps: ended.ps - begun.ps,
            busy_ps: busy.collect(),
            offered: ended.offered - begun.offered,
            lost: ended.lost - begun.lost,
            read: ended.read - begun.read,
            counts,
            lists: None,
            spent,
        }
    }
}

/// Everything that a run has.
pub(super) struct Receiver<'d, 'h, D: Design> {
    spec: &'d RxSpec,
    driver: &'d Driver<'h, D>,
    machine: &'d VirtualMachine,
    pages: &'h PageAllocator<VirtualMachine>,
    heads: Heads<'d, 'h, D>,
    rings: Vec<RefCell<Ring<'h>>>,
    homes: Vec<RxHome<'h>>,
    sockets: Vec<RefCell<Socket<'h>>>,
    /// The CPU of each stream's reader.
    readers: Vec<u32>,
    cpus: Vec<Cpu>,
    outside_ps: u64,
    /// Time between two packets of a ring.
    packet_ps: f64,
    progress: &'d dyn Progress,
    /// Packets so far: offered by the card, lost, polled, read.
    offered: Cell<u64>,
    lost: Cell<u64>,
    received: Cell<u64>,
    read: Cell<u64>,
    begun: RefCell<Option<Moment>>,
    ended: RefCell<Option<Moment>>,
    /// Counts of all CPUs when counting began, each CPU's taken between two of its operations.
    before: RefCell<RxCounts>,
}

impl<'d, 'h, D: Design> Receiver<'d, 'h, D> {
    /// The cache of socket buffers' heads.
    pub(super) fn cache(driver: &mut Driver<'h, D>) -> Result<CacheIndex, WorkError> {
        let made = driver.create_cache(&HEAD_CACHE);
        made.map_err(|_| WorkError::NoRoom("the cache of socket buffers"))
    }

    pub(super) fn new(
        spec: &'d RxRun,
        driver: &'d Driver<'h, D>,
        cache: CacheIndex,
        progress: &'d dyn Progress,
    ) -> Result<Self, WorkError> {
        let rx = &spec.rx;
        let pages = driver.pages();
        let mut rng = Rng::new(rx.seed);
        let ring = |number: u32, seed: u64| -> Option<Ring<'h>> {
            driver.run_on(CpuId(number));
            let mut queue = RxQueue::new(pages, rx)?;
            queue.refill();
            Some(Ring {
                queue,
                heads: RingHeads::new(number),
                arrivals: Arrivals::new(rx, number),
                rng: Rng::new(seed),
                offered: 0,
                pending: 0,
                polled: 0,
            })
        };
        let rings: Option<Vec<Ring<'h>>> = (0..rx.rings)
            .map(|number| ring(number, rng.below(u64::MAX)))
            .collect();
        let rings = rings.ok_or(WorkError::NoRoom("the rings' page caches"))?;
        let wire_bits = f64::from(rx.mtu + WIRE_BYTES) * 8.0;
        Ok(Self {
            spec: rx,
            driver,
            machine: driver.machine(),
            pages,
            heads: Heads::new(driver, cache, rx.era),
            homes: rings.iter().map(|ring| ring.queue.home()).collect(),
            rings: rings.into_iter().map(RefCell::new).collect(),
            sockets: (0..rx.streams).map(|_| RefCell::default()).collect(),
            readers: readers(rx, &mut rng),
            cpus: (0..rx.cpus).map(|_| Cpu::default()).collect(),
            outside_ps: spec.outside.ps,
            packet_ps: 1e12 * wire_bits / LINE_BITS_PER_SECOND * f64::from(rx.rings),
            progress,
            offered: Cell::new(0),
            lost: Cell::new(0),
            received: Cell::new(0),
            read: Cell::new(0),
            begun: RefCell::default(),
            ended: RefCell::default(),
            before: RefCell::default(),
        })
    }

    /// Polls and reads on a CPU until enough packets have been received.
    pub(super) fn run(&self, cpu: u32) {
        while self.ended.borrow().is_none() {
            self.begin_counts(cpu);
            let polled = cpu < self.spec.rings && self.poll(cpu);
            let read = self.read_next(cpu);
            if !polled && !read {
                self.wait(cpu);
            }
        }
        for cpu in 0..self.spec.cpus {
            self.machine.wake(CpuId(cpu));
        }
    }

    /// Takes a CPU's counts once counting has begun. The CPU is between two operations: in the middle of one, its page
    /// lists would be in use, and their counts could not be read.
    fn begin_counts(&self, cpu: u32) {
        let counted = &self.cpus[cpu as usize].counted;
        if counted.get() || self.begun.borrow().is_none() {
            return;
        }
        // Another CPU may be draining this one's lists: then at the next operation.
        if let Some(counts) = self.machine.uncounted(|| self.counts(cpu)) {
            self.before.borrow_mut().add(&counts);
            counted.set(true);
        }
    }

    /// Counts of a CPU and its ring so far; `None` if its page lists are in use.
    fn counts(&self, cpu: u32) -> Option<RxCounts> {
        let mut counts = RxCounts::default();
        counts.pages.add_lists(&self.pages.cpu_stats(CpuId(cpu))?);
        if let Some(ring) = self.rings.get(cpu as usize) {
            let ring = ring.borrow();
            counts.polled = ring.polled;
            counts.alloc_failures = ring.queue.counts().alloc_failures;
            counts.recycling = ring.queue.recycling();
        }
        Some(counts)
    }

    /// Counts since counting began. No CPU runs.
    fn end_counts(&self) -> RxCounts {
        let mut after = RxCounts::default();
        for (number, cpu) in (0..).zip(&self.cpus) {
            let counts = self.counts(number).unwrap_or_default();
            after.add(&counts);
            if !cpu.counted.get() {
                // It slept all the time.
                self.before.borrow_mut().add(&counts);
            }
        }
        after.since(&self.before.borrow())
    }

    /// Nothing to do: until packets may be there, or until a reader is woken.
    fn wait(&self, cpu: u32) {
        let began_ps = self.machine.clock_ps();
        let idle = |work| {
            let own = &self.cpus[cpu as usize];
            let slept_ps = self.machine.clock_ps() - began_ps;
            own.idle_ps.set(own.idle_ps.get() + slept_ps);
            self.machine.work(work);
        };
        if cpu < self.spec.rings {
            let next = self.rings[cpu as usize].borrow().offered + 1;
            let next_ns = (next as f64 * self.packet_ps / 1000.0).ceil() as u64;
            let next_ns = Card::MLX5.interrupt_ns(next_ns, Some(began_ps / 1000));
            self.machine.advance_to(next_ns);
            // Gives the turn up.
            self.machine.pause(0);
            idle(Work::Switch);
        } else {
            self.machine.sleep("packets");
            idle(Work::RemoteWake);
        }
    }

    /// A ring's CPU takes up to a budget of packets, and refills the ring. Returns whether there were any.
    fn poll(&self, number: u32) -> bool {
        let ring = &mut *self.rings[number as usize].borrow_mut();
        self.arrive(ring);
        let mut polled = 0;
        while polled < u64::from(NAPI_BUDGET) && ring.pending > 0 {
            let Some(stream) = self.next_stream(ring) else {
                break;
            };
            ring.pending -= 1;
            polled += 1;
            self.packet(number, ring, stream);
        }
        self.arrive(ring);
        ring.queue.refill();
        ring.polled += polled;
        if polled > 0 {
            self.count(polled);
        }
        polled > 0
    }

    /// The card has gone on: packets are in posted buffers, or lost.
    fn arrive(&self, ring: &mut Ring<'h>) {
        let offered = (self.machine.clock_ps() as f64 / self.packet_ps) as u64;
        let new = offered - ring.offered;
        ring.offered = offered;
        let room = ring.queue.posted() as u64 - ring.pending;
        let came = new.min(room);
        ring.pending += came;
        self.offered.set(self.offered.get() + new);
        self.lose(new - came);
    }

    fn lose(&self, packets: u64) {
        self.lost.set(self.lost.get() + packets);
    }

    /// The stream of a ring's next packet; `None` if the sockets of all of them are full.
    fn next_stream(&self, ring: &mut Ring<'h>) -> Option<u32> {
        for _ in 0..=ring.arrivals.streams() {
            let stream = ring.arrivals.next_stream(&mut ring.rng);
            if self.sockets[stream as usize].borrow().packets < self.spec.backlog {
                return Some(stream);
            }
            ring.arrivals.skip();
        }
        None
    }

    /// A packet goes from the ring to GRO, and what GRO has merged to its socket.
    fn packet(&self, number: u32, ring: &mut Ring<'h>, stream: u32) {
        let Some(frame) = ring.queue.receive() else {
            self.lose(1);
            return;
        };
        let frame_bytes = self.spec.frame_bytes() as usize;
        if let Some(at) = frame.address(self.pages) {
            self.machine.device_write(at, frame_bytes);
            self.machine
                .copy(at, (ETHERNET_BYTES + TCP_HEADER_BYTES) as usize);
            let shared_info = at.wrapping_add(frame_bytes.next_multiple_of(64));
            self.machine.zero(shared_info, SHARED_INFO_CLEARED_BYTES);
        }
        self.machine.spend(self.outside_ps);
        let Some(head) = self.heads.alloc(&mut ring.heads) else {
            self.lose(1);
            self.homes[number as usize].read(frame);
            return;
        };
        let merged = ring.arrivals.merge(stream, frame, head);
        if let Some(spare) = merged.spare {
            self.heads.merged(&mut ring.heads, spare);
        }
        if let Some((stream, skb)) = merged.whole {
            self.deliver(stream, skb);
        }
    }

    /// Puts a socket buffer into its socket and wakes the reader.
    fn deliver(&self, stream: u32, skb: Skb<'h, 'h>) {
        let first = {
            let socket = &mut *self.sockets[stream as usize].borrow_mut();
            socket.packets += skb.pages.len() as u32;
            socket.queue.push_back(skb);
            !std::mem::replace(&mut socket.reading, true)
        };
        if first {
            let cpu = self.readers[stream as usize];
            self.cpus[cpu as usize].ready.borrow_mut().push_back(stream);
            self.machine.wake(CpuId(cpu));
        }
    }

    /// The next reader of a CPU calls the kernel once. Returns whether there was one.
    fn read_next(&self, cpu: u32) -> bool {
        let own = &self.cpus[cpu as usize];
        let Some(stream) = own.ready.borrow_mut().pop_front() else {
            return false;
        };
        if own.last.replace(Some(stream)) != Some(stream) {
            self.machine.work(Work::Switch);
        }
        self.machine.work(Work::Syscall);
        let mut packets = 0;
        while packets < self.spec.backlog {
            let skb = self.sockets[stream as usize].borrow_mut().queue.pop_front();
            let Some(skb) = skb else { break };
            packets += skb.pages.len() as u32;
            self.read_skb(cpu, stream, skb);
        }
        let socket = &mut *self.sockets[stream as usize].borrow_mut();
        socket.packets -= packets;
        self.read.set(self.read.get() + u64::from(packets));
        socket.reading = !socket.queue.is_empty();
        if socket.reading {
            own.ready.borrow_mut().push_front(stream);
        }
        true
    }

    /// A reader copies a socket buffer's packets and frees them.
    fn read_skb(&self, cpu: u32, stream: u32, skb: Skb<'h, 'h>) {
        let ring = stream % self.spec.rings;
        let payload_bytes = self.spec.payload_bytes() as usize;
        for frame in skb.pages {
            if let Some(at) = frame.address(self.pages) {
                self.machine.copy(at, payload_bytes);
            }
            self.homes[ring as usize].read(frame);
        }
        self.heads.read(CpuId(cpu), skb.head);
    }

    /// Packets were polled: counting begins, or ends.
    fn count(&self, polled: u64) {
        self.progress.advance(polled);
        let received = self.received.get() + polled;
        self.received.set(received);
        let begin = self.spec.warm_up_packets();
        if received >= begin && self.begun.borrow().is_none() {
            *self.begun.borrow_mut() = Some(self.moment());
        }
        if received >= begin + self.spec.packets && self.ended.borrow().is_none() {
            *self.ended.borrow_mut() = Some(self.moment());
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            ps: self.machine.clock_ps(),
            spent: self.machine.time_counters().unwrap_or_default(),
            idle_ps: self.cpus.iter().map(|cpu| cpu.idle_ps.get()).collect(),
            offered: self.offered.get(),
            lost: self.lost.get(),
            read: self.read.get(),
            direct: self.pages.direct_calls(),
        }
    }

    /// The run has ended: gives everything back. Returns what was counted.
    pub(super) fn close(self) -> Span {
        let counts = self.end_counts();
        let (begun, ended) = (self.begun.take(), self.ended.take());
        for (number, ring) in (0..).zip(self.rings) {
            self.driver.run_on(CpuId(number));
            let ring = ring.into_inner();
            ring.queue.close();
            if let Some((stream, skb)) = ring.arrivals.merging {
                self.sockets[stream as usize]
                    .borrow_mut()
                    .queue
                    .push_back(skb);
            }
            self.heads.close(ring.heads);
        }
        for (stream, socket) in (0..).zip(&self.sockets) {
            let cpu = self.readers[stream as usize];
            self.driver.run_on(CpuId(cpu));
            for skb in socket.take().queue {
                for frame in skb.pages {
                    self.homes[(stream % self.spec.rings) as usize].read(frame);
                }
                self.heads.read(CpuId(cpu), skb.head);
            }
        }
        let (begun, ended) = (begun.unwrap_or_default(), ended.unwrap_or_default());
        let mut span = Span::between(&begun, &ended);
        span.counts.add(&counts);
        span.lists = self.pages.pcp_params(NodeId(0));
        span
    }
}
