//! Words before rows and heads of tables that are no part of them: names of machines or files that tools which run on several
//! put there, and times.
//!
//! No list of tools is kept. A line whose end is a row or a head has a prefix if words stand before that end. Prefixes that
//! come before several caches, or before the same caches as others, are labels. The words by which they differ name the
//! machine. A prefix that is alone is a packing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::label;
use super::packing::Line;
use super::tail::{TOKENS_MAX, Tail, marked, tail};

/// Longer prefixes are prose.
const BYTES_MAX: usize = 120;
/// Caches that make words before them a label, if no mark such as a colon does.
const NAMES_MIN: usize = 3;

/// Rows and heads behind a prefix.
#[derive(Default)]
struct Group<'l> {
    names: BTreeSet<&'l str>,
    /// Rows that nothing else looks like.
    sure: usize,
    heads: usize,
}

/// The labels of a text, by their words without times.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    labels: BTreeMap<String, Option<String>>,
    /// Place of the row or the head in each line that has a prefix.
    tails: Vec<Option<usize>>,
}

/// A line without its prefix.
pub(super) struct Cut {
    pub(super) line: Line,
    /// Name of the machine or the moment, if the text has several or the prefix is one word.
    pub(super) label: Option<String>,
    /// True if the rest is a row or a head.
    pub(super) is_table: bool,
}

impl Prefixes {
    /// Finds the labels of some lines.
    pub(super) fn of(lines: &[Line]) -> Self {
        let mut groups: BTreeMap<String, Group<'_>> = BTreeMap::new();
        let mut tails = Vec::with_capacity(lines.len());
        let mut run: Vec<(String, Tail<'_>)> = Vec::new();
        let mut is_bare = false;
        for line in lines {
            let found = tail(&line.text);
            tails.push(found.as_ref().map(|tail| tail.at).filter(|at| *at > 0));
            match found {
                Some(tail) => match key(&line.text[..tail.at]) {
                    Some(key) if tail.at > 0 => run.push((key, tail)),
                    _ => is_bare |= tail.name.is_some(),
                },
                // Names of caches have blanks: rows without a prefix lie between.
                None => {
                    take(&mut groups, &mut run, is_bare);
                    is_bare = false;
                }
            }
        }
        take(&mut groups, &mut run, is_bare);
        Self {
            labels: labels(&groups),
            tails,
        }
    }

    /// The line at a place without its prefix; `None` if it has none.
    pub(super) fn cut(&self, at: usize, line: &Line) -> Option<Cut> {
        if self.labels.is_empty() {
            return None;
        }
        let text = line.text.as_str();
        let tail = self.tails.get(at).copied().flatten();
        let (end, label) = self.matching(&text[..tail.unwrap_or(text.len())])?;
        let tail = tail.filter(|tail| {
            *tail >= end && key(&text[end..*tail]).is_some_and(|key| key.is_empty())
        });
        let end = tail.unwrap_or(end);
        let mut cut = line.cut(&text[end..]);
        let has_time = tokens(&text[..end]).any(|token| is_time(token.text));
        if has_time || !cut.log.is_empty() {
            let behind = cut.log.strip_prefix(line.log.as_str()).unwrap_or(&cut.log);
            cut.log = format!("{}{}{behind}", line.log, &text[..end]);
            cut.is_logged |= has_time;
        }
        Some(Cut {
            line: cut,
            label: label.clone(),
            is_table: tail.is_some(),
        })
    }

    /// The end of the label that a line begins with.
    fn matching(&self, text: &str) -> Option<(usize, &Option<String>)> {
        let mut words = String::new();
        let mut end = 0;
        for token in tokens(text).take(TOKENS_MAX) {
            match kept(token.text) {
                Some(kept) => push(&mut words, &kept),
                None => {
                    end = token.end;
                    continue;
                }
            }
            if let Some(label) = self.labels.get(&words) {
                return Some((token.end, label));
            }
        }
        // Times alone.
        let label = self.labels.get("").filter(|_| end > 0)?;
        let times = tokens(text).take_while(|token| is_time(token.text));
        times.last().map(|last| (last.end, label))
    }
}

/// Adds the prefixes of lines on end to their groups, if all of the lines have one.
fn take<'l>(
    groups: &mut BTreeMap<String, Group<'l>>,
    run: &mut Vec<(String, Tail<'l>)>,
    is_bare: bool,
) {
    for (key, tail) in run.drain(..).filter(|_| !is_bare) {
        let group = groups.entry(key).or_default();
        match tail.name {
            Some(name) => _ = group.names.insert(name),
            None => group.heads += 1,
        }
        group.sure += usize::from(tail.is_sure);
    }
}

/// The prefixes that are labels, with the words by which they differ.
fn labels(groups: &BTreeMap<String, Group<'_>>) -> BTreeMap<String, Option<String>> {
    let mut same: BTreeMap<&BTreeSet<&str>, usize> = BTreeMap::new();
    for group in groups.values().filter(|group| group.sure > 0) {
        *same.entry(&group.names).or_default() += 1;
    }
    let is_label = |(key, group): &(&String, &Group<'_>)| {
        let is_named = name_of(key).is_some() && !key.ends_with(|c: char| c.is_alphanumeric());
        let is_shared =
            !group.names.is_empty() && same.get(&group.names).is_some_and(|count| *count > 1);
        // `Node 0` of copies of meminfo is no machine.
        let is_node = key
            .strip_prefix("Node ")
            .is_some_and(|node| node.parse::<u32>().is_ok());
        !is_node
            && (group.sure > 0 && (is_named || is_shared)
                || group.names.len() >= NAMES_MIN
                || group.heads > 0 && !group.names.is_empty())
    };
    let found: BTreeSet<&str> = groups
        .iter()
        .filter(is_label)
        .map(|(key, _)| key.as_str())
        .collect();
    // `web1 fuse` before `request` is the label and a part of the name.
    let begins_other = |key: &&&str| {
        let mut ends = key.match_indices(' ').map(|(at, _)| &key[..at]);
        !ends.any(|begin| found.contains(begin))
    };
    let found: Vec<&str> = found.iter().filter(begins_other).copied().collect();
    let names = match found.as_slice() {
        [key] => vec![
            name_of(key)
                .or_else(|| label::named(key))
                .map(str::to_string),
        ],
        _ => label::varying(&found).into_iter().map(Some).collect(),
    };
    found.into_iter().map(str::to_string).zip(names).collect()
}

/// The name that a prefix of one word is.
fn name_of(key: &str) -> Option<&str> {
    let name = key.trim_matches(|c: char| !c.is_alphanumeric());
    label::is_name(name).then_some(name)
}

/// The words of a prefix without times; `None` if it is too long.
fn key(prefix: &str) -> Option<String> {
    (prefix.len() <= BYTES_MAX).then_some(())?;
    let mut words = String::new();
    let mut count = 0;
    for token in tokens(prefix) {
        count += 1;
        if let Some(kept) = kept(token.text) {
            push(&mut words, &kept);
        }
    }
    (count <= TOKENS_MAX).then_some(words)
}

fn push(words: &mut String, word: &str) {
    if !words.is_empty() {
        words.push(' ');
    }
    words.push_str(word);
}

/// A word of a prefix without the number of a process; `None` for times and other numbers that change from line to line.
fn kept(word: &str) -> Option<Cow<'_, str>> {
    const NUMBER_MIN: usize = 3;
    let is_number = word.len() >= NUMBER_MIN && word.bytes().all(|b| b.is_ascii_digit());
    if is_number || is_time(word) || matches!(word, "[" | "]" | "(") {
        return None;
    }
    let process = word.split_once('[').and_then(|(program, rest)| {
        let (number, behind) = rest.split_once(']')?;
        let is_process = !program.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        is_process.then(|| Cow::Owned(format!("{program}{behind}")))
    });
    Some(process.unwrap_or(Cow::Borrowed(word)))
}

