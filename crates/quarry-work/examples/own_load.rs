//! A load of one's own: a message broker, on a virtual machine and on this computer.
//!
//! Each producer sends orders to its broker over TCP, and the broker passes them to a consumer through a Unix
//! socket. Every message is a socket buffer: its head and its data come from caches of the design.
//!
//! Run it with `cargo run --release -p kquarry-work --example own_load`.

use std::error::Error;
use std::time::Duration;

use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_designs::Tuning;
use quarry_machines::Machine;
use quarry_work::Setup;
use quarry_work::load::host::{self, HostSpec};
use quarry_work::load::{Load, LoadSpec, Own, run};
use quarry_work::net::SendSizes;
use quarry_work::world::{End, Over, Scenario, Task, Transport, receive_all};

const ORDER_BYTES: u32 = 300;
const ORDERS: u32 = 2_000;

fn brokers(scenario: &mut Scenario, pairs: u32, _seed: u64) {
    for _ in 0..pairs {
        let (producer, inbox) = scenario.connect(Transport::Tcp);
        let (outbox, consumer) = scenario.connect(Transport::Unix);
        scenario.spawn(Box::new(move |task: &dyn Task| {
            for number in 0..ORDERS {
                task.send(producer, ORDER_BYTES, number.into())?;
            }
            task.close(producer);
            Ok(())
        }));
        scenario.spawn(Box::new(move |task: &dyn Task| {
            loop {
                let order = receive_all(task, inbox, ORDER_BYTES)?;
                if order.bytes == 0 {
                    task.close(outbox);
                    return Ok(());
                }
                task.send(outbox, order.bytes, order.word)?;
            }
        }));
        scenario.spawn(Box::new(move |task: &dyn Task| consume(task, consumer)));
    }
}

fn consume(task: &dyn Task, consumer: End) -> Result<(), Over> {
    loop {
        let order = receive_all(task, consumer, ORDER_BYTES)?;
        if order.bytes == 0 {
            return Ok(());
        }
        task.done(1, order.bytes.into());
    }
}

fn load(pairs: u32) -> Load {
    Load::Own(Own {
        name: "brokers",
        size: pairs,
        largest_message: ORDER_BYTES,
        operations: Some(u64::from(pairs * ORDERS)),
        set_up: brokers,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Machine::bundled("milan-2x64")?;
    let setup = |era| Setup {
        memory_bytes: 1 << 30,
        ..Setup::new(era, machine.clone())
    };
    let spec = |era| LoadSpec {
        cpus: 16,
        ..LoadSpec::new(load(16), setup(era))
    };
    let slub = run::<Slub>(&spec(Era::V6_18), &|_| ())?;
    let sheaves = run::<SheafCache>(&spec(Era::V7_0), &|_| ())?;
    println!(
        "16 pairs, 16 virtual CPUs: SLUB {:8.0} orders/s, sheaves {:8.0}",
        slub.per_second, sheaves.per_second
    );

    let here = host::run::<Slub>(&HostSpec {
        load: load(2),
        time: Duration::from_secs(1), // For loads that run for a time; this one ends by itself.
        era: Era::V6_18,
        sizes: SendSizes::of(Era::V6_18),
        tuning: Tuning::default(),
        changes: Vec::new(),
        page_bytes: 4096,
        memory_bytes: 1 << 30,
        seed: 1,
    })?;
    println!(
        " 2 pairs, this computer:   SLUB {:8.0} orders/s",
        here.per_second
    );
    Ok(())
}
