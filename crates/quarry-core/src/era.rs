//! Eras: which kernel's rules a design follows.
//!
//! The geometry and the run-time rules of the kernel's allocators changed over twenty years while the
//! names stayed. An era is a release of Linux from 2.6.22 on; a rule that changed at a release is
//! a comparison with it (`era >= Era::V5_14`). A design says in which releases it existed.

use core::fmt;

/// Declares the releases, oldest first.
macro_rules! releases {
    ($($release:ident $name:literal,)*) => {
        /// A release of Linux. Ordered from old to new.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u8)]
        pub enum Era {
            $(#[doc = concat!("Linux ", $name, ".")] $release,)*
        }

        impl Era {
            /// Every release, oldest first.
            pub const ALL: [Era; [$($name),*].len()] = [$(Era::$release),*];

            /// The release as the kernel prints it, without the number of a stable update: `2.6.24`,
            /// `6.1`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Era::$release => $name,)*
                }
            }
        }
    };
}

releases! {
    V2_6_22 "2.6.22", V2_6_23 "2.6.23", V2_6_24 "2.6.24", V2_6_25 "2.6.25", V2_6_26 "2.6.26",
    V2_6_27 "2.6.27", V2_6_28 "2.6.28", V2_6_29 "2.6.29", V2_6_30 "2.6.30", V2_6_31 "2.6.31",
    V2_6_32 "2.6.32", V2_6_33 "2.6.33", V2_6_34 "2.6.34", V2_6_35 "2.6.35", V2_6_36 "2.6.36",
    V2_6_37 "2.6.37", V2_6_38 "2.6.38", V2_6_39 "2.6.39", V3_0 "3.0", V3_1 "3.1", V3_2 "3.2", V3_3
    "3.3", V3_4 "3.4", V3_5 "3.5", V3_6 "3.6", V3_7 "3.7", V3_8 "3.8", V3_9 "3.9", V3_10 "3.10",
    V3_11 "3.11", V3_12 "3.12", V3_13 "3.13", V3_14 "3.14", V3_15 "3.15", V3_16 "3.16", V3_17
    "3.17", V3_18 "3.18", V3_19 "3.19", V4_0 "4.0", V4_1 "4.1", V4_2 "4.2", V4_3 "4.3", V4_4 "4.4",
    V4_5 "4.5", V4_6 "4.6", V4_7 "4.7", V4_8 "4.8", V4_9 "4.9", V4_10 "4.10", V4_11 "4.11", V4_12
    "4.12", V4_13 "4.13", V4_14 "4.14", V4_15 "4.15", V4_16 "4.16", V4_17 "4.17", V4_18 "4.18",
    V4_19 "4.19", V4_20 "4.20", V5_0 "5.0", V5_1 "5.1", V5_2 "5.2", V5_3 "5.3", V5_4 "5.4", V5_5
    "5.5", V5_6 "5.6", V5_7 "5.7", V5_8 "5.8", V5_9 "5.9", V5_10 "5.10", V5_11 "5.11", V5_12 "5.12",
    V5_13 "5.13", V5_14 "5.14", V5_15 "5.15", V5_16 "5.16", V5_17 "5.17", V5_18 "5.18", V5_19
    "5.19", V6_0 "6.0", V6_1 "6.1", V6_2 "6.2", V6_3 "6.3", V6_4 "6.4", V6_5 "6.5", V6_6 "6.6", V6_7
    "6.7", V6_8 "6.8", V6_9 "6.9", V6_10 "6.10", V6_11 "6.11", V6_12 "6.12", V6_13 "6.13", V6_14
    "6.14", V6_15 "6.15", V6_16 "6.16", V6_17 "6.17", V6_18 "6.18", V6_19 "6.19", V7_0 "7.0", V7_1
    "7.1", V7_2 "7.2", V7_3 "7.3",
}

/// Releases for which there was no source. A rule that is equal in both neighbours holds there, too;
/// one that differs between them is placed by the kernel's history.
const UNREAD: [Era; 9] = [
    Era::V2_6_25,
    Era::V3_7,
    Era::V3_17,
    Era::V4_17,
    Era::V5_1,
    Era::V5_5,
    Era::V5_13,
    Era::V6_15,
    Era::V6_16,
];

