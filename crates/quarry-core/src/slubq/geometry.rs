//! Geometry of SLUB with queues (the "S+Q" series of 2010, second posting, on 2.6.35).
//!
//! # Theory
//!
//! The design keeps SLUB's slabs and partial lists but puts a queue of object pointers on each
//! CPU. Free objects are not linked through themselves, so the slot has **no free pointer**:
//! constructors, RCU and poisoning cost no extra word, and freeing does not touch the object.
//!
//! A slab instead has a **bitmap**, one bit per object, set while the object is free and in the
//! slab. Up to 64 objects the bitmap is one word in the page descriptor, where SLUB has its free
//! list. Above, it is behind the last object, and each object costs its size plus one bit:
//! with w words per slot and W words per slab, n = floor(64 W / (64 w + 1)) ([`objects_in_slab`]).
//! Rounding the bitmap up to words never overflows the slab, because n slots end on a word.
//!
//! The **order** is 2.6.35's ([`calculate_order`]), with the demand for objects capped at 64 to
//! keep bitmaps in their word, and without a limit on objects.
//!
//! The **queue** is sized by the slot's size like SLAB's array caches, and refills and drains
//! move half of it at a time.

#[cfg(test)]
mod tests;

use crate::geometry::{
    BootParams, CacheParams, Geometry, GeometryError, Layout, MachineParams, SizeClasses,
};
use crate::slub::geometry::{
    AlignRule, CpuCount, FreePointer, LayoutRules, MinObjects, MinPartial, ObjectLimit, OrderRules,
    OrderSearch, RecordedPointer, calculate_order, layout, min_partial,
};

/// Objects whose bitmap fits in the word in the descriptor (`BITS_PER_LONG`).
pub const WORD_OBJECTS: u32 = 64;

/// Smallest `cpu_queue_size`, in objects.
pub const QUEUE_MIN: u32 = 4;

/// The design's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlubqRules {
    /// Alignment.
    pub align: AlignRule,
    /// The slot.
    pub layout: LayoutRules,
    /// The slab order.
    pub order: OrderRules,
    /// CPU count in the formula of the order.
    pub cpus: CpuCount,
    /// `min_partial`, as in 2.6.35. Draining a queue gives empty slabs back without asking it.
    pub min_partial: MinPartial,
    /// The queue.
    pub queue: SizeClasses,
    /// Other nodes' partial lists are looked at as in 2.6.35 (`RunRules` of SLUB).
    pub remote_node_defrag_ratio: u32,
}

/// The numbers of the second posting. The queue's come from the resizing patch as posted before
/// and after it (its own was not found).
pub static RULES: SlubqRules = SlubqRules {
    align: AlignRule::HalvedLine,
    layout: LayoutRules {
        free_pointer: FreePointer::None,
        small_red_zone_outside: false,
        recorded_pointer: RecordedPointer::Inside,
        rcu_freeptr_offset: false,
        ctor_freeptr_offset: false,
        track_bytes: 24,
        requested_size_bytes: 0,
        left_red_zone: false,
    },
    order: OrderRules {
        max_order_small: 3,
        max_order_large: 3,
        min_objects: MinObjects::ByCpus { cap: WORD_OBJECTS },
        fractions: &[16, 8, 4],
        search: OrderSearch::DecrementObjects,
        object_limit: ObjectLimit::None,
        orders_adjusted: false,
    },
    cpus: CpuCount::NrCpuIds,
    min_partial: MinPartial::Log2 { divisor: 1 },
    queue: SizeClasses {
        page: 8,
        kib: 24,
        quarter_kib: 54,
        smaller: 120,
    },
    remote_node_defrag_ratio: 1000,
};

/// The geometry of a cache.
///
/// # Errors
/// [`GeometryError`] if an input is out of range or no slab holds the object.
///
/// ```
/// use quarry_core::geometry::{BootParams, CacheParams, MachineParams};
/// use quarry_core::slubq::geometry::{RULES, geometry};
///
/// let machine = MachineParams { page_shift: 12, nr_cpus: 16, cache_line: 64 };
/// let g = geometry(&RULES, &machine, &BootParams::default(), &CacheParams::new(8)).unwrap();
/// assert_eq!((g.order, g.objects, g.bitmap_in_slab), (0, 504, true));
/// assert_eq!((g.queue, g.batch), (120, 60));
/// ```
pub fn geometry(
    rules: &SlubqRules,
    machine: &MachineParams,
    boot: &BootParams,
    cache: &CacheParams,
) -> Result<Geometry, GeometryError> {
    machine.check()?;
    boot.check()?;
    cache.check(machine)?;
    let layout: Layout = layout(rules.align, &rules.layout, machine, cache);
    let size = layout.size;
    let order = calculate_order(&rules.order, machine, boot, size)?;
    let objects = objects_in_slab(machine, order, size);
    let min_order = machine.order_for(size.into());
    let used = u64::from(objects) * u64::from(size) + u64::from(bitmap_bytes(objects));
    let queue = rules.queue.above_bounds(machine, size);
    Ok(Geometry {
        layout,
        order,
        objects,
        min_order,
        min_objects: objects_in_slab(machine, min_order, size),
        slack_bytes: (machine.slab_bytes(order) - used) as u32,
        min_partial: min_partial(rules.min_partial, size),
        queue,
        batch: queue.div_ceil(2),
        bitmap_in_slab: bitmap_bytes(objects) != 0,
        ..Geometry::default()
    })
}

/// Objects of `size` bytes, a multiple of a word, in a slab of this order.
pub fn objects_in_slab(machine: &MachineParams, order: u32, size: u32) -> u32 {
    let slab_bytes = machine.slab_bytes(order);
    let size = u64::from(size);
    let plain = slab_bytes / size;
    if plain <= u64::from(WORD_OBJECTS) {
        return plain as u32;
    }
    (slab_bytes / 8 * 64 / (size / 8 * 64 + 1)) as u32
}

/// Bytes of the bitmap behind the last object; 0 when it is the word in the descriptor.
pub const fn bitmap_bytes(objects: u32) -> u32 {
    if objects <= WORD_OBJECTS {
        0
    } else {
        objects.div_ceil(64) * 8
    }
}
