use super::*;
use crate::donor;
use crate::fixture::computer;
use crate::measure::Between;

fn sample(value: f64) -> Sample {
    Sample {
        value,
        low: value * 0.9,
        high: value * 1.5,
    }
}

fn cpu() -> CpuInfo {
    CpuInfo::parse("vendor_id : AuthenticAMD\nmodel name : AMD \"EPYC\" 1\nflags : avx avx2\n")
}

fn figures() -> Figures {
    Figures {
        ghz: sample(2.5),
        l1: sample(1.6),
        l2: Some(sample(5.6)),
        llc: Some(sample(20.0)),
        memory: sample(100.0),
        memory_remote: None,
        misses_lines: sample(12.0),
        between: [
            Some(Between {
                cpus: [1, 0],
                clean: sample(30.0),
                dirty: sample(40.0),
                upgrade: sample(50.0),
            }),
            None,
            None,
        ],
        atomic: sample(8.0),
        fill_kib: sample(8.0),
        copy_kib: sample(16.0),
        syscall: sample(90.0),
        unix_message: Some(sample(900.0)),
        switch: sample(1200.0),
        wake: Some(sample(3200.0)),
    }
}

fn described(computer: &Computer, figures: &Figures) -> Machine {
    let donor = donor::nearest(&cpu()).unwrap();
    machine("mine", &cpu(), computer, figures, &donor)
}

#[test]
fn what_is_written_is_read_as_the_same_machine() {
    let machine = described(&computer(), &figures());
    let read = Machine::parse("mine", &machine.to_text()).unwrap();
    assert_eq!(read, machine);
    assert_eq!(
        read.about.split(", cal").next(),
        Some("AMD \"EPYC\" 1, 2 CPUs")
    );
    assert!(
        read.topology.source.ends_with("; a note"),
        "{}",
        read.topology.source
    );
}

#[test]
fn measured_costs_have_their_unit_and_others_their_donor() {
    let machine = described(&computer(), &figures());
    let cost = |key| machine.cost(key).unwrap();
    // 1.6 and 8 at 2.5 GHz.
    assert_eq!(
        (cost(Key::L1).value, cost(Key::L1).unit),
        (4.0, Unit::Cycles)
    );
    assert_eq!(cost(Key::Atomic).value, 20.0);
    assert_eq!(cost(Key::DirtyCluster).value, 40.0);
    // 1024 bytes in 20 cycles, and copies in twice that, or 60 in a slow round.
    let copy = cost(Key::Copy);
    assert_eq!((copy.value, copy.low), (51.2, digits(1024.0 / 60.0)));
    assert_eq!(cost(Key::RemoteWake).value, 2000.0);
    assert!(!cost(Key::L1).unverified);
    let source = &cost(Key::DirtyCluster).source;
    assert!(
        source.starts_with("measured by quarry calibrate on 2"),
        "{source}"
    );
    assert!(
        source.contains("AMD \"EPYC\" 1: CPU 0 from CPU 1, "),
        "{source}"
    );
    let irq = cost(Key::IrqSave);
    let milan = Machine::bundled("milan-2x64").unwrap();
    assert_eq!(irq.value, milan.cost(Key::IrqSave).unwrap().value);
    assert!(
        irq.unverified
            && irq
                .source
                .starts_with("not measured (no process can measure it); work.irq_save of milan")
    );
    assert!(machine.cost(Key::DirtySocket).is_none() && machine.cost(Key::Bus).is_none());
    assert!(!machine.caches.llc.unwrap().inclusive && machine.caches.llc.unwrap().hashed);
}

#[test]
fn with_one_usable_cpu_what_needs_two_is_taken_over() {
    let alone = Figures {
        between: [None; 3],
        wake: None,
        ..figures()
    };
    let machine = described(&computer(), &alone);
    for key in [
        Key::CleanCluster,
        Key::DirtyCluster,
        Key::UpgradeCluster,
        Key::RemoteWake,
    ] {
        let cost = machine.cost(key).unwrap();
        assert!(
            cost.unverified && cost.source.contains("needs two usable CPUs"),
            "{cost:?}"
        );
    }
}

#[test]
fn a_distance_that_the_donor_lacks_is_as_a_nearer_one() {
    let several = Computer {
        sockets: 2,
        clusters: 2,
        nodes: 2,
        ..computer()
    };
    let haswell = Machine::bundled("haswell-ep-2x12").unwrap();
    let machine = machine("mine", &cpu(), &several, &figures(), &haswell);
    let socket = machine.cost(Key::DirtySocket).unwrap();
    assert!(
        socket
            .source
            .contains("two clusters of a socket); latency.dirty_cluster of haswell"),
        "{socket:?}"
    );
    let remote = machine.cost(Key::DirtyRemote).unwrap();
    assert!(
        remote.source.contains("latency.dirty_remote of haswell"),
        "{remote:?}"
    );
    Machine::parse("mine", &machine.to_text()).unwrap();
}

#[test]
fn figures_that_contradict_each_other_are_refused() {
    let odd = Figures {
        l1: sample(30.0),
        ..figures()
    };
    let machine = described(&computer(), &odd);
    let error = Machine::parse("mine", &machine.to_text()).unwrap_err();
    let error = crate::CalibrateError::Contradiction(error).to_string();
    assert!(
        error.contains("measure again") && error.contains("latency.l2"),
        "{error}"
    );
}
