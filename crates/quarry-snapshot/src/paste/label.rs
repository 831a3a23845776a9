//! Labels of lines: names of machines or files that tools which run on several put before lines, or above them.
//!
//! A label is of another machine if its words differ. What differs by a date, a number or a word of time is of another
//! moment of one machine.

/// The words of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    /// Words that are no times: those of a machine, if they differ from another label's.
    pub(super) words: String,
    /// Numbers and words of time, in their order.
    pub(super) times: Vec<u64>,
}

/// Parts of names that say what a file is, not whose.
pub(super) const KINDS: [&str; 9] = [
    "slabinfo", "slabtop", "vmstat", "meminfo", "proc", "txt", "log", "out", "gz",
];
/// Words before a number that counts moments.
const COUNTED: [&str; 23] = [
    "", "t", "day", "hour", "h", "min", "minute", "sec", "week", "run", "step", "sample", "snap",
    "snapshot", "reading", "round", "iter", "time", "at", "phase", "stage", "pass", "try",
];
/// Words of time, by their order.
const MOMENTS: [(&[&str], u64); 5] = [
    (
        &[
            "before", "antes", "avant", "vorher", "davor", "prima", "voor", "przed", "до", "之前",
            "以前", "前", "이전", "önce",
        ],
        0,
    ),
    (
        &[
            "after",
            "now",
            "later",
            "depois",
            "después",
            "despues",
            "après",
            "apres",
            "nachher",
            "danach",
            "dopo",
            "daarna",
            "после",
            "之后",
            "以后",
            "后",
            "後",
            "이후",
            "sonra",
        ],
        2,
    ),
    (
        &[
            "old",
            "older",
            "prev",
            "previous",
            "start",
            "first",
            "begin",
            "pre",
            "yesterday",
            "morning",
            "baseline",
            "ontem",
            "ayer",
            "hier",
            "gestern",
            "ieri",
            "вчера",
            "昨天",
            "昨日",
        ],
        0,
    ),
    (&["during", "middle", "mid", "noon"], 1),
    (
        &[
            "new",
            "newer",
            "end",
            "last",
            "post",
            "current",
            "today",
            "evening",
            "night",
            "agora",
            "ahora",
            "maintenant",
            "jetzt",
            "adesso",
            "nu",
            "сейчас",
            "现在",
            "今",
        ],
        2,
    ),
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// True for words that say on which side of something a moment was.
pub(super) fn is_side_of(word: &str) -> bool {
    MOMENTS[..2].iter().any(|(words, _)| words.contains(&word))
}

/// The place of a month's or a day's name, short or whole.
pub(super) fn month(word: &str) -> Option<u64> {
    const WHOLE: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    place(word, &MONTHS, &WHOLE)
}

/// The place of a day's name in the week.
pub(super) fn weekday(word: &str) -> Option<u64> {
    const WHOLE: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    place(word, &DAYS, &WHOLE)
}

fn place(word: &str, short: &[&str], whole: &[&str]) -> Option<u64> {
    let word = word.to_ascii_lowercase();
    let mut names = short.iter().zip(whole);
    let place = names.position(|(short, whole)| word == *short || word == *whole)?;
    Some(place as u64 + 1)
}

/// Reads a label.
pub(super) fn told(label: &str) -> Told {
    let mut found = Told::default();
    if is_address(label) {
        found.words = label.to_string();
        return found;
    }
    let mut label = label.to_lowercase();
    for kind in &KINDS[..4] {
        label = label.replace(kind, "/");
    }
    let parts = label.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
    let parts: Vec<&str> = parts.filter(|part| !KINDS.contains(part)).collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut rest = parts.as_slice();
    while let [part, others @ ..] = rest {
        rest = others;
        // An address has four numbers, a machine's name may end with one.
        if let Some(four) = [part]
            .into_iter()
            .chain(others)
            .take(4)
            .map(|part| is_number(part).then_some(*part))
            .collect::<Option<Vec<_>>>()
            && is_address(&four.join("."))
        {
            found.words.push_str(&four.join("."));
            rest = &others[3..];
            continue;
        }
        piece(part, &mut found);
    }
    found
}

/// Reads a part of a label without dots: `web-1`, `2026-11-01`, `day3`.
fn piece(part: &str, found: &mut Told) {
    let mut before = "";
    for run in part.split(['-', '_']) {
        let letters = run.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &run[letters.len()..];
        let number = digits.parse::<u64>().ok();
        let moment = MOMENTS.iter().find(|(words, _)| words.contains(&run));
        let stamp = run.split_once('t').map(|(date, time)| {
            (
                date.parse::<u64>(),
                time.trim_end_matches('z').parse::<u64>(),
            )
        });
        match (moment, number) {
            (Some((_, place)), _) => found.times.push(*place),
            (None, Some(number)) if letters.is_empty() && COUNTED.contains(&before) => {
                found.times.push(number)
            }
            (None, Some(number)) if COUNTED.contains(&letters) && !letters.is_empty() => {
                found.times.push(number)
            }
            _ if let Some((Ok(date), Ok(time))) = stamp => found.times.extend([date, time]),
            _ => match month(run).or_else(|| weekday(run)) {
                Some(place) => found.times.push(place),
                None if COUNTED.contains(&run) || KINDS.contains(&run) => {}
                None => {
                    found.words.push(' ');
                    found.words.push_str(run);
                }
            },
        }
        before = if number.is_some() && letters.is_empty() && COUNTED.contains(&before) {
            ""
        } else {
            run
        };
    }
}

/// The machine that the name of a file seems to be of: `web1` of `slab/web1-before.txt`. A guess: such names are letters
/// with a number behind them, and not those that people give to files.
pub(crate) fn of_file(path: &str) -> Option<String> {
    const FILES: [&str; 28] = [
        "file", "dump", "test", "data", "capture", "slab", "slabs", "info", "report", "copy",
        "part", "version", "v", "r", "n", "kernel", "linux", "boot", "case", "issue", "bug", "x",
        "a", "b", "el", "rhel", "now", "save",
    ];
    let name = path.rsplit('/').next().unwrap_or_default();
    let label = told(name);
    let mut words: Vec<&str> = label.words.split_whitespace().collect();
    if words.is_empty() {
        let (folder, _) = path.rsplit_once('/')?;
        return (!folder.is_empty()).then(|| of_file(folder)).flatten();
    }
    words.retain(|word| !["json", "xz", "zst", "csv", "md"].contains(word));
    if let Some(address) = words.iter().find(|word| is_address(word)) {
        return Some((*address).to_string());
    }
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let is_kind =
        |word: &str| word.chars().all(|c| c.is_ascii_alphabetic()) && !FILES.contains(&word);
    // A hyphen before the number parts the words.
    words.iter().enumerate().find_map(|(at, word)| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let next = words.get(at + 1).copied().unwrap_or_default();
        match () {
            () if letters.is_empty() || !is_kind(letters) => None,
            () if letters.len() < word.len() => Some((*word).to_string()),
            () => is_number(next).then(|| format!("{word}-{next}")),
        }
    })
}

