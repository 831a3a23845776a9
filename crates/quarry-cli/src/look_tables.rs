//! The output of `quarry look`: a sentence, parts, the largest caches, growth, and what could change.

use quarry_lab::look::{CacheGrowth, Growth, Look, Verdict};
use quarry_snapshot::Snapshot;

use crate::look::Report;
use crate::rows::Label;
use crate::units::{bytes, count, percent, signed};
use crate::{known, output};

/// Columns and rows of all tables.
pub(crate) const WORDS: [Label; 22] = [
    Label::new("live objects", "parts.live_bytes"),
    Label::new("held by CPUs", "parts.held_bytes"),
    Label::new("partly filled slabs", "parts.partly_filled_bytes"),
    Label::new("debugging", "parts.debugging_bytes"),
    Label::new("padding", "parts.padding_bytes"),
    Label::new("part", "parts")
        .note("The row's part of the slab memory, and its share of all slabs."),
    Label::new("share", "").note("Part of all slabs, in per cent."),
    Label::new("slabs", "caches.slab_bytes").note("Of parts it is a part of all slabs."),
    Label::new("objects", "caches.objects")
        .note("Of growth: `growth.caches.objects`, the change of them."),
    Label::new("live", "caches.parts.live_bytes")
        .note("The column has it as a part of the cache's slabs."),
    Label::new("held", "caches.parts.held_bytes"),
    Label::new("free", "caches.parts.partly_filled_bytes"),
    Label::new("reclaim", "growth.caches.reclaimable"),
    Label::new("grew", "growth.caches.slab_bytes"),
    Label::new("by objects", "growth.caches.objects_bytes"),
    Label::new("by allocator", "growth.caches.allocator_bytes"),
    Label::new("in each step", "growth.caches.in_each_step"),
    Label::new("all caches", "growth.slab_bytes"),
    Label::new("with", "what_ifs.change"),
    Label::new("predicted", "what_ifs.predicted_bytes"),
    Label::new("low", "what_ifs.low_bytes"),
    Label::new("high", "what_ifs.high_bytes"),
];

/// Caches of a change that are printed.
const GROWN_SHOWN: usize = 6;
/// Letters of a cache's name.
const NAME_CHARS: usize = 24;

/// Everything that the command prints.
pub(crate) fn text(report: &Report<'_>, snapshot: &Snapshot, top: usize) -> String {
    let look = report.look;
    let mut text = format!("{}\n", output::wrap(&finding(report)));
    if let Some(growth) = &look.growth {
        text.push_str(&format!("{}\n", output::wrap(&verdict(growth))));
    }
    text.push_str(&format!("{}\n\n", head(look, snapshot)));
    text.push_str(&parts(look));
    text.push_str(&format!("\n{}", largest(look, top)));
    if let Some(growth) = &look.growth {
        text.push_str(&format!("\n{}", grown(growth)));
    }
    text.push_str(&format!("\n{}", gives_back(look)));
    text.push_str(&format!("\n{}", what_ifs(look)));
    text
}

/// Amount, causes and the largest cache, in a sentence.
fn finding(report: &Report<'_>) -> String {
    let look = report.look;
    let name = report.files.last().copied().unwrap_or_default();
    let of_memory = look.memory_bytes.map_or_else(String::new, |memory| {
        format!(" ({} of memory)", percent(look.slab_bytes, memory))
    });
    let largest = look.caches.first().map_or_else(String::new, |cache| {
        format!(
            "; {} has most, {} ({})",
            cache.name,
            bytes(cache.slab_bytes),
            percent(cache.slab_bytes, look.slab_bytes)
        )
    });
    format!(
        "{name} has {} in slabs{of_memory}, {} of it reclaimable: {} is live objects{largest}.",
        bytes(look.slab_bytes),
        percent(look.reclaimable_bytes, look.slab_bytes),
        percent(look.parts.live_bytes, look.slab_bytes),
    )
}

