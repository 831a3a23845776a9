//! Object caches, kmalloc and pages of the Linux kernel for user space.
//!
//! ```
//! use quarry::{Cache, HostHeap, Owned};
//!
//! struct Connection { peer: u32, bytes: u64 }
//!
//! let heap = HostHeap::new()?;
//! let cache = Cache::new(&heap, "connection")?;
//! let mut table: Vec<Owned<Connection>> = Vec::new();
//! table.push(cache.alloc(Connection { peer: 1, bytes: 0 })?);
//! table[0].bytes += 1500;
//! # assert_eq!((table[0].peer, table[0].bytes), (1, 1500));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`Owned`] is one word, goes to any thread, and keeps what it needs alive; there is nothing to free by
//! hand. The design is [`DefaultDesign`] unless a [`Builder`] chooses another.
//!
//! The allocators themselves are [`kernel`]: caches of equal objects after the kernel's designs
//! ([`kernel::slab`], [`kernel::slub`], [`kernel::slubq`], [`kernel::slob`], [`kernel::sheaf`]) and of one for
//! programs ([`kernel::magazine`], the default), over a buddy page allocator with per-CPU lists. They run on any machine
//! that implements [`kernel::machine::Machine`].
//!
//! # What calls return
//!
//! * A call that makes one thing, or all or nothing, returns a `Result` if the error gives something back or
//!   a reason ([`Cache::alloc`], [`Cache::alloc_bulk`]). Otherwise it returns an `Option`
//!   ([`HostHeap::kmalloc`]).
//! * A bulk call that may do a part returns the number of things done ([`PagePool::fill_batch`],
//!   [`PageAllocator::alloc_bulk`]).
//! * Maintenance returns the number of CPUs that were busy and kept what they had; 0 is success
//!   ([`Cache::shrink`], [`PageAllocator::drain_all`]).
//! * Errors are enums or structures that own what they say. Their `Debug` is their message, so that a
//!   `main` that returns one prints it.
//!
//! # Page pools
//!
//! [`PagePool`] is the kernel's `page_pool`: pages that one thread receives into and any thread gives
//! back, with the same counters as `ethtool -S` shows. `uring` (feature `io-uring`) lets every socket and file fill its
//! frames. A filled [`Buffer`] is a `bytes::Bytes` without a copy (feature `bytes`).
//!
//! # Looking inside
//!
//! A heap shows itself as the kernel does, so that scripts and people who read `/proc/slabinfo` and
//! `/sys/kernel/slab` can read it: [`Heap::write_slabinfo`], [`Cache::sysfs_read`] and, to set
//! tunables or to shrink, [`Cache::sysfs_write`]. Its pages are shown as `/proc/zoneinfo` and others
//! do ([`PageAllocator::write_page_file`]) and tuned by sysctls ([`PageAllocator::set_sysctl`]).
//! [`kernel::inspect`] has the formats, and `examples/slabinfo.rs` all of it at work.
//!
//! ```
//! use quarry::{Builder, Cache, PageFile, Slub};
//!
//! let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?;
//! let cache = Cache::new(&heap, "numbers")?;
//! let object = cache.alloc([0_u64; 24])?;
//!
//! let mut slabinfo = String::new();
//! heap.write_slabinfo(&mut slabinfo)?;
//! let line = slabinfo.lines().nth(2).ok_or("no caches")?;
//! assert_eq!(
//!     line,
//!     "numbers               21     21    192   21    1 : tunables    0    0    0 \
//!      : slabdata      1      1      0"
//! );
//!
//! cache.sysfs_write("min_partial", "2")?;
//! let mut text = String::new();
//! cache.sysfs_read("slabs", &mut text)?;
//! assert_eq!(text, "1 N0=1\n");
//!
//! let mut vmstat = String::new();
//! heap.pages().write_page_file(PageFile::Vmstat, &mut vmstat)?;
//! assert!(vmstat.contains("\npgalloc_normal "));
//! # drop(object);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On a virtual machine
//!
//!
//! ```
//! use quarry::kernel::design::CacheSpec;
//! use quarry::kernel::era::Era;
//! use quarry::kernel::geometry::{BootParams, CacheFlags};
//! use quarry::kernel::heap::Heap;
//! use quarry::kernel::slub::Slub;
//! use quarry_sim::{Config, VirtualMachine};
//!
//! // Two CPUs and SLUB as of Linux 6.18.
//! let machine = VirtualMachine::new(Config { cpus: 2, ..Config::default() })?;
//! let heap = Heap::<_, Slub>::new(machine, Era::V6_18, BootParams::default())?;
//! let spec = CacheSpec { flags: CacheFlags::RECLAIM, ..CacheSpec::new("dentry", 192) };
//! let cache = heap.create_cache(&spec)?;
//!
//! let object = cache.alloc().ok_or("out of memory")?;
//! assert_eq!(cache.usage().slabs, 1);
//! // SAFETY: the object was allocated from this cache and is not used any more.
//! unsafe { cache.free(object) }?;
//! // SAFETY: there is no other handle to the cache.
//! unsafe { cache.destroy() }?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_debug_implementations)]

