//! A zone's lists in use: the slots of all CPUs, and how one is held.

use super::Pcp;
use crate::machine::{Access, CpuId, Line, Machine, PerCpu, Work, access, work};
use crate::page::buddy::Mixing;
use crate::page::memmap::MapOn;
use crate::page::zone::Zone;

/// A zone and the lists of all CPUs in front of it.
pub(crate) struct Pagesets {
    pub(crate) zone: Zone,
    pub(crate) slots: PerCpu<Pcp>,
}

impl Pagesets {
    #[inline(always)]
    pub(crate) fn at<'a, M: Machine>(&'a self, map: MapOn<'a, M>) -> Pageset<'a, M> {
        Pageset {
            map,
            zone: &self.zone,
            slots: &self.slots,
            mixing: Mixing::Allowed,
        }
    }
}

/// [`Pagesets`] in use: with the map, and the request's rule on types.
pub(crate) struct Pageset<'a, M: Machine> {
    pub(crate) map: MapOn<'a, M>,
    pub(crate) zone: &'a Zone,
    pub(crate) slots: &'a PerCpu<Pcp>,
    /// Blocks that a refill may take.
    pub(crate) mixing: Mixing,
}

impl<M: Machine> Pageset<'_, M> {
    /// Pages that eras with [`Tuning::Auto`] move at a time, of those above `high` or of a spree.
    pub(super) fn tuned_most(&self) -> u32 {
        self.zone.limits.batch() << self.zone.rules.batch_scale_max
    }

    /// Pages that move under one hold of the zone lock at most, whatever the era says.
    pub(super) fn hold(&self) -> u32 {
        self.zone.rules.hold_pages
    }

    /// Calls `f` with the running CPU's lists; `None` if they are held.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Pcp, CpuId) -> R) -> Option<R> {
        self.slots.try_with(self.map.machine, |pcp, cpu| {
            work(self.map.machine, Work::PageCall);
            self.account_protection(pcp);
            pcp.held(self, |pcp| f(pcp, cpu))
        })
    }

    /// Calls `f` with a CPU's lists; `None` if their holder does not let go in bounded time.
    pub(crate) fn with_remote<R>(&self, cpu: CpuId, f: impl FnOnce(&mut Pcp) -> R) -> Option<R> {
        self.slots
            .try_with_remote(self.map.machine, cpu, |pcp| pcp.held(self, f))
    }

    /// Accounts the release's protection of a CPU's lists.
    #[inline(always)]
    pub(crate) fn account_protection(&self, pcp: &Pcp) {
        work(self.map.machine, self.zone.rules.pcp_protection());
        if self.zone.rules.has_pcp_lock() {
            let lock = core::ptr::from_ref(pcp).cast::<u32>();
            access(self.map.machine, Line::Pcp, Access::Atomic, lock);
        }
    }
}
