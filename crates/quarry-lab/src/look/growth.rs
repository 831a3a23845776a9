//! Growth between snapshots: of objects, or of the allocator's stock.
//!
//! The objects' part of a cache's growth is what the objects in use became more, at the bytes of slab that each takes. The
//! rest is the allocator's: slabs that are less full, or held by CPUs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use quarry_snapshot::blocks::SpreadChange;
use quarry_snapshot::{Detail, SlabinfoRow, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::verdict;
use super::{CacheLook, Look, Parts, spread};
use crate::known::Others;

/// Changes below a hundredth of the slabs, and below this, are none.
const LEAST_BYTES: u64 = 256 << 10;

/// Change from the first snapshot to the last.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Growth {
    /// Change of all slabs in bytes, by `basis`.
    pub slab_bytes: i64,
    /// Numbers that `slab_bytes` is the change of.
    pub basis: Basis,
    /// Change by objects that were added, less those that went.
    pub objects_bytes: i64,
    /// Part of `objects_bytes` whose caches are reclaimable.
    pub reclaimable_bytes: i64,
    /// Change by slabs that are less full, or held by CPUs.
    pub allocator_bytes: i64,
    /// Cause of most of the change.
    pub verdict: Verdict,
    /// Names of machines, or facts by which first and last differ: then nothing grew. Empty if there are none.
    pub other_machine: Vec<String>,
    /// Names of files that may be of several machines: of those given, or of those that a text has before or above the rows.
    /// Null if nothing tells of such.
    pub listed_in: Option<String>,
    /// Seconds from the first to the last; null if a moment is unknown.
    pub seconds: Option<f64>,
    /// The snapshots, in the order given.
    pub moments: Vec<Moment>,
    /// Machines, or files, that have several of the snapshots, if these are of several: each has its own growth.
    pub machines: Vec<OfMachine>,
    /// Caches that changed, those that changed most first.
    pub caches: Vec<CacheGrowth>,
    /// Blocks of memory by what changed in them, a row for each size; none without two maps of one boot.
    pub blocks: Vec<SpreadChange>,
    /// Caches that only one of the first and the last lists, where the other is an excerpt: nothing is known of their growth.
    pub unlisted: Vec<Unlisted>,
}

/// A cache that only one of two snapshots lists.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Unlisted {
    /// Name.
    pub name: String,
    /// Bytes of its slabs in the first snapshot; null if it is not listed there.
    pub first_bytes: Option<u64>,
    /// Bytes of its slabs in the last snapshot; null if it is not listed there.
    pub last_bytes: Option<u64>,
    /// Bytes that it has at most, about, where it is not listed, if that list is the head of a sorted one: as many as the
    /// smallest row. Null if the list is in no order.
    pub at_most_bytes: Option<u64>,
}

/// Numbers that tell how much all slabs changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The rows of all caches.
    Rows,
    /// Bytes of all objects in the heads of excerpts.
    Heads,
    /// `Slab:` of meminfo, as the rows are excerpts.
    Meminfo,
    /// The rows that both excerpts have.
    RowsOfBoth,
}

/// Cause of most of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing changed that counts.
    Same,
    /// Slab memory shrank.
    Shrank,
    /// Objects of caches that the kernel cannot reclaim: a leak if it goes on.
    Objects,
    /// Objects that the kernel frees under memory pressure.
    Reclaimable,
    /// Slabs that are less full, or held by CPUs.
    Allocator,
    /// Slab memory grew by the sums of excerpts, which do not tell what grew.
    Sums,
    /// Unknown: the caches that both list are as they were, but one of them lacks others, which may have changed.
    Unlisted,
    /// Unknown: the first and the last are excerpts without a cache in common.
    Unknown,
    /// None: the snapshots are, or may be, of different machines or kernels.
    OtherMachine,
}

/// One of the snapshots.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Moment {
    /// File.
    pub file: String,
    /// Machine, or the file that the text has before or above the rows; null if nothing tells of several.
    pub of: Option<String>,
    /// Seconds after the first; null if a moment is unknown.
    pub seconds: Option<f64>,
    /// Bytes of all slabs.
    pub slab_bytes: u64,
    /// Parts of the slab memory, which add up to `slab_bytes`.
    pub parts: Parts,
}

