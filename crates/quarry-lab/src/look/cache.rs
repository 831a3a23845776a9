//! One cache: parts of its memory, and the slabs that shrinking and dropping free.

use quarry_core::geometry::CacheFlags;
use quarry_snapshot::{CacheAttributes, HiddenCache, SlabinfoRow, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use super::Parts;

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

/// True if a cache's objects stand for files, and so can be reclaimed: as sysfs says, or else as the name does.
fn is_reclaimable(snapshot: &Snapshot, cache: &str) -> bool {
    let by_name = || FOR_FILES.iter().any(|part| cache.contains(part)) || cache.ends_with("_inode");
    snapshot.is_reclaimable(cache).unwrap_or_else(by_name)
}

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CacheLook {
    /// Name.
    pub name: String,
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
    /// Slabs on the nodes' partial lists, and objects in them.
    #[serde(skip)]
    partial: [u64; 2],
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

/// Slabs of one kind: on nodes' lists, or of CPUs.
struct Slabs {
    slabs: u64,
    slots: u64,
    objects: u64,
}

impl Slabs {
    /// Slabs of these without an object: fewest, expected if free places are spread at random, and most.
    fn empty(&self) -> [f64; 3] {
        let (slabs, slots) = (self.slabs as f64, self.slots.max(1) as f64);
        let fewest = self.slabs.saturating_sub(self.objects) as f64;
        let most = slabs - self.objects.div_ceil(self.slots.max(1)).min(self.slabs) as f64;
        let fill = (self.objects as f64 / (slabs * slots).max(1.0)).min(1.0);
        let expected = slabs * (1.0 - fill).powf(slots);
        [fewest, expected.clamp(fewest, most), most]
    }
}

impl CacheLook {
    /// Looks at a row of the snapshot's slabinfo, `objects` of whose objects are in use.
    pub(super) fn of(snapshot: &Snapshot, row: &SlabinfoRow, objects: u64) -> Self {
        let sysfs = snapshot.attributes(&row.name);
        let slab_bytes = row.slab_bytes(snapshot.page_bytes);
        let in_use = objects.min(row.active_objs).min(row.num_objs);
        let count = |file| sysfs.and_then(|sysfs| sysfs.number(file));
        // Without counts, the slabs that are half full with the free objects.
        let free = row.num_objs.saturating_sub(row.active_objs);
        let slots = row.objperslab.max(1);
        let hidden = snapshot.hidden(&row.name);
        let partial = match (
            count("partial").filter(|_| snapshot.partial_slabs(row).is_some()),
            count("objects_partial"),
        ) {
            _ if let Some(hidden) = hidden => {
                let slabs = hidden.partial_slabs();
                [slabs, slabs.saturating_mul(slots).saturating_sub(free)]
            }
            (Some(slabs), Some(objects)) => [slabs, objects],
            _ => {
                let slabs = free.saturating_mul(2).div_ceil(slots).min(row.num_slabs);
                [slabs, slabs.saturating_mul(slots).saturating_sub(free)]
            }
        };
        let held = count("cpu_slabs").unwrap_or(0).min(row.num_slabs);
        // Where nothing counts CPUs' slabs, any may hold free objects only.
        let is_counted = hidden.is_some() || count("cpu_slabs").is_some();
        let mut look = Self {
            name: row.name.clone(),
            slab_bytes,
            objects: in_use,
            active_objs: row.active_objs,
            num_objs: row.num_objs,
            slab_size: row.objsize,
            slabs: row.num_slabs,
            reclaimable: is_reclaimable(snapshot, &row.name),
            parts: parts(row, sysfs, slab_bytes, in_use),
            shrink: Freed::default(),
            partial,
        };
        let on_nodes = Slabs {
            slabs: partial[0],
            slots,
            objects: partial[1],
        };
        let of_cpus = Slabs {
            slabs: held,
            slots,
            objects: held
                .saturating_mul(slots)
                .saturating_sub(row.active_objs - in_use),
        };
        let mut empty = on_nodes.empty();
        if row.num_slabs > row.active_slabs {
            // SLAB counts its free slabs.
            empty = [(row.num_slabs - row.active_slabs) as f64; 3];
        }
        let [fewest, expected, most] = match hidden {
            Some(hidden) => emptied(row, hidden),
            None => {
                let [_, of_cpus, of_cpus_most] = of_cpus.empty();
                let packed = row.num_slabs.saturating_sub(in_use.div_ceil(slots));
                let most = match is_counted {
                    true => empty[2] + of_cpus_most,
                    false => (empty[2] + of_cpus_most).max(packed as f64),
                };
                [empty[0], empty[1] + of_cpus, most]
            }
        };
        let slab = look.slab_bytes as f64 / (row.num_slabs.max(1)) as f64;
        look.shrink = Freed {
            low_bytes: (fewest * slab) as u64,
            bytes: (expected * slab) as u64,
            high_bytes: (most * slab) as u64,
        };
        look
    }

    /// Bytes of the slabs that become free if each object stays in use with this chance.
    pub(super) fn freed_by_drop(&self, staying: f64) -> u64 {
        let slots = self.num_objs as f64 / self.slabs.max(1) as f64;
        let [partial, in_partial] = self.partial.map(|count| count as f64);
        let goes = 1.0 - staying;
        let full = (self.slabs as f64 - partial).max(0.0);
        let fill = in_partial / partial.max(1.0);
        let slabs = full * goes.powf(slots) + partial * goes.powf(fill);
        let slab = self.slab_bytes as f64 / self.slabs.max(1) as f64;
        (slabs * slab).round() as u64
    }
}

/// Slabs that have no object left when CPUs give back what they hold: fewest, expected and most. Without sheaves it is
/// known which. Objects of sheaves are taken to lie in all slabs alike.
fn emptied(row: &SlabinfoRow, hidden: &HiddenCache) -> [f64; 3] {
    let slots = row.objperslab.max(1);
    let kept = hidden.in_sheaves();
    let live = row.active_objs.saturating_sub(hidden.held_objects());
    let goes = kept as f64 / (live.saturating_add(kept)).max(1) as f64;
    let (mut known, mut expected, mut open) = (0_u64, 0.0, 0_u64);
    for (free, slabs) in hidden.open_slabs() {
        let used = slots.saturating_sub(free);
        if used == 0 {
            known = known.saturating_add(slabs);
        }
        expected += slabs as f64 * goes.powf(used as f64);
        open = open.saturating_add(slabs);
    }
    expected += row.num_slabs.saturating_sub(open) as f64 * goes.powf(slots as f64);
    let most = match kept {
        0 => known,
        _ => row.num_slabs.saturating_sub(live.div_ceil(slots)),
    };
    let (fewest, most) = (known as f64, most.max(known) as f64);
    [fewest, expected.clamp(fewest, most), most]
}

/// Divides the bytes of a cache.
fn parts(
    row: &SlabinfoRow,
    sysfs: Option<&CacheAttributes>,
    slab_bytes: u64,
    in_use: u64,
) -> Parts {
    let stride = row.objsize;
    let number = |file| sysfs.and_then(|sysfs| sysfs.number(file));
    let own = number("object_size").map_or(stride, |own| own.min(stride));
    let debugging = CacheFlags::RED_ZONE | CacheFlags::POISON | CacheFlags::STORE_USER;
    let is_debugged = sysfs.is_some_and(|sysfs| sysfs.flags().intersects(debugging));
    let align = number("align").unwrap_or(1).max(1);
    let aligned = own.checked_next_multiple_of(align).unwrap_or(own);
    let debugging = match is_debugged {
        true => stride.saturating_sub(aligned),
        false => 0,
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
