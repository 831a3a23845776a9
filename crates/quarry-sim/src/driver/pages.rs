//! Blocks of pages that are no slabs, allocated from the page allocator of a heap's slabs.

use std::marker::PhantomData;

use quarry_core::design::Design;
use quarry_core::machine::{Accounting as _, Cpus as _, LockClass, Locks as _, NodeId, Work};
use quarry_core::page::geometry::{page_era, pageblock_order};
use quarry_core::page::{
    AllocOptions, MigrateType, PageCensus, PageError, PageInconsistency, PageStats, Pfn,
};

use super::{Brand, Driver};

/// An allocated block of pages of a driver's page allocator: a receipt to free it with, as an
/// [`ObjectRef`](super::ObjectRef) is for an object.
#[derive(Debug)]
pub struct PageRef<'h> {
    pfn: Pfn,
    order: u8,
    brand: Brand<'h>,
}

impl PageRef<'_> {
    /// The receipt for a block; `None` of an order that no block has.
    fn of(pfn: Pfn, order: u32) -> Option<Self> {
        Some(Self {
            pfn,
            order: u8::try_from(order).ok()?,
            brand: PhantomData,
        })
    }

    /// log2 of its pages.
    #[inline]
    #[must_use]
    pub fn order(&self) -> u32 {
        self.order.into()
    }
}

