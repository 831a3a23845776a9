//! Times of single refills and drains of a per-CPU list.
//!
//! Pages are allocated one by one until far more than a CPU's lists hold are in use, and freed one by
//! one. A call that takes long is looked up in the counters: if it refilled or drained, its time and
//! the pages that it moved under one hold of the zone lock are noted. Calls that did neither and took
//! long anyway, because something interrupted them, are not.
//!
//! Interruptions of the others show in the *null* times: as many rounds of a loop that touches no
//! memory and takes as long as the operation's median.

use std::hint::black_box;
use std::time::Instant;

use quarry_core::era::Era;
use quarry_core::page::{PageAllocator, PageConfig, PcpStats, Pfn};
use quarry_host::{HostMachine, HugePages};
use serde_json::{Value, json};

use crate::common::table;

/// Memory of the page allocator in bytes; with one zone of 16 GiB the batch is 63.
const MEMORY_BYTES: usize = 16 << 30;
/// Pages in use at the height of a fill: twice what the lists of one of two CPUs may grow to where
/// they tune themselves, an eighth of the zone for all CPUs, so that every fill refills and drains.
const PAGES: usize = (MEMORY_BYTES >> 12) / 8;
/// Calls that take less than this are neither refills nor drains: a hold is at least 32 buddy
/// operations of several nanoseconds each.
const LONG_NS: u64 = 150;

/// In which order pages are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The last one first: neighbours come one after the other.
    Stack,
    /// In none.
    Random,
}

/// Times of one kind of operation.
pub(crate) struct Latency {
    config: PageConfig,
    order: Order,
    operation: &'static str,
    ns: Vec<u64>,
    /// The null arm's.
    null_ns: Vec<u64>,
    /// Most pages that one of them moved, under one hold of the zone lock.
    pages_max: u64,
}

impl Latency {
    fn new(config: PageConfig, order: Order, operation: &'static str) -> Self {
        Self {
            config,
            order,
            operation,
            ns: Vec::new(),
            null_ns: Vec::new(),
            pages_max: 0,
        }
    }

    /// Returns the time that `per_million` of a million operations stay below.
    fn quantile(&self, per_million: usize) -> u64 {
        quantile(&self.ns, per_million)
    }

    /// Sorts the times and measures the null's.
    fn finish(mut self) -> Self {
        self.ns.sort_unstable();
        let median = self.quantile(500_000);
        let turns = (median as f64 / ns_of_a_turn()) as u64;
        self.null_ns = self.ns.iter().map(|_| nothing(turns)).collect();
        self.null_ns.sort_unstable();
        self
    }

    fn name(&self) -> String {
        let PageConfig {
            era, hold_pages, ..
        } = self.config;
        let bound = match hold_pages {
            u32::MAX => String::new(),
            pages => format!(", at most {pages}"),
        };
        let order = match self.order {
            Order::Stack => "last first",
            Order::Random => "random",
        };
        format!("{}{bound}, {order}", era.name())
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "era": self.config.era.name(),
            "hold_pages": (self.config.hold_pages < u32::MAX).then_some(self.config.hold_pages),
            "random_order": self.order == Order::Random,
            "operation": self.operation,
            "count": self.ns.len(),
            "pages_per_lock_hold_max": self.pages_max,
            "ns_p50": self.quantile(500_000),
            "ns_p99": self.quantile(990_000),
            "ns_p999": self.quantile(999_000),
            "ns_max": self.ns.last(),
            "null_ns_p999": quantile(&self.null_ns, 999_000),
        })
    }
}

/// Refills and drains with the batch fixed, and tuned by itself: with holds as a kernel has them, as a
/// process has them, and one in between.
pub(crate) fn measure(fills: usize) -> Vec<Latency> {
    let kernel = PageConfig::new(Era::V6_18);
    let between = PageConfig {
        hold_pages: 252,
        ..kernel
    };
    let process = PageConfig::in_process(Era::V6_18);
    let mut all = Vec::new();
    for config in [PageConfig::new(Era::V5_9), kernel, between, process] {
        for order in [Order::Stack, Order::Random] {
            all.extend(measure_one(&config, order, fills));
        }
    }
    all
}

