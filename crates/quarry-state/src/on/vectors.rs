//! Vectors of records: each slab with accounted or profiled objects has one, with a record for each of its objects.
//!
//! A record has a word for the group that pays, and one for the call site where allocation profiling is built in. To 6.19 the
//! vector is an object of kmalloc, so its class counts. From 7.0 on it lies in what the slab leaves over, if it fits there,
//! or in the gaps between the objects; whether a gap is free for it is not told. Only other caches pay for it then.

use quarry_core::era::Era;
use quarry_core::geometry::{KmallocTarget, kmalloc_index};
use quarry_snapshot::Snapshot;

use crate::kernel::KernelModel;
use crate::on::prediction::{CachePrediction, Prediction};
use crate::unknown::{Range, sum};

/// Bytes of a word of a record.
pub(crate) const ACCOUNT_BYTES: u64 = 8;

/// Words of a record before and after.
pub(crate) type Words = [u64; 2];

/// A snapshot, and the kernel that the vectors are of.
pub(crate) struct Vectors<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) kernel: &'a KernelModel,
}

impl Vectors<'_> {
    /// Bytes that other records cost in all caches. Those of kmalloc-cg, and those that sysfs says so of, are accounted; any
    /// other cache may be.
    pub(crate) fn price(&self, told: &Prediction, accounted: Words, others: Words) -> Range {
        sum(told.caches.iter().map(|cache| {
            let price = self.more(cache, accounted);
            if self.is_accounted(&cache.name) {
                return price;
            }
            let other = self.more(cache, others);
            [
                price[0].min(other[0]),
                (price[1] + other[1]) / 2.0,
                price[2].max(other[2]),
            ]
        }))
    }

    /// True if the cache is known to be accounted: by its name, or by the letter `A` in that of its directory.
    fn is_accounted(&self, name: &str) -> bool {
        let directory = self.snapshot.aliases.get(name);
        let letters = directory.and_then(|name| name.strip_prefix(':')?.split_once('-'));
        name.contains("kmalloc-cg-") || letters.is_some_and(|(letters, _)| letters.contains('A'))
    }

    fn more(&self, cache: &CachePrediction, [before, after]: Words) -> Range {
        let [before, after] = [before, after].map(|words| self.bytes(cache, words));
        let more: Range = std::array::from_fn(|end| after[end] - before[end]);
        [more[0].min(more[2]), more[1], more[0].max(more[2])]
    }

    /// Bytes of the vectors of all slabs of a cache.
    pub(crate) fn bytes(&self, cache: &CachePrediction, words: u64) -> Range {
        let slab_bytes = cache.pages_per_slab.saturating_mul(self.kernel.page_bytes);
        let slots = cache.objs_per_slab;
        let needed = slots.saturating_mul(words.saturating_mul(ACCOUNT_BYTES));
        if slab_bytes == 0 || needed == 0 {
            return [0.0; 3];
        }
        let slabs = cache.bytes.predicted_bytes as f64 / slab_bytes as f64;
        let outside = slabs * self.in_kmalloc(needed) as f64;
        if self.kernel.design.era < Era::V7_0 {
            return [outside; 3];
        }
        let left_over = slab_bytes.saturating_sub(slots.saturating_mul(cache.slab_size));
        let sysfs = self.snapshot.attributes(&cache.name);
        let object = sysfs.and_then(|sysfs| sysfs.number("object_size"));
        let gap = object.map_or(0, |bytes| cache.slab_size.saturating_sub(bytes));
        match () {
            () if left_over >= needed => [0.0; 3],
            () if gap >= words * ACCOUNT_BYTES => [0.0, 0.0, outside],
            () => [outside; 3],
        }
    }

    /// Bytes of the object of kmalloc, or of the pages, that a request takes.
    fn in_kmalloc(&self, bytes: u64) -> u64 {
        let machine = self.kernel.machine();
        let target = self
            .kernel
            .kmalloc_rules()
            .map(|rules| kmalloc_index(rules, &machine, bytes));
        match target {
            Some(KmallocTarget::Class(class)) => class.size.into(),
            _ => machine.slab_bytes(machine.order_for(bytes.min(machine.slab_bytes_max()))),
        }
    }
}
