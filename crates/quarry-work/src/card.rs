//! A network card and its driver: queues, posted buffers, interrupts.
//!
//! `rx` and TCP to another machine (`world/sim/remote.rs`) have the same rules with other figures:
//!
//! * Queue i has a CPU of its own: CPU i, so that queues fill the node of the card first. Its interrupts and what follows
//!   them run there.
//! * A queue has [`Card::posted`] buffers for packets at most. They were allocated on its CPU when a poll before gave room.
//! * A poll takes [`NAPI_BUDGET`] packets at most, then posts a buffer for each that was used. While packets keep coming, polls
//!   follow each other; else the next interrupt comes [`Card::moderation_ns`] after the last one at the earliest.
//! * What was transmitted is freed after interrupts of its own, at the same distance and on the same CPU. `rx`
//!   transmits nothing.

use quarry_machines::{Draw, Key, Machine};

/// Packets that a poll takes at most: the kernel's weight of a queue.
pub const NAPI_BUDGET: u32 = 64;

/// Figures of a card and its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name of the driver.
    pub driver: &'static str,
    /// Queues at most; a machine with fewer CPUs has one for each.
    pub queues: u32,
    /// Buffers that a queue has posted.
    pub posted: u32,
    /// Nanoseconds from an interrupt of a queue to its next one, at least.
    pub moderation_ns: u64,
}

impl Card {
    /// ConnectX-5, mlx5 of 4.13: a queue for each CPU, 1024 work entries, and 16 us of moderation (from memory).
    pub const MLX5: Self = Self {
        driver: "mlx5",
        queues: u32::MAX,
        posted: 1024,
        moderation_ns: 16_000,
    };

    /// Gigabit Ethernet of 2010 with igb: 256 work entries, each direction with interrupts of its own (from memory). Its queues and
    /// their distance are the machine's.
    pub(crate) fn igb(queues: u32, moderation_ns: u64) -> Self {
        Self {
            driver: "igb",
            queues,
            posted: 256,
            moderation_ns,
        }
    }

    /// Queues on a machine with n CPUs.
    #[must_use]
    pub const fn queues_on(&self, cpus: u32) -> u32 {
        if self.queues < cpus {
            self.queues
        } else {
            cpus
        }
    }

    /// Moment of the interrupt for something that happens at a moment, after an interrupt at another one. All in
    /// nanoseconds.
    #[must_use]
    pub fn interrupt_ns(&self, event_ns: u64, last_ns: Option<u64>) -> u64 {
        let earliest_ns = last_ns.map_or(0, |last_ns| last_ns + self.moderation_ns);
        event_ns.max(earliest_ns)
    }
}

/// The way to another machine: gigabit cards on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The card, the same on both machines.
    pub(crate) card: Card,
    /// Nanoseconds of a request to the other machine and of its answer, without waits for interrupts.
    pub(crate) round_trip_ns: u64,
    /// Picoseconds of the driver for a packet.
    pub(crate) packet_ps: u64,
}

impl Network {
    /// The network of a machine whose costs are those of a draw.
    pub(crate) fn of(machine: &Machine, draw: &Draw) -> Self {
        let machine = machine.clone().with_network();
        let cost = |key| machine.drawn_ns(key, draw);
        Self {
            card: Card::igb(
                cost(Key::Queues).round() as u32,
                cost(Key::InterruptEvery).round() as u64,
            ),
            round_trip_ns: cost(Key::RoundTrip).round() as u64,
            packet_ps: (cost(Key::Packet) * 1000.0).round() as u64,
        }
    }

    /// Moments of the other machine's next interrupt for a request that is sent at a moment, and of the answer here. `last_ns` is
    /// that of its last interrupt, or of the one that earlier requests wait for. All in nanoseconds.
    pub(crate) fn answer_ns(&self, sent_ns: u64, last_ns: Option<u64>) -> [u64; 2] {
        let there_ns = sent_ns + self.round_trip_ns / 2;
        let interrupt_ns = match last_ns {
            Some(next_ns) if there_ns <= next_ns => next_ns,
            last_ns => self.card.interrupt_ns(there_ns, last_ns),
        };
        [interrupt_ns, interrupt_ns + self.round_trip_ns.div_ceil(2)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_keep_their_distance() {
        let card = Card::igb(4, 50_000);
        assert_eq!(card.interrupt_ns(7, None), 7);
        assert_eq!(card.interrupt_ns(7, Some(5)), 50_005);
        assert_eq!(card.interrupt_ns(60_000, Some(5)), 60_000);
        assert_eq!([1, 3, 16].map(|cpus| card.queues_on(cpus)), [1, 3, 4]);
        assert_eq!(Card::MLX5.queues_on(24), 24);
    }

    #[test]
    fn requests_wait_for_the_other_machines_interrupts() {
        let machine = Machine::bundled("harpertown-2x4").unwrap();
        let network = Network::of(&machine, &Draw::VALUES);
        assert_eq!(network.answer_ns(0, None), [20_000, 40_000]);
        // The next one is 50 us later, and takes all that came until then.
        assert_eq!(network.answer_ns(1, Some(20_000)), [70_000, 90_000]);
        assert_eq!(network.answer_ns(30_000, Some(70_000)), [70_000, 90_000]);
        let slow = Network::of(&machine, &Draw::end(Key::RoundTrip, true));
        assert_eq!(slow.answer_ns(0, None)[1], 55_000);
    }
}
