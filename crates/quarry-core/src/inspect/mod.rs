//! A heap in the kernel's formats: the text of `/proc/slabinfo`, the attributes of
//! `/sys/kernel/slab/<cache>/`, and the texts about its pages. Scripts that read these files read a
//! heap's.
//!
//! | file of the kernel | here |
//! |---|---|
//! | read `/proc/slabinfo` | [`Heap::write_slabinfo`] |
//! | list `/sys/kernel/slab` | [`Heap::sysfs_caches`] |
//! | list `/sys/kernel/slab/<cache>` | [`CacheView::sysfs_attributes`](crate::heap::CacheView::sysfs_attributes) |
//! | read and write one attribute | `sysfs_read`, `sysfs_write` of [`Cache`](crate::heap::Cache) |
//! | read `/proc/buddyinfo`, `pagetypeinfo`, `zoneinfo`, `vmstat` | [`PageAllocator::write_page_file`] |
//! | read and write `/proc/sys/vm/<name>` | [`PageAllocator::sysctl`], [`PageAllocator::set_sysctl`] |
//!
//! Which design has which file, and in which eras, is data: [`ATTRIBUTES`], and
//! [`Design::TUNABLES`] for what can be written. SLAB has no sysfs folders, SLOB neither these nor
//! slabinfo.
//!
//! Nothing here allocates. A heap's list of caches is locked while its files are written. A
//! writer that allocates from the same heap must not be the first to kmalloc of a class.
//!
//! # Departures from the kernel
//!
//! * A cache's folder has the cache's name, as under `slub_nomerge`, also where caches are merged.
//! * Debugging is chosen when a cache is made: its switches are read-only in all eras, as they are
//!   in modern kernels.
//! * `validate` is taken from all caches, not only from those with debug flags, and an error is
//!   the answer besides the report. Threads that use the cache wait meanwhile.
//! * `ctor` shows that there is a constructor, not its name.
//! * What happened without a CPU's slot is in a counter's sum and in no CPU's part of it.
//! * SLUB has slabinfo in all eras; whether the kernels of its first ones had it is not known here.
//! * The attributes of 4.13 are taken to be those of 5.9. Those of SLUB with queues are those of
//!   2.6.35 with its own tunables and counters; it has no CPU slabs, so `cpu_slabs` is missing.

mod attributes;
mod pages;
mod slabinfo;
mod sysfs;

pub use attributes::{
    ATTRIBUTES, Action, Attribute, Availability, KernelAttribute, Source, attributes_of,
};
pub use pages::{
    BlockCounts, FreeBlocks, FreeBlocksOfType, PAGE_TEXTS, PageFile, PageFileError, PageTexts,
    PagesetRow, PagetypeinfoHeader, ShownType, ZoneinfoZone, page_texts,
};
pub use slabinfo::{SLABINFO_HEADER, SlabinfoError, SlabinfoRow};
pub use sysfs::SysfsError;

#[cfg(doc)]
use crate::design::Design;
#[cfg(doc)]
use crate::heap::Heap;
#[cfg(doc)]
use crate::page::PageAllocator;
