//! `/proc/vmstat`.

use core::fmt::{self, Write};

use super::{PageTexts, free_pages_in_blocks, numa_counters};
use crate::machine::Machine;
use crate::page::{NumaStats, PageAllocator, ZoneType};

/// The counter of pages allocated from zones of a type.
const fn pgalloc(zone: ZoneType) -> &'static str {
    match zone {
        ZoneType::Dma => "pgalloc_dma",
        ZoneType::Dma32 => "pgalloc_dma32",
        ZoneType::Normal => "pgalloc_normal",
    }
}

impl<M: Machine> PageAllocator<M> {
    pub(super) fn write_vmstat(&self, texts: &PageTexts, out: &mut impl Write) -> fmt::Result {
        let mut numa = NumaStats::default();
        let (mut free, mut in_blocks, mut freed) = (0, 0, 0);
        let mut allocated = ZoneType::ALL.map(|zone| (zone, None::<u64>));
        for zone in self.zone_reports() {
            free += zone.free_pages;
            in_blocks += free_pages_in_blocks(&zone);
            freed += zone.pages_freed;
            numa.hit += zone.numa.hit;
            numa.miss += zone.numa.miss;
            numa.foreign += zone.numa.foreign;
            numa.local += zone.numa.local;
            numa.other += zone.numa.other;
            for (known, pages) in &mut allocated {
                if *known == zone.id.zone {
                    *pages = Some(pages.unwrap_or(0) + zone.pages_allocated);
                }
            }
        }
        let mut line = |name: &str, value: u64| writeln!(out, "{name} {value}");
        line("nr_free_pages", free)?;
        if texts.tuning {
            line("nr_free_pages_blocks", in_blocks)?;
        }
        for (name, value) in numa_counters(&numa) {
            line(name, value)?;
        }
        for (zone, pages) in allocated {
            if let Some(pages) = pages {
                line(pgalloc(zone), pages)?;
            }
        }
        line("pgfree", freed)
    }
}
