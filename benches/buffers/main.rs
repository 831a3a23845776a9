//! Compares page pools as receive buffers with what programs use now, on this machine, in one run.
//!
//! A buffer has 4096 bytes. A receiver takes one, as a kernel would fill it, and a consumer gives it back, on the same
//! thread or on another CPU's. In patterns *with bytes* the receiver copies a packet of 1448 bytes into it, and the
//! consumer adds them up; else no byte is touched, and the pool alone is timed.
//!
//! Rounds interleave the arms, so that drift of the machine's speed hits all of them. Reported are the median and minimum
//! over the rounds, and the median of the round-by-round ratio to a `Mutex<Vec<Box<[u8]>>>`, which is there twice: the
//! ratio of the *null* arm shows the noise. Counters of the kernel are read around the same work, in rounds of their own.
//!
//! `cargo bench --bench buffers -- --help` lists the options.

mod arms;
#[path = "../common/mod.rs"]
mod common;
mod counters;
#[path = "../common/counting.rs"]
mod counting;
#[path = "../common/hand_over.rs"]
mod hand_over;
mod patterns;
mod received;
mod report;
#[path = "../common/times.rs"]
mod times;

use clap::Parser;
use serde_json::json;

use counters::Counters;
use patterns::Pattern;
use report::Results;

#[cfg(feature = "kmalloc")]
#[global_allocator]
static ALLOCATOR: quarry::Kmalloc = quarry::Kmalloc;

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Times receive buffers")]
struct Options {
    /// Rounds; each times every arm once per pattern.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Buffers per round, arm and pattern: a fourth of these.
    #[arg(long, default_value_t = 1 << 20)]
    objects: usize,
    /// CPU to run on; second threads run on another one.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Only patterns whose name contains this.
    #[arg(long, default_value = "")]
    pattern: String,
    /// Only arms whose name contains this, and the one that they are compared with.
    #[arg(long, default_value = "")]
    arm: String,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// For other benchmarks, which `cargo bench` gives the same options.
    #[arg(long, hide = true)]
    size: Option<usize>,
    /// For the benchmark of pages.
    #[arg(long, hide = true)]
    fills: Option<usize>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    common::end_with_reader();
    common::pin(options.cpu);
    let buffers = options.objects / 4;
    let mut arms = arms::arms();
    arms.retain(|arm| arm.name().contains(&options.arm) || arm.name() == report::REFERENCE);
    let mut results = Results::new();
    let mut counters = Counters::open();
    for round in 0..=options.rounds {
        let chosen = |pattern: &Pattern| pattern.name().contains(&options.pattern);
        for pattern in Pattern::ALL.into_iter().filter(chosen) {
            for arm in &mut arms {
                if round == 0 {
                    // Warms up, and counts a second time what it costs then.
                    arm.time(pattern, buffers, options.cpu);
                    let counts =
                        counters.around(|| arm.time(pattern, buffers, options.cpu).is_some());
                    results.count(arm.name(), pattern, counts, buffers);
                } else if let Some(ns) = arm.time(pattern, buffers, options.cpu) {
                    results.times.add(arm.name(), pattern, ns / buffers as f64);
                }
            }
        }
    }
    let messages = buffers / 4;
    let received = received::run(options.rounds, messages, options.cpu);
    if options.json {
        let received = received.as_ref().ok().map(received::json);
        println!(
            "{}",
            json!({ "pools": results.json(), "received": received })
        );
    } else {
        results.print(options.rounds, buffers);
        match received {
            Ok(times) => received::print(&times, options.rounds, messages),
            Err(error) => println!("\nno messages over TCP: {error}"),
        }
    }
}
