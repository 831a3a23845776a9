//! Labels of lines: names of machines or files that tools which run on several put before lines, or above them.
//!
//! A label is of another machine if its words differ. What differs by a date, a number or a word of time is of another
//! moment of one machine.

use crate::machine::host;

/// The words of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    /// Words that are no times: those of a machine, if they differ from another label's.
    pub(super) words: String,
    /// Numbers and words of time, in their order.
    pub(super) times: Vec<u64>,
}

/// Parts of names that say what a file is, not whose.
const KINDS: [&str; 9] = [
    "slabinfo", "slabtop", "vmstat", "meminfo", "proc", "txt", "log", "out", "gz",
];
/// Words before a number that counts moments.
const COUNTED: [&str; 19] = [
    "", "t", "day", "hour", "h", "min", "minute", "sec", "week", "run", "step", "sample", "snap",
    "snapshot", "reading", "round", "iter", "time", "at",
];
/// Words of time, by their order.
const MOMENTS: [(&[&str], u64); 3] = [
    (
        &[
            "before",
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
        ],
        0,
    ),
    (&["during", "middle", "mid", "noon"], 1),
    (
        &[
            "after", "new", "newer", "now", "end", "last", "later", "post", "current", "today",
            "evening", "night",
        ],
        2,
    ),
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

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
    let mut label = label.to_ascii_lowercase();
    for kind in &KINDS[..4] {
        label = label.replace(kind, "/");
    }
    let parts = label.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
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
fn is_address(text: &str) -> bool {
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
        let own: Vec<&str> = own.map(|at| words[at].as_str()).collect();
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
const MACHINES: [&str; 16] = [
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
    "statichostname",
];

/// True for a key or a word whose value is the name of a machine.
pub(super) fn is_machine(key: &str) -> bool {
    let letters: String = key.chars().filter(|c| c.is_alphabetic()).collect();
    MACHINES.contains(&letters.to_ascii_lowercase().as_str())
}

/// The machine that a line says the text behind it is of: `Hostname: web1`, `NODENAME: web1`, `On server web1:`,
/// `Starting pod/web1-debug ...`.
pub(super) fn said(line: &str) -> Option<&str> {
    const WORDS_MAX: usize = 12;
    let plain = |c: char| c.is_whitespace() || "*-`\"'=#<>.:,()".contains(c);
    let line = line.trim_matches(plain);
    let words: Vec<&str> = line.split_whitespace().take(WORDS_MAX + 1).collect();
    let name = if let Some((key, value)) = line.split_once([':', '=']) {
        let value = value.trim_matches(plain);
        Some(value).filter(|value| is_machine(key) && !value.contains(char::is_whitespace))
    } else if words.len() > WORDS_MAX {
        None
    } else if let [.., "on" | "On" | "from" | "From" | "of" | "Of", kind, name] = words.as_slice()
        && is_machine(kind)
    {
        Some(*name)
    } else {
        let pod = line
            .strip_prefix("Starting pod/")?
            .split_whitespace()
            .next()?;
        Some(pod.strip_suffix("-debug").unwrap_or(pod))
    };
    name.filter(|name| is_name(name)).and_then(host)
}

/// The machine that a command asked for prints: `hostname`, `uname -n`.
pub(super) fn asks_name(command: &str) -> bool {
    let mut words = command.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&'));
    words.any(|word| matches!(word, "hostname" | "/etc/hostname" | "hostnamectl"))
        || command.contains("uname -n")
}

/// A line that may name what is below it, to be compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Title {
    /// Titles of one shape are compared.
    pub(super) shape: String,
    pub(super) text: String,
    /// True if what differs is a machine's name, as of a command that runs there.
    pub(super) is_machine: bool,
    pub(super) is_command: bool,
}

/// A command that prints a table, as far as it names a place: `kubectl debug node/web1 -- cat`, `$ vagrant ssh web1 -c "cat`.
pub(super) fn outer(line: &str, is_command: bool) -> Option<Title> {
    const READERS: [&str; 20] = [
        "cat", "sudo", "head", "tail", "grep", "slabtop", "vmstat", "slabinfo", "dmesg", "less",
        "more", "awk", "sort", "bash", "sh", "chroot", "kmem", "watch", "zcat", "uname",
    ];
    // Behind these words is the name of a machine, or of a container, which may be on the same.
    const VERBS: [&str; 10] = [
        "ssh",
        "debug",
        "shell",
        "node-shell",
        "start-session",
        "console",
        "rsh",
        "mosh",
        "exec",
        "attach",
    ];
    const WORDS_MAX: usize = 40;
    let all: Vec<&str> = line.split_whitespace().take(WORDS_MAX).collect();
    let is_reader = |word: &&str| {
        let word = word.trim_matches(['"', '\'', '`']);
        READERS.contains(&word.rsplit('/').next().unwrap_or_default())
    };
    let reader = all.iter().position(is_reader);
    let is_known =
        line.contains("/proc/") || line.contains("slabtop") || line.contains("vmstat -m");
    (is_command || reader.is_some() && is_known).then_some(())?;
    let outer = &all[..reader.unwrap_or(all.len())];
    let from = outer
        .iter()
        .rposition(|word| word.ends_with(';') || matches!(*word, "&&" | "||" | "|"));
    let outer = &outer[from.map_or(0, |from| from + 1)..];
    let verb = outer.iter().find(|word| VERBS.contains(word));
    if verb.is_none() && reader.is_none() {
        return None;
    }
    let is_path = |word: &&&str| word.starts_with(['/', '~', '.']) && verb.is_none();
    let words = outer
        .iter()
        .filter(|word| !is_path(word) && word.contains(|c: char| c.is_alphabetic()));
    let words: Vec<&str> = words
        .map(|word| word.rsplit_once('@').map_or(*word, |(_, host)| host))
        .collect();
    let text = words.join(" ");
    (!text.is_empty()).then(|| Title {
        shape: format!("{} {}", verb.unwrap_or(&""), words.len()),
        text,
        is_machine: verb.is_some_and(|verb| !["exec", "attach"].contains(verb)),
        is_command: true,
    })
}

/// A title above a table that is no machine's by itself: `### alpha`, `h3. host-a`, `alpha (good):`, `web1`.
pub(super) fn title(line: &str) -> Option<Title> {
    const WORDS_MAX: usize = 5;
    // Mails quote those who wrote.
    const WROTE: [&str; 6] = ["wrote", "writes", "said", "schrieb", "commented", "posted"];
    let line = line.trim();
    let jira = line.strip_prefix('h').and_then(|line| {
        line[1..]
            .strip_prefix(". ")
            .filter(|_| line.starts_with(|c: char| c.is_ascii_digit()))
    });
    let mark = match line {
        _ if jira.is_some() => "h",
        _ if line.starts_with('#') => "#",
        _ if line.starts_with("==") => "=",
        _ if line.starts_with("**") => "*",
        _ if line.starts_with("--") => "-",
        _ if line.ends_with(':') => ":",
        _ if line.starts_with('[') && line.ends_with(']') => "[",
        _ if line.contains(|c: char| c.is_ascii_digit()) && !line.contains(char::is_whitespace) => {
            ""
        }
        _ => return None,
    };
    let text = jira
        .unwrap_or(line)
        .trim_matches(|c: char| "=#*-<>:[] ".contains(c));
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_other = |word: &str| {
        KINDS
            .iter()
            .chain(&WROTE)
            .chain(&["slab", "kmalloc", "linux"])
            .any(|kind| word.to_ascii_lowercase().contains(kind))
    };
    if let [kind, number] = words.as_slice()
        && is_machine(kind)
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        return Some(Title {
            shape: mark.to_string(),
            text: words.join("-"),
            is_machine: true,
            is_command: false,
        });
    }
    let is_title = (1..=WORDS_MAX).contains(&words.len())
        && !is_other(text)
        && words
            .iter()
            .all(|word| is_name(word.trim_matches(['(', ')', ',', '\''])))
        && told(text).times.is_empty();
    is_title.then(|| Title {
        shape: format!("{mark} {}", words.len()),
        text: text.to_string(),
        is_machine: false,
        is_command: false,
    })
}

