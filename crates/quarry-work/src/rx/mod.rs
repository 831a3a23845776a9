//! A network receiver: what its pages cost, by driver and number of rings.
//!
//! # Idea and source
//!
//! The thread "Page allocator bottleneck" (linux-mm, September 2017) measured a 100 Gbit/s receiver.
//! A driver that takes one order-0 page per packet gets slower when receive rings, and with them CPUs,
//! are added. Pages are allocated on the rings' CPUs and freed on the readers'. So the per-CPU lists of
//! the first run empty, those of the second overflow, and all of them meet at one zone lock. This model
//! counts calls, refills and drains, acquisitions of the zone lock and what is moved under it, per packet.
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
//! * **Rings** are polled in turn, ring i on CPU i, 64 packets a poll (NAPI's budget); after a poll
//!   the driver posts a buffer for every used work entry.
//! * **Streams**: stream s arrives on ring s mod R. The streams of a ring take turns, in an order that
//!   the seed draws for each round. Each sends as many packets as GRO merges (64 KiB: 45 of 1448 bytes),
//!   as a sender with segmentation offload does.
//! * **GRO** keeps the first packet's head and gives the others' back at once; pages stay.
//! * **Sockets** hold what was delivered until [`RxSpec::backlog`] packets are there; then the reader
//!   takes all of them, on its own CPU, and frees pages and heads.
//! * **A packet is dropped** if nothing is posted, because no page could be had. Its stream's reader
//!   then takes what there is, as the stream stalls.
//!
//! # What is counted, and what is not
//!
//! Counting starts when rings and sockets are filled. No operation takes time here: no CPU waits for the
//! lock, readers are never late, no bandwidth comes out. [`AtRate`] multiplies counts with a rate that
//! the thread measured; it says what is asked of the lock, not what it bears.
//!
//! Socket buffer heads are on a machine of their own ([`HeadCounts`]), so that every count of the page
//! allocator is about packets.

mod arrivals;
mod driver;
mod heads;
mod queue;
pub mod recycle;
mod report;
mod spec;
#[cfg(test)]
mod tests;
pub mod timed;
mod world;

pub use driver::{DRIVERS, PerPage, RxDriver, Source};
pub use heads::HeadCounts;
pub use report::{
    AtRate, LINE_BITS_PER_SECOND, PageCounts, RING_PACKETS_PER_SECOND, RecycleCounts, RxReport,
    WIRE_BYTES,
};
pub use spec::{
    Consumer, ETHERNET_BYTES, NAPI_BUDGET, PACKETS_MAX, RxAxes, RxSpec, TCP_HEADER_BYTES,
};

use quarry_core::design::Design;
use quarry_core::geometry::BootParams;
use quarry_core::machine::NodeId;
use quarry_core::page::PageAllocator;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_sim::driver::{Driver, drive};
use quarry_sim::{Config, VirtualMachine};

use crate::error::WorkError;
use recycle::{CACHE_ENTRIES, RxBuffer};
use world::{Counts, World};

/// Memory for the heads: as many as there can be packets in sockets, and more; only what is used
/// becomes resident.
const HEADS_MEMORY_BYTES: u64 = 16 << 30;

/// Runs the model. Calls `progress` with the number of packets that arrived since its last call, warm-up
/// included; a poll may bring up to 64 per ring more than were asked for.
///
/// # Errors
///
/// [`WorkError`]: parameters that cannot be, or a machine without room.
pub fn run(spec: &RxSpec, progress: &dyn Fn(u64)) -> Result<RxReport, WorkError> {
    spec.check()?;
    if Slub::RELEASES.contains(&spec.era) {
        run_with::<Slub>(spec, progress)
    } else {
        run_with::<SheafCache>(spec, progress)
    }
}

/// [`run`] with the slab design that the heads come from.
fn run_with<D: Design>(spec: &RxSpec, progress: &dyn Fn(u64)) -> Result<RxReport, WorkError> {
    let config = Config {
        memory_bytes: HEADS_MEMORY_BYTES,
        page_bytes: spec.page_bytes,
        cpus: spec.cpus,
        ..Config::default()
    };
    let boot = BootParams::default();
    let heads = drive::<D, _>(config, spec.era, boot, |driver| {
        run_on_pages(spec, driver, progress)
    });
    heads.map_err(|source| WorkError::Setup {
        run: spec.label(),
        source,
    })?
}

fn run_on_pages<D: Design>(
    spec: &RxSpec,
    driver: &mut Driver<'_, D>,
    progress: &dyn Fn(u64),
) -> Result<RxReport, WorkError> {
    let machine = VirtualMachine::new(spec.machine()).map_err(|source| WorkError::Machine {
        run: spec.label(),
        source,
    })?;
    let pages = PageAllocator::with_config(machine, &spec.page_config()).map_err(|source| {
        WorkError::Boot {
            run: spec.label(),
            source,
        }
    })?;
    let free_pages = pages.stats().free_pages;
    let mut world = World::new(spec, &pages, driver)?;
    world.receive(spec.warm_up_packets(), progress);
    let counts = world.receive(spec.packets, progress);
    world.close();
    pages
        .check_consistency()
        .map_err(|source| WorkError::Inconsistent {
            run: spec.label(),
            source,
        })?;
    WorkError::if_pages_are_lost(|| spec.label(), free_pages, pages.stats().free_pages)?;
    Ok(report(spec, &pages, &counts))
}

fn report(spec: &RxSpec, pages: &PageAllocator<VirtualMachine>, counts: &Counts) -> RxReport {
    let params = pages.pcp_params(NodeId(0));
    let buffer = RxBuffer::linear(spec.mtu, spec.page_shift());
    let per_page = match spec.driver.per_page {
        PerPage::One => 1,
        PerPage::Footprint => buffer.map_or(0, |buffer| buffer.packets(spec.frame_bytes())),
    };
    let cache_capacity = match spec.driver.source {
        Source::Pages | Source::Pool => 0,
        Source::SmallCache => CACHE_ENTRIES - 1,
        Source::HugeCache => spec.cache_entries - 1,
    };
    let order = buffer.map_or(0, |buffer| buffer.order());
    RxReport {
        driver: spec.driver.name,
        thread_driver: spec.driver.thread,
        era: spec.era.name(),
        page_size: spec.page_bytes,
        rings: spec.rings,
        cpus: spec.cpus,
        memory_bytes: spec.memory_bytes,
        cache_share_bytes: spec.cache_share_bytes,
        mtu: spec.mtu,
        streams: spec.streams,
        consumer: spec.consumer.name(),
        backlog: spec.backlog,
        gro_packets: spec.gro_packets(),
        descriptors: spec.descriptors,
        cache_capacity,
        page_order: order,
        packets_per_page: per_page,
        seed: spec.seed,
        pcp_batch: params.map_or(0, |params| params.batch),
        pcp_high: params.map_or(0, |params| params.high),
        warm_up_packets: spec.warm_up_packets(),
        packets: counts.packets,
        dropped: counts.dropped,
        alloc_failures: counts.alloc_failures,
        waiting_max: counts.waiting_max,
        zone_lock_cpus: counts.zone_lock_cpus,
        readers: counts.readers,
        pages: counts.pages,
        recycling: counts.recycling,
        recycled: counts.recycling.buffers.saturating_sub(counts.pages.allocs),
        heads: counts.heads,
        at_rate: AtRate::of(spec, counts.packets, &counts.pages),
    }
}
