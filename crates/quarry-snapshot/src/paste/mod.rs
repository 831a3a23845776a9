//! Texts as people paste them: posts, mails, terminal logs. One has several tables of slabs, parts of them, quotes around
//! them, and lines that say what the machine is.
//!
//! ```text
//!   text --> lines without their packing (packing.rs): codes and JSON (coded.rs), tables with names of columns (columns.rs), both sides
//!            of a diff (diff.rs), one of a mail's alternatives (mail.rs), rows in pieces (wrap.rs)
//!        --> parts by machine and by file (parts.rs), as labels of lines (prefix.rs), prompts, titles and logs (title.rs) name them
//!        --> logs with the newest line first are turned round (replies.rs)
//!        --> tables: heads (head.rs), rows (table.rs), where one ends (listing.rs), names that are cut (cut.rs), which count (whole.rs)
//!        --> facts that the other lines say (facts.rs)
//!        --> moments, the oldest first by the text's times (time.rs) and titles (order.rs, when.rs): forms see rows, and nothing of what was around them
//!   a text without a table --> the reason, and what to do (refuse.rs); machines without one --> a note (failed.rs)
//! ```
//!
//! A table has its rows: what stands elsewhere does not join it. A name that repeats apart from its copy begins a second
//! reading. Tables of several forms whose caches have the same objects are of one moment, and the best of them counts.

pub(crate) mod coded;
pub(crate) mod columns;
mod cut;
mod dates;
mod diff;
mod facts;
mod failed;
mod head;
mod label;
mod listing;
mod mail;
mod order;
mod packing;
mod parts;
mod prefix;
mod refuse;
mod replies;
mod table;
mod tail;
mod time;
mod title;
mod when;
mod whole;
mod wrap;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::allocinfo;
use crate::failures;
use crate::file::ReportError;
use crate::forms::rows::{self, Cache};
use crate::forms::{Form, Moment, log, slabtool};
use crate::hidden::HiddenState;
use crate::page_owner;
use crate::slabinfo::Slabinfo;
use crate::snapshot::Excerpt;

pub(crate) use label::of_file;
use listing::{Found, Listing};
use order::Reading;
use packing::Line;
use parts::Part;
pub(crate) use refuse::unknown;
use refuse::{refuse, refuse_known};
use table::Row;
use whole::{contradiction, odd_sizes, one_each};

/// True for a cache whose name was cut at the edge of a terminal: it has `…` behind it.
#[must_use]
pub fn is_cut_name(cache: &str) -> bool {
    cache.contains(table::MARK)
}

/// The mark of a table of caches when memory was exhausted.
const OOM: &str = "Unreclaimable slab info:";
/// The mark of a cache that could not grow.
const FAILED: &str = "SLUB: Unable to allocate memory";

/// The moments of a text, the oldest of each machine first; none if it has nothing of these forms.
pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    refuse::refuse_rtf(file, text)?;
    let mut lines = packing::lines(text);
    replies::quote(&mut lines);
    let mut parts = parts::of(lines);
    for part in &mut parts {
        replies::turn(&mut part.lines);
    }
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
        let texts = || part.lines.iter().map(|line| line.text.as_str());
        if readings.is_empty() && texts().any(failures::begins) {
            *readings = part.each(vec![(0, Form::Oom.named())], &found.facts);
        }
        // Reports are of the whole log, whose last reading is shown.
        if let Some(last) = readings.last_mut() {
            add_failures(&mut last.moment, texts());
        }
    }
    if each.iter().all(Vec::is_empty) {
        refuse_known(file, text)?;
    }
    let mut moments = order::ordered(each.into_iter().flatten().collect());
    failed::note(text, &mut moments);
    Ok(moments)
}

/// Adds to a moment the reports about pages that are in a kernel's log.
pub(crate) fn add_failures_of_log(moment: &mut Moment, log: &str) {
    let lines: Vec<String> = packing::each(log).collect();
    add_failures(moment, lines.iter().map(String::as_str));
}

fn add_failures<'l>(moment: &mut Moment, lines: impl Iterator<Item = &'l str>) {
    let (text, count) = failures::lines(lines);
    if count > failures::KEPT_MAX {
        let note = format!(
            "{count} reports of page allocation failures and killed tasks: the last {} are read",
            failures::KEPT_MAX
        );
        let notes = moment.entry("notes").or_insert_with(|| json!([]));
        if let Some(notes) = notes.as_array_mut() {
            notes.push(json!(note));
        }
    }
    if count > 0 {
        moment.insert(failures::KEY.to_string(), json!(text));
    }
}

