//! Times that a text has beside its tables: dates of mails, comments and logs, output of `date`, and kernels' seconds since
//! boot.
//!
//! A line of words is a run of words that dates are made of, between others. [`date`] finds the first run that is whole.

use super::dates::{self, DAY_S, Time, Word, start};
use super::label;

/// The time that a log put before a line.
pub(super) fn of_log(log: &str) -> Option<Time> {
    // A log that others wrote has its own time first.
    let own = log.split_once('[').map_or(log, |(before, _)| before);
    if let Some(found) = date(own) {
        return Some(found.time);
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
        seconds.map(Time::Boot).or_else(|| Some(date(inside)?.time))
    })
}

/// Words of those who write to others, or head what they wrote.
const WRITES: [&str; 18] = [
    "wrote",
    "commented",
    "added",
    "created",
    "opened",
    "reported",
    "posted",
    "replied",
    "updated",
    "edited",
    "asked",
    "answered",
    "said",
    "submitted",
    "schrieb",
    "écrit",
    "escribió",
    "scritto",
];
/// More words are a sentence that has a date by the way.
pub(super) const WORDS_MAX: usize = 14;

/// More words are no name.
const NAMES_MAX: usize = 9;

/// True if a line says that someone wrote.
pub(super) fn is_written(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.any(|word| WRITES.contains(&word.trim_matches([':', ',']).to_lowercase().as_str()))
}

/// True for the line that mailers put above what they quote: `On Tue, 4 Nov 2025 at 10:00, Ann wrote:`.
pub(super) fn is_quoting(line: &str) -> bool {
    let begins = ["On ", "Am ", "Le ", "El ", "Il "];
    line.ends_with(':') && begins.iter().any(|word| line.starts_with(word)) && is_written(line)
}

/// The date of what stands below a line: it is a date, begins or ends with one, or is the head of a mail or a comment.
/// Sentences that have one by the way tell nothing.
pub(super) fn of_line(line: &str) -> Option<Time> {
    // Kernels, and machines that someone logged in to, have dates of their own.
    let is_other = ["Linux ", "Last login", "#1 SMP"]
        .iter()
        .any(|start| line.starts_with(start))
        || line.contains("system boot");
    if is_other || line.len() > 400 {
        return None;
    }
    if line.starts_with("Every ") && line.contains("s: ") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words
            .iter()
            .rposition(|word| label::weekday(word).is_some())?;
        return Some(date(&words[at..].join(" "))?.time);
    }
    if let Some(time) = epoch(line) {
        return Some(time);
    }
    let line = line.trim_matches(|c: char| "=#*-[]|`• ".contains(c));
    let found = date(line)?;
    let words = line.split_whitespace().count();
    let mut heads = line.split_whitespace();
    let is_head = heads.next().is_some_and(|name| {
        let name = name.trim_matches('*');
        name.ends_with(':') && name.chars().all(|c| c.is_alphabetic() || c == ':')
    });
    let is_title = line.ends_with(':') || is_written(line);
    let is_whole = found.has_clock || found.has_year;
    // `Joe Smith (joe) on 2026-11-24`, but `it began on 2026-11-24`.
    let are_names = found.are_names && words <= NAMES_MAX;
    match (found.others_before, found.others_behind) {
        (0, 0) => is_whole || is_title,
        (1, _) if is_head => is_whole,
        _ if words > WORDS_MAX => is_quoting(line),
        (0, _) => is_title || is_whole && !found.is_in_sentence,
        (_, 0) if found.has_clock => true,
        _ => is_title || is_whole && are_names,
    }
    .then_some(found.time)
}

/// The time of a day that a line is, and nothing else: `9:45 PM`.
pub(super) fn clock(line: &str) -> Option<Time> {
    const LONGEST: usize = 24;
    let words = line.split_whitespace().filter(|_| line.len() <= LONGEST);
    let words: Option<Vec<Word>> = words.map(dates::word).collect();
    let (seconds, zone, half) = match words?.as_slice() {
        [Word::Clock((seconds, zone))] => (*seconds, *zone, None),
        [Word::Clock((seconds, zone)), Word::Half(half)] => (*seconds, *zone, Some(*half)),
        _ => return None,
    };
    let of_half = |is_after: bool| seconds % (DAY_S / 2) + i64::from(is_after) * (DAY_S / 2);
    Some(Time::Clock(half.map_or(seconds, of_half) - zone))
}

