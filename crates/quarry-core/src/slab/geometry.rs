//! Geometry of SLAB, the allocator of Linux until 6.7.
//!
//! # Theory
//!
//! Objects are not linked through themselves: each slab has an **array of indices** that names its
//! free objects, so an object costs its size and one index. The place of the array decides how many
//! objects fit, and that is what the eras differ in.
//!
//! *Until 3.12*: a descriptor of 48 bytes and 4 bytes per object, in front of the objects; objects of
//! an eighth of a page or more have both in a general cache, unless the slab's left-over has room
//! for them anyway.
//!
//! *From 3.13 on*: only the array, of 4 bytes per object; from 3.15 on of one byte with 4 KiB pages
//! and two with larger ones. Three places are tried in turn, each with its own search for the order:
//! inside a free object (from 4.6 on), in a general cache, at the slab's end.
//!
//! The **order** grows while more than an eighth of the slab is wasted, but not above a very low
//! limit, and never for reclaimable objects. What is left over becomes **colours**: the slabs of a
//! node start at different offsets, so that their objects spread over the processor's cache.
//!
//! The **limits** of the arrays depend on the size only ([`limits`]).

mod eras;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use eras::debug_rules;
pub use eras::{ERAS, RELEASES, slab_era};
pub use rules::{
    ArrayPlace, ColourRule, FreelistRules, GrowRule, IndexBytes, LimitRules, ReleaseRule, RunRules,
    SharedUse, SlabEra, reaping,
};

use crate::geometry::{
    BootParams, CacheFlags, CacheParams, FreelistPlace, Geometry, GeometryError, KmallocTarget,
    Layout, MachineParams, PAGE_ORDER_MAX, SlabGeometry, WORD_BYTES, kmalloc_index, kmalloc_params,
    up,
};
use crate::slub::geometry::{AlignRule, calculate_alignment};

/// Objects that a slab may have at most where two bytes name one; no kernel comes near it where
/// four do.
const OBJECTS_MAX: u32 = 65_535;

/// Bytes of one red zone, and of the word that names the caller.
const DEBUG_WORD: u32 = 8;

/// The flag of caches that the kernel makes before its secondary CPUs run, if one has this name.
/// Those of kmalloc need none.
pub fn early_flag(name: &str) -> CacheFlags {
    match EARLY_CACHES.contains(&name) {
        true => CacheFlags::EARLY,
        false => CacheFlags::NONE,
    }
}

/// Caches that the functions make that `start_kernel()` calls in 6.1 (which these are was inferred).
const EARLY_CACHES: [&str; 26] = [
    "anon_vma",
    "anon_vma_chain",
    "buffer_head",
    "cred_jar",
    "dentry",
    "files_cache",
    "filp",
    "fs_cache",
    "inode_cache",
    "kernfs_node_cache",
    "key_jar",
    "maple_node",
    "mm_struct",
    "mnt_cache",
    "names_cache",
    "pid",
    "pool_workqueue",
    "proc_dir_entry",
    "proc_inode_cache",
    "radix_tree_node",
    "seq_file",
    "sighand_cache",
    "signal_cache",
    "sigqueue",
    "task_struct",
    "vm_area_struct",
];

/// A slab of one order, with one place for its indices.
#[derive(Clone, Copy)]
struct Fit {
    order: u32,
    objects: u32,
    /// Bytes that hold neither objects nor indices.
    left: u64,
    place: FreelistPlace,
    freelist_bytes: u32,
}