/// Growth of one of several machines.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct OfMachine {
    /// Machine, or the file that the text has before or above the rows.
    pub name: String,
    /// Number of its snapshots.
    pub readings: usize,
    /// Change of all slabs in bytes, from its first snapshot to its last.
    pub slab_bytes: i64,
    /// Seconds from the first to the last; null if a moment is unknown.
    pub seconds: Option<f64>,
    /// Cause of most of the change.
    pub verdict: Verdict,
    /// Result in sentences.
    pub finding: String,
}

/// The growth of each machine that has several snapshots in a row.
fn of_machines(snapshots: &[Snapshot], looks: &[Look]) -> Vec<OfMachine> {
    let place = |of: &Snapshot| (of.host.clone(), of.listed_in.clone(), of.boot_id.clone());
    let mut found = Vec::new();
    let mut from = 0;
    for run in snapshots.chunk_by(|one, other| place(one) == place(other)) {
        let looks = &looks[from..from + run.len()];
        from += run.len();
        let name = run[0].host.as_ref().or(run[0].listed_in.as_ref());
        let (Some(name), 2..) = (name, run.len()) else {
            continue;
        };
        let growth = between(run, looks);
        found.push(OfMachine {
            name: name.clone(),
            readings: run.len(),
            slab_bytes: growth.slab_bytes,
            seconds: growth.seconds,
            verdict: growth.verdict,
            finding: verdict(&growth),
        });
    }
    found
}

/// Change of a cache.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CacheGrowth {
    /// Name.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Change of its slabs in bytes.
    pub slab_bytes: i64,
    /// Change of the objects in use.
    pub objects: i64,
    /// Change by objects, in bytes of slabs.
    pub objects_bytes: i64,
    /// Change by slabs that are less full, or held by CPUs.
    pub allocator_bytes: i64,
    /// True if the kernel frees its objects under memory pressure.
    pub reclaimable: bool,
    /// True if its slabs grew from each snapshot to the next.
    pub in_each_step: bool,
    /// Bytes of its slabs in each snapshot.
    pub each_bytes: Vec<u64>,
}

