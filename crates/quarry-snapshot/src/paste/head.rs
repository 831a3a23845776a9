//! Lines that stand above a table, and the totals of all caches that some of them have.

use crate::forms::{Form, slabtool};
use crate::snapshot::Totals;

/// Bytes of a KiB, the unit of slabtop.
const KIB: f64 = 1024.0;

/// Head of `vmstat -m`, which may be cut.
const VMSTAT: &str = "Cache Num Total Size Pages";

/// A line above a table.
pub(super) enum Head {
    /// Names of columns, or a version: a table of the form begins.
    Begins(Form),
    /// One of slabtop's lines with totals, such as `Active / Total Slabs (% used) : 9930 / 9930 (100.0%)`, with its place
    /// among them if the language tells. The number in all is `None` where the line is cut in it.
    Total(Option<usize>, f64, Option<f64>),
    /// One of the sums of the tool slabinfo, with its place among those of slabtop: `# Objects  : 329484   # PartObj:    484`.
    Sum(usize, f64),
    /// A part of a head that a mailer broke.
    Rest,
}

/// The head that a line is, if it is one.
pub(super) fn of(line: &str) -> Option<Head> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let begins = |form| Some(Head::Begins(form));
    match words.as_slice() {
        _ if line.contains("slabinfo - version") => begins(Form::Slabinfo),
        _ if line.contains("<active_objs>") => begins(Form::Slabinfo),
        [first, ..] if first.starts_with('<') && first.contains('_') => Some(Head::Rest),
        ["OBJS", "ACTIVE", ..] => begins(Form::Slabtop),
        ["Cache", "Num", "Total", "Size", "Pages", ..] => begins(Form::Vmstat),
        ["Cache", "Num", ..] | ["Cache", "Nu"] if VMSTAT.starts_with(&words.join(" ")) => {
            begins(Form::Vmstat)
        }
        ["CACHE", .., "SSIZE"] | ["CACHE", .., "SSIZE", "NAME"] => begins(Form::Crash),
        ["Name", "Objects", "Objsize", ..] | ["Slabcache", "Totals"] => begins(Form::SlabTool),
        ["Slabcaches", ":", .., "Active:", active] => sum(2, active),
        ["Memory", "used:", bytes, "#", "Loss", ..] => sum(4, bytes),
        ["#", "Objects", ":", objects, "#", "PartObj:", ..] => sum(0, objects),
        ["#Slabs", _, _, _, slabs] => sum(1, slabs),
        ["Used", _, _, _, bytes] => sum(3, bytes),
        ["Name", "Used", "Total"] => begins(Form::Oom),
        _ if line.contains(super::OOM) => begins(Form::Oom),
        _ => total(line),
    }
}

/// True for the names of the columns of `vmstat -m` in another language: as many words, without numbers.
pub(super) fn is_foreign(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.len() == VMSTAT.split(' ').count()
        && words
            .iter()
            .all(|word| word.chars().all(char::is_alphabetic))
}

fn sum(place: usize, number: &str) -> Option<Head> {
    let number = slabtool::bytes_of(number)? as f64;
    Some(Head::Sum(
        place,
        if place >= 3 { number / KIB } else { number },
    ))
}

/// Names of slabtop's totals, in their order.
const NAMES: [&str; 4] = ["Objects", "Slabs", "Caches", "Size"];

/// The two numbers of `... : A / B (C%)`, in KiB where they have a unit; those of `A / B / C` are none. Without the share the
/// line is cut, and the second number may be, too, unless its unit stands behind it.
fn total(line: &str) -> Option<Head> {
    let (name, numbers) = line.rsplit_once(" : ").or_else(|| line.rsplit_once(": "))?;
    let words: Vec<&str> = numbers.split_whitespace().collect();
    let has_unit = |word: &str| word.ends_with(['K', 'k']);
    let number = |word: &str| {
        let word = word.trim_end_matches(['K', 'k']).replace(',', ".");
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        word.parse::<f64>().ok().filter(|_| is_number)
    };
    let place = NAMES.iter().position(|known| name.contains(known));
    let is_share = |word: &str| word.starts_with('(') && !word.ends_with(|c| "BKkMG".contains(c));
    match (words.as_slice(), name.contains('/')) {
        ([active, "/", total, share, ..], true) if is_share(share) => {
            Some(Head::Total(place, number(active)?, Some(number(total)?)))
        }
        ([_, "/", _, "/", ..], true) => Some(Head::Rest),
        ([active, "/", rest @ ..], true) if is_of_slabtop(name) && rest.len() < 2 => {
            let whole = rest.first().filter(|word| has_unit(word));
            let active = number(active)?;
            Some(Head::Total(
                place,
                active,
                whole.and_then(|word| number(word)),
            ))
        }
        _ => None,
    }
}

/// True for the name of one of slabtop's sums.
fn is_of_slabtop(name: &str) -> bool {
    name.starts_with("Active / Total ") && NAMES.iter().any(|known| name.contains(known))
}

/// True for one of slabtop's sums that goes on in the line below it.
pub(super) fn goes_on(line: &str, next: &str) -> bool {
    let begins = line.split(" : ").next().is_some_and(is_of_slabtop);
    let is_rest = |word: &str| {
        let word = word
            .trim_start_matches('(')
            .trim_end_matches([')', 'K', '%']);
        word == "/" || word.parse::<f64>().is_ok()
    };
    let is_whole = line.trim_end().ends_with(')');
    begins && !is_whole && !next.is_empty() && next.split_whitespace().all(is_rest)
}

/// Adds a line of totals: slabtop prints objects, slabs, caches and sizes in this order, in any language.
pub(super) fn add(totals: &mut Totals, place: usize, active: f64, total: f64) {
    let (active, whole) = (active as u64, total as u64);
    match place {
        0 => (totals.active_objs, totals.num_objs) = (active, whole),
        1 => totals.slabs = whole,
        2 => totals.caches = whole,
        3 => totals.object_bytes = (total * KIB) as u64,
        4 => totals.slab_bytes = (total * KIB) as u64,
        _ => {}
    }
}

/// The first word behind the names of the columns, if there is one: behind the last name, or where a row of slabinfo begins
/// among names that were cut.
pub(super) fn behind(line: &str) -> Option<usize> {
    const NUMBERS: usize = 5;
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_name = |word: &&str| matches!(*word, "NAME" | "SSIZE" | "Pages" | "<sharedavail>");
    if let Some(end) = words.iter().position(is_name) {
        return (end + 1 < words.len() && words.get(end + 1) != Some(&"NAME")).then_some(end + 1);
    }
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    let mut rows = words.windows(NUMBERS + 3);
    let row = rows.position(|row| {
        let is_end = row[NUMBERS + 1..] == [":", "tunables"];
        is_end && !is_number(row[0]) && row[1..=NUMBERS].iter().all(|word| is_number(word))
    });
    row.filter(|word| *word > 0)
}
