//! kmalloc: the classes of general-purpose caches and which one serves a request.

use core::fmt;

use super::{CacheFlags, CacheParams, MachineParams, WORD_BYTES};

/// Destination of a request above the largest class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocBeyond {
    /// Nowhere: it fails [2.6.22].
    Nothing,
    /// To the page allocator [2.6.24 and later].
    PageAllocator,
}

/// Sizes of the classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocSizes {
    /// Powers of two, 96 and 192, as in kernels.
    Powers,
    /// Powers of two, 96 only with cache lines below 64 bytes, 192 with lines below 128 (SLAB of 2.6.24).
    PowersByLine,
    /// Each multiple of a word up to 64 bytes, then four for each doubling, and eight from 1 to 8 KiB: a fifth of a block at
    /// most is rounding, and a ninth of one of 1 to 8 KiB.
    Fine,
}

/// Alignment of the objects of a class (`create_kmalloc_cache()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocAlign {
    /// To a word [until 5.3].
    Word,
    /// Power-of-two classes to their own size, the others to a word [5.4 to 6.10].
    PowerOfTwoClass,
    /// To the largest power of two that divides the class [6.11 and later].
    LargestPowerOfTwo,
}

/// Who answers kmalloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocService {
    /// A cache for each class of sizes.
    Classes,
    /// The design itself, whatever the size (SLOB).
    Design,
}

/// The numbers of kmalloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KmallocRules {
    /// Who answers.
    pub service: KmallocService,
    /// log2 of the smallest class (`KMALLOC_SHIFT_LOW`).
    pub shift_low: u32,
    /// Sizes of the classes.
    pub sizes: KmallocSizes,
    /// The largest class is `1 << (page_shift + page_shift_plus)` bytes (`KMALLOC_SHIFT_HIGH`).
    pub page_shift_plus: i32,
    /// Upper bound of that shift.
    pub shift_max: u32,
    /// Destination of larger requests.
    pub beyond: KmallocBeyond,
    /// Alignment of the classes.
    pub align: KmallocAlign,
    /// The classes also ask for the alignment of a cache line (SLAB).
    pub hwcache_align: bool,
    /// Part of a cache's name in front of the size.
    pub prefix: &'static str,
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

    /// Bytes of the largest class on this machine.
    fn largest(&self, machine: &MachineParams) -> u32 {
        1 << self.shift_high(machine.page_shift)
    }

    /// True if there is a class of this index, which is at most the largest class's, on this machine.
    fn has(&self, index: u32, cache_line: u32) -> bool {
        let by_line = self.sizes == KmallocSizes::PowersByLine;
        match index {
            _ if self.sizes == KmallocSizes::Fine => true,
            1 => !by_line || cache_line < 64,
            2 => !by_line || cache_line < 128,
            shift => shift >= self.shift_low,
        }
    }

    /// Index of the class of a size, if it has one on this machine.
    #[inline(always)]
    pub(crate) fn index(&self, machine: &MachineParams, size: u64) -> Option<u32> {
        let has_classes = self.service == KmallocService::Classes;
        if !has_classes || size == 0 || size > u64::from(self.largest(machine)) {
            return None;
        }
        let cache_line = machine.cache_line;
        Some(match size as u32 {
            _ if self.sizes == KmallocSizes::Fine => fine::index(size as u32),
            65..=96 if self.has(1, cache_line) => 1,
            129..=BETWEEN_MAX if self.has(2, cache_line) => 2,
            size => size.next_power_of_two().ilog2().max(self.shift_low),
        })
    }
}

/// [`KmallocSizes::Fine`]: index 1 to 8 are multiples of a word, then come the steps of each doubling. Pages with a header, of
/// 4 KiB and a few bytes, are what databases and interpreters ask for most; above 8 KiB a slab has no room for more objects
/// of a finer step.
mod fine {
    use super::WORD_BYTES;

    const WORDS_MAX: u32 = 64;
    const WORDS: u32 = WORDS_MAX / WORD_BYTES;
    /// Doublings with the same number of steps: log2 of the size that the first one begins above, of that number, and the
    /// first index.
    const RANGES: [(u32, u32, u32); 3] = [
        (WORDS_MAX.ilog2(), 2, WORDS + 1),
        (10, 3, WORDS + 1 + 4 * 4),
        (13, 2, WORDS + 1 + 4 * 4 + 3 * 8),
    ];

    /// The index of a size above 0.
    pub(super) const fn index(size: u32) -> u32 {
        if size <= WORDS_MAX {
            return size.div_ceil(WORD_BYTES);
        }
        // Sizes from just above a power of two up to the next one are of one doubling.
        let doubling = (size - 1).ilog2();
        let (from, steps, first) = match doubling {
            ..10 => RANGES[0],
            10..13 => RANGES[1],
            _ => RANGES[2],
        };
        let step = ((size - 1) >> (doubling - steps)) & ((1 << steps) - 1);
        first + ((doubling - from) << steps) + step
    }

    /// The size of an index.
    pub(super) const fn size(index: u32) -> u32 {
        let (from, steps, first) = match index {
            ..=WORDS => return index * WORD_BYTES,
            index if index < RANGES[1].2 => RANGES[0],
            index if index < RANGES[2].2 => RANGES[1],
            _ => RANGES[2],
        };
        let (doubling, step) = (
            (index - first) >> steps,
            (index - first) & ((1 << steps) - 1),
        );
        ((1 << steps) + step + 1) << (from + doubling - steps)
    }
}

