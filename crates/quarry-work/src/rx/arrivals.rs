//! Arrivals on a ring, GRO, and the CPUs of readers.

use quarry_sim::Rng;

use super::heads::Head;
use super::queue::RxFrame;
use super::spec::{Consumer, RxSpec};

/// A socket buffer: packets that GRO has merged.
pub(super) struct Skb<'w, 'h> {
    pub(super) pages: Vec<RxFrame<'w>>,
    pub(super) head: Head<'h>,
}

/// Result of a packet's pass through GRO.
pub(super) struct Merged<'w, 'h> {
    /// The packet's head, if it was added to another.
    pub(super) spare: Option<Head<'h>>,
    /// Socket buffer that the packet does not continue, which goes to its stream's socket.
    pub(super) whole: Option<(u32, Skb<'w, 'h>)>,
}

/// Arrivals on a ring: its streams take turns, in an order that is drawn anew for each round, and send as many
/// packets as GRO merges.
pub(super) struct Arrivals<'w, 'h> {
    order: Vec<u32>,
    turn: usize,
    left: u32,
    gro_packets: u32,
    /// Stream that GRO is merging, and its socket buffer.
    pub(super) merging: Option<(u32, Skb<'w, 'h>)>,
}

impl<'w, 'h> Arrivals<'w, 'h> {
    pub(super) fn new(spec: &RxSpec, ring: u32) -> Self {
        Self {
            order: (ring..spec.streams).step_by(spec.rings as usize).collect(),
            turn: 0,
            left: 0,
            gro_packets: spec.gro_packets(),
            merging: None,
        }
    }

    /// The stream that the next packet belongs to.
    pub(super) fn next_stream(&mut self, rng: &mut Rng) -> u32 {
        if self.left == 0 {
            self.left = self.gro_packets;
            self.turn += 1;
            if self.turn >= self.order.len() {
                self.turn = 0;
                shuffle(&mut self.order, rng);
            }
        }
        self.left -= 1;
        self.order[self.turn]
    }

    /// Streams of the ring.
    pub(super) fn streams(&self) -> usize {
        self.order.len()
    }

    /// The stream whose turn it is sends nothing more in this round.
    pub(super) fn skip(&mut self) {
        self.left = 0;
    }

    /// GRO: adds a packet to what is being merged if it continues it, else begins anew with it.
    pub(super) fn merge(
        &mut self,
        stream: u32,
        frame: RxFrame<'w>,
        head: Head<'h>,
    ) -> Merged<'w, 'h> {
        let limit = self.gro_packets as usize;
        if let Some((current, skb)) = &mut self.merging
            && *current == stream
            && skb.pages.len() < limit
        {
            skb.pages.push(frame);
            return Merged {
                spare: Some(head),
                whole: None,
            };
        }
        let mut pages = Vec::with_capacity(limit);
        pages.push(frame);
        Merged {
            spare: None,
            whole: self.merging.replace((stream, Skb { pages, head })),
        }
    }
}

/// The CPU that reads each stream. Streams are dealt to the CPUs that read, and then mixed: which ring
/// a stream arrives on says nothing about where it is read, unless that is asked for.
pub(super) fn readers(spec: &RxSpec, rng: &mut Rng) -> Vec<u32> {
    let cpus = match spec.consumer {
        Consumer::Same => {
            return (0..spec.streams)
                .map(|stream| stream % spec.rings)
                .collect();
        }
        Consumer::Other => spec.rings..spec.cpus,
        Consumer::Spread => 0..spec.cpus,
    };
    let mut readers: Vec<u32> = cpus.cycle().take(spec.streams as usize).collect();
    shuffle(&mut readers, rng);
    readers
}

/// Puts numbers into a random order (Fisher and Yates).
fn shuffle(order: &mut [u32], rng: &mut Rng) {
    for end in (1..order.len()).rev() {
        order.swap(end, rng.below(end as u64 + 1) as usize);
    }
}
