//! `slub_debug`: which caches have debugging, as the kernel's boot parameter says it.

use core::fmt;

use crate::era::Era;
use crate::geometry::CacheFlags;

/// Longest setting in bytes.
pub const SLUB_DEBUG_BYTES_MAX: usize = 256;

/// A parsed `slub_debug` boot parameter.
///
/// ```text
///   slub_debug=FZ,kmalloc-*,dentry;U,inode_cache      blocks of letters and names  [5.9 and later]
///   slub_debug=FZ,kmalloc                             one block, one name prefix   [before]
/// ```
///
/// Letters: F consistency checks, Z red zones, P poison, U user tracking, T trace, A fail
/// injection (a flag that sysfs shows; Quarry injects none); O no debugging for caches whose smallest order it would raise, `-` nothing. A block
/// without letters means F, Z, P and U; a block without names means all caches. For a cache that
/// several blocks name the first counts; a block without names counts for those that none names.
///
/// ```
/// use quarry_core::debug::SlubDebug;
/// use quarry_core::era::Era;
/// use quarry_core::geometry::CacheFlags;
///
/// let setting = SlubDebug::parse("FZ,kmalloc-*;U,dentry", Era::V6_1).unwrap();
/// assert!(setting.flags_for("kmalloc-64").contains(CacheFlags::RED_ZONE));
/// assert_eq!(setting.flags_for("dentry"), CacheFlags::STORE_USER);
/// assert_eq!(setting.flags_for("inode_cache"), CacheFlags::NONE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlubDebug {
    text: [u8; SLUB_DEBUG_BYTES_MAX],
    len: usize,
    /// Names are prefixes.
    prefixes: bool,
    keep_order: bool,
}

/// Error in a `slub_debug` setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SlubDebugError {
    /// A letter that no era has.
    Letter(char),
    /// A letter that the era does not have.
    NotInEra(char, Era),
    /// A `-` together with letters.
    DashAndLetters,
    /// More than one block or name, in an era that takes one.
    OneName(Era),
    /// A `*` in an era without, or not at the end of a name.
    Star,
    /// Nothing between two commas.
    EmptyName,
    /// Nothing between two semicolons: all defaults for all caches, which is rarely meant.
    EmptyBlock,
    /// More than [`SLUB_DEBUG_BYTES_MAX`] bytes.
    TooLong(usize),
}

impl fmt::Display for SlubDebugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Letter(letter) => write!(
                f,
                "slub_debug has no letter {letter:?}; letters are F, Z, P, U, T, A, O and -"
            ),
            Self::NotInEra(letter, era) => write!(
                f,
                "slub_debug has no letter {letter:?} in {era}; it came with 2.6.35"
            ),
            Self::DashAndLetters => {
                f.write_str("slub_debug: - means no debugging and stands alone, without letters")
            }
            Self::OneName(era) => write!(
                f,
                "slub_debug of {era} takes letters and one name prefix, such as FZ,kmalloc; several \
                 blocks and names came with later eras"
            ),
            Self::Star => f.write_str(
                "slub_debug: * stands at the end of a name, as in FZ,kmalloc-*; before 5.9 names \
                 are prefixes without it",
            ),
            Self::EmptyName => f.write_str("slub_debug: there is no name after a comma"),
            Self::EmptyBlock => f.write_str(
                "slub_debug: there is nothing beside a semicolon; write FZPU for all caches",
            ),
            Self::TooLong(bytes) => write!(
                f,
                "slub_debug is {bytes} bytes long; at most {SLUB_DEBUG_BYTES_MAX} are kept"
            ),
        }
    }
}

crate::error::debug_is_display!(SlubDebugError);

impl core::error::Error for SlubDebugError {}

/// Eras from this one on take several blocks and names.
const BLOCKS_SINCE: Era = Era::V5_9;
/// Eras from this one on have the letters A and O.
const A_AND_O_SINCE: Era = Era::V2_6_35;

