//! Ends of lines that are not where a program printed them: a terminal cut its rows at its width, or a form of the web made
//! one line of all.

use std::borrow::Cow;

use super::head::{self, Head};
use super::table::{self, FORMS};

/// Widths at which terminals cut rows: below the rows would have more parts, and no row is longer.
const WIDTHS: std::ops::Range<usize> = 40..256;
/// Parts that a cut row has.
const PARTS_MAX: usize = 4;
/// Blanks at the end of a cut line that may be lost.
const BLANKS_MAX: usize = 8;
/// Rows that show a width, and those among them that are none by themselves.
const ROWS_MIN: usize = 3;
const BROKEN_MIN: usize = 2;
/// Columns that terminals usually have: one row shows the width if no line is longer.
const USUAL: usize = 80;
/// Widths that are tried, those of most lines first, and lines of each that are looked at.
const TRIED: usize = 6;
const LOOKED_AT: usize = 24;
/// Longer lines may have a head in them: no row is as long.
const LONG: usize = 300;

/// A line without marks of quotes.
pub(super) struct Unwrapped<'t> {
    /// Its number, from 1 on.
    pub(super) number: usize,
    /// Number of marks of quotes before it.
    pub(super) depth: usize,
    pub(super) text: Cow<'t, str>,
}

/// Lines as a program printed them.
pub(super) fn lines<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<Unwrapped<'t>> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let (line, depth) = unquoted(line);
        let whole = |part| Unwrapped {
            number,
            depth,
            text: Cow::Borrowed(part),
        };
        match line.len() > LONG {
            true => found.extend(parted(line).map(whole)),
            false => found.push(whole(line)),
        }
    }
    match width(&found) {
        Some(width) => joined(found, width),
        None => found,
    }
}

/// A line without the marks of quotes, and their number: blanks behind them are of the line, and count for its width.
fn unquoted(mut line: &str) -> (&str, usize) {
    let mut depth = 0;
    while let Some(rest) = line.strip_prefix('>') {
        line = rest.strip_prefix(' ').unwrap_or(rest);
        depth += 1;
    }
    (line, depth)
}

/// The parts of a line that begin with a head.
fn parted(line: &str) -> impl Iterator<Item = &str> {
    let mut words = line.split_whitespace().peekable();
    let mut starts = vec![0];
    let place = |word: &str| word.as_ptr().addr() - line.as_ptr().addr();
    while let Some(word) = words.next() {
        let next = words.peek().copied();
        let begins = matches!(
            (word, next),
            ("Cache", Some("Num"))
                | ("OBJS", Some("ACTIVE"))
                | ("Active", Some("/"))
                | ("Minimum", Some("/"))
                | ("slabinfo", Some("-"))
        );
        if begins && place(word) > 0 {
            starts.push(place(word));
        }
    }
    starts.push(line.len());
    let parts: Vec<&str> = starts
        .windows(2)
        .map(|ends| &line[ends[0]..ends[1]])
        .collect();
    parts.into_iter()
}

