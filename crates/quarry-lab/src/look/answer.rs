//! The answer with sentences, as JSON outputs have it.

use std::collections::BTreeMap;

use quarry_snapshot::{Form, Snapshot, is_cut_name};
use quarry_view::units::{bytes, count, counted, duration, in_brackets, percent, signed};
use schemars::JsonSchema;
use serde::Serialize;

use super::growth::BY_TIMES;
use super::spread;
use super::{Basis, CacheGrowth, Growth, Look, Unlisted, Verdict, Why};
use crate::known::{self, Others};

/// Fields of `look --json`.
#[derive(JsonSchema, Serialize)]
pub struct Answer<'a> {
    /// Files, in the order of their moments.
    pub files: Vec<&'a str>,
    /// Kernel's release; null if unknown.
    pub kernel: Option<&'a str>,
    /// Bytes of a page.
    pub page_size: u64,
    /// CPUs; null if unknown.
    pub cpus: Option<u32>,
    /// Fields above that the file does not tell, with the reason for each guess.
    pub guesses: BTreeMap<&'static str, String>,
    /// True if the file lists a part of the caches: sums are of that part.
    pub is_excerpt: bool,
    /// Result in sentences.
    pub finding: String,
    /// Sentences about the kernel, how well the formulas fit it, and what the file lacks.
    pub notes: Vec<String>,
    /// Requests for pages that failed.
    #[serde(flatten)]
    pub why: Why<'a>,
    /// The answer.
    #[serde(flatten)]
    pub look: &'a Look,
}

impl<'a> Answer<'a> {
    /// The answer about the last of some snapshots; `None` without one.
    pub fn of(look: &'a Look, snapshots: &'a [Snapshot]) -> Option<Self> {
        let last = snapshots.last()?;
        let why = Why::of(snapshots);
        let is_ordered = |one: &Snapshot| one.ordered_by.as_deref() == Some(BY_TIMES);
        let ordered = snapshots.iter().any(is_ordered).then(|| {
            "The files were not given oldest first: they are compared by their times.".to_string()
        });
        let finding = ordered.into_iter().chain([told(look, last)]);
        let finding = finding.chain(why.found());
        Some(Self {
            files: snapshots.iter().map(|one| one.file.as_str()).collect(),
            kernel: last.release.as_deref(),
            page_size: last.page_bytes,
            cpus: last.present_cpus,
            guesses: known::guesses(last),
            is_excerpt: last.is_part(),
            finding: finding.collect::<Vec<_>>().join(" "),
            notes: head(look, last)
                .into_iter()
                .chain(known::order(snapshots))
                .collect(),
            why,
            look,
        })
    }
}

