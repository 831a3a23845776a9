//! Geometry of SLOB: units, blocks, and what an era does differently.
//!
//! # Theory
//!
//! A page is divided into **units** of 2 bytes, or of 4 where offsets would not fit into 16 signed
//! bits ([`unit_bytes`]). A block is a run of units. An object of a cache is a block of its size
//! rounded up to units, not to its alignment: what alignment leaves free in front of a block is a
//! free block of its own.
//!
//! There are no slabs, so "objects per slab" is what an empty page takes when only this cache
//! allocates from it, and "order" is 0. An object of a page or more is a run of pages of the
//! smallest order that holds it.
//!
//! A kmalloc is a block with its size in front of it ([`HEADER_BYTES`]); from a page less the
//! header on it is a run of pages.

mod eras;
#[cfg(test)]
mod tests;

pub use eras::{ERAS, RELEASES, slob_era};

use crate::era::Era;
use crate::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, GeometryError, KmallocAlign, KmallocRules,
    Layout, MachineParams, WORD_BYTES, up,
};
use crate::slub::geometry::{AlignRule, calculate_alignment};

/// Bytes in front of a kmalloc: the larger of the kmalloc and slab minimum alignments. The first
/// four hold the size that was asked for.
pub const HEADER_BYTES: u32 = WORD_BYTES;

/// Bytes behind an object that is freed by RCU: the callback's head and the size.
pub const RCU_FOOTER_BYTES: u32 = 24;

/// Most page lists that an era has.
pub const LISTS_MAX: usize = 3;

/// Effect of a request for cache-line alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HwcacheAlign {
    /// With a line, whatever the size [2.6.24].
    Line,
    /// With a line, halved as long as the object fits in the half [6.1].
    HalvedLine,
}

/// The numbers of an era.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlobEra {
    /// The era.
    pub era: Era,
    /// Block sizes in bytes from which the next page list serves; one list more than sizes.
    pub list_limits: &'static [u32],
    /// A freed block merges with the first free block of its page if it ends there.
    pub merge_before_first: bool,
    /// A page that becomes full moves the head of its list, too: the next search begins at its
    /// successor (`slob_alloc()`).
    pub head_moves_past_full: bool,
    /// Cache-line alignment of caches.
    pub hwcache_align: HwcacheAlign,
    /// kmalloc; `align` says how its addresses are aligned.
    pub kmalloc: KmallocRules,
}

impl SlobEra {
    /// The page list that serves blocks of `block_bytes` bytes, header included.
    pub fn list_of(&self, block_bytes: u32) -> usize {
        let limits = self.list_limits.iter();
        limits.take_while(|&&limit| block_bytes >= limit).count()
    }

    /// Alignment in bytes of the address that a kmalloc of this size returns.
    pub fn kmalloc_align(&self, bytes: u32) -> u32 {
        let natural = match self.kmalloc.align {
            KmallocAlign::Word => 1,
            KmallocAlign::PowerOfTwoClass if !bytes.is_power_of_two() => 1,
            KmallocAlign::PowerOfTwoClass => bytes,
            KmallocAlign::LargestPowerOfTwo => 1 << bytes.trailing_zeros(),
        };
        natural.max(HEADER_BYTES)
    }
}

/// Bytes of a unit: 2 as long as the offset of the page's end fits into a signed 16-bit number of
/// units, else 4.
///
/// ```
/// use quarry_core::slob::geometry::unit_bytes;
/// assert_eq!([12, 14, 16].map(unit_bytes), [2, 2, 4]);
/// ```
pub const fn unit_bytes(page_shift: u32) -> u32 {
    if page_shift < 16 { 2 } else { 4 }
}

/// True if a kmalloc of `bytes` bytes is a block, not pages.
pub const fn kmalloc_is_block(page_shift: u32, bytes: u64) -> bool {
    bytes < (1 << page_shift) - HEADER_BYTES as u64
}

/// The geometry of a cache.
///
/// # Errors
///
/// [`GeometryError`] if an input is out of range, or if neither a page nor the object's own run of
/// pages has the alignment.
///
/// ```
/// use quarry_core::geometry::{BootParams, CacheParams, MachineParams};
/// use quarry_core::era::Era;
/// use quarry_core::slob::geometry::{geometry, slob_era};
///
/// let machine = MachineParams { page_shift: 12, nr_cpus: 1, cache_line: 64 };
/// let (era, boot) = (slob_era(Era::V6_1).unwrap(), BootParams::default());
/// let g = geometry(era, &machine, &boot, &CacheParams::new(107)).unwrap();
/// assert_eq!((g.layout.size, g.layout.align), (108, 8));
/// // A block every 112 bytes.
/// assert_eq!((g.order, g.objects), (0, 36));
/// let g = geometry(era, &machine, &boot, &CacheParams::new(5000)).unwrap();
/// assert_eq!((g.order, g.objects), (1, 1));
/// ```
pub fn geometry(
    era: &SlobEra,
    machine: &MachineParams,
    boot: &BootParams,
    cache: &CacheParams,
) -> Result<Geometry, GeometryError> {
    machine.check()?;
    boot.check()?;
    cache.check(machine)?;
    let layout = layout(era, machine, cache);
    let size = layout.size;
    if u64::from(size) > machine.slab_bytes_max() {
        return Err(GeometryError::SizeTooLarge {
            bytes: size.into(),
            max_bytes: machine.slab_bytes_max(),
        });
    }
    let order = match u64::from(size) < machine.page_bytes() {
        true => 0,
        false => machine.order_for(size.into()),
    };
    let run_bytes = machine.slab_bytes(order);
    if u64::from(layout.align) > run_bytes {
        return Err(GeometryError::AlignAboveBlock {
            align: layout.align,
            block_bytes: run_bytes,
        });
    }
    let objects = match u64::from(size) < machine.page_bytes() {
        true => 1 + (run_bytes as u32 - size) / up(size, layout.align),
        false => 1,
    };
    Ok(Geometry {
        layout,
        order,
        objects,
        min_order: order,
        min_objects: objects,
        slack_bytes: (run_bytes - u64::from(objects) * u64::from(size)) as u32,
        ..Geometry::default()
    })
}

/// The block of an object. The request must have passed [`CacheParams::check`].
///
/// The flags that ask for debugging change nothing.
pub fn layout(era: &SlobEra, machine: &MachineParams, cache: &CacheParams) -> Layout {
    let unit = unit_bytes(machine.page_shift);
    let align = match era.hwcache_align {
        HwcacheAlign::HalvedLine => calculate_alignment(AlignRule::HalvedLine, machine, cache),
        HwcacheAlign::Line if cache.flags.contains(CacheFlags::HWCACHE_ALIGN) => {
            cache.align.max(machine.cache_line).max(WORD_BYTES)
        }
        HwcacheAlign::Line => cache.align.max(WORD_BYTES),
    };
    let footer = match cache.flags.contains(CacheFlags::RCU) {
        true => RCU_FOOTER_BYTES,
        false => 0,
    };
    Layout {
        object_size: cache.object_size,
        inuse: up(cache.object_size, unit),
        size: up(cache.object_size + footer, unit),
        align,
        ..Layout::default()
    }
}