/// The width at which rows are cut, if some are.
fn width(lines: &[Unwrapped<'_>]) -> Option<usize> {
    let mut counts = [0_usize; WIDTHS.end];
    let mut longest = 0;
    for Unwrapped { text: line, .. } in lines {
        longest = longest.max(line.len());
        if let Some(count) = counts.get_mut(line.len()) {
            *count += 1;
        }
    }
    let is_usual = |width: usize| width == USUAL && longest == USUAL;
    let mut widths: Vec<usize> = WIDTHS
        .filter(|width| counts[*width] >= BROKEN_MIN || counts[*width] > 0 && is_usual(*width))
        .collect();
    widths.sort_by_key(|width| std::cmp::Reverse(counts[*width]));
    widths.truncate(TRIED);
    widths.into_iter().find(|width| {
        // Rows that are none without their next line, and those that only have a longer name with it.
        let (mut broken, mut longer) = (0, 0);
        let of_width = (0..lines.len()).filter(|at| lines[*at].text.len() == *width);
        for (seen, at) in of_width.enumerate() {
            let has_name = lines
                .get(at + 1)
                .is_some_and(|next| is_part_of_name(&next.text));
            if (has_name || seen < LOOKED_AT) && parts(&lines[at..], *width) > 1 {
                match is_row(&lines[at].text) {
                    true => longer += 1,
                    false => broken += 1,
                }
            }
        }
        let all = broken + longer;
        broken >= BROKEN_MIN || all >= ROWS_MIN || all > 0 && is_usual(*width)
    })
}

/// The number of lines on which the row or the sum is that begins with the first; 1 if none is cut there.
fn parts(lines: &[Unwrapped<'_>], width: usize) -> usize {
    let first = &*lines[0].text;
    if !(width.saturating_sub(BLANKS_MAX)..=width).contains(&first.len()) {
        return 1;
    }
    let is_row_alone = is_row(first);
    let mut row = first.to_string();
    for (place, line) in lines.iter().enumerate().take(PARTS_MAX).skip(1) {
        let line = &*line.text;
        if line.trim().is_empty() || is_row(line) || is_head(line) || begins_row(line) {
            break;
        }
        let padding = (place * width).saturating_sub(row.len());
        row.extend(std::iter::repeat_n(' ', padding));
        row.push_str(line);
        // A name goes on: what follows is a part of one, and nothing else.
        let goes_on = !is_row_alone || is_part_of_name(line) && first.len() == width;
        if goes_on && (is_row(&row) || is_head(&row) && !is_head(first)) {
            return place + 1;
        }
        if line.len() + BLANKS_MAX < width {
            break;
        }
    }
    1
}

fn is_part_of_name(line: &str) -> bool {
    let line = line.trim_end();
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'(' | b')');
    !line.is_empty() && line.bytes().all(is_of_name)
}

fn is_row(line: &str) -> bool {
    let all: Vec<&str> = line.split_whitespace().collect();
    is_message(line) || table::rows_of_line(&all, &FORMS).any(|taken| taken == all.len())
}

fn begins_row(line: &str) -> bool {
    table::begins_slabtop(&line.split_whitespace().collect::<Vec<_>>())
}

fn is_head(line: &str) -> bool {
    matches!(head::of(line), Some(Head::Total(..) | Head::Begins(_)))
}

/// True for a message about a cache that could not grow, behind its time or not.
fn is_message(line: &str) -> bool {
    let ends = |mark: &str| {
        let end = line.rsplit_once(mark).map(|(_, end)| end.trim_end());
        end.is_some_and(|end| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()))
    };
    line.contains("cache: ") && ends("min order: ") || line.contains("slabs: ") && ends("free: ")
}

/// The number of lines on which a line is that is no row: one that fills the width goes on.
fn others(lines: &[Unwrapped<'_>], width: usize) -> usize {
    let is_table = |line: &str| is_row(line) || is_head(line);
    let goes_on = |at: &usize| {
        let next = lines.get(at + 1).map_or("", |next| &*next.text);
        let line = &*lines[*at].text;
        line.len() == width && !next.trim().is_empty() && !is_table(line) && !is_table(next)
    };
    1 + (0..PARTS_MAX).take_while(goes_on).count()
}

/// The lines with the parts of rows joined.
fn joined(lines: Vec<Unwrapped<'_>>, width: usize) -> Vec<Unwrapped<'_>> {
    let mut found = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        let count = match parts(&lines[at..], width) {
            1 => others(&lines[at..], width),
            count => count,
        };
        let first = &lines[at];
        let mut text = first.text.clone();
        for (place, line) in lines[at..at + count].iter().enumerate().skip(1) {
            let row = text.to_mut();
            let padding = (place * width).saturating_sub(row.len());
            row.extend(std::iter::repeat_n(' ', padding));
            row.push_str(&line.text);
        }
        found.push(Unwrapped { text, ..*first });
        at += count;
    }
    found
}
