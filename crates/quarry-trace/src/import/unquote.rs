//! Lines as their recorder wrote them, from what people paste.
//!
//! Terminals add escapes for colours, pages of the web no-break spaces, mails and forums `>` before each line, the
//! kernel's log its time.

use std::borrow::Cow;

use anstream::adapter::strip_str;
use memchr::{memchr, memchr2, memmem};

const ESCAPE: u8 = 0x1b;
const NO_BREAK_SPACE: char = '\u{a0}';
/// First byte of a no-break space, and of other letters.
const NO_BREAK_FIRST: u8 = 0xc2;
/// A text in UTF-8 may begin with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The line without escapes, without a log's time, without the marks of a quote and with blanks for no-break spaces.
pub(super) fn unquote(line: &[u8]) -> Cow<'_, [u8]> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if memchr2(ESCAPE, NO_BREAK_FIRST, line).is_none() {
        return Cow::Borrowed(without_log(without_marks(line)));
    }
    let text = String::from_utf8_lossy(line);
    let plain = strip_str(&text).to_string();
    let plain = plain.replace(NO_BREAK_SPACE, " ").into_bytes();
    Cow::Owned(without_log(without_marks(&plain)).to_vec())
}

/// The line behind the marks that it begins with: `> `, or `>> ` where a quote is quoted.
fn without_marks(line: &[u8]) -> &[u8] {
    let mut rest = line;
    while let Some(behind) = rest.strip_prefix(b">") {
        rest = behind.strip_prefix(b" ").unwrap_or(behind);
    }
    rest
}

/// The line behind the time of the kernel's log: `[   12.345678] `, or with a thread behind it, `[   12.345678][  T7] `.
/// A line of LTTng begins so, too, and has its fields in braces.
fn without_log(line: &[u8]) -> &[u8] {
    let behind = || {
        let (time, rest) = bracket(line)?;
        let (seconds, fraction) = time.split_at_checked(memchr(b'.', time)?)?;
        let is_time = is_number(seconds) && is_number(&fraction[1..]);
        let rest = match bracket(rest) {
            Some((caller, rest))
                if is_number(caller.strip_prefix(b"T").or(caller.strip_prefix(b"C"))?) =>
            {
                rest
            }
            Some(_) => return None,
            None => rest,
        };
        let text = rest.strip_prefix(b" ")?;
        (is_time && memmem::find(text, b": {").is_none()).then_some(text)
    };
    behind().unwrap_or(line)
}

/// The text in the brackets that a line begins with, and what follows.
fn bracket(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = line.strip_prefix(b"[")?;
    let (text, rest) = inside.split_at_checked(memchr(b']', inside)?)?;
    Some((text.trim_ascii_start(), &rest[1..]))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packings_come_off() {
        let line = "   bash-12 [001] 1.5: kfree: ptr=1";
        for packed in [
            line.to_string(),
            format!("> {line}"),
            format!("> > {line}"),
            format!(">> {line}"),
            format!("\u{1b}[1;31m{line}\u{1b}[0m"),
            format!("> \u{1b}[32m{line}\u{1b}[K"),
            format!("\u{1b}[32m> {line}"),
            line.replace(' ', "\u{a0}"),
            format!("\u{feff}{line}"),
            format!("[   12.345678] {line}"),
            format!("> [12.345] {line}"),
            format!("[   12.345678][    T7] {line}"),
            format!("\u{1b}[32m[   12.345678] \u{1b}[0m{line}"),
        ] {
            let found = unquote(packed.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), line, "{packed:?}");
        }
    }

    #[test]
    fn names_stay() {
        for line in [
            "   >x-1 [0] 1.5: é",
            "<...>-41112 [002]",
            "",
            "a > b",
            "[1336120561.5] (+0.1) host x: {",
            "[0] 1.0: x",
            "[1.5",
            "[1.5][x] a",
        ] {
            assert_eq!(&*unquote(line.as_bytes()), line.as_bytes(), "{line}");
        }
        // What is no UTF-8 stays as it is, unless escapes are in the line.
        assert_eq!(&*unquote(b"  \xff-1 [0]"), b"  \xff-1 [0]");
    }
}
