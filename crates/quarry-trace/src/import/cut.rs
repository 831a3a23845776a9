//! Lines that are cut: a paste, or a copy of a file, stops within an event.
//!
//! Cut is the last line of a part: behind it the text ends, or a prompt, an empty line or the head of another buffer
//! follows. The line that follows decides, so a line in doubt waits for it. A line with its line end is cut if a field
//! is missing that its like have. Without a line end, its last field may be cut, too.

use std::io::Write;

use memchr::{memmem, memrchr};

use super::fields::{Fault, POINTER_DIGITS, parse_number};
use super::line::{self, Line, Writer};
use super::{Import, ftrace};
use crate::error::{LineProblem, Result, TraceError, clip};
use crate::event::{Kind, RawEvent};

/// End of an event's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    Cut,
    /// A longer line begins as this one: only a line end tells that it is whole.
    Open,
}

/// Facts about lines so far that tell a cut one.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Last fields, by kind of event.
    keys: [Vec<u8>; Kind::ALL.len()],
    /// An object's address has the 16 digits of 64 bits.
    is_wide: bool,
}

impl Shown {
    /// The end of an event's line.
    pub(super) fn end(&self, kind: Kind, writer: Writer, text: &[u8]) -> End {
        let Some((key, value)) = last_field(text) else {
            return End::Cut;
        };
        if writer == Writer::Lttng {
            return if is_braced(text) {
                End::Whole
            } else {
                End::Cut
            };
        }
        let known = &self.keys[kind as usize];
        if !known.is_empty() && known != key {
            return End::Cut;
        }
        match (value.first(), value.last()) {
            // A number behind a number, or a pointer that is none: `(nil)`.
            (Some(_), Some(b')')) => return End::Whole,
            (Some(b'('), _) => return End::Cut,
            _ => {}
        }
        match key {
            b"ptr" => self.pointer_end(value),
            b"accounted" if is_begin(value, &["true", "false"]) => End::Cut,
            b"accounted" => End::Whole,
            _ => End::Open,
        }
    }

    fn pointer_end(&self, value: &[u8]) -> End {
        // perf prints no zeros in front: NULL and the zero-size pointer are short.
        const SHORT_MAX: u64 = 16;
        let is_short = parse_number(value).is_some_and(|address| address <= SHORT_MAX);
        let hex = value.strip_prefix(b"0x");
        let digits = hex.unwrap_or(value).len();
        let [wide, narrow] = POINTER_DIGITS;
        match digits {
            _ if digits == wide || (digits == narrow && !self.is_wide) => End::Whole,
            _ if hex.is_some() && is_short => End::Whole,
            // Without zeros in front, short addresses are possible.
            _ if hex.is_some() => End::Open,
            _ => End::Cut,
        }
    }

    /// Takes what the line of an event shows.
    pub(super) fn add(&mut self, event: &RawEvent<'_>, is_padded: bool, text: &[u8]) {
        const WIDE_MIN: u64 = 1 << 60;
        self.is_wide |= is_padded || (!event.kind.is_page() && event.address >= WIDE_MIN);
        if let Some((key, _)) = last_field(text)
            && let known = &mut self.keys[event.kind as usize]
            && known != key
        {
            key.clone_into(known);
        }
    }
}

/// The last field of an event's line.
fn last_field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = memrchr(b'=', text)?;
    let key = text[..equals].trim_ascii_end();
    let key = key.rsplit(|byte| b" ,{".contains(byte)).next()?;
    Some((key, text[equals + 1..].trim_ascii()))
}

/// True if the fields of LTTng's line end.
fn is_braced(text: &[u8]) -> bool {
    text.trim_ascii_end().ends_with(b"}")
}

/// True if one of the words begins so and goes on.
fn is_begin(value: &[u8], words: &[&str]) -> bool {
    let mut words = words.iter().map(|word| word.as_bytes());
    words.any(|word| word.len() > value.len() && word.starts_with(value))
}

/// True if a line that does not parse can be the begin of one that does.
fn is_begin_of_event(text: &[u8]) -> bool {
    let has = |part: &str| memmem::find(text, part.as_bytes()).is_some();
    if has(": {") {
        return !is_braced(text);
    }
    let last = match () {
        () if has("mm_page_free") => " order=",
        () if has("kfree") || has("kmem_cache_free") => " ptr=",
        () => " gfp_flags=",
    };
    let is_begun = |value: &[u8]| matches!(value, b"" | b"-" | b"0x" | b"(");
    !has(last) || last_field(text).is_some_and(|(_, value)| is_begun(value))
}

/// True if a text's last word can be the begin of an event's name.
fn ends_in_name(text: &[u8], name: &[u8]) -> bool {
    let name = name.strip_prefix(b"kmem:").unwrap_or(name);
    let is_name = |kind: &Kind| kind.name().as_bytes().starts_with(name);
    text.ends_with(name) && Kind::ALL.iter().any(is_name)
}

