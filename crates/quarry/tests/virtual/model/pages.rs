//! The same for the page allocator alone: a map of live blocks against the real thing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use quarry_core::machine::{Machine, NodeId};
use quarry_core::page::{
    AllocOptions, MAX_ORDER, ORDERS, PageAllocator, PageConfig, PageError, PageStats, Pfn,
};
use quarry_sim::{Counters, VirtualMachine};

use super::page_script::PageOp;
use super::place::{Placement, Virtual, node_of};
use super::setup::{Limits, Setup};
use super::steps::{OnSteps, Stepping};
use super::{Check, ensure, ensure_eq};
use crate::model::by_number::ByNumber as _;

/// Blocks that one [`PageOp::Exhaust`] takes at most.
const EXHAUST_MAX: usize = 3000;

/// Runs operations on a page allocator and checks every answer. Racing tasks share a driver: no cell is borrowed
/// while the allocator runs.
pub(crate) struct PageDriver<'a, M: Machine, P> {
    pub(crate) pages: &'a PageAllocator<M>,
    pub(crate) place: P,
    pub(crate) limits: Limits,
    /// Order and mark of every live block.
    live: RefCell<BTreeMap<Pfn, (u32, u64)>>,
    pub(crate) live_pages: Cell<u64>,
    pub(crate) allocs: Cell<u64>,
    pub(crate) frees: Cell<u64>,
    pub(crate) boot_blocks: [u64; ORDERS],
}

impl<'a, M: Machine, P: Placement<M>> PageDriver<'a, M, P> {
    /// A driver of a page allocator that no code has used.
    pub(crate) fn new(pages: &'a PageAllocator<M>, place: P, limits: Limits) -> Self {
        Self {
            pages,
            place,
            limits,
            live: RefCell::default(),
            live_pages: Cell::new(0),
            allocs: Cell::new(0),
            frees: Cell::new(0),
            boot_blocks: pages.stats().free_blocks,
        }
    }

    /// Runs a script, auditing after every operation, and gives everything back at the end.
    pub(crate) fn run(&self, script: &[PageOp]) -> Check {
        for (at, op) in script.iter().enumerate() {
            self.apply(op)
                .and_then(|()| self.audit())
                .map_err(|error| format!("operation {at}, {op:?}: {error}"))?;
        }
        self.finish()
            .map_err(|error| format!("at the end: {error}"))
    }

    pub(crate) fn go(&self, cpu: u16) {
        self.place.go(self.pages.machine(), cpu);
    }

    fn node(&self, node: Option<u8>) -> Option<NodeId> {
        node.map(|node| node_of(self.pages.machine(), node))
    }

    fn pick(&self, pick: u16) -> Option<(Pfn, u32)> {
        let live = self.live.borrow();
        let at = usize::from(pick) % live.len().max(1);
        live.iter().nth(at).map(|(&pfn, &(order, _))| (pfn, order))
    }

    pub(crate) fn apply(&self, op: &PageOp) -> Check {
        match *op {
            PageOp::Alloc { cpu, .. } => {
                self.go(cpu);
                let options = op.options(self.pages.machine());
                self.alloc(&options).map(|_| ())
            }
            PageOp::Exhaust { cpu, order } => {
                self.go(cpu);
                let options = op.options(self.pages.machine());
                for _ in 0..EXHAUST_MAX >> order.min(6) {
                    if !self.alloc(&options)? {
                        break;
                    }
                }
                Ok(())
            }
            PageOp::Free { cpu, pick, count } => {
                self.go(cpu);
                (0..count).try_for_each(|i| self.free(pick.wrapping_add(i)).map(|_| ()))
            }
            PageOp::AllocBulk {
                cpu,
                node,
                slots,
                filled,
            } => {
                self.go(cpu);
                self.alloc_bulk(self.node(node), usize::from(slots), usize::from(filled))
            }
            PageOp::FreeBulk {
                cpu,
                pick,
                slots,
                mistake,
            } => {
                self.go(cpu);
                self.free_bulk(pick, usize::from(slots), mistake)
            }
            PageOp::Drain => self.drain(1),
            PageOp::Interval => {
                let busy = self.pages.vmstat_update();
                ensure!(busy == 0 || self.limits.cpus_hide, "{busy} CPUs are busy");
                Ok(())
            }
            ref mistake => self.mistake(mistake),
        }
    }

