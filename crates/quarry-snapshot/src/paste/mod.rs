//! Texts as people paste them: posts, mails, terminal logs. One has several tables of slabs, parts of them, quotes around
//! them, and lines that say what the machine is.
//!
//! ```text
//!   text --> lines without their packing (packing.rs)
//!        --> parts by machine and by file (parts.rs), as labels of lines, prompts and logs name them (label.rs)
//!        --> tables: heads (head.rs), rows (table.rs), where one ends (listing.rs)
//!        --> facts that the other lines say (facts.rs)
//!        --> moments, the oldest first by the text's times (time.rs): forms see rows, and nothing of what was around them
//! ```
//!
//! A table has its rows: what stands elsewhere does not join it. A name that repeats apart from its copy begins a second
//! reading. Tables of several forms whose caches have the same objects are of one moment, and the best of them counts.

mod facts;
mod head;
mod label;
mod listing;
mod packing;
mod parts;
mod table;
mod time;

use std::cell::LazyCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::file::ReportError;
use crate::forms::rows::{self, Cache};
use crate::forms::{Form, Moment, log, slabtool};
use crate::hidden::HiddenState;
use crate::page_owner;
use crate::slabinfo::{self, Slabinfo};
use crate::snapshot::{Excerpt, Totals};

use listing::{Found, Listing};
use parts::{Part, Reading};
use table::Row;

/// The mark of a table of caches when memory was exhausted.
const OOM: &str = "Unreclaimable slab info:";
/// The mark of a cache that could not grow.
const FAILED: &str = "SLUB: Unable to allocate memory";

/// Fewer rows are a part of any kernel's caches.
const WHOLE_MIN: usize = 12;
/// Tables of one moment differ by what happened while they were printed: two in a hundred.
const SAME: u64 = 50;

/// The moments of a text, the oldest of each machine first; none if it has nothing of these forms.
pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let parts = parts::of(packing::lines(text));
    let parts = parts.iter().map(|part| (part, listing::find(&part.lines)));
    let parts: Vec<(&Part, Found<'_>)> = parts.collect();
    let tables = parts.iter().map(|(part, found)| tables(file, part, found));
    let mut each = tables.collect::<Result<Vec<_>, _>>()?;
    if each.iter().all(Vec::is_empty) {
        for (_, found) in &parts {
            refuse(file, text, found)?;
        }
    }
    for ((part, found), readings) in parts.iter().zip(&mut each) {
        if readings.is_empty() {
            *readings = without_tables(part, found);
        }
    }
    Ok(parts::ordered(each.into_iter().flatten().collect()))
}

/// The readings of a part's tables.
fn tables(file: &str, part: &Part, found: &Found<'_>) -> Result<Vec<Reading>, ReportError> {
    let mut readings = Vec::new();
    let mut last = 0;
    let sums = LazyCell::new(|| log::sums(part.lines.iter().map(|line| line.text.as_str())));
    for (listing, excerpt) in one_each(&found.listings) {
        let mut moment = moment(file, listing, excerpt)?;
        found.facts.add(&mut moment, listing.line);
        if listing.form == Form::Oom {
            moment.insert("oom".to_string(), json!(*sums));
        }
        readings.push(part.reading(moment, &found.facts, last..listing.line));
        last = listing.line;
    }
    if !readings.is_empty() {
        return Ok(readings);
    }
    let alone = if !found.failed.is_empty() {
        rows::moment(Form::Unable, file, &log::failed(&found.failed), None)?
    } else if let Some((Form::SlabTool | Form::Slabtop, totals @ Some(_))) = found.head {
        let mut moment = Form::SlabTotals.named();
        moment.insert("excerpt".to_string(), json!(Excerpt { totals }));
        moment
    } else {
        return Ok(readings);
    };
    Ok(vec![part.whole(alone, &found.facts)])
}