/// True for an address of IPv4.
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<std::net::Ipv4Addr>().is_ok()
}

/// True for a name that a machine can have.
pub(super) fn is_name(text: &str) -> bool {
    const LONGEST: usize = 64;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '@');
    text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(fits)
        && (text.contains(|c: char| c.is_ascii_alphabetic()) || is_address(text))
}

/// True for a word of a title, in any language.
pub(super) fn is_word(text: &str) -> bool {
    const LONGEST: usize = 64;
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '@');
    text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_alphanumeric())
        && text.chars().all(fits)
}

/// The words by which each of some texts differs from the others; whole texts if they have other numbers of words.
pub(super) fn varying(texts: &[&str]) -> Vec<String> {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    let words = |text: &&str| -> Vec<String> {
        let words = text.split(|c: char| !is_of_name(c));
        let words = words.map(|word| word.trim_matches(['.', '-']));
        words
            .filter(|word| !word.is_empty())
            .map(str::to_string)
            .collect()
    };
    let all: Vec<Vec<String>> = texts.iter().map(words).collect();
    let are_alike = all.iter().all(|words| words.len() == all[0].len());
    let varies = |at: usize| !are_alike || all.iter().any(|words| words[at] != all[0][at]);
    let own = all.iter().zip(texts).map(|(words, text)| {
        let own = (0..words.len()).filter(|at| varies(*at));
        let mut own: Vec<&str> = own.map(|at| words[at].as_str()).collect();
        // An address beside a name is of the same machine.
        if own.iter().any(|word| word.contains(char::is_alphabetic)) {
            own.retain(|word| !is_address(word));
        }
        let own = own.join(" ");
        // A number alone names nothing.
        match own.bytes().all(|b| b.is_ascii_digit()) {
            true => text
                .trim_matches(|c: char| !c.is_alphanumeric())
                .to_string(),
            false => own,
        }
    });
    own.collect()
}

