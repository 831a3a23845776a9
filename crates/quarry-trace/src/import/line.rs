//! One line of a text: the columns before the event, and the event.
//!
//! ```text
//! perf:    bash 1234/1234 [001]   900.065785653:    kmem:kfree: call_site=... ptr=...
//! ftrace:  bash-1234      [001] .....  11.216245: kfree: call_site=... ptr=...
//! LTTng:   [08:36:01.211275239] (+0.000014700) host kmem_kfree: { cpu_id = 1 }, { call_site = ..., ptr = ... }
//! ```
//!
//! [`super::lttng`] reads the last. The others both have the CPU in brackets, then (after the flags that ftrace prints) a time with a colon,
//! then the event with a colon. The two differ in how the task is written, so [`super::perf`] and
//! [`super::ftrace`] read that part. A task's name may hold anything, so nothing before the CPU is
//! trusted to be a separator.

use memchr::{memchr, memchr_iter, memmem};

use super::fields::{self, Fault, parse_number};
use super::{ftrace, lttng, perf};
use crate::error::{LineProblem, clip};
use crate::event::{Kind, RawEvent};
use crate::events::footer::FooterEvent;

/// Kind of a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Line<'a> {
    /// One of our events.
    Event(RawEvent<'a>, Writer),
    /// A report that this many events were lost.
    Lost(u64, Writer),
    /// An event that the footer keeps, with its CPU and time.
    Footer(FooterEvent, u16, u64),
    /// An event of another tracepoint, by its name.
    OtherEvent(&'a [u8]),
    /// A comment, which may be a header.
    Comment,
    /// Blank, a call chain, or anything else that is no event.
    Other,
}

/// The program that printed a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Perf,
    Ftrace,
    Lttng,
}

/// The columns of a line that has the shape of an event.
struct Columns<'a> {
    task: &'a [u8],
    cpu: &'a [u8],
    time: &'a [u8],
    event: &'a [u8],
    rest: &'a [u8],
}

/// Reads a line without its line end.
pub(crate) fn parse(line: &[u8]) -> Result<Line<'_>, Fault> {
    match line.first() {
        None => return Ok(Line::Other),
        Some(b'#') => return Ok(Line::Comment),
        Some(b'[') => {
            if let Some(parsed) = lttng::parse(line) {
                return parsed;
            }
        }
        Some(_) => {}
    }
    let Some(columns) = split(line) else {
        return without_columns(line);
    };
    if columns.event.starts_with(b"PERF_RECORD_LOST") {
        return Ok(Line::Lost(perf::lost(columns.rest), Writer::Perf));
    }
    let Some(name) = columns.event.strip_suffix(b":") else {
        return Ok(Line::OtherEvent(columns.event));
    };
    let full_name = name;
    let (name, from_perf) = match name.strip_prefix(b"kmem:") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let Some(kind) = Kind::from_name(name) else {
        let task = perf::task(columns.task).or_else(|| ftrace::task(columns.task));
        let pid = task.map_or(0, |(pid, _)| pid);
        if let Some(event) = FooterEvent::of_text(full_name, columns.rest, pid)
            && let (Ok(cpu), Some(time_ns)) = (cpu(columns.cpu), time_ns(columns.time))
        {
            return Ok(Line::Footer(event, cpu, time_ns));
        }
        return Ok(Line::OtherEvent(full_name));
    };
    let (pid, comm, writer) = match perf::task(columns.task) {
        Some((pid, comm)) => (pid, comm, Writer::Perf),
        None => {
            let (pid, comm) =
                ftrace::task(columns.task).ok_or(("pid", LineProblem::MissingColumn))?;
            (
                pid,
                comm,
                if from_perf {
                    Writer::Perf
                } else {
                    Writer::Ftrace
                },
            )
        }
    };
    let mut event = RawEvent::new(kind, 0);
    event.pid = pid;
    event.comm = comm;
    event.cpu = cpu(columns.cpu)?;
    event.time_ns =
        time_ns(columns.time).ok_or_else(|| ("time", LineProblem::NotTime(clip(columns.time))))?;
    fields::parse(&mut event, columns.rest)?;
    Ok(Line::Event(event, writer))
}

/// Longest name of a task: the kernel keeps 16 bytes with the one that ends it.
const COMM_BYTES_MAX: usize = 15;

/// Finds the columns, or `None` if the line does not have the shape of an event.
///
/// A task may be called `[0] 1.0: kfree:`, so the last place that looks like the columns counts which has a
/// task before it that can be one. What comes after the event cannot: the task would be too long.
fn split(line: &[u8]) -> Option<Columns<'_>> {
    let mut first = None;
    let mut last = None;
    for open in memchr_iter(b'[', line) {
        let Some(columns) = columns_at(line, open) else {
            continue;
        };
        let task = perf::task(columns.task).or_else(|| ftrace::task(columns.task));
        if task.is_some_and(|(_, comm)| comm.trim_ascii().len() <= COMM_BYTES_MAX) {
            last = Some(columns);
        } else if first.is_none() {
            first = Some(columns);
        }
    }
    last.or(first)
}

