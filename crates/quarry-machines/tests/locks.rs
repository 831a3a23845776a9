//! Contended locks of the bundled machines, against what was published of real ones.
//!
//! CPUs take a lock, release it, and take it again at once. The published figures are a test and not an input: no cost of a
//! machine was derived from them. No machine that was measured is bundled. So shapes are compared: what
//! a hand-over takes with n CPUs, against what a ticket or flag takes with two. `docs/time.md` has the table.

use std::cell::Cell;

use quarry_core::era::Era;
use quarry_core::machine::{CpuId, LockClass, Locks as _, RawLock};
use quarry_machines::{Draw, Machine};
use quarry_sim::time::LockKind;
use quarry_sim::{Config, VirtualMachine};

/// Time before counting begins, and for which it goes on.
const WARM_PS: u64 = 100_000_000;
const MEASURED_PS: u64 = 400_000_000;

/// Nanoseconds from one acquisition to the next, of some CPUs of a machine.
fn hand_over_ns(name: &str, kind: LockKind, cpus: &[u32]) -> f64 {
    let all = cpus.iter().max().unwrap() + 1;
    let machine = Machine::bundled(name).unwrap();
    let base = Config {
        memory_bytes: 1 << 30,
        ..Config::default()
    };
    let draw = Draw::VALUES;
    let mut config = machine.config(all, Era::V6_6, &draw, 1, base).unwrap();
    config.time.as_mut().unwrap().locks = kind;
    let machine = VirtualMachine::new(config).unwrap();
    let lock = RawLock::new();
    let taken = Cell::new(0_u64);
    let ran = machine.run_cpus(|CpuId(cpu)| {
        if !cpus.contains(&cpu) {
            return;
        }
        // They come in an order that is not that of their numbers, or neighbours would follow each other in a queue.
        machine.spend(u64::from(cpu) * 7919 % 1009 * 20_000);
        while machine.clock_ps() < WARM_PS + MEASURED_PS {
            machine.lock(&lock, LockClass::NodeList).unwrap();
            // SAFETY: it was taken above.
            unsafe { machine.unlock(&lock, LockClass::NodeList) };
            let measured = WARM_PS..WARM_PS + MEASURED_PS;
            taken.set(taken.get() + u64::from(measured.contains(&machine.clock_ps())));
        }
    });
    assert_eq!(ran, Ok(()));
    MEASURED_PS as f64 / 1000.0 / taken.get() as f64
}

/// The first n CPUs.
fn first(n: u32) -> Vec<u32> {
    (0..n).collect()
}

/// CPUs, and milliseconds that each of as many tasks took for 10 million acquisitions: Westmere-EX (2.4 GHz, ten cores a
/// socket), all on one node, a lock alone on its line (W. Long, "qspinlock: a 4-byte queue spinlock", 2014; from memory).
const TICKET_MS: [(u32, f64); 7] = [
    (2, 890.0),
    (3, 1932.0),
    (4, 2829.0),
    (5, 3834.0),
    (6, 4963.0),
    (7, 6299.0),
    (8, 7691.0),
];
/// The same of the queue, without a bit for a single waiter: so two and three are not compared.
const QUEUE_MS: [(u32, f64); 5] = [
    (4, 2900.0),
    (5, 3655.0),
    (6, 4336.0),
    (7, 5057.0),
    (8, 5786.0),
];

/// Checks hand-overs with n CPUs, in hand-overs with two, to a tolerance.
fn assert_shape(
    name: &str,
    kind: LockKind,
    two_ns: f64,
    published: impl IntoIterator<Item = (u32, f64)>,
    tolerance: f64,
) {
    for (n, expected) in published {
        let ratio = hand_over_ns(name, kind, &first(n)) / two_ns;
        let off = ratio / expected - 1.0;
        let what =
            format!("{name} {kind:?} n={n}: {expected:.2} published, {ratio:.2} ({off:+.2})");
        println!("{what}");
        assert!(off.abs() < tolerance, "{what}");
    }
}

