//! The state of a machine that has run for a while: lists as `/proc/zoneinfo` reports them, and
//! blocks that were allocated before the report.

use super::{Pageset, Pcp, Tuning};
use crate::machine::{CpuId, Machine};
use crate::page::buddy::{Mixing, Wanted};
use crate::page::types::{MAX_ORDER, MIGRATE_TYPES, MigrateType, PageKind, Pfn, ZoneType};
use crate::page::{PageAllocator, Zone};

/// What a CPU's lists of a zone hold.
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
    fn stock<M: Machine>(&mut self, at: &Pageset<'_, M>, stock: &PcpStock) {
        let untouched = stock.high == 0 && stock.pages.iter().all(|pages| *pages == 0);
        if at.zone.rules.tuning == Tuning::Auto && !untouched {
            self.high = stock.high;
            self.high = self.high(at.limits);
        }
        let Some(mut area) = at.zone.lock(at.machine, at.map) else {
            return;
        };
        // No list of the era gets longer by itself.
        let mut room = match at.zone.rules.tuning {
            Tuning::Auto => u32::MAX,
            Tuning::Batch | Tuning::FreeFactor => {
                self.high(at.limits).saturating_sub(self.pages + 1)
            }
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
            };
            for _ in 0..pages.min(room) {
                let Some(pfn) = area.alloc(at.machine, at.map, wanted) else {
                    break;
                };
                let list = &mut self.lists[usize::from(shape.list)];
                list.blocks.push_back(at.map, pfn);
                self.pages += 1;
                room -= 1;
            }
        }
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Gives a CPU's lists of a zone more pages of that zone, behind those that they have. They get fewer
    /// than the number at which the era drains them. Sets their `high` if the era tunes it. Counts as no
    /// traffic. Returns the pages that the lists hold then; `None` if the lists are busy or there is no
    /// such zone or CPU.
    pub fn stock_pcp(&self, cpu: CpuId, stock: &PcpStock) -> Option<u32> {
        if cpu.0 >= self.machine().topology().cpus {
            return None;
        }
        let zone = match stock.zone {
            Some(zone) => self.zone_of_type(zone)?,
            None => self.first_zone(self.machine().node_of_cpu(cpu))?,
        };
        let lists = zone.pageset(self.machine(), self.map());
        lists.with_remote(&zone.pcp, cpu, |pcp| {
            pcp.stock(&lists, stock);
            pcp.pages()
        })
    }

    /// [`PageAllocator::alloc_with`] past the per-CPU lists of the running CPU, which stay as they
    /// are, as if it was long ago.
    pub fn alloc_past_lists(&self, order: u32, migratetype: MigrateType) -> Option<Pfn> {
        if order > MAX_ORDER {
            return None;
        }
        let _pass = self.gate().enter(self.machine());
        let zone: &Zone = self.first_zone(self.machine().current_node())?;
        let wanted = Wanted {
            order,
            migratetype: zone.rules.group(migratetype),
            kind: PageKind::Allocated,
            mixing: Mixing::Allowed,
        };
        zone.alloc_direct(self.machine(), self.map(), wanted)
    }
}
