//! Compares allocation and free with other allocators, on this machine, in one run.
//!
//! Every arm does the same work in the same loop: allocate objects, write their first word, free
//! them. Rounds interleave the arms, so that drift of the machine's speed hits all of them; each
//! round times one arm for a fixed number of objects. Reported are the median and minimum over
//! the rounds, and the median of the round-by-round ratio to mimalloc. The *null* arm is mimalloc
//! once more: its ratio shows the noise.
//!
//! `cargo bench -- --help` lists the options.

mod arms;
#[path = "../common/mod.rs"]
mod common;
mod patterns;
mod report;
#[path = "../common/times.rs"]
mod times;

use clap::Parser;

use patterns::Pattern;
use times::Times;

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Times alloc+free of Quarry's designs and of other allocators")]
struct Options {
    /// Bytes of an object.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Rounds; each times every arm once per pattern.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Objects per round, arm and pattern.
    #[arg(long, default_value_t = 1 << 20)]
    objects: usize,
    /// CPU to run on; the freeing thread of the last pattern runs on another one.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    common::end_with_reader();
    common::pin(options.cpu);
    let mut times = Times::new();
    let arms = arms::arms(options.size);
    for round in 0..=options.rounds {
        for pattern in Pattern::ALL {
            for arm in &arms {
                let ns = arm.time(pattern, options.objects, options.cpu);
                // The first round warms up.
                if round > 0 {
                    times.add(arm.name(), pattern, ns);
                }
            }
        }
    }
    if options.json {
        println!("{}", report::json(&times, options.size));
    } else {
        report::print(&times, options.size, options.rounds, options.objects);
    }
}