/// Cause of the growth, in a sentence.
fn verdict(growth: &Growth) -> String {
    let time = growth
        .seconds
        .map_or_else(String::new, |seconds| format!(" in {}", duration(seconds)));
    let change = signed(growth.slab_bytes.into());
    let most = |part: fn(&CacheGrowth) -> i64| {
        let most = growth.caches.iter().max_by_key(|cache| part(cache));
        most.map_or_else(String::new, |cache| {
            format!(" ({} {})", cache.name, signed(part(cache).into()))
        })
    };
    match growth.verdict {
        Verdict::Same => format!("Slab memory stayed as it was{time} ({change})."),
        Verdict::Shrank => format!("Slab memory shrank{time} ({change})."),
        Verdict::Objects => format!(
            "Slab memory grew{time} ({change}) by objects that cannot be reclaimed{}: a leak, if it goes on.",
            most(|cache| if cache.reclaimable {
                0
            } else {
                cache.objects_bytes
            })
        ),
        Verdict::Reclaimable => format!(
            "Slab memory grew{time} ({change}) by objects that the kernel frees when memory is short{}: no leak.",
            most(|cache| if cache.reclaimable {
                cache.objects_bytes
            } else {
                0
            })
        ),
        Verdict::Allocator => format!(
            "Slab memory grew{time} ({change}) in the allocator{}, not by objects: slabs are less full.",
            most(|cache| cache.allocator_bytes)
        ),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// The kernel, how well the formulas fit it, and what the file lacks.
fn head(look: &Look, snapshot: &Snapshot) -> String {
    let meminfo = look.meminfo_slab_bytes.map_or_else(String::new, |slab| {
        format!("; meminfo's Slab {}", bytes(slab))
    });
    let mut lines = vec![format!(
        "{}{meminfo}; taken as {}, whose formulas give {} of {} caches",
        known::machine(snapshot),
        look.design,
        look.explained_caches,
        look.all_caches,
    )];
    lines.extend(look.misfit.iter().map(|cause| format!("warning: {cause}")));
    lines.extend(known::notes(snapshot));
    let lines: Vec<String> = lines.iter().map(|line| output::wrap(line)).collect();
    lines.join("\n")
}

fn parts(look: &Look) -> String {
    let mut table = output::grid(&["part", "slabs", "share"], &[]);
    let parts = &look.parts;
    for (label, part) in WORDS.iter().zip([
        parts.live_bytes,
        parts.held_bytes,
        parts.partly_filled_bytes,
        parts.debugging_bytes,
        parts.padding_bytes,
    ]) {
        table.add_row([
            label.name.to_string(),
            bytes(part),
            percent(part, look.slab_bytes),
        ]);
    }
    format!("{table}\n")
}

fn largest(look: &Look, top: usize) -> String {
    let mut table = output::grid(&["cache", "slabs", "objects", "live", "held", "free"], &[]);
    for cache in look.caches.iter().take(top) {
        let mark = if cache.reclaimable { " *" } else { "" };
        table.add_row([
            format!("{}{}", output::shortened(&cache.name, NAME_CHARS), mark),
            bytes(cache.slab_bytes),
            count(cache.objects),
            percent(cache.parts.live_bytes, cache.slab_bytes),
            bytes(cache.parts.held_bytes),
            bytes(cache.parts.partly_filled_bytes),
        ]);
    }
    let shown = top.min(look.caches.len());
    format!(
        "{shown} of {} caches with slabs (* freed by the kernel when memory is short)\n{table}\n",
        look.used_caches
    )
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "" }.to_string()
}

fn grown(growth: &Growth) -> String {
    let header = [
        "cache",
        "grew",
        "objects",
        "by objects",
        "by allocator",
        "reclaim",
        "in each step",
    ];
    let mut table = output::grid(&header, &[5, 6]);
    let more = |objects: i64| match objects {
        less if less < 0 => format!("-{}", count(less.unsigned_abs())),
        more => format!("+{}", count(more.unsigned_abs())),
    };
    table.add_row([
        "all caches".to_string(),
        signed(growth.slab_bytes.into()),
        String::new(),
        signed(growth.objects_bytes.into()),
        signed(growth.allocator_bytes.into()),
        String::new(),
        String::new(),
    ]);
    for cache in growth.caches.iter().take(GROWN_SHOWN) {
        table.add_row([
            output::shortened(&cache.name, NAME_CHARS),
            signed(cache.slab_bytes.into()),
            more(cache.objects),
            signed(cache.objects_bytes.into()),
            signed(cache.allocator_bytes.into()),
            yes(cache.reclaimable),
            yes(cache.in_each_step),
        ]);
    }
    let shown = GROWN_SHOWN.min(growth.caches.len());
    format!(
        "{shown} of {} caches that changed\n{table}\n",
        growth.caches.len()
    )
}

/// Bytes that shrinking and dropping would free, in sentences.
fn gives_back(look: &Look) -> String {
    let shrink = &look.shrink;
    let mut text = output::wrap(&format!(
        "Shrinking all caches (slabinfo -s) would free {} in whole slabs, between {} and {}.",
        bytes(shrink.bytes),
        bytes(shrink.low_bytes),
        bytes(shrink.high_bytes),
    ));
    text.push('\n');
    if look.reclaimable_bytes > 0 {
        let cases = look.drop.iter().map(|case| match case.staying {
            staying if staying > 0.0 => {
                format!(
                    "{} if {:.0} % of the objects stay",
                    bytes(case.bytes),
                    staying * 100.0
                )
            }
            _ => format!("at most {}", bytes(case.bytes)),
        });
        let cases: Vec<String> = cases.collect();
        text.push_str(&output::wrap(&format!(
            "Dropping what can be reclaimed (drop_caches) would free {}: each that stays pins its slab.",
            cases.join(", ")
        )));
        text.push('\n');
    }
    text
}

fn what_ifs(look: &Look) -> String {
    if look.what_ifs.is_empty() {
        return "no predictions: the formulas do not explain this kernel\n".to_string();
    }
    let mut table = output::grid(&["with", "predicted", "change", "low", "high"], &[]);
    for told in &look.what_ifs {
        let change = i128::from(told.predicted_bytes) - i128::from(look.slab_bytes);
        table.add_row([
            told.change.clone(),
            bytes(told.predicted_bytes),
            signed(change),
            bytes(told.low_bytes),
            bytes(told.high_bytes),
        ]);
    }
    format!(
        "{table}\n`quarry what-if` asks for more, `quarry explain NAME` says what a column means.\n"
    )
}
