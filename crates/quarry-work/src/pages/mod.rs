//! Processes that touch memory and exit: pages of order 0, in simulated time.
//!
//! Each CPU has a process, which does what `page_fault1` of will-it-scale does: it maps memory, touches every page, and
//! unmaps it again.
//!
//! * A fault enters the kernel, allocates a movable page and fills it with zeros.
//! * The unmapping enters the kernel once and frees all pages, in the order of their addresses.
//!
//! What a kernel does besides (page tables, reverse maps, the list of pages that may be reclaimed, accounting) is left
//! out. So the share of the zone lock is that of a kernel whose other locks cost nothing.
//!
//! A first round, which is not counted, brings the CPUs' lists to the state that they keep.

mod report;
mod spec;
#[cfg(test)]
mod tests;

pub use report::{PagesReport, ZoneLock};
pub use spec::PagesSpec;

use std::cell::RefCell;

use quarry_core::design::Design;
use quarry_core::machine::{Accounting as _, CpuId, Work};
use quarry_core::page::MigrateType;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_sim::driver::{Driver, PageRef, drive};

use crate::error::{WorkError, of_run};
use crate::phase::{NoMemory, Of, Phase};

/// Runs the processes.
///
/// # Errors
///
/// [`WorkError`]: invalid parameters, a machine without room, or a deadlock.
pub fn run(spec: &PagesSpec) -> Result<PagesReport, WorkError> {
    // No slab is asked for; a heap of any design has the page allocator of its era.
    match Slub::RELEASES.contains(&spec.setup.era) {
        true => run_with::<Slub>(spec),
        false => run_with::<SheafCache>(spec),
    }
}

fn run_with<D: Design>(spec: &PagesSpec) -> Result<PagesReport, WorkError> {
    let config = spec.config()?;
    let ran = drive::<D, _>(config, spec.setup.era, spec.setup.tuning.boot, |driver| {
        spec.setup.tuning.set_pages(driver)?;
        let processes = Processes {
            spec,
            driver,
            pages: (0..spec.processes).map(|_| RefCell::default()).collect(),
        };
        processes.run()
    });
    of_run(ran, || spec.label())
}

/// A run.
struct Processes<'a, 'h, D: Design> {
    spec: &'a PagesSpec,
    driver: &'a Driver<'h, D>,
    /// Pages that each process has mapped.
    pages: Vec<RefCell<Vec<PageRef<'h>>>>,
}

impl<D: Design> Processes<'_, '_, D> {
    fn run(&self) -> Result<PagesReport, WorkError> {
        self.round()?;
        let (mut faults, mut frees) = (Phase::default(), Phase::default());
        for _ in 0..self.spec.rounds {
            let (fault, free) = self.round()?;
            faults.add(&fault);
            frees.add(&free);
        }
        let all = self.driver.machine().time_counters().unwrap_or_default();
        Ok(PagesReport::of(self.spec, &faults, &frees, all))
    }

    fn round(&self) -> Result<(Phase, Phase), WorkError> {
        let machine = self.driver.machine();
        let of = Of {
            machine,
            what: "the processes' pages",
            seed: self.spec.setup.seed,
        };
        let faults = Phase::run(&of, |CpuId(cpu)| {
            let mut pages = Vec::with_capacity(self.spec.pages as usize);
            for _ in 0..self.spec.pages {
                machine.work(Work::Syscall);
                let page = self.driver.alloc_pages(0, MigrateType::Movable);
                let page = page.ok_or(NoMemory)?;
                self.driver.zero_pages(&page);
                pages.push(page);
            }
            *self.pages[cpu as usize].borrow_mut() = pages;
            Ok(())
        })?;
        let frees = Phase::run(&of, |CpuId(cpu)| {
            machine.work(Work::Syscall);
            for page in self.pages[cpu as usize].take() {
                let freed = self.driver.free_pages(page);
                debug_assert!(freed.is_ok(), "the page was the process's: {freed:?}");
            }
            Ok(())
        })?;
        Ok((faults, frees))
    }
}
