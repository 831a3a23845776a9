//! What a cache asks of another design, and what only some designs cost.

use quarry_core::geometry::{CacheFlags, CacheParams};

use crate::kernel::{CacheAttributes, SlabinfoRow};

use super::Teller;
use super::pages::kmalloc_class;

impl Teller<'_> {
    /// The slot of a cache where only orders change, and what it was asked to be where another
    /// design or era lays the slot out anew.
    pub(super) fn params(
        &self,
        row: &SlabinfoRow,
        sysfs: Option<&CacheAttributes>,
    ) -> Option<CacheParams> {
        let slot = CacheParams::new(u32::try_from(row.objsize).ok()?);
        if self.old.design == self.new.design {
            return Some(slot);
        }
        let asked = sysfs.and_then(CacheAttributes::params).unwrap_or(slot);
        match kmalloc_class(&row.name) {
            Some((_, bytes)) => Some(CacheParams {
                flags: asked.flags | CacheFlags::KMALLOC,
                object_size: self.kmalloc_request(bytes, asked.object_size),
                ..asked
            }),
            None => Some(asked),
        }
    }

    /// Bytes of a request that a kmalloc class of `class` bytes serves. A design without classes
    /// takes no more than was asked for, which is not told: the middle between this class and the
    /// next smaller one is expected.
    fn kmalloc_request(&self, class: u64, object_size: u32) -> u32 {
        if !self.new.is_shared() {
            return object_size;
        }
        let smaller = match class {
            192 => 128,
            128 => 96,
            96 => 64,
            class => class / 2,
        };
        u32::try_from((class + smaller) / 2).unwrap_or(object_size)
    }

    /// Objects of `kernfs_node_cache` that stand for files of `/sys/kernel/slab`, of which a kernel
    /// with SLAB or SLOB has none: one for each directory, file and link. 0 if both kernels have
    /// them, or the snapshot does not say how many there are.
    pub(super) fn sysfs_nodes(&self) -> f64 {
        if self.new.has_sysfs() || !self.old.has_sysfs() {
            return 0.0;
        }
        let directories = self.snapshot.sysfs.values();
        let nodes: usize = directories.map(|files| files.iter().count() + 1).sum();
        (nodes + self.snapshot.aliases.len()) as f64
    }
}
