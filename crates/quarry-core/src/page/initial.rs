//! The state of a machine that has run for a while: free blocks and boosts as the kernel reports them, lists as
//! `/proc/zoneinfo` does, and blocks that were allocated before the report.

use super::PageAllocator;
use super::buddy::{FreeBlockCounts, Mixing, Wanted};
use super::pcp::{Pagesets, PcpStock};
use super::types::{BlockType, MigrateType, PageKind, Pfn, ZoneType};
use crate::machine::{CpuId, Machine};

impl<M: Machine> PageAllocator<M> {
    /// The zone of this type, of the first node that has one.
    fn pagesets_of_type(&self, zone: ZoneType) -> Option<&Pagesets> {
        self.pagesets().find(|at| at.zone.id.zone == zone)
    }

    /// Leaves exactly these free blocks in a zone; all its other free pages are in use for good. For machines
    /// with a known initial state: the blocks are in pageblocks of their types, behind all that was allocated
    /// before. Returns the pages that are free then; `None` if there is no such zone, or its lock is the
    /// caller's.
    pub fn leave_free(&self, zone: ZoneType, blocks: &FreeBlockCounts) -> Option<u64> {
        let _pass = self.gate().enter(self.machine());
        let zone = &self.pagesets_of_type(zone)?.zone;
        let mut by_group = FreeBlockCounts::default();
        for (order, counts) in (0_u32..).zip(blocks) {
            // A block larger than the largest is several.
            let pieces = 1_u64 << order.saturating_sub(self.max_order());
            let row = &mut by_group[order.min(self.max_order()) as usize];
            for (of, count) in BlockType::all().zip(counts) {
                let of_group = &mut row[zone.rules.block_group(of).index()];
                *of_group = of_group.saturating_add(count.saturating_mul(pieces));
            }
        }
        let mut area = zone.lock(self.map_on())?;
        Some(area.leave_free(self.map_on(), &by_group))
    }

    /// Puts all free memory of all zones in use for good; [`PageAllocator::lay_free`] makes parts of it free
    /// again. For machines whose initial state is known by address. Returns false if a zone lock is the caller's.
    pub fn use_all(&self) -> bool {
        let _pass = self.gate().enter(self.machine());
        self.zones().all(|zone| {
            let area = zone.lock(self.map_on());
            area.is_some_and(|mut area| {
                area.use_all(self.map_on());
                true
            })
        })
    }

    /// Makes a block free that is in use for good, in pageblocks of a type, behind all free blocks of its size.
    /// Returns whether it was in use for good.
    pub fn lay_free(&self, pfn: Pfn, order: u32, of: BlockType) -> bool {
        if pfn.0 >= self.pages() {
            return false;
        }
        let _pass = self.gate().enter(self.machine());
        let zone = &self.pagesets_of(pfn).zone;
        let area = zone.lock(self.map_on());
        area.is_some_and(|mut area| area.lay_free(self.map_on(), (pfn, order), of))
    }

    /// Gives the pageblock of a page a type, with the free blocks in it. Returns false if there is no such page, or its
    /// zone's lock is the caller's.
    pub fn label_block(&self, pfn: Pfn, of: BlockType) -> bool {
        if pfn.0 >= self.pages() {
            return false;
        }
        let _pass = self.gate().enter(self.machine());
        let zone = &self.pagesets_of(pfn).zone;
        let area = zone.lock(self.map_on());
        area.is_some_and(|mut area| {
            area.label(self.map_on(), pfn, of);
            true
        })
    }

    /// Makes memory that is in use for good a block that was allocated for a request of this type: its number is the
    /// caller's to free. Returns whether it was in use for good.
    pub fn lay_allocated(&self, pfn: Pfn, order: u32, migratetype: MigrateType) -> bool {
        if pfn.0 >= self.pages() {
            return false;
        }
        let _pass = self.gate().enter(self.machine());
        let zone = &self.pagesets_of(pfn).zone;
        let cut = zone
            .lock(self.map_on())
            .is_some_and(|mut area| area.cut_out(self.map_on(), pfn, order));
        if cut {
            self.map().page(pfn).set_kind(PageKind::Allocated, order);
            let movable = migratetype == MigrateType::Movable;
            self.map().contents().note(pfn, movable);
        }
        cut
    }

    /// Raises a zone's watermarks by `pages` pages, at most all of its own. Kernels do so for a while
    /// after types were mixed in a pageblock (`vm.watermark_boost_factor`). Here it lasts. Returns whether
    /// there is such a zone.
    pub fn set_boost(&self, zone: ZoneType, pages: u64) -> bool {
        let _pass = self.gate().enter(self.machine());
        let Some(Pagesets { zone, .. }) = self.pagesets_of_type(zone) else {
            return false;
        };
        zone.set_boost(pages);
        // Releasing the lock publishes whether the zone is now below its high watermark.
        drop(zone.lock(self.map_on()));
        true
    }

    /// Gives a CPU's lists of a zone more pages of that zone, behind those that they have. They get fewer
    /// than the number at which the era drains them. Sets their `high` if the era tunes it. Counts as no
    /// traffic. Returns the pages that the lists hold then; `None` if the lists are busy or there is no
    /// such zone or CPU.
    pub fn stock_pcp(&self, cpu: CpuId, stock: &PcpStock) -> Option<u32> {
        if cpu.0 >= self.machine().topology().cpus {
            return None;
        }
        let sets = match stock.zone {
            Some(zone) => self.pagesets_of_type(zone)?,
            None => self.first_pagesets(self.machine().node_of_cpu(cpu))?,
        };
        let lists = sets.at(self.map_on());
        lists.with_remote(cpu, |pcp| {
            pcp.stock(&lists, stock);
            pcp.pages()
        })
    }

    /// [`PageAllocator::alloc_with`] past the per-CPU lists of the running CPU, which stay as they
    /// are, as if it was long ago.
    pub fn alloc_past_lists(&self, order: u32, migratetype: MigrateType) -> Option<Pfn> {
        if order > self.max_order() {
            return None;
        }
        let _pass = self.gate().enter(self.machine());
        let zone = &self.first_pagesets(self.machine().current_node())?.zone;
        let wanted = Wanted {
            order,
            migratetype: zone.rules.group(migratetype),
            kind: PageKind::Allocated,
            mixing: Mixing::Allowed,
            reserved: false,
        };
        let pfn = zone.alloc_direct(self.map_on(), wanted)?;
        let movable = migratetype == MigrateType::Movable;
        self.map().contents().note(pfn, movable);
        Some(pfn)
    }
}
