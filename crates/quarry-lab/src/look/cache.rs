//! One cache: parts of its memory, and the slabs that shrinking and dropping free.

use quarry_core::geometry::CacheFlags;
use quarry_snapshot::blocks::CacheSpread;
use quarry_snapshot::{CacheAttributes, Snapshot, is_cut_name};
use quarry_state::CacheState;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Parts, STAYING};

/// Parts of the names of caches whose objects stand for files, which kernels reclaim: inodes, names, buffers, extents and
/// the nodes of page caches.
const FOR_FILES: [&str; 10] = [
    "inode_cache",
    "dentry",
    "buffer_head",
    "radix_tree_node",
    "extent_status",
    "extent_map",
    "journal_head",
    "xfs_ili",
    "xfs_ifork",
    "kmalloc-rcl-",
];

/// True if a cache's objects stand for files, and so can be reclaimed: as sysfs says, or else as the name does. Names that
/// are cut say nothing.
fn is_reclaimable(snapshot: &Snapshot, cache: &str) -> bool {
    let by_name = || {
        let is_for_files = FOR_FILES.iter().any(|part| cache.contains(part));
        !is_cut_name(cache) && (is_for_files || cache.ends_with("_inode"))
    };
    snapshot.is_reclaimable(cache).unwrap_or_else(by_name)
}

/// True if nothing can be estimated of what CPUs hold: how many there are is not told, and a part of the caches is too
/// little to guess it from.
pub(super) fn cpus_are_untold(snapshot: &Snapshot) -> bool {
    let counts = |cache: &CacheAttributes| cache.number("cpu_slabs").is_some();
    let is_read = snapshot.hidden.is_some() || snapshot.sysfs.values().any(counts);
    let is_part = snapshot.excerpt.is_some() && snapshot.present_cpus.is_none();
    is_part && !is_read && !snapshot.form.counts_held_as_free()
}

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CacheLook {
    /// Name.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Bytes of its slabs.
    pub slab_bytes: u64,
    /// Objects in use: as a debugger read them, else as estimated.
    pub objects: u64,
    /// Objects that the kernel counts as active; those that CPUs hold are among them.
    pub active_objs: u64,
    /// Objects that the slabs have room for.
    pub num_objs: u64,
    /// Bytes from object to object.
    pub slab_size: u64,
    /// Slabs.
    pub slabs: u64,
    /// True if the kernel frees its objects under memory pressure.
    pub reclaimable: bool,
    /// Parts of its memory.
    pub parts: Parts,
    /// Whole slabs that a shrink of it would free.
    pub shrink: Freed,
    /// Blocks of 2 MiB and of 1 GiB that its slabs lie in; none if no debugger read that.
    pub blocks: Vec<CacheSpread>,
    /// Bytes of slabs that become free where parts of its objects stay, as [`Dropped`](super::Dropped) has them.
    #[serde(skip)]
    pub(super) dropped: [u64; STAYING.len()],
}

/// Bytes of slabs that become free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Freed {
    /// Bytes that surely become free, if the counts are of one moment.
    pub low_bytes: u64,
    /// Bytes expected, if free places are spread at random.
    pub bytes: u64,
    /// Bytes at most: all objects packed.
    pub high_bytes: u64,
}

impl Freed {
    pub(super) fn add(&mut self, other: &Freed) {
        self.low_bytes = self.low_bytes.saturating_add(other.low_bytes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.high_bytes = self.high_bytes.saturating_add(other.high_bytes);
    }
}

impl CacheLook {
    /// Looks at a cache of a snapshot.
    pub(super) fn of(snapshot: &Snapshot, cache: &CacheState<'_>) -> Self {
        let row = cache.row;
        let slab_bytes = row.slab_bytes(snapshot.page_bytes);
        let in_use = match cpus_are_untold(snapshot) {
            true => row.active_objs,
            false => cache.objects().min(row.active_objs),
        };
        let in_use = in_use.min(row.num_objs);
        let slab = slab_bytes as f64 / row.num_slabs.max(1) as f64;
        let [low_bytes, bytes, high_bytes] = cache.emptied().map(|slabs| (slabs * slab) as u64);
        Self {
            name: row.name.clone(),
            aliases: snapshot.aliases_of(&row.name),
            slab_bytes,
            objects: in_use,
            active_objs: row.active_objs,
            num_objs: row.num_objs,
            slab_size: row.objsize,
            slabs: row.num_slabs,
            reclaimable: is_reclaimable(snapshot, &row.name),
            parts: parts(cache, slab_bytes, in_use),
            shrink: Freed {
                low_bytes,
                bytes,
                high_bytes,
            },
            blocks: Vec::new(),
            dropped: STAYING.map(|staying| (cache.dropped(staying) * slab).round() as u64),
        }
    }
}

/// Divides the bytes of a cache. sysfs tells the size of the object itself; without it, what the state finds of debugging
/// is no part of it.
fn parts(cache: &CacheState<'_>, slab_bytes: u64, in_use: u64) -> Parts {
    let (row, sysfs) = (cache.row, cache.sysfs);
    let stride = row.objsize;
    let number = |file| sysfs.and_then(|sysfs| sysfs.number(file));
    let without = stride.saturating_sub(cache.debugging_bytes);
    let own = number("object_size").map_or(without, |own| own.min(stride));
    let kinds = CacheFlags::RED_ZONE | CacheFlags::POISON | CacheFlags::STORE_USER;
    let align = number("align").unwrap_or(1).max(1);
    let aligned = own.checked_next_multiple_of(align).unwrap_or(own);
    let debugging = match sysfs {
        Some(sysfs) if sysfs.flags().intersects(kinds) => stride.saturating_sub(aligned),
        Some(_) => 0,
        None => cache.debugging_bytes,
    };
    let mut left = slab_bytes;
    // Counts of several moments may not fit together.
    let mut take = |objects: u64, bytes: u64| {
        let part = objects.saturating_mul(bytes).min(left);
        left -= part;
        part
    };
    let live_bytes = take(in_use, own);
    let held_bytes = take(row.active_objs.saturating_sub(in_use), own);
    let partly_filled_bytes = take(row.num_objs.saturating_sub(row.active_objs), own);
    let debugging_bytes = take(row.num_objs, debugging);
    Parts {
        live_bytes,
        held_bytes,
        partly_filled_bytes,
        debugging_bytes,
        padding_bytes: left,
    }
}
