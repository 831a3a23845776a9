//! Times that a text has beside its tables: dates of mails and logs, output of `date`, and kernels' seconds since boot.

use super::label::{month, weekday};

/// A time; two of one kind can be compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Time {
    /// Seconds since 1970, in the time zone that the text has.
    Date(i64),
    /// Seconds since the begin of a year that is not told.
    InYear(i64),
    /// Seconds since a boot.
    Boot(f64),
}

impl Time {
    /// Seconds to a later time of the same kind.
    pub(super) fn until(self, later: Self) -> Option<f64> {
        match (self, later) {
            (Self::Date(one), Self::Date(other)) | (Self::InYear(one), Self::InYear(other)) => {
                Some(other.saturating_sub(one) as f64)
            }
            (Self::Boot(one), Self::Boot(other)) => Some(other - one),
            _ => None,
        }
    }
}

const DAY_S: i64 = 86_400;

/// The time that a log put before a line.
pub(super) fn of_log(log: &str) -> Option<Time> {
    // A log that others wrote has its own time first.
    if let Some(time) = date(log.split_once('[').map_or(log, |(before, _)| before), false) {
        return Some(time);
    }
    let mut stamps = log
        .split('[')
        .skip(1)
        .filter_map(|part| part.split_once(']'));
    stamps.find_map(|(inside, _)| {
        let seconds = inside
            .trim()
            .split_once('.')
            .and_then(|_| inside.trim().parse().ok());
        seconds.map(Time::Boot).or_else(|| date(inside, false))
    })
}

/// The date that a line is, or that the head of a mail or of `watch` has; and true if a mail says that it quotes one of
/// that date below.
pub(super) fn of_line(line: &str) -> Option<(Time, bool)> {
    if let Some(rest) = ["Date:", "Sent:"]
        .iter()
        .find_map(|name| line.strip_prefix(name))
    {
        return Some((date(rest, false)?, false));
    }
    if line.starts_with("Every ") && line.contains("s: ") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().rposition(|word| weekday(word).is_some())?;
        return Some((date(&words[at..].join(" "), true)?, false));
    }
    if line.starts_with("On ") && line.ends_with("wrote:") {
        return Some((date(&line[3..], false)?, true));
    }
    let plain = line.trim_matches(|c: char| "=#*-[]: ".contains(c));
    Some((date(plain, true)?, false))
}

/// The first date of a text; with `alone` the text has nothing else.
fn date(text: &str, alone: bool) -> Option<Time> {
    let (mut year, mut in_year, mut day, mut clock) = (None, None, None, None);
    let mut zone = 0;
    let mut is_other = false;
    let words = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty());
    for word in words {
        let number = word
            .parse::<i64>()
            .ok()
            .filter(|_| word.bytes().all(|b| b.is_ascii_digit()));
        if let Some((found, rest)) = iso(word).filter(|_| year.is_none()) {
            (year, in_year, day) = (Some(found.0), Some(found.1), Some(found.2));
            if let Some((seconds, offset)) = rest {
                (clock, zone) = (Some(seconds), offset);
            }
        } else if let Some(place) = month(word).filter(|_| in_year.is_none()) {
            in_year = Some(place as i64);
        } else if let Some((seconds, offset)) = of_clock(word).filter(|_| clock.is_none()) {
            (clock, zone) = (Some(seconds), offset);
        } else if let Some(number) =
            number.filter(|number| (1..=31).contains(number) && day.is_none())
        {
            day = Some(number);
        } else if let Some(number) =
            number.filter(|number| (1970..=9999).contains(number) && year.is_none())
        {
            year = Some(number);
        } else if let Some(offset) = offset(word).filter(|_| clock.is_some()) {
            zone = offset;
        } else if let (Some(seconds), "AM" | "PM") = (clock, word) {
            let half = if word == "PM" { DAY_S / 2 } else { 0 };
            clock = Some(seconds % (DAY_S / 2) + half);
        } else if weekday(word).is_none() && word != "at" && !is_zone(word) {
            is_other = true;
            // Names and programs behind it may have numbers.
            if clock.is_some() {
                break;
            }
        }
    }
    if alone && is_other {
        return None;
    }
    let (month, day) = (in_year?, day?);
    match (year, clock) {
        (Some(year), clock) => Some(Time::Date(
            days(year, month, day)? * DAY_S + clock.unwrap_or(0) - zone,
        )),
        (None, Some(clock)) => Some(Time::InYear((month * 31 + day) * DAY_S + clock)),
        (None, None) => None,
    }
}

/// Letters of a time zone, such as `CET`. Its difference to others is not known; two times of one text share it.
fn is_zone(word: &str) -> bool {
    (2..=5).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_uppercase())
}

type Clock = (i64, i64);

/// `2026-11-24`, or with `T` and the time behind it: year, month and day, then seconds and those of the zone.
fn iso(word: &str) -> Option<((i64, i64, i64), Option<Clock>)> {
    let (date, clock) = word.split_once('T').unwrap_or((word, ""));
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = parts.next().is_none()
        && year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day);
    is_date.then(|| ((year, month, day), of_clock(clock)))
}

/// `09:00`, `09:00:01.5Z`, `09:00:01+0100`: seconds of the day, and those of the zone.
fn of_clock(word: &str) -> Option<Clock> {
    let end = word.find(['+', '-', 'Z']).unwrap_or(word.len());
    let (clock, zone) = word.split_at(end);
    let mut parts = clock.split(':');
    let whole = |part: &str| {
        part.parse::<i64>()
            .ok()
            .filter(|number| (0..60).contains(number))
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

/// Days from 1970 to a date.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    (1..=12).contains(&month).then_some(())?;
    // Years from March on end with the day that leap years add.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24 09:00:00 UTC.
    const MORNING: Time = Time::Date(1_795_510_800);

    #[test]
    fn lines_that_are_dates() {
        for line in [
            "Tue Nov 24 09:00:00 UTC 2026",
            "Tue 24 Nov 2026 09:00:00 AM UTC",
            "Date: Tue, 24 Nov 2026 10:00:00 +0100",
            "2026-11-24T09:00:00Z",
            "== 2026-11-24 09:00 ==",
            "Every 2.0s: slabtop -o | head    web1: Tue Nov 24 09:00:00 2026",
        ] {
            assert_eq!(of_line(line), Some((MORNING, false)), "{line}");
        }
        let quoted = "On Tue, Nov 24, 2026 at 9:00 AM, Ann Bee <a.b@c.de> wrote:";
        assert_eq!(of_line(quoted), Some((MORNING, true)));
        for line in [
            "",
            "dentry 1 2 3",
            "it began on 2026-11-24",
            "Nov 24",
            "9:00",
            "Date: today",
            "May 1",
        ] {
            assert_eq!(of_line(line), None, "{line}");
        }
    }

    #[test]
    fn logs_have_times() {
        assert_eq!(of_log("[  178.5] "), Some(Time::Boot(178.5)));
        assert_eq!(of_log("[Tue Nov 24 09:00:00 2026] "), Some(MORNING));
        assert_eq!(
            of_log("2026-11-24T09:00:00+0000 web1 cat[2]: "),
            Some(MORNING)
        );
        let one = of_log("Nov 24 09:00:00 web1 kernel: [ 1.5] ").unwrap();
        let other = of_log("Nov 24 09:01:00 web1 kernel: [ 61.5] ").unwrap();
        assert_eq!(one.until(other), Some(60.0));
        assert_eq!(one.until(MORNING), None);
        assert_eq!(of_log("kern  :info  : "), None);
    }
}