/// The label that a line puts above those behind it, with the lines around it.
pub(super) fn above<'l>(line: &'l str, last: &str, next: &str) -> Option<&'l str> {
    let is_rule = |line: &str| line.len() >= 3 && line.bytes().all(|b| b == b'-');
    let mut words = line.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    // ansible, pssh -i, dshbak and clush -b.
    if line.ends_with(">>") && second == Some("|") && line.contains("rc=") {
        return Some(first).filter(|name| is_name(name));
    }
    if let Some((_, name)) = line
        .split_once("[SUCCESS] ")
        .or_else(|| line.split_once("[FAILURE] "))
        && first.starts_with('[')
    {
        return name.split_whitespace().next().filter(|name| is_name(name));
    }
    if is_rule(last) && is_rule(next) && second.is_none() {
        return Some(first);
    }
    // head and tail of several files.
    if let Some(name) = line
        .strip_prefix("==> ")
        .and_then(|line| line.strip_suffix(" <=="))
    {
        return Some(name);
    }
    // salt's and people's own: `web1:`, `== web1 ==`. Other titles are single words, too.
    let title = line.trim_matches(|c: char| "=#*-<>: ".contains(c));
    let is_marked = line.ends_with(':')
        || ["==", "##", "**", "--"]
            .iter()
            .any(|mark| line.starts_with(mark));
    let said = told(title);
    let is_title = ["slab", "kmalloc", "meminfo", "vmstat", "linux"]
        .iter()
        .any(|word| title.contains(word));
    let is_host = title.contains(|c: char| c.is_ascii_digit())
        && title.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_moment = said.words.is_empty() && !said.times.is_empty();
    (is_marked && is_name(title) && !is_title && (is_host || is_moment || is_address(title)))
        .then_some(title)
}