impl SlubDebug {
    /// Parses what follows `slub_debug=`; the empty string is all defaults for all caches.
    ///
    /// # Errors
    ///
    /// [`SlubDebugError`].
    pub fn parse(text: &str, era: Era) -> Result<Self, SlubDebugError> {
        let mut kept = [0; SLUB_DEBUG_BYTES_MAX];
        let Some(room) = kept.get_mut(..text.len()) else {
            return Err(SlubDebugError::TooLong(text.len()));
        };
        room.copy_from_slice(text.as_bytes());
        let prefixes = era < BLOCKS_SINCE;
        if prefixes && (text.contains(';') || text.matches(',').count() > 1) {
            return Err(SlubDebugError::OneName(era));
        }
        let mut keep_order = false;
        for block in text.split(';') {
            if block.is_empty() && !text.is_empty() {
                return Err(SlubDebugError::EmptyBlock);
            }
            let (letters, names) = split(block);
            keep_order |= check_letters(letters, era)?;
            for name in names.into_iter().flat_map(|names| names.split(',')) {
                if name.is_empty() {
                    return Err(SlubDebugError::EmptyName);
                }
                let body = name.strip_suffix('*').filter(|_| !prefixes).unwrap_or(name);
                if body.contains('*') {
                    return Err(SlubDebugError::Star);
                }
            }
        }
        Ok(Self {
            text: kept,
            len: text.len(),
            prefixes,
            keep_order,
        })
    }

    /// The setting as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }

    /// True if caches whose smallest order debugging would raise have none (the letter O).
    #[must_use]
    pub const fn keeps_order(&self) -> bool {
        self.keep_order
    }

    /// The debug flags of a cache of this name.
    #[must_use]
    pub fn flags_for(&self, name: &str) -> CacheFlags {
        let blocks = || self.as_str().split(';').map(split);
        let named = blocks().find(|(_, names)| {
            names.is_some_and(|names| names.split(',').any(|pattern| self.matches(pattern, name)))
        });
        let block = named.or_else(|| blocks().find(|(_, names)| names.is_none()));
        block.map_or(CacheFlags::NONE, |(letters, _)| flags_of(letters))
    }

    /// Names and patterns of all blocks, as they were written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        let named = self.as_str().split(';').filter_map(|block| split(block).1);
        named.flat_map(|names| names.split(','))
    }

    /// True if a pattern of the setting means a cache of this name.
    #[must_use]
    pub fn matches(&self, pattern: &str, name: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None if self.prefixes => name.starts_with(pattern),
            None => name == pattern,
        }
    }
}

/// A block's letters, and its names if it has any.
fn split(block: &str) -> (&str, Option<&str>) {
    match block.split_once(',') {
        Some((letters, names)) => (letters, Some(names)),
        None => (block, None),
    }
}

fn flags_of(letters: &str) -> CacheFlags {
    if letters.is_empty() {
        return CacheFlags::DEBUG_DEFAULT;
    }
    let mut flags = CacheFlags::NONE;
    for letter in letters.chars() {
        let known = CacheFlags::DEBUG_LETTERS
            .iter()
            .find(|(name, _)| name.chars().eq([letter.to_ascii_uppercase()]));
        flags |= known.map_or(CacheFlags::NONE, |(_, flag)| *flag);
    }
    flags
}

