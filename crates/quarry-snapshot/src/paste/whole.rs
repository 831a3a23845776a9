//! Tables that count for a moment, and the caches that they lack.

use std::collections::BTreeMap;

use crate::forms::Form;
use crate::forms::rows::Cache;
use crate::snapshot::{Excerpt, Totals};

use super::listing::Listing;
use super::table::Row;

/// Fewer rows are a part of any kernel's caches.
const WHOLE_MIN: usize = 12;
/// The same of those sorted by size or objects, which are tops of lists.
const SORTED_WHOLE_MIN: usize = 48;
/// Tables of one moment differ by what happened while they were printed: two in a hundred.
const SAME: u64 = 50;

/// The tables, one for each moment, with what is known of the caches that they lack.
pub(super) fn one_each(listings: &[Listing]) -> Vec<(&Listing, Option<Excerpt>)> {
    let mut groups: Vec<Vec<&Listing>> = Vec::new();
    for listing in listings {
        match groups.last_mut() {
            Some(group) if group.iter().all(|other| is_same_moment(other, listing)) => {
                group.push(listing)
            }
            _ => groups.push(vec![listing]),
        }
    }
    let best = groups.into_iter().filter_map(|group| {
        let totals = group.iter().find_map(|listing| listing.totals);
        let worth = |listing: &&&Listing| match listing.form {
            Form::Slabinfo => 2 * listing.rows.len(),
            _ => listing.rows.len(),
        };
        let best = *group.iter().max_by_key(worth)?;
        Some((best, excerpt(best, totals)))
    });
    best.collect()
}

/// True if two tables of several forms have the same objects in the caches that both have.
fn is_same_moment(one: &Listing, other: &Listing) -> bool {
    let objects = |listing: &Listing| -> BTreeMap<String, u64> {
        let rows = listing.rows.iter();
        rows.filter_map(|row| Some((row.name().to_string(), row.objects()?)))
            .collect()
    };
    let (one_objects, other_objects) = (objects(one), objects(other));
    let both = one_objects
        .iter()
        .filter_map(|(name, count)| Some((*count, *other_objects.get(name)?)));
    let sums = both.fold((0_u64, 0_u64), |sums, pair| {
        (sums.0.saturating_add(pair.0), sums.1.saturating_add(pair.1))
    });
    one.form != other.form && sums.0 > 0 && sums.0.abs_diff(sums.1) <= sums.0 / SAME
}

/// The sums of caches that a table leaves out; `None` if it seems whole.
fn excerpt(listing: &Listing, totals: Option<Totals>) -> Option<Excerpt> {
    // Its own rows exceed a head of another reading.
    let fits =
        |totals: &Totals| totals.num_objs == 0 || !exceeds(objects_of(listing), totals.num_objs);
    let totals = totals.filter(fits);
    let is_part = match totals {
        Some(totals) if totals.caches > 0 => totals.caches > listing.rows.len() as u64,
        _ => {
            !(listing.is_headed || listing.is_reversed)
                || listing.rows.len() < WHOLE_MIN
                || lacks_usual(listing)
                || listing.rows.len() < SORTED_WHOLE_MIN && is_sorted(listing)
        }
    };
    let is_part = is_part || listing.is_damaged();
    (is_part && listing.form != Form::Oom).then_some(Excerpt { totals })
}

/// True for a table sorted by bytes or by objects, in either direction.
fn is_sorted(listing: &Listing) -> bool {
    let bytes = |row: &Row| match row {
        Row::Counted(row) => Some(row.num_slabs.saturating_mul(row.pagesperslab)),
        Row::Computed(cache) => Some(cache.num_slabs.saturating_mul(cache.slab_bytes)),
        row => row.objects(),
    };
    let rows = || listing.rows.iter();
    let is_sorted = |key: fn(&Row) -> Option<u64>| {
        let differ = rows().next().and_then(key) != rows().last().and_then(key);
        differ && (rows().is_sorted_by_key(key) || rows().rev().is_sorted_by_key(key))
    };
    is_sorted(bytes) || is_sorted(Row::objects)
}

/// True for a table that lacks caches which every kernel has: the general ones near the end of its list, and most of those
/// for files and tasks.
fn lacks_usual(listing: &Listing) -> bool {
    const USUAL: [&str; 9] = [
        "dentry",
        "dentry_cache",
        "inode_cache",
        "task_struct",
        "filp",
        "vm_area_struct",
        "radix_tree_node",
        "sighand_cache",
        "mm_struct",
    ];
    const USUAL_MIN: usize = 3;
    let is_usual = |row: &&Row| USUAL.contains(&row.name());
    let is_general =
        |row: &Row| row.name().starts_with("kmalloc-") || row.name().starts_with("size-");
    listing.rows.iter().filter(is_usual).count() < USUAL_MIN || !listing.rows.iter().any(is_general)
}

/// Objects of a table, as heads count them: that of slabinfo, the tool, has those in use.
fn objects_of(listing: &Listing) -> u64 {
    let objects = listing.rows.iter().filter_map(|row| match row {
        Row::Reported(cache) => Some(cache.row.active_objs),
        row => row.objects(),
    });
    objects.fold(0, u64::saturating_add)
}

/// True if a count is more than another by more than happens while both are printed.
fn exceeds(count: u64, other: u64) -> bool {
    count > other.saturating_add(other / SAME)
}

/// Caches of slabtop whose bytes are no multiple of their slabs that a kernel has: powers of two, filled by half at least.
pub(super) fn odd_sizes(listing: &Listing) -> Option<String> {
    let odd = listing.rows.iter().filter_map(|row| match row {
        Row::Computed(cache) if listing.form == Form::Slabtop && cache.num_slabs > 0 => {
            let objects = cache.objsize.saturating_mul(cache.objperslab);
            let fits =
                cache.slab_bytes.is_power_of_two() && objects.saturating_mul(2) > cache.slab_bytes;
            (!fits).then(|| {
                let Cache {
                    name,
                    slab_bytes,
                    num_slabs,
                    ..
                } = cache;
                format!("{name} ({slab_bytes} bytes for each of {num_slabs} slabs)")
            })
        }
        _ => None,
    });
    let odd: Vec<String> = odd.take(3).collect();
    (!odd.is_empty()).then(|| {
        format!(
            "contradiction: CACHE SIZE does not fit the slabs of {}: one is mistyped or misread",
            odd.join(", ")
        )
    })
}

/// Contradiction of rows and the head above them: more objects than it has, or fewer in all caches.
pub(super) fn contradiction(listing: &Listing) -> Option<String> {
    let (objects, totals) = (objects_of(listing), listing.totals?);
    let all = Some(totals.num_objs).filter(|all| *all > 0)?;
    let are_all = listing.rows.len() as u64 >= totals.caches;
    (exceeds(objects, all) || are_all && exceeds(all, objects)).then(|| {
        format!(
            "contradiction: the rows have {objects} objects, the head above them {all}: one is mistyped, or of another reading"
        )
    })
}
