//! kmalloc: the classes of general-purpose caches and which one serves a request.

use core::fmt;

use super::SlubEra;
use crate::geometry::{CacheFlags, CacheParams, MachineParams, WORD_BYTES};

/// Where a request above the largest class goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocBeyond {
    /// Nowhere: it fails [2.6.22].
    Nothing,
    /// To the page allocator [2.6.24 and later].
    PageAllocator,
}

/// How the objects of a class are aligned (`create_kmalloc_cache()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocAlign {
    /// To a word [until 2.6.35; 4.13 inferred].
    Word,
    /// Power-of-two classes to their own size, the others to a word [5.9; 6.1 inferred].
    PowerOfTwoClass,
    /// To the largest power of two that divides the class [6.18].
    LargestPowerOfTwo,
}

/// The numbers of kmalloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KmallocRules {
    /// The largest class is `1 << (page_shift + page_shift_plus)` bytes (`KMALLOC_SHIFT_HIGH`).
    pub page_shift_plus: i32,
    /// Upper bound of that shift.
    pub shift_max: u32,
    /// What happens above it.
    pub beyond: KmallocBeyond,
    /// Alignment of the classes.
    pub align: KmallocAlign,
    /// Caches are called `kmalloc-4k`, not `kmalloc-4096`.
    pub short_names: bool,
}

impl KmallocRules {
    /// log2 of the largest class in bytes (`KMALLOC_SHIFT_HIGH`).
    pub fn shift_high(&self, page_shift: u32) -> u32 {
        page_shift
            .saturating_add_signed(self.page_shift_plus)
            .min(self.shift_max)
    }
}

/// log2 of the smallest class (`KMALLOC_SHIFT_LOW`): 8 bytes.
const SHIFT_LOW: u32 = 3;

/// Requests up to this many bytes have classes between the powers of two.
const BETWEEN_MAX: u32 = 192;

/// A class of kmalloc caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KmallocClass {
    /// The kernel's index (`kmalloc_index()`): 1 for 96 bytes, 2 for 192, else log2 of the size.
    pub index: u32,
    /// Bytes of an object.
    pub size: u32,
    /// The name's unit is shortened, see [`KmallocRules::short_names`].
    short_name: bool,
}

impl KmallocClass {
    /// The class of this index (`kmalloc_info[]`).
    const fn from_index(index: u32, short_name: bool) -> Self {
        let size = match index {
            1 => 96,
            2 => 192,
            shift => 1 << shift,
        };
        KmallocClass {
            index,
            size,
            short_name,
        }
    }
}

/// The cache's name, for example `kmalloc-192`, `kmalloc-4096` or `kmalloc-4k`.
impl fmt::Display for KmallocClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size;
        match (self.short_name, size) {
            (true, 1_048_576..) => write!(f, "kmalloc-{}M", size >> 20),
            (true, 1024..) => write!(f, "kmalloc-{}k", size >> 10),
            _ => write!(f, "kmalloc-{size}"),
        }
    }
}

/// Who serves a kmalloc request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocTarget {
    /// Nobody: a request of 0 bytes gets the special pointer (`ZERO_SIZE_PTR`).
    ZeroSize,
    /// A cache.
    Class(KmallocClass),
    /// The page allocator, with this order.
    Pages {
        /// The smallest order that holds the request.
        order: u32,
    },
    /// Nobody: it is too large and fails.
    TooLarge,
}

/// The era's classes by ascending size.
///
/// ```
/// use quarry_core::{era::Era, slub::geometry::{kmalloc_classes, slub_era}};
/// let sizes = kmalloc_classes(slub_era(Era::V2_6_24).unwrap(), 12).map(|class| class.size);
/// assert!(sizes.eq([8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048]));
/// ```
pub fn kmalloc_classes(
    era: &SlubEra,
    page_shift: u32,
) -> impl Iterator<Item = KmallocClass> + Clone + use<> {
    const BY_SIZE: [u32; 7] = [3, 4, 5, 6, 1, 7, 2];
    let short_name = era.kmalloc.short_names;
    let shifts = 8..=era.kmalloc.shift_high(page_shift);
    BY_SIZE
        .into_iter()
        .chain(shifts)
        .map(move |index| KmallocClass::from_index(index, short_name))
}

/// Who serves a request of `size` bytes (`kmalloc_index()`, `kmalloc_slab()`, `kmalloc_large()`).
pub fn kmalloc_index(era: &SlubEra, machine: &MachineParams, size: u64) -> KmallocTarget {
    let rules = &era.kmalloc;
    if size == 0 {
        return KmallocTarget::ZeroSize;
    }
    if size > 1 << rules.shift_high(machine.page_shift) {
        let fits = size <= machine.slab_bytes_max();
        return match rules.beyond {
            KmallocBeyond::PageAllocator if fits => KmallocTarget::Pages {
                order: machine.order_for(size),
            },
            KmallocBeyond::PageAllocator | KmallocBeyond::Nothing => KmallocTarget::TooLarge,
        };
    }
    let index = match size as u32 {
        65..=96 => 1,
        129..=BETWEEN_MAX => 2,
        size => size.next_power_of_two().ilog2().max(SHIFT_LOW),
    };
    KmallocTarget::Class(KmallocClass::from_index(index, rules.short_names))
}

/// What the kernel asks for when it creates the cache of a class (`create_kmalloc_cache()`).
pub fn kmalloc_params(era: &SlubEra, class: KmallocClass) -> CacheParams {
    let size = class.size;
    let natural = match era.kmalloc.align {
        KmallocAlign::Word => WORD_BYTES,
        KmallocAlign::PowerOfTwoClass if !size.is_power_of_two() => WORD_BYTES,
        KmallocAlign::PowerOfTwoClass | KmallocAlign::LargestPowerOfTwo => {
            1 << size.trailing_zeros()
        }
    };
    CacheParams {
        object_size: size,
        align: natural.max(WORD_BYTES),
        flags: CacheFlags::KMALLOC,
    }
}

#[cfg(test)]
mod tests;
