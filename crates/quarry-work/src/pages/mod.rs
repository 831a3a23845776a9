//! Processes that touch memory and exit: pages of order 0, in simulated time.
//!
//! Each CPU has a process, which does what `page_fault1` of will-it-scale does: it maps memory, touches every page, and
//! unmaps it again.
//!
//! * A fault enters the kernel, allocates a movable page and fills it with zeros.
//! * The unmapping enters the kernel once and frees all pages, in the order of their addresses.
//!
//! Page tables, reverse maps and the kernel's accounting are left out. So are the lists of pages that may be
//! reclaimed, unless they are asked for: then an unmapping also counts its pages as mapped no more (`lru.rs`). The share of the zone lock is that of a kernel whose other locks cost nothing.
//!
//! # Moves
//!
//! Processes may move: one more than there are CPUs waits for one. After some pages that it touched or freed, a process waits
//! behind all others, and its CPU takes the one that has waited longest. So pages are freed on other CPUs than they were
//! allocated on.
//!
//! # Out of step
//!
//! Processes are anywhere in their rounds, as those of a machine that has been loaded for a while. A first round in step
//! brings the CPUs' lists to the state that they keep, and gives the time of a round. Each process then begins at a random
//! moment within such a time. Counting begins when all have ended another round, and ends when all have ended the rounds that
//! are asked for (`window.rs`): all of them fault and free all the time.

mod lru;
mod process;
mod report;
mod spec;
#[cfg(test)]
mod tests;
mod window;

pub use report::{HalfReport, LockReport, PagesReport};
pub use spec::PagesSpec;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use quarry_core::design::Design;
use quarry_core::machine::{Accounting as _, CpuId, Work};
use quarry_core::page::MigrateType;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_sim::driver::{Driver, drive};

use crate::error::{WorkError, of_run};
use crate::phase::{NoMemory, Of, Phase, SKEW_NS};
use lru::{Held, Lru};
use process::Process;
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
        let driver = &*driver;
        let lru = spec.lru.then(|| Lru::new(driver, &spec.setup));
        let lru = lru.transpose()?;
        Processes { spec, driver, lru }.run()
    });
    of_run(ran, || spec.label())
}

/// A run.
struct Processes<'a, 'h, D: Design> {
    spec: &'a PagesSpec,
    driver: &'a Driver<'h, D>,
    /// Lists for reclaim, if they are not left out.
    lru: Option<Lru<'a, 'h, D>>,
}

impl<'h, D: Design> Processes<'_, 'h, D> {
    fn run(&self) -> Result<PagesReport, WorkError> {
        let machine = self.driver.machine();
        let of = |within_ns| Of {
            machine,
            what: "the processes' pages",
            seed: self.spec.setup.seed,
            within_ns,
        };
        let all = self.spec.all_processes();
        let window = Window::new(machine, all, self.spec.rounds);
        let new = |number| Process::new(number, self.spec.move_every, self.spec.setup.seed);
        let in_step = Phase::run(&of(SKEW_NS), |cpu| {
            let mut process = new(cpu.0);
            while !self.step(&window, cpu, &mut process)? {}
            Ok(())
        })?;
        // Others wait for a CPU, the one that has waited longest first.
        let waiting = RefCell::new(VecDeque::new());
        waiting
            .borrow_mut()
            .extend((self.spec.processes..all).map(new));
        Phase::run(&of(in_step.slowest_ns()), |cpu| {
            let mut process = new(cpu.0);
            while !(window.is_over() && process.pages.is_empty()) {
                if self.step(&window, cpu, &mut process)? {
                    window.round_ends(process.number);
                }
                if process.moves() && !window.is_over() {
                    machine.work(Work::Switch);
                    machine.take_turn();
                    let mut waiting = waiting.borrow_mut();
                    if let Some(next) = waiting.pop_front() {
                        waiting.push_back(std::mem::replace(&mut process, next));
                    }
                }
            }
            Ok(())
        })?;
        let all = machine.time_counters().unwrap_or_default();
        Ok(PagesReport::of(self.spec, &window.counted(), all))
    }

    /// A process touches a page of its memory, or frees one if it has touched all. Once all has been counted, it touches no
    /// more. True at the end of its round.
    fn step(
        &self,
        window: &Window<'_>,
        cpu: CpuId,
        process: &mut Process<'h>,
    ) -> Result<bool, NoMemory> {
        let machine = self.driver.machine();
        let touched = process.pages.len() == self.spec.pages as usize || window.is_over();
        if process.unmapped.is_none() && !touched {
            let page = window.fault(|| {
                machine.work(Work::Syscall);
                let page = self.driver.alloc_pages(0, MigrateType::Movable)?;
                self.driver.zero_pages(&page);
                let page = Held::new(page);
                if let Some(lru) = &self.lru {
                    lru.add(cpu, &page);
                }
                Some(page)
            });
            process.pages.push_back((page.ok_or(NoMemory)?, cpu));
            return Ok(false);
        }
        let unmapped = process.unmapped.get_or_insert(0);
        let at = std::mem::replace(unmapped, *unmapped + 1);
        if let Some(&(_, from)) = process.pages.front() {
            window.free(from != cpu, || {
                if at == 0 {
                    machine.work(Work::Syscall);
                }
                self.free(cpu, at, &mut process.pages);
            });
        }
        let ends = process.pages.is_empty();
        if ends {
            process.unmapped = None;
        }
        Ok(ends)
    }

    /// Frees the first of a process's pages, the one at a place of the unmapping.
    fn free(&self, cpu: CpuId, at: usize, pages: &mut VecDeque<(Rc<Held<'h>>, CpuId)>) {
        if let Some(lru) = &self.lru {
            if at == 0 {
                lru.drain(cpu);
            }
            if at.is_multiple_of(lru::UNMAPPED) {
                let unmapped = pages.iter().take(lru::UNMAPPED);
                unmapped.for_each(|(page, _)| lru.unmap(page));
            }
            if at.is_multiple_of(lru.batch[1]) {
                let batch = pages.iter().take(lru.batch[1]);
                let own = batch.filter(|(page, _)| Rc::strong_count(page) == 1);
                let own: Vec<&Held<'h>> = own.map(|(page, _)| page.as_ref()).collect();
                lru.remove(&own);
            }
        }
        // A page that another CPU's batch has as well is that CPU's to free.
        let Some(Ok(page)) = pages.pop_front().map(|(page, _)| Rc::try_unwrap(page)) else {
            return;
        };
        if let Some(lru) = &self.lru {
            lru.remove(&[&page]);
        }
        let freed = self.driver.free_pages(page.into_block());
        debug_assert!(freed.is_ok(), "the page was the process's: {freed:?}");
    }
}
