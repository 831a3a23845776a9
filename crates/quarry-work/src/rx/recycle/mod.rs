//! Receive buffers of network drivers and what drivers keep pages in, before there was a page pool.
//!
//! # Idea and source
//!
//! A network card writes each packet into memory that its driver posted beforehand. In the linear
//! receive queue of the mlx5 driver of Linux 4.13 and 4.14 that memory is part of one page: room for
//! headers, the frame, and the shared info of the socket buffer that is built around it. A page costs
//! a call of the page allocator, so drivers avoid that call in two ways, which are here:
//!
//! * [`RxPage`]: *page reuse*. Several packets in one page, one behind the other.
//! * [`RxCache`]: a *recycler*. The driver keeps a reference to each page that it has passed on, in a
//!   ring, oldest first. It takes the oldest back once all others have dropped theirs.
//!
//! Neither learns when a page comes home: the reader of a packet just drops a reference
//! ([`SharedBlock`](quarry_core::page::SharedBlock)). The later answer, a return path of its own, is the page
//! pool.
//!
//! # One page, two packets
//!
//! ```text
//!   0        64                          1600        1920                            3840  4096
//!   | headroom | frame, 1514 of 1522 bytes | shared info | headroom | frame | shared info | rest |
//!   |<------- footprint of the first packet ----------->|<------ of the second ----->|
//! ```
//!
//! # States of a page in a driver with a recycler
//!
//! page allocator -> posted (references: the driver's) -> packets of it with the stack (the driver's,
//! and one for each packet) -> in the ring (the same) -> in the ring, idle (the driver's alone) ->
//! posted. A full ring gives up the driver's reference; then the last reader frees the page, on its
//! own CPU, to the page allocator.
//!
//! # Invariants
//!
//! * **R1** A page in the ring carries exactly one reference of the driver, and is in the ring once.
//! * **R2** The ring belongs to one receive queue, whose driver works on one CPU at a time
//!   (`&mut self`); other CPUs only drop references.
//!
//! # Departures from the driver
//!
//! The page allocator has no emergency reserves, so no page is `pfmemalloc`. Mapping for DMA is not
//! modelled: a page is mapped when it comes from the page allocator and unmapped when it leaves the
//! driver, so these calls follow from the counters.

mod buffer;
mod cache;
mod page;
#[cfg(test)]
mod tests;

pub use buffer::{HEADROOM_BYTES, L2_BYTES, RxBuffer, SHARED_INFO_BYTES, footprint_bytes};
pub use cache::{CACHE_ENTRIES, RxCache, RxCacheStats};
pub use page::RxPage;
