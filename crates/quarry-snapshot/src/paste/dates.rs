//! Words that dates are made of, and the calendar.

use chrono::NaiveDate;

use super::label;

/// A time; two of one kind can be compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Time {
    /// Seconds since 1970, in the time zone that the text has.
    Date(i64),
    /// Such as 05/11/2025: seconds since 1970 with the day first, and with the month first.
    Either([i64; 2]),
    /// Seconds since the begin of a year that is not told.
    InYear(i64),
    /// Seconds since a boot, or since the day from which a text counts.
    Boot(f64),
    /// Seconds before a text was printed.
    Ago(f64),
    /// Seconds of a day that is not told.
    Clock(i64),
}

impl Time {
    /// Seconds to a later time of the same kind.
    pub(super) fn until(self, later: Self) -> Option<f64> {
        match (self, later) {
            (Self::Date(one), Self::Date(other))
            | (Self::InYear(one), Self::InYear(other))
            | (Self::Clock(one), Self::Clock(other)) => Some(other.saturating_sub(one) as f64),
            (Self::Boot(one), Self::Boot(other)) => Some(other - one),
            (Self::Ago(one), Self::Ago(other)) => Some(one - other),
            _ => None,
        }
    }

    pub(super) fn is_date(&self) -> bool {
        matches!(self, Self::Date(_) | Self::Either(_))
    }

    pub(super) fn is_in_year(&self) -> bool {
        matches!(self, Self::InYear(_))
    }

    pub(super) fn is_boot(&self) -> bool {
        matches!(self, Self::Boot(_))
    }

    pub(super) fn is_clock(&self) -> bool {
        matches!(self, Self::Clock(_))
    }

    pub(super) fn is_ago(&self) -> bool {
        matches!(self, Self::Ago(_))
    }

    /// The time if the text has the day first, or the month.
    pub(super) fn with(self, is_day_first: bool) -> Self {
        match self {
            Self::Either([day_first, _]) if is_day_first => Self::Date(day_first),
            Self::Either([_, month_first]) => Self::Date(month_first),
            other => other,
        }
    }
}

pub(super) const DAY_S: i64 = 86_400;

/// A word that dates are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Date(Time, Option<Clock>),
    Month(u32),
    Day(u32),
    Number(i64),
    Clock(Clock),
    Offset(i64),
    /// True for the half of a day after noon.
    Half(bool),
    /// A day's name, a zone or a word that joins others.
    Filler,
}

/// Seconds of a day, and those of the zone.
pub(super) type Clock = (i64, i64);

/// Seconds since 1970 at which a day begins.
pub(super) fn start(year: i64, month: u32, day: u32) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(year.try_into().ok()?, month, day)?;
    (year >= 1970).then(|| i64::from(date.to_epoch_days()) * DAY_S)
}

/// Reads a word of a date.
pub(super) fn word(word: &str) -> Option<Word> {
    let word = word.trim_matches(|c: char| "()[]<>*_`\"'|:;.#~".contains(c));
    let lower = word.to_lowercase();
    if let Some((time, clock)) = whole(word) {
        return Some(Word::Date(time, clock));
    }
    if let Some(month) = month(&lower) {
        return Some(Word::Month(month));
    }
    if let Some(clock) = of_clock(word) {
        return Some(Word::Clock(clock));
    }
    if !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Word::Number(word.parse().ok()?));
    }
    let ordinal = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|end| lower.strip_suffix(end)?.parse::<u32>().ok());
    if let Some(day) = ordinal.filter(|day| (1..=31).contains(day)) {
        return Some(Word::Day(day));
    }
    if let Some(zone) = offset(word.trim_start_matches(['U', 'T', 'C', 'G', 'M'])) {
        return Some(Word::Offset(zone));
    }
    match lower.as_str() {
        "am" | "a.m" => Some(Word::Half(false)),
        "pm" | "p.m" => Some(Word::Half(true)),
        "at" | "um" | "uhr" | "of" | "on" | "the" | "de" | "à" => Some(Word::Filler),
        _ if label::weekday(word).is_some() || is_zone(word) => Some(Word::Filler),
        _ => None,
    }
}

/// Names of months in German, French, Spanish and Italian that English does not have.
const MONTHS: [&[&str]; 12] = [
    &["januar", "janvier", "janv", "enero", "ene", "gennaio"],
    &["februar", "février", "févr", "febrero", "febbraio"],
    &["märz", "mär", "mrz", "mars", "marzo"],
    &["avril", "avr", "abril", "abr", "aprile"],
    &["mai", "mayo", "maggio"],
    &["juni", "juin", "junio", "giugno"],
    &["juli", "juillet", "juil", "julio", "luglio"],
    &["août", "agosto", "ago"],
    &["septembre", "septiembre", "settembre"],
    &["oktober", "okt", "octobre", "octubre", "ottobre"],
    &["novembre", "noviembre"],
    &[
        "dezember",
        "dez",
        "décembre",
        "déc",
        "diciembre",
        "dic",
        "dicembre",
    ],
];

/// A month by its name.
fn month(word: &str) -> Option<u32> {
    let place = MONTHS.iter().position(|names| names.contains(&word));
    let place = place.and_then(|place| u64::try_from(place + 1).ok());
    place.or_else(|| label::month(word))?.try_into().ok()
}

