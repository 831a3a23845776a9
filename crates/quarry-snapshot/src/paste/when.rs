//! Lines above tables that tell their moments: by a date, by words such as `3 days ago`, `after a week:` or
//! `Day 5:`, or by a boot or a kernel.

use super::dates::{self, DAY_S, Time};
use super::label::{self, Told};
use super::time;

/// More words are a sentence.
const WORDS_MAX: usize = 7;

/// From here on units have words for names that nothing else has before a number.
const HOUR_S: f64 = 3600.0;
/// Seconds of units of time, by the beginnings of their names.
const UNITS: [(&[&str], f64); 7] = [
    (&["s", "sec", "second", "sekunde"], 1.0),
    (&["m", "min", "minute"], 60.0),
    (&["h", "hr", "hour", "stunde", "hora", "heure"], HOUR_S),
    (
        &["d", "day", "tag", "día", "dia", "jour", "giorno"],
        86_400.0,
    ),
    (
        &["w", "wk", "week", "woche", "semana", "semaine", "settimana"],
        604_800.0,
    ),
    (
        &["mo", "mon", "month", "monat", "mes", "meses", "mois"],
        2_629_800.0,
    ),
    (&["y", "yr", "year", "jahr"], 31_557_600.0),
];
const NUMBERS: [&str; 13] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
];
const ORDINALS: [&str; 11] = [
    "zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    "tenth",
];
/// Words that say nothing of a moment.
const FILLERS: [&str; 34] = [
    "the", "my", "our", "this", "that", "with", "of", "for", "about", "around", "some", "only",
    "just", "right", "at", "on", "in", "it", "is", "was", "has", "been", "and", "system",
    "machine", "server", "host", "box", "more", "approx", "from", "still", "here", "been",
];
/// Words for the first of several moments.
const STARTS: [&str; 9] = [
    "initially",
    "initial",
    "originally",
    "original",
    "baseline",
    "earlier",
    "start",
    "begin",
    "beginning",
];
const KERNELS: [&str; 3] = ["kernel", "linux", "release"];
/// Words for things that are posted, and numbered.
const POSTS: [&str; 15] = [
    "iteration",
    "test",
    "attempt",
    "capture",
    "dump",
    "measurement",
    "comment",
    "update",
    "reply",
    "post",
    "message",
    "output",
    "reading",
    "part",
    "#",
];
/// Words for what need not be the same machine, or kernel.
const SIDES: [&str; 24] = [
    "patch",
    "without",
    "good",
    "bad",
    "working",
    "broken",
    "healthy",
    "unhealthy",
    "leaking",
    "leaky",
    "affected",
    "unaffected",
    "patched",
    "unpatched",
    "vanilla",
    "stock",
    "mainline",
    "kernel",
    "upgrade",
    "upgraded",
    "upgrading",
    "downgrade",
    "downgraded",
    "updating",
];

/// Words above a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Title {
    pub(super) text: String,
    pub(super) told: Told,
    /// True if another title need not be of the same machine, or kernel.
    pub(super) is_side: bool,
}

/// A boot that a line tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reboot {
    /// The lines below were before it.
    Before,
    /// The lines below were after it.
    After,
}

/// Facts that a line says of the table below.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) time: Option<Time>,
    pub(super) title: Option<Title>,
    pub(super) release: Option<String>,
    pub(super) reboot: Option<Reboot>,
}

/// The meaning of a word.
enum Word {
    Number(f64),
    /// Seconds of a unit.
    Unit(f64),
    /// Seconds of a number with a unit: `3d`.
    Span(f64),
    Clock(f64),
    Ago,
    /// One unit ago.
    Last,
    /// Days before today.
    Back(f64),
    Up,
    After,
    Boot,
    Other,
}

/// True for a word for something that is posted.
pub(super) fn is_post(word: &str) -> bool {
    POSTS.contains(&word.to_lowercase().as_str())
}

/// Reads a line that is no row and no message of a log.
pub(super) fn of(line: &str) -> Option<Said> {
    let mut said = Said {
        reboot: (is_boot(line) || has_rebooted(line)).then_some(Reboot::After),
        ..Said::default()
    };
    let count = line.split_whitespace().count();
    let date = time::of_line(line);
    said.time = date.or_else(|| uptime(line)).or_else(|| time::clock(line));
    if said.time.is_none() && count <= time::WORDS_MAX {
        said.time = in_words(line);
    }
    if count <= WORDS_MAX {
        let plain = plain(line);
        let has_colon = is_title(line);
        if has_colon || plain.len() <= 3 {
            said.reboot = said.reboot.or_else(|| reboot(&plain));
        }
        let is_known = |word: &String| {
            let is_of = |names: &[&str]| names.contains(&word.as_str());
            is_of(&FILLERS) || is_of(&SIDES) || is_of(&KERNELS) || is_release(word, true)
        };
        if date.is_none() && !plain.is_empty() && (has_colon || plain.iter().all(is_known)) {
            said.release = release(&plain);
            said.title = titled(line, &plain, said.release.is_some());
        } else if plain
            .first()
            .is_some_and(|word| POSTS.contains(&word.as_str()))
        {
            said.title = titled(line, &plain, false);
        }
    }
    (said != Said::default()).then_some(said)
}

