//! Programs on several allocators as people read them: times, and the memory of heaps.

use quarry_view::Form::{Bytes, Count, Share, Text};
use quarry_view::value::{list, number};
use quarry_view::{Doc, Part, Section, Spec, View, column};
use serde_json::Value;

use super::{ArmReport, PreloadOutput, Ratio};

/// Tables of programs.
pub(crate) const TABLES: [Spec; 2] = [TIMES, HEAPS];

const TIMES: Spec = Spec {
    title: "Times",
    rows: "arms",
    first: 0,
    columns: || {
        vec![
            column("allocator", "allocator", Text),
            column("time", "seconds", Count).worded(|arm| seconds(arm, "seconds")),
            column("to glibc", "ratio", Count).worded(to_glibc),
            column("CPU time", "cpu_seconds", Count).worded(|arm| seconds(arm, "cpu_seconds")),
            column("peak", "peak_bytes", Bytes),
            column("at end", "processes.rss", Bytes)
                .about("Of the largest process; unknown without /proc.")
                // No process has none.
                .computed(|arm| number(largest(arm), "rss").filter(|bytes| *bytes > 0.0)),
        ]
    },
};

const HEAPS: Spec = Spec {
    title: "Memory of the largest process at its end",
    rows: "arms",
    first: 0,
    columns: || {
        let bytes = |name, path, about: &str| column(name, path, Bytes).about(about);
        vec![
            column("design", "allocator", Text),
            column("slabs", "processes.caches.slab_bytes", Bytes)
                .computed(|arm| number(largest(arm), "caches.slab_bytes")),
            bytes("  objects", "", "Bytes of slabs that are in use.")
                .computed(|arm| Some(parts(arm)[0])),
            bytes("  CPUs", "", "Bytes of free objects that CPUs keep.")
                .computed(|arm| Some(parts(arm)[1])),
            bytes("  free", "", "Bytes of free objects on lists of nodes.")
                .computed(|arm| Some(parts(arm)[2])),
            bytes("  rest", "", "Bytes of slabs in which no object fits.")
                .computed(|arm| Some(parts(arm)[3])),
            bytes(
                "pages",
                "processes.resident",
                "The row is without slabs: blocks beyond the caches' sizes, and free pages.",
            )
            .computed(|arm| {
                let [all, slabs] =
                    ["resident", "caches.slab_bytes"].map(|path| number(largest(arm), path));
                Some((all? - slabs?).max(0.0))
            }),
            column("mapped", "processes.mapped", Bytes)
                .computed(|arm| number(largest(arm), "mapped")),
            column(
                "hits",
                "processes.caches.alloc_fastpath processes.caches.free_fastpath",
                Share,
            )
            .about("The row has them as a part of all calls of all processes.")
            .computed(hits),
            column("forks", "processes.forks", Count).about("Sum over all processes."),
        ]
    },
};

/// The view of a program on several allocators.
pub(super) fn view(of: &PreloadOutput, doc: &Doc) -> View {
    let arms = list(&doc.content, "arms");
    let mut times = Section::new(TIMES.title).with(TIMES.table(arms));
    let mut note = |text: String| times.parts.push(Part::Note(text));
    for arm in &of.arms {
        if let Some(failed) = &arm.failed {
            note(format!("{}: {failed}", arm.allocator));
        }
    }
    let lacks_peak = |arm: &ArmReport| arm.peak_bytes.is_none() && arm.failed.is_none();
    if of.arms.iter().any(lacks_peak) {
        note("A peak is missing where it was not clearly more than that of a program that does nothing.".to_owned());
    }
    let others = of.arms.iter().filter(|arm| arm.same_output == Some(false));
    let others: Vec<&str> = others.map(|arm| arm.allocator.as_str()).collect();
    if !others.is_empty() {
        note(format!(
            "The program's output differs between runs ({}); if it contains no times or addresses, that is a mistake.",
            others.join(", ")
        ));
    }
    let view = View::new("Program on several allocators")
        .finding(headline(of))
        .with(times);
    let reported = arms.iter().filter(|arm| !largest(arm).is_null());
    match HEAPS.table(reported).turned(1) {
        table if table.rows.is_empty() => view,
        table => view.with(Section::new(HEAPS.title).with(table)),
    }
}

/// The process with most memory; null if none reported.
fn largest(arm: &Value) -> &Value {
    &arm["processes"][0]
}

fn seconds(arm: &Value, path: &str) -> String {
    number(arm, path).map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"))
}

/// The median, and of several rounds the least and the most.
fn to_glibc(arm: &Value) -> String {
    match ["median", "min", "max"].map(|name| arm["ratio"][name].as_f64()) {
        [Some(median), Some(min), Some(max)] if min < max => {
            format!("{median:.2} ({min:.2}-{max:.2})")
        }
        [Some(median), ..] => format!("{median:.2}"),
        _ => "-".to_owned(),
    }
}

/// Bytes of the slabs that are in use, with CPUs, free on lists, and in no object.
fn parts(arm: &Value) -> [f64; 4] {
    let mut found = [0.0; 4];
    for cache in list(largest(arm), "caches") {
        let of = |path: &str| number(cache, path).unwrap_or(0.0);
        let (size, shared) = (of("object_size"), of("shared_bytes"));
        // What is live is unknown for a cache that was busy: then it counts as in use what no list offers. Caches whose
        // pages are shared tell bytes instead.
        let live = number(cache, "live").unwrap_or(of("active"));
        let objects = [live, of("active") - live, of("objects") - of("active")];
        let bytes = match shared > 0.0 {
            true => [shared, 0.0, 0.0],
            false => objects.map(|objects| objects.max(0.0) * size),
        };
        bytes
            .iter()
            .zip(&mut found)
            .for_each(|(bytes, sum)| *sum += bytes);
        found[3] += of("slab_bytes");
    }
    let [objects, cpus, free, slabs] = found;
    [
        objects,
        cpus,
        free,
        (slabs - objects - cpus - free).max(0.0),
    ]
}

/// The part of all calls that a CPU's own list served.
fn hits(arm: &Value) -> Option<f64> {
    let sum = |path: &str| number(arm, &format!("processes.caches.{path}"));
    let hits = sum("alloc_fastpath")? + sum("free_fastpath")?;
    let calls = hits + sum("alloc_slowpath")? + sum("free_slowpath")?;
    (calls > 0.0).then(|| hits / calls)
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
