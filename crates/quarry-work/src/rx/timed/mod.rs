//! The receiver in simulated time: bandwidth by driver and number of rings, and what limits it.
//!
//! # What takes time
//!
//! The card offers packets at line rate, each ring its share. Ring i's CPU polls it: a packet costs the protocol's work
//! ([`OutsideWork`]), a look at its headers, the first line of its shared info, a head, and GRO; after a poll the driver
//! refills the ring. A delivery wakes the stream's reader. Readers sleep on their CPUs. One that is woken pays for the
//! wake-up and the switch, then calls the kernel for each [`RxSpec::backlog`] packets, copies them and frees pages and
//! heads. All CPUs share one machine: heads and pages meet in the same zones.
//!
//! | what | costs |
//! |---|---|
//! | pages, heads, page caches and pools | what their code does on this machine |
//! | the protocol's work, a packet | one figure, from the thread: driver #1 with one ring ([`OutsideWork`]) |
//! | headers 66 bytes, shared info 32 | their lines; the card's writes put a packet into the last-level cache (below) |
//! | copy to a reader | its lines, and the machine's bytes a cycle |
//! | wake-up, switch, call, interrupt | `remote_wake`, `switch`, `syscall`, `switch` of the machine |
//!
//! # Assumed
//!
//! * The card is at the first socket. It writes into that socket's last-level cache (direct cache access) where the
//!   memory is of its node, else to memory.
//! * Ring i is on CPU i: rings fill the first socket first, as drivers spread interrupts to near CPUs first.
//! * A packet that finds nothing posted is lost. TCP would send less instead: the losses say how much.
//! * A stream whose socket holds [`RxSpec::backlog`] packets or more sends nothing: its window is closed.
//! * A ring that was emptied is polled again [`MODERATION_NS`] later: interrupts are moderated, 16 us in these drivers (from
//!   memory). While packets keep coming there are no interrupts.
//! * Readers stay on their CPUs. On a CPU that has a ring, too, a poll and a reader's call take turns.

mod outside;
mod report;
#[cfg(test)]
mod tests;
mod world;

pub use outside::OutsideWork;
pub use report::{RxCpus, RxTimeReport};

use quarry_core::design::Design;
use quarry_core::geometry::BootParams;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_machines::{Draw, Machine};
use quarry_sim::driver::drive_pages;
use quarry_sim::{Config, driver::Driver};

use super::spec::RxSpec;
use crate::config::checked;
use crate::error::WorkError;
use world::{Span, World};

/// Nanoseconds from the end of a poll that emptied a ring to the next one.
pub const MODERATION_NS: u64 = 16_000;

/// A run.
#[derive(Clone, Debug)]
pub struct RxTimeSpec {
    /// The receiver.
    pub rx: RxSpec,
    /// What time costs.
    pub machine: Machine,
    /// Values of its costs.
    pub draw: Draw,
    /// The protocol's work.
    pub outside: OutsideWork,
}

impl RxTimeSpec {
    /// The virtual machine.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if the run cannot be.
    pub fn config(&self) -> Result<Config, WorkError> {
        self.rx.check()?;
        let (rx, machine) = (&self.rx, &self.machine);
        checked(machine.config(rx.cpus, rx.era, &self.draw, rx.seed, rx.machine()))
    }

    fn label(&self) -> String {
        format!("{}, {}", self.rx.label(), self.machine.name)
    }
}

/// Runs the receiver. Calls `progress` with the number of packets that arrived since its last call, warm-up included.
///
/// # Errors
///
/// [`WorkError`]: parameters that cannot be, a machine without room, or a deadlock.
pub fn run(spec: &RxTimeSpec, progress: &dyn Fn(u64)) -> Result<RxTimeReport, WorkError> {
    let span = match Slub::RELEASES.contains(&spec.rx.era) {
        true => run_with::<Slub>(spec, progress),
        false => run_with::<SheafCache>(spec, progress),
    }?;
    Ok(RxTimeReport::of(spec, &span))
}

fn run_with<D: Design>(spec: &RxTimeSpec, progress: &dyn Fn(u64)) -> Result<Span, WorkError> {
    let (config, pages) = (spec.config()?, spec.rx.page_config());
    let ran = drive_pages::<D, _>(config, &pages, BootParams::default(), None, |driver| {
        receive(spec, driver, progress)
    });
    ran.map_err(|source| WorkError::Setup {
        run: spec.label(),
        source,
    })?
}

fn receive<D: Design>(
    spec: &RxTimeSpec,
    driver: &mut Driver<'_, D>,
    progress: &dyn Fn(u64),
) -> Result<Span, WorkError> {
    let free_pages = driver.page_stats().free_pages + driver.slab_pages();
    let span = {
        let cache = World::cache(spec, driver)?;
        let driver = &*driver;
        let world = World::new(spec, driver, cache, progress)?;
        let ran = driver.machine().run_cpus(|cpu| world.run(cpu.0));
        ran.map_err(|source| WorkError::Deadlock {
            run: spec.label(),
            source,
        })?;
        world.close()
    };
    let checked = driver.check_pages();
    checked.map_err(|source| WorkError::Inconsistent {
        run: spec.label(),
        source,
    })?;
    let left = driver.page_stats().free_pages + driver.slab_pages();
    WorkError::if_pages_are_lost(|| spec.label(), free_pages, left)?;
    Ok(span)
}