/// The machine that a prompt names, or that its command goes to: `root@web1:~# `, `[root@web1 ~]$ `, `web1:~ # `,
/// `me@laptop:~$ ssh web1 `.
pub(super) fn prompt<'l>(line: &'l str, command: &str) -> Option<&'l str> {
    if let Some(host) = ssh(&line[line.len() - command.len()..]) {
        return Some(host);
    }
    let before = line[..line.len() - command.len()].trim_end_matches(['#', '$', '%', '>', ' ']);
    let name = match before.rsplit_once('@') {
        Some((_, behind)) => behind,
        None => {
            let (name, folder) = before.trim_start_matches('[').split_once(':')?;
            folder.starts_with(['~', '/']).then_some(name)?
        }
    };
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_'));
    host(&name[..end.unwrap_or(name.len())])
}

/// The machine of `ssh -p 22 root@web1 cat /proc/slabinfo`.
fn ssh(command: &str) -> Option<&str> {
    const WITH_VALUE: &str = "bcDEeFIiJLlmOopQRSWw";
    let mut words = command
        .split_whitespace()
        .skip_while(|word| *word == "sudo");
    (words.next()? == "ssh").then_some(())?;
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            Some(option) if option.len() == 1 && WITH_VALUE.contains(option) => _ = words.next(),
            Some(_) => {}
            None => return host(word.rsplit_once('@').map_or(word, |(_, host)| host)),
        }
    }
    None
}

