//! Lines of LTTng's recordings as `babeltrace2` and `babeltrace` print them.
//!
//! ```text
//! [08:36:01.211275239] (+0.000014700) host kmem_kfree: { cpu_id = 1 }, { call_site = 0xBF083B00, ptr = 0xCDEB5C00 }
//! ```
//!
//! The time is that of the day, with `--clock-date` the date and the time, with `--clock-seconds` seconds. Contexts,
//! such as `{ procname = "bash", tid = 7 }`, stand between the CPU and the event's own fields.

use std::fs;
use std::path::Path;

use chrono::NaiveDate;
use memchr::{memchr, memmem};

use super::fields::{self, Fault, Fields, parse_number};
use super::line::{self, Line, Writer};
use crate::error::{LineProblem, clip};
use crate::event::{Kind, RawEvent};

/// Nanoseconds of a day.
pub(super) const DAY_NS: u64 = 86_400 * 1_000_000_000;

/// True if a folder is a recording of LTTng, or has them below it: `SESSION/kernel/metadata`.
pub(super) fn is_recording(folder: &Path) -> bool {
    let has_metadata = |folder: &Path| folder.join("metadata").is_file();
    let below = || fs::read_dir(folder).into_iter().flatten().flatten();
    has_metadata(folder)
        || below().any(|entry| {
            let path = entry.path();
            has_metadata(&path) || has_metadata(&path.join("kernel"))
        })
}

/// Reads a line that begins with a bracket; `None` if it is not of babeltrace.
pub(super) fn parse(text: &[u8]) -> Option<Result<Line<'_>, Fault>> {
    let (time, rest) = text
        .strip_prefix(b"[")?
        .split_at_checked(memchr(b']', text)? - 1)?;
    let (head, groups) = rest.split_at_checked(memmem::find(rest, b": {")?)?;
    let name = head.rsplit(|byte| *byte == b' ').next()?;
    let Some(kind) = kind(name) else {
        return Some(Ok(Line::OtherEvent(name)));
    };
    Some(event(kind, time, groups).map(|event| Line::Event(event, Writer::Lttng)))
}

/// LTTng writes `kmem_` before the kernel's names, unless they begin so.
fn kind(name: &[u8]) -> Option<Kind> {
    let kind = Kind::from_name(name.strip_prefix(b"kmem_").unwrap_or(name));
    kind.or_else(|| Kind::from_name(name))
}

fn event<'a>(kind: Kind, time: &[u8], groups: &'a [u8]) -> Result<RawEvent<'a>, Fault> {
    let mut event = RawEvent::new(kind, 0);
    let (mut own, mut cpu, mut tid) = (Fields::default(), None, None);
    let mut rest = groups;
    while let Some((key, value, after)) = field(rest) {
        rest = after;
        match key {
            b"cpu_id" => cpu = Some(value),
            b"tid" => tid = Some(value),
            b"vtid" => tid = tid.or(Some(value)),
            b"procname" => event.comm = value,
            _ => own.set(key, value),
        }
    }
    event.cpu = line::cpu(cpu.ok_or(("cpu_id", LineProblem::Missing))?)?;
    event.pid = tid
        .and_then(parse_number)
        .and_then(|tid| tid.try_into().ok())
        .unwrap_or(0);
    event.time_ns = clock_ns(time).ok_or_else(|| ("time", LineProblem::NotClock(clip(time))))?;
    fields::fill(&mut event, &own)?;
    Ok(event)
}

/// The next `key = value` and what follows it.
fn field(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    const EQUALS: &[u8] = b" = ";
    let at = memmem::find(text, EQUALS)?;
    let key = text[..at].rsplit(|byte| b" {,".contains(byte)).next()?;
    let rest = &text[at + EQUALS.len()..];
    if let Some(quoted) = rest.strip_prefix(b"\"") {
        let mut escaped = false;
        let end = quoted.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        })?;
        return Some((key, &quoted[..end], &quoted[end + 1..]));
    }
    let end = rest.iter().position(|byte| b" ,}".contains(byte));
    let (value, rest) = rest.split_at(end.unwrap_or(rest.len()));
    Some((key, value, rest))
}

