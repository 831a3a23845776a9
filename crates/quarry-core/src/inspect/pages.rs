//! A page allocator in the kernel's formats: the texts of `/proc/buddyinfo`, `/proc/pagetypeinfo`,
//! `/proc/zoneinfo` and `/proc/vmstat`.
//!
//! The layouts are those that kernels 6.1 and 6.18 were recorded with; older eras have 6.1's without
//! what came later ([`PageTexts`]).
//!
//! # Departures from the kernel
//!
//! * Zones that have no pages are not shown, nor are the nodes' own counters.
//! * `protection` has five zone types from 6.1 on, as recorded on x86-64; kernels of other machines
//!   show those that they have. Before, for want of a recording, it has the three that are here.
//! * Counters that would always be 0 here are left out: of reclaim, of the page cache, of
//!   interleaving. The migrate types of [`PageTexts::migratetypes`] are all shown.
//! * Every counter is exact when it is read. `vm stats threshold` is what a kernel would collect
//!   on a CPU before it adds to a zone's counter.
//! * A CPU that is busy is left out of the counters and of `pagesets`.

mod buddyinfo;
mod vmstat;
mod zoneinfo;

use core::fmt::{self, Write};

pub use buddyinfo::{BlockCounts, FreeBlocks, FreeBlocksOfType, PagetypeinfoHeader};
pub use zoneinfo::{PagesetRow, ZoneinfoZone};

use crate::era::Era;
use crate::machine::Machine;
use crate::page::{BlockType, PageAllocator};

/// A file of `/proc` about pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFile {
    /// Free blocks by zone and order.
    Buddyinfo,
    /// The same by migrate type, and pageblocks by migrate type.
    Pagetypeinfo,
    /// Watermarks, sizes and counters of every zone, and every CPU's page lists.
    Zoneinfo,
    /// The counters of all zones together.
    Vmstat,
}

impl PageFile {
    /// All files.
    pub const ALL: [PageFile; 4] = [
        Self::Buddyinfo,
        Self::Pagetypeinfo,
        Self::Zoneinfo,
        Self::Vmstat,
    ];

    /// The file's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buddyinfo => "buddyinfo",
            Self::Pagetypeinfo => "pagetypeinfo",
            Self::Zoneinfo => "zoneinfo",
            Self::Vmstat => "vmstat",
        }
    }

    /// True if kernels of this era have the file.
    #[must_use]
    pub fn exists(self, era: Era) -> bool {
        self != Self::Pagetypeinfo || !page_texts(era).migratetypes.is_empty()
    }
}

/// A migrate type as pagetypeinfo shows it: its name, and which it is here; types that are none have
/// no pages.
pub type ShownType = (&'static str, Option<BlockType>);

/// Differences between the texts of eras.
#[derive(Clone, Copy, Debug)]
pub struct PageTexts {
    /// First era with these texts.
    pub from: Era,
    /// Migrate types in the order of pagetypeinfo; none if there are no types.
    pub migratetypes: &'static [ShownType],
    /// zoneinfo has managed pages.
    pub managed: bool,
    /// zoneinfo has the boost of the watermarks and the pages of the contiguous memory allocator.
    pub boost_and_cma: bool,
    /// Number of zone types above Normal that zoneinfo's `protection` has. They have no pages here:
    /// Movable and Device.
    pub types_above_normal: usize,
    /// zoneinfo has the promo watermark, the range of `high`, and free pages in whole pageblocks.
    pub tuning: bool,
}

const UNMOVABLE: ShownType = ("Unmovable", Some(BlockType::UNMOVABLE));
const MOVABLE: ShownType = ("Movable", Some(BlockType::MOVABLE));
const RECLAIMABLE: ShownType = ("Reclaimable", Some(BlockType::RECLAIMABLE));

/// The texts by era, oldest first. Recorded are those of 6.1 and 6.18. The migrate types of 2.6.24
/// are known, those of 4.13 and 5.9 taken to be 6.1's.
pub static PAGE_TEXTS: [PageTexts; 5] = [V2_6_22, V2_6_24, V4_13, V6_1, V6_18];

/// Movable and Device.
const TYPES_ABOVE_NORMAL: usize = 2;

/// Migrate types that an era shows at most.
const SHOWN_TYPES: usize = 5;

const V2_6_22: PageTexts = PageTexts {
    from: Era::V2_6_22,
    migratetypes: &[],
    managed: false,
    boost_and_cma: false,
    types_above_normal: 0,
    tuning: false,
};

const V2_6_24: PageTexts = PageTexts {
    from: Era::V2_6_24,
    migratetypes: &[
        UNMOVABLE,
        RECLAIMABLE,
        MOVABLE,
        ("Reserve", None),
        ("Isolate", None),
    ],
    ..V2_6_22
};

const V4_13: PageTexts = PageTexts {
    from: Era::V4_13,
    migratetypes: &[
        UNMOVABLE,
        MOVABLE,
        RECLAIMABLE,
        ("HighAtomic", Some(BlockType::HIGH_ATOMIC)),
        ("Isolate", None),
    ],
    managed: true,
    ..V2_6_24
};

const V6_1: PageTexts = PageTexts {
    from: Era::V6_1,
    boost_and_cma: true,
    types_above_normal: TYPES_ABOVE_NORMAL,
    ..V4_13
};

const V6_18: PageTexts = PageTexts {
    from: Era::V6_18,
    tuning: true,
    ..V6_1
};

/// The texts of an era.
#[must_use]
pub fn page_texts(era: Era) -> &'static PageTexts {
    let known = PAGE_TEXTS.iter().rfind(|texts| texts.from <= era);
    known.unwrap_or(&PAGE_TEXTS[0])
}