/// True for `web1:`, `== web1 ==` and others like them.
pub(super) fn is_title(line: &str) -> bool {
    let marks = ["==", "##", "**", "--"];
    let is_comment = line
        .strip_prefix("# ")
        .is_some_and(|word| !word.contains(char::is_whitespace));
    is_comment || line.ends_with([':', '：']) || marks.iter().any(|mark| line.starts_with(mark))
}

/// The words of a line in small letters, without marks.
fn plain(line: &str) -> Vec<String> {
    let words = line.split(|c: char| c.is_whitespace() || ",;".contains(c));
    let words = words.map(|word| {
        word.trim_matches(|c: char| "()[]<>*_=\"'`:：.!#~+-–|•·".contains(c))
            .to_lowercase()
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// True for the lines that journalctl puts between boots.
pub(super) fn is_boot(line: &str) -> bool {
    let inside = line
        .strip_prefix("-- ")
        .and_then(|line| line.strip_suffix(" --"));
    inside.is_some_and(|inside| inside == "Reboot" || inside.starts_with("Boot "))
}

fn reboot(words: &[String]) -> Option<Reboot> {
    let parts = words.iter().flat_map(|word| word.split('-'));
    let has = |names: &[&str]| parts.clone().any(|word| names.contains(&word));
    has(&["reboot", "rebooted", "rebooting", "cycle"]).then_some(())?;
    let after = [
        "after",
        "post",
        "following",
        "rebooted",
        "fresh",
        "freshly",
        "since",
    ];
    match () {
        () if has(&["before", "pre", "prior", "until"]) => Some(Reboot::Before),
        () if has(&after) => Some(Reboot::After),
        () => None,
    }
}

/// True for a sentence that tells of a boot: `we rebooted that evening`.
fn has_rebooted(line: &str) -> bool {
    const SENTENCE_MAX: usize = 16;
    let words = plain(line);
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    let is_denied = words.iter().any(|word| word.ends_with("n't"))
        || has(&["not", "never", "without", "if", "unless", "until", "before"])
        || line.contains('?');
    words.len() <= SENTENCE_MAX && has(&["rebooted"]) && !is_denied
}

/// The release that a title names: `bad kernel 6.1.50:`.
fn release(words: &[String]) -> Option<String> {
    let names_kernel = words.iter().any(|word| KERNELS.contains(&word.as_str()));
    let found = words.iter().find(|word| is_release(word, names_kernel))?;
    Some(numbered(found).to_string())
}

/// `linux-6.1.50` and `v6.1.50` without what is before the number.
fn numbered(word: &str) -> &str {
    let word = word.strip_prefix("linux-").unwrap_or(word);
    let word = word.strip_prefix("kernel-").unwrap_or(word);
    word.strip_prefix('v').unwrap_or(word)
}

/// True for a release of a kernel; it has three numbers, or two if a kernel is named. Addresses have four.
fn is_release(word: &str, names_kernel: bool) -> bool {
    let word = numbered(word);
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (numbers, rest) = word.split_at(end.unwrap_or(word.len()));
    let mut parts = numbers.split('.');
    let major = parts.next().and_then(|part| part.parse::<u32>().ok());
    let others: Vec<&str> = parts.collect();
    (2..=9).contains(&major.unwrap_or(0))
        && (others.len() == 2 || others.len() == 1 && names_kernel)
        && others.iter().all(|part| (1..=3).contains(&part.len()))
        && (rest.is_empty() || rest.starts_with(['-', '+', '_', '~']))
}

/// The title that words are, if they tell a moment or a side.
fn titled(line: &str, words: &[String], has_release: bool) -> Option<Title> {
    let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    let is_side = !has_release && has(&SIDES);
    let is_post = |word: &String| POSTS.contains(&word.as_str());
    let number = |word: &String| {
        let is_start = STARTS.contains(&word.as_str());
        let ordinal = ORDINALS.iter().position(|name| word == name);
        let numbered = ["st", "nd", "rd", "th"]
            .iter()
            .find_map(|end| word.strip_suffix(end)?.parse::<usize>().ok());
        match ordinal.or(numbered) {
            _ if is_start => "first".to_string(),
            Some(number) => number.to_string(),
            None => word.clone(),
        }
    };
    // Of a comment its number tells; names follow.
    let of_post = words
        .iter()
        .position(is_post)
        .and_then(|at| words.get(at + 1));
    let of_post = of_post.filter(|word| word.bytes().all(|b| b.is_ascii_digit()));
    let mut told = match of_post {
        Some(number) => label::told(number),
        None => {
            let words = words
                .iter()
                .filter(|word| !is_filler(word) && !is_post(word));
            label::told(&words.map(number).collect::<Vec<_>>().join("-"))
        }
    };
    if has_release {
        told.times.clear();
    } else if told.times.is_empty() {
        told = dated(&words.join("-")).unwrap_or(told);
    }
    // What it was before or after may be said in other words.
    let is_side_of = |word: &String| word == "earlier" || label::is_side_of(word);
    if words.iter().any(is_side_of) {
        told.words.clear();
    }
    (is_side || !told.times.is_empty()).then(|| Title {
        text: line
            .trim_matches(|c: char| "=#*-: ".contains(c))
            .to_string(),
        told,
        is_side,
    })
}

/// A name with a date in it, such as `slab-20251105-1000`: the words before that, and its numbers.
fn dated(name: &str) -> Option<Told> {
    let groups = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let is_year = |group: &str| {
        let is_date = group.len() == 4 || group.len() == 8;
        is_date && group.starts_with("20") && group.bytes().all(|b| b.is_ascii_digit())
    };
    let at = groups().position(is_year)?;
    let times: Vec<u64> = groups()
        .skip(at)
        .map_while(|group| group.parse().ok())
        .collect();
    let is_whole = times.len() > 2 || times[0] > 9999;
    is_whole.then(|| Told {
        words: groups().take(at).collect::<Vec<_>>().join(" "),
        times,
    })
}

/// The time since boot that `uptime`, `w` and `top` print: ` 10:00:01 up 2 days,  1:00,  1 user`, `up 5 hours, 2 minutes`.
fn uptime(line: &str) -> Option<Time> {
    // `/proc/uptime` has the seconds, and those that CPUs were idle.
    let mut words = line.split(' ');
    if let (Some(seconds), Some(idle), None) = (words.next(), words.next(), words.next()) {
        let hundredths = |word: &str| {
            let (whole, part) = word.split_once('.')?;
            let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            let fits = is_number(whole) && is_number(part) && part.len() == 2;
            word.parse::<f64>().ok().filter(|_| fits)
        };
        if let (Some(seconds), Some(_)) = (hundredths(seconds), hundredths(idle)) {
            return Some(Time::Boot(seconds));
        }
    }
    let (before, rest) = match line.strip_prefix("up ") {
        Some(rest) => ("", rest),
        None => line.split_once(" up ")?,
    };
    let is_clock = before
        .split_whitespace()
        .last()
        .is_none_or(|word| dates::of_clock(word).is_some());
    let rest = rest.split(" user").next().unwrap_or_default();
    is_clock.then_some(())?;
    let seconds = span(&read(rest))?;
    Some(Time::Boot(seconds))
}

fn unit(word: &str) -> Option<f64> {
    let found = UNITS.iter().find(|(names, _)| {
        names.iter().any(|name| {
            word == *name
                || name.len() > 1
                    && word
                        .strip_prefix(name)
                        .is_some_and(|end| ["s", "n", "e", "en"].contains(&end))
        })
    });
    found.map(|(_, seconds)| *seconds)
}

fn is_filler(word: &str) -> bool {
    FILLERS.contains(&word)
}

/// Words, each with what it says; those that say nothing are left out.
fn read(text: &str) -> Vec<Word> {
    let words = plain(&text.replace("il y a", "ago").replace("Il y a", "ago"));
    let words = words.iter().filter(|word| !is_filler(word));
    words.map(|word| read_word(word)).collect()
}

fn read_word(word: &str) -> Word {
    let spelled = NUMBERS.iter().position(|name| word == *name);
    if let Some(number) = spelled {
        return Word::Number(number as f64);
    }
    let word = word.trim_start_matches("uptime=");
    let word = word.trim_start_matches("t+").trim_start_matches("t=");
    let end = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, rest) = word.split_at(end);
    if let Ok(number) = number.parse::<f64>() {
        return match (unit(rest), dates::of_clock(word)) {
            _ if rest.is_empty() => Word::Number(number),
            (Some(seconds), _) => Word::Span(number * seconds),
            (None, Some((seconds, _))) => Word::Clock(seconds as f64),
            (None, None) => Word::Other,
        };
    }
    match word {
        "a" | "an" | "einem" | "einer" | "einen" | "un" | "una" | "une" | "um" | "uma" => {
            Word::Number(1.0)
        }
        "couple" => Word::Number(2.0),
        "ago" | "vor" | "hace" | "fa" | "há" | "назад" => Word::Ago,
        "last" | "letzte" | "letzten" => Word::Last,
        "now" | "today" | "currently" | "heute" | "jetzt" | "ahora" | "hoy" | "maintenant"
        | "aujourd'hui" | "adesso" | "oggi" | "agora" | "hoje" | "сейчас" | "сегодня" | "现在"
        | "今天" => Word::Back(0.0),
        "morning" => Word::Back(0.25),
        "yesterday" | "gestern" | "ayer" | "hier" | "ieri" | "ontem" | "вчера" | "昨天" => {
            Word::Back(1.0)
        }
        "up" | "uptime" | "running" => Word::Up,
        "after" | "later" | "nach" | "into" | "since" | "post" => Word::After,
        "fresh" | "freshly" | "boot" | "booted" | "reboot" | "rebooted" | "startup" => Word::Boot,
        _ if STARTS.contains(&word) => Word::Boot,
        _ => unit(word).map_or(Word::Other, Word::Unit),
    }
}

/// Sum of the spans of time that words have; `None` without one. A time of the day is hours and minutes.
fn span(words: &[Word]) -> Option<f64> {
    let mut sum = None;
    let mut number = None;
    for word in words {
        match word {
            Word::Number(found) => number = Some(*found),
            Word::Last => number = Some(1.0),
            Word::Unit(seconds) => {
                if let Some(number) = number.take() {
                    sum = Some(sum.unwrap_or(0.0) + number * seconds);
                }
            }
            Word::Span(seconds) | Word::Clock(seconds) => {
                sum = Some(sum.unwrap_or(0.0) + seconds);
            }
            _ => {}
        }
    }
    sum
}

/// The time that words tell: `bob commented 2 hours ago`, `yesterday:`, `after 3 days uptime`, `Day 5:`, `fresh boot:`.
fn in_words(line: &str) -> Option<Time> {
    // `Day 5: it goes on`.
    let head = line
        .split_once([':', '–'])
        .or_else(|| line.split_once(" - "));
    if let Some((head, _)) = head
        && let [Word::Unit(seconds), Word::Number(number)] = read(head).as_slice()
        && *seconds >= HOUR_S
    {
        return Some(Time::Boot(number * seconds));
    }
    let words = read(line);
    let others = words
        .iter()
        .filter(|word| matches!(word, Word::Other))
        .count();
    let is_counted = ["T+", "t+", "t=", "uptime="]
        .iter()
        .any(|start| line.starts_with(start));
    let is_title = is_title(line) || is_counted;
    let is_written = time::is_written(line);
    let has = |of: fn(&Word) -> bool| words.iter().any(of);
    if has(|word| matches!(word, Word::Ago | Word::Last)) {
        let ends = line.trim_end().ends_with("ago");
        let is_head = others == 0
            || is_title
            || is_written
            || others <= 3 && ends && words.len() <= WORDS_MAX && !has_verb(line);
        return span(&words).filter(|_| is_head).map(Time::Ago);
    }
    let back = words.iter().find_map(|word| match word {
        Word::Back(days) => Some(*days),
        _ => None,
    });
    if let Some(days) = back {
        let clock = words.iter().find_map(|word| match word {
            Word::Clock(seconds) => Some(*seconds),
            _ => None,
        });
        let is_head = is_written
            || clock.is_some() && others <= 3
            || others <= 2 && is_title
            || others == 0 && words.len() == 1;
        let today = days * DAY_S as f64;
        return is_head.then(|| Time::Ago(today - clock.unwrap_or(0.0)));
    }
    if others > 0 || words.len() > WORDS_MAX {
        return None;
    }
    let has_after = has(|word| matches!(word, Word::After | Word::Up));
    let is_boot = has(|word| matches!(word, Word::Boot));
    match words.as_slice() {
        // Small units stand before other numbers, too.
        [Word::Unit(seconds), Word::Number(number)] if is_title || *seconds >= HOUR_S => {
            Some(Time::Boot(number * seconds))
        }
        [Word::Number(number)] if is_counted => Some(Time::Boot(*number)),
        // Without a word of time behind it, a number is one of something else.
        [Word::Number(_)] | [] => None,
        _ => match span(&words) {
            Some(seconds) => (is_title || has_after || is_boot).then_some(Time::Boot(seconds)),
            None => (is_boot && (is_title || words.len() > 1)).then_some(Time::Boot(0.0)),
        },
    }
}

/// True if a line has a word of sentences about what happened.
fn has_verb(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.any(|word| ["it", "I", "we", "It", "We", "began", "started", "happened"].contains(&word))
}

#[cfg(test)]
mod tests;
