//! Demands of a cache on another design, and costs that only some designs have.

use quarry_core::geometry::CacheParams;

use quarry_snapshot::CacheAttributes;

use super::Teller;
use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;
use crate::state::CacheState;

impl Teller<'_, '_> {
    /// Parameters of a cache in one of the two kernels: its slot where only orders change; what it was asked to be where
    /// another design or era lays it out anew.
    pub(crate) fn params(
        &self,
        kernel: &KernelModel,
        cache: &CacheState<'_>,
    ) -> Option<CacheParams> {
        let (row, sysfs) = (cache.row, cache.sysfs);
        let (slot, original) = (cache.slot?, cache.original);
        let debugged = original.is_some() || self.new.debug.flags(row, sysfs).debug();
        if self.old.design == self.new.design && !debugged {
            return Some(slot);
        }
        let asked = original.or_else(|| sysfs.and_then(CacheAttributes::params));
        let asked = asked.unwrap_or(slot);
        let class = kmalloc_class(&row.name);
        let params = class.map_or(asked, |(_, bytes)| {
            self.kmalloc_params(kernel, bytes, asked)
        });
        Some(kernel.debug.on(params, row, sysfs))
    }

    /// Parameters of a kernel's kmalloc class of `bytes` bytes. A design without classes
    /// takes no more than the requests are, which is not told: the middle between this class and
    /// the next smaller one is expected.
    fn kmalloc_params(&self, kernel: &KernelModel, bytes: u64, asked: CacheParams) -> CacheParams {
        let class = kernel.class_params(bytes);
        if let Some(class) = class.filter(|_| !kernel.is_shared()) {
            return class;
        }
        let smaller = match bytes {
            192 => 128,
            128 => 96,
            96 => 64,
            bytes => bytes / 2,
        };
        match u32::try_from((bytes + smaller) / 2) {
            Ok(object_size) if kernel.is_shared() => CacheParams::new(object_size),
            _ => asked,
        }
    }

    /// Objects of `kernfs_node_cache` that stand for files of `/sys/kernel/slab` which the other
    /// kernel has not, one for each directory, file and link; less than 0 if it has more. A kernel with
    /// SLAB or SLOB has none of them; from 6.18 on each cache has the file `sheaf_capacity`.
    pub(crate) fn sysfs_nodes_gone(&self) -> f64 {
        let caches = self.snapshot.slabinfo.rows.len() as f64;
        let has_sheaf_files = |kernel: &KernelModel| f64::from(kernel.has_sheaf_files());
        match (self.old.has_sysfs(), self.new.has_sysfs()) {
            (true, true) => caches * (has_sheaf_files(self.old) - has_sheaf_files(self.new)),
            (true, false) if self.snapshot.has_sysfs() => {
                let directories = self.snapshot.sysfs.values();
                let nodes: usize = directories.map(|files| files.iter().count() + 1).sum();
                (nodes + self.snapshot.aliases.len()) as f64
            }
            // What files there are, or would be, is not told.
            (_, false) | (false, _) => 0.0,
        }
    }
}
