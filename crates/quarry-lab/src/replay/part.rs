//! Which part of a recording is replayed.

use std::fmt;

use quarry_trace::seconds;

use crate::error::LabError;

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds of the recording's clock: the time that the recorder printed.
    Clock(u64),
    /// Nanoseconds after the first event.
    Offset(u64),
}

impl Moment {
    /// Parses seconds with decimals: `16.957010` is a time as the recording prints it, `+0.25` is
    /// 0.25 s after its first event.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`].
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let offset = text.strip_prefix('+');
        let nanoseconds = nanoseconds(offset.unwrap_or(text)).ok_or_else(|| {
            LabError::Usage(format!(
                "{text:?} is not a time: write seconds as the recording prints them, for example \
                 16.957010, or +0.25 for a quarter of a second after the first event"
            ))
        })?;
        Ok(match offset {
            Some(_) => Self::Offset(nanoseconds),
            None => Self::Clock(nanoseconds),
        })
    }

    fn clock_ns(self, first_time_ns: u64) -> u64 {
        match self {
            Self::Clock(nanoseconds) => nanoseconds,
            Self::Offset(nanoseconds) => first_time_ns.saturating_add(nanoseconds),
        }
    }
}

/// Nanoseconds of seconds with at most nine decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let fraction: u64 = format!("{decimals:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// From the first event at or after one moment to the last event before the next one that is at or
/// after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where it begins; at the first event if there is no such moment.
    pub from: Option<Moment>,
    /// Where it ends; after the last event if there is no such moment.
    pub until: Option<Moment>,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clock(nanoseconds) => f.write_str(&seconds(*nanoseconds)),
            Self::Offset(nanoseconds) => write!(f, "+{}", seconds(*nanoseconds)),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.until) {
            (None, None) => f.write_str("in the recording"),
            (Some(from), None) => write!(f, "at or after {from} s"),
            (None, Some(until)) => write!(f, "before {until} s"),
            (Some(from), Some(until)) => write!(f, "from {from} s until {until} s"),
        }
    }
}

/// Where an event lies.
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
    pub(super) fn new(part: Part, first_time_ns: u64) -> Self {
        let clock = |moment: Moment| moment.clock_ns(first_time_ns);
        Self {
            phase: Phase::Before,
            from_ns: part.from.map_or(0, clock),
            until_ns: part.until.map(clock),
        }
    }

    /// Where the part begins and ends in a trace with these times, on the clock.
    pub(super) fn bounds(&self, first_ns: u64, last_ns: u64) -> (u64, u64) {
        let from_ns = self.from_ns.max(first_ns);
        let until_ns = self.until_ns.unwrap_or(last_ns).min(last_ns);
        (from_ns, until_ns)
    }

    /// Whether an event of the part was seen.
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
    fn times() {
        for (text, moment) in [
            ("16.957010", Moment::Clock(16_957_010_000)),
            ("16", Moment::Clock(16_000_000_000)),
            ("0.000000001", Moment::Clock(1)),
            ("+0.25", Moment::Offset(250_000_000)),
        ] {
            assert_eq!(Moment::parse(text).unwrap(), moment, "{text}");
        }
        for text in [
            "",
            "+",
            "1.",
            ".5",
            "-1",
            "1e3",
            "1.0000000001",
            "99999999999999",
            "1s",
        ] {
            let message = Moment::parse(text).unwrap_err().to_string();
            assert!(message.contains("+0.25"), "{text}: {message}");
        }
    }

    #[test]
    fn a_part_begins_and_ends_once() {
        let part = Part {
            from: Some(Moment::Clock(10)),
            until: Some(Moment::Offset(15)),
        };
        let mut window = Window::new(part, 5);
        let phases: Vec<Phase> = [5, 9, 10, 9, 19, 20, 11]
            .into_iter()
            .map(|time_ns| window.phase(time_ns))
            .collect();
        use Phase::{After, Before, In};
        assert_eq!(phases, [Before, Before, In, In, In, After, After]);
    }
}
