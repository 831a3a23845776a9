//! Buffers of ftrace that a text has one after another.
//!
//! ftrace prints the events of all CPUs in the order of their times. A text of several files, such as those of
//! `per_cpu/cpu*/trace`, begins again with each: the time steps back from one buffer, or one CPU, to another.
//! So lines are held until that happens, and then to the end, where they are sorted. Up to
//! [`HELD_BYTES_MAX`] of lines are held while the time runs forward; then they are let go, and the rest follows them
//! as it comes. If another buffer begins in that rest, the events are out of order, and the trace says so.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use super::line::{self, Line};
use crate::event::RawEvent;

/// Most bytes of lines that are held while nothing tells that buffers follow one another.
const HELD_BYTES_MAX: usize = 64 << 20;

/// A line that is held.
#[derive(Clone, Debug)]
struct Place {
    time_ns: u64,
    text: Range<usize>,
    /// Number of its buffer.
    buffer: u32,
}

/// Lines with events of ftrace.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    texts: Vec<u8>,
    places: Vec<Place>,
    /// The first event's time.
    first_ns: Option<u64>,
    /// CPU, time and buffer of the last line.
    last: (u16, u64, u32),
    /// Number of the buffer, by the headers so far.
    buffer: u32,
    /// The time stepped back between buffers or CPUs.
    is_mixed: bool,
    /// Lines are no longer held.
    is_over: bool,
}

/// The lines that were held, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Held {
    texts: Vec<u8>,
    places: Vec<Place>,
    /// Buffers followed one another.
    pub(super) is_mixed: bool,
    /// Events that several buffers have; each is here once.
    pub(super) repeated: u64,
}

impl Buffers {
    /// True if the next line is to be held.
    pub(super) fn hold(&self) -> bool {
        !self.is_over && (self.is_mixed || self.texts.len() < HELD_BYTES_MAX)
    }

    /// A header begins a buffer.
    pub(super) fn header(&mut self, text: &[u8]) {
        let begins = text.trim_ascii_start().starts_with(b"# tracer:");
        self.buffer += u32::from(begins && self.first_ns.is_some());
    }

    /// Notes a line's event; by how much its time is before that of the line above, if that is of another buffer or CPU.
    fn step_back_ns(&mut self, event: &RawEvent<'_>) -> u64 {
        let (cpu, time_ns, buffer) = self.last;
        let is_other = (cpu, buffer) != (event.cpu, self.buffer);
        self.first_ns.get_or_insert(event.time_ns);
        self.last = (event.cpu, event.time_ns, self.buffer);
        if is_other {
            time_ns.saturating_sub(event.time_ns)
        } else {
            0
        }
    }

    /// Notes a line that is not held; true if it begins another buffer.
    pub(super) fn begins(&mut self, event: &RawEvent<'_>) -> bool {
        /// Part of the time so far. `trace_pipe` prints some events late, by less than that of a long recording.
        const PART: u64 = 100;
        let (_, last_ns, buffer) = self.last;
        let so_far_ns = last_ns.saturating_sub(self.first_ns.unwrap_or(last_ns));
        let is_next = buffer != self.buffer;
        let back_ns = self.step_back_ns(event);
        back_ns > 0 && (is_next || back_ns > so_far_ns / PART)
    }

    /// Holds a line and what it says.
    pub(super) fn push(&mut self, text: &[u8], event: &RawEvent<'_>) {
        self.is_mixed |= self.step_back_ns(event) > 0;
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        self.places.push(Place {
            time_ns: event.time_ns,
            text: start..self.texts.len(),
            buffer: self.buffer,
        });
    }

    /// Ends the holding, and gives what was held; `None` if it has ended.
    pub(super) fn end(&mut self) -> Option<Held> {
        if mem::replace(&mut self.is_over, true) {
            return None;
        }
        let mut held = Held {
            texts: mem::take(&mut self.texts),
            places: mem::take(&mut self.places),
            is_mixed: self.is_mixed,
            repeated: 0,
        };
        if held.is_mixed {
            held.sort();
        }
        Some(held)
    }
}

impl Held {
    /// Sorts by time, and leaves out lines that an earlier buffer has, too: it was printed twice.
    fn sort(&mut self) {
        self.places.sort_by_key(|place| place.time_ns);
        let (texts, mut time_ns, mut repeated) = (&self.texts, 0, 0);
        let mut buffers: HashMap<&[u8], u32> = HashMap::new();
        self.places.retain(|place| {
            if time_ns != place.time_ns {
                time_ns = place.time_ns;
                buffers.clear();
            }
            let buffer = buffers.entry(&texts[place.text.clone()]);
            let is_new = *buffer.or_insert(place.buffer) == place.buffer;
            repeated += u64::from(!is_new);
            is_new
        });
        self.repeated = repeated;
    }

    /// The events.
    pub(super) fn events(&self) -> impl Iterator<Item = RawEvent<'_>> {
        self.places.iter().filter_map(|place| {
            match line::parse(&self.texts[place.text.clone()]) {
                Ok(Line::Event(event, _)) => Some(event),
                // Only lines with events are held.
                _ => None,
            }
        })
    }
}
