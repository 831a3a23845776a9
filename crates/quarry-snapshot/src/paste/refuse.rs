//! Texts that have nothing to read: the packing or form that they seem to be of, and what to do.

use super::facts;
use super::listing::Found;
use crate::file::ReportError;
use crate::forms::rows;
use crate::slabinfo::{self, Slabinfo};

/// Recognition of a text.
type Is = fn(&str) -> bool;

/// Texts that are not read, and what to do.
const UNREAD: [(Is, &str); 3] = [
    (
        |text| text.trim_start().starts_with("{\\rtf"),
        "RTF of a word processor: save it as plain text",
    ),
    (
        |text| text.contains("Content-Transfer-Encoding: base64"),
        "a mail whose text is in base64: save the text alone",
    ),
    (
        is_trace,
        "events of ftrace or perf: `quarry import FILE` makes a trace of them",
    ),
];

/// True for a text with events of the slab allocators.
fn is_trace(text: &str) -> bool {
    const EVENTS: [&str; 5] = [
        "kmalloc",
        "kmalloc_node",
        "kfree",
        "kmem_cache_alloc",
        "kmem_cache_free",
    ];
    text.lines().any(|line| {
        let event = line.split_once(": call_site=").map(|(before, _)| before);
        let name = event.and_then(|event| event.rsplit([' ', ':']).next());
        name.is_some_and(|name| EVENTS.contains(&name))
    })
}

/// Says why a text that names a form has no cache.
pub(super) fn refuse(file: &str, text: &str, found: &Found<'_>) -> Result<(), ReportError> {
    if let Some((_, what)) = UNREAD.iter().find(|(is, _)| is(text)) {
        return Err(ReportError::bad(file, "text", what));
    }
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
    if text.contains(": tunables ") && !text.contains(" : slabdata ") {
        let what =
            "each row is cut before its slabs: `sudo cat /proc/slabinfo > FILE` has whole rows";
        return Err(ReportError::bad(file, "slabinfo", what));
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
