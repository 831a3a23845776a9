//! The output of `quarry look`: a sentence, parts, the largest caches, growth, and what could change.

use quarry_lab::look::{CacheGrowth, Growth, Look, Verdict, WhatIf};
use quarry_snapshot::Snapshot;

use crate::input::file_name;
use crate::units::{bytes, count, duration, percent, signed};
use crate::{known, output};
use quarry_view::rows::Label;

/// Columns and rows of all tables.
pub(crate) const WORDS: [Label; 23] = [
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
    Label::new("grew", "growth.caches.slab_bytes"),
    Label::new("by objects", "growth.caches.objects_bytes"),
    Label::new("allocator", "growth.caches.allocator_bytes"),
    Label::new("steps", "growth.caches.each_bytes").note(
        "The column has the steps from one snapshot to the next in which they grew, of all steps.",
    ),
    Label::new("all caches", "growth.slab_bytes"),
    Label::new("snapshot", "growth.moments.file"),
    Label::new("after", "growth.moments.seconds"),
    Label::new("with", "what_ifs.change"),
    Label::new("predicted", "what_ifs.predicted_bytes"),
    Label::new("low", "what_ifs.low_bytes"),
    Label::new("high", "what_ifs.high_bytes"),
];

/// Caches of a change that are printed.
const GROWN_SHOWN: usize = 6;
/// Snapshots of a series that are printed.
const MOMENTS_SHOWN: usize = 12;
/// Letters of the name of a cache or a file.
const NAME_CHARS: usize = 24;
/// Letters of the longest bar.
const BAR_CHARS: usize = 16;

/// Everything that the command prints.
pub(crate) fn text(look: &Look, snapshot: &Snapshot, top: usize) -> String {
    let mut text = format!("{}\n", output::wrap(&finding(look, snapshot)));
    if let Some(growth) = &look.growth {
        text.push_str(&format!("{}\n", output::wrap(&verdict(growth))));
    }
    for line in head(look, snapshot) {
        text.push_str(&format!("{}\n", output::wrap(&line)));
    }
    text.push_str(&format!("\n{}", parts(look)));
    text.push_str(&format!("\n{}", largest(look, top)));
    if let Some(growth) = &look.growth {
        text.push_str(&format!("\n{}", grown(growth)));
        if growth.moments.len() > 2 {
            text.push_str(&format!("\n{}", moments(growth)));
        }
    }
    text.push_str(&format!("\n{}", gives_back(look)));
    text.push_str(&format!("\n{}", what_ifs(look)));
    text
}

/// The finding, and of several snapshots the cause of the growth, in sentences.
pub(crate) fn told(look: &Look, snapshot: &Snapshot) -> String {
    let growth = look.growth.as_ref().map(verdict);
    let sentences = std::iter::once(finding(look, snapshot)).chain(growth);
    sentences.collect::<Vec<_>>().join(" ")
}

