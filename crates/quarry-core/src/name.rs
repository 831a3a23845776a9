//! Names of caches, kept by value in structures and reports.

use core::fmt;

/// Longest cache name in bytes; longer ones are cut.
pub const NAME_BYTES: usize = 48;

/// A name by value, cut to [`NAME_BYTES`] at a character's end; in errors also what was given as a name or
/// value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_BYTES],
    len: u8,
}

impl Name {
    /// Copies a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::of(name)
    }

    /// The name of a thing, as it is displayed.
    #[must_use]
    pub(crate) fn of(thing: impl fmt::Display) -> Self {
        let mut name = Self {
            bytes: [0; NAME_BYTES],
            len: 0,
        };
        // An error says that the text was cut.
        let _ = fmt::Write::write_fmt(&mut name, format_args!("{thing}"));
        name
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("?")
    }
}

impl fmt::Write for Name {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = &mut self.bytes[usize::from(self.len)..];
        let cut = more.floor_char_boundary(room.len());
        room[..cut].copy_from_slice(&more.as_bytes()[..cut]);
        self.len += cut as u8;
        if cut == more.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Reason why a text is not a cache's name.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The name has no character.
    Empty,
    /// The name has more than [`NAME_BYTES`] bytes.
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// slabinfo and sysfs cannot show this character: a control character, a space or `/`.
    Character {
        /// The first such character.
        character: char,
        /// Its byte in the name.
        at: usize,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(
                f,
                "a cache's name is empty: give it 1 to {NAME_BYTES} bytes"
            ),
            Self::TooLong { bytes } => write!(
                f,
                "a cache's name has {bytes} bytes: shorten it to {NAME_BYTES}"
            ),
            Self::Character { character, at } => write!(
                f,
                "a cache's name has {character:?} at byte {at}: names are files in sysfs and words \
                 in slabinfo, so leave out spaces, '/' and control characters"
            ),
        }
    }
}

crate::error::debug_is_display!(NameError);

impl core::error::Error for NameError {}

/// Checks that slabinfo and sysfs can show a cache of this name. [`Heap`](crate::heap::Heap) takes any name,
/// as a replay must.
///
/// # Errors
///
/// [`NameError`], whose message says what to change.
pub fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let bad = |(_, character): &(usize, char)| {
        character.is_control() || character.is_whitespace() || matches!(character, '/')
    };
    if let Some((at, character)) = name.char_indices().find(bad) {
        return Err(NameError::Character { character, at });
    }
    if name.len() > NAME_BYTES {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    Ok(())
}

/// True if [`check`] takes a name, unless that has a space or control character beyond ASCII. For names that are known when
/// a program is compiled.
#[must_use]
pub const fn is_plain(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] <= b' ' || matches!(bytes[at], b'/' | 0x7f) {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty() && bytes.len() <= NAME_BYTES
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn plain_names_are_those_that_are_taken() {
        for byte in 0..=0x7f_u8 {
            let name = format!("a{}", char::from(byte));
            assert_eq!(is_plain(&name), check(&name).is_ok(), "{byte:#x}");
        }
        for bytes in [0, 1, NAME_BYTES, NAME_BYTES + 1] {
            let name = "a".repeat(bytes);
            assert_eq!(is_plain(&name), check(&name).is_ok(), "{bytes}");
        }
        assert!(is_plain("\u{e9}") && check("\u{e9}").is_ok());
    }

    #[test]
    fn names_are_cut_at_a_characters_end() {
        let long = "\u{e9}".repeat(NAME_BYTES);
        assert_eq!(Name::new(&long).as_str(), "\u{e9}".repeat(NAME_BYTES / 2));
        let odd = format!("a{long}");
        assert_eq!(Name::new(&odd).as_str().len(), NAME_BYTES - 1);
        assert_eq!(Name::new("dentry").as_str(), "dentry");
    }

    #[test]
    fn names_that_sysfs_cannot_show_are_refused() {
        assert_eq!(check(""), Err(NameError::Empty));
        assert_eq!(
            check(&"n".repeat(49)),
            Err(NameError::TooLong { bytes: 49 })
        );
        for (name, character, at) in [("a/b", '/', 1), ("\n", '\n', 0), ("two words", ' ', 3)] {
            assert_eq!(check(name), Err(NameError::Character { character, at }));
        }
        for name in ["dentry", "kmalloc-64", "\u{e9}tat", "a(b:c)"] {
            assert_eq!(check(name), Ok(()));
        }
    }
}