#[cfg(feature = "allocator-api2")]
mod allocator;
#[cfg(feature = "io-uring")]
mod forks;
mod hardened;
mod host;
mod kmalloc;
mod kvmalloc;
mod pool;
mod process;
mod typed;
#[cfg(feature = "io-uring")]
pub mod uring;

pub use hardened::LibraryReports;
pub use host::{Builder, DefaultDesign, Error, HostHeap, fork_misses};
pub use kvmalloc::stays_in_place;
pub use pool::{Buffer, Fragment, Frame, FrameBatch, PagePool, PendingPool};
pub use process::{Kmalloc, ProcessHeap};
pub use quarry_core as kernel;
pub use quarry_core::debug::{CallSite, Finding, Report, SlubDebug};
pub use quarry_core::design::{CacheSpec, Constructor, Design, FreeError};
pub use quarry_core::era::Era;
pub use quarry_core::geometry::{BootParams, CacheFlags, Hardening, HardeningError};
pub use quarry_core::heap::DestroyError;
/// # Examples
///
/// A virtual machine with a kernel's zones and watermarks:
///
/// ```
/// use quarry::{BootParams, Era, Heap, MinFree, PageConfig, Slub, ZoneLayout};
/// use quarry_sim::{Config, VirtualMachine};
///
/// let machine = VirtualMachine::new(Config { memory_bytes: 64 << 20, ..Config::default() })?;
/// let config = PageConfig {
///     zones: ZoneLayout::Kernel,
///     min_free: MinFree::Computed,
///     ..PageConfig::new(Era::V6_18)
/// };
/// let heap = Heap::<_, Slub>::with_pages(machine, &config, BootParams::default())?;
/// for zone in heap.pages().zone_reports() {
///     println!("{:?} keeps back {} pages", zone.id.zone, zone.watermarks.min);
///     assert!(zone.watermarks.min > 0);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use quarry_core::heap::Heap;
pub use quarry_core::inspect::{PageFile, PageFileError, SlabinfoError, SlabinfoRow, SysfsError};
pub use quarry_core::magazine::Magazine;
/// # Examples
///
/// On this process's memory:
///
/// ```
/// use std::mem::MaybeUninit;
///
/// use quarry::{Era, HostMachine, PageAllocator};
///
/// let machine = HostMachine::builder().memory_bytes(64 << 20).build()?;
/// let pages = PageAllocator::new(machine, Era::V6_18)?;
///
/// // A block of 2^3 pages of the running CPU's node, which its handle frees.
/// let mut block = pages.alloc_owned(3).ok_or("out of memory")?;
/// let bytes = block.as_uninit_bytes_mut();
/// assert_eq!(bytes.len(), 4096 << 3);
/// bytes.fill(MaybeUninit::new(0));
/// drop(block);
///
/// // It waits on the CPU's list until that is emptied.
/// assert_eq!(pages.drain_all(), 0);
/// assert_eq!(pages.check_consistency()?.allocated, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use quarry_core::page::PageAllocator;
pub use quarry_core::page::{
    MinFree, OwnedBlock, PageCensus, PageConfig, PageError, PageKind, PageStats, Pfn, Residency,
    TrimPolicy, Trimmed, ZoneLayout,
};
pub use quarry_core::pool::{
    Holder, InFlightReport, Mapper, NoMapper, PieceError, PoolCreateError, PoolParams, PoolStats,
};
pub use quarry_core::sheaf::SheafCache;
pub use quarry_core::slab::SlabCache;
pub use quarry_core::slob::Slob;
pub use quarry_core::slub::Slub;
pub use quarry_core::slubq::Slubq;
pub use quarry_core::stats::{Stat, Stats};
pub use quarry_host::{
    Caller, HostError, HostMachine, HugePageUse, HugePages, HugePagesUnavailable, Mode,
    NumaUnavailable, NumaUse, SlotIndex, SlotIndexUnavailable, SlotIndexUse, TextOut, ThreadLock,
};
pub use typed::{
    AllocError, Cache, CacheError, Constructed, ConstructedCache, Counted, LazyCache, Owned,
    Shared, SharedCache,
};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
struct Guide;
