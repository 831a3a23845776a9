//! Rows and heads at the ends of lines, whatever stands before them.

use crate::forms::{Form, crash, slabtool};

use super::table;

/// Words and parts of words that may stand before a row.
pub(super) const TOKENS_MAX: usize = 16;
/// Fields of `/proc/meminfo` that no other text has.
const SUMS: [&str; 10] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "KReclaimable",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "KernelStack",
];

/// The end of a line that is a row or a head.
pub(super) struct Tail<'l> {
    /// Place of its first byte.
    pub(super) at: usize,
    /// The cache of a row; none of a head.
    pub(super) name: Option<&'l str>,
    /// False if other text often looks like it.
    pub(super) is_sure: bool,
}

/// Bytes up to a mark within a word that parts it: `web1;dentry`. Groups of `kmalloc-64(1:a)` are of the name.
pub(super) fn marked(word: &str) -> Option<usize> {
    let is_mark = |c: char| matches!(c, ';' | ':' | '|' | ',' | '>' | '}' | ']' | '=' | '"');
    let begin = word.find(|c: char| is_mark(c) || c == '(')?;
    let end = begin + word[begin..].find(|c| !is_mark(c))?;
    let (before, behind) = word.split_at(end);
    let parts = before.contains(char::is_alphanumeric)
        && !before.ends_with("->")
        && behind.starts_with(|c: char| c.is_alphabetic() || c == '#');
    (parts && end > begin).then_some(end)
}

/// Bytes up to the last mark that parts a word.
fn glued(word: &str) -> usize {
    let mut end = 0;
    while let Some(more) = marked(&word[end..]) {
        end += more;
    }
    end
}

/// True for a line that ends with a row or a head, and with nothing that other text looks like.
pub(super) fn is_sure(line: &str) -> bool {
    tail(line).is_some_and(|tail| tail.is_sure)
}

/// The row or head that a line ends with.
pub(super) fn tail(line: &str) -> Option<Tail<'_>> {
    const WORDS_MAX: usize = 64;
    let words: Vec<&str> = line.split_whitespace().take(WORDS_MAX).collect();
    let place = |at: usize| words[at].as_ptr().addr() - line.as_ptr().addr();
    let row = |at: usize, name: usize, is_sure: bool| {
        // Before the name is a mark, or nothing.
        let glued = match at == name {
            true => glued(words[at]),
            false => 0,
        };
        Some(Tail {
            at: place(at) + glued,
            name: words.get(name).map(|name| &name[glued..]),
            is_sure,
        })
    };
    let is_number = |at: usize| words.get(at).is_some_and(|word| is_digits(word));
    let form = |form: Form, at: usize| {
        table::rows_of_line(&words[at..], &[form]).any(|taken| taken == words.len() - at)
    };
    if let Some(tunables) = words.iter().position(|word| *word == "tunables")
        && let Some(name) = tunables.checked_sub(7)
        && words[tunables - 1] == ":"
        && is_number(tunables - 2)
    {
        return row(name, name, true);
    }
    if let Some(at) = (0..words.len().min(TOKENS_MAX + 1)).find(|at| begins_head(&words[*at..])) {
        return Some(Tail {
            at: place(at) + glued(words[at]),
            name: None,
            is_sure: true,
        });
    }
    let last = *words.last()?;
    let end = words.len();
    let behind = |count: usize| end.checked_sub(count);
    if last == "kB" {
        let name = behind(3)?;
        let known = words[name][glued(words[name])..].strip_suffix(':')?;
        return row(name, name, true).filter(|_| SUMS.contains(&known));
    }
    if let Some(at) = (0..end.min(TOKENS_MAX)).find(|at| {
        is_number(*at)
            && is_number(at + 1)
            && words.get(at + 2).is_some_and(|word| word.ends_with('%'))
    }) && form(Form::Slabtop, at)
    {
        return row(at, end - 1, true);
    }
    if let Some(slabs) = words
        .iter()
        .position(|word| slabtool::slabs_of(word).is_some())
        && let Some(name) = slabs.checked_sub(4)
        && form(Form::SlabTool, name)
    {
        return row(name, name, true);
    }
    if let Some(function) = words.iter().position(|word| word.starts_with("func:"))
        && let Some(calls) = words[..function].iter().rposition(|word| is_digits(word))
        && calls > 0
    {
        return row(calls - 1, calls + 1, true);
    }
    if let Some(at) = words
        .iter()
        .take(TOKENS_MAX)
        .position(|word| crash::is_address(word))
        && form(Form::Crash, at)
    {
        let name = if is_number(at + 1) { end - 1 } else { at + 1 };
        return row(at, name, false);
    }
    if last.ends_with("KB") {
        let name = behind(3)?;
        return form(Form::Oom, name).then(|| row(name, name, false))?;
    }
    let name = behind(5)?;
    (is_digits(last) && !is_number(name) && form(Form::Vmstat, name))
        .then(|| row(name, name, false))?
}

fn is_digits(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// True for the first words of a head.
fn begins_head(words: &[&str]) -> bool {
    const SECOND: [&str; 13] = [
        "-",
        "name",
        "name<tab>",
        "/",
        "ACTIVE",
        "Num",
        "OBJSIZE",
        "NAME",
        "Objects",
        "Used",
        "Totals",
        "slab",
        "Unable",
    ];
    let second = words.get(1).copied().unwrap_or_default();
    if !SECOND.contains(&second) && words.get(2) != Some(&"zone") {
        return false;
    }
    let first = words[0];
    let first = &first[glued(first)..];
    matches!(
        (first, second),
        ("slabinfo" | "allocinfo", "-")
            | ("#", "name" | "name<tab>")
            | ("Active" | "Minimum", "/")
            | ("OBJS", "ACTIVE")
            | ("Cache", "Num")
            | ("CACHE", "OBJSIZE" | "NAME")
            | ("Name", "Objects" | "Used")
            | ("Slabcache", "Totals")
            | ("Unreclaimable", "slab")
            | ("SLUB:", "Unable")
    ) || first == "Node" && words.get(2) == Some(&"zone")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> String {
        format!("{name} 16 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0")
    }

    #[test]
    fn every_form_has_tails() {
        for (tail, name) in [
            (row("dentry"), Some("dentry")),
            (
                "16 16 100% 0.25K 1 16 4K dentry".to_string(),
                Some("dentry"),
            ),
            ("dentry 16 16 256 16".to_string(), Some("dentry")),
            ("dentry 40KB 44KB".to_string(), Some("dentry")),
            (
                "ffff88017fc07600 192 20 21 1 4k dentry".to_string(),
                Some("dentry"),
            ),
            (
                "dentry 40 192 20.4K 5/1/1 21 0 20 94 Aa".to_string(),
                Some("dentry"),
            ),
            ("4096 1 mm/slub.c:1 func:f".to_string(), Some("mm/slub.c:1")),
            ("Slab: 17 kB".to_string(), Some("Slab:")),
            ("slabinfo - version: 2.1".to_string(), None),
            (
                "OBJS ACTIVE USE OBJ SIZE SLABS OBJ/SLAB CACHE SIZE NAME".to_string(),
                None,
            ),
        ] {
            let line = format!("n1 - {tail}");
            let found = super::tail(&line).expect(&line);
            assert_eq!((&line[found.at..], found.name), (tail.as_str(), name));
        }
        assert!(tail("").is_none() && tail("a b c").is_none());
    }
}
