//! Free pages by zone, and how far they would do for huge pages.

use quarry_snapshot::Snapshot;
use quarry_view::Form::{Bytes, Count, Of, Text};
use quarry_view::units::{bytes, count, percent};
use quarry_view::{Spec, column};
use schemars::JsonSchema;
use serde::Serialize;

use super::owners::sum;

pub(super) const ZONES: Spec = Spec {
    title: "Free pages",
    rows: "zones",
    first: 16,
    columns: || {
        vec![
            column("node", "node", Count),
            column("zone", "zone", Text),
            column("free pages", "free_pages", Count),
            column("free", "free_bytes", Bytes).rare(),
            column("largest block", "largest_pages", Count),
            column("in huge blocks", "huge_pages", Of("free_pages")),
            column("unmovable", "unmovable_blocks", Count).rare(),
            column("reclaimable", "reclaimable_blocks", Count).rare(),
        ]
    },
};

/// Order of a block that a huge page of 2 MiB takes, with pages of 4 KiB.
const HUGE_ORDER: u32 = 9;

/// Free pages of a zone.
#[derive(JsonSchema, Serialize)]
pub struct OfZone<'a> {
    /// The node.
    pub node: u32,
    /// Name of the zone.
    pub zone: &'a str,
    /// Free pages in blocks of all orders.
    pub free_pages: u64,
    /// Their bytes; null if the size of a page is unknown.
    pub free_bytes: Option<u64>,
    /// Pages of the largest free block; 0 if there is none.
    pub largest_pages: u64,
    /// Pages that are in free blocks as large as a huge page, or larger.
    pub huge_pages: u64,
    /// Blocks for pages that cannot be moved; null without pagetypeinfo. Pages in them may be of another type.
    pub unmovable_blocks: Option<u64>,
    /// Blocks for pages that can be reclaimed; null without pagetypeinfo.
    pub reclaimable_blocks: Option<u64>,
    /// All blocks; null without pagetypeinfo.
    pub blocks: Option<u64>,
}

/// Free pages of all zones.
#[derive(Default, JsonSchema, Serialize)]
pub struct Zones<'a> {
    /// Order of a huge page's block.
    pub huge_order: u32,
    /// True if counts of free blocks end at 100,000, as the kernel prints them: there are more free pages.
    pub is_least: bool,
    /// A row for each zone.
    pub zones: Vec<OfZone<'a>>,
}

impl<'a> Zones<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, page_size: Option<u64>) -> Self {
        let types = snapshot.pagetypeinfo.as_ref();
        let huge_order = types.map_or(HUGE_ORDER, |types| types.pageblock_order);
        let is_least = types.is_some_and(|types| {
            let sums = types.zones();
            snapshot.buddyinfo.as_ref() == Some(&sums)
                && types.free.iter().any(|row| !row.uncounted.is_empty())
        });
        let rows = snapshot.buddyinfo.iter().flat_map(|free| &free.zones);
        let zones = rows.map(|row| {
            let blocks = types.and_then(|types| {
                let mut blocks = types.blocks.iter();
                let blocks = blocks.find(|it| (it.node, &it.zone) == (row.node, &row.zone))?;
                Some((types, blocks))
            });
            let of_type = |name| {
                let (types, zone) = blocks?;
                types.blocks_of(zone, name)
            };
            let orders = || row.counts.iter().zip(0_u32..);
            let pages = |(blocks, order): (&u64, u32)| blocks.saturating_mul(1 << order);
            let huge = orders().filter(|(_, order)| *order >= huge_order);
            let largest = orders().filter(|(blocks, _)| **blocks > 0).last();
            OfZone {
                node: row.node,
                zone: &row.zone,
                free_pages: row.pages(),
                free_bytes: page_size.and_then(|size| row.pages().checked_mul(size)),
                largest_pages: largest.map_or(0, |(_, order)| 1 << order),
                huge_pages: huge.map(pages).fold(0, u64::saturating_add),
                unmovable_blocks: of_type("Unmovable"),
                reclaimable_blocks: of_type("Reclaimable"),
                blocks: blocks.and_then(|(_, zone)| sum(zone.counts.iter().copied().map(Some))),
            }
        });
        Self {
            huge_order,
            is_least,
            zones: zones.collect(),
        }
    }

    fn sum(&self, of: impl Fn(&OfZone<'_>) -> Option<u64>) -> u64 {
        let each = self.zones.iter().filter_map(of);
        each.fold(0, u64::saturating_add)
    }

    /// Free pages and blocks, in sentences; none without zones.
    pub(super) fn found(&self, file: &str, page_size: Option<u64>) -> Vec<String> {
        if self.zones.is_empty() {
            return Vec::new();
        }
        let free = self.sum(|zone| Some(zone.free_pages));
        let huge = self.sum(|zone| Some(zone.huge_pages));
        let size = page_size.and_then(|size| free.checked_mul(size));
        let size = size.map_or(String::new(), |size| format!(" ({})", bytes(size)));
        let least = if self.is_least { "at least " } else { "" };
        let block = 1_u64 << self.huge_order;
        let of_huge = match free {
            0 => String::new(),
            free => format!(
                "; {} of them are in free blocks of {block} pages or more, which have room for {} huge pages",
                percent(huge, free),
                count(huge / block)
            ),
        };
        let free = count(free);
        let mut sentences = vec![format!(
            "{file} has {least}{free} free pages{size}{of_huge}."
        )];
        let all = self.sum(|zone| zone.blocks);
        if all > 0 {
            sentences.push(format!(
                "{} of {} blocks of {block} pages are for pages that cannot be moved, {} for those that can be reclaimed; what \
                 lies in a block may be of another type.",
                count(self.sum(|zone| zone.unmovable_blocks)),
                count(all),
                count(self.sum(|zone| zone.reclaimable_blocks)),
            ));
        }
        sentences
    }

    /// The assumption about huge pages; `None` if the file tells.
    pub(super) fn assumed(&self, snapshot: &Snapshot) -> Option<String> {
        let is_assumed = !self.zones.is_empty() && snapshot.pagetypeinfo.is_none();
        is_assumed.then(|| {
            let pages = 1 << self.huge_order;
            format!("a huge page is taken as {pages} pages, 2 MiB with pages of 4 KiB (pagetypeinfo tells)")
        })
    }

    /// The change of free pages since another report; `None` unless both have zones.
    pub(super) fn grown(&self, first: &Self) -> Option<String> {
        let free = |of: &Self| i128::from(of.sum(|zone| Some(zone.free_pages)));
        let huge = |of: &Self| i128::from(of.sum(|zone| Some(zone.huge_pages)));
        (!self.zones.is_empty() && !first.zones.is_empty()).then(|| {
            let changed = [free(self) - free(first), huge(self) - huge(first)];
            format!(
                "free pages changed by {:+}, those in huge blocks by {:+}",
                changed[0], changed[1]
            )
        })
    }
}
