//! Ends of lines that are not where a program printed them: a terminal cut its rows at its width, or a form of the web made
//! one line of all.

use std::borrow::Cow;

use super::head::{self, Head};
use super::table::{self, FORMS, Words};

/// Widths at which terminals cut rows: below the rows would have more parts, and no row is longer.
const WIDTHS: std::ops::Range<usize> = 40..256;
/// Parts that a cut row has.
const PARTS_MAX: usize = 4;
/// Blanks at the end of a cut line that may be lost.
const BLANKS_MAX: usize = 8;
/// Rows that show a width.
const ROWS_MIN: usize = 3;
/// Widths that are tried, those of most lines first, and lines of each that are looked at.
const TRIED: usize = 6;
const LOOKED_AT: usize = 24;
/// Longer lines may have a head in them: no row is as long.
const LONG: usize = 300;

/// A line, with its number from 1 on.
pub(super) type Numbered<'t> = (usize, Cow<'t, str>);

/// Lines as a program printed them.
pub(super) fn lines<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<Numbered<'t>> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(lines) {
        match line.len() > LONG {
            true => found.extend(parted(line).map(|part| (number, Cow::Borrowed(part)))),
            false => found.push((number, Cow::Borrowed(line))),
        }
    }
    match width(&found) {
        Some(width) => joined(found, width),
        None => found,
    }
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
fn width(lines: &[Numbered<'_>]) -> Option<usize> {
    let mut counts = [0_usize; WIDTHS.end];
    for (_, line) in lines {
        if let Some(count) = counts.get_mut(line.len()) {
            *count += 1;
        }
    }
    let mut widths: Vec<usize> = WIDTHS.filter(|width| counts[*width] >= ROWS_MIN).collect();
    widths.sort_by_key(|width| std::cmp::Reverse(counts[*width]));
    widths.truncate(TRIED);
    widths.into_iter().find(|width| {
        let of_width = (0..lines.len()).filter(|at| lines[*at].1.len() == *width);
        let cut = of_width
            .take(LOOKED_AT)
            .filter(|at| parts(&lines[*at..], *width) > 1);
        cut.count() >= ROWS_MIN
    })
}

/// The number of lines on which the row or the sum is that begins with the first; 1 if none is cut there.
fn parts(lines: &[Numbered<'_>], width: usize) -> usize {
    let first = &*lines[0].1;
    if !(width.saturating_sub(BLANKS_MAX)..=width).contains(&first.len()) {
        return 1;
    }
    let is_row_alone = is_row(first);
    let mut row = first.to_string();
    for (place, (_, line)) in lines.iter().enumerate().take(PARTS_MAX).skip(1) {
        if line.trim().is_empty() {
            break;
        }
        let padding = (place * width).saturating_sub(row.len());
        row.extend(std::iter::repeat_n(' ', padding));
        row.push_str(line);
        // A name goes on: what follows is a part of one, and nothing else.
        let goes_on = !is_row_alone || is_part_of_name(line) && first.len() == width;
        if goes_on && (is_row(&row) || is_sum(&row) && !is_sum(first)) {
            return place + 1;
        }
        if line.len() + BLANKS_MAX < width || is_row(line) {
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
    FORMS.into_iter().any(|form| {
        let words = Words {
            all: &all,
            first: all.len(),
            is_headed: false,
        };
        table::row(form, &words).is_some_and(|(_, taken)| taken == all.len())
    })
}

fn is_sum(line: &str) -> bool {
    matches!(head::of(line), Some(Head::Total(..)))
}

/// The lines with the parts of rows joined.
fn joined(lines: Vec<Numbered<'_>>, width: usize) -> Vec<Numbered<'_>> {
    let mut found = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        let count = parts(&lines[at..], width);
        let (number, first) = &lines[at];
        let mut row = first.clone();
        for (place, (_, line)) in lines[at..at + count].iter().enumerate().skip(1) {
            let row = row.to_mut();
            let padding = (place * width).saturating_sub(row.len());
            row.extend(std::iter::repeat_n(' ', padding));
            row.push_str(line);
        }
        found.push((*number, row));
        at += count;
    }
    found
}
