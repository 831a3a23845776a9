use quarry_core::era::Era;
use quarry_machines::Machine;

use super::*;
use crate::Setup;

fn spec(processes: u32, era: Era) -> PagesSpec {
    PagesSpec {
        processes,
        pages: 512,
        rounds: 1,
        setup: Setup {
            memory_bytes: 1 << 30,
            ..Setup::new(era, Machine::bundled("haswell-ep-2x12").unwrap())
        },
    }
}

#[test]
fn the_zone_lock_is_waited_for_by_several_processes_only() {
    let one = run(&spec(1, Era::V4_13)).unwrap();
    let many = run(&spec(12, Era::V4_13)).unwrap();
    assert_eq!((one.fault_lock.wait_ns, one.free_lock.wait_ns), (0.0, 0.0));
    assert!(one.fault_lock.hold_ns > 0.0 && one.free_lock.hold_ns > 0.0);
    assert!(many.free_lock.wait_ns > many.free_lock.hold_ns, "{many:?}");
    assert!(many.free.ns > one.free.ns, "{many:?} {one:?}");
    assert!(many.fault.per_second > one.fault.per_second);
}

#[test]
fn a_page_that_is_picked_before_the_lock_is_held_for_less() {
    let held = |era| run(&spec(4, era)).unwrap().free_lock;
    let [before, from, last, after] = [Era::V4_16, Era::V4_17, Era::V5_17, Era::V5_18].map(held);
    assert_eq!(before.taken, from.taken);
    assert!(from.hold_ns < before.hold_ns, "{from:?} {before:?}");
    assert!(last.hold_ns < after.hold_ns, "{last:?} {after:?}");
}

#[test]
fn what_the_time_went_into_adds_up_to_it() {
    let report = run(&spec(4, Era::V6_18)).unwrap();
    let causes = &report.causes;
    let named = causes.access_ns.iter().chain(&causes.work_ns);
    let named: f64 = named.map(|(_, ns)| ns).sum();
    let locks = causes.locks.iter().map(|lock| lock.wait_ns + lock.own_ns);
    let parts = named + causes.fill_ns + locks.sum::<f64>();
    let whole = report.fault.ns + report.free.ns;
    assert!((parts / whole - 1.0).abs() < 0.001, "{parts} of {whole}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let once = run(&spec(4, Era::V2_6_24)).unwrap();
    assert_eq!(run(&spec(4, Era::V2_6_24)).unwrap(), once);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut PagesSpec)| {
        let mut spec = spec(2, Era::V6_18);
        change(&mut spec);
        run(&spec).unwrap_err().to_string()
    };
    let none = refused(|spec| spec.pages = 0);
    assert_eq!(none, "0 pages or 0 rounds: a run has at least one of each");
    let memory = refused(|spec| spec.setup.memory_bytes = 1 << 20);
    assert!(
        memory.ends_with("need 4194304 bytes of the machine's 1048576"),
        "{memory}"
    );
    let cpus = refused(|spec| spec.processes = 25);
    assert!(cpus.ends_with("take 1 to 12, or 24"), "{cpus}");
}
