use quarry_core::era::Era;
use quarry_machines::Machine;

use super::*;
use crate::Setup;

fn spec(processes: u32, era: Era) -> PagesSpec {
    PagesSpec {
        processes,
        pages: 512,
        ..PagesSpec::new(Setup {
            memory_bytes: 1 << 30,
            ..Setup::new(era, Machine::bundled("haswell-ep-2x12").unwrap())
        })
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
    assert!(many.per_second > one.per_second);
}

#[test]
fn processes_out_of_step_wait_in_faults_and_in_frees() {
    let many = run(&spec(24, Era::V4_13)).unwrap();
    let [faults, frees] = [many.fault_lock, many.free_lock].map(|lock| lock.wait_ns);
    let part = faults / (faults + frees);
    assert!((0.3..0.7).contains(&part), "{many:?}");
    // In a steady state as many are faulted in as freed, but for what all processes have at the ends.
    let all = f64::from(24 * 512);
    assert!(
        (many.pages as f64 - many.freed as f64).abs() < 0.5 * all,
        "{many:?}"
    );
    // The window ends within a round of each but the one that opened it.
    let rounds = [many.pages, many.freed].map(|pages| pages as f64 / all);
    assert!(rounds.iter().all(|rounds| *rounds > 0.9), "{many:?}");
}

#[test]
fn a_part_of_a_socket_and_more_sockets_are_cpus_as_well() {
    let few = PagesSpec {
        pages: 8,
        ..spec(512, Era::V6_18)
    };
    let milan = Machine::bundled("milan-2x64").unwrap();
    let report = run(&PagesSpec {
        setup: Setup {
            machine: milan,
            ..few.setup.clone()
        },
        ..few
    });
    assert_eq!(report.unwrap().processes, 512);
    let report = run(&spec(13, Era::V6_18)).unwrap();
    // The process that opens the window ends a whole round in it.
    assert!(
        report.processes == 13 && report.pages >= 512,
        "{}",
        report.pages
    );
}

#[test]
fn a_page_that_is_picked_before_the_lock_is_held_for_less() {
    let held = |processes, era| run(&spec(processes, era)).unwrap().free_lock;
    let [before, from] = [Era::V4_16, Era::V4_17].map(|era| held(4, era));
    // Lists are so long from 5.14 on that a few processes hardly take the lock.
    let [last, after] = [Era::V5_17, Era::V5_18].map(|era| held(24, era));
    // Windows cut rounds at other pages.
    assert!(
        (before.taken / from.taken - 1.0).abs() < 0.02,
        "{from:?} {before:?}"
    );
    assert!(from.hold_ns < before.hold_ns, "{from:?} {before:?}");
    assert!(last.hold_ns < after.hold_ns, "{last:?} {after:?}");
}

/// Processes that move, with more pages than lists keep.
fn moving(era: Era, every: Option<u32>) -> PagesReport {
    let spec = PagesSpec {
        pages: 1024,
        move_every: every,
        ..spec(4, era)
    };
    run(&spec).unwrap()
}

#[test]
fn processes_that_move_free_pages_of_other_cpus() {
    let [stay, moves] = [None, Some(256)].map(|every| moving(Era::V6_18, every));
    assert_eq!((stay.other_cpu, stay.move_every), (0.0, None));
    // 4 CPUs: three of four pages are of others after several moves.
    assert!((0.5..0.9).contains(&moves.other_cpu), "{moves:?}");
    assert!(moves.free.ns > stay.free.ns, "{moves:?} {stay:?}");
    let rare = moving(Era::V6_18, Some(2048));
    assert!(rare.other_cpu < moves.other_cpu, "{rare:?}");
}

#[test]
fn tuned_lists_take_the_zone_lock_less_where_processes_move() {
    let taken = |era| {
        let report = moving(era, Some(256));
        report.fault_lock.taken + report.free_lock.taken
    };
    let [before, tuned] = [Era::V6_6, Era::V6_7].map(taken);
    assert!(tuned < 0.5 * before, "{tuned} {before}");
}

#[test]
fn lists_for_reclaim_have_a_lock_that_is_taken_for_batches() {
    let with = |era| {
        let spec = PagesSpec {
            pages: 1550,
            lru: true,
            ..spec(1, era)
        };
        run(&spec).unwrap()
    };
    for (era, [add, remove]) in [
        (Era::V3_18, [14.0, 14.0]),
        (Era::V4_15, [15.0, 32.0]),
        (Era::V6_18, [31.0, 31.0]),
    ] {
        let report = with(era);
        let taken = [report.fault_lru, report.free_lru].map(|lock| 1.0 / lock.unwrap().taken);
        // The last batches are not full, and the unmapping puts one on the list.
        assert!((taken[0] / add - 1.0).abs() < 0.05, "{era} {taken:?}");
        assert!((taken[1] / remove - 1.0).abs() < 0.05, "{era} {taken:?}");
        assert_eq!(report.lru_wait, Some(0.0));
        // The unmapping had all descriptors: under the lock they are near, as those of new pages are.
        let [add, remove] = [report.fault_lru, report.free_lru].map(|lock| lock.unwrap().hold_ns);
        assert!(remove < 1.1 * add, "{era}: {add} and {remove} ns");
    }
    let [without, many] = [false, true].map(|lru| {
        let spec = PagesSpec {
            lru,
            ..spec(8, Era::V6_18)
        };
        run(&spec).unwrap()
    });
    assert_eq!((without.lru_wait, without.fault_lru), (None, None));
    assert!(many.lru_wait.unwrap() > 0.05, "{many:?}");
    assert!(many.per_second < without.per_second);
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
    // Operations that the ends of the window cut count wholly, or not at all.
    assert!((parts / whole - 1.0).abs() < 0.01, "{parts} of {whole}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let once = run(&spec(4, Era::V2_6_24)).unwrap();
    assert_eq!(run(&spec(4, Era::V2_6_24)).unwrap(), once);
    let all = PagesSpec {
        move_every: Some(64),
        lru: true,
        ..spec(4, Era::V6_18)
    };
    assert_eq!(run(&all).unwrap(), run(&all).unwrap());
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut PagesSpec)| {
        let mut spec = spec(2, Era::V6_18);
        change(&mut spec);
        run(&spec).unwrap_err().to_string()
    };
    let none = refused(|spec| spec.pages = 0);
    assert_eq!(none, "pages and rounds must be at least 1");
    let memory = refused(|spec| spec.setup.memory_bytes = 1 << 20);
    assert!(
        memory.ends_with("need 4194304 bytes of the machine's 1048576"),
        "{memory}"
    );
    let never = refused(|spec| spec.move_every = Some(0));
    assert_eq!(never, "move-every must be at least 1");
    let alone = refused(|spec| (spec.processes, spec.move_every) = (1, Some(8)));
    assert!(alone.starts_with("processes must be at least 2 with move-every"));
    let cpus = refused(|spec| spec.processes = 97);
    assert!(
        cpus.contains("97 CPUs on haswell-ep-2x12: take 1 to 96; "),
        "{cpus}"
    );
}
