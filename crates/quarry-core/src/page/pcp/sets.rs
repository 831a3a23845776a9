//! A zone's lists in use: the slots of all CPUs, and how one is held.

use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::Pcp;
use crate::machine::{Access, CpuId, Line, Machine, PerCpu, Region, Work, access, work};
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

/// A machine's zones by their numbers, in its structure range. All that a machine may have are tens of kilobytes, which the maker
/// of a heap would have on the stack several times.
pub(crate) struct Zones {
    first: NonNull<Pagesets>,
    count: usize,
}

// SAFETY: the places are these zones' alone, and no other reference to one is kept; zones are `Send` themselves.
unsafe impl Send for Zones {}
// SAFETY: as for `Send`.
unsafe impl Sync for Zones {}

impl Zones {
    /// Places `count` zones that `make` makes; `None` if the range has no room, or one cannot be made.
    pub(crate) fn new<M: Machine>(
        machine: &M,
        meta: &Region,
        count: usize,
        mut make: impl FnMut(usize) -> Option<Pagesets>,
    ) -> Option<Self> {
        const {
            assert!(
                align_of::<Pagesets>() <= 64,
                "blocks are aligned to 64 bytes"
            );
            // The models' locks have destructors, which do nothing.
            assert!(cfg!(loom) || !core::mem::needs_drop::<Pagesets>());
        }
        let bytes = size_of::<Pagesets>() * count;
        let first = meta.alloc(machine, bytes)?.cast::<Pagesets>();
        for at in 0..count {
            let zone = make(at)?;
            // SAFETY: the block has room for `count` of them.
            let place = unsafe { first.add(at) };
            // SAFETY: the place is in the block, which is aligned, and this call's alone.
            unsafe { place.write(zone) };
        }
        Some(Self { first, count })
    }
}

impl Deref for Zones {
    type Target = [Pagesets];

    #[inline(always)]
    fn deref(&self) -> &[Pagesets] {
        // SAFETY: `new` has filled the places, which stay as long as the machine, whose owner has these zones.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl DerefMut for Zones {
    fn deref_mut(&mut self) -> &mut [Pagesets] {
        // SAFETY: as in `deref`; the zones are borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
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