impl Era {
    /// One release of each generation, oldest first: what tables show and tests go through where all
    /// releases would be too many.
    pub const REFERENCE: [Era; 8] = [
        Era::V2_6_22,
        Era::V2_6_24,
        Era::V2_6_35,
        Era::V4_13,
        Era::V5_9,
        Era::V6_1,
        Era::V6_18,
        Era::V7_0,
    ];

    /// The oldest release.
    pub const FIRST: Era = Era::ALL[0];
    /// The newest release.
    pub const LAST: Era = Era::ALL[Era::ALL.len() - 1];

    /// True if it is this release or a later one: `>=` for constants.
    #[must_use]
    pub const fn since(self, release: Era) -> bool {
        self as u8 >= release as u8
    }

    /// The release that a version belongs to, as `uname -r`, a tag or a package names it. `None` if
    /// it is older than [`Era::FIRST`], newer than [`Era::LAST`], or no version. A version has no blanks, nor
    /// marks between items of lists.
    ///
    /// ```
    /// use quarry_core::era::Era;
    /// assert_eq!(Era::parse("5.9"), Some(Era::V5_9));
    /// assert_eq!(Era::parse("v6.6.30"), Some(Era::V6_6));
    /// assert_eq!(Era::parse("6.1.0-50-amd64"), Some(Era::V6_1));
    /// assert_eq!(Era::parse("2.6.24.7"), Some(Era::V2_6_24));
    /// assert_eq!(Era::parse("8.0"), None);
    /// assert_eq!(Era::parse("6.12,7.3"), None);
    /// ```
    #[must_use]
    pub fn parse(version: &str) -> Option<Era> {
        let version = version.strip_prefix('v').unwrap_or(version);
        let is_of = |era: &Era| {
            let rest = version.strip_prefix(era.name());
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        };
        if version.contains(|c: char| ",;|/".contains(c) || c.is_whitespace()) {
            return None;
        }
        Era::ALL.into_iter().find(is_of)
    }

    /// Uncertainty about the release's rules, as a clause for messages. `None` for most releases.
    #[must_use]
    pub fn note(self) -> Option<&'static str> {
        match self {
            Era::V5_4 => Some(
                "late stable updates (5.4.195) put the free pointer of small red-zoned objects outside, as \
                 5.13 does; the rules are those of the release",
            ),
            Era::V5_10 => Some(
                "late stable updates (5.10.223) keep the free pointer where 5.13 does; the rules are \
                 those of the release",
            ),
            Era::V6_6 => Some(
                "late stable updates (6.6.87) cap what frees double and keep two lists of huge pages, \
                 as 6.7 and 6.10 do; the rules are those of the release",
            ),
            Era::V6_12 => Some(
                "late stable updates (6.12.107) drain page lists in portions and pick fallback blocks as \
                 6.19 and 6.15 do; the rules are those of the release",
            ),
            _ if UNREAD.contains(&self) => {
                Some("its source was not to be had; rules that its neighbours share hold")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_is_found_by_its_versions() {
        assert_eq!((Era::FIRST, Era::LAST), (Era::V2_6_22, Era::V7_3));
        assert!(Era::ALL.is_sorted() && Era::REFERENCE.is_sorted());
        for (place, era) in Era::ALL.into_iter().enumerate() {
            assert_eq!(era as usize, place);
            let name = era.name();
            let mut buffer = [0; 32];
            for (before, after) in [("", ""), ("v", ""), ("", ".17"), ("", "-rc3"), ("v", "+")] {
                let mut bytes = 0;
                for part in [before, name, after] {
                    buffer[bytes..bytes + part.len()].copy_from_slice(part.as_bytes());
                    bytes += part.len();
                }
                let version = core::str::from_utf8(&buffer[..bytes]).unwrap();
                assert_eq!(Era::parse(version), Some(era), "{version}");
            }
        }
    }

    #[test]
    fn what_is_no_release() {
        for version in [
            "", "v", "2.6", "2.6.18", "2.6.40", "3.20", "6.20", "7.4", "8.0", "new", "6.1x",
        ] {
            assert_eq!(Era::parse(version), None, "{version}");
        }
        assert_eq!(Era::V6_1.note(), None);
        assert!(Era::V6_16.note().unwrap().contains("not to be had"));
        for (era, update) in [
            (Era::V5_4, "5.4.195"),
            (Era::V5_10, "5.10.223"),
            (Era::V6_6, "6.6.87"),
            (Era::V6_12, "6.12.107"),
        ] {
            assert!(era.note().unwrap().contains(update), "{era}");
        }
    }
}
