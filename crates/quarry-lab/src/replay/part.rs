//! The part of a recording that is replayed.

use std::fmt;

use quarry_trace::seconds;

/// From the first event at or after one moment to the last event before the next one that is at or
/// after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Begin, by the recording's clock; the first event if there is none.
    pub from_ns: Option<u64>,
    /// End, by the recording's clock; behind the last event if there is none.
    pub until_ns: Option<u64>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from_ns, self.until_ns].map(|ns| ns.map(seconds));
        match (from, until) {
            (None, None) => f.write_str("in the recording"),
            (Some(from), None) => write!(f, "at or after {from} s"),
            (None, Some(until)) => write!(f, "before {until} s"),
            (Some(from), Some(until)) => write!(f, "from {from} s until {until} s"),
        }
    }
}

/// Position of an event relative to the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the part.
    Before,
    /// In it.
    In,
    /// Behind it.
    After,
}

/// A part while the events go by. The clock may step back a little between events of different
/// CPUs: a part that has begun or ended stays so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    phase: Phase,
    from_ns: u64,
    until_ns: Option<u64>,
}

impl Window {
    pub(super) fn new(part: Part) -> Self {
        Self {
            phase: Phase::Before,
            from_ns: part.from_ns.unwrap_or(0),
            until_ns: part.until_ns,
        }
    }

    /// Begin and end of the part in a trace with these times, on the clock.
    pub(super) fn bounds(&self, first_ns: u64, last_ns: u64) -> (u64, u64) {
        let from_ns = self.from_ns.max(first_ns);
        let until_ns = self.until_ns.unwrap_or(last_ns).min(last_ns);
        (from_ns, until_ns)
    }

    /// True if an event of the part was seen.
    pub(super) fn has_begun(&self) -> bool {
        self.phase != Phase::Before
    }

    #[inline(always)]
    pub(super) fn phase(&mut self, time_ns: u64) -> Phase {
        if self.phase == Phase::Before && time_ns >= self.from_ns {
            self.phase = Phase::In;
        }
        if self.phase == Phase::In && self.until_ns.is_some_and(|until_ns| time_ns >= until_ns) {
            self.phase = Phase::After;
        }
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_begins_and_ends_once() {
        let part = Part {
            from_ns: Some(10),
            until_ns: Some(20),
        };
        let mut window = Window::new(part);
        let phases: Vec<Phase> = [5, 9, 10, 9, 19, 20, 11]
            .into_iter()
            .map(|time_ns| window.phase(time_ns))
            .collect();
        use Phase::{After, Before, In};
        assert_eq!(phases, [Before, Before, In, In, In, After, After]);
    }
}