/// The machine that a log names behind its time: `Aug 6 09:37:21 web1 kernel: `, `2026-11-26T13:01:02+0000 web1 cat[1]: `.
pub(super) fn of_log(log: &str) -> Option<&str> {
    let mut words = log.split_whitespace();
    words
        .by_ref()
        .take(3)
        .find(|word| word.split(':').count() >= 3)?;
    let name = words.next()?;
    // The program stands behind it.
    words.next().filter(|program| program.ends_with(':'))?;
    host(name)
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
    fn tools_put_labels_above_lines() {
        for line in [
            "web1 | CHANGED | rc=0 >>",
            "[1] 09:37:21 [SUCCESS] web1",
            "==> web1 <==",
            "== web1 ==",
            "web1:",
            "### web1",
        ] {
            assert_eq!(above(line, "", ""), Some("web1"), "{line}");
        }
        assert_eq!(above("alpha", "----", "----"), Some("alpha"));
        for line in [
            "slabtop:",
            "Output:",
            "## slabinfo",
            "kmalloc-64:",
            "web1",
            "a web1:",
        ] {
            assert_eq!(above(line, "", ""), None, "{line}");
        }
    }

    #[test]
    fn lines_say_machines() {
        for line in [
            "Host: web1",
            "**Hostname:** `web1`",
            "    NODENAME: web1",
            "   Static hostname: web1",
            "InstanceId: web1",
            "On server web1:",
            "Creating debugging pod node-debugger-web1-x with container debugger on node web1.",
            "Starting pod/web1-debug ...",
        ] {
            assert_eq!(said(line), Some("web1"), "{line}");
        }
        for line in [
            "Host: localhost",
            "Node 0, zone DMA",
            "Server: a b",
            "on node",
            "Slab: 1 kB",
            "MACHINE: x86 64",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
        assert!(
            asks_name("hostname -f") && asks_name("uname -n; cat x") && !asks_name("cat hostnames")
        );
    }

    #[test]
    fn what_differs_is_a_name() {
        for (pair, own) in [
            (["on node a1 now", "on node b2 now"], ["a1", "b2"]),
            (["{host=\"a\"}", "{host=\"b\"}"], ["a", "b"]),
            (["alpha (good)", "beta"], ["alpha (good)", "beta"]),
            (["task 1", "task 2"], ["task 1", "task 2"]),
        ] {
            let varying = varying(&pair);
            let found: Vec<&str> = varying.iter().map(String::as_str).collect();
            let whole = |text: &str| text.replace(['(', ')'], "");
            assert_eq!(found, own.map(|own| whole(own)), "{pair:?}");
        }
    }

    #[test]
    fn commands_and_titles_are_compared() {
        let text = |line: &str| outer(line, true).map(|title| (title.text, title.is_machine));
        for (line, expected) in [
            (
                "kubectl debug node/w1 -it -- cat /proc/slabinfo",
                Some(("kubectl debug node/w1 -it", true)),
            ),
            ("docker exec w1 cat x", Some(("docker exec w1", false))),
            ("vagrant ssh w1", Some(("vagrant ssh w1", true))),
            ("sleep 60; cat x", None),
            ("cat /proc/slabinfo", None),
            ("cd /tmp", None),
        ] {
            assert_eq!(
                text(line),
                expected.map(|(text, is)| (text.to_string(), is)),
                "{line}"
            );
        }
        for (line, expected) in [
            ("h3. host-a", "host-a"),
            ("### host-a", "host-a"),
            ("alpha (good):", "alpha (good)"),
            ("web1", "web1"),
            ("node 1:", "node-1"),
        ] {
            assert_eq!(
                title(line).map(|title| title.text).as_deref(),
                Some(expected)
            );
        }
        for line in [
            "joe wrote:",
            "Output:",
            "slabtop:",
            "after:",
            "6.1.40-generic",
            "a word",
        ] {
            assert_eq!(title(line), None, "{line}");
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

    #[test]
    fn prompts_and_logs_name_machines() {
        for line in [
            "root@web1:~# cat x",
            "[root@web1 ~]# cat x",
            "web1:~ # cat x",
            "root@web1:/proc$ cat x",
            "me@laptop:~$ ssh -p 22 root@web1 cat x",
        ] {
            let command = &line[line.find("cat").unwrap()..];
            let command = line.find("ssh").map_or(command, |at| &line[at..]);
            assert_eq!(prompt(line, command), Some("web1"), "{line}");
        }
        assert_eq!(prompt("# cat x", "cat x"), None);
        assert_eq!(prompt("root@3f2a1b4c5d6e:/# cat x", "cat x"), None);
        assert_eq!(of_log("Aug  6 09:37:21 web1 kernel: "), Some("web1"));
        assert_eq!(
            of_log("2026-11-26T13:01:02+0000 web1 cat[1]: "),
            Some("web1")
        );
        assert_eq!(of_log("[  1.2] "), None);
    }
}
