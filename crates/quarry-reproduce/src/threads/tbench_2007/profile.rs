//! The thread's profile of SLUB with the bug, next to the simulated one.

use super::TWO_ZONES;
use crate::published::{OPROFILE, PAGE_SYMBOLS};
use crate::results::Results;
use crate::show::{Origin, Row, Table};
use crate::threads::loads::{PAGES, PROFILE, SLOW, ZONE_WAIT};

/// Name of the profiled run.
const RUN: &str = "slub bug, 2 zones, 8 clients";

/// Simulated time by the published symbols that it has; all others are protocols.
const PATHS: [(&str, &[&str]); 4] = [
    ("copy_user", &["copy_user_generic_string"]),
    ("schedule, __switch_to", &["schedule", "__switch_to"]),
    ("system_call", &["system_call"]),
    ("kmem_cache_alloc, kmem_cache_free", &["kmem_cache_free"]),
];

fn percent(symbol: &str) -> Option<f64> {
    OPROFILE.number("percent", &[("symbol", symbol)])
}

pub(super) fn table(results: &Results) -> Table {
    let pages = PAGE_SYMBOLS.texts("symbol");
    let is_apart = |symbol: &&str| {
        let of_paths = PATHS.iter().any(|(_, symbols)| symbols.contains(symbol));
        of_paths || pages.contains(symbol)
    };
    let mut protocols = OPROFILE.texts("symbol");
    protocols.retain(|symbol| !is_apart(symbol));
    let named = |path: &str| format!("{PROFILE}{path}");
    let row = |label: &str, published: Option<f64>, figure: String| {
        Row::of(label, published, results, move |arm| arm.get(RUN, &figure))
    };
    let path = |path: &str, symbols: &[&str], figure: String| {
        let sum = symbols.iter().filter_map(|symbol| percent(symbol)).sum();
        let mut rows = vec![row(path, Some(sum), figure)];
        rows.extend(symbols.iter().map(|symbol| Row {
            label: format!("· {symbol}"),
            published: percent(symbol),
            measured: None,
            real: None,
            band: None,
        }));
        rows
    };
    let mut rows = path("page allocator", &pages, PAGES.to_string());
    for (name, symbols) in PATHS {
        rows.extend(path(name, symbols, named(name)));
    }
    let mut add = |label: &str, figure: String| rows.push(row(label, None, figure));
    add("__slab_alloc, __slab_free", SLOW.to_string());
    add("spin_lock (zone)", ZONE_WAIT.to_string());
    let idle = "idle exit, reschedule interrupt";
    add(idle, named(idle));
    let name = "protocols, sockets";
    rows.extend(path(name, &protocols, named(name)));
    Table {
        title: "profile of SLUB with the bug, two nodes (N. Piggin): a path, and the published symbols in it; his list has \
                the first 32"
            .to_string(),
        unit: "% of time",
        origin: Origin::of(
            TWO_ZONES,
            "quarry run tbench 8 --machine barcelona-2x4 --design slub@2.6.24 --skb-sizes bug --profile",
        ),
        rows,
    }
}