/// Seconds since 1970, or smaller units, as `date +%s` prints them; a word may stand before.
pub(super) fn epoch(line: &str) -> Option<Time> {
    let line = line.trim_matches(|c: char| "=#*-[]:@ ".contains(c));
    let (before, number) = line.rsplit_once([' ', '=', ':', '@']).unwrap_or_default();
    let is_name = before.len() < 16
        && before
            .chars()
            .all(|c| c.is_alphabetic() || matches!(c, '_' | ' ' | ':'));
    let number = if before.is_empty() { line } else { number };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    (is_name && is_number(whole) && is_number(part)).then_some(())?;
    let unit = match whole.len() {
        10 => 1,
        13 => 1_000,
        16 => 1_000_000,
        19 => 1_000_000_000,
        _ => return None,
    };
    let seconds = whole.parse::<i64>().ok()? / unit;
    // From 2001 to 2100.
    (1_000_000_000..4_102_444_800)
        .contains(&seconds)
        .then_some(Time::Date(seconds))
}

/// A date in a text, and what stands around it.
struct Found {
    time: Time,
    has_clock: bool,
    has_year: bool,
    /// Words before it and behind it that are of no date.
    others_before: usize,
    others_behind: usize,
    /// True if it begins with a word that joins it to a sentence.
    is_in_sentence: bool,
    /// True if the words before it may be a name.
    are_names: bool,
}

/// The first date of a text.
fn date(text: &str) -> Option<Found> {
    // 2025年11月7日, with brackets or not.
    let marked = text.contains('年').then(|| {
        let marked = text.replace(['年', '月'], "-");
        marked.replace(['日', '(', ')'], " ")
    });
    let text = marked.as_deref().unwrap_or(text);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .collect();
    let read: Vec<Option<Word>> = words.iter().map(|word| dates::word(word)).collect();
    let mut at = 0;
    while at < read.len() {
        let run: Vec<Word> = read[at..].iter().map_while(|word| *word).collect();
        if let Some((time, has_clock, has_year)) = of_run(&run) {
            let joins = ["on", "since", "until", "from"];
            let is_name = |word: &&str| {
                word.starts_with(|c: char| c.is_uppercase() || "(@[".contains(c))
                    || word.ends_with(')')
            };
            let first = words
                .get(at)
                .map_or_else(String::new, |word| word.to_lowercase());
            return Some(Found {
                time,
                has_clock,
                has_year,
                others_before: at,
                others_behind: read.len() - at - run.len(),
                is_in_sentence: joins.contains(&first.as_str()),
                are_names: words[..at].iter().all(is_name),
            });
        }
        at += run.len() + 1;
    }
    None
}

