use std::time::Duration;

use quarry_core::era::Era;
use quarry_core::slub::Slub;
use quarry_machines::Machine;

use super::host::{self, HostSpec};
use super::{Load, LoadSpec, Own, explore, run};
use crate::Setup;
use crate::net::SendSizes;
use crate::world::{Scenario, Task, Transport};
use quarry_designs::Tuning;

/// Pairs of tasks: one sleeps and then sends what time it is; the other one gives its CPU up now and then.
fn clocks(world: &mut Scenario, pairs: u32, _: u64) {
    for pair in 0..u64::from(pairs) {
        let (out, at) = world.connect(Transport::Unix);
        world.spawn(Box::new(move |task: &dyn Task| {
            for _ in 0..20 {
                let before = task.now_ns();
                task.sleep_ns(200_000);
                let now = task.now_ns();
                assert!(now == 0 || now - before >= 200_000, "{before} {now}");
                task.send(out, 100, now + pair)?;
            }
            task.close(out);
            Ok(())
        }));
        world.spawn(Box::new(move |task: &dyn Task| {
            loop {
                let got = task.receive(at, 100)?;
                if got.bytes == 0 {
                    return Ok(());
                }
                assert!(got.word <= task.now_ns() + pair);
                task.give_up_cpu();
                task.done(1, got.bytes.into());
            }
        }));
    }
}

const CLOCKS: Load = Load::Own(Own {
    name: "clocks",
    size: 3,
    largest_message: 100,
    operations: Some(60),
    set_up: clocks,
});

fn on_host(load: Load) -> HostSpec {
    HostSpec {
        load,
        time: Duration::from_millis(30),
        era: Era::V6_18,
        sizes: SendSizes::of(Era::V6_18),
        tuning: Tuning::default(),
        changes: Vec::new(),
        page_bytes: 4096,
        memory_bytes: 1 << 30,
        seed: 1,
    }
}

#[test]
fn a_load_of_the_callers_runs_everywhere() {
    let machine = Machine::bundled("milan-2x64").unwrap();
    let setup = Setup {
        memory_bytes: 1 << 30,
        ..Setup::new(Era::V6_18, machine)
    };
    let spec = LoadSpec {
        cpus: 2,
        ..LoadSpec::new(CLOCKS, setup)
    };
    let report = run::<Slub>(&spec, &|_| ()).unwrap();
    assert_eq!(
        (report.load, report.size, report.operations),
        ("clocks", 3, 60)
    );
    // Sleeps are most of it.
    assert!(report.seconds >= 20.0 * 200e-6 && report.idle_percent > 90.0);
    for seed in 0..20 {
        let mut spec = spec.clone();
        spec.setup.seed = seed;
        assert_eq!(explore::<Slub>(&spec, 300, 60).unwrap().operations, 60);
    }
    let report = host::run::<Slub>(&on_host(CLOCKS)).unwrap();
    assert_eq!((report.threads, report.operations), (6, 60));
    assert!(report.seconds >= 20.0 * 200e-6, "{}", report.seconds);
}

#[test]
fn threads_have_no_connection_to_another_machine() {
    let load = Load::Own(Own {
        name: "away",
        size: 1,
        largest_message: 1,
        operations: Some(1),
        set_up: |world, _, _| {
            world.connect(Transport::Remote(1));
        },
    });
    let error = host::run::<Slub>(&on_host(load)).unwrap_err().to_string();
    assert!(error.contains("on virtual machines only"), "{error}");
}
