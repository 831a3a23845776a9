//! Eras: which kernel's formulas a design follows.
//!
//! The geometry and the run-time rules of the kernel's allocators changed over twenty years while
//! the names stayed. An era is one kernel version whose numbers are known here; a design says
//! which eras it has.

use core::fmt;

/// One kernel version whose formulas are known. Ordered from old to new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Era {
    /// Linux 2.6.22 (2007): first SLUB.
    V2_6_22,
    /// Linux 2.6.24 (2008): kmalloc above half a page goes to the page allocator.
    V2_6_24,
    /// Linux 2.6.35 (2010): orders by CPU count; the base of SLUB with queues.
    V2_6_35,
    /// Linux 4.13 (2017): cpu partial lists counted in objects.
    V4_13,
    /// Linux 5.9 (2020): free pointer in the middle of the object.
    V5_9,
    /// Linux 6.1 (2022): cpu partial lists counted in slabs; last kernel with SLAB and SLOB.
    V6_1,
    /// Linux 6.18 (2025): last SLUB with cpu slabs.
    V6_18,
    /// Linux 7.0 (2026): sheaves instead of cpu slabs.
    V7_0,
}

/// A version that an era is nearest to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nearby {
    /// The version, as the kernel prints it.
    pub version: &'static str,
    /// What of it is known to differ from the era, or is not known: a clause for messages.
    pub differs: &'static str,
}

impl Era {
    /// Every era, oldest first.
    pub const ALL: [Era; 8] = [
        Era::V2_6_22,
        Era::V2_6_24,
        Era::V2_6_35,
        Era::V4_13,
        Era::V5_9,
        Era::V6_1,
        Era::V6_18,
        Era::V7_0,
    ];

    /// The version as the kernel prints it, for example `2.6.24`.
    pub const fn name(self) -> &'static str {
        match self {
            Era::V2_6_22 => "2.6.22",
            Era::V2_6_24 => "2.6.24",
            Era::V2_6_35 => "2.6.35",
            Era::V4_13 => "4.13",
            Era::V5_9 => "5.9",
            Era::V6_1 => "6.1",
            Era::V6_18 => "6.18",
            Era::V7_0 => "7.0",
        }
    }

    /// A version that is no era, and that this one is nearest to.
    pub const fn also(self) -> Option<Nearby> {
        let (version, differs) = match self {
            // Facts 1.3, 12.
            Era::V2_6_22 => (
                "2.6.23",
                "2.6.23 keeps slabs below 65535 objects by lower orders, 2.6.22 refuses such caches",
            ),
            // Facts 7.4, 8.1.
            Era::V4_13 => (
                "4.14",
                "4.14's receive page caches also refuse pages of another node, and its NUMA counters \
                 cost less",
            ),
            // Facts 0.3.
            Era::V5_9 => ("5.10", "of 5.10 only SLUB and page pools were read"),
            _ => return None,
        };
        Some(Nearby { version, differs })
    }

    /// The era with exactly this name.
    ///
    /// ```
    /// use quarry_core::era::Era;
    /// assert_eq!(Era::parse("5.9"), Some(Era::V5_9));
    /// assert_eq!(Era::parse("5.10"), None);
    /// ```
    pub fn parse(name: &str) -> Option<Era> {
        Era::ALL.into_iter().find(|era| era.name() == name)
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
