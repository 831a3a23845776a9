//! A run: rings take turns, streams send, sockets fill, readers read.

use quarry_core::design::Design;
use quarry_core::machine::{Accounting as _, CpuId, LockClass, Work};
use quarry_core::page::PageAllocator;
use quarry_sim::driver::Driver;
use quarry_sim::{Rng, VirtualMachine};

use super::arrivals::{Arrivals, Skb, readers};
use super::heads::{HEAD_CACHE, Head, HeadCounts, Heads, RingHeads};
use super::queue::{RxFrame, RxHome, RxQueue};
use super::report::{PageCounts, ReaderCounts, RecycleCounts};
use super::spec::{NAPI_BUDGET, RxSpec};
use crate::error::WorkError;

/// A TCP stream as its receiver sees it.
#[derive(Default)]
struct Socket<'w, 'h> {
    queue: Vec<Skb<'w, 'h>>,
    /// Packets since it was last read.
    packets: u32,
}

impl Socket<'_, '_> {
    /// A socket somewhere between two reads: if all began empty, all would be read at once for ever.
    fn between_reads(spec: &RxSpec, rng: &mut Rng) -> Self {
        let deliveries = spec.backlog.div_ceil(spec.gro_packets());
        let had = rng.below(u64::from(deliveries)) as u32;
        Self {
            queue: Vec::new(),
            packets: had * spec.gro_packets(),
        }
    }
}

/// Counts so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) alloc_failures: u64,
    pub(super) waiting_max: u64,
    pub(super) zone_lock_cpus: u32,
    pub(super) readers: ReaderCounts,
    pub(super) pages: PageCounts,
    pub(super) recycling: RecycleCounts,
    pub(super) heads: HeadCounts,
}

impl Counts {
    fn since(&self, start: &Self) -> Self {
        Self {
            packets: self.packets - start.packets,
            dropped: self.dropped - start.dropped,
            alloc_failures: self.alloc_failures - start.alloc_failures,
            waiting_max: self.waiting_max,
            zone_lock_cpus: self.zone_lock_cpus,
            readers: self.readers.since(&start.readers),
            pages: self.pages.since(&start.pages),
            recycling: self.recycling.since(&start.recycling),
            heads: self.heads.since(&start.heads),
        }
    }
}

/// Everything that a run has.
pub(super) struct World<'w, 'd, 'h, D: Design> {
    spec: &'w RxSpec,
    pages: &'w PageAllocator<VirtualMachine>,
    heads: Heads<'d, 'h, D>,
    queues: Vec<RxQueue<'w>>,
    homes: Vec<RxHome<'w>>,
    ring_heads: Vec<RingHeads<'h>>,
    arrivals: Vec<Arrivals<'w, 'h>>,
    sockets: Vec<Socket<'w, 'h>>,
    /// The CPU that reads each stream.
    readers: Vec<u32>,
    rng: Rng,
    packets: u64,
    heads_failed: u64,
    reader_counts: ReaderCounts,
    waiting: u64,
    waiting_max: u64,
    /// For each CPU, whether it took the zone lock.
    took_lock: Vec<bool>,
    /// Acquisitions of the zone lock when last looked at.
    locks_seen: u64,
}

impl<'w, 'd, 'h, D: Design> World<'w, 'd, 'h, D> {
    pub(super) fn new(
        spec: &'w RxSpec,
        pages: &'w PageAllocator<VirtualMachine>,
        driver: &'d mut Driver<'h, D>,
    ) -> Result<Self, WorkError> {
        let no_room = |what| WorkError::NoRoom {
            run: spec.label(),
            what,
        };
        let cache = driver
            .create_cache(&HEAD_CACHE)
            .map_err(|_| no_room("the cache of socket buffers"))?;
        let queues = (0..spec.rings)
            .map(|_| RxQueue::new(pages, spec).ok_or_else(|| no_room("the rings' page caches")))
            .collect::<Result<Vec<RxQueue<'_>>, _>>()?;
        let arrivals = (0..spec.rings).map(|ring| Arrivals::new(spec, ring));
        let mut rng = Rng::new(spec.seed);
        let sockets = (0..spec.streams).map(|_| Socket::between_reads(spec, &mut rng));
        let sockets = sockets.collect();
        let readers = readers(spec, &mut rng);
        let mut world = Self {
            spec,
            pages,
            heads: Heads::new(driver, cache, spec.era),
            homes: queues.iter().map(RxQueue::home).collect(),
            queues,
            ring_heads: (0..spec.rings).map(RingHeads::new).collect(),
            arrivals: arrivals.collect(),
            sockets,
            readers,
            rng,
            packets: 0,
            heads_failed: 0,
            reader_counts: ReaderCounts::default(),
            waiting: 0,
            waiting_max: 0,
            took_lock: vec![false; spec.cpus as usize],
            locks_seen: 0,
        };
        for ring in 0..spec.rings {
            world.run_on(ring);
            world.queues[ring as usize].refill();
        }
        Ok(world)
    }

    /// Lets at least this many packets arrive and tells what they cost. Every ring is polled equally
    /// often.
    pub(super) fn receive(&mut self, packets: u64, progress: &dyn Fn(u64)) -> Counts {
        let mut start = self.counts();
        // Looking at the statistics took the lock as well.
        start.pages.zone_locks = self.zone_locks();
        self.locks_seen = start.pages.zone_locks;
        self.took_lock.fill(false);
        self.waiting_max = self.waiting;
        let round = u64::from(self.spec.rings) * u64::from(NAPI_BUDGET);
        while self.packets - start.packets < packets {
            for ring in 0..self.spec.rings {
                self.poll(ring);
            }
            progress(round);
        }
        self.counts().since(&start)
    }

