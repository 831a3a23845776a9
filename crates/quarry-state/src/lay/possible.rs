//! Objects that each possible CPU brings, present or not.
//!
//! A kernel makes an idle task, sockets of protocols, directories of tracefs and debugfs, masks and areas for every CPU that may
//! come. Kernels with 2 or 16 CPUs at work were booted with up to 512 possible ones (`quarry-lab/tests/data/possible`, read after a
//! shrink of all caches): objects are a line in their number, on ppc64 to the single object. Arrays and masks by `nr_cpu_ids`
//! move to larger classes on the way; the table has the mean from 16 to 512.
//!
//! A group of tasks has two objects for each possible CPU: its queue and its entity in the queue above. A session is a group
//! (`SCHED_AUTOGROUP`), so that services bring groups and a shell has none. In most snapshots their number is hidden in the
//! slabs that CPUs hold.

use quarry_core::era::Era;
use quarry_snapshot::SlabinfoRow;

use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;
use crate::unknown::{Range, sum};

/// Objects for each possible CPU: of releases before 6.6, of later ones, and how many more with a userland of services, whose
/// udev looks at each CPU's files. Nine block devices were there.
///
/// The first number is the mean of 6.1 on ppc64 (64 KiB pages, 16 to 512 CPUs) and on x86-64 (4 KiB, 2 to 128), the second of 6.12
/// on ppc64 (4 KiB, 16 to 256); x86-64 of 6.12 takes no CPUs that may come later for possible. Both have 57 `kernfs` nodes: 78 were
/// counted on ppc64, where possible CPUs have directories, 36 on x86-64. The third is what two boots of Debian 12 on ppc64 differ
/// by beyond that (6.1, 16 and 64 CPUs: `quarry-reproduce/data/snapshots`).
const TABLE: [(&str, [f64; 3]); 39] = [
    ("thread_stack", [1.0, 1.0, 0.0]),
    ("task_struct", [1.0, 1.0, 0.0]),
    ("signal_cache", [1.0, 1.0, 0.0]),
    ("sighand_cache", [1.0, 1.0, 0.0]),
    ("files_cache", [1.0, 1.0, 0.0]),
    ("cred_jar", [1.0, 0.0, 0.0]),
    ("cred", [0.0, 1.0, 0.0]),
    ("inode_cache", [45.5, 41.0, 13.0]),
    ("lsm_inode_cache", [47.0, 54.0, 13.0]),
    ("dentry", [45.5, 49.0, 35.0]),
    ("kernfs_node_cache", [57.0, 57.0, 18.0]),
    ("tracefs_inode_cache", [0.0, 8.0, 0.0]),
    ("sock_inode_cache", [3.0, 5.0, 0.0]),
    ("RAW", [2.0, 3.0, 0.0]),
    ("RAWv6", [1.0, 2.0, 0.0]),
    ("pool_workqueue", [0.0, 44.0, 0.0]),
    ("radix_tree_node", [1.0, 1.3, 0.0]),
    ("vmap_area", [2.0, 2.0, 0.0]),
    ("numa_policy", [1.0, 1.0, 0.0]),
    ("kmalloc-2k", [0.5, 2.0, 0.0]),
    ("kmalloc-1k", [0.0, 4.0, 0.0]),
    ("kmalloc-512", [1.5, 1.0, 0.0]),
    ("kmalloc-256", [4.0, 4.0, 0.0]),
    ("kmalloc-192", [1.0, 3.5, 0.0]),
    ("kmalloc-128", [4.5, 6.0, 0.0]),
    ("kmalloc-64", [5.0, 4.5, 0.0]),
    ("kmalloc-16", [16.0, 9.0, 0.0]),
    ("kmalloc-8", [17.0, 24.0, 0.0]),
    ("kmalloc-cg-4k", [0.0, 1.0, 0.0]),
    ("kmalloc-cg-2k", [0.0, 1.0, 0.0]),
    ("kmalloc-cg-1k", [0.0, 1.0, 0.0]),
    ("kmalloc-cg-512", [0.0, 2.0, 0.0]),
    ("kmalloc-cg-256", [0.0, 4.0, 0.0]),
    ("kmalloc-cg-192", [0.0, 4.0, 0.0]),
    ("kmalloc-cg-128", [0.0, 4.0, 0.0]),
    ("kmalloc-cg-96", [0.0, 4.0, 0.0]),
    ("kmalloc-cg-64", [0.0, 4.0, 0.0]),
    ("kmalloc-cg-32", [0.0, 4.0, 0.0]),
    ("kmalloc-cg-16", [0.0, 6.0, 0.0]),
];
/// The release from which on the second number counts: works have a queue for each CPU, and memory for BPF is in stock.
const LATER: Era = Era::V6_6;
/// Objects of a cache that is not in the table: more would have been seen.
const OTHERS: f64 = 0.5;

