//! Objects that each CPU brings.
//!
//! Kernels that ran one load on 1 to 32 CPUs (`tests/data/cpus`) were asked after a shrink of all caches, when what counts as
//! active is in use: the number of objects is a line. A CPU has threads of its own with all that belongs to a task, a
//! queue of works for each workqueue, files in sysfs, debugfs and tracefs, sockets of protocols, and areas of memory.
//! Other configurations have other threads and files: half to twice as many objects.
//!
//! A cache that is not in the table has none as expected. What can be excluded is more than a driver allocates for a queue
//! of its own on each CPU, or than there are of each CPU now.

use crate::kernel::KernelModel;
use crate::lay::possible;
use crate::unknown::Range;

/// Objects that a CPU brings to a cache: one at work, and one that is only possible.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Brought {
    /// Half, as expected, twice.
    pub(crate) likely: Range,
    /// More can be excluded.
    pub(crate) most: f64,
    /// The same of a CPU that is only possible: a third, as expected, twice.
    pub(crate) possible: Range,
    /// More can be excluded.
    pub(crate) possible_most: f64,
    /// Every CPU allocates from it on any machine.
    pub(crate) by_all: bool,
}

/// Entries of a driver's ring of descriptors at most, each with an object: what `ethtool -g` gives for Intel's I350 and 82599.
const RING: f64 = 4096.0;
/// Objects of a cache that is not in the table: none has more.
const OTHERS: f64 = 4.0;

/// Objects for each CPU, in the mean of x86-64 kernels 6.17 and 7.3, and of caches that pages of 64 KiB bring, of ppc64 6.1.
/// Sheaves are not among them: `own.rs`.
const TABLE: [(&str, f64); 38] = [
    ("thread_stack", 8.5),
    ("pgtable-2^9", 4.0),
    ("kmalloc-128k", 1.0),
    ("kmalloc-16k", 1.0),
    ("task_struct", 8.7),
    ("signal_cache", 8.6),
    ("sighand_cache", 8.8),
    ("pid", 22.0),
    ("files_cache", 1.0),
    ("pool_workqueue", 50.0),
    ("kernfs_node_cache", 162.0),
    ("tracefs_inode_cache", 8.0),
    ("debugfs_inode_cache", 5.5),
    ("sock_inode_cache", 5.0),
    ("lsm_inode_cache", 24.0),
    ("dentry", 19.0),
    ("radix_tree_node", 13.0),
    ("vmap_area", 33.0),
    ("RAW", 3.0),
    ("RAWv6", 2.0),
    ("kmalloc-8k", 1.0),
    ("kmalloc-4k", 0.5),
    ("kmalloc-2k", 3.0),
    ("kmalloc-1k", 14.5),
    ("kmalloc-512", 8.0),
    ("kmalloc-256", 20.0),
    ("kmalloc-192", 17.0),
    ("kmalloc-128", 4.0),
    ("kmalloc-96", 17.0),
    ("kmalloc-64", 28.0),
    ("kmalloc-32", 36.0),
    ("kmalloc-16", 42.0),
    ("kmalloc-8", 60.0),
    ("kmalloc-cg-4k", 1.3),
    ("kmalloc-cg-2k", 2.0),
    ("kmalloc-cg-1k", 3.0),
    ("kmalloc-cg-256", 4.5),
    ("kmalloc-cg-192", 7.0),
];

/// Caches that every CPU holds a slab of: so did 1 to 32 CPUs of x86-64 and of ppc64 kernels by the number of their slabs.
/// A CPU that comes up allocates from them itself. Work reaches some of the CPUs for others.
const BY_ALL: [&str; 10] = [
    "kernfs_node_cache",
    "radix_tree_node",
    "vmap_area",
    "kmalloc-64k",
    "kmalloc-512",
    "kmalloc-192",
    "kmalloc-96",
    "kmalloc-64",
    "kmalloc-16",
    "kmalloc-8",
];

impl Brought {
    /// Objects that a CPU brings to a cache by its name, which has `objects` on `cpus` CPUs.
    pub(crate) fn of(cache: &str, objects: f64, cpus: u32) -> Self {
        let each = objects / f64::from(cpus.max(1));
        let known = TABLE.iter().find(|(name, _)| *name == cache);
        let likely = match known {
            Some((_, objects)) => [objects / 2.0, *objects, objects * 2.0],
            None => [0.0, 0.0, OTHERS.min(each)],
        };
        Self {
            likely,
            most: each.min(RING).max(likely[2]),
            by_all: BY_ALL.contains(&cache),
            ..Self::default()
        }
    }

    /// The same with what a CPU brings that is only possible, in a kernel with these groups of tasks.
    pub(crate) fn with_possible(
        self,
        cache: &str,
        objects: f64,
        kernel: &KernelModel,
        groups: Range,
    ) -> Self {
        let each = objects / f64::from(kernel.nr_cpu_ids.max(1));
        let possible = possible::brought(cache, each, groups, kernel);
        Self {
            possible,
            possible_most: each.min(RING).max(possible[2]),
            ..self
        }
    }
}
