//! Contended locks of the bundled machines, against what was published of real ones.
//!
//! Each CPU takes one lock, counts, releases it, and takes it again at once. The published figures are a test and not
//! an input: no cost of a machine and no step of a lock was derived from them.

use std::cell::Cell;

use quarry_core::era::Era;
use quarry_core::machine::{Access, CpuId, LockClass, Locks as _, RawLock};
use quarry_machines::{Draw, Machine};
use quarry_sim::time::LockKind;
use quarry_sim::{Config, VirtualMachine};

/// Time before counting begins, and for which it goes on.
const WARM_PS: u64 = 100_000_000;
const MEASURED_PS: u64 = 400_000_000;

#[repr(align(128))]
struct OnItsLine<T>(T);

/// Nanoseconds from one acquisition to the next, of some CPUs of a machine.
fn hand_over_ns(name: &str, kind: LockKind, cpus: &[u32], counts: bool) -> f64 {
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
    let (lock, counter) = (OnItsLine(RawLock::new()), OnItsLine(0_u64));
    let counter = std::ptr::from_ref(&counter.0).cast();
    let taken = Cell::new(0_u64);
    let ran = machine.run_cpus(|CpuId(cpu)| {
        if !cpus.contains(&cpu) {
            return;
        }
        while machine.clock_ps() < WARM_PS + MEASURED_PS {
            machine.lock(&lock.0, LockClass::NodeList).unwrap();
            if counts {
                machine.use_memory(counter, 8, Access::Write);
            }
            // SAFETY: it was taken above.
            unsafe { machine.unlock(&lock.0, LockClass::NodeList) };
            let measured = WARM_PS..WARM_PS + MEASURED_PS;
            taken.set(taken.get() + u64::from(measured.contains(&machine.clock_ps())));
        }
    });
    assert_eq!(ran, Ok(()));
    MEASURED_PS as f64 / 1000.0 / taken.get() as f64
}

const KINDS: [LockKind; 3] = [LockKind::TestAndSet, LockKind::Ticket, LockKind::Queued];

#[test]
#[ignore = "a table to look at"]
fn table() {
    for name in [
        "haswell-ep-2x12",
        "barcelona-2x4",
        "clovertown-2x4",
        "harpertown-2x4",
        "milan-2x64",
        "skylake-sp-8x28",
    ] {
        for counts in [false, true] {
            for kind in KINDS {
                print!("{name:16} counts={counts:5} {kind:?}: ");
                for n in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128] {
                    let most = Machine::bundled(name).unwrap().topology.all_cpus();
                    if n > most {
                        continue;
                    }
                    let cpus: Vec<u32> = (0..n).collect();
                    print!(" {n}:{:.0}", hand_over_ns(name, kind, &cpus, counts));
                }
                println!();
            }
        }
    }
}