/// The cache of groups of tasks.
pub(crate) const GROUPS: &str = "task_group";
/// Groups of a distribution's userland: kmalloc-1k of Debian 12 has 40 and 42 objects more for each possible CPU.
const EXPECTED_GROUPS: f64 = 20.0;
/// Objects of a group for each possible CPU.
const OF_A_GROUP: f64 = 2.0;

/// Groups of tasks of a snapshot: half of what is expected, that, and twice as many, within what its row allows.
pub(crate) fn groups(row: Option<&SlabinfoRow>, cpus: u32) -> Range {
    let Some(row) = row.filter(|row| row.num_slabs > 0) else {
        return [0.0; 3];
    };
    // Of the slabs that CPUs hold one object each is certain.
    let held = row.num_slabs.min(cpus.into());
    let hidden = held.saturating_mul(row.objperslab.saturating_sub(1));
    let least = row.active_objs.saturating_sub(hidden).max(1) as f64;
    let most = (row.active_objs as f64).max(least);
    let middle = EXPECTED_GROUPS.clamp(least, most);
    [
        (middle / 2.0).clamp(least, most),
        middle,
        (middle * 2.0).clamp(least, most),
    ]
}

/// Objects that a possible CPU brings to a cache by its name: a third, as expected, twice. The cache has `each` for each of
/// them now.
pub(crate) fn brought(cache: &str, each: f64, groups: Range, kernel: &KernelModel) -> Range {
    let known = TABLE.iter().find(|(name, _)| *name == cache);
    let has_userland = f64::from(groups[2] > 0.0);
    let objects = known.map_or(0.0, |(_, [earlier, later, userland])| {
        let own = if kernel.design.era < LATER {
            earlier
        } else {
            later
        };
        own + userland * has_userland
    });
    // Half of them without a block device.
    let own = [
        objects / 3.0,
        objects,
        (objects * 2.0).max(OTHERS.min(each)),
    ];
    // Both objects are aligned to lines: of 512 bytes with lines of 64, of 1024 with lines of 128.
    let class = kmalloc_class(cache) == Some(("kmalloc", u64::from(kernel.cache_line) * 8));
    let of_groups = groups.map(|groups| f64::from(class) * OF_A_GROUP * groups);
    sum([own, of_groups].into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(active_objs: u64, objperslab: u64, num_slabs: u64) -> SlabinfoRow {
        SlabinfoRow {
            active_objs,
            objperslab,
            num_slabs,
            ..SlabinfoRow::default()
        }
    }

    #[test]
    fn groups_are_what_their_cache_allows() {
        assert_eq!(groups(None, 16), [0.0; 3]);
        assert_eq!(groups(Some(&row(0, 102, 0)), 16), [0.0; 3]);
        // Debian 12 with 64 KiB pages: each of 16 CPUs holds a slab.
        let hidden = groups(Some(&row(1632, 102, 16)), 16);
        assert_eq!(hidden, [16.0, 20.0, 40.0]);
        // Most are in full slabs.
        let known = groups(Some(&row(300, 12, 25)), 4);
        assert_eq!(known, [256.0, 256.0, 300.0]);
    }
}