/// The readings of a part that has no table.
fn without_tables(part: &Part, found: &Found<'_>) -> Vec<Reading> {
    let texts = || part.lines.iter().map(|line| &line.text);
    if texts().any(|line| page_owner::is_in(line))
        && let Some(owners) = page_owner::read(texts())
    {
        return vec![part.whole(owned(owners), &found.facts)];
    }
    // A report of exhausted memory need not have a table.
    let sums = log::sums(texts().map(String::as_str));
    if sums.slab_unreclaimable_pages.is_some() {
        let mut moment = Form::Oom.named();
        moment.insert("oom".to_string(), json!(sums));
        return vec![part.whole(moment, &found.facts)];
    }
    let (mut readings, mut last) = (Vec::new(), 0);
    for (line, meminfo) in found.facts.each(facts::MEMINFO) {
        let mut moment = Form::Meminfo.named();
        found.facts.add(&mut moment, usize::MAX);
        moment.insert(facts::MEMINFO.to_string(), json!(meminfo));
        readings.push(part.reading(moment, &found.facts, last..line));
        last = line;
    }
    if readings.is_empty() && facts::FREE.into_iter().any(|key| found.facts.has(key)) {
        readings.push(part.whole(Form::Buddyinfo.named(), &found.facts));
    }
    readings
}

/// True for a text that begins with owners of pages, behind the command that printed them.
pub(crate) fn is_page_owner(text: &str) -> bool {
    let is_command = |line: &String| line.is_empty() || line.starts_with(['$', '#']);
    let first = packing::each(text).find(|line| !is_command(line));
    first.is_some_and(|line| page_owner::begins(&line)) && page_owner::is_in(text)
}

/// The moment of a text that begins with owners of pages. Its lines are not kept: it may be large.
pub(crate) fn page_owner(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let found = page_owner::read(packing::each(text)).map(owned);
    let what = "no stack has an order or a number of pages";
    Ok(vec![found.ok_or_else(|| {
        ReportError::bad(file, "page_owner", what)
    })?])
}

/// The moment of owners of pages.
fn owned(found: page_owner::Found) -> Moment {
    let mut moment = Form::PageOwner.named();
    moment.insert("page_owners".to_string(), json!(found.owners));
    if !found.notes.is_empty() {
        moment.insert("notes".to_string(), json!(found.notes));
    }
    moment
}

/// Says why a text that names a form has no cache.
fn refuse(file: &str, text: &str, found: &Found<'_>) -> Result<(), ReportError> {
    if let Some(line) = text
        .lines()
        .find(|line| line.contains("slabinfo - version: "))
        && !line.contains(slabinfo::VERSION)
    {
        let (_, version) = line.split_once("version: ").unwrap_or_default();
        if version.starts_with("1.") {
            let what = format!(
                "slabinfo {} is of Linux 2.4, which is not read",
                version.trim()
            );
            return Err(ReportError::bad(file, "slabinfo", what));
        }
        return Slabinfo::parse_text(file, line.trim()).map(drop);
    }
    let denied = text.lines().find(|line| {
        line.contains("Permission denied")
            && (line.contains("slabinfo") || line.contains("slabtop"))
    });
    if denied.is_some() && !found.facts.has(facts::MEMINFO) {
        let what =
            "/proc/slabinfo is readable by root alone: give what `sudo cat /proc/slabinfo` prints";
        return Err(ReportError::bad(file, "caches", what));
    }
    let Some((form, _)) = found.head else {
        return Ok(());
    };
    if text.trim_start().starts_with(slabinfo::VERSION) {
        // Its parser names the line.
        Slabinfo::parse_text(file, text.trim_start())?;
    }
    rows::moment(form, file, &[], None).map(drop)
}

/// The tables, one for each moment, with what is known of the caches that they lack.
fn one_each(listings: &[Listing]) -> Vec<(&Listing, Option<Excerpt>)> {
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
    // Its own rows exceed a head of another reading. The head of slabinfo, the tool, counts those in use.
    let objects = listing.rows.iter().filter_map(|row| match row {
        Row::Reported(cache) => Some(cache.row.active_objs),
        row => row.objects(),
    });
    let objects = objects.fold(0, u64::saturating_add);
    let totals =
        totals.filter(|totals| objects <= totals.num_objs.saturating_add(totals.num_objs / SAME));
    let is_part = match totals {
        Some(totals) => totals.caches > listing.rows.len() as u64,
        None => {
            // Every kernel has them, near the end of its list.
            let is_kmalloc = |row: &Row| {
                ["kmalloc-", "size-"]
                    .iter()
                    .any(|of| row.name().starts_with(of))
            };
            !listing.is_headed
                || listing.rows.len() < WHOLE_MIN
                || !listing.rows.iter().any(is_kmalloc)
        }
    };
    (is_part && listing.form != Form::Oom).then_some(Excerpt { totals })
}

