//! Compares typed objects with pools of objects and with boxes on other allocators, on this machine, in one run.
//!
//! Every arm does the same work in the same loop: take objects of 64 bytes, write their first word, give them back.
//! Arms that make values write all of them; pools that keep values do not. Rounds interleave the arms. Reported are the
//! median and minimum over the rounds, and the median of the round-by-round ratio to boxes on mimalloc. The *null* arm is
//! mimalloc once more: its ratio shows the noise.
//!
//! `cargo bench --bench objects -- --help` lists the options.

mod arms;
#[path = "../common/mod.rs"]
mod common;
mod patterns;
#[path = "../common/times.rs"]
mod times;

use std::process::Command;

use clap::Parser;

use patterns::Pattern;
use times::{Times, print_table};

/// The arm that the others are compared with.
const REFERENCE: &str = "Box, mimalloc";

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Times typed objects, pools of objects, and boxes on other allocators")]
struct Options {
    /// Rounds; each times every arm once per pattern.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Objects per round, arm and pattern.
    #[arg(long, default_value_t = 1 << 18)]
    objects: usize,
    /// Objects that are live in the last pattern.
    #[arg(long, default_value_t = 1_000_000)]
    live: usize,
    /// CPU to run on; second threads run on another one.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Print the bytes in memory per live object of this arm, and nothing else.
    #[arg(long, hide = true)]
    bytes_of: Option<String>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Bytes in memory per live object of an arm, in a process of its own.
fn bytes_of(arm: &str, live: usize) -> String {
    let me = std::env::current_exe().expect("a path");
    let live = live.to_string();
    let output = Command::new(me)
        .args(["--bytes-of", arm, "--live", &live])
        .output()
        .expect("this program");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn main() {
    let options = Options::parse();
    common::end_with_reader();
    common::pin(options.cpu);
    let mut times = Times::new();
    let arms = arms::arms();
    if let Some(name) = &options.bytes_of {
        let arm = arms.iter().find(|arm| arm.name() == name);
        if let Some(bytes) = arm.and_then(|arm| arm.bytes(options.live)) {
            println!("{bytes:.0}");
        }
        return;
    }
    for round in 0..=options.rounds {
        for pattern in Pattern::ALL {
            for arm in &arms {
                let ns = arm.time(pattern, &options);
                // The first round warms up.
                if let Some(ns) = ns.filter(|_| round > 0) {
                    times.add(arm.name(), pattern, ns);
                }
            }
        }
    }
    let Options {
        rounds,
        objects,
        live,
        ..
    } = options;
    println!(
        "take+give of 64-byte objects, ns per pair: median (min) over {rounds} rounds of {objects} objects, and median \
         ratio to {REFERENCE}; bytes in memory per object with {live} live"
    );
    let names = Pattern::ALL.iter().map(|pattern| pattern.name().to_owned());
    let header = std::iter::once("pool".to_owned()).chain(names);
    let header = header.chain(["bytes".to_owned()]);
    let rows = times.arms().iter().map(|arm| {
        let cells = Pattern::ALL.iter().map(|&pattern| {
            let summary = times.summary(arm, pattern, &[REFERENCE]);
            summary.map_or_else(String::new, |summary| summary.to_string())
        });
        let cells = std::iter::once(arm.clone()).chain(cells);
        cells.chain([bytes_of(arm, live)]).collect()
    });
    print_table(header.collect(), rows);
}
