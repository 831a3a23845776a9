//! Tables of programs on several allocators.

use super::runs::{CacheReport, HeapReport};
use super::{ArmReport, PreloadOutput, Ratio};
use crate::{output, units};

/// The answer, and tables of times and memory.
pub(super) fn text(of: &PreloadOutput) -> String {
    let mut text = output::wrap(&headline(of)) + "\n\n" + &times(of) + "\n";
    let heaps = heaps(of);
    if !heaps.is_empty() {
        text += "\nmemory of the largest process at its end, and calls of all that reported:\n";
        text += &heaps;
        text += "\n";
    }
    for arm in &of.arms {
        if let Some(failed) = &arm.failed {
            text += &output::wrap(&format!("{}: {failed}", arm.allocator));
            text += "\n";
        }
    }
    if of
        .arms
        .iter()
        .any(|arm| arm.peak_bytes.is_none() && arm.failed.is_none())
    {
        text += &output::wrap(
            "A peak is missing where it was less than this command's own memory, which the system counts as the program's \
             until that begins.",
        );
        text += "\n";
    }
    let other: Vec<&str> = of
        .arms
        .iter()
        .filter(|arm| !arm.same_output)
        .map(|arm| arm.allocator.as_str())
        .collect();
    if !other.is_empty() {
        let names = other.join(", ");
        text += &output::wrap(&format!(
            "The program's output differs between runs ({names}); if it contains no times or addresses, that is a mistake."
        ));
        text += "\n";
    }
    text
}

fn headline(of: &PreloadOutput) -> String {
    let designs = || of.arms.iter().filter(|arm| !arm.processes.is_empty());
    let fastest = designs()
        .filter_map(|arm| Some((arm, arm.ratio?)))
        .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let Some((arm, ratio)) = fastest else {
        return "No design ran to its end and reported.".to_owned();
    };
    let null = of.arms.iter().find(|arm| arm.allocator == "glibc again");
    let noise = null.and_then(|arm| arm.ratio);
    let time = match noise {
        Some(noise) if overlap(ratio, noise) => format!(
            "No design is faster or slower than glibc beyond the noise ({}); the fastest, {}, takes {:.2} times its time",
            range(noise),
            arm.allocator,
            ratio.median
        ),
        Some(noise) => format!(
            "{} is the fastest design: {:.2} times glibc's time (noise {})",
            arm.allocator,
            ratio.median,
            range(noise)
        ),
        None => format!(
            "{} is the fastest design: {:.2} times glibc's time",
            arm.allocator, ratio.median
        ),
    };
    let least = designs()
        .filter_map(|arm| Some((arm, arm.peak_bytes?)))
        .min_by_key(|(_, bytes)| *bytes);
    let base = of.arms.first().and_then(|arm| arm.peak_bytes);
    match (least, base) {
        (Some((arm, bytes)), Some(base)) => format!(
            "{time}. {} needs the least memory of the designs, {} at the peak, {:.2} times glibc's.",
            arm.allocator,
            units::bytes(bytes),
            bytes as f64 / base.max(1) as f64
        ),
        _ => format!("{time}."),
    }
}

fn overlap(a: Ratio, b: Ratio) -> bool {
    a.min <= b.max && b.min <= a.max
}

fn range(ratio: Ratio) -> String {
    format!("{:.2} to {:.2}", ratio.min, ratio.max)
}

fn times(of: &PreloadOutput) -> String {
    let header = [
        "allocator",
        "time",
        "to glibc",
        "CPU time",
        "peak",
        "at end",
    ];
    let mut table = output::grid(&header, &[]);
    let none = || "-".to_owned();
    let seconds =
        |seconds: Option<f64>| seconds.map_or_else(none, |seconds| format!("{seconds:.3} s"));
    for arm in &of.arms {
        let at_end = arm
            .processes
            .first()
            .map(|process| units::bytes(process.rss));
        let ratio = arm.ratio.map(|ratio| match of.rounds {
            1 => format!("{:.2}", ratio.median),
            _ => format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max),
        });
        table.add_row([
            arm.allocator.clone(),
            seconds(arm.seconds),
            ratio.unwrap_or_else(none),
            seconds(arm.cpu_seconds),
            arm.peak_bytes.map_or_else(none, units::bytes),
            at_end.unwrap_or_else(none),
        ]);
    }
    table.to_string()
}

/// Sum of a number over caches.
fn sum(process: &HeapReport, of: impl Fn(&CacheReport) -> u64) -> u64 {
    process.caches.iter().map(of).sum()
}

/// Memory of the processes that reported and were the largest, and what all of them did.
fn heaps(of: &PreloadOutput) -> String {
    let header = [
        "design", "slabs", "objects", "CPUs", "free", "rest", "pages", "mapped", "hits", "forks",
    ];
    let mut table = output::grid(&header, &[]);
    let mut rows = 0;
    for arm in &of.arms {
        let Some(process) = arm.processes.first() else {
            continue;
        };
        rows += 1;
        table.add_row(heap_row(arm, process));
    }
    if rows == 0 {
        return String::new();
    }
    format!(
        "{table}\n\nslabs: their memory at the end; objects: the part in use; CPUs: free objects that CPUs keep; free: free \
         objects on lists of nodes; rest: what no object fits in; pages: blocks beyond the caches' sizes and free pages; \
         mapped: blocks of their own mapping; hits: calls that a CPU's own list served\n"
    )
}

fn heap_row(arm: &ArmReport, process: &HeapReport) -> [String; 10] {
    let slabs = sum(process, |cache| cache.slab_bytes);
    let shared = sum(process, |cache| cache.shared_bytes);
    // What is live is unknown for a cache that was busy: then it counts as in use what no list offers. Caches whose pages
    // are shared tell bytes instead.
    let alone = |of: &dyn Fn(&CacheReport) -> u64| {
        sum(process, |cache| match cache.shared_bytes {
            0 => of(cache) * cache.object_size,
            _ => 0,
        })
    };
    let live_of = |cache: &CacheReport| cache.live.unwrap_or(cache.active);
    let live = shared + alone(&live_of);
    let kept = alone(&|cache| cache.active.saturating_sub(live_of(cache)));
    let free = alone(&|cache| cache.objects.saturating_sub(cache.active));
    let all = |of: fn(&CacheReport) -> u64| -> u64 {
        let processes = arm.processes.iter();
        processes.map(|process| sum(process, of)).sum()
    };
    let hits = all(|cache| cache.alloc_fastpath + cache.free_fastpath);
    let calls = hits + all(|cache| cache.alloc_slowpath + cache.free_slowpath);
    let forks: u32 = arm.processes.iter().map(|process| process.forks).sum();
    [
        arm.allocator.clone(),
        units::short(slabs),
        units::short(live),
        units::short(kept),
        units::short(free),
        units::short(slabs.saturating_sub(live + kept + free)),
        units::short(process.resident.saturating_sub(slabs)),
        units::short(process.mapped),
        units::percent(hits, calls),
        forks.to_string(),
    ]
}
