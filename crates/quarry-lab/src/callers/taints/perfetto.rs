//! Taints as a trace of Perfetto: a slice for each, on a track of its cause, and the number of spoiled blocks.

use std::collections::BTreeMap;

use quarry_trace::PerfettoTrace;

use super::super::By;
use super::{Taint, Taints};

/// A Perfetto trace of taints, with a track for each block size and cause; `end_ns` is the end of the recording. Taints of
/// blocks whose state was unknown have no slice, as their ends are unknown, too.
#[must_use]
pub fn perfetto(taints: &Taints, by: By, end_ns: u64) -> Vec<u8> {
    let mut trace = PerfettoTrace::default();
    let end_ns = taints.until_ns.unwrap_or(end_ns);
    for blocks in &taints.blocks {
        let size = quarry_view::units::bytes(blocks.block_bytes);
        let group = trace.track(&format!("blocks of {size}"), None);
        let of_size = |taint: &&Taint| taint.block_bytes == blocks.block_bytes && taint.was_clean;
        let mut lanes = BTreeMap::<&str, Vec<(u64, u64)>>::new();
        let mut changes = Vec::new();
        for taint in taints.taints.iter().filter(of_size) {
            let until_ns = taint.stayed_ns.map(|ns| taint.time_ns + ns);
            let until_ns = until_ns.unwrap_or_else(|| end_ns.max(taint.time_ns));
            let cause = match by {
                By::Site => taint.site.as_deref().unwrap_or("unknown"),
                By::Process => &taint.process,
                By::Cache => &taint.cache,
            };
            // Slices of a track may not overlap. Tracks of one name are shown as one.
            let lanes = lanes.entry(cause).or_default();
            let free = lanes.iter().position(|(_, end)| *end <= taint.time_ns);
            let lane = free.unwrap_or_else(|| {
                lanes.push((trace.track(cause, Some(group)), 0));
                lanes.len() - 1
            });
            lanes[lane].1 = until_ns;
            trace.slice(
                lanes[lane].0,
                &taint.cache,
                (taint.time_ns, until_ns),
                &args(taint),
            );
            changes.push((taint.time_ns, 1));
            if taint.stayed_ns.is_some() {
                changes.push((until_ns, -1));
            }
        }
        changes.sort_unstable();
        let counter = trace.counter(&format!("spoiled blocks of {size}"));
        let mut spoiled = 0;
        for (time_ns, change) in changes {
            spoiled += change;
            trace.count(counter, time_ns, spoiled);
        }
    }
    trace.finish()
}

fn args(taint: &Taint) -> Vec<(&'static str, String)> {
    let mut args = vec![
        ("block", format!("{:#x}", taint.address)),
        ("pfn", format!("{:#x}", taint.pfn)),
        ("order", taint.order.to_string()),
        ("migratetype", taint.migratetype.to_string()),
        ("cache", taint.cache.clone()),
        ("task", format!("{} {}", taint.pid, taint.process)),
    ];
    let told = [("site", &taint.site), ("left last", &taint.last)];
    let told = told.map(|(name, text)| Some((name, text.clone()?)));
    args.extend(told.into_iter().flatten());
    args
}