    fn mistake(&self, op: &PageOp) -> Check {
        match *op {
            PageOp::Double { cpu, pick } => {
                self.go(cpu);
                match self.free(pick)? {
                    Some((pfn, order)) => self.refused(pfn, order, |error| {
                        matches!(error, PageError::NotAllocated(..))
                    }),
                    None => Ok(()),
                }
            }
            PageOp::WrongOrder { pick, order } => match self.pick(pick) {
                Some((pfn, allocated)) if allocated != order => self.refused(pfn, order, |error| {
                    let expected = PageError::WrongOrder {
                        pfn,
                        given: order,
                        allocated,
                    };
                    error == expected
                }),
                _ => Ok(()),
            },
            PageOp::Foreign { beyond, order } => {
                let pfn = Pfn(self.pages.pages().saturating_add(beyond));
                self.refused(pfn, order, |error| error == PageError::Foreign(pfn))
            }
            PageOp::Inside { pick, offset } => match self.pick(pick) {
                Some((pfn, order)) if order > 0 => {
                    let inside = Pfn(pfn.0 + 1 + u32::from(offset) % ((1 << order) - 1));
                    let not_allocated = |error| matches!(error, PageError::NotAllocated(..));
                    self.refused(inside, 0, not_allocated)?;
                    self.refused(inside, order, not_allocated)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// A free that must be refused and must change nothing.
    fn refused(&self, pfn: Pfn, order: u32, expected: impl Fn(PageError) -> bool) -> Check {
        let before = self.pages.stats();
        let freed = self.pages.free_number(pfn, order);
        ensure!(
            freed.is_err_and(expected),
            "freeing {pfn:?}, order {order}, gave {freed:?}"
        );
        let after = self.pages.stats();
        ensure!(
            before == after || self.limits.cpus_hide,
            "a refused free changed counters"
        );
        Ok(())
    }

    /// Address of the last word of a block, for the mark.
    fn mark_of(&self, pfn: Pfn, order: u32) -> Check<std::ptr::NonNull<u64>> {
        let bytes = self.pages.machine().topology().page_size() << order;
        let Some(first) = self.pages.address(pfn) else {
            return Err(format!("{pfn:?} has no address"));
        };
        ensure_eq!(
            self.pages.pfn_of(first),
            Some(pfn),
            "the page of the address of {pfn:?}"
        );
        // SAFETY: the block has `bytes` bytes.
        Ok(unsafe { first.byte_add(bytes - size_of::<u64>()) }.cast())
    }

    fn admit(&self, pfn: Pfn, order: u32) -> Check {
        let end = pfn.0 + (1 << order);
        ensure!(
            pfn.0.is_multiple_of(1 << order),
            "{pfn:?} is no place for order {order}"
        );
        ensure!(
            end <= self.pages.pages(),
            "{pfn:?}, order {order}, ends outside of memory"
        );
        let before = self.live.borrow();
        if let Some((other, (other_order, _))) = before.range(..Pfn(end)).next_back() {
            ensure!(
                other.0 + (1 << other_order) <= pfn.0,
                "{pfn:?}, order {order}, overlaps {other:?}, order {other_order}"
            );
        }
        drop(before);
        self.allocs.update(|allocs| allocs + 1);
        self.live_pages.update(|pages| pages + (1 << order));
        let mark = self.allocs.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: the block is this driver's; the address is its last word.
        unsafe { self.mark_of(pfn, order)?.write(mark) };
        self.live.borrow_mut().insert(pfn, (order, mark));
        Ok(())
    }

    fn dismiss(&self, pfn: Pfn) -> Check<u32> {
        let Some((order, mark)) = self.live.borrow_mut().remove(&pfn) else {
            return Err(format!("the model does not know {pfn:?}"));
        };
        self.live_pages.update(|pages| pages - (1 << order));
        // SAFETY: `admit` wrote it.
        let found = unsafe { self.mark_of(pfn, order)?.read() };
        ensure_eq!(found, mark, "the contents of {pfn:?}, order {order}");
        Ok(order)
    }

    fn exhausted(&self, order: u32) -> Check {
        ensure!(
            self.limits.scarce,
            "no block of order {order} in ample memory"
        );
        let free = self.pages.stats().free_blocks;
        let left: u64 = free[order as usize..].iter().sum();
        ensure!(
            left == 0 || self.limits.cpus_hide || self.limits.raced,
            "order {order} failed with {free:?}"
        );
        Ok(())
    }

    pub(crate) fn alloc(&self, options: &AllocOptions) -> Check<bool> {
        let order = options.order;
        let wanted = options.node.unwrap_or_else(|| {
            let machine = self.pages.machine();
            machine.node_of_cpu(machine.current_cpu())
        });
        let plain = AllocOptions {
            order,
            node: options.node,
            ..AllocOptions::default()
        };
        let allocated = if *options == plain {
            self.pages.alloc(order, options.node)
        } else {
            self.pages.alloc_with(options)
        };
        let Some(pfn) = allocated else {
            if order <= MAX_ORDER {
                self.exhausted(order)?;
            }
            return Ok(false);
        };
        ensure!(order <= MAX_ORDER, "a block of order {order}: {pfn:?}");
        self.admit(pfn, order)?;
        // While little is in use, the wanted node has what is asked for.
        let share = self.pages.pages() / self.pages.machine().topology().nodes;
        let roomy = !self.limits.scarce && self.live_pages.get() < u64::from(share) / 32;
        if roomy && order <= 3 && !self.limits.raced {
            ensure_eq!(self.pages.node_of(pfn), Some(wanted), "the node of {pfn:?}");
        }
        Ok(true)
    }

    /// Frees a block; gives back what it was.
    fn free(&self, pick: u16) -> Check<Option<(Pfn, u32)>> {
        let Some((pfn, _)) = self.pick(pick) else {
            return Ok(None);
        };
        let order = self.dismiss(pfn)?;
        let freed = self.pages.free_number(pfn, order);
        ensure_eq!(freed, Ok(()), "freeing {pfn:?}, order {order}");
        self.frees.update(|frees| frees + 1);
        Ok(Some((pfn, order)))
    }

    fn alloc_bulk(&self, node: Option<NodeId>, slots: usize, filled: usize) -> Check {
        // What fills a slot beforehand must not be looked at.
        let stranger = Pfn(u32::MAX);
        let is_filled = |at: usize| filled > 0 && at.is_multiple_of(filled + 1);
        let mut array: Vec<_> = (0..slots)
            .map(|at| is_filled(at).then_some(stranger))
            .collect();
        let prefix = |array: &[Option<Pfn>]| array.iter().take_while(|slot| slot.is_some()).count();
        let mut before = prefix(&array);
        let mut answer = before;
        // A call that fills less than all says to try again, one that fills nothing that memory
        // has run out.
        while answer < slots {
            answer = self.pages.alloc_bulk(node, &mut array);
            ensure_eq!(answer, prefix(&array), "filled slots and the answer");
            if answer == before {
                break;
            }
            before = answer;
        }
        for (at, slot) in array.iter().enumerate() {
            match *slot {
                Some(pfn) if is_filled(at) => ensure_eq!(pfn, stranger, "a filled slot"),
                Some(pfn) => self.admit(pfn, 0)?,
                None => ensure!(!is_filled(at), "slot {at} was emptied"),
            }
        }
        if answer < slots {
            self.exhausted(0)?;
        }
        Ok(())
    }

    /// Some live blocks of one page.
    fn singles(&self, pick: u16, most: usize) -> Vec<Pfn> {
        let live = self.live.borrow();
        let singles = live.iter().filter(|(_, (order, _))| *order == 0);
        let skipped = usize::from(pick) % live.len().max(1);
        let singles = singles.map(|(&pfn, _)| pfn);
        singles.skip(skipped).take(most).collect()
    }

    fn free_bulk(&self, pick: u16, slots: usize, mistake: bool) -> Check {
        let chosen = self.singles(pick, slots);
        let mut array = Vec::new();
        for &pfn in &chosen {
            self.dismiss(pfn)?;
            array.extend([Some(pfn), None]);
        }
        let stranger = Pfn(self.pages.pages());
        let expected = if mistake {
            array.insert(array.len() / 2, Some(stranger));
            Err(PageError::Foreign(stranger))
        } else {
            Ok(())
        };
        ensure_eq!(self.pages.free_numbers(&mut array), expected, "a bulk free");
        let left: Vec<Pfn> = array.into_iter().flatten().collect();
        let strangers = if mistake { vec![stranger] } else { vec![] };
        ensure_eq!(left, strangers, "what a bulk free left");
        let freed = chosen.len() as u64;
        self.frees.update(|frees| frees + freed);
        Ok(())
    }

    fn drain(&self, attempts: u32) -> Check {
        let drained = (0..attempts).any(|_| self.pages.drain_all() == 0);
        ensure!(drained || self.limits.cpus_hide, "CPUs kept their lists");
        Ok(())
    }

    /// Frees everything and checks that memory is as it was at boot.
    pub(crate) fn finish(&self) -> Check {
        self.audit_zones()?;
        let mut turn = 1u16;
        while self.free(turn)?.is_some() {
            turn = turn.wrapping_mul(31).wrapping_add(7);
            self.go(turn);
        }
        self.audit()?;
        self.audit_zones()?;
        let attempts = if self.limits.cpus_hide { 2000 } else { 1 };
        self.drain(attempts)?;
        let census = (0..attempts).find_map(|_| self.census().transpose());
        let Some(census) = census.transpose()? else {
            return Err("no census could be made".into());
        };
        let kept = census.pcp + census.in_hand + census.allocated;
        ensure_eq!(kept, 0, "pages not given back");
        let now = self.pages.stats().free_blocks;
        ensure_eq!(now, self.boot_blocks, "free blocks, now and at boot");
        Ok(())
    }
}

/// Runs a script on a virtual machine; the same script gives the same counts.
pub(crate) fn check_pages(
    setup: &Setup,
    config: &PageConfig,
    script: &[PageOp],
) -> Check<(Counters, PageStats)> {
    let pages: PageAllocator<VirtualMachine> =
        PageAllocator::with_config(setup.machine(), config).map_err(|error| error.to_string())?;
    PageDriver::new(&pages, Virtual, setup.limits()).run(script)?;
    Ok((pages.machine().counters(), pages.stats()))
}

/// [`check_pages`] on a machine with single steps.
pub(crate) fn check_page_steps(
    setup: &Setup,
    config: &PageConfig,
    script: &[PageOp],
) -> Check<PageStats> {
    let machine = Stepping(setup.machine());
    let pages = PageAllocator::with_config(machine, config).map_err(|error| error.to_string())?;
    PageDriver::new(&pages, OnSteps, setup.limits()).run(script)?;
    Ok(pages.stats())
}