fn measure_one(config: &PageConfig, order: Order, fills: usize) -> [Latency; 2] {
    let machine = HostMachine::builder()
        .memory_bytes(MEMORY_BYTES)
        .huge_pages(HugePages::Transparent)
        .build()
        .expect("address space for pages");
    let pages = PageAllocator::with_config(machine, config).expect("a fresh machine");
    let mut refills = Latency::new(*config, order, "refill");
    let mut drains = Latency::new(*config, order, "drain");
    let mut state = 1_u64;
    let mut held: Vec<Pfn> = Vec::with_capacity(PAGES);
    for fill in 0..=fills {
        let mut before = pages.stats().pcp;
        let mut note = |latency: &mut Latency, ns: u64, moved: fn(&PcpStats) -> [u64; 2]| {
            if ns < LONG_NS {
                return;
            }
            let now = pages.stats().pcp;
            let ([times, blocks], [times_before, blocks_before]) = (moved(&now), moved(&before));
            before = now;
            // The first fill touches memory for the first time.
            if times == times_before + 1 && fill > 0 {
                latency.ns.push(ns);
                latency.pages_max = latency.pages_max.max(blocks - blocks_before);
            }
        };
        while held.len() < PAGES {
            let start = Instant::now();
            let page = pages.alloc(0, None);
            let ns = start.elapsed().as_nanos() as u64;
            held.push(page.expect("memory"));
            note(&mut refills, ns, |stats| [stats.refills, stats.refilled]);
        }
        if order == Order::Random {
            for at in 1..held.len() {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                held.swap(at, (state >> 33) as usize % (at + 1));
            }
        }
        while let Some(page) = held.pop() {
            let start = Instant::now();
            // SAFETY: the page was allocated above, and nothing uses it.
            let freed = unsafe { pages.free(page, 0) };
            let ns = start.elapsed().as_nanos() as u64;
            freed.expect("a live page");
            note(&mut drains, ns, |stats| [stats.drains, stats.drained]);
        }
    }
    [refills, drains].map(Latency::finish)
}

/// Quantile of sorted times.
fn quantile(ns: &[u64], per_million: usize) -> u64 {
    let at = ns.len() * per_million / 1_000_000;
    let at = at.min(ns.len().saturating_sub(1));
    ns.get(at).copied().unwrap_or(0)
}

/// Returns the nanoseconds of `turns` turns of an empty loop.
fn nothing(turns: u64) -> u64 {
    let start = Instant::now();
    for turn in 0..turns {
        black_box(turn);
    }
    start.elapsed().as_nanos() as u64
}

/// The least of some tries.
fn ns_of_a_turn() -> f64 {
    const TURNS: u64 = 100_000;
    let tries = (0..20).map(|_| nothing(TURNS));
    tries.min().unwrap_or(0).max(1) as f64 / TURNS as f64
}

/// Prints the times of refills and drains.
pub(crate) fn print(latencies: &[Latency]) {
    println!(
        "\nsingle refills and drains of a per-CPU list, us: times at the 50th, 99th and 99.9th percentile; \
         one hold of the zone lock each, of at most `pages` pages\n({} in a process, by \
         PageConfig::hold_pages; a kernel of today has no such bound; {PAGES} pages come and go);\nnull: the \
         99.9th percentile of a loop that takes what the median is and touches no memory",
        PageConfig::in_process(Era::V6_18).hold_pages
    );
    let mut table = table([
        "era, order of frees",
        "pages",
        "refills",
        "p50",
        "p99",
        "p99.9",
        "null",
        "drains",
        "p50",
        "p99",
        "p99.9",
        "null",
    ]);
    let cells = |latency: &Latency| {
        let us = |ns: u64| format!("{:.2}", ns as f64 / 1000.0);
        let times = [500_000, 990_000, 999_000].map(|at| us(latency.quantile(at)));
        let null = us(quantile(&latency.null_ns, 999_000));
        let count = latency.ns.len().to_string();
        [count].into_iter().chain(times).chain([null])
    };
    for [refills, drains] in latencies.as_chunks().0 {
        let pages = refills.pages_max.max(drains.pages_max);
        let row = [refills.name(), pages.to_string()].into_iter();
        table.add_row(row.chain(cells(refills)).chain(cells(drains)));
    }
    println!("{table}");
}