/// The time that words on end are, with whether they have the time of the day and the year.
fn of_run(words: &[Word]) -> Option<(Time, bool, bool)> {
    let (mut whole, mut month, mut day, mut year, mut clock) = (None, None, None, None, None);
    for word in words {
        match *word {
            Word::Date(time, at) if whole.is_none() => {
                whole = Some(time);
                clock = clock.or(at);
            }
            Word::Month(number) if month.is_none() => month = Some(number),
            Word::Day(number) if day.is_none() => day = Some(number),
            Word::Clock(at) if clock.is_none() => clock = Some(at),
            Word::Number(number) if (1970..=9999).contains(&number) && year.is_none() => {
                year = Some(number);
            }
            // A number of something else may stand before the month.
            Word::Number(number)
                if (1..=31).contains(&number)
                    && (day.is_none() || month.is_some() && year.is_none() && clock.is_none()) =>
            {
                day = u32::try_from(number).ok();
            }
            Word::Offset(zone) => clock = clock.map(|(seconds, _)| (seconds, zone)),
            Word::Half(is_after) => {
                let half = if is_after { DAY_S / 2 } else { 0 };
                clock = clock.map(|(seconds, zone)| (seconds % (DAY_S / 2) + half, zone));
            }
            _ => {}
        }
    }
    let (seconds, zone) = clock.unwrap_or_default();
    let add = |time: Time| match time {
        Time::Date(date) => Time::Date(date + seconds - zone),
        Time::Either(both) => Time::Either(both.map(|date| date + seconds - zone)),
        other => other,
    };
    if let Some(time) = whole {
        return Some((add(time), clock.is_some(), true));
    }
    let (month, day) = (month?, day?);
    match year {
        Some(year) => Some((
            add(Time::Date(start(year, month, day)?)),
            clock.is_some(),
            true,
        )),
        None => {
            let days = i64::from(month * 31 + day);
            Some((Time::InYear(days * DAY_S + seconds), clock.is_some(), false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24 09:00:00 UTC.
    const MORNING: i64 = 1_795_510_800;
    const DAY: i64 = MORNING - 9 * 3600;

    #[test]
    fn lines_that_are_dates() {
        for line in [
            "Tue Nov 24 09:00:00 UTC 2026",
            "Tue 24 Nov 2026 09:00:00 AM UTC",
            "Date: Tue, 24 Nov 2026 10:00:00 +0100",
            "Date: Tue, 24 Nov 2026 09:00:00 +0000 (UTC)",
            "**Sent:** Tuesday, November 24, 2026 9:00 AM",
            "Gesendet: Dienstag, 24. November 2026 09:00",
            "2026-11-24T09:00:00Z",
            "== 2026-11-24 09:00 ==",
            "Every 2.0s: slabtop -o | head    web1: Tue Nov 24 09:00:00 2026",
            "On Tue, Nov 24, 2026 at 9:00 AM, Ann Bee <a.b@c.de> wrote:",
            "joe added a comment - 24/Nov/26 9:00 AM",
            "joe created issue - 24/Nov/26 09:00",
            "2026-11-24 09:00:00 - Joe (Work notes)",
            "Comment 2 joe 2026-11-24 09:00:00 UTC",
            "24.11.2026 09:00",
            "Am 24.11.26 um 09:00 schrieb Joe:",
            "11/24/2026 9:00 AM",
            "24/11/2026, 9:00am",
            "2026/11/24 09:00",
            "Nov 24th, 2026 at 9:00",
            "Joe Smith - 2026-11-24 09:00:00 (Additional comments)",
            "1795510800",
            "1795510800000",
            "# 1795510800.25",
            "date: 1795510800",
        ] {
            assert_eq!(of_line(line), Some(Time::Date(MORNING)), "{line}");
        }
        for line in [
            "Update 2026-11-24:",
            "joe commented on Nov 24, 2026 • edited",
            "Original report 2026-11-24:",
            "Joe Smith (joe) on 2026-11-24",
            "On 24 November 2026:",
            "20261124",
            "现在(2026年11月24日):",
        ] {
            assert_eq!(of_line(line), Some(Time::Date(DAY)), "{line}");
        }
        for line in ["9:45 PM", "21:45", "21:45:00"] {
            assert_eq!(
                clock(line),
                Some(Time::Clock(21 * 3600 + 45 * 60)),
                "{line}"
            );
        }
        assert_eq!(clock("joe 9:45 PM"), None);
        for line in [
            "",
            "dentry 1 2 3",
            "it began on 2026-11-24",
            "On 2026-11-24 it began to swap",
            "Nov 24",
            "9:00",
            "Date: today",
            "May 1",
            "#1 SMP PREEMPT_DYNAMIC Tue Nov 24 09:00:00 UTC 2026",
            "Last login: Tue Nov 24 09:00:00 2026 from 10.0.0.1",
            "kernel 6.12.45:",
            "4096",
            "2026-02-30 09:00",
        ] {
            assert_eq!(of_line(line), None, "{line}");
        }
    }

    #[test]
    fn days_or_months_stand_first() {
        let both = of_line("05/11/2026 09:00").unwrap();
        let [day_first, month_first] = [true, false].map(|first| both.with(first));
        assert_eq!(day_first, of_line("2026-11-05 09:00").unwrap());
        assert_eq!(month_first, of_line("2026-05-11 09:00").unwrap());
        for (line, expected) in [
            ("it began on 24/11/2026.", Some(true)),
            ("11/24/26", Some(false)),
            ("11/11/2026", None),
            ("05/11/2026", None),
            ("2026/11/24", None),
            ("24/Nov/26", None),
            ("13/14/2026", None),
        ] {
            assert_eq!(dates::is_day_first(line), expected, "{line}");
        }
    }

    #[test]
    fn logs_have_times() {
        let morning = Some(Time::Date(MORNING));
        assert_eq!(of_log("[  178.5] "), Some(Time::Boot(178.5)));
        assert_eq!(of_log("[Tue Nov 24 09:00:00 2026] "), morning);
        assert_eq!(of_log("2026-11-24T09:00:00+0000 web1 cat[2]: "), morning);
        let one = of_log("Nov 24 09:00:00 web1 kernel: [ 1.5] ").unwrap();
        let other = of_log("Nov 24 09:01:00 web1 kernel: [ 61.5] ").unwrap();
        assert_eq!(one.until(other), Some(60.0));
        assert_eq!(one.until(Time::Date(MORNING)), None);
        assert_eq!(of_log("kern  :info  : "), None);
    }
}
