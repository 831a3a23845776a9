//! Text at the output's width, and what must not act on a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use comfy_table::Table;

/// Width of a table if neither `COLUMNS` nor a terminal gives one.
const WIDTH_DEFAULT: u16 = 80;

/// Columns of the output: `COLUMNS`, else the terminal's.
pub(super) fn width() -> u16 {
    known_width().unwrap_or(WIDTH_DEFAULT).max(40)
}

/// Columns by `COLUMNS` or the terminal; `None` for a file or a pipe, whose reader may have any number.
pub(crate) fn known_width() -> Option<u16> {
    let from_env = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let from_terminal = || {
        let terminal = console_width()?;
        io::stdout().is_terminal().then_some(terminal)
    };
    from_env.or_else(from_terminal)
}

/// The terminal's width as the table library sees it.
fn console_width() -> Option<u16> {
    Table::new().width()
}

/// Breaks a sentence at words into lines as wide as the output, each indented as the first.
pub(crate) fn wrap(text: &str) -> String {
    let indent = text.len() - text.trim_start().len();
    let width = usize::from(width()).saturating_sub(indent);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in words(text) {
        let after = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && after > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.push(line);
    let indent = &text[..indent];
    format!("{indent}{}", lines.join(&format!("\n{indent}")))
}

/// Words of a text; a number keeps its groups of digits and its unit.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "%", "CPUs"];
    let number = |word: &str| {
        word.chars()
            .all(|c| c.is_ascii_digit() || "+-.".contains(c))
    };
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', '.', ':', ')']);
        let digits = bare.len() == 3 && bare.chars().all(|c| c.is_ascii_digit());
        match words.last_mut() {
            Some(last)
                if (digits || UNITS.contains(&bare))
                    && number(last.rsplit(['(', ' ']).next().unwrap_or("a")) =>
            {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_string()),
        }
    }
    words
}

/// A line that fits the output. Rows of tables, whose cells have spaces between them, stay as they are.
pub(super) fn fitting(line: &str) -> Cow<'_, str> {
    let row = line.trim_start().contains("   ");
    match line.chars().count() > usize::from(width()) && !row {
        true => Cow::Owned(wrap(line)),
        false => Cow::Borrowed(line),
    }
}

/// At most this many letters of a text; dots stand for the rest.
pub(crate) fn shortened(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_string();
    }
    let kept = text.chars().take(chars.saturating_sub(3));
    format!("{}...", kept.collect::<String>())
}

/// The text with escapes in place of what changes a terminal: control characters, and those that change
/// the direction of writing. A trace's names may hold anything.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let acts =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        assert_eq!(visible("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(visible("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(visible("plain ä"), "plain ä");
    }
}
