//! Moments of a recording, as users write them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::event::seconds;

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds of the recording's clock: the time that the recorder printed.
    Clock(u64),
    /// Nanoseconds after the first event.
    Offset(u64),
}

/// Text that is not a [`Moment`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a time: write seconds as the recording prints them, for example 16.957010, or +0.25 for a \
     quarter of a second after the first event"
)]
pub struct ParseMomentError(String);

impl Moment {
    /// Nanoseconds of the clock of a recording that begins at `first_time_ns`.
    #[must_use]
    pub fn clock_ns(self, first_time_ns: u64) -> u64 {
        match self {
            Self::Clock(nanoseconds) => nanoseconds,
            Self::Offset(nanoseconds) => first_time_ns.saturating_add(nanoseconds),
        }
    }
}

impl FromStr for Moment {
    type Err = ParseMomentError;

    /// Parses seconds with at most nine decimals; a `+` in front makes them an offset.
    fn from_str(text: &str) -> Result<Self, ParseMomentError> {
        let offset = text.strip_prefix('+');
        let parsed = nanoseconds(offset.unwrap_or(text));
        let nanoseconds = parsed.ok_or_else(|| ParseMomentError(text.to_string()))?;
        Ok(match offset {
            Some(_) => Self::Offset(nanoseconds),
            None => Self::Clock(nanoseconds),
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clock(nanoseconds) => f.write_str(&seconds(*nanoseconds)),
            Self::Offset(nanoseconds) => write!(f, "+{}", seconds(*nanoseconds)),
        }
    }
}

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
            assert_eq!(text.parse(), Ok(moment), "{text}");
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
            let message = text.parse::<Moment>().unwrap_err().to_string();
            assert!(message.contains("+0.25"), "{text}: {message}");
        }
    }
}