/// The moment of a table.
fn moment(file: &str, listing: &Listing, excerpt: Option<Excerpt>) -> Result<Moment, ReportError> {
    let rows = listing.rows.iter();
    let mut moment = match listing.form {
        Form::Slabinfo => {
            let rows = rows.filter_map(|row| match row {
                Row::Counted(row) => Some(row.clone()),
                _ => None,
            });
            Form::Slabinfo.moment(&Slabinfo {
                rows: rows.collect(),
            })
        }
        Form::Oom => {
            let bytes = rows.filter_map(|row| match row {
                Row::Bytes(bytes) => Some(bytes),
                _ => None,
            });
            let mut moment = Form::Oom.named();
            moment.insert("cache_bytes".to_string(), json!(bytes.collect::<Vec<_>>()));
            moment
        }
        Form::SlabTool => {
            let caches = rows.filter_map(|row| match row {
                Row::Reported(cache) => Some(&**cache),
                _ => None,
            });
            slabtool::moment(caches)
        }
        Form::Crash => crash(file, listing)?,
        form => {
            let caches = rows.filter_map(|row| match row {
                Row::Computed(cache) => Some(cache.clone()),
                _ => None,
            });
            rows::moment(form, file, &caches.collect::<Vec<Cache>>(), None)?
        }
    };
    let unknown: Vec<&str> = listing
        .rows
        .iter()
        .filter(|row| matches!(row, Row::Unknown(_)))
        .map(Row::name)
        .collect();
    let mut notes = match moment.remove("notes") {
        Some(Value::Array(notes)) => notes
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_string)
            .collect(),
        _ => Vec::new(),
    };
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        notes.push(format!(
            "caches that crash could not read are left out: {unknown}"
        ));
    }
    if let [first, ..] = listing.unread.as_slice() {
        let count = listing.unread.len();
        notes.push(format!(
            "lines among the rows that are none, cut or damaged: {count}, the first is line {first}"
        ));
    }
    if let Some(excerpt) = excerpt {
        notes.push(excerpt.note(listing.rows.len()));
        moment.insert("excerpt".to_string(), json!(excerpt));
    }
    if !notes.is_empty() {
        moment.insert("notes".to_string(), json!(notes));
    }
    Ok(moment)
}

/// The moment of a table of crash, with the hidden state of the caches whose slabs are listed.
fn crash(file: &str, listing: &Listing) -> Result<Moment, ReportError> {
    let mut hidden = HiddenState {
        read_by: "crash kmem -S".to_string(),
        ..HiddenState::default()
    };
    let (mut caches, mut doubtful) = (Vec::new(), Vec::new());
    for (place, row) in listing.rows.iter().enumerate() {
        let Row::Computed(cache) = row else {
            continue;
        };
        let mut cache = cache.clone();
        if let Some(slabs) = listing.slabs.get(&place).filter(|slabs| !slabs.is_empty()) {
            match slabs.complete(&mut cache) {
                Some(state) => _ = hidden.caches.insert(cache.name.clone(), state),
                None if slabs.is_slub() => doubtful.push(cache.name.clone()),
                None => {}
            }
        }
        caches.push(cache);
    }
    let note = (!doubtful.is_empty()).then(|| {
        format!(
            "lists of slabs that lack a part, or contradict the cache's row, are left out: {}",
            doubtful.join(", ")
        )
    });
    let mut moment = rows::moment(Form::Crash, file, &caches, note)?;
    if !hidden.caches.is_empty() {
        moment.insert("hidden".to_string(), json!(hidden));
    }
    Ok(moment)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tools;