/// Requests up to this many bytes have classes between the powers of two.
const BETWEEN_MAX: u32 = 192;

/// A class of kmalloc caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct KmallocClass {
    /// The kernel's index (`kmalloc_index()`): 1 for 96 bytes, 2 for 192, else log2 of the size. With
    /// [`KmallocSizes::Fine`] a number that grows with the size.
    pub index: u32,
    /// Bytes of an object.
    pub size: u32,
    /// Part of the name in front of the size.
    prefix: &'static str,
    /// The name's unit is shortened, see [`KmallocRules::short_names`].
    short_name: bool,
}

impl KmallocClass {
    /// Above every index.
    pub const INDEXES: usize = 69;

    /// The class of this index (`kmalloc_info[]`).
    const fn from_index(index: u32, rules: &KmallocRules) -> Self {
        let size = match index {
            index if matches!(rules.sizes, KmallocSizes::Fine) => fine::size(index),
            1 => 96,
            2 => 192,
            shift => 1 << shift,
        };
        KmallocClass {
            index,
            size,
            prefix: rules.prefix,
            short_name: rules.short_names,
        }
    }
}

/// The cache's name, for example `kmalloc-192`, `kmalloc-4096` or `kmalloc-4k`.
impl fmt::Display for KmallocClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, size) = (self.prefix, self.size);
        match (self.short_name, size) {
            (true, _) if size.is_multiple_of(1 << 20) => write!(f, "{prefix}{}M", size >> 20),
            (true, _) if size.is_multiple_of(1 << 10) => write!(f, "{prefix}{}k", size >> 10),
            _ => write!(f, "{prefix}{size}"),
        }
    }
}

/// Who serves a kmalloc request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KmallocTarget {
    /// No memory: a request of 0 bytes gets the special pointer (`ZERO_SIZE_PTR`).
    ZeroSize,
    /// A cache.
    Class(KmallocClass),
    /// The design itself.
    Design,
    /// The page allocator, with this order.
    Pages {
        /// The smallest order that holds the request.
        order: u32,
    },
    /// No memory: the request is too large and fails.
    TooLarge,
}

/// The era's classes on this machine by ascending size.
///
/// ```
/// use quarry_core::{era::Era, slub::geometry::slub_era};
/// use quarry_core::geometry::{MachineParams, kmalloc_classes};
/// let machine = MachineParams { page_shift: 12, nr_cpus: 1, cache_line: 64 };
/// let rules = &slub_era(Era::V2_6_24).unwrap().kmalloc;
/// let sizes = kmalloc_classes(rules, &machine).map(|class| class.size);
/// assert!(sizes.eq([8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048]));
/// ```
pub fn kmalloc_classes<'a>(
    rules: &'a KmallocRules,
    machine: &MachineParams,
) -> impl Iterator<Item = KmallocClass> + Clone + use<'a> {
    const BY_SIZE: [u32; 7] = [3, 4, 5, 6, 1, 7, 2];
    let line = machine.cache_line;
    let (small, last) = match (rules.service, rules.sizes) {
        (KmallocService::Design, _) => (&[][..], 0),
        (_, KmallocSizes::Fine) => (&[][..], fine::index(rules.largest(machine))),
        _ => (&BY_SIZE[..], rules.shift_high(machine.page_shift)),
    };
    let first = if small.is_empty() { 1 } else { 8 };
    small
        .iter()
        .copied()
        .chain(first..=last)
        .filter(move |index| rules.has(*index, line))
        .map(move |index| KmallocClass::from_index(index, rules))
}

/// Who serves a request of `size` bytes (`kmalloc_index()`, `kmalloc_slab()`, `kmalloc_large()`).
pub fn kmalloc_index(rules: &KmallocRules, machine: &MachineParams, size: u64) -> KmallocTarget {
    if size == 0 {
        return KmallocTarget::ZeroSize;
    }
    if rules.service == KmallocService::Design {
        return KmallocTarget::Design;
    }
    if let Some(index) = rules.index(machine, size) {
        return KmallocTarget::Class(KmallocClass::from_index(index, rules));
    }
    let fits = size <= machine.slab_bytes_max();
    match rules.beyond {
        KmallocBeyond::PageAllocator if fits => KmallocTarget::Pages {
            order: machine.order_for(size),
        },
        KmallocBeyond::PageAllocator | KmallocBeyond::Nothing => KmallocTarget::TooLarge,
    }
}

/// The kernel's parameters for the cache of a class (`create_kmalloc_cache()`).
pub fn kmalloc_params(rules: &KmallocRules, class: KmallocClass) -> CacheParams {
    let size = class.size;
    let natural = match rules.align {
        KmallocAlign::Word => WORD_BYTES,
        KmallocAlign::PowerOfTwoClass if !size.is_power_of_two() => WORD_BYTES,
        KmallocAlign::PowerOfTwoClass | KmallocAlign::LargestPowerOfTwo => {
            1 << size.trailing_zeros()
        }
    };
    let flags = match rules.hwcache_align {
        true => CacheFlags::KMALLOC | CacheFlags::HWCACHE_ALIGN,
        false => CacheFlags::KMALLOC,
    };
    CacheParams {
        object_size: size,
        align: natural.max(WORD_BYTES),
        flags,
        sheaf_capacity: 0,
    }
}

#[cfg(test)]
pub(crate) mod tests;