/// A line that the next one decides about.
#[derive(Debug)]
pub(super) struct Doubt {
    line: u64,
    text: Vec<u8>,
    /// The problem of the line if it is not cut; `None` if it reads as an event.
    fault: Option<Fault>,
}

/// Reasons to leave out a line, as [`TraceError::TruncatedLine`] tells them.
const NO_LINE_END: &str =
    "the last line is cut off (no line end); the recording was truncated: copy it again";
const OPEN_FIELD: &str =
    "the last line has no line end, so its last field may be cut off: end the line if it is whole";
const PART_ENDS: &str =
    "the line is cut off where the text, or this part of it, ends: copy it again";

impl<W: Write + Send> Import<'_, W> {
    /// Takes one line; gives the error that the text has.
    pub(super) fn line(&mut self, text: &[u8], ended: bool) -> Result<Option<TraceError>> {
        let is_blank = text.trim_ascii().is_empty();
        if self.first_line.is_none() && !is_blank {
            self.first_line = Some(clip(text.trim_ascii()));
        }
        if let Some(error) = self.settle(Some(text))? {
            return Ok(Some(error));
        }
        self.line += 1;
        let parsed = line::parse(text);
        let fault = match parsed {
            Ok(Line::Event(event, writer)) => match self.fault(&event, text) {
                Some(fault) => fault,
                None => match self.shown.end(event.kind, writer, text) {
                    End::Cut if ended => return Ok(self.doubt(text, None)),
                    End::Cut => return Ok(self.cut(self.line, text, NO_LINE_END)),
                    End::Open if !ended && self.facts.events() > 0 => {
                        return Ok(self.cut(self.line, text, OPEN_FIELD));
                    }
                    End::Open | End::Whole => {
                        self.event(event, writer, text)?;
                        return Ok(None);
                    }
                },
            },
            Err(fault) => fault,
            Ok(Line::OtherEvent(name)) if !ended && ends_in_name(text, name) => {
                return Ok(self.cut(self.line, text, NO_LINE_END));
            }
            Ok(Line::Other)
                if !ended && !is_blank && self.facts.events() > 0 && !ftrace::is_prompt(text) =>
            {
                return Ok(self.cut(self.line, text, NO_LINE_END));
            }
            Ok(other) => {
                self.no_event(&other, text);
                return Ok(None);
            }
        };
        Ok(match ended {
            true => self.doubt(text, Some(fault)),
            false => self.cut(self.line, text, NO_LINE_END),
        })
    }

    fn doubt(&mut self, text: &[u8], fault: Option<Fault>) -> Option<TraceError> {
        let (line, text) = (self.line, text.to_vec());
        self.doubt = Some(Doubt { line, text, fault });
        None
    }

    /// Decides about a line in doubt by the next one, or by the end of the text; gives the error that the text has.
    pub(super) fn settle(&mut self, next: Option<&[u8]>) -> Result<Option<TraceError>> {
        let Some(Doubt { line, text, fault }) = self.doubt.take() else {
            return Ok(None);
        };
        let is_last = next.is_none_or(|next| self.ends_part(next)) && self.facts.events() > 0;
        match fault {
            Some(_) if is_last && is_begin_of_event(&text) => Ok(self.cut(line, &text, PART_ENDS)),
            None if is_last => Ok(self.cut(line, &text, PART_ENDS)),
            Some((field, problem)) => Ok(self.bad(line, &text, field, problem)),
            None => {
                if let Ok(Line::Event(event, writer)) = line::parse(&text) {
                    self.event(event, writer, &text)?;
                }
                Ok(None)
            }
        }
    }

    /// True if no event follows another directly where this line is between them.
    fn ends_part(&self, next: &[u8]) -> bool {
        // perf prints an empty line behind each call stack.
        let is_blank = next.trim_ascii().is_empty() && self.facts.perf_lines == 0;
        is_blank || ftrace::is_head(next) || ftrace::is_prompt(next)
    }

    /// A line that is cut: counted where others are whole, or if the caller asked for that.
    fn cut(&mut self, line: u64, text: &[u8], why: &'static str) -> Option<TraceError> {
        let error = TraceError::TruncatedLine {
            path: self.name.clone(),
            line,
            why,
            text: clip(text),
        };
        let is_passed = self.options.skip_bad || self.facts.events() > 0;
        self.skip(error, is_passed)
    }

    /// A bad line: an error, or counted if the caller asked for that.
    fn bad(
        &mut self,
        line: u64,
        text: &[u8],
        field: &'static str,
        problem: LineProblem,
    ) -> Option<TraceError> {
        let error = TraceError::BadLine {
            path: self.name.clone(),
            line,
            field,
            problem,
            text: clip(text),
        };
        self.skip(error, self.options.skip_bad)
    }

    fn skip(&mut self, error: TraceError, is_passed: bool) -> Option<TraceError> {
        if !is_passed {
            return Some(error);
        }
        let meta = self.trace.meta_mut();
        meta.skipped_lines += 1;
        meta.first_skipped.get_or_insert_with(|| error.to_string());
        None
    }
}
