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
            "A peak is missing where it was not clearly more than that of a program that does nothing.",
        );
        text += "\n";
    }
    let other: Vec<&str> = of
        .arms
        .iter()
        .filter(|arm| arm.same_output == Some(false))
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
    let designs: Vec<&ArmReport> = of
        .arms
        .iter()
        .filter(|arm| arm.allocator.contains('@'))
        .collect();
    if designs.iter().all(|arm| arm.processes.is_empty()) {
        return "No process on a design reported, so it is unknown whether the program used them: it is linked statically, \
                ignores LD_PRELOAD, does not end in time, or ends by _exit or a signal."
            .to_owned();
    }
    let null = of.arms.iter().find(|arm| arm.allocator == "glibc again");
    let noise = null.and_then(|arm| arm.ratio).map(both_ways);
    let time = match noise {
        Some(noise) if of.rounds > 1 => times_in_words(&designs, noise),
        _ => "One round does not tell differences from noise: --rounds 3 does".to_owned(),
    };
    let peaks = designs
        .iter()
        .filter_map(|arm| Some((arm, arm.peak_bytes?)));
    let least = peaks.clone().min_by_key(|(_, bytes)| *bytes);
    let most = peaks.max_by_key(|(_, bytes)| *bytes);
    let base = of.arms.first().and_then(|arm| arm.peak_bytes);
    match (least, most, base) {
        (Some((least, low)), Some((_, high)), Some(base)) => {
            let times = |bytes: u64| format!("{:.2}", bytes as f64 / base.max(1) as f64);
            let who = match designs.len() {
                1 => least.allocator.clone(),
                _ => format!("the designs ({} least)", least.allocator),
            };
            let range = match times(low) == times(high) {
                true => times(low),
                false => format!("{} to {}", times(low), times(high)),
            };
            format!("{time}. At the peak {who} had {range} times glibc's memory.")
        }
        _ => format!("{time}."),
    }
}

/// Names designs that are faster than glibc, those that are slower, and those that noise hides.
fn times_in_words(designs: &[&ArmReport], noise: Ratio) -> String {
    let named = |wanted: &dyn Fn(Ratio) -> bool| {
        let mut found: Vec<(f64, String)> = designs
            .iter()
            .filter_map(|arm| Some((arm, arm.ratio.filter(|ratio| wanted(*ratio))?)))
            .map(|(arm, ratio)| {
                (
                    ratio.median,
                    format!("{} ({:.2})", arm.allocator, ratio.median),
                )
            })
            .collect();
        found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let names: Vec<String> = found.into_iter().map(|(_, name)| name).collect();
        names.join(", ")
    };
    let faster = named(&|ratio| ratio.max < noise.min);
    let slower = named(&|ratio| ratio.min > noise.max);
    let neither = named(&|ratio| ratio.max >= noise.min && ratio.min <= noise.max);
    let parts = [
        ("faster than glibc: ", faster),
        ("slower: ", slower),
        ("within the noise: ", neither),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what}{names}"))
        .collect();
    match parts.is_empty() {
        true => "No design ended in time".to_owned(),
        false => format!(
            "Times glibc's time (noise {}): {}",
            range(noise),
            parts.join("; ")
        ),
    }
}

/// The range of a null arm, whichever of the two equal ones is compared with the other.
fn both_ways(ratio: Ratio) -> Ratio {
    Ratio {
        median: ratio.median,
        min: ratio.min.min(ratio.max.recip()).min(1.0),
        max: ratio.max.max(ratio.min.recip()).max(1.0),
    }
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
         mapped: blocks of their own mapping; hits: calls that a CPU's own list served; forks: of all processes. \
         At end: the largest process's memory in that run, in which it makes its report\n"
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