/// The readings of a part's tables.
fn tables(file: &str, part: &Part, found: &Found<'_>) -> Result<Vec<Reading>, ReportError> {
    let mut readings = Vec::new();
    let mut last = 0;
    let sums_of = |from: usize, to: usize| {
        let within = part.lines.iter();
        let within = within.filter(|line| (from..to).contains(&line.number));
        log::sums(within.map(|line| line.text.as_str()))
    };
    // The sums of a report stand above its table.
    let mut from = 0;
    for (listing, excerpt) in one_each(&found.listings) {
        let mut moment = moment(file, listing, excerpt)?;
        found.facts.add(&mut moment, listing.line);
        if listing.form == Form::Oom {
            let above = sums_of(from, listing.line).pop();
            let is_last = found
                .listings
                .iter()
                .all(|other| other.line <= listing.line);
            let below = || sums_of(listing.line, usize::MAX).into_iter().next();
            let sums = above.or_else(|| if is_last { below() } else { None });
            moment.insert("oom".to_string(), json!(sums.unwrap_or_default()));
            from = listing.line;
        }
        readings.push(part.reading(moment, &found.facts, last..listing.line));
        last = listing.line;
    }
    if !readings.is_empty() {
        return Ok(readings);
    }
    if !found.failed.is_empty() {
        return failures(file, part, found);
    }
    for (line, totals) in &found.alone {
        let mut moment = Form::SlabTotals.named();
        let totals = Some(*totals);
        moment.insert("excerpt".to_string(), json!(Excerpt { totals }));
        let begins_row =
            |line: &Line| table::begins_slabtop(&line.text.split_whitespace().collect::<Vec<_>>());
        if part.lines.iter().any(begins_row) {
            let note = "rows below the head are cut before their sizes, and left out: `sudo slabtop -o > FILE` has whole ones";
            moment.insert("notes".to_string(), json!([note]));
        }
        found.facts.add(&mut moment, *line);
        readings.push(part.reading(moment, &found.facts, last..*line));
        last = *line;
    }
    Ok(readings)
}

/// The readings of caches that could not grow: one that fails again at another time begins the next. A reading has the
/// last of each cache so far; of memory groups, whose caches are added, there is one.
fn failures(file: &str, part: &Part, found: &Found<'_>) -> Result<Vec<Reading>, ReportError> {
    const BURST_S: f64 = 1.0;
    let failed = &found.failed;
    let texts: Vec<&str> = failed.iter().map(|line| line.text.as_str()).collect();
    let (_, of_groups) = log::failed(&texts);
    let mut ends = Vec::new();
    let mut seen: BTreeMap<&str, &Line> = BTreeMap::new();
    for (at, line) in failed.iter().enumerate() {
        let Some(name) = line.text.strip_prefix("cache: ") else {
            continue;
        };
        let name = name.split(", object size: ").next().unwrap_or_default();
        let again = seen.get(name).is_some_and(|above| {
            let times = time::of_log(&above.log).zip(time::of_log(&line.log));
            let seconds = times.and_then(|(above, own)| above.until(own));
            seconds.is_none_or(|seconds| seconds.abs() > BURST_S)
        });
        if again && of_groups == 0 {
            let begins = at > 0 && failed[at - 1].text.contains(FAILED);
            ends.push(at - usize::from(begins));
            seen.clear();
        }
        seen.insert(name, line);
    }
    ends.push(failed.len());
    let (mut readings, mut from) = (Vec::new(), 0_usize);
    for end in ends {
        let (caches, of_groups) = log::failed(&texts[..end]);
        let note = (of_groups > 0).then(|| {
            format!("caches of memory groups are added to the root's of their name: {of_groups}")
        });
        let mut moment = rows::moment(Form::Unable, file, &caches, note)?;
        moment.insert("excerpt".to_string(), json!(Excerpt { totals: None }));
        found.facts.add(&mut moment, usize::MAX);
        let above = from.checked_sub(1).map_or(0, |last| failed[last].number);
        readings.push(part.reading(moment, &found.facts, above..failed[from].number));
        from = end;
    }
    Ok(readings)
}

/// The readings of a part that has no table.
fn without_tables(part: &Part, found: &Found<'_>) -> Vec<Reading> {
    let texts = || part.lines.iter().map(|line| &line.text);
    if texts().any(|line| page_owner::is_in(line)) {
        let readings = page_owner::read(texts()).into_iter();
        let readings = readings.map(|owners| (owners.first, owned(owners)));
        let readings = part.each(readings.collect(), &found.facts);
        if !readings.is_empty() {
            return readings;
        }
    }
    let plain = || texts().map(String::as_str);
    if plain().any(|line| line.contains(" func:")) {
        let readings = allocinfo::readings(plain()).into_iter();
        let readings = readings.map(|sites| (sites.first, of_sites(sites)));
        let readings = part.each(readings.collect(), &found.facts);
        if !readings.is_empty() {
            return readings;
        }
    }
    // A report of exhausted memory need not have a table.
    let sums = log::sums(plain()).into_iter();
    let sums = sums.filter(|sums| sums.slab_unreclaimable_pages.is_some());
    let has_sum = |line: &&Line| log::is_unreclaimable(&line.text);
    let mut readings = Vec::new();
    let mut last = 0;
    for (sums, line) in sums.zip(part.lines.iter().filter(has_sum)) {
        let mut moment = Form::Oom.named();
        moment.insert("oom".to_string(), json!(sums));
        found.facts.add(&mut moment, usize::MAX);
        readings.push(part.reading(moment, &found.facts, last..line.number));
        last = line.number;
    }
    if !readings.is_empty() {
        return readings;
    }
    let copies = |form: Form, key| (form, key, found.facts.each(key).collect::<Vec<_>>());
    let sums = [
        copies(Form::Meminfo, facts::MEMINFO),
        copies(Form::Blocks, facts::MAP),
    ];
    let free = facts::FREE.map(|key| copies(Form::Buddyinfo, key));
    let most = free.into_iter().rev().max_by_key(|(.., of)| of.len());
    let mut told = sums.into_iter().chain(most);
    let mut last = 0;
    if let Some((form, key, copies)) = told.find(|(.., copies)| !copies.is_empty()) {
        for (line, copy) in copies {
            let mut moment = form.named();
            found.facts.add(&mut moment, usize::MAX);
            moment.insert(key.to_string(), json!(copy));
            readings.push(part.reading(moment, &found.facts, last..line));
            last = line;
        }
    }
    readings
}