#[test]
fn tickets_slow_down_with_waiters_as_published_and_queues_do_not() {
    let name = "haswell-ep-2x12";
    let two_ns = hand_over_ns(name, LockKind::Ticket, &first(2));
    // In hand-overs of a ticket with two tasks. A task's time has those of all.
    let each_ms = |(n, ms): (u32, f64)| (n, ms / f64::from(n) / (TICKET_MS[0].1 / 2.0));
    let published = TICKET_MS.map(each_ms);
    assert_shape(name, LockKind::Ticket, two_ns, published, 0.2);
    assert_shape(name, LockKind::Queued, two_ns, QUEUE_MS.map(each_ms), 0.15);
}

/// Published for an Opteron of two nodes and 32 cores: 9.08, 7.38 and 7.34 million acquisitions a second with 2, 4 and 8
/// threads (concurrencyfreaks.blogspot.com, "Benchmarks for Ticket Lock AWN in C11", 2015). Where its threads ran is not said.
/// The bundled machine has 4 CPUs a node, and its hand-overs take half as long again: stores to shared lines are sent to all.
#[test]
fn tickets_of_an_opteron_are_as_published_within_a_node() {
    let name = "barcelona-2x4";
    let two_ns = hand_over_ns(name, LockKind::Ticket, &first(2));
    assert_shape(name, LockKind::Ticket, two_ns, [(4, 9.08 / 7.38)], 0.2);
    let published_ns = 1000.0 / 9.08;
    assert!((1.2..1.8).contains(&(two_ns / published_ns)), "{two_ns}");
}

/// Published for a Core i5-3450 (four cores): 168.7, 482.2 and 672.7 ms with 2, 3 and 4 threads of 3 million acquisitions each
/// (github.com/PetarKirov/lock_benchmark, `posix`, on the heap: a flag that waiters read, as kernels had). With two CPUs a
/// flag takes 0.59 of the ticket's time: that of a Core i7-3740QM of the same design (20.96 million a second, same source as
/// the Opteron's). Most are sets by the last holder, which needs no transfer.
#[test]
fn a_flag_is_cheaper_than_a_ticket_for_two_and_slows_down_with_more() {
    let name = "haswell-ep-2x12";
    let flag = |ms: f64, n: u32| ms / f64::from(n) / 3.0;
    let two_ns = hand_over_ns(name, LockKind::TestAndSet, &first(2));
    let published = [(3, 482.2), (4, 672.7)].map(|(n, ms)| (n, flag(ms, n) / flag(168.7, 2)));
    assert_shape(name, LockKind::TestAndSet, two_ns, published, 0.35);
    let ticket_ns = hand_over_ns(name, LockKind::Ticket, &first(2));
    let of_ticket = flag(168.7, 2) * 20.96 / 1000.0;
    assert_shape(name, LockKind::TestAndSet, ticket_ns, [(2, of_ticket)], 0.2);
}

/// Published for four sockets of E7-8895 v3: 6 % less with 72 and 9 % less with 142 threads than with 36 (A. Kogan, "Add
/// NUMA-awareness to qspinlock", v11, 2020). How neighbours meet in the queue decides here, by up to a sixth.
#[test]
fn a_queue_over_four_sockets_is_as_fast_with_many_as_with_few() {
    let spread = |n: u32| (0..n).map(|i| i % 4 * 28 + i / 4).collect::<Vec<_>>();
    let ns = |n| hand_over_ns("skylake-sp-8x28", LockKind::Queued, &spread(n));
    let few_ns = ns(36);
    for n in [72, 112] {
        let ratio = ns(n) / few_ns;
        println!("{n} of four sockets: {ratio:.2}");
        assert!((0.8..1.2).contains(&ratio), "{n}: {ratio:.2}");
    }
}
