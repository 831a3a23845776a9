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

    /// Gigabit Ethernet of 2010, an 82575 with igb: 4 queues and 256 work entries, and 20,000 interrupts a second at most for
    /// short packets (the default, dynamic, of Intel's drivers for gigabit cards). With 4 queues each direction has interrupts of its
    /// own. All from memory.
    pub const IGB: Self = Self {
        driver: "igb",
        queues: 4,
        posted: 256,
        moderation_ns: 50_000,
    };

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_keep_their_distance() {
        let card = Card::IGB;
        assert_eq!(card.interrupt_ns(7, None), 7);
        assert_eq!(card.interrupt_ns(7, Some(5)), 50_005);
        assert_eq!(card.interrupt_ns(60_000, Some(5)), 60_000);
        assert_eq!([1, 3, 16].map(|cpus| card.queues_on(cpus)), [1, 3, 4]);
        assert_eq!(Card::MLX5.queues_on(24), 24);
    }
}
