//! Parts of the texts of `/proc` about pages: lines, numbers, named counters.

use std::fmt::Display;
use std::iter::Peekable;
use std::str::{FromStr, Lines as StrLines};

use serde::{Serialize, Serializer};

use super::file::ReportError;

/// Named counters in the order of the report; names differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// The counter of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut counters = self.iter();
        counters.find_map(|(known, value)| (known == name).then_some(value))
    }

    /// All counters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a line `name value`, or passes over a number alone. 4.14.x and 4.17 to 4.19 print a counter of the
    /// kernel's own, `NR_INDIRECTLY_RECLAIMABLE_BYTES`, without a name.
    pub(super) fn add_named(&mut self, line: &str) -> Result<(), String> {
        match number::<u64>("a counter", line) {
            Ok(_) => Ok(()),
            Err(_) => self.add(line),
        }
    }

    /// Adds a line `name value`.
    pub(super) fn add(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!(
                "a name and a number are expected, not {}",
                quoted(line)
            ));
        };
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if !name.bytes().all(is_name) {
            return Err(format!("{} is not the name of a counter", quoted(name)));
        }
        if self.get(name).is_some() {
            return Err(format!("{name} stands there twice"));
        }
        self.0.push((name.to_string(), number(name, value)?));
        Ok(())
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// A line in quotes for messages; of a long one, as a file of another kind may be, the beginning.
pub(super) fn quoted(line: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &line[..end]),
        None => format!("{line:?}"),
    }
}

/// A number of this name.
pub(super) fn number<N: FromStr>(name: impl Display, word: &str) -> Result<N, String> {
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    let parsed = word.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| format!("{name}: {} is not a number from 0 on", quoted(word)))
}

/// `Node 0, zone   Normal` at the start of a line, and what follows the name.
pub(super) fn zone_and_rest(line: &str) -> Result<(u32, &str, &str), String> {
    let expected = || format!("\"Node 0, zone ...\" is expected, not {}", quoted(line));
    let rest = line.strip_prefix("Node ").ok_or_else(expected)?;
    let (node, rest) = rest.split_once(", zone ").ok_or_else(expected)?;
    let rest = rest.trim_start();
    let end = rest.find([' ', ',']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if name.is_empty() {
        return Err(expected());
    }
    Ok((number("node", node.trim_start())?, name, rest))
}

/// `Node 0, zone   Normal` and nothing behind it.
pub(super) fn zone_of(line: &str) -> Result<(u32, &str), String> {
    match zone_and_rest(line)? {
        (node, name, "") => Ok((node, name)),
        (_, name, rest) => Err(format!("{} follows the name of zone {name}", quoted(rest))),
    }
}

/// The lines of a text without the blanks around them, and where one is.
pub(super) struct Lines<'t> {
    file: &'t str,
    lines: Peekable<StrLines<'t>>,
    /// Lines taken so far.
    taken: usize,
}

impl<'t> Lines<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            lines: text.trim_end().lines().peekable(),
            taken: 0,
        }
    }

    /// The next line, which stays there.
    pub(super) fn peek(&mut self) -> Option<&'t str> {
        self.lines.peek().map(|line| line.trim())
    }

    /// The next line.
    pub(super) fn next(&mut self) -> Option<&'t str> {
        self.taken += 1;
        self.lines.next().map(str::trim)
    }

    /// The next line if it is of this kind.
    pub(super) fn next_if(&mut self, is: impl FnOnce(&str) -> bool) -> Option<&'t str> {
        if is(self.peek()?) { self.next() } else { None }
    }

    /// The number behind `name` in the next line.
    pub(super) fn value(&mut self, name: &str) -> Result<u64, String> {
        let line = self.next();
        let value = line.and_then(|line| line.strip_prefix(name));
        match (value, line) {
            (Some(value), _) => number(name, value.trim()),
            (None, Some(line)) => Err(format!("\"{name}\" is expected, not {}", quoted(line))),
            (None, None) => Err(format!("the text ends where \"{name}\" is expected")),
        }
    }

    /// Parses a part; what is wrong gets the place.
    pub(super) fn within<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, ReportError> {
        parse(self).map_err(|what| {
            let place = format!("line {}", self.taken.max(1));
            ReportError::bad(self.file, place, what)
        })
    }
}
