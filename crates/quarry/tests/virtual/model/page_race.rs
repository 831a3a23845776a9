//! The same for the page allocator alone: tasks that allocate and free blocks of pages race.

use std::cell::RefCell;

use quarry_core::machine::Machine;
use quarry_core::page::{AllocOptions, MAX_ORDER, PageAllocator, PageConfig, Pfn};
use quarry_sim::{Explore, Explored};

use super::by_number::ByNumber as _;
use super::page_script::PageOp;
use super::pages::PageDriver;
use super::place::Placement;
use super::race::Turns;
use super::setup::Setup;
use super::{Check, ensure, ensure_eq};

/// Blocks that one operation allocates or frees at most.
const COUNT_MAX: u16 = 24;

struct PageRace<'d, 'a, M: Machine, P> {
    pages: &'a PageAllocator<M>,
    place: P,
    /// Borrowed between calls of the allocator only.
    driver: RefCell<&'d mut PageDriver<'a, M, P>>,
    scarce: bool,
}

impl<M: Machine, P: Placement<M>> PageRace<'_, '_, M, P> {
    fn go(&self, cpu: u16) {
        self.place.go(self.pages.machine(), cpu);
    }

    fn apply(&self, op: &PageOp) -> Check {
        match *op {
            PageOp::Alloc { cpu, .. } => {
                self.go(cpu);
                self.alloc(&op.options(self.pages.machine()))
            }
            PageOp::Exhaust { cpu, .. } => {
                self.go(cpu);
                let options = op.options(self.pages.machine());
                (0..COUNT_MAX).try_for_each(|_| self.alloc(&options))
            }
            PageOp::Free { cpu, pick, count } => {
                self.go(cpu);
                (0..count.min(COUNT_MAX)).try_for_each(|n| self.free(pick.wrapping_add(n)))
            }
            PageOp::AllocBulk { cpu, slots, .. } => {
                self.go(cpu);
                self.alloc_bulk(usize::from(slots))
            }
            PageOp::FreeBulk {
                cpu, pick, slots, ..
            } => {
                self.go(cpu);
                self.free_bulk(pick, usize::from(slots))
            }
            PageOp::Drain => self.not_busy(self.pages.drain_all()),
            PageOp::Interval => self.not_busy(self.pages.vmstat_update()),
            // A page that is free is another task's next. What follows is looked at instead.
            PageOp::Double { .. } => {
                let checked = self.pages.check_consistency();
                checked.map(|_| ()).map_err(|error| error.to_string())
            }
            PageOp::WrongOrder { .. } | PageOp::Foreign { .. } | PageOp::Inside { .. } => Ok(()),
        }
    }

    fn not_busy(&self, busy: u32) -> Check {
        ensure_eq!(busy, 0, "busy CPUs");
        Ok(())
    }

    fn exhausted(&self) -> Check {
        ensure!(self.scarce, "no pages in ample memory");
        Ok(())
    }

    fn alloc(&self, options: &AllocOptions) -> Check {
        match self.pages.alloc_with(options) {
            Some(pfn) => self.driver.borrow_mut().admit(pfn, options.order),
            None if options.order > MAX_ORDER => Ok(()),
            None => self.exhausted(),
        }
    }

    fn free(&self, pick: u16) -> Check {
        let (pfn, order) = {
            let mut driver = self.driver.borrow_mut();
            let Some((pfn, _)) = driver.pick(pick) else {
                return Ok(());
            };
            driver.frees += 1;
            (pfn, driver.dismiss(pfn)?)
        };
        let freed = self.pages.free_number(pfn, order);
        ensure_eq!(freed, Ok(()), "freeing {pfn:?}, order {order}");
        Ok(())
    }

    fn alloc_bulk(&self, slots: usize) -> Check {
        let mut array = vec![None; slots];
        let filled = self.pages.alloc_bulk(None, &mut array);
        ensure!(
            array[..filled].iter().all(Option::is_some),
            "{filled} slots are filled: {array:?}"
        );
        for pfn in array.into_iter().flatten() {
            self.driver.borrow_mut().admit(pfn, 0)?;
        }
        Ok(())
    }

    fn free_bulk(&self, pick: u16, slots: usize) -> Check {
        let mut array: Vec<Option<Pfn>> = Vec::new();
        {
            let mut driver = self.driver.borrow_mut();
            for pfn in driver.singles(pick, slots) {
                driver.dismiss(pfn)?;
                array.push(Some(pfn));
            }
            driver.frees += array.len() as u64;
        }
        ensure_eq!(self.pages.free_numbers(&mut array), Ok(()), "a bulk free");
        Ok(())
    }
}

/// Runs a script's operations as tasks that race, and checks what they got and what is left.
pub(crate) fn check_page_race<M: Machine, P: Placement<M>>(
    (machine, place): (M, P),
    setup: &Setup,
    how: &Explore,
    config: &PageConfig,
    ops: &[PageOp],
) -> Check<Explored> {
    let pages = PageAllocator::with_config(machine, config).map_err(|error| error.to_string())?;
    let limits = setup.limits();
    let mut driver = PageDriver::new(&pages, place, limits);
    let race = PageRace {
        pages: &pages,
        place,
        driver: RefCell::new(&mut driver),
        scarce: limits.scarce,
    };
    let turns = Turns::new(ops, how);
    let explored = place
        .on(pages.machine())
        .explore(how, |task| turns.run(task, |op| race.apply(op)));
    turns.end()?;
    let explored = explored.map_err(|error| error.to_string())?;
    driver
        .audit()
        .and_then(|()| driver.finish())
        .map_err(|error| format!("at the end: {error}"))?;
    Ok(explored)
}