impl<'h, D: Design> Driver<'h, D> {
    /// Allocates a block of 2^order pages that is no slab. `None` when memory is exhausted or the
    /// order is above [`MAX_ORDER`](quarry_core::page::MAX_ORDER).
    #[inline]
    #[must_use]
    pub fn alloc_pages(&self, order: u32, migratetype: MigrateType) -> Option<PageRef<'h>> {
        self.alloc_pages_with(&AllocOptions {
            order,
            migratetype,
            ..AllocOptions::default()
        })
    }

    /// [`Driver::alloc_pages`] with all that can be asked for.
    #[inline]
    #[must_use]
    pub fn alloc_pages_with(&self, options: &AllocOptions) -> Option<PageRef<'h>> {
        let pfn = self.heap.pages().alloc_with(options)?;
        PageRef::of(pfn, options.order)
    }

    /// Address of a block's descriptor, and the node whose memory it describes: for workloads that keep blocks on lists of
    /// their own.
    #[must_use]
    pub fn descriptor(&self, block: &PageRef<'h>) -> Option<(*const u8, NodeId)> {
        let pages = self.heap.pages();
        let (address, _) = pages.descriptor(block.pfn)?;
        Some((address, pages.node_of(block.pfn)?))
    }

    /// First byte of a block, as an address.
    #[must_use]
    pub fn address_of(&self, block: &PageRef<'h>) -> Option<*const u8> {
        let first = self.heap.pages().address(block.pfn)?;
        Some(first.as_ptr().cast_const())
    }

    /// Does something under the lock in a block's descriptor, which counts as one of a class. `None` if the caller has it, or the
    /// machine is broken.
    pub fn under_lock<R>(
        &self,
        block: &PageRef<'h>,
        class: LockClass,
        f: impl FnOnce() -> R,
    ) -> Option<R> {
        let machine = self.machine();
        let (_, lock) = self.heap.pages().descriptor(block.pfn)?;
        machine.lock(lock, class).ok()?;
        if class.irqs_off() {
            machine.work(Work::IrqSave);
        }
        let result = f();
        // SAFETY: it was taken above, by this CPU.
        unsafe { machine.unlock(lock, class) };
        Some(result)
    }

    /// Tells the machine that a block was filled with zeros for its user.
    #[inline]
    pub fn zero_pages(&self, block: &PageRef<'h>) {
        let bytes = self.machine().topology().page_size() << block.order;
        if let Some(at) = self.heap.pages().address(block.pfn) {
            self.machine().zero(at.as_ptr(), bytes);
        }
    }

    /// The block's user copies bytes into it from a buffer of its own. Tells the machine only.
    pub fn copy_in_pages(&self, block: &PageRef<'h>, at: u32, bytes: u32) {
        if let Some(first) = self.heap.pages().address(block.pfn) {
            let at = first.as_ptr().wrapping_add(at as usize);
            self.machine().fill_memory(at, bytes as usize);
        }
    }

    /// The block's user copies bytes from it into a buffer of its own. Tells the machine only.
    pub fn copy_out_pages(&self, block: &PageRef<'h>, at: u32, bytes: u32) {
        if let Some(first) = self.heap.pages().address(block.pfn) {
            let at = first.as_ptr().wrapping_add(at as usize);
            self.machine().copy(at, bytes as usize);
        }
    }

    /// As [`Driver::alloc_pages`], but past the per-CPU lists: a block that was allocated before.
    #[must_use]
    pub fn alloc_old_pages(&self, order: u32, migratetype: MigrateType) -> Option<PageRef<'h>> {
        let pfn = self.heap.pages().alloc_past_lists(order, migratetype)?;
        PageRef::of(pfn, order)
    }

    /// A block that was allocated before, at its place: one in memory that is in use for good. `None` if it is not.
    #[must_use]
    pub fn lay_old_pages(
        &self,
        pfn: Pfn,
        order: u32,
        migratetype: MigrateType,
    ) -> Option<PageRef<'h>> {
        let laid = self.heap.pages().lay_allocated(pfn, order, migratetype);
        laid.then(|| PageRef::of(pfn, order)).flatten()
    }

    /// Frees a block.
    ///
    /// # Errors
    ///
    /// [`PageError`]; the block then stays allocated.
    #[inline]
    pub fn free_pages(&self, block: PageRef<'h>) -> Result<(), PageError> {
        // SAFETY: the brand says that this heap's page allocator gave the block. There is one receipt for it,
        // which ends here, and no receipt tells where its memory is.
        unsafe { self.heap.pages().free(block.pfn, block.order()) }
    }

    /// Zone-lock acquisitions so far, for slabs and for blocks of pages.
    #[inline]
    #[must_use]
    pub fn zone_locks(&self) -> u64 {
        self.heap.machine().lock_count(LockClass::Zone)
    }

    /// True if the per-CPU page lists hold blocks of this order.
    #[must_use]
    pub fn pcp_holds(&self, order: u32) -> bool {
        let lists = page_era(self.heap.era()).lists;
        let page_shift = self.heap.machine().topology().page_shift;
        let huge = lists.huge_lists > 0 && order == pageblock_order(page_shift);
        order <= lists.max_order || huge
    }

    /// Counters of the page allocator. Reading them counts nothing itself. Costs time proportional
    /// to the CPUs.
    #[must_use]
    pub fn page_stats(&self) -> PageStats {
        let heap = self.heap;
        heap.machine().uncounted(|| heap.pages().stats())
    }

    /// Walks every page and every list of the page allocator. Costs time proportional to the pages
    /// ever used.
    ///
    /// # Errors
    ///
    /// The first contradiction.
    pub fn check_pages(&self) -> Result<PageCensus, PageInconsistency> {
        let heap = self.heap;
        heap.machine()
            .uncounted(|| heap.pages().check_consistency())
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::era::Era;
    use quarry_core::geometry::BootParams;
    use quarry_core::machine::{Access, CpuId, Line, LockClass};
    use quarry_core::page::MigrateType;
    use quarry_core::slub::Slub;

    use crate::config::Config;
    use crate::driver::drive;
    use crate::step::Step;

    #[test]
    fn page_blocks_and_slabs_share_the_memory() {
        let config = Config {
            cpus: 2,
            memory_bytes: 64 << 20,
            ..Config::default()
        };
        let done = drive::<Slub, _>(config, Era::V6_18, BootParams::default(), |driver| {
            let start = driver.page_stats().free_pages + driver.slab_pages();
            let blocks: Vec<_> = (0..200)
                .map(|i| {
                    driver.run_on(CpuId(i % 2));
                    driver
                        .alloc_pages(i % 11 / 2, MigrateType::ALL[i as usize % 3])
                        .unwrap()
                })
                .collect();
            let object = driver.kmalloc(100).unwrap();
            assert!(driver.alloc_pages(11, MigrateType::Movable).is_none());
            let pages: u64 = blocks.iter().map(|block| 1 << block.order()).sum();
            let free = driver.page_stats().free_pages;
            assert_eq!(free + pages + driver.slab_pages(), start);
            let census = driver.check_pages().unwrap();
            assert_eq!(
                (census.allocated, census.slab),
                (pages, driver.slab_pages())
            );
            let locks = driver.zone_locks();
            assert!(locks > 0);
            for block in blocks {
                driver.free_pages(block).unwrap();
            }
            assert!(driver.zone_locks() > locks);
            driver.kfree(object, CpuId(1)).unwrap();
            // Looking counts nothing.
            let counted = driver.machine().counters();
            driver.check_pages().unwrap();
            let end = driver.page_stats();
            assert_eq!(driver.machine().counters(), counted);
            assert_eq!(end.free_pages + driver.slab_pages(), start);
        });
        done.unwrap();
    }

    #[test]
    fn memory_runs_out_and_comes_back() {
        let config = Config {
            memory_bytes: 8 << 20,
            ..Config::default()
        };
        let done = drive::<Slub, _>(config, Era::V6_18, BootParams::default(), |driver| {
            let free = driver.page_stats().free_pages;
            let blocks: Vec<_> =
                std::iter::from_fn(|| driver.alloc_pages(0, MigrateType::Movable)).collect();
            assert_eq!(blocks.len() as u64, free);
            assert_eq!(driver.page_stats().free_pages, 0);
            for block in blocks {
                driver.free_pages(block).unwrap();
            }
            assert_eq!(driver.page_stats().free_pages, free);
            driver.check_pages().unwrap();
        });
        done.unwrap();
    }

    /// Steps of the first free that drains a CPU's list, before the zone lock is taken and under it: accesses of each
    /// kind to descriptors.
    fn drain(era: Era) -> [[usize; 2]; 2] {
        let config = Config {
            memory_bytes: 1 << 30,
            ..Config::default()
        };
        let drained = drive::<Slub, _>(config, era, BootParams::default(), |driver| {
            let page = || driver.alloc_pages(0, MigrateType::Movable).unwrap();
            let mut pages: Vec<_> = (0..8000).map(|_| page()).collect();
            // Every other one, so that no page merges.
            let mut nth = 0;
            pages.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
            let is_lock = |step: &Step| matches!(step, Step::Lock(LockClass::Zone));
            let drained = pages.into_iter().find_map(|page| {
                let (steps, freed) = driver.machine().record_steps(|| driver.free_pages(page));
                freed.unwrap();
                let lock = steps.iter().position(is_lock)?;
                let (before, under) = steps.split_at(lock);
                Some([before, under].map(|part| {
                    let of = |wanted: Access| {
                        let is = |step: &&Step| match step {
                            Step::Access { line, access, .. } => {
                                *line == Line::PageDescriptor && *access == wanted
                            }
                            _ => false,
                        };
                        part.iter().filter(is).count()
                    };
                    [of(Access::Write), of(Access::Prefetch)]
                }))
            });
            drained.unwrap()
        });
        drained.unwrap()
    }

    #[test]
    fn a_drain_of_4_17_to_5_17_picks_its_pages_before_the_lock() {
        let [before, under] = drain(Era::V4_16);
        assert_eq!(before[0], 1, "the page that is freed");
        assert_eq!([before[1], under[1]], [0, 0]);
        // The same batch of 31.
        let [earlier, later] = drain(Era::V4_17);
        assert_eq!(earlier, [before[0] + 31, 31]);
        assert_eq!(later, [under[0] - 31, 0]);
        let [last, _] = drain(Era::V5_17);
        assert!(last[0] > 1 && last[1] > 0);
        let [after, _] = drain(Era::V5_18);
        assert_eq!(after, [1, 0]);
    }
}