/// The name behind a word for machines: `n1` of `{host="n1"`.
pub(super) fn named(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_'));
    words.find(|word| is_machine(word))?;
    words
        .find(|word| !word.is_empty())
        .filter(|name| is_name(name))
}

/// Words for machines.
const MACHINES: [&str; 15] = [
    "host",
    "hostname",
    "nodename",
    "node",
    "server",
    "servername",
    "machine",
    "instance",
    "instanceid",
    "vm",
    "vmname",
    "computer",
    "computername",
    "minion",
    "fqdn",
];

/// True for a key or a word whose value is the name of a machine.
pub(super) fn is_machine(key: &str) -> bool {
    let letters = |key: &str| -> String { key.chars().filter(|c| c.is_alphabetic()).collect() };
    let is_of = |key: &str| MACHINES.contains(&letters(key).to_ascii_lowercase().as_str());
    is_of(key)
        || key
            .rsplit_once(' ')
            .is_some_and(|(before, last)| before.len() < 24 && is_of(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_differ_by_times_or_by_machines() {
        let times = [
            ("slabinfo.2026-11-01", "slabinfo.2026-11-02"),
            ("slabinfo.20261101T0900", "slabinfo.20261101T1000"),
            ("/tmp/slabinfo.1", "/tmp/slabinfo.2"),
            ("slabinfo1", "slabinfo2"),
            ("slabinfo.before", "slabinfo.after"),
            ("web1/slabinfo-day3.txt", "web1/slabinfo-day10.txt"),
            ("slabinfo.mon", "slabinfo.tue"),
            ("before", "after"),
            ("Antes", "Depois"),
            ("Avant", "Après"),
            ("До", "После"),
            ("之前", "之后"),
        ];
        for (one, other) in times {
            let (one, other) = (told(one), told(other));
            assert_eq!(one.words, other.words);
            assert!(one.times < other.times, "{one:?} {other:?}");
        }
        let machines = [
            ("slabinfo.web1", "slabinfo.web2"),
            ("slabinfo-node-1", "slabinfo-node-2"),
            ("slabinfo.10.0.0.1", "slabinfo.10.0.0.2"),
            ("web1/slabinfo", "web2/slabinfo"),
            ("10.0.0.1", "10.0.0.2"),
        ];
        for (one, other) in machines {
            assert_ne!(told(one).words, told(other).words, "{one}");
        }
        assert_eq!(told("/proc/slabinfo").words, told("/proc/meminfo").words);
    }

    #[test]
    fn what_differs_is_a_name() {
        for (pair, own) in [
            (["on node a1 now", "on node b2 now"], ["a1", "b2"]),
            (["{host=\"a\"}", "{host=\"b\"}"], ["a", "b"]),
            (["alpha (good)", "beta"], ["alpha (good)", "beta"]),
            (["task 1", "task 2"], ["task 1", "task 2"]),
            (["(a) 10.0.0.1->x", "(b) 10.0.0.2->x"], ["a", "b"]),
        ] {
            let varying = varying(&pair);
            let found: Vec<&str> = varying.iter().map(String::as_str).collect();
            let whole = |text: &str| text.replace(['(', ')'], "");
            assert_eq!(found, own.map(whole), "{pair:?}");
        }
    }

    #[test]
    fn files_may_be_named_after_machines() {
        for (path, expected) in [
            ("web1.txt", Some("web1")),
            ("/tmp/slabinfo-db2.json", Some("db2")),
            ("web-1-before.txt.gz", Some("web-1")),
            ("n/web1/slabinfo", Some("web1")),
            ("10.0.0.1.txt", Some("10.0.0.1")),
            ("file1.txt", None),
            ("slabinfo.1", None),
            ("monday.json", None),
            ("good.txt", None),
            ("6.1.40.txt", None),
        ] {
            assert_eq!(of_file(path).as_deref(), expected, "{path}");
        }
    }
}
