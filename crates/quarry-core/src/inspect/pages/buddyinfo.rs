//! `/proc/buddyinfo` and `/proc/pagetypeinfo`.

use core::fmt::{self, Write};

use super::{PageTexts, SHOWN_TYPES};
use crate::machine::Machine;
use crate::page::{ORDERS, PageAllocator, ZoneReport};

/// A line of buddyinfo; shown in the kernel's columns, without a newline.
///
/// ```
/// use quarry_core::inspect::FreeBlocks;
/// let row = FreeBlocks { node: 0, zone: "DMA", free: &[0, 1, 3] };
/// assert_eq!(row.to_string(), "Node 0, zone      DMA      0      1      3 ");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlocks<'a> {
    /// The node.
    pub node: u32,
    /// The zone's name.
    pub zone: &'a str,
    /// Free blocks by order.
    pub free: &'a [u64],
}

impl fmt::Display for FreeBlocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {}, zone {:>8} ", self.node, self.zone)?;
        self.free.iter().try_for_each(|n| write!(f, "{n:>6} "))
    }
}

/// A line of pagetypeinfo's first table; shown in the kernel's columns, without a newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlocksOfType<'a> {
    /// The node.
    pub node: u32,
    /// The zone's name.
    pub zone: &'a str,
    /// The migrate type.
    pub migratetype: &'a str,
    /// Free blocks by order.
    pub free: &'a [u64],
}

impl fmt::Display for FreeBlocksOfType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Node {:>4}, zone {:>8}, type {:>12} ",
            self.node, self.zone, self.migratetype
        )?;
        self.free.iter().try_for_each(|n| write!(f, "{n:>6} "))
    }
}

/// A line of pagetypeinfo's second table; shown in the kernel's columns, without a newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCounts<'a> {
    /// The node.
    pub node: u32,
    /// The zone's name.
    pub zone: &'a str,
    /// Pageblocks by migrate type.
    pub blocks: &'a [u64],
}

impl fmt::Display for BlockCounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {}, zone {:>8} ", self.node, self.zone)?;
        self.blocks.iter().try_for_each(|n| write!(f, "{n:>12} "))
    }
}

/// The lines of pagetypeinfo before its first table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagetypeinfoHeader {
    /// log2 of a pageblock's pages.
    pub pageblock_order: u32,
    /// Number of orders.
    pub orders: usize,
}

impl fmt::Display for PagetypeinfoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Page block order: {}", self.pageblock_order)?;
        writeln!(f, "Pages per block:  {}", 1_u64 << self.pageblock_order)?;
        write!(f, "\n{:<43} ", "Free pages count per migrate type at order")?;
        (0..self.orders).try_for_each(|order| write!(f, "{order:>6} "))?;
        writeln!(f)
    }
}

/// Free blocks of a zone, of one migrate type or of all.
fn free_blocks(zone: &ZoneReport, migratetype: Option<usize>) -> [u64; ORDERS] {
    zone.free_blocks.map(|by_type| match migratetype {
        Some(migratetype) => by_type[migratetype],
        None => by_type.iter().sum(),
    })
}

impl<M: Machine> PageAllocator<M> {
    pub(super) fn write_buddyinfo(&self, out: &mut impl Write) -> fmt::Result {
        self.zone_reports().try_for_each(|zone| {
            let row = FreeBlocks {
                node: zone.id.node.0,
                zone: zone.id.zone.name(),
                free: &free_blocks(&zone, None),
            };
            writeln!(out, "{row}")
        })
    }

    pub(super) fn write_pagetypeinfo(
        &self,
        texts: &PageTexts,
        out: &mut impl Write,
    ) -> fmt::Result {
        let first = self.zone_report(0);
        let header = PagetypeinfoHeader {
            pageblock_order: first.map_or(0, |zone| zone.pageblock_order),
            orders: ORDERS,
        };
        write!(out, "{header}")?;
        for zone in self.zone_reports() {
            for (name, migratetype) in texts.migratetypes {
                let free = migratetype.map(|at| free_blocks(&zone, Some(at.index())));
                let row = FreeBlocksOfType {
                    node: zone.id.node.0,
                    zone: zone.id.zone.name(),
                    migratetype: name,
                    free: &free.unwrap_or_default(),
                };
                writeln!(out, "{row}")?;
            }
        }
        write!(out, "\n{:<23}", "Number of blocks type")?;
        for (name, _) in texts.migratetypes {
            write!(out, "{name:>12} ")?;
        }
        writeln!(out)?;
        self.zone_reports().try_for_each(|zone| {
            let mut blocks = [0; SHOWN_TYPES];
            for (blocks, (_, migratetype)) in blocks.iter_mut().zip(texts.migratetypes) {
                *blocks = migratetype.map_or(0, |at| zone.pageblocks[at.index()]);
            }
            let row = BlockCounts {
                node: zone.id.node.0,
                zone: zone.id.zone.name(),
                blocks: &blocks[..texts.migratetypes.len()],
            };
            writeln!(out, "{row}")
        })
    }
}