/// Checks a block's letters. Returns true if they have an O.
fn check_letters(letters: &str, era: Era) -> Result<bool, SlubDebugError> {
    if letters == "-" {
        return Ok(false);
    }
    let mut keeps_order = false;
    for letter in letters.chars() {
        match letter.to_ascii_uppercase() {
            'A' | 'O' if era < A_AND_O_SINCE => {
                return Err(SlubDebugError::NotInEra(letter, era));
            }
            'O' => keeps_order = true,
            'F' | 'Z' | 'P' | 'U' | 'T' | 'A' => {}
            '-' => return Err(SlubDebugError::DashAndLetters),
            _ => return Err(SlubDebugError::Letter(letter)),
        }
    }
    Ok(keeps_order)
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use super::*;

    fn flags(text: &str, era: Era, name: &str) -> CacheFlags {
        SlubDebug::parse(text, era).unwrap().flags_for(name)
    }

    #[test]
    fn blocks_and_names() {
        let era = Era::V6_18;
        let f = CacheFlags::CONSISTENCY;
        assert_eq!(flags("", era, "any"), CacheFlags::DEBUG_DEFAULT);
        assert_eq!(flags("-", era, "any"), CacheFlags::NONE);
        assert_eq!(flags("F", era, "any"), f);
        assert_eq!(flags("f", era, "any"), f);
        assert_eq!(flags(",dentry", era, "dentry"), CacheFlags::DEBUG_DEFAULT);
        assert_eq!(flags(",dentry", era, "dentry2"), CacheFlags::NONE);
        let text = "FZ,kmalloc-*,skb;U,dentry;P";
        assert_eq!(flags(text, era, "kmalloc-8"), f | CacheFlags::RED_ZONE);
        assert_eq!(flags(text, era, "skb"), f | CacheFlags::RED_ZONE);
        assert_eq!(flags(text, era, "dentry"), CacheFlags::STORE_USER);
        assert_eq!(flags(text, era, "inode"), CacheFlags::POISON);
        assert_eq!(
            flags("TA,x", era, "x"),
            CacheFlags::TRACE | CacheFlags::FAILSLAB
        );
        // The first block that names the cache, wherever the one without names is.
        assert_eq!(flags("F;Z,a;P,a*", era, "a"), CacheFlags::RED_ZONE);
        assert_eq!(flags("-,a;F", era, "a"), CacheFlags::NONE);
        let setting = SlubDebug::parse("OFZPU", era).unwrap();
        assert!(setting.keeps_order());
        assert_eq!(setting.flags_for("a"), CacheFlags::DEBUG_DEFAULT);
        assert_eq!(setting.as_str(), "OFZPU");
    }

    #[test]
    fn old_eras_take_one_prefix() {
        for era in [Era::V2_6_22, Era::V2_6_24, Era::V2_6_35] {
            assert_eq!(
                flags("F,kmalloc", era, "kmalloc-8"),
                CacheFlags::CONSISTENCY
            );
            assert_eq!(flags("F,kmalloc", era, "skb"), CacheFlags::NONE);
            let refused = |text| SlubDebug::parse(text, era).unwrap_err();
            assert_eq!(refused("F,a,b"), SlubDebugError::OneName(era));
            assert_eq!(refused("F;U"), SlubDebugError::OneName(era));
            assert_eq!(refused("F,kmalloc-*"), SlubDebugError::Star);
        }
        let old = |text| SlubDebug::parse(text, Era::V2_6_24).map(|_| ());
        assert_eq!(old("A"), Err(SlubDebugError::NotInEra('A', Era::V2_6_24)));
        assert_eq!(old("O"), Err(SlubDebugError::NotInEra('O', Era::V2_6_24)));
        assert_eq!(old("FZPUT"), Ok(()));
        assert!(SlubDebug::parse("AO", Era::V2_6_35).is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        let message = |text: &str| {
            let refused = SlubDebug::parse(text, Era::V6_18).unwrap_err();
            refused.to_string()
        };
        assert!(message("FX").contains("no letter 'X'; letters are F"));
        assert!(message("F-").contains("stands alone"));
        assert!(message("F,a*b").contains("at the end of a name"));
        assert!(message("F,a,,b").contains("no name after a comma"));
        assert!(message("F,").contains("no name after a comma"));
        assert!(message("F,a;").contains("nothing beside a semicolon"));
        assert!(message(&format!("F,{}", "n".repeat(300))).contains("302 bytes long"));
    }
}