/// The moments of a text that begins with the head of call sites.
pub(crate) fn allocinfo(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut readings = allocinfo::readings(text.lines());
    match readings.len() {
        0 | 1 => Ok(vec![of_sites(allocinfo::Sites {
            is_headed: true,
            ..readings.pop().unwrap_or_default()
        })]),
        _ => read(file, text),
    }
}

/// The moment of call sites.
fn of_sites(sites: allocinfo::Sites) -> Moment {
    let mut notes = Vec::new();
    if !sites.is_headed {
        notes.push("the call sites have no head: others may lack");
    }
    if sites.is_rounded {
        notes.push("sizes of call sites are rounded");
    }
    let mut moment = Form::Allocinfo.named();
    moment.insert("allocinfo".to_string(), json!(sites.lines));
    if !notes.is_empty() {
        moment.insert("notes".to_string(), json!(notes));
    }
    moment
}

/// Bytes of a text that are looked at for owners of pages behind something else, if it is large.
const OWNERS_WITHIN: usize = 256 << 10;
/// Texts from here on are large: their lines are not kept.
const LARGE: usize = 1 << 20;

/// True for a text that begins with owners of pages, behind the command that printed them; of a large one also for a text
/// that begins with something else, as long as that has no table.
pub(crate) fn is_page_owner(text: &str) -> bool {
    let is_command = |line: &String| line.is_empty() || line.starts_with(['$', '#']);
    let first = packing::each(text).find(|line| !is_command(line));
    if first.is_some_and(|line| page_owner::begins(&line)) {
        return page_owner::is_in(text);
    }
    text.len() > LARGE
        && above_owners(text)
            .is_some_and(|above| listing::find(&packing::lines(above)).listings.is_empty())
}

/// The begin of a text, up to the first line of owners of pages.
fn above_owners(text: &str) -> Option<&str> {
    let begin = &text[..text.floor_char_boundary(OWNERS_WITHIN)];
    page_owner::is_in(begin).then_some(())?;
    let mut first = packing::each(begin).zip(begin.lines());
    let (_, first) = first.find(|(line, _)| page_owner::begins(line))?;
    Some(&begin[..first.as_ptr().addr() - begin.as_ptr().addr()])
}

/// The moment of a text that begins with owners of pages. Its lines are not kept: it may be large.
pub(crate) fn page_owner(file: &str, text: &str) -> Result<Vec<Moment>, ReportError> {
    let mut found = page_owner::read(packing::each(text));
    // Lines around several tell their order.
    if found.len() > 1 && text.len() <= LARGE {
        return read(file, text);
    }
    let what = "no stack has an order or a number of pages";
    if found.is_empty() {
        return Err(ReportError::bad(file, "page_owner", what));
    }
    let mut moments: Vec<Moment> = found.drain(..).map(owned).collect();
    if let Some(above) = above_owners(text) {
        let lines = packing::lines(above);
        let facts = listing::find(&lines).facts;
        for moment in &mut moments {
            facts.add(moment, usize::MAX);
        }
    }
    Ok(moments)
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
    if let Some(column) = listing.cut_column {
        notes.push(format!(
            "names are cut at column {column}: those that end there have … and the object size behind them, and nothing is \
             inferred from them; `sudo slabtop -o > FILE` has whole names"
        ));
    }
    if let [first, ..] = listing.unread.as_slice() {
        let count = listing.unread.len();
        notes.push(format!(
            "lines of the listing that were not read, cut or damaged: {count}, the first is line {first}"
        ));
    }
    notes.extend(contradiction(listing));
    notes.extend(odd_sizes(listing));
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
            match slabs.clone().complete(&mut cache) {
                Some(state) => _ = hidden.caches.insert(cache.name.clone(), state),
                None => doubtful.push(cache.name.clone()),
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
mod packed;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tools;
