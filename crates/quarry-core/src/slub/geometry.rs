//! SLUB geometry: slot layout, slab order and partial-list limits, by era.
//!
//! # Theory
//!
//! **Slot.** SLUB has no header in the slab: a slot is the object, rounded up to words, plus what
//! cannot share its bytes. The free pointer of a free object normally is *inside* the object,
//! which costs nothing. It must be outside when the object's bytes mean something while it is
//! free: a constructor ran once and must not be undone, a reader under RCU may still look, or a
//! poison pattern is checked. Red zones and track records come on top when debugging. The distance
//! between objects, `size`, is that sum rounded up to the alignment ([`layout`]).
//!
//! **Order.** Large slabs make the slow path rarer and leave less slack; small slabs are easier to
//! get and strand less memory in partial slabs. SLUB therefore asks for a minimum number of
//! objects. Since 2.6.26 it grows with the logarithm of the CPU count. SLUB takes the lowest order that
//! holds them with little slack: at first at most 1/16 of the slab, then 1/8, then 1/4
//! (and since 6.7 half). Until 6.6 the demand for objects is given up in steps before the last
//! resort, one object with any slack. 6.7 derives a minimum order from the demand once and only
//! relaxes the slack. Nothing goes above `slub_max_order` unless one object needs it
//! ([`calculate_order`]).
//!
//! **Fallback order.** Since 2.6.26 a second order is kept, the lowest that holds one object: when
//! no block for a normal slab is available, a small one will do. So each slab carries its own
//! object count.
//!
//! **Limits.** `min_partial` is how many slabs a node keeps even if empty; it grows with the
//! logarithm of the size, because refetching large slabs costs more. `cpu_partial` is how many
//! objects a CPU may hold on its own list of partial slabs, less for larger objects. Until 5.15
//! a slab's free objects count when it is put on the list. Remote frees put slabs there with one free
//! object each, so such a list holds one more slab than the limit has objects. 5.16 turns objects into slabs up front,
//! assuming that slabs on the list are half free.
//!
//! Every number is a field of [`SlubEra`]; the functions only know the shapes of the rules.

mod eras;
mod order;
mod rules;
#[cfg(test)]
mod tests;

pub use eras::{ERAS, RELEASES, slub_era};
pub(crate) use eras::{debug_rules, rules_of};
pub use order::{MinObjects, ObjectLimit, OrderRules, OrderSearch, calculate_order};
pub use rules::{
    AlignRule, CpuCount, CpuPartialMismatch, CpuPartialRules, CpuPartialUnit, DeactivateEnd,
    ExplicitNode, FreePointer, LayoutRules, ListEnd, MAX_PARTIAL, MIN_PARTIAL, MinPartial,
    PartialTake, RecordedPointer, RunRules, SlubEra,
};

use crate::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, GeometryError, Layout, MachineParams, TRAILER,
    WORD_BYTES, up,
};

/// The geometry of a cache (`calculate_sizes()`, `kmem_cache_open()`).
///
/// # Errors
/// [`GeometryError`] if an input is out of range or no slab holds the object.
///
/// ```
/// use quarry_core::era::Era;
/// use quarry_core::geometry::{BootParams, CacheParams, MachineParams};
/// use quarry_core::slub::geometry::{geometry, slub_era};
///
/// let era = slub_era(Era::V5_9).unwrap();
/// let machine = MachineParams { page_shift: 16, nr_cpus: 64, cache_line: 128 };
/// let task_struct = CacheParams::new(9856);
/// let g = geometry(era, &machine, &BootParams::default(), &task_struct).unwrap();
/// assert_eq!((g.order, g.objects), (3, 53));
/// ```
pub fn geometry(
    era: &SlubEra,
    machine: &MachineParams,
    boot: &BootParams,
    cache: &CacheParams,
) -> Result<Geometry, GeometryError> {
    machine.check()?;
    boot.check()?;
    cache.check(machine)?;
    let layout = layout(era.align, &era.layout, machine, cache);
    let size = layout.size;
    let order = calculate_order(&era.order, machine, boot, size)?;
    let objects = order_objects(machine, order, size);
    if let ObjectLimit::Refuse(limit) = era.order.object_limit
        && objects > limit
    {
        return Err(GeometryError::TooManyObjects { objects, limit });
    }
    let min_order = if era.run.has_fallback_order {
        machine.order_for(size.into())
    } else {
        order
    };
    let cpu_partial = cpu_partial(era, machine, boot, size, cache.flags);
    let counts_slabs = era
        .cpu_partial
        .is_some_and(|rules| rules.unit == CpuPartialUnit::Slabs);
    Ok(Geometry {
        layout,
        order,
        objects,
        min_order,
        min_objects: order_objects(machine, min_order, size),
        slack_bytes: (machine.slab_bytes(order) % u64::from(size)) as u32,
        min_partial: min_partial(era.min_partial, size),
        cpu_partial,
        cpu_partial_slabs: if counts_slabs {
            cpu_partial_slabs(cpu_partial, objects)
        } else {
            0
        },
        ..Geometry::default()
    })
}

/// The alignment of a cache's objects in bytes (`calculate_alignment()`).
pub fn calculate_alignment(rule: AlignRule, machine: &MachineParams, cache: &CacheParams) -> u32 {
    let line = machine.cache_line;
    let mut align = cache.align;
    if cache.flags.contains(CacheFlags::HWCACHE_ALIGN) {
        match rule {
            AlignRule::AboveHalfLine if cache.object_size > line / 2 => align = align.max(line),
            AlignRule::AboveHalfLine => {}
            AlignRule::HalvedLine => {
                let mut part = line;
                while cache.object_size <= part / 2 {
                    part /= 2;
                }
                align = align.max(part);
            }
        }
    }
    up(align.max(WORD_BYTES), WORD_BYTES)
}