/// The geometry of a cache.
///
/// # Errors
/// [`GeometryError`] if an input is out of range or no slab holds the object.
///
/// ```
/// use quarry_core::era::Era;
/// use quarry_core::geometry::{BootParams, CacheParams, FreelistPlace, MachineParams};
/// use quarry_core::slab::geometry::{geometry, slab_era};
///
/// let machine = MachineParams { page_shift: 12, nr_cpus: 4, cache_line: 64 };
/// let of = |era, size| {
///     let era = slab_era(era).unwrap();
///     geometry(era, &machine, &BootParams::default(), &CacheParams::new(size)).unwrap()
/// };
/// let old = of(Era::V2_6_24, 256);
/// assert_eq!((old.objects, old.slab.freelist), (15, FreelistPlace::SlabStart));
/// let new = of(Era::V6_1, 256);
/// assert_eq!((new.objects, new.slab.freelist), (16, FreelistPlace::InObject));
/// ```
pub fn geometry(
    era: &SlabEra,
    machine: &MachineParams,
    boot: &BootParams,
    cache: &CacheParams,
) -> Result<Geometry, GeometryError> {
    machine.check()?;
    boot.check()?;
    cache.check(machine)?;
    let index_bytes = index_bytes(era, machine);
    let layout = layout(era, machine, cache);
    let max_order = match boot.slab_max_order {
        Some(order) if era.has_max_order_parameter => order.min(PAGE_ORDER_MAX),
        _ => era.max_order,
    };
    let search = Search {
        machine,
        cache,
        layout: &layout,
        index_bytes,
        max_order,
    };
    let (fit, descriptor_bytes) = match era.freelist {
        FreelistRules::Descriptor {
            descriptor_bytes,
            off_slab_page_part,
            ..
        } => {
            let fit = place_by_size(&search, descriptor_bytes, off_slab_page_part);
            (fit, descriptor_bytes)
        }
        FreelistRules::Array { place, .. } => match place {
            ArrayPlace::BySize { off_slab_page_part } => {
                (place_by_size(&search, 0, off_slab_page_part), 0)
            }
            ArrayPlace::InObject => (place_array(era, &search), 0),
        },
    };
    let fit = fit.ok_or(GeometryError::SizeTooLarge {
        bytes: layout.size.into(),
        max_bytes: machine.slab_bytes_max(),
    })?;
    let colour_off = machine.cache_line.max(layout.align);
    let (mut queue, mut batch, shared_factor) = limits(&era.limits, machine, layout.size);
    if cache.flags.debug() {
        queue = queue.min(era.limits.debug_max);
        batch = queue.div_ceil(2);
    }
    Ok(Geometry {
        layout,
        order: fit.order,
        objects: fit.objects,
        min_order: fit.order,
        min_objects: fit.objects,
        slack_bytes: fit.left as u32,
        queue,
        batch,
        slab: SlabGeometry {
            freelist: fit.place,
            index_bytes,
            freelist_bytes: fit.freelist_bytes,
            descriptor_bytes,
            colours: (fit.left / u64::from(colour_off)) as u32,
            colour_off,
            shared_factor,
        },
        ..Geometry::default()
    })
}

/// Bytes of an index.
fn index_bytes(era: &SlabEra, machine: &MachineParams) -> u32 {
    match era.freelist {
        FreelistRules::Descriptor { index_bytes, .. } => index_bytes,
        FreelistRules::Array { index, .. } => match index {
            IndexBytes::Word => 4,
            IndexBytes::Narrow { min_bytes }
                if machine.page_bytes() / 256 <= u64::from(min_bytes) =>
            {
                1
            }
            IndexBytes::Narrow { .. } => 2,
        },
    }
}

/// The slot of an object. SLAB needs nothing in it but what debugging adds.
fn layout(era: &SlabEra, machine: &MachineParams, cache: &CacheParams) -> Layout {
    let mut align = calculate_alignment(AlignRule::HalvedLine, machine, cache);
    let red_zone = cache.flags.contains(CacheFlags::RED_ZONE);
    let user = cache.flags.contains(CacheFlags::STORE_USER);
    if red_zone && !era.line_beats_debug {
        align = cache.align.max(WORD_BYTES);
    }
    let object = up(cache.object_size, WORD_BYTES);
    let zone = if red_zone { DEBUG_WORD } else { 0 };
    // The object is what has to be aligned, so the zone in front of it may have to be larger.
    let red_left_pad = up(zone, align);
    let inuse = object + zone;
    let used = red_left_pad + inuse + if user { DEBUG_WORD } else { 0 };
    let mut size = up(used, align);
    if let FreelistRules::Array { index, .. } = era.freelist
        && let IndexBytes::Narrow { min_bytes } = index
        && index_bytes(era, machine) == 1
        && size < min_bytes
    {
        size = up(min_bytes, align);
    }
    Layout {
        object_size: cache.object_size,
        inuse,
        size,
        align,
        free_pointer: None,
        tracks: user.then_some(inuse),
        requested_size: None,
        red_left_pad,
    }
}

/// The search for an order.
struct Search<'a> {
    machine: &'a MachineParams,
    cache: &'a CacheParams,
    layout: &'a Layout,
    index_bytes: u32,
    max_order: u32,
}

impl Search<'_> {
    /// The last order tried of those that may be taken. `fit` gives the objects of a slab of n
    /// bytes and what is left; `Err` ends the search, `Ok(None)` passes an order over.
    fn order(
        &self,
        place: FreelistPlace,
        fit: impl Fn(u64) -> Result<Option<(u64, u64, u64)>, ()>,
    ) -> Option<Fit> {
        let mut best = None;
        for order in 0..=PAGE_ORDER_MAX {
            let slab_bytes = self.machine.slab_bytes(order);
            let Ok(found) = fit(slab_bytes) else { break };
            let Some((objects, left, freelist_bytes)) = found.filter(|found| found.0 > 0) else {
                continue;
            };
            best = Some(Fit {
                order,
                objects: objects as u32,
                left,
                place,
                freelist_bytes: freelist_bytes as u32,
            });
            let reclaim = self.cache.flags.contains(CacheFlags::RECLAIM);
            if reclaim || order >= self.max_order || left * 8 <= slab_bytes {
                break;
            }
        }
        best
    }

    /// The most objects that a slab may have.
    fn objects_max(&self) -> u64 {
        if self.index_bytes == 1 {
            255
        } else {
            OBJECTS_MAX.into()
        }
    }

    /// Bytes of the indices of a slab.
    fn array_bytes(&self, objects: u64) -> u64 {
        objects * u64::from(self.index_bytes)
    }
}