/// Reason why a file could not be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageFileError {
    /// Kernels of this era have no such file.
    NoFile {
        /// The file.
        file: PageFile,
        /// The era.
        era: Era,
    },
    /// The calling thread is writing a sysctl.
    Reentered,
    /// The writer failed.
    Writer,
}

impl From<fmt::Error> for PageFileError {
    fn from(_: fmt::Error) -> Self {
        Self::Writer
    }
}

impl fmt::Display for PageFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile { file, era } => {
                write!(f, "kernels of era {era} have no {}", file.name())
            }
            Self::Reentered => f.write_str("the calling thread is writing a sysctl"),
            Self::Writer => f.write_str("the file could not be written: the writer failed"),
        }
    }
}

crate::error::debug_is_display!(PageFileError);

impl core::error::Error for PageFileError {}

impl<M: Machine> PageAllocator<M> {
    /// Writes what a file of `/proc` would show.
    ///
    /// ```
    /// use quarry_core::inspect::PageFile;
    /// # use quarry_core::machine::Machine;
    /// # use quarry_core::page::PageAllocator;
    /// fn zoneinfo<M: Machine>(pages: &PageAllocator<M>, out: &mut impl core::fmt::Write) {
    ///     pages.write_page_file(PageFile::Zoneinfo, out).expect("all eras have it");
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`PageFileError`].
    pub fn write_page_file(
        &self,
        file: PageFile,
        out: &mut impl Write,
    ) -> Result<(), PageFileError> {
        let era = self.era().ok_or(PageFileError::Reentered)?;
        if !file.exists(era) {
            return Err(PageFileError::NoFile { file, era });
        }
        let texts = page_texts(era);
        match file {
            PageFile::Buddyinfo => self.write_buddyinfo(out)?,
            PageFile::Pagetypeinfo => self.write_pagetypeinfo(texts, out)?,
            PageFile::Zoneinfo => self.write_zoneinfo(texts, out)?,
            PageFile::Vmstat => self.write_vmstat(texts, out)?,
        }
        Ok(())
    }
}

/// A zone's NUMA counters by their names.
fn numa_counters(numa: &crate::page::NumaStats) -> [(&'static str, u64); 5] {
    [
        ("numa_hit", numa.hit),
        ("numa_miss", numa.miss),
        ("numa_foreign", numa.foreign),
        ("numa_local", numa.local),
        ("numa_other", numa.other),
    ]
}

/// Free pages in blocks that are at least a pageblock (`nr_free_pages_blocks`).
fn free_pages_in_blocks(zone: &crate::page::ZoneReport) -> u64 {
    let large = (0..)
        .zip(&zone.free_blocks)
        .skip(zone.pageblock_order as usize);
    large
        .map(|(order, by_type)| by_type.iter().sum::<u64>() << order)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_by_era() {
        for texts in &PAGE_TEXTS {
            assert!(texts.migratetypes.len() <= SHOWN_TYPES);
            assert!(texts.types_above_normal <= TYPES_ABOVE_NORMAL);
            assert_eq!(page_texts(texts.from).from, texts.from);
        }
        assert_eq!(page_texts(Era::V2_6_35).from, Era::V2_6_24);
        assert_eq!(page_texts(Era::V7_0).from, Era::V6_18);
        assert!(!PageFile::Pagetypeinfo.exists(Era::V2_6_22));
        assert!(PageFile::Zoneinfo.exists(Era::V2_6_22));
    }
}