/// The slot of a cache (`calculate_sizes()`). The request must have passed [`CacheParams::check`].
pub fn layout(
    align: AlignRule,
    rules: &LayoutRules,
    machine: &MachineParams,
    cache: &CacheParams,
) -> Layout {
    let object_size = cache.object_size;
    let align = calculate_alignment(align, machine, cache);
    let red_zone = cache.flags.contains(CacheFlags::RED_ZONE);
    let tracked = cache.flags.contains(CacheFlags::STORE_USER);
    let recorded =
        tracked && cache.flags.contains(CacheFlags::KMALLOC) && rules.requested_size_bytes != 0;

    let word_rounded = up(object_size, WORD_BYTES);
    // At least one byte of red zone must follow the object.
    let needs_zone = red_zone && word_rounded == object_size;
    let inuse = if needs_zone {
        word_rounded + WORD_BYTES
    } else {
        word_rounded
    };
    let mut end = inuse;
    let free_pointer = match rules.free_pointer {
        // In the trailer, out of the user's reach. A design without links has one in a deferred object.
        _ if cache.flags.contains(CacheFlags::HARDENED) => Some(object_size - TRAILER),
        FreePointer::None => None,
        _ if free_pointer_outside(rules, cache, recorded) => {
            end += WORD_BYTES;
            Some(inuse)
        }
        FreePointer::Start => Some(0),
        FreePointer::MiddleUp if word_rounded > WORD_BYTES => {
            Some(up(word_rounded / 2, WORD_BYTES))
        }
        FreePointer::MiddleUp => Some(0),
        FreePointer::MiddleDown => Some(object_size / 2 / WORD_BYTES * WORD_BYTES),
    };
    let tracks = tracked.then_some(end);
    end += if tracked { 2 * rules.track_bytes } else { 0 };
    let requested_size = recorded.then_some(end);
    end += if recorded {
        rules.requested_size_bytes
    } else {
        0
    };
    let red_left_pad = if red_zone && rules.left_red_zone {
        up(WORD_BYTES, align)
    } else {
        0
    };
    if red_zone {
        end += WORD_BYTES + red_left_pad;
    }
    Layout {
        object_size,
        inuse,
        size: up(end, align),
        align,
        free_pointer,
        tracks,
        requested_size,
        red_left_pad,
    }
}

/// True if the object's bytes must survive being free, so that the pointer goes behind them.
fn free_pointer_outside(rules: &LayoutRules, cache: &CacheParams, recorded: bool) -> bool {
    let flags = cache.flags;
    let rcu_needs = flags.contains(CacheFlags::RCU)
        && !(rules.rcu_freeptr_offset && flags.contains(CacheFlags::FREEPTR_OFFSET));
    let ctor_needs = flags.contains(CacheFlags::CTOR)
        && !(rules.ctor_freeptr_offset && flags.contains(CacheFlags::FREEPTR_OFFSET));
    let small = rules.small_red_zone_outside && cache.object_size < WORD_BYTES;
    let red_zone = flags.contains(CacheFlags::RED_ZONE);
    let recorded_needs = recorded
        && match rules.recorded_pointer {
            RecordedPointer::Inside => false,
            RecordedPointer::Outside => true,
            RecordedPointer::OutsideIfRedZoned => red_zone,
        };
    rcu_needs
        || ctor_needs
        || flags.contains(CacheFlags::POISON)
        || (red_zone && small)
        || recorded_needs
}

/// Objects of `size` bytes in a slab of this order (`order_objects()`).
pub const fn order_objects(machine: &MachineParams, order: u32, size: u32) -> u32 {
    (machine.slab_bytes(order) / size as u64) as u32
}

/// Slabs that a node keeps for slots of `size` bytes (`set_min_partial()`).
pub fn min_partial(rule: MinPartial, size: u32) -> u32 {
    match rule {
        MinPartial::Constant(slabs) => slabs,
        MinPartial::Log2 { divisor } => (size.ilog2() / divisor).clamp(MIN_PARTIAL, MAX_PARTIAL),
    }
}

/// Objects wanted on a CPU's partial list for slots of `size` bytes (`set_cpu_partial()`); 0 in
/// eras without such lists and in caches with debug flags.
pub fn cpu_partial(
    era: &SlubEra,
    machine: &MachineParams,
    boot: &BootParams,
    size: u32,
    flags: CacheFlags,
) -> u32 {
    match era.cpu_partial {
        Some(_) if flags.intersects(CacheFlags::DEBUG) => 0,
        Some(rules) => boot
            .slub_cpu_partial
            .unwrap_or_else(|| cpu_partial_class(&rules, machine, boot, size)),
        None => 0,
    }
}

fn cpu_partial_class(
    rules: &CpuPartialRules,
    machine: &MachineParams,
    boot: &BootParams,
    size: u32,
) -> u32 {
    let by_size = boot.slub_cpu_partial_by_size && rules.unit == CpuPartialUnit::Objects;
    match size {
        8192.. if by_size => 1,
        4096.. if by_size => 2,
        _ => rules.objects.from_bounds(machine, size),
    }
}

/// Slabs that hold `n_objects` free objects if each is half free (`slub_set_cpu_partial()`, 5.16
/// and later). `objs_per_slab` must not be 0.
pub const fn cpu_partial_slabs(n_objects: u32, objs_per_slab: u32) -> u32 {
    (n_objects as u64 * 2).div_ceil(objs_per_slab as u64) as u32
}