/// True for a part of a date or a time.
fn is_time(word: &str) -> bool {
    let word = word.rsplit('=').next().unwrap_or_default();
    let word = word
        .trim_matches(|c: char| "[](),;<>|\"".contains(c))
        .trim_end_matches(':');
    let is_of_time = |b: u8| b.is_ascii_digit() || b":.,+-/TZ".contains(&b);
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let dots = word.matches('.').count();
    let has_marks = word.contains(':') || word.matches(['-', '/']).count() == 2 || dots == 1;
    label::month(word).is_some()
        || label::weekday(word).is_some()
        || digits > 1 && has_marks && word.bytes().all(is_of_time)
}

/// A word, or a part of one that ends with a mark such as a semicolon.
struct Token<'l> {
    text: &'l str,
    end: usize,
}

fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let word = text[at..]
            .split(char::is_whitespace)
            .next()
            .filter(|word| !word.is_empty())?;
        let length = marked(word).unwrap_or(word.len());
        at += length;
        Some(Token {
            text: &word[..length],
            end: at,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paste::packing;

    const NAMES: [&str; 5] = [
        "dentry",
        "filp",
        "page->ptl",
        "fuse request",
        "kmalloc-64(17:a.slice)",
    ];

    fn row(name: &str) -> String {
        format!("{name} 16 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0")
    }

    /// Labels and lines behind prefixes.
    fn cut(text: &str) -> Vec<(Option<String>, String)> {
        let lines = packing::lines(text);
        let prefixes = Prefixes::of(&lines);
        let cut = lines
            .iter()
            .enumerate()
            .map(|(at, line)| match prefixes.cut(at, line) {
                Some(cut) => (cut.label, cut.line.text),
                None => (None, line.text.clone()),
            });
        cut.filter(|(_, text)| !text.is_empty()).collect()
    }

    #[test]
    fn words_before_rows_are_labels() {
        for (prefix, names) in [
            ("%: ", ["n1", "n2"]),
            ("%  | ", ["web1", "web-22"]),
            ("[%] out: ", ["n1", "n2"]),
            ("[pod/%/shell] ", ["n1", "n2"]),
            ("%\t", ["alpha", "beta"]),
            ("% ", ["alpha", "beta"]),
            ("%.example.com  ", ["n1", "n2"]),
            ("% - ", ["web-a", "db-b"]),
            ("%;", ["n1", "n2"]),
            ("%> ", ["n1", "n2"]),
            ("% -> ", ["n1", "n2"]),
            ("%=>", ["n1", "n2"]),
            ("% › shell ", ["pod-a", "pod-b"]),
            ("%: ", ["0", "1"]),
            ("[%]: ", ["fe80::1", "fe80::2"]),
            ("Nov  3 10:00:00 % root: ", ["n1", "n2"]),
            ("Nov  3 10:00:01 % cat[17]: ", ["n1", "n2"]),
            ("2026-11-03T10:00:00.1+00:00 % root: ", ["n1", "n2"]),
            ("<13>1 2026-11-03T10:00:00.1Z % root - - - ", ["n1", "n2"]),
            ("2026-11-03 10:00:00,12 % INFO ", ["n1", "n2"]),
            ("{host=\"%\"} ", ["n1", "n2"]),
            ("2026-11-03T10:00:00Z {app=\"x\",node=\"%\"}", ["n1", "n2"]),
        ] {
            let packed = |name: &str| {
                let before = prefix.replace('%', name);
                let lines = NAMES
                    .iter()
                    .map(|cache| format!("{before}{}\n", row(cache)));
                lines.collect::<String>()
            };
            let found = cut(&format!("{}{}", packed(names[0]), packed(names[1])));
            let is_logged = prefix.contains("cat[17]");
            for (at, (label, text)) in found.iter().enumerate() {
                assert_eq!(*text, row(NAMES[at % NAMES.len()]), "{prefix}");
                let name = names[at / NAMES.len()];
                let label = label
                    .as_deref()
                    .map(|label| label.trim_end_matches(".example.com"));
                assert!(label == Some(name) || is_logged, "{prefix} {label:?}");
            }
            // One alone comes off.
            let alone: Vec<String> = cut(&packed(names[0]))
                .into_iter()
                .map(|(_, text)| text)
                .collect();
            assert_eq!(alone, NAMES.map(row), "{prefix}");
        }
    }

    /// Two rows of two machines.
    #[test]
    fn the_same_cache_behind_two_words_shows_labels() {
        let two = format!("alpha {0}\nbeta {0}\n", row("dentry"));
        let labels: Vec<_> = cut(&two)
            .into_iter()
            .map(|(label, _)| label.unwrap())
            .collect();
        assert_eq!(labels, ["alpha", "beta"]);
    }

    #[test]
    fn names_of_caches_stay() {
        let rows =
            |names: &[&str]| -> String { names.iter().map(|name| row(name) + "\n").collect() };
        for text in [
            rows(&NAMES),
            rows(&["fuse request", "nfs4 callback", "dm io"]),
            rows(&["fuse a", "fuse b", "fuse c", "dentry"]),
            rows(&[
                "kmalloc-64(17:a.slice)",
                "kmalloc-64(18:b.slice)",
                "kmalloc-96(17:a.slice)",
            ]),
            "  16 16 100% 0.25K 1 16 4K dentry\n".repeat(3),
            "Node 0 MemTotal: 100 kB\nNode 0 MemFree: 50 kB\nNode 0 Slab: 10 kB\n".to_string(),
            "L1d cache: 32 kB\nL2 cache: 256 kB\n".to_string(),
            "I have Slab: 100 kB\n".to_string(),
            "1 two three 4 5 6 7\n1 two four 4 5 6 7\n".to_string(),
        ] {
            let whole: Vec<String> = text.lines().map(|line| line.trim().to_string()).collect();
            let found: Vec<String> = cut(&text).into_iter().map(|(_, text)| text).collect();
            assert_eq!(found, whole);
        }
    }
}