/// The finding, and of several snapshots the cause of the growth, in sentences. That they are of different machines comes
/// first.
fn told(look: &Look, snapshot: &Snapshot) -> String {
    let growth = look.growth.as_ref().map(verdict);
    let is_unlike = |growth: &Growth| growth.verdict == Verdict::OtherMachine;
    let machines = look.growth.iter().flat_map(|growth| &growth.machines);
    let machines = machines.map(|of| format!("{}: {}", of.name, of.finding));
    let mut sentences = vec![finding(look, snapshot)];
    match look.growth.as_ref().is_some_and(is_unlike) {
        true => sentences.splice(0..0, growth).for_each(drop),
        false => sentences.extend(growth),
    }
    sentences
        .into_iter()
        .chain(machines)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Objects of all caches by the head of an excerpt, if it has their sum.
fn by_head(snapshot: &Snapshot) -> Option<String> {
    let totals = snapshot.excerpt?.totals?;
    let all = match (totals.object_bytes, totals.num_objs) {
        (0, 0) => return None,
        (0, count) => format!("{count} objects"),
        (all, _) => format!("{} of objects", bytes(all)),
    };
    let caches = match totals.caches {
        0 => String::new(),
        caches => format!(" in {caches} caches"),
    };
    Some(format!("{all}{caches}, by its head"))
}

/// Amount, causes and the largest cache, in a sentence.
fn finding(look: &Look, snapshot: &Snapshot) -> String {
    let name = &snapshot.file;
    let memory = look.memory_bytes.filter(|memory| *memory > 0);
    let of_memory = memory.map_or_else(String::new, |memory| {
        format!(" ({} of memory)", percent(look.slab_bytes, memory))
    });
    let largest = look.caches.first().map_or_else(String::new, |cache| {
        format!(
            "; {} has most, {}{}",
            cache.name,
            bytes(cache.slab_bytes),
            in_brackets(cache.slab_bytes, look.slab_bytes)
        )
    });
    let all = match snapshot.is_part() {
        true => by_head(snapshot).or_else(|| {
            let slab = snapshot.meminfo_slab_bytes?;
            Some(format!("{} by meminfo's Slab", bytes(slab)))
        }),
        false => None,
    };
    let rows = snapshot.slabinfo.rows.len();
    let of_which = match (snapshot.form, snapshot.is_part()) {
        (Form::Unable, _) => format!(" of the {} that could not grow", counted(rows, "cache")),
        (_, true) => format!(" of the {} listed", counted(rows, "cache")),
        (_, false) => String::new(),
    };
    let at_most = if look.cpus_are_untold { "at most " } else { "" };
    let listed = all.map_or_else(String::new, |all| {
        format!(" It lists {}; all have {all}.", counted(rows, "cache"))
    });
    let has_cut_names = look.caches.iter().any(|cache| is_cut_name(&cache.name));
    let reclaimable = |all| match (has_cut_names, look.reclaimable_bytes) {
        (true, 0) => "how much of it is reclaimable is not told".to_string(),
        (is_least, bytes) => {
            let least = if is_least { "at least " } else { "" };
            format!("{least}{} of it reclaimable", percent(bytes, all))
        }
    };
    // Nothing has no parts.
    let parts = match look.slab_bytes {
        0 => String::new(),
        all => format!(
            ", {}: {at_most}{} is live objects{largest}",
            reclaimable(all),
            percent(look.parts.live_bytes, all),
        ),
    };
    format!(
        "{name} has {} in slabs{of_which}{of_memory}{parts}.{listed}",
        bytes(look.slab_bytes)
    )
}

/// Cause of the growth, in a sentence.
pub(super) fn verdict(growth: &Growth) -> String {
    let time = growth
        .seconds
        .map_or_else(String::new, |seconds| format!(" in {}", duration(seconds)));
    let basis = match growth.basis {
        Basis::Rows => "",
        Basis::Heads => " of objects, by the heads",
        Basis::Meminfo => " by meminfo's Slab",
        Basis::RowsOfBoth => "",
    };
    let change = signed(growth.slab_bytes.into()) + basis;
    if growth.other_machine == [Others::Boots.to_string()] {
        return format!(
            "The first and the last are of different boots, and objects begin anew with each: {change} is no growth."
        );
    }
    if !growth.other_machine.is_empty() {
        return format!(
            "The first and the last are of different machines or kernels ({}): {change} is no growth.",
            growth.other_machine.join(", ")
        );
    }
    if let Some(files) = &growth.listed_in {
        return format!(
            "The first and the last may be of different machines ({files}): {change} need be no growth."
        );
    }
    let most = |part: fn(&CacheGrowth) -> i64| {
        let grown = growth.caches.iter().filter(|cache| part(cache) > 0);
        let most = grown.max_by_key(|cache| part(cache));
        most.map_or_else(String::new, |cache| {
            format!(" ({} {})", cache.name, signed(part(cache).into()))
        })
    };
    let of_both = growth.basis == Basis::RowsOfBoth;
    let what = match of_both {
        true => "The caches that both list",
        false => "Slab memory",
    };
    let told = match growth.verdict {
        Verdict::Unknown | Verdict::OtherMachine => {
            return "The first and the last list no cache in common, and have no sums: what grew is not told.".to_string();
        }
        Verdict::Sums => format!("{what} grew{time} ({change}).{}", grown(growth)),
        Verdict::Unlisted => {
            format!("{what} stayed as they were{time} ({change}); what others did is not told.")
        }
        Verdict::Same if of_both => format!("{what} stayed as they were{time} ({change})."),
        Verdict::Same => format!("{what} stayed as it was{time} ({change})."),
        Verdict::Shrank => format!("{what} shrank{time} ({change})."),
        Verdict::Objects => format!(
            "{what} grew{time} ({change}) by objects that cannot be reclaimed{}: a leak, if it goes on.",
            most(|cache| if cache.reclaimable {
                0
            } else {
                cache.objects_bytes
            })
        ),
        Verdict::Reclaimable => format!(
            "{what} grew{time} ({change}) by objects that the kernel frees when memory is short{}: no leak.",
            most(|cache| if cache.reclaimable {
                cache.objects_bytes
            } else {
                0
            })
        ),
        Verdict::Allocator => format!(
            "{what} grew{time} ({change}) in the allocator{}, not by objects: slabs are less full.",
            most(|cache| cache.allocator_bytes)
        ),
    };
    match growth.unlisted.as_slice() {
        [] => told,
        [one] => format!(
            "{told} {} is listed in one of them alone{}.",
            in_which(one),
            bound(one)
        ),
        [one, rest @ ..] => format!(
            "{told} {} and {} more are listed in one of them alone{}.",
            in_which(one),
            rest.len(),
            bound(one),
        ),
    }
}

/// A cache that one of two lists lacks, with its bytes in the other.
fn in_which(cache: &Unlisted) -> String {
    match (cache.first_bytes, cache.last_bytes) {
        (Some(first), _) => format!("{} ({} in the first)", cache.name, bytes(first)),
        (None, last) => format!("{} ({} in the last)", cache.name, bytes(last.unwrap_or(0))),
    }
}

/// Bytes that such a cache had at most where it is not listed, and its least change, behind a sentence.
fn bound(cache: &Unlisted) -> String {
    let Some(most) = cache.at_most_bytes else {
        return String::new();
    };
    let (which, change, has) = match (cache.first_bytes, cache.last_bytes) {
        (None, Some(last)) => ("first", "grew", last),
        (Some(first), None) => ("last", "shrank", first),
        _ => return String::new(),
    };
    let least = has.saturating_sub(most);
    let least = match least {
        0 => String::new(),
        least => format!(", so it {change} by at least {}", bytes(least)),
    };
    format!(
        "; if the {which} is the head of a sorted list, {} has at most about {} there{least}",
        cache.name,
        bytes(most)
    )
}

/// The cache that grew most of those that both list, as a sentence.
fn grown(growth: &Growth) -> String {
    let most = growth.caches.iter().max_by_key(|cache| cache.slab_bytes);
    let most = most.filter(|cache| cache.slab_bytes > 0);
    most.map_or_else(String::new, |cache| {
        let grew = signed(cache.slab_bytes.into());
        format!(
            " Of the caches that both list {} grew most, by {grew}.",
            cache.name
        )
    })
}

/// The kernel, how well the formulas fit it, and what the file lacks; a sentence each.
fn head(look: &Look, snapshot: &Snapshot) -> Vec<String> {
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
    lines.extend(look.cpus_are_untold.then(|| {
        "what CPUs hold counts as live objects: the caches listed are too few to guess the number of \
         CPUs (--had-cpus)"
            .to_string()
    }));
    lines.extend(look.unanswered.iter().cloned());
    lines.extend(look.places.found(snapshot));
    lines.extend(spread::widest(&look.caches));
    let since = look.growth.as_ref().map(|growth| growth.blocks.as_slice());
    lines.extend(since.and_then(spread::changed));
    let blocks = look.block_types.filter(|blocks| blocks.all > 0);
    lines.extend(blocks.map(|blocks| {
        let elsewhere = blocks.wrong_at_least.filter(|wrong| *wrong > 0);
        let elsewhere = elsewhere
            .map(|wrong| format!(", and in at least {} for movable pages", count(wrong)));
        format!(
            "of {} blocks of {}, {} ({}) are for pages that cannot be moved and {} ({}) for those that can only be \
             reclaimed; slabs are in both{}",
            count(blocks.all),
            bytes(blocks.block_bytes),
            count(blocks.unmovable),
            percent(blocks.unmovable, blocks.all),
            count(blocks.reclaimable),
            percent(blocks.reclaimable, blocks.all),
            elsewhere.unwrap_or_default(),
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer about a text.
    fn answered(text: &str) -> (String, Vec<String>, Look) {
        let found = Snapshot::of_bytes("post", text.as_bytes()).unwrap();
        let look = Look::of(&found).unwrap();
        let answer = Answer::of(&look, &found).unwrap();
        (answer.finding, answer.notes, look)
    }

    const FAILURE: &str = "SLUB: Unable to allocate memory on node -1, gfp=0x20(GFP_ATOMIC)\n  cache: kmalloc-256, object \
        size: 256, buffer size: 256, default order: 1, min order: 0\n  node 0: slabs: 4, objs: 128, free: 0\n";

    /// A cache that failed before it had slabs.
    #[test]
    fn nothing_has_no_parts() {
        let text = FAILURE.replace("slabs: 4, objs: 128", "slabs: 0, objs: 0");
        let (finding, _, _) = answered(&format!("MemTotal: 0 kB\n{text}"));
        let expected = "post has 0 B in slabs of the 1 cache that could not grow.";
        assert_eq!(finding, expected);
    }

    /// A guessed number of CPUs holds nothing; a told one does.
    #[test]
    fn sums_of_failures_are_of_the_caches_that_failed() {
        let (finding, notes, look) = answered(FAILURE);
        let expected = "post has 32 KiB in slabs of the 1 cache that could not grow, 0.0 % of it reclaimable: at most \
            100.0 % is live objects";
        assert!(finding.starts_with(expected), "{finding}");
        assert!(
            notes
                .iter()
                .any(|note| note.contains("what CPUs hold counts as live objects"))
        );
        assert_eq!(
            (look.parts.held_bytes, look.parts.live_bytes),
            (0, 128 * 256)
        );
        let told = format!("$ nproc\n4\n{FAILURE}");
        let (finding, _, look) = answered(&told);
        assert!(
            !finding.contains("at most") && look.parts.held_bytes > 0,
            "{finding}"
        );
    }

    #[test]
    fn slabs_of_an_excerpt_are_said_to_be_of_the_caches_listed() {
        let row = "slabinfo - version: 2.1\ndentry 2000 2100 192 21 1 : tunables 0 0 0 : slabdata 100 100 0\n";
        let (finding, _, look) = answered(row);
        assert!(
            finding.contains("in slabs of the 1 cache listed"),
            "{finding}"
        );
        assert!(look.cpus_are_untold);
    }

    /// Sums are what both have.
    #[test]
    fn a_file_without_slabs_is_compared_by_its_sum() {
        let read =
            |file: &str, text: &str| Snapshot::of_bytes(file, text.as_bytes()).unwrap().remove(0);
        let row = "dentry 2000 215040 192 21 1 : tunables 0 0 0 : slabdata 10240 10240 0\n";
        let mut both = vec![
            read("old", "MemTotal: 900000 kB\nSlab: 20480 kB\n"),
            read("new", &format!("slabinfo - version: 2.1\n{row}")),
        ];
        Snapshot::with_slabs(&mut both);
        assert_eq!(both.len(), 1);
        let expected = "left out, as it has no slabs: old (meminfo); its sum is 20 MiB of slabs, 40 MiB in new";
        assert!(
            both[0].notes.iter().any(|note| note == expected),
            "{:?}",
            both[0].notes
        );
    }
}