/// The places of 2.6.24 (`calculate_slab_order()`, `cache_estimate()`), and of arrays, which have no descriptor, until 4.5.
fn place_by_size(search: &Search<'_>, descriptor: u32, off_slab_page_part: u32) -> Option<Fit> {
    let off_slab_from = search.machine.page_bytes() / u64::from(off_slab_page_part);
    let size = u64::from(search.layout.size);
    let align = u64::from(search.layout.align);
    let descriptor = u64::from(descriptor);
    let needed = |objects| descriptor + search.array_bytes(objects);
    let on_slab_bytes = |objects: u64| needed(objects).next_multiple_of(align);
    // The word-rounded size decides, not what the alignment makes of it.
    if u64::from(up(search.cache.object_size, WORD_BYTES)) < off_slab_from {
        return search.order(FreelistPlace::SlabStart, |slab_bytes| {
            let room = slab_bytes.saturating_sub(descriptor);
            let mut objects = room / (size + u64::from(search.index_bytes));
            if on_slab_bytes(objects) + objects * size > slab_bytes {
                objects = objects.saturating_sub(1);
            }
            if objects > search.objects_max() {
                return Err(());
            }
            let left = slab_bytes.saturating_sub(objects * size + on_slab_bytes(objects));
            Ok(Some((objects, left, on_slab_bytes(objects))))
        });
    }
    // No descriptor may need more than an object of this very size holds.
    let objects_max = (size - descriptor.min(size)) / u64::from(search.index_bytes);
    let fit = search.order(FreelistPlace::OffSlab, |slab_bytes| {
        let objects = slab_bytes / size;
        if objects > objects_max.min(search.objects_max()) {
            return Err(());
        }
        Ok(Some((objects, slab_bytes % size, needed(objects))))
    })?;
    let on_slab = on_slab_bytes(fit.objects.into());
    if fit.left < on_slab {
        return Some(fit);
    }
    Some(Fit {
        left: fit.left - on_slab,
        place: FreelistPlace::SlabStart,
        freelist_bytes: on_slab as u32,
        ..fit
    })
}

/// The places of 6.1 (`set_objfreelist_slab_cache()`, `set_off_slab_cache()`,
/// `set_on_slab_cache()`).
fn place_array(era: &SlabEra, search: &Search<'_>) -> Option<Fit> {
    let size = u64::from(search.layout.size);
    let plain = |slab_bytes: u64| {
        let objects = slab_bytes / size;
        if objects > search.objects_max() {
            return Err(());
        }
        Ok((objects, slab_bytes % size, search.array_bytes(objects)))
    };
    let kept = CacheFlags::CTOR | CacheFlags::RCU;
    if !search.cache.flags.intersects(kept) {
        let inside = search.order(FreelistPlace::InObject, |bytes| plain(bytes).map(Some));
        let object_size = search.cache.object_size;
        if let Some(fit) = inside.filter(|fit| fit.freelist_bytes <= object_size) {
            return Some(fit);
        }
    }
    let off_slab = search.order(FreelistPlace::OffSlab, |slab_bytes| {
        let fit = plain(slab_bytes)?;
        let holder = general_bytes(era, search.machine, fit.2);
        Ok(holder
            .is_some_and(|bytes| bytes <= u64::from(search.cache.object_size / 2))
            .then_some(fit))
    });
    if let Some(fit) = off_slab.filter(|fit| fit.left < u64::from(fit.freelist_bytes)) {
        return Some(fit);
    }
    search.order(FreelistPlace::SlabEnd, |slab_bytes| {
        let one = size + u64::from(search.index_bytes);
        let objects = slab_bytes / one;
        if objects > search.objects_max() {
            return Err(());
        }
        let left = slab_bytes % one;
        Ok(Some((objects, left, search.array_bytes(objects))))
    })
}

/// Bytes that a general object of `bytes` bytes takes; `None` for 0 bytes and if it is too large.
fn general_bytes(era: &SlabEra, machine: &MachineParams, bytes: u64) -> Option<u64> {
    match kmalloc_index(&era.kmalloc, machine, bytes) {
        KmallocTarget::Class(class) => {
            let params = kmalloc_params(&era.kmalloc, class);
            Some(layout(era, machine, &params).size.into())
        }
        KmallocTarget::Pages { order } => Some(machine.slab_bytes(order)),
        _ => None,
    }
}

/// Limit, batchcount and shared factor for objects of `size` bytes (`enable_cpucache()`).
pub fn limits(rules: &LimitRules, machine: &MachineParams, size: u32) -> (u32, u32, u32) {
    let above_page = u64::from(size) > machine.page_bytes();
    let limit = match size {
        size if size > rules.huge_bytes => rules.huge,
        _ => rules.limits.above_bounds(machine, size),
    };
    let shared = machine.nr_cpus > 1 && !above_page;
    (
        limit,
        limit.div_ceil(2),
        if shared { rules.shared_factor } else { 0 },
    )
}