/// A time of the day, a date with it, or seconds, in nanoseconds.
fn clock_ns(text: &[u8]) -> Option<u64> {
    let (days, text) = match memchr(b' ', text) {
        Some(at) => (days(&text[..at])?, &text[at + 1..]),
        None => (0, text),
    };
    let mut parts = text.rsplit(|byte| *byte == b':');
    let mut time_ns = line::time_ns(parts.next()?)?;
    for (unit, part) in [60, 3600].into_iter().zip(parts.by_ref()) {
        let part_ns = parse_number(part)?.checked_mul(unit * 1_000_000_000)?;
        time_ns = time_ns.checked_add(part_ns)?;
    }
    if parts.next().is_some() {
        return None;
    }
    let time_ns = time_ns.checked_add(days.checked_mul(DAY_NS)?)?;
    (time_ns <= i64::MAX as u64).then_some(time_ns)
}

/// Days from 1970 to a date `2012-05-04`.
fn days(date: &[u8]) -> Option<u64> {
    let mut numbers = date.split(|byte| *byte == b'-').map(parse_number);
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if !(1970..=9999).contains(&year) || numbers.next().is_some() {
        return None;
    }
    let (month, day) = (month.try_into().ok()?, day.try_into().ok()?);
    let date = NaiveDate::from_ymd_opt(year.try_into().ok()?, month, day)?;
    date.to_epoch_days().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks() {
        for (text, expect) in [
            ("08:36:01.211260539", Some(30_961_211_260_539)),
            ("1336120561.5", Some(1_336_120_561_500_000_000)),
            ("2012-05-04 08:36:01.5", Some(1_336_120_561_500_000_000)),
            ("2024-02-29 00:00:00.0", Some(1_709_164_800_000_000_000)),
            ("1970-01-01 00:00:00.000000001", Some(1)),
            ("00000000001234567", None),
            ("1:2:3:4.5", None),
            ("2012-13-04 08:36:01.5", None),
            ("2023-02-29 08:36:01.5", None),
            ("1969-12-31 08:36:01.5", None),
            ("", None),
        ] {
            assert_eq!(clock_ns(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn contexts_stand_before_the_fields() {
        let text = br#"[1.5] (+?.?????????) a host: kmem_cache_free: { cpu_id = 3 }, { procname = "a } ptr = 1\" ", vtid = 5, tid = 7 }, { call_site = 0xFFFFFFFF81000000, ptr = 0xFFFF888100000000, name = "dentry" }"#;
        let Some(Ok(Line::Event(event, Writer::Lttng))) = parse(text) else {
            panic!("an event");
        };
        assert_eq!((event.cpu, event.pid, event.time_ns), (3, 7, 1_500_000_000));
        assert_eq!(event.comm, br#"a } ptr = 1\" "#);
        assert_eq!(event.address, 0xffff_8881_0000_0000);
        assert_eq!(event.cache, Some(&b"dentry"[..]));
    }

    #[test]
    fn other_lines() {
        for (text, other) in [
            (
                "[1.5] (+0.1) h sched_switch: { cpu_id = 3 }, { prev_comm = \"x\" }",
                Some("sched_switch"),
            ),
            (
                "[1.5] (+0.1) h kmem_mm_page_free_batched: { cpu_id = 3 }, { order = 0 }",
                Some("kmem_mm_page_free_batched"),
            ),
            ("[    1.500000] usb 1-1: new device", None),
            ("[", None),
            ("]", None),
        ] {
            let found = match parse(text.as_bytes()) {
                Some(Ok(Line::OtherEvent(name))) => Some(name),
                None => None,
                other => panic!("{text}: {other:?}"),
            };
            assert_eq!(found, other.map(str::as_bytes), "{text}");
        }
    }
}
