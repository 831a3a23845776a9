//! The measures that a heap takes, and their names.

use core::fmt;

use crate::name::Name;

/// Bytes behind each object of a hardened cache: the design's link, and the secret word ([`crate::harden`]).
pub(crate) const TRAILER: u32 = 16;

/// Measures against mistakes with memory, each to be had alone: a set of them.
///
/// | name | constant | what it does |
/// |---|---|---|
/// | `check` | [`CHECK`](Self::CHECK) | refuses frees of free objects, and of inner, foreign and unaligned addresses; part of all but `guard` |
/// | `sizes` | [`SIZES`](Self::SIZES) | compares the size that a free names with that of the allocation |
/// | `canary` | [`CANARY`](Self::CANARY) | looks at a free for writes behind the request (16 bytes) and in front of the object (8 bytes) |
/// | `fill` | [`FILL`](Self::FILL) | fills freed objects with 0x6b |
/// | `reuse` | [`REUSE`](Self::REUSE) | looks at an allocation for writes to the free object (its first and last KiB); brings `fill` |
/// | `delay` | [`DELAY`](Self::DELAY) | keeps freed objects on their CPU, 32 of a cache or 4 KiB (4 at least), and throws one out by chance at each free |
/// | `guard` | [`GUARD`](Self::GUARD) | puts pages that cannot be accessed around mappings of their own, and unmaps these when they are freed |
///
/// # Examples
///
/// ```
/// use quarry_core::geometry::Hardening;
///
/// assert_eq!(Hardening::parse("1")?, Hardening::ALL);
/// assert_eq!(Hardening::parse("fill,guard")?, Hardening::FILL | Hardening::GUARD);
/// assert!(Hardening::parse("fil").unwrap_err().to_string().contains("there are check, sizes"));
/// # Ok::<(), quarry_core::geometry::HardeningError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Hardening(u8);

impl Hardening {
    /// No measure.
    pub const NONE: Self = Self(0);
    /// Refuses frees of all that is no object in use.
    pub const CHECK: Self = Self(1);
    /// Compares the size that a free names.
    pub const SIZES: Self = Self(1 << 1);
    /// Finds overruns at the free.
    pub const CANARY: Self = Self(1 << 2);
    /// Fills freed objects.
    pub const FILL: Self = Self(1 << 3);
    /// Finds writes to free objects.
    pub const REUSE: Self = Self(1 << 4 | 1 << 3);
    /// Delays reuse, by chance.
    pub const DELAY: Self = Self(1 << 5);
    /// Guard pages around large blocks.
    pub const GUARD: Self = Self(1 << 6);
    /// All of them.
    pub const ALL: Self = Self(0x7f);

    /// The measures by their names.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("check", Self::CHECK),
        ("sizes", Self::SIZES),
        ("canary", Self::CANARY),
        ("fill", Self::FILL),
        ("reuse", Self::REUSE),
        ("delay", Self::DELAY),
        ("guard", Self::GUARD),
    ];

    /// The measures of a list such as `check,fill`; `1` is all of them, `0` and the empty string none.
    ///
    /// # Errors
    ///
    /// [`HardeningError`] with the first name that is none.
    pub fn parse(list: &str) -> Result<Self, HardeningError> {
        match list {
            "1" => return Ok(Self::ALL),
            "" | "0" => return Ok(Self::NONE),
            _ => {}
        }
        let mut all = Self::NONE;
        for name in list.split(',').map(str::trim) {
            let known = Self::NAMES.iter().find(|(known, _)| *known == name);
            all = all | known.ok_or(HardeningError(Name::new(name)))?.1;
        }
        Ok(all)
    }

    /// True if every measure of `other` is among these.
    #[must_use]
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if caches are hardened: by any measure but guard pages.
    #[must_use]
    #[inline(always)]
    pub const fn caches(self) -> bool {
        self.0 & !Self::GUARD.0 != 0
    }
}

impl core::ops::BitOr for Hardening {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Hardening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(_, one)| self.contains(*one));
        f.write_str("Hardening(")?;
        for (at, (name, _)) in names.enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { "," })?;
        }
        f.write_str(")")
    }
}

/// A measure that does not exist. Its message lists those that do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HardeningError(Name);

impl fmt::Display for HardeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no measure is named {:?}; there are", self.0.as_str())?;
        for (at, (name, _)) in Hardening::NAMES.iter().enumerate() {
            write!(f, "{} {name}", if at == 0 { "" } else { "," })?;
        }
        f.write_str(", and 1 for all")
    }
}

crate::error::debug_is_display!(HardeningError);

impl core::error::Error for HardeningError {}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use super::*;

    #[test]
    fn names_are_read_and_shown() {
        for (name, one) in Hardening::NAMES {
            assert_eq!(Hardening::parse(name), Ok(one));
            assert_eq!(one.caches(), name != "guard");
        }
        assert_eq!(Hardening::parse(""), Ok(Hardening::NONE));
        let all = Hardening::NAMES.map(|(name, _)| name).join(",");
        assert_eq!(Hardening::parse(&all), Ok(Hardening::ALL));
        assert_eq!(format!("{:?}", Hardening::REUSE), "Hardening(fill,reuse)");
        let error = Hardening::parse("check,all").unwrap_err().to_string();
        assert!(
            error.starts_with("no measure is named \"all\"; there are check, sizes,"),
            "{error}"
        );
    }
}
