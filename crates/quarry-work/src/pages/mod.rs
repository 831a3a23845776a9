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
//! # Out of step
//!
//! Processes are anywhere in their rounds, as those of a machine that has been loaded for a while. A first round in step
//! brings the CPUs' lists to the state that they keep, and gives the time of a round. Each process then begins at a random
//! moment within such a time. Counting begins when all have ended another round, and ends when all have ended the rounds that
//! are asked for (`window.rs`): all of them fault and free all the time.

mod report;
mod spec;
#[cfg(test)]
mod tests;
mod window;

pub use report::{HalfReport, PagesReport, ZoneLock};
pub use spec::PagesSpec;

use quarry_core::design::Design;
use quarry_core::machine::{Accounting as _, Work};
use quarry_core::page::MigrateType;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_sim::driver::{Driver, drive};

use crate::error::{WorkError, of_run};
use crate::phase::{NoMemory, Of, Phase, SKEW_NS};
use window::Window;

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
        Processes { spec, driver }.run()
    });
    of_run(ran, || spec.label())
}

/// A run.
struct Processes<'a, 'h, D: Design> {
    spec: &'a PagesSpec,
    driver: &'a Driver<'h, D>,
}

impl<D: Design> Processes<'_, '_, D> {
    fn run(&self) -> Result<PagesReport, WorkError> {
        let machine = self.driver.machine();
        let of = |within_ns| Of {
            machine,
            what: "the processes' pages",
            seed: self.spec.setup.seed,
            within_ns,
        };
        let window = Window::new(machine, self.spec.processes, self.spec.rounds);
        let in_step = Phase::run(&of(SKEW_NS), |_| self.round(&window))?;
        Phase::run(&of(in_step.slowest_ns()), |cpu| {
            while !window.is_over() {
                self.round(&window)?;
                window.round_ends(cpu);
            }
            Ok(())
        })?;
        let all = machine.time_counters().unwrap_or_default();
        Ok(PagesReport::of(self.spec, &window.counted(), all))
    }

    /// A process maps its memory, touches all of it, and unmaps it. Once all has been counted, it touches no more.
    fn round(&self, window: &Window<'_>) -> Result<(), NoMemory> {
        let machine = self.driver.machine();
        let mut pages = Vec::with_capacity(self.spec.pages as usize);
        while pages.len() < self.spec.pages as usize && !window.is_over() {
            let page = window.fault(|| {
                machine.work(Work::Syscall);
                let page = self.driver.alloc_pages(0, MigrateType::Movable)?;
                self.driver.zero_pages(&page);
                Some(page)
            });
            pages.push(page.ok_or(NoMemory)?);
        }
        let mut enters = true;
        for page in pages {
            window.free(|| {
                if std::mem::take(&mut enters) {
                    machine.work(Work::Syscall);
                }
                let freed = self.driver.free_pages(page);
                debug_assert!(freed.is_ok(), "the page was the process's: {freed:?}");
            });
        }
        Ok(())
    }
}
