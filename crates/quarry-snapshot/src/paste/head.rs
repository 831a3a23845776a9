//! Lines that stand above a table, and the totals of all caches that some of them have.

use crate::forms::{Form, slabtool};
use crate::snapshot::Totals;

/// Bytes of a KiB, the unit of slabtop.
const KIB: f64 = 1024.0;

/// A line above a table.
pub(super) enum Head {
    /// Names of columns, or a version: a table of the form begins.
    Begins(Form),
    /// One of slabtop's lines with totals, such as `Active / Total Slabs (% used) : 9930 / 9930 (100.0%)`, with its place
    /// among them if the language tells.
    Total(Option<usize>, f64, f64),
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

fn sum(place: usize, number: &str) -> Option<Head> {
    let number = slabtool::bytes_of(number)? as f64;
    Some(Head::Sum(
        place,
        if place >= 3 { number / KIB } else { number },
    ))
}

/// Names of slabtop's totals, in their order.
const NAMES: [&str; 4] = ["Objects", "Slabs", "Caches", "Size"];

/// The two numbers of `... : A / B (C%)`, in KiB where they have a unit; those of `A / B / C` are none.
fn total(line: &str) -> Option<Head> {
    let (name, numbers) = line.rsplit_once(" : ").or_else(|| line.rsplit_once(": "))?;
    let words: Vec<&str> = numbers.split_whitespace().collect();
    match (words.as_slice(), name.contains('/')) {
        ([active, "/", total, share, ..], true) if share.ends_with("%)") => {
            let number = |word: &str| {
                word.trim_end_matches(['K', 'k'])
                    .replace(',', ".")
                    .parse()
                    .ok()
            };
            let place = NAMES.iter().position(|known| name.contains(known));
            Some(Head::Total(place, number(active)?, number(total)?))
        }
        ([_, "/", _, "/", _], true) => Some(Head::Rest),
        _ => None,
    }
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
