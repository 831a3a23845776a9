//! Lines as their recorder wrote them, from what people paste.
//!
//! Terminals add escapes for colours, pages of the web no-break spaces, mails and forums `>` before each line.

use std::borrow::Cow;

use anstream::adapter::strip_str;
use memchr::memchr2;

const ESCAPE: u8 = 0x1b;
const NO_BREAK_SPACE: char = '\u{a0}';
/// First byte of a no-break space, and of other letters.
const NO_BREAK_FIRST: u8 = 0xc2;
/// A text in UTF-8 may begin with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The line without escapes, without the marks of a quote and with blanks for no-break spaces.
pub(super) fn unquote(line: &[u8]) -> Cow<'_, [u8]> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if memchr2(ESCAPE, NO_BREAK_FIRST, line).is_none() {
        return Cow::Borrowed(without_marks(line));
    }
    let text = String::from_utf8_lossy(line);
    let plain = strip_str(&text).to_string();
    let plain = plain.replace(NO_BREAK_SPACE, " ").into_bytes();
    Cow::Owned(without_marks(&plain).to_vec())
}

/// The line behind the marks that it begins with: `> `, or `>> ` where a quote is quoted.
fn without_marks(line: &[u8]) -> &[u8] {
    let mut rest = line;
    while let Some(behind) = rest.strip_prefix(b">") {
        rest = behind.strip_prefix(b" ").unwrap_or(behind);
    }
    rest
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
        ] {
            let found = unquote(packed.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), line, "{packed:?}");
        }
    }

    #[test]
    fn names_stay() {
        for line in ["   >x-1 [0] 1.5: é", "<...>-41112 [002]", "", "a > b"] {
            assert_eq!(&*unquote(line.as_bytes()), line.as_bytes(), "{line}");
        }
        // What is no UTF-8 stays as it is, unless escapes are in the line.
        assert_eq!(&*unquote(b"  \xff-1 [0]"), b"  \xff-1 [0]");
    }
}
