//! A zone: its buddy lists behind the zone lock, the per-CPU lists in front, the deferred frees.

use super::buddy::FreeArea;
use super::geometry::PcpParams;
use super::map::MemMap;
use super::pcp::Pcp;
use super::types::{Page, PageKind, Pfn, ZoneId};
use crate::machine::{Access, Guard, Line, LockClass, Machine, PerCpu, SpinLock, touch};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// See the module's documentation.
pub(crate) struct Zone {
    pub(crate) id: ZoneId,
    pub(crate) start: u32,
    pub(crate) end: u32,
    area: SpinLock<FreeArea>,
    pub(crate) pcp: PerCpu<Pcp>,
    batch: AtomicU32,
    high: AtomicU32,
    /// The limits as they were computed; `batch` and `high` are those in force.
    params: PcpParams,
    /// Blocks whose free found the zone lock re-entered: a stack linked by `next`, which the next
    /// holder of the lock takes whole. Push and take-all cannot suffer from reuse of a page.
    deferred: AtomicU32,
    /// Requests that went to the zone without passing a per-CPU list.
    pub(crate) direct_allocs: AtomicU64,
    pub(crate) direct_frees: AtomicU64,
}

impl Zone {
    pub(crate) fn new(
        id: ZoneId,
        pages: core::ops::Range<u32>,
        pcp: PerCpu<Pcp>,
        params: PcpParams,
    ) -> Self {
        Self {
            id,
            start: pages.start,
            end: pages.end,
            area: SpinLock::new(LockClass::Zone, FreeArea::new(pages.start, pages.end)),
            pcp,
            batch: AtomicU32::new(params.batch),
            high: AtomicU32::new(params.high),
            params,
            deferred: AtomicU32::new(0),
            direct_allocs: AtomicU64::new(0),
            direct_frees: AtomicU64::new(0),
        }
    }

    pub(crate) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed)
    }

    pub(crate) fn high(&self) -> u32 {
        self.high.load(Ordering::Relaxed)
    }

    pub(crate) fn params(&self) -> PcpParams {
        PcpParams {
            batch: self.batch(),
            high: self.high(),
            ..self.params
        }
    }

    /// Whether the per-CPU lists hold this order.
    #[inline(always)]
    pub(crate) fn lists_hold(&self, order: u32) -> bool {
        order <= self.params.max_order
    }

    /// Takes the zone lock and settles what was deferred. `None` if re-entered.
    pub(crate) fn lock<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        map: &MemMap,
    ) -> Option<Guard<'a, M, FreeArea>> {
        let mut area = self.area.lock(machine)?;
        touch(
            machine,
            Line::Zone,
            Access::Write,
            core::ptr::from_ref(self).addr(),
        );
        if self.deferred.load(Ordering::Relaxed) != 0 {
            self.settle(machine, map, &mut area);
        }
        Some(area)
    }

    #[cold]
    fn settle<M: Machine>(&self, machine: &M, map: &MemMap, area: &mut FreeArea) {
        // Acquire: pairs with the Release in `defer`.
        let mut next = Pfn::from_link(self.deferred.swap(0, Ordering::Acquire));
        while let Some(pfn) = next {
            let page: &Page = map.page(pfn);
            next = page.next();
            area.free(machine, map, pfn, page.order());
        }
    }

    /// Leaves a block for the next holder of the zone lock.
    #[cold]
    fn defer(&self, map: &MemMap, pfn: Pfn) {
        let mut head = self.deferred.load(Ordering::Relaxed);
        loop {
            map.page(pfn).set_next(Pfn::from_link(head));
            // Release: pairs with the Acquire in `settle`.
            match self.deferred.compare_exchange(
                head,
                Pfn::link(Some(pfn)),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes a block past the per-CPU lists.
    pub(crate) fn alloc_direct<M: Machine>(
        &self,
        machine: &M,
        map: &MemMap,
        order: u32,
    ) -> Option<Pfn> {
        let pfn = self
            .lock(machine, map)?
            .alloc(machine, map, order, PageKind::Allocated)?;
        self.direct_allocs.fetch_add(1, Ordering::Relaxed);
        Some(pfn)
    }

    /// Gives a block back past the per-CPU lists. Its descriptor already says that it is free.
    pub(crate) fn free_direct<M: Machine>(&self, machine: &M, map: &MemMap, pfn: Pfn, order: u32) {
        self.direct_frees.fetch_add(1, Ordering::Relaxed);
        match self.lock(machine, map) {
            Some(mut area) => area.free(machine, map, pfn, order),
            None => self.defer(map, pfn),
        }
    }
}
