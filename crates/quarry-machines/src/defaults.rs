//! Costs that a machine's file may leave out: those that files of before do not have, and of the network between two machines.

use crate::cost::{Cost, Unit};
use crate::key::Key;
use crate::machine::Machine;

/// A cost with its value, its ends and its source.
type Default = (Key, Unit, [f64; 3], &'static str);

/// Costs that are no fact about one machine: an estimate of instructions, protocols, the loop of a micro-benchmark.
const COMMON: [Default; 5] = [
    (
        Key::DrainObject,
        Unit::Cycles,
        [12.0, 7.0, 28.0],
        "estimate, at 3 instructions a cycle: 20 with a bitmap (slab and number of the object, bit, count), 45 with lists (the slab off \
         its list and on another, index, counts) and 36 for both; 45 at 1.6 instructions a cycle at the high end",
    ),
    (
        Key::UnixMessage,
        Unit::Cycles,
        [3132.0, 1044.0, 5019.0],
        "J. Kim, \"slub: refactoring unfreeze_partials()\", 2012: hackbench on 3.4 takes 3132 instructions and 5019 cycles a \
         message, allocators, waits and switches included; one instruction a cycle, three at the low end, and all cycles at \
         the high one",
    ),
    (
        Key::TcpSegment,
        Unit::Cycles,
        [11_875.0, 10_190.0, 15_290.0],
        "thread 000: SLAB's 2435.58 MB/s with 8 clients, on a machine that is taken to be clovertown-2x4; 2.0 and 3.0 GHz at \
         the ends, as its processor was not named",
    ),
    (
        Key::MicroCall,
        Unit::Cycles,
        [1.0, 0.0, 32.0],
        "time_bench, for_loop: 1 cycle (0.28 to 0.33 ns a round in results of page_pool, linux-mm 2023 to 2025); at the high end half \
         of 109 less 46: a pair of sk_buff with memcg hooks and its zeroing (xdp-project, kfree_skb_list01, E5-1650 v4, 2022), and a \
         pair without (J. D. Brouer, E5-2695, 2014)",
    ),
    (
        Key::LruPage,
        Unit::Cycles,
        [233.0, 48.0, 288.0],
        "measured on 6.18 with memory groups, an EPYC's virtual machine, 2026-11-30: 4.2 % of a faulted page's 2.0 us are insertions with \
         interrupts off and 3.1 % removals (perf record -e cpu-clock, 200 rounds of 32768 pages, 31 a hold): 83 and 62 ns, less 5 \
         and 15 that lines take here, at 3.694 GHz: 288 and 177. The mean, the insertion at the high end; at the low one what the \
         zone lock's work is for a block that is taken (zone_take): links, flags, counts, without groups",
    ),
];

/// Costs of gigabit Ethernet of 2010.
const GIGABIT: [Default; 4] = [
    (
        Key::RoundTrip,
        Unit::Ns,
        [40_000.0, 25_000.0, 55_000.0],
        "TCP_RR over gigabit cards without moderation takes 40 to 65 us (from memory), less what the asking machine needs; R. \
         Jones, \"A Brief Look at Latency vs Throughput Tradeoffs\", HP 2006: without moderation of 8000 interrupts/s on both \
         sides a round trip takes up to 85 % less, so 37 us in all",
    ),
    (
        Key::InterruptEvery,
        Unit::Ns,
        [50_000.0, 14_286.0, 125_000.0],
        "igb and e1000e, InterruptThrottleRate: 20,000 a second for short packets (default 3), 70,000 (mode 1), 8000 (fixed; \
         rx-usecs 125); guide of Supermicro's AOC-SG-I2, an 82575 or 82576. bnx2 shows rx-usecs 18 in ethtool -c",
    ),
    (
        Key::Queues,
        Unit::Queues,
        [4.0, 1.0, 8.0],
        "82575: 4 queues; 82576 and 5709: 8; e1000e and tg3 of 2010: 1 (from memory)",
    ),
    (
        Key::Packet,
        Unit::Ns,
        [300.0, 83.0, 550.0],
        "J. D. Brouer, E5-2695 with 3.18: 308 ns to receive and drop a packet, 858 to forward one, so 550 to send it (2014); \
         mlx5, 4 GHz, 2017: 83 ns in the driver alone",
    ),
];

/// True if files may leave a cost out, since it is here.
pub(crate) fn has(key: Key) -> bool {
    let mut all = COMMON.iter().chain(&GIGABIT);
    all.any(|(known, ..)| *known == key)
}

impl Machine {
    /// The same machine with gigabit cards of 2010, unless its file describes its network.
    #[must_use]
    pub fn with_network(self) -> Self {
        self.with_missing(&GIGABIT)
    }

    /// The same machine with the costs that all machines have, unless its file has them.
    pub(crate) fn with_common(self) -> Self {
        self.with_missing(&COMMON)
    }

    fn with_missing(mut self, defaults: &[Default]) -> Self {
        for &(key, unit, [value, low, high], source) in defaults {
            if self.cost(key).is_none() {
                let cost = Cost {
                    value,
                    low,
                    high,
                    unit,
                    source: source.to_string(),
                    unverified: true,
                };
                self = self.with(key, cost);
            }
        }
        self
    }

    /// The same machine with a value that a user gives: it has no range.
    #[must_use]
    pub fn given(self, key: Key, unit: Unit, value: f64) -> Self {
        let cost = Cost {
            value,
            low: value,
            high: value,
            unit,
            source: "given".to_string(),
            unverified: false,
        };
        self.with(key, cost)
    }
}

#[cfg(test)]
mod tests {
    use crate::draw::Draw;

    use super::*;

    #[test]
    fn a_file_describes_its_network_or_has_gigabit_cards() {
        let machine = Machine::bundled("harpertown-2x4").unwrap();
        assert_eq!(machine.nominal_ns(Key::RoundTrip), 0.0);
        let gigabit = machine.clone().with_network();
        let high = Draw::end(Key::InterruptEvery, true);
        let every = [&Draw::VALUES, &high].map(|draw| gigabit.drawn_ns(Key::InterruptEvery, draw));
        assert_eq!(every, [50_000.0, 125_000.0]);
        let own = machine.given(Key::Queues, Unit::Queues, 2.0).with_network();
        assert_eq!(own.nominal_ns(Key::Queues), 2.0);
        assert_eq!(own.cost(Key::Packet), gigabit.cost(Key::Packet));
        let read = Machine::parse("harpertown-2x4", &own.to_text()).unwrap();
        assert_eq!(read, own);
        // Files of before have fewer costs, and read as those that have them.
        let text = own.to_text();
        let is_later = |line: &&str| {
            let later = ["drain_object", "unix_message", "micro_call", "lru_page"];
            later.iter().any(|name| line.starts_with(name))
        };
        let lines = text.lines().filter(|line| !is_later(line));
        let old: Vec<&str> = lines.collect();
        assert_eq!(
            Machine::parse("harpertown-2x4", &old.join("\n")).unwrap(),
            own
        );
        // What is counted in queues has no time.
        let wrong = own.given(Key::Queues, Unit::Ns, 2.0).to_text();
        let refused = Machine::parse("harpertown-2x4", &wrong)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("network.queues: it is not counted in ns"),
            "{refused}"
        );
    }
}
