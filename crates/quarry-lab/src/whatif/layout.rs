//! What a cache asks of another design, and what only some designs cost.

use quarry_core::geometry::{CacheParams, kmalloc_classes, kmalloc_params};

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
        let class = kmalloc_class(&row.name);
        Some(class.map_or(asked, |(_, bytes)| self.kmalloc_params(bytes, asked)))
    }

    /// What the new design asks for the kmalloc class of `bytes` bytes. A design without classes
    /// takes no more than the requests are, which is not told: the middle between this class and
    /// the next smaller one is expected.
    fn kmalloc_params(&self, bytes: u64, asked: CacheParams) -> CacheParams {
        if let Some(rules) = self.new.kmalloc_rules() {
            let mut classes = kmalloc_classes(rules, &self.new.machine(self.line));
            let found = classes.find(|class| u64::from(class.size) == bytes);
            if let Some(class) = found.filter(|_| !self.new.is_shared()) {
                return kmalloc_params(rules, class);
            }
        }
        let smaller = match bytes {
            192 => 128,
            128 => 96,
            96 => 64,
            bytes => bytes / 2,
        };
        match u32::try_from((bytes + smaller) / 2) {
            Ok(object_size) if self.new.is_shared() => CacheParams::new(object_size),
            _ => asked,
        }
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
