//! Compares the page allocator and page pools with DPDK's mempool, on this machine, in one run.
//!
//! Rounds interleave the arms, so that drift of the machine's speed hits all of them; each round
//! times one arm for a fixed number of pages. Reported are the median and minimum over the rounds,
//! and the median of the round-by-round ratio to the reference, which is DPDK's mempool where it
//! has the pattern and the page allocator elsewhere. The *null* arm is the page allocator once more:
//! its ratio to the page allocator shows the noise. *owned pages* have a handle that alone frees
//! them. A page pool's owner gives back to its stack, other threads to a CPU's lane or the ring;
//! *pool, batches* does both with batches. Nothing is written to the pages: what is timed is what
//! handing them out costs.
//!
//! DPDK's loops over single calls are in C, where its calls are inline, as ours are here. With two
//! threads of the same pattern each has a pool, as a pool has one owner, and they share the mempool,
//! whose cores have caches. Where another thread gives back, a pool's owner allocates and the other
//! puts into its CPU's lane; one of DPDK's cores gets and another one puts into its own cache, from which
//! the mempool's common ring is filled in bulk.
//!
//! Afterwards each refill and each drain of a per-CPU list is timed by itself. What a kernel needs
//! for a page is printed below, from the literature, for orientation: it is other hardware.
//!
//! `cargo bench --bench pages -- --help` lists the options.

mod arms;
#[path = "../common/mod.rs"]
mod common;
mod dpdk;
#[path = "../common/hand_over.rs"]
mod hand_over;
mod latency;
mod patterns;
mod report;
#[path = "../common/times.rs"]
mod times;

use clap::Parser;

use patterns::Pattern;
use report::Results;

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Times allocation and freeing of pages, and DPDK's mempool")]
struct Options {
    /// Rounds; each times every arm once per pattern.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Pages per round, arm and pattern.
    #[arg(long, default_value_t = 1 << 20)]
    objects: usize,
    /// Rounds of filling and emptying the per-CPU lists for the times of single refills and drains.
    #[arg(long, default_value_t = 20)]
    fills: usize,
    /// CPU to run on; second threads run on another one.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Only patterns whose name contains this.
    #[arg(long, default_value = "")]
    pattern: String,
    /// Only arms whose name contains this, and those that they are compared with.
    #[arg(long, default_value = "")]
    arm: String,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// For the benchmark of objects, which `cargo bench` gives the same options.
    #[arg(long, hide = true)]
    size: Option<usize>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    common::end_with_reader();
    let dpdk = dpdk::start(options.cpu);
    common::pin(options.cpu);
    let mut results = Results::new(dpdk.as_ref().err().cloned());
    let pages = arms::page_allocator();
    let arms = arms::arms(&pages, dpdk.ok());
    for round in 0..=options.rounds {
        let chosen = |pattern: &Pattern| pattern.name().contains(&options.pattern);
        for pattern in Pattern::ALL.into_iter().filter(chosen) {
            for arm in &arms {
                if !arm.name().contains(&options.arm) && !report::REFERENCES.contains(&arm.name()) {
                    continue;
                }
                let Some(ns) = arm.time(pattern, options.objects, options.cpu) else {
                    continue;
                };
                // The first round warms up.
                if round > 0 {
                    results.times.add(arm.name(), pattern, ns);
                }
            }
        }
    }
    let latencies = latency::measure(options.fills);
    if options.json {
        println!("{}", results.json(&latencies));
    } else {
        results.print(options.rounds, options.objects);
        latency::print(&latencies);
        report::print_kernel_figures();
    }
}