/// Amount, causes and the largest cache, in a sentence.
fn finding(look: &Look, snapshot: &Snapshot) -> String {
    let name = &snapshot.file;
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
    if !growth.other_machine.is_empty() {
        return format!(
            "The first and the last are of different machines or kernels ({}): {change} of slab memory between them is \
             no growth.",
            growth.other_machine.join(", ")
        );
    }
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

/// The kernel, how well the formulas fit it, and what the file lacks; a sentence each.
pub(crate) fn head(look: &Look, snapshot: &Snapshot) -> Vec<String> {
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
    lines.extend(look.guessed.iter().cloned());
    lines.extend(look.blocks.map(|blocks| {
        format!(
            "of {} blocks of {}, {} ({}) are for pages that cannot be moved and {} ({}) for those that can only be \
             reclaimed; slabs are in both",
            count(blocks.all),
            bytes(blocks.block_bytes),
            count(blocks.unmovable),
            percent(blocks.unmovable, blocks.all),
            count(blocks.reclaimable),
            percent(blocks.reclaimable, blocks.all),
        )
    }));
    lines
}

fn parts(look: &Look) -> String {
    let mut table = output::grid(&["part", "slabs", "share"], &[]);
    let parts = &look.parts;
    for (label, part) in WORDS.iter().zip(parts.each()) {
        table.add_row([
            label.name.to_string(),
            bytes(part),
            percent(part, look.slab_bytes),
        ]);
    }
    format!("{table}\n")
}

/// The name of a cache, with a star if the kernel frees its objects when memory is short.
fn starred(name: &str, reclaimable: bool) -> String {
    let star = if reclaimable { " *" } else { "" };
    format!("{}{star}", output::shortened(name, NAME_CHARS))
}

fn largest(look: &Look, top: usize) -> String {
    let mut table = output::grid(&["cache", "slabs", "objects", "live", "held", "free"], &[]);
    for cache in look.caches.iter().take(top) {
        table.add_row([
            starred(&cache.name, cache.reclaimable),
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

fn grown(growth: &Growth) -> String {
    let mut header = vec!["cache", "grew", "objects", "by objects", "allocator"];
    let is_series = growth.moments.len() > 2;
    if is_series {
        header.push("steps");
    }
    let mut table = output::grid(&header, &[]);
    let more = |objects: i64| match objects {
        less if less < 0 => format!("-{}", count(less.unsigned_abs())),
        more => format!("+{}", count(more.unsigned_abs())),
    };
    let mut add = |name: String, objects: String, bytes: [i64; 3], steps: String| {
        let [all, by_objects, allocator] = bytes.map(|bytes| signed(bytes.into()));
        let mut row = vec![name, all, objects, by_objects, allocator];
        row.extend(is_series.then_some(steps));
        table.add_row(row);
    };
    let all = [
        growth.slab_bytes,
        growth.objects_bytes,
        growth.allocator_bytes,
    ];
    add("all caches".to_string(), String::new(), all, String::new());
    for cache in growth.caches.iter().take(GROWN_SHOWN) {
        let bytes = [cache.slab_bytes, cache.objects_bytes, cache.allocator_bytes];
        let name = starred(&cache.name, cache.reclaimable);
        add(name, more(cache.objects), bytes, steps(cache));
    }
    let shown = GROWN_SHOWN.min(growth.caches.len());
    format!(
        "{shown} of {} caches that changed\n{table}\n",
        growth.caches.len()
    )
}

/// Steps of a series in which a cache grew, and all steps.
fn steps(cache: &CacheGrowth) -> String {
    let steps = cache.each_bytes.windows(2);
    let grew = steps.clone().filter(|pair| pair[0] < pair[1]);
    format!("{} of {}", grew.count(), steps.count())
}

/// A line for each snapshot, or for some of many.
fn moments(growth: &Growth) -> String {
    let mut table = output::grid(&["snapshot", "after", "slabs", "live", ""], &[4]);
    let all = &growth.moments;
    let most = all.iter().map(|moment| moment.slab_bytes).max();
    let shown = all.len().min(MOMENTS_SHOWN);
    for at in 0..shown {
        // The first, the last, and others at equal distances.
        let moment = &all[at * (all.len() - 1) / (shown - 1).max(1)];
        table.add_row([
            ending(file_name(&moment.file)),
            moment.seconds.map_or_else(String::new, duration),
            bytes(moment.slab_bytes),
            bytes(moment.parts.live_bytes),
            bar(
                moment.parts.live_bytes,
                moment.slab_bytes,
                most.unwrap_or(0),
            ),
        ]);
    }
    format!(
        "{shown} of {} snapshots (█ live objects, ░ the rest of the slabs)\n{table}\n",
        all.len()
    )
}

/// The end of a name that is too long: stages of one file differ there.
fn ending(name: &str) -> String {
    let count = name.chars().count();
    match count <= NAME_CHARS {
        true => name.to_string(),
        false => {
            let end = name.chars().skip(count - NAME_CHARS + 3);
            format!("...{}", end.collect::<String>())
        }
    }
}

/// A bar of `whole` bytes with `part` of them full. That of `most` bytes has [`BAR_CHARS`].
fn bar(part: u64, whole: u64, most: u64) -> String {
    let chars =
        |bytes: u64| (bytes as f64 / most.max(1) as f64 * BAR_CHARS as f64).round() as usize;
    let full = chars(part);
    let rest = chars(whole).saturating_sub(full);
    format!("{}{}", "█".repeat(full), "░".repeat(rest))
}

/// Bytes that shrinking and dropping would free, in sentences.
fn gives_back(look: &Look) -> String {
    let shrink = &look.shrink;
    let bounds = match shrink.low_bytes == shrink.high_bytes {
        // It was read, not estimated.
        true => String::new(),
        false => format!(
            ", between {} and {}",
            bytes(shrink.low_bytes),
            bytes(shrink.high_bytes)
        ),
    };
    let mut text = output::wrap(&format!(
        "Shrinking all caches (slabinfo -s) would free {} in whole slabs{bounds}.",
        bytes(shrink.bytes),
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

/// The change by a prediction; "none" where nothing differs.
fn change(told: &WhatIf, look: &Look) -> String {
    let ends = [told.low_bytes, told.predicted_bytes, told.high_bytes];
    match ends == [look.slab_bytes; 3] {
        true => "none".to_string(),
        false => signed(i128::from(told.predicted_bytes) - i128::from(look.slab_bytes)),
    }
}

fn what_ifs(look: &Look) -> String {
    if look.what_ifs.is_empty() {
        return "no predictions: the formulas do not explain this kernel\n".to_string();
    }
    let mut table = output::grid(&["with", "predicted", "change", "low", "high"], &[]);
    for told in &look.what_ifs {
        table.add_row([
            told.change.clone(),
            bytes(told.predicted_bytes),
            change(told, look),
            bytes(told.low_bytes),
            bytes(told.high_bytes),
        ]);
    }
    format!(
        "{table}\n`quarry what-if` asks for more, `quarry explain NAME` says what a column means.\n"
    )
}
