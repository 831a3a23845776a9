//! A network receiver in simulated time: bandwidth by driver and number of rings, what limits it, and what its pages
//! ask of the page allocator.
//!
//! # Idea and source
//!
//! The thread "Page allocator bottleneck" (linux-mm, September 2017) measured a 100 Gbit/s receiver.
//! A driver that takes one order-0 page per packet gets slower when receive rings, and with them CPUs,
//! are added. Pages are allocated on the rings' CPUs and freed on the readers'. So the per-CPU lists of
//! the first run empty, those of the second overflow, and all of them meet at one zone lock.
//!
//! # A packet's way
//!
//! ```text
//!   CPU i                                                      CPU of the reader
//!   ring i: posted buffers -> packet -> GRO merges -> socket -> read: pages and head are freed
//!      ^                        |                                 |
//!      |  refill after a poll   | socket buffer head              v
//!   page, page cache, pool <----+--- driver's reference       page allocator, or pool's ring
//! ```
//!
//! * **Rings** are polled by their CPU, ring i on CPU i, up to 64 packets a poll (NAPI's budget); after a poll
//!   the driver posts a buffer for every used work entry.
//! * **Streams**: stream s arrives on ring s mod R. The streams of a ring take turns, in an order that
//!   the seed draws for each round. Each sends as many packets as GRO merges (64 KiB: 45 of 1448 bytes),
//!   as a sender with segmentation offload does.
//! * **GRO** keeps the first packet's head and gives the others' back at once; pages stay.
//! * **Sockets** hold what was delivered. A delivery wakes the stream's reader. Each call of a reader takes up to
//!   [`RxSpec::backlog`] packets, on the reader's own CPU, and frees pages and heads.
//!
//! # What takes time
//!
//! The card offers packets at line rate, each ring its share. A packet costs the ring's CPU the protocol's work
//! ([`OutsideWork`]), a look at its headers, the first line of its shared info, a head, and GRO. Readers sleep on their
//! CPUs. One that is woken pays for the wake-up and the switch, then calls the kernel and copies. All CPUs share one
//! machine: heads and pages meet in the same zones.
//!
//! | what | costs |
//! |---|---|
//! | pages, heads, page caches and pools | what their code does on this machine |
//! | the protocol's work, a packet | one figure, from the thread: driver #1 with one ring ([`OutsideWork`]) |
//! | headers 66 bytes, shared info 32 | their lines; the card's writes put a packet into the last-level cache (below) |
//! | copy to a reader | its lines, and the machine's bytes a cycle |
//! | wake-up, switch, call, interrupt | `remote_wake`, `switch`, `syscall`, `switch` of the machine |
//!
//! # What is counted
//!
//! Counting starts when rings and sockets are filled. The counts of calls ([`RxCounts`]) begin and end at each CPU
//! between two of its operations, up to one poll or read after the moment at which time does.
//!
//! # Assumed
//!
//! * The card is at the first socket. It writes into that socket's last-level cache (direct cache access) where the
//!   memory is of its node, else to memory.
//! * Ring i is on CPU i: rings fill the first socket first, as drivers spread interrupts to near CPUs first.
//! * A packet that finds nothing posted is lost. TCP would send less instead: the losses say how much.
//! * A stream whose socket holds [`RxSpec::backlog`] packets or more sends nothing: its window is closed.
//! * A ring that was emptied is polled again when the card's moderation is over ([`Card::MLX5`]). While packets keep coming there
//!   are no interrupts.
//! * Readers stay on their CPUs. On a CPU that has a ring, too, a poll and a reader's call take turns.

mod arrivals;
mod counts;
mod driver;
mod heads;
mod outside;
mod queue;
mod receiver;
pub mod recycle;
mod report;
mod spec;
#[cfg(test)]
mod tests;

pub use counts::{PageCounts, RecycleCounts, RxCounts};
pub use driver::{DRIVERS, PerPage, RxDriver, Source};
pub use outside::OutsideWork;
pub use report::{RxCpus, RxReport};
pub use spec::{Consumer, ETHERNET_BYTES, PACKETS_MAX, RxAxes, RxSpec, TCP_HEADER_BYTES};

use quarry_core::design::Design;
use quarry_core::geometry::BootParams;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_machines::{Draw, Machine};
use quarry_sim::driver::drive_pages;
use quarry_sim::{Config, driver::Driver};

#[cfg(doc)]
use crate::card::Card;
use crate::error::{WorkError, of_run};
use crate::progress::Progress;
use crate::setup::checked;
use receiver::{Receiver, Span};

/// The thread's link: 100 Gbit/s.
const LINE_BITS_PER_SECOND: f64 = 100e9;
/// Bytes on the wire around a packet: preamble and gap 20, Ethernet header 14, checksum 4.
const WIRE_BYTES: u32 = 20 + 14 + 4;
/// Packets per second of one ring of driver #1: 23813 Mbit/s of user data, 1448 bytes a packet.
const RING_PACKETS_PER_SECOND: f64 = 23_813e6 / (8.0 * 1448.0);

/// A receiver on a machine.
#[derive(Clone, Debug)]
pub struct RxRun {
    /// The receiver.
    pub rx: RxSpec,
    /// The machine, whose costs time follows.
    pub machine: Machine,
    /// Values of its costs.
    pub draw: Draw,
    /// The protocol's work.
    pub outside: OutsideWork,
}

impl RxRun {
    /// The virtual machine.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if the parameters are invalid.
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
/// [`WorkError`]: invalid parameters, a machine without room, or a deadlock.
pub fn run(spec: &RxRun, progress: &dyn Progress) -> Result<RxReport, WorkError> {
    let span = match Slub::RELEASES.contains(&spec.rx.era) {
        true => run_with::<Slub>(spec, progress),
        false => run_with::<SheafCache>(spec, progress),
    }?;
    Ok(RxReport::of(spec, &span))
}

fn run_with<D: Design>(spec: &RxRun, progress: &dyn Progress) -> Result<Span, WorkError> {
    let (config, pages) = (spec.config()?, spec.rx.page_config());
    let ran = drive_pages::<D, _>(config, &pages, BootParams::default(), None, |driver| {
        receive(spec, driver, progress)
    });
    of_run(ran, || spec.label())
}

fn receive<D: Design>(
    spec: &RxRun,
    driver: &mut Driver<'_, D>,
    progress: &dyn Progress,
) -> Result<Span, WorkError> {
    let free_pages = driver.page_stats().free_pages + driver.slab_pages();
    let span = {
        let cache = Receiver::cache(driver)?;
        let driver = &*driver;
        let receiver = Receiver::new(spec, driver, cache, progress)?;
        let ran = driver.machine().run_cpus(|cpu| receiver.run(cpu.0));
        ran?;
        receiver.close()
    };
    driver.check_pages()?;
    let left = driver.page_stats().free_pages + driver.slab_pages();
    WorkError::if_pages_are_lost(free_pages, left)?;
    Ok(span)
}