    /// The driver of a ring takes a budget of packets and refills the ring; then each reader with
    /// enough to read reads.
    fn poll(&mut self, ring: u32) {
        let mut ready = Vec::new();
        let at = ring as usize;
        self.run_on(ring);
        for _ in 0..NAPI_BUDGET {
            let stream = self.arrivals[at].next_stream(&mut self.rng);
            self.packets += 1;
            let Some(frame) = self.queues[at].receive() else {
                ready.extend(self.lost(ring, stream));
                continue;
            };
            let Some(head) = self.heads.alloc(&mut self.ring_heads[at]) else {
                self.heads_failed += 1;
                self.homes[at].read(frame);
                continue;
            };
            self.waiting += 1;
            if let Some(stream) = self.merge(ring, stream, frame, head) {
                ready.push(stream);
            }
        }
        self.queues[at].refill();
        self.note_locks(ring);
        self.waiting_max = self.waiting_max.max(self.waiting);
        for stream in ready {
            self.read(stream);
        }
    }

    fn run_on(&self, cpu: u32) {
        self.pages.machine().run_on(CpuId(cpu));
    }

    /// A packet was dropped: its stream sends nothing more for a while, so its reader takes what
    /// there is. No more of it arrives that the reader could wait for.
    fn lost(&mut self, ring: u32, stream: u32) -> impl Iterator<Item = u32> + use<D> {
        let delivered = self.arrivals[ring as usize].merging.take();
        let other = delivered.and_then(|(stream, skb)| self.deliver(stream, skb));
        [Some(stream), other].into_iter().flatten()
    }

    /// GRO: adds a packet to what is being merged if it continues it, else delivers that. Returns the
    /// stream whose reader has enough to read now.
    fn merge(&mut self, ring: u32, stream: u32, frame: RxFrame<'w>, head: Head<'h>) -> Option<u32> {
        let at = ring as usize;
        let merged = self.arrivals[at].merge(stream, frame, head);
        if let Some(spare) = merged.spare {
            self.heads.merged(&mut self.ring_heads[at], spare);
        }
        let (stream, skb) = merged.whole?;
        self.deliver(stream, skb)
    }

    /// Puts a socket buffer into its socket. Returns the stream if its reader has enough to read now.
    fn deliver(&mut self, stream: u32, skb: Skb<'w, 'h>) -> Option<u32> {
        let socket = &mut self.sockets[stream as usize];
        let before = socket.packets;
        socket.packets += skb.pages.len() as u32;
        socket.queue.push(skb);
        let backlog = self.spec.backlog;
        (before < backlog && socket.packets >= backlog).then_some(stream)
    }

    /// The reader of a stream wakes and takes everything that its socket has, in one call.
    fn read(&mut self, stream: u32) {
        let cpu = self.readers[stream as usize];
        self.run_on(cpu);
        let ring = stream % self.spec.rings;
        let machine = self.pages.machine();
        if cpu != ring {
            machine.work(Work::RemoteWake);
        }
        machine.work(Work::Switch);
        machine.work(Work::Syscall);
        self.reader_counts.reads += 1;
        self.reader_counts.remote_wakes += u64::from(cpu != ring);
        let payload_bytes = self.spec.payload_bytes() as usize;
        let socket = std::mem::take(&mut self.sockets[stream as usize]);
        for skb in socket.queue {
            self.waiting -= skb.pages.len() as u64;
            for frame in skb.pages {
                if let Some(at) = frame.address(self.pages) {
                    machine.copy(at, payload_bytes);
                    self.reader_counts.copied_bytes += payload_bytes as u64;
                }
                self.homes[ring as usize].read(frame);
            }
            self.heads.read(CpuId(cpu), skb.head);
        }
        self.note_locks(cpu);
    }

    /// Whatever took the zone lock since this was last called, this CPU did.
    fn note_locks(&mut self, cpu: u32) {
        let locks = self.zone_locks();
        self.took_lock[cpu as usize] |= locks > self.locks_seen;
        self.locks_seen = locks;
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            packets: self.packets,
            dropped: self.heads_failed,
            waiting_max: self.waiting_max,
            zone_lock_cpus: self.took_lock.iter().filter(|&&took| took).count() as u32,
            readers: self.reader_counts,
            heads: self.heads.counts(self.ring_heads.iter()),
            ..Counts::default()
        };
        for queue in &self.queues {
            let own = queue.counts();
            counts.dropped += own.dropped;
            counts.alloc_failures += own.alloc_failures;
            counts.recycling.add(&queue.recycling());
        }
        // Asked for first: the statistics take the lock themselves.
        let zone_locks = self.zone_locks();
        counts.pages = PageCounts::of(&self.pages.stats(), zone_locks);
        counts
    }

    fn zone_locks(&self) -> u64 {
        self.pages.machine().counters().locks(LockClass::Zone)
    }

    /// Everything is read and the drivers are unloaded: all pages go back.
    pub(super) fn close(mut self) {
        for ring in 0..self.spec.rings as usize {
            if let Some((stream, skb)) = self.arrivals[ring].merging.take() {
                self.sockets[stream as usize].queue.push(skb);
            }
        }
        for stream in 0..self.spec.streams {
            self.read(stream);
        }
        for (ring, queue) in (0..).zip(self.queues) {
            self.pages.machine().run_on(CpuId(ring));
            queue.close();
        }
    }
}
