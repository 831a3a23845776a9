//! Lists that hold what `/proc/zoneinfo` reports, on a machine that has run for a while.

use super::{Pageset, Pcp, Tuning};
use crate::machine::Machine;
use crate::page::buddy::{Mixing, Wanted};
use crate::page::types::{MIGRATE_TYPES, MigrateType, PageKind, ZoneType};

/// Pages on a CPU's lists of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpStock {
    /// Single pages by migrate type; their sum is zoneinfo's `count`.
    pub pages: [u32; MIGRATE_TYPES],
    /// The zone; `None` for the one that the CPU's requests try first.
    pub zone: Option<ZoneType>,
    /// Pages at which the lists are drained; heeded where the era tunes it, within its limits. 0 of empty
    /// lists is that of lists that were never used.
    pub high: u32,
}

impl Pcp {
    pub(crate) fn stock<M: Machine>(&mut self, at: &Pageset<'_, M>, stock: &PcpStock) {
        let untouched = stock.high == 0 && stock.pages.iter().all(|pages| *pages == 0);
        if at.zone.rules.tuning == Tuning::Auto && !untouched {
            self.high = stock.high;
            self.high = self.high(at.zone);
        }
        let Some(mut area) = at.zone.lock(at.map) else {
            return;
        };
        // No list of the era gets longer by itself.
        let mut room = match at.zone.rules.tuning {
            Tuning::Auto => u32::MAX,
            Tuning::Batch | Tuning::FreeFactor => self.high(at.zone).saturating_sub(self.pages + 1),
        };
        for (migratetype, pages) in MigrateType::ALL.into_iter().zip(stock.pages) {
            let migratetype = at.zone.rules.group(migratetype);
            let Some(shape) = at.zone.shape(0, migratetype) else {
                continue;
            };
            let wanted = Wanted {
                order: 0,
                migratetype,
                kind: PageKind::Pcp,
                mixing: Mixing::Allowed,
                reserved: false,
            };
            for _ in 0..pages.min(room) {
                let Some(pfn) = area.alloc(at.map, wanted) else {
                    break;
                };
                let list = &mut self.lists[usize::from(shape.list)];
                list.blocks.push_back(&at.map, pfn);
                self.pages += 1;
                room -= 1;
            }
        }
    }
}
