//! `/proc/zoneinfo`.

use core::fmt::{self, Write};

use super::{PageTexts, TYPES_ABOVE_NORMAL, free_pages_in_blocks, numa_counters};
use crate::machine::{CpuId, Machine};
use crate::page::geometry::stat_threshold;
use crate::page::{PageAllocator, PagesetReport, ZONE_TYPES, ZoneReport};

/// A number and its name.
type Named<'a> = (&'a str, u64);

/// A zone until its `pagesets`; shown in the kernel's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneinfoZone<'a> {
    /// The node.
    pub node: u32,
    /// The zone's name.
    pub zone: &'a str,
    /// `free`, the watermarks and the sizes, in pages.
    pub pages: &'a [Named<'a>],
    /// Pages kept from requests that could have come from a higher zone, for each zone type.
    pub protection: &'a [u64],
    /// The zone's counters.
    pub stats: &'a [Named<'a>],
}

impl fmt::Display for ZoneinfoZone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Node {}, zone {:>8}", self.node, self.zone)?;
        let mut before = "  pages ";
        for (name, pages) in self.pages {
            writeln!(f, "{before}{name:<8} {pages}")?;
            before = "        ";
        }
        f.write_str("        protection: (")?;
        let mut separator = "";
        for pages in self.protection {
            write!(f, "{separator}{pages}")?;
            separator = ", ";
        }
        f.write_str(")\n")?;
        let mut stats = self.stats.iter();
        stats.try_for_each(|(name, value)| writeln!(f, "      {name:<12} {value}"))
    }
}

/// One CPU's lists of one zone; shown in the kernel's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesetRow {
    /// The CPU.
    pub cpu: u32,
    /// 0 for hot and 1 for cold pages where there is a list for each.
    pub pcp: Option<u32>,
    /// Pages on the lists.
    pub count: u32,
    /// Pages at which they are drained now; 0 if they were never used, in eras that tune it.
    pub high: u32,
    /// Pages moved at a time.
    pub batch: u32,
    /// The range that `high` is tuned in, in eras that tell.
    pub tuned: Option<[u32; 2]>,
    /// `vm stats threshold`, which stands behind a CPU's last list.
    pub stat_threshold: Option<u32>,
}

impl fmt::Display for PagesetRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    cpu: {}", self.cpu)?;
        match self.pcp {
            Some(pcp) => writeln!(f, " pcp: {pcp}")?,
            None => writeln!(f)?,
        }
        // Eras that print the range of high pad all names to the longer ones.
        let width = if self.tuned.is_some() { 9 } else { 6 };
        let [min, max] = self.tuned.map_or([None; 2], |range| range.map(Some));
        let lines = [
            ("count:", Some(self.count)),
            ("high:", Some(self.high)),
            ("batch:", Some(self.batch)),
            ("high_min:", min),
            ("high_max:", max),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                writeln!(f, "              {name:<width$} {value}")?;
            }
        }
        match self.stat_threshold {
            Some(threshold) => writeln!(f, "  vm stats threshold: {threshold}"),
            None => Ok(()),
        }
    }
}

impl<M: Machine> PageAllocator<M> {
    pub(super) fn write_zoneinfo(&self, texts: &PageTexts, out: &mut impl Write) -> fmt::Result {
        for (index, zone) in self.zone_reports().enumerate() {
            write_zone(&zone, texts, out)?;
            out.write_str("  pagesets\n")?;
            let topology = self.machine().topology();
            let threshold = stat_threshold(zone.pages, topology.page_shift, topology.cpus);
            for cpu in (0..topology.cpus).map(CpuId) {
                let Some(set) = self.pageset_report(index, cpu) else {
                    continue;
                };
                let hot = row(&set, texts);
                let cold = set.cold.map(|limits| PagesetRow {
                    pcp: Some(1),
                    count: 0,
                    high: limits.high,
                    batch: limits.batch,
                    stat_threshold: Some(threshold),
                    ..hot
                });
                let hot = PagesetRow {
                    pcp: cold.map(|_| 0),
                    stat_threshold: cold.is_none().then_some(threshold),
                    ..hot
                };
                for row in [Some(hot), cold].into_iter().flatten() {
                    write!(out, "{row}")?;
                }
            }
            writeln!(out, "  node_unreclaimable:  0")?;
            writeln!(out, "  start_pfn:           {}", zone.start.0)?;
        }
        Ok(())
    }
}

fn row(set: &PagesetReport, texts: &PageTexts) -> PagesetRow {
    PagesetRow {
        cpu: set.cpu.0,
        pcp: None,
        count: set.count,
        high: set.high,
        batch: set.batch,
        tuned: texts.tuning.then_some([set.high_min, set.high_max]),
        stat_threshold: None,
    }
}

/// The lines of a zone as its era has them.
fn write_zone(zone: &ZoneReport, texts: &PageTexts, out: &mut impl Write) -> fmt::Result {
    let marks = zone.watermarks;
    let promo = marks.promo.filter(|_| texts.tuning);
    let pages = [
        Some(("free", zone.free_pages)),
        texts.boost_and_cma.then_some(("boost", zone.boost)),
        Some(("min", marks.min)),
        Some(("low", marks.low)),
        Some(("high", marks.high)),
        promo.map(|promo| ("promo", promo)),
        Some(("spanned", zone.pages)),
        Some(("present", zone.pages)),
        texts.managed.then_some(("managed", zone.pages)),
        texts.boost_and_cma.then_some(("cma", 0)),
    ];
    let in_blocks = texts.tuning.then(|| free_pages_in_blocks(zone));
    let mut stats = [None; 7];
    stats[0] = Some(("nr_free_pages", zone.free_pages));
    stats[1] = in_blocks.map(|pages| ("nr_free_pages_blocks", pages));
    for (stat, counter) in stats[2..].iter_mut().zip(numa_counters(&zone.numa)) {
        *stat = Some(counter);
    }
    // Types above Normal have no pages: what is kept from requests for them is what is kept from
    // Normal's.
    let reserve = |at: usize| zone.lowmem_reserve[at.min(ZONE_TYPES - 1)];
    let protection: [u64; ZONE_TYPES + TYPES_ABOVE_NORMAL] = core::array::from_fn(reserve);
    let (mut some_pages, mut some_stats) = ([("", 0); 10], [("", 0); 7]);
    let shown = ZoneinfoZone {
        node: zone.id.node.0,
        zone: zone.id.zone.name(),
        pages: compact(&pages, &mut some_pages),
        protection: &protection[..ZONE_TYPES + texts.types_above_normal],
        stats: compact(&stats, &mut some_stats),
    };
    write!(out, "{shown}")
}

/// Those that there are, in `room`.
fn compact<'r>(lines: &[Option<Named<'r>>], room: &'r mut [Named<'r>]) -> &'r [Named<'r>] {
    let mut count = 0;
    for (place, line) in room.iter_mut().zip(lines.iter().flatten()) {
        *place = *line;
        count += 1;
    }
    &room[..count]
}
