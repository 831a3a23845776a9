//! Names of caches, kept by value in structures and reports.

use core::fmt;

/// Longest cache name in bytes; longer ones are cut.
pub const NAME_BYTES: usize = 48;

/// A cache's name, cut to [`NAME_BYTES`] at a character's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    bytes: [u8; NAME_BYTES],
    len: u8,
}

impl Name {
    pub(crate) fn new(name: &str) -> Self {
        let cut = name.floor_char_boundary(NAME_BYTES);
        let mut bytes = [0; NAME_BYTES];
        bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
        Self {
            bytes,
            len: cut as u8,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("?")
    }
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
    fn names_are_cut_at_a_characters_end() {
        let long = "\u{e9}".repeat(NAME_BYTES);
        assert_eq!(Name::new(&long).as_str(), "\u{e9}".repeat(NAME_BYTES / 2));
        let odd = format!("a{long}");
        assert_eq!(Name::new(&odd).as_str().len(), NAME_BYTES - 1);
        assert_eq!(Name::new("dentry").as_str(), "dentry");
    }
}