/// Letters of a time zone, such as `CET`. Its difference to others is not known; two times of one text share it.
fn is_zone(word: &str) -> bool {
    (1..=5).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_uppercase())
}

/// A date in a word: `2026-11-24`, `2026/11/24`, `24.11.2026`, `24/Nov/26`, `11/24/2026`, and the first of them with the
/// time behind `T`.
fn whole(word: &str) -> Option<(Time, Option<Clock>)> {
    let (date, clock) = word.split_once(['T', '_']).unwrap_or((word, ""));
    let clock_of = |clock: &str| match clock.is_empty() {
        true => Some(None),
        false => of_clock(clock).map(Some),
    };
    // 20261124T0900.
    if date.len() == 8
        && date.starts_with("20")
        && let Ok(number) = date.parse::<u32>()
    {
        let time = start(i64::from(number / 10_000), number / 100 % 100, number % 100)?;
        return Some((Time::Date(time), of_clock(clock)));
    }
    let mark = ['-', '/', '.']
        .into_iter()
        .find(|mark| date.contains(*mark))?;
    let parts: Vec<&str> = date.split(mark).collect();
    let [first, second, third] = parts[..] else {
        return None;
    };
    let number = |part: &str| {
        let digits = part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u32>().ok().filter(|_| digits)
    };
    let year = |part: &str| match part.len() {
        4 => number(part).map(i64::from),
        2 => Some(2000 + i64::from(number(part)?)),
        _ => None,
    };
    let month_of = |part: &str| month(&part.to_lowercase());
    if let Some(month) = month_of(second) {
        let time = match first.len() {
            4 => start(year(first)?, month, number(third)?),
            _ => start(year(third)?, month, number(first)?),
        }?;
        return Some((Time::Date(time), clock_of(clock)?));
    }
    if let Some(month) = month_of(first) {
        return Some((
            Time::Date(start(year(third)?, month, number(second)?)?),
            None,
        ));
    }
    if first.len() == 4 {
        let time = start(year(first)?, number(second)?, number(third)?)?;
        return Some((Time::Date(time), clock_of(clock)?));
    }
    let (one, other, year) = (number(first)?, number(second)?, year(third)?);
    // Versions look like dates whose years have two digits.
    let is_short = third.len() == 2 && (first.len() < 2 || second.len() < 2);
    if mark != '/' && is_short {
        return None;
    }
    let [day_first, month_first] = [start(year, other, one), start(year, one, other)];
    let time = match (day_first, month_first) {
        (Some(time), _) if mark == '.' => Time::Date(time),
        (Some(time), Some(other)) if time != other => Time::Either([time, other]),
        (Some(time), _) | (None, Some(time)) => Time::Date(time),
        (None, None) => return None,
    };
    Some((time, clock_of(clock)?))
}

/// True if the days of dates such as 24/11/2026 stand first in a line, false if months do; `None` if no date tells.
pub(super) fn is_day_first(line: &str) -> Option<bool> {
    let mut words = line.split(|c: char| c.is_whitespace() || ",;()".contains(c));
    words.find_map(|word| {
        let word = word.trim_end_matches([':', '.']);
        let (first, rest) = word.split_once(['/', '-'])?;
        let (second, _) = rest.split_once(['/', '-'])?;
        let [first, second] = [first.parse::<u32>().ok()?, second.parse::<u32>().ok()?];
        let is_date = matches!(whole(word)?.0, Time::Date(_)) && first <= 31;
        (is_date && first.max(second) > 12).then_some(first > 12)
    })
}

/// `09:00`, `09:00:01.5Z`, `09:00:01+0100`, `9:00PM`, `9pm`: seconds of the day, and those of the zone.
pub(super) fn of_clock(word: &str) -> Option<Clock> {
    let lower = word.to_ascii_lowercase();
    let half = [("am", 0), ("pm", DAY_S / 2)]
        .into_iter()
        .find_map(|(name, half)| Some((lower.strip_suffix(name)?, half)));
    if let Some((clock, half)) = half {
        let (seconds, zone) = match clock.contains(':') {
            true => of_clock(clock)?,
            false => (
                clock.parse::<i64>().ok().filter(|hour| *hour <= 12)? * 3600,
                0,
            ),
        };
        return Some((seconds % (DAY_S / 2) + half, zone));
    }
    let end = word.find(['+', '-', 'Z']).unwrap_or(word.len());
    let (clock, zone) = word.split_at(end);
    let mut parts = clock.split(':');
    let whole = |part: &str| {
        let is_short = (1..=2).contains(&part.len());
        part.parse::<i64>()
            .ok()
            .filter(|number| is_short && (0..60).contains(number))
    };
    let (hour, minute) = (whole(parts.next()?)?, whole(parts.next()?)?);
    let seconds = match parts.next() {
        Some(part) => whole(part.split(['.', ',']).next()?)?,
        None => 0,
    };
    (parts.next().is_none() && hour < 24).then(|| {
        (
            hour * 3600 + minute * 60 + seconds,
            offset(zone).unwrap_or(0),
        )
    })
}

/// Seconds of a zone: `+0100`, `-05:30`.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let digits = zone[1..].replace(':', "");
    let number: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    Some(sign * (number / 100 * 3600 + number % 100 * 60))
}
