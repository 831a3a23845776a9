//! Compares the preloaded malloc with others on programs whose load is their memory.
//!
//! The loads have the shapes of suites that allocators are compared by: blocks of one size, random sizes and lifetimes,
//! servers whose threads hand objects on, threads that end, large blocks, strings. Each is a process of its own, this
//! program once more, with an allocator preloaded; it measures itself. Rounds interleave the allocators. Reported are
//! medians of the ratios to mimalloc, round by round, and what a process holds at its peak and at its end. mimalloc runs
//! twice: its second column shows the noise.
//!
//! `cargo bench --bench programs -- --help` lists the options.

#[expect(dead_code, reason = "processes of programs are kept on no CPU")]
#[path = "../common/mod.rs"]
mod common;
mod loads;
mod measure;
mod peers;
mod report;

use clap::Parser;

use measure::Measured;
use peers::Peer;

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Times programs on the preloaded malloc and on other allocators")]
struct Options {
    /// Rounds; each runs every load once on every allocator.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only these loads, by parts of their names.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    loads: Vec<String>,
    /// Only these allocators, besides the one that the others are compared with.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// One more allocator; a known name replaces the installed library.
    #[arg(long, value_name = "NAME=LIBRARY")]
    peer: Vec<Peer>,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// Runs one load and prints what it took.
    #[arg(long, value_name = "LOAD", hide = true)]
    child: Option<String>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    common::end_with_reader();
    if let Some(name) = &options.child {
        let load = loads::ALL.iter().find(|load| load.name == *name);
        let load = load.ok_or_else(|| format!("--child: there is no load \"{name}\""))?;
        println!("{}", measure::this_process(load.run));
        return Ok(());
    }
    let is_wanted = |name: &str| {
        let wanted = &options.loads;
        wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
    };
    let loads: Vec<&str> = loads::ALL.iter().map(|load| load.name).collect();
    let loads: Vec<&str> = loads.into_iter().filter(|name| is_wanted(name)).collect();
    if loads.is_empty() {
        return Err("--loads: no load has such a name".into());
    }
    let peers = peers::all(&options.peer, &options.only)?;
    let mut results = report::Results::new(peers.iter().map(|peer| peer.name.clone()).collect());
    for round in 0..options.rounds {
        for load in &loads {
            for peer in &peers {
                let measured: Measured = peer.run(load)?;
                results.add(load, &peer.name, measured);
            }
        }
        eprintln!("round {} of {}", round + 1, options.rounds);
    }
    match options.json {
        true => println!("{}", results.json()),
        false => results.print(),
    }
    Ok(())
}