/// The columns of a line whose CPU is in the bracket at `open`.
fn columns_at(line: &[u8], open: usize) -> Option<Columns<'_>> {
    let digits = line[open + 1..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let close = open + 1 + digits;
    let bounded =
        digits > 0 && line.get(close) == Some(&b']') && open > 0 && line[open - 1] == b' ';
    if !bounded {
        return None;
    }
    let (time, after) = time_token(&line[close + 1..])?;
    let (mut event, mut rest) = token(after)?;
    if event.iter().all(u8::is_ascii_digit) {
        // perf prints the sample period before the event if it was recorded.
        (event, rest) = token(rest)?;
    }
    Some(Columns {
        task: &line[..open],
        cpu: &line[open + 1..close],
        time,
        event,
        rest,
    })
}

/// The time without its colon, and what follows. ftrace's flag columns may come before it.
fn time_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = text;
    for _ in 0..4 {
        let (word, after) = token(rest)?;
        if let Some(time) = word.strip_suffix(b":")
            && time.first().is_some_and(u8::is_ascii_digit)
        {
            return Some((time, after));
        }
        rest = after;
    }
    None
}

/// The next word and what follows it.
fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = text.iter().position(|b| *b != b' ')?;
    let text = &text[start..];
    let end = memchr(b' ', text).unwrap_or(text.len());
    Some((&text[..end], &text[end..]))
}

pub(super) fn cpu(digits: &[u8]) -> Result<u16, Fault> {
    let value = parse_number(digits).unwrap_or(u64::MAX);
    let max = u64::from(u16::MAX);
    u16::try_from(value).map_err(|_| ("cpu", LineProblem::TooLarge { value, max }))
}

/// `seconds.fraction` with one to nine digits behind the point.
pub(super) fn time_ns(text: &[u8]) -> Option<u64> {
    let point = memchr(b'.', text)?;
    let fraction = &text[point + 1..];
    if fraction.is_empty()
        || fraction.len() > 9
        || text.starts_with(b"0x")
        || fraction.starts_with(b"0x")
    {
        return None;
    }
    let seconds = parse_number(&text[..point])?;
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let time_ns = seconds
        .checked_mul(1_000_000_000)?
        .checked_add(parse_number(fraction)? * scale)?;
    (time_ns <= i64::MAX as u64).then_some(time_ns)
}

/// A line without the columns: an error if it names one of our events, otherwise something to pass over.
fn without_columns(line: &[u8]) -> Result<Line<'_>, Fault> {
    if let Some(at) = memmem::find(line, b"PERF_RECORD_LOST") {
        return Ok(Line::Lost(
            perf::lost(&line[at + b"PERF_RECORD_LOST".len()..]),
            Writer::Perf,
        ));
    }
    if let Some(count) = ftrace::lost(line) {
        return Ok(Line::Lost(count, Writer::Ftrace));
    }
    // Comments and LTTng's events begin a line, unless it is indented.
    let text = line.trim_ascii_start();
    if text.first() == Some(&b'#') {
        return Ok(Line::Comment);
    }
    if let Some(parsed) = lttng::parse(text) {
        return parsed;
    }
    for word in line.split(|b| *b == b' ') {
        let name = word
            .strip_suffix(b":")
            .map(|name| name.strip_prefix(b"kmem:").unwrap_or(name));
        if name.and_then(Kind::from_name).is_some() {
            return Err((missing_column(line), LineProblem::MissingColumn));
        }
    }
    Ok(Line::Other)
}

/// Name of a column that an event's line lacks.
fn missing_column(line: &[u8]) -> &'static str {
    let has_cpu = memchr_iter(b'[', line).any(|open| {
        memchr(b']', &line[open..])
            .is_some_and(|n| line[open + 1..open + n].iter().all(u8::is_ascii_digit))
    });
    if has_cpu { "time" } else { "cpu" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_to_nine_digits() {
        for (text, expect) in [
            ("1287.791313528", Some(1_287_791_313_528)),
            ("11.216245", Some(11_216_245_000)),
            ("0.5", Some(500_000_000)),
            ("12", None),
            ("12.", None),
            ("12.1234567890", None),
            ("1x.5", None),
            ("99999999999999.0", None),
            ("0x1.5", None),
        ] {
            assert_eq!(time_ns(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn a_name_that_looks_like_columns_is_a_name() {
        for name in [
            "[0] 1.0: kfree:",
            "a 5 [0] 1.0: x:",
            "kmem:kfree:",
            "ptr=0x1",
        ] {
            for text in [
                format!("  {name} 7/8 [003] 2.5: kmem:kfree: call_site=f ptr=0x1000"),
                format!("  {name}-8 [003] d..1. 2.5: kfree: call_site=f [m] ptr=0x1000"),
            ] {
                let Ok(Line::Event(event, _)) = parse(text.as_bytes()) else {
                    panic!("{text}");
                };
                let found = (event.comm, event.pid, event.cpu, event.time_ns);
                let expect = (name.as_bytes(), 8, 3, 2_500_000_000);
                assert_eq!(found, expect, "{text}");
            }
        }
    }
}