/// Compares looks at snapshots, oldest first.
pub(super) fn between(snapshots: &[Snapshot], looks: &[Look]) -> Growth {
    let steps: Vec<BTreeMap<&str, &CacheLook>> = looks
        .iter()
        .map(|look| {
            let named = look.caches.iter().map(|cache| (cache.name.as_str(), cache));
            named.collect()
        })
        .collect();
    let mut names: Vec<&str> = steps.iter().flat_map(|step| step.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let (first, last) = (snapshots.first(), snapshots.last());
    let unlisted = |name: &&str| {
        let lacks = |snapshot: Option<&Snapshot>| {
            snapshot.is_some_and(|of| of.excerpt.is_some() && of.slabinfo.row(name).is_none())
        };
        lacks(first) || lacks(last)
    };
    let (unlisted, names): (Vec<&str>, Vec<&str>) = names.into_iter().partition(unlisted);
    let bytes_in =
        |step: Option<&BTreeMap<&str, &CacheLook>>, name: &str| Some(step?.get(name)?.slab_bytes);
    let unlisted = unlisted.into_iter().map(|name| {
        let [first_bytes, last_bytes] =
            [steps.first(), steps.last()].map(|step| bytes_in(step, name));
        let at_most_bytes = match (first_bytes, last_bytes) {
            (None, Some(_)) => at_most(first, last, name),
            (Some(_), None) => at_most(last, first, name),
            _ => None,
        };
        Unlisted {
            name: name.to_string(),
            first_bytes,
            last_bytes,
            at_most_bytes,
        }
    });
    let mut unlisted: Vec<Unlisted> = unlisted.collect();
    unlisted.sort_by_key(|cache| Reverse(cache.last_bytes.max(cache.first_bytes)));
    let mut caches: Vec<CacheGrowth> = names
        .iter()
        .map(|name| cache(name, &steps))
        .filter(|cache| (cache.slab_bytes, cache.objects) != (0, 0))
        .collect();
    caches.sort_by(|a, b| {
        let size = |cache: &CacheGrowth| {
            let parts = [cache.slab_bytes, cache.objects_bytes];
            parts.map(i64::unsigned_abs)
        };
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    let sum = |part: fn(&CacheGrowth) -> i64| {
        let parts = caches.iter().map(part);
        parts.fold(0, i64::saturating_add)
    };
    let whole = first.zip(last).and_then(|(first, last)| whole(first, last));
    let mut ends = [first, last].into_iter().flatten();
    let of_rows = match ends.any(|of| of.excerpt.is_some()) {
        true => Basis::RowsOfBoth,
        false => Basis::Rows,
    };
    let (basis, slab_bytes) = whole.unwrap_or((of_rows, sum(|cache| cache.slab_bytes)));
    let is_known = basis != Basis::RowsOfBoth || !names.is_empty();
    let others = Others::of(snapshots);
    let mut growth = Growth {
        slab_bytes,
        basis,
        unlisted,
        objects_bytes: sum(|cache| cache.objects_bytes),
        reclaimable_bytes: sum(|cache| match cache.reclaimable {
            true => cache.objects_bytes,
            false => 0,
        }),
        allocator_bytes: sum(|cache| cache.allocator_bytes),
        verdict: Verdict::Same,
        other_machine: differences(snapshots),
        listed_in: match &others {
            Some(files @ Others::Files(_)) => Some(files.to_string()),
            _ => None,
        },
        seconds: seconds(snapshots, snapshots.last()),
        moments: looks
            .iter()
            .zip(snapshots)
            .map(|(look, snapshot)| Moment {
                file: snapshot.file.clone(),
                of: match &others {
                    Some(Others::Hosts(_)) => snapshot.host.clone(),
                    Some(Others::Files(_)) => snapshot.listed_in.clone(),
                    Some(Others::Boots) | None => None,
                },
                seconds: seconds(snapshots, Some(snapshot)),
                slab_bytes: look.slab_bytes,
                parts: look.parts,
            })
            .collect(),
        machines: match &others {
            Some(_) => of_machines(snapshots, looks),
            None => Vec::new(),
        },
        caches,
        blocks: first
            .zip(last)
            .map_or_else(Vec::new, |(first, last)| spread::since(first, last)),
    };
    let before = looks.first().map_or(0, |look| look.slab_bytes);
    let may_change = |cache: &Unlisted| {
        cache.first_bytes.max(cache.last_bytes).unwrap_or(0) >= least_bytes(before)
    };
    growth.verdict = match growth.judge(before) {
        _ if !growth.other_machine.is_empty() || growth.listed_in.is_some() => {
            Verdict::OtherMachine
        }
        _ if !is_known => Verdict::Unknown,
        Verdict::Same if basis == Basis::RowsOfBoth && growth.unlisted.iter().any(may_change) => {
            Verdict::Unlisted
        }
        Verdict::Same => Verdict::Same,
        Verdict::Shrank => Verdict::Shrank,
        _ if matches!(basis, Basis::Heads | Basis::Meminfo) => Verdict::Sums,
        verdict => verdict,
    };
    growth
}

/// The least change that counts.
fn least_bytes(before_bytes: u64) -> u64 {
    LEAST_BYTES.max(before_bytes / 100)
}

/// Bytes of a cache at most in a list that lacks it, if that is the head of a sorted one; its objects are as large as in
/// another. Sorted by several columns, the list bounds it by the one that bounds least.
fn at_most(list: Option<&Snapshot>, other: Option<&Snapshot>, name: &str) -> Option<u64> {
    // Fewer rows are in order by chance.
    const ROWS_MIN: usize = 5;
    let (list, other) = (list?, other?);
    let (rows, known) = (&list.slabinfo.rows, other.slabinfo.row(name)?);
    let last = rows.last().filter(|_| rows.len() >= ROWS_MIN)?;
    let bytes = |row: &SlabinfoRow| row.slab_bytes(list.page_bytes);
    let objects = |count: u64| {
        let bytes = u128::from(count) * u128::from(known.slab_bytes(other.page_bytes));
        u64::try_from(bytes / u128::from(known.num_objs.max(1))).unwrap_or(u64::MAX)
    };
    let bounds = [
        (
            rows.is_sorted_by_key(|row| Reverse(bytes(row))),
            bytes(last),
        ),
        (
            rows.is_sorted_by_key(|row| Reverse(row.num_objs)),
            objects(last.num_objs),
        ),
        (
            rows.is_sorted_by_key(|row| Reverse(row.active_objs)),
            objects(last.active_objs),
        ),
    ];
    let bounds = bounds.into_iter().filter(|(is_sorted, _)| *is_sorted);
    bounds.map(|(_, bound)| bound).max()
}

/// The order of snapshots that were not given oldest first.
pub(super) const BY_TIMES: &str = "their times";

/// Puts snapshots of one machine in the order of their times, if all have one.
pub(super) fn in_order(snapshots: &mut [Snapshot]) {
    let is_one = differences(snapshots).is_empty() && Others::of(snapshots).is_none();
    let is_one = is_one || matches!(Others::of(snapshots), Some(Others::Boots));
    let times: Option<Vec<f64>> = snapshots
        .iter()
        .map(|one| seconds(snapshots, Some(one)))
        .collect();
    let Some(times) = times.filter(|times| is_one && !times.is_sorted()) else {
        return;
    };
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let sorted: Vec<Snapshot> = order.iter().map(|at| snapshots[*at].clone()).collect();
    for (place, mut one) in snapshots.iter_mut().zip(sorted) {
        one.ordered_by = Some(BY_TIMES.to_string());
        *place = one;
    }
}

/// Names of machines, or facts by which the first snapshot and another differ.
pub(super) fn differences(snapshots: &[Snapshot]) -> Vec<String> {
    if let Some(others @ (Others::Hosts(_) | Others::Boots)) = Others::of(snapshots) {
        return vec![others.to_string()];
    }
    let Some((first, others)) = snapshots.split_first() else {
        return Vec::new();
    };
    // Of several the last is what an answer is about.
    let mut others = others.iter().rev().map(|other| facts(first, other));
    others.find(|found| !found.is_empty()).unwrap_or_default()
}

/// Facts of the machine by which two snapshots differ. Memory may change by what the kernel reserves.
fn facts(first: &Snapshot, last: &Snapshot) -> Vec<String> {
    let mut found = Vec::new();
    if let (Some(before), Some(after)) = (&first.release, &last.release)
        && before != after
    {
        found.push(format!("kernel {before} and {after}"));
    }
    let present = |of: &Snapshot| of.present_cpus.filter(|_| of.facts.present_cpus.is_fact());
    // A kernel decides once how many there can be.
    let possible = |of: &Snapshot| of.nr_cpu_ids.filter(|_| of.facts.nr_cpu_ids.is_fact());
    let cpus = [
        (present(first), present(last), "CPUs"),
        (possible(first), possible(last), "possible CPUs"),
    ];
    for (before, after, what) in cpus {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            found.push(format!("{before} and {after} {what}"));
        }
    }
    if let (Some(before), Some(after)) = (first.memory_bytes, last.memory_bytes)
        && before.abs_diff(after) > before / 10
    {
        let mib = [before, after].map(|bytes| bytes >> 20);
        found.push(format!("{} and {} MiB of memory", mib[0], mib[1]));
    }
    let pages = |of: &Snapshot| of.oom.and_then(|sums| sums.ram_pages);
    if let (Some(before), Some(after)) = (pages(first), pages(last))
        && before.abs_diff(after) > before / 10
    {
        found.push(format!("{before} and {after} pages of memory"));
    }
    if let (Some(before), Some(after)) = (&first.architecture, &last.architecture)
        && before != after
    {
        found.push(format!("{before} and {after}"));
    }
    // Forms that round sizes differ by less.
    let are_exact = [first, last]
        .iter()
        .all(|of| of.detail() >= Detail::Slabinfo);
    let rounded_bytes = if are_exact { 0 } else { 16 };
    let other = first.slabinfo.rows.iter().find_map(|row| {
        let other = last.slabinfo.row(&row.name)?;
        let differs = row.objsize.abs_diff(other.objsize) > rounded_bytes;
        let has_slabs = row.num_slabs > 0 && other.num_slabs > 0;
        (differs && has_slabs).then_some((row, other.objsize))
    });
    if let Some((row, other)) = other {
        let (name, size) = (&row.name, row.objsize);
        found.push(format!("{name} has objects of {size} and {other} bytes"));
    }
    let pages = [first.page_bytes, last.page_bytes];
    if pages[0] != pages[1] && !pages.contains(&0) {
        let kib = pages.map(|bytes| bytes >> 10);
        found.push(format!("pages of {} and {} KiB", kib[0], kib[1]));
    }
    found.extend(other_caches(first, last));
    found
}

/// Caches that only one of two whole lists has, if they are too many for modules that came or went.
fn other_caches(first: &Snapshot, last: &Snapshot) -> Option<String> {
    // Fewer caches are a part of a list, and a quarter are more than what modules of a load bring.
    const LEAST: usize = 40;
    let names = |of: &'_ Snapshot| -> Option<BTreeSet<String>> {
        let is_whole = of.excerpt.is_none() && of.detail() >= Detail::Slabinfo;
        let rows = of.slabinfo.rows.iter().map(|row| row.name.clone());
        // Those of control groups come and go.
        is_whole.then(|| rows.filter(|name| !name.contains('(')).collect())
    };
    let (before, after) = (names(first)?, names(last)?);
    let (all, alone) = (
        before.union(&after).count(),
        before.symmetric_difference(&after).count(),
    );
    let told = || format!("{alone} of {all} caches are in one of them alone");
    (before.len().min(after.len()) >= LEAST && alone * 4 > all).then(told)
}

/// Change of the sums of all caches, where the first or the last is an excerpt and both have such sums.
fn whole(first: &Snapshot, last: &Snapshot) -> Option<(Basis, i64)> {
    let excerpt = |of: &Snapshot| of.excerpt.is_some();
    (excerpt(first) || excerpt(last)).then_some(())?;
    let change = |from: u64, to: u64| i64::try_from(i128::from(to) - i128::from(from)).ok();
    let objects = |of: &Snapshot| match of.excerpt {
        Some(excerpt) => {
            let sum = excerpt.totals.map(|totals| totals.object_bytes);
            sum.filter(|bytes| *bytes > 0)
        }
        None => Some(of.slabinfo.object_bytes()),
    };
    if let (Some(from), Some(to)) = (objects(first), objects(last)) {
        return Some((Basis::Heads, change(from, to)?));
    }
    let (from, to) = (first.meminfo_slab_bytes?, last.meminfo_slab_bytes?);
    Some((Basis::Meminfo, change(from, to)?))
}

fn cache(name: &str, steps: &[BTreeMap<&str, &CacheLook>]) -> CacheGrowth {
    let at = |step: &BTreeMap<&str, &CacheLook>| step.get(name).map(|cache| (*cache).clone());
    let first = steps.first().and_then(at).unwrap_or_default();
    let last = steps.last().and_then(at).unwrap_or_default();
    let known = if last.num_objs > 0 { &last } else { &first };
    let per_object = known.slab_bytes as f64 / known.num_objs.max(1) as f64;
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let change = |from: u64, to: u64| signed(to).saturating_sub(signed(from));
    let slab_bytes = change(first.slab_bytes, last.slab_bytes);
    let objects = change(first.objects, last.objects);
    let objects_bytes = (objects as f64 * per_object).round() as i64;
    let bytes = steps
        .iter()
        .map(|step| step.get(name).map_or(0, |cache| cache.slab_bytes));
    let bytes: Vec<u64> = bytes.collect();
    CacheGrowth {
        name: name.to_string(),
        aliases: known.aliases.clone(),
        slab_bytes,
        objects,
        objects_bytes,
        allocator_bytes: slab_bytes.saturating_sub(objects_bytes),
        reclaimable: known.reclaimable,
        in_each_step: bytes.windows(2).all(|pair| pair[0] < pair[1]),
        each_bytes: bytes,
    }
}

/// Seconds from the first snapshot to another: by the boot's clock if both are of one boot.
fn seconds(snapshots: &[Snapshot], other: Option<&Snapshot>) -> Option<f64> {
    let (first, other) = (snapshots.first()?, other?);
    let one_boot = first.boot_id.is_some() && first.boot_id == other.boot_id;
    match (first.monotonic_ns, other.monotonic_ns) {
        (Some(from), Some(to)) if one_boot => Some((to as f64 - from as f64) / 1e9),
        _ => Some(other.unix_time_s? as f64 - first.unix_time_s? as f64),
    }
}

impl Growth {
    fn judge(&self, before_bytes: u64) -> Verdict {
        let grown = self.slab_bytes.unsigned_abs();
        if grown < least_bytes(before_bytes) {
            return Verdict::Same;
        }
        if self.slab_bytes < 0 {
            return Verdict::Shrank;
        }
        let is_most = |part: i64| part > 0 && part.unsigned_abs() > grown / 2;
        let unreclaimable = self.objects_bytes.saturating_sub(self.reclaimable_bytes);
        match () {
            () if !is_most(self.objects_bytes) => Verdict::Allocator,
            () if unreclaimable >= self.reclaimable_bytes => Verdict::Objects,
            () => Verdict::Reclaimable,
        }
    }
}
