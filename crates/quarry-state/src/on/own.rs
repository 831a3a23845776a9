//! The memory of the sheaves themselves: each is an object of a kmalloc class.
//!
//! A cache with sheaves has a main sheaf for each possible CPU from its creation, and a barn for each
//! node. Spare sheaves and those in barns come with a burst (`kept.rs`); at worst, barns keep as
//! many empty sheaves as full ones.

use std::collections::BTreeMap;

use quarry_core::geometry::{KmallocTarget, kmalloc_index};
use quarry_core::sheaf::geometry::sheaf_bytes;

use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;
use crate::lay::Shape;
use crate::on::prediction::{CachePrediction, Cause};
use crate::unknown::{Range, Spread, sum};

/// Bytes that a barn asks kmalloc for: a lock, the heads of two lists, two counts.
const BARN_BYTES: u32 = 4 + 2 * 16 + 2 * 4;

/// Objects that sheaves and barns are, by the bytes of their kmalloc class.
#[derive(Debug, Default)]
pub(crate) struct OwnSheaves {
    classes: BTreeMap<u32, Own>,
}

#[derive(Debug, Default)]
struct Own {
    /// Fewest, expected, most.
    objects: Range,
    /// Distances to their number nine times in ten, by what is independent from cache to cache.
    spread: Spread,
}

impl OwnSheaves {
    /// Counts those of a cache with a sign: those of the snapshot's kernel go. `beside_main` sheaves are there beside the
    /// main ones, as expected.
    pub(crate) fn count(
        &mut self,
        sign: f64,
        kernel: &KernelModel,
        shape: &Shape,
        beside_main: f64,
    ) {
        let sheaves = &shape.sheaves;
        if sheaves.capacity == 0 {
            return;
        }
        let main = f64::from(kernel.nr_cpu_ids);
        // Nothing is known of the ends of what is there now: it is as expected.
        let (least, most) = if sign > 0.0 {
            (0.0, (sheaves.beside_main() + sheaves.in_barns) as f64)
        } else {
            (beside_main, beside_main)
        };
        let range = [least, beside_main, most].map(|beside| sign * (main + beside));
        self.add_objects(kernel, sheaf_bytes(sheaves.capacity as u32), range);
        let barns = sign * f64::from(kernel.nodes);
        self.add_objects(kernel, BARN_BYTES, [barns; 3]);
    }

    fn add_objects(&mut self, kernel: &KernelModel, bytes: u32, objects: Range) {
        let Some(rules) = kernel.kmalloc_rules() else {
            return;
        };
        let target = kmalloc_index(rules, &kernel.machine(), bytes.into());
        if let KmallocTarget::Class(class) = target {
            let own = self.classes.entry(class.size).or_default();
            own.objects = sum([own.objects, objects].into_iter());
            own.spread = own.spread.beside(Spread::of(objects));
        }
    }

    /// Adds the bytes to the caches of plain kmalloc, and returns the expected ones.
    pub(crate) fn place(&self, caches: &mut [CachePrediction], page_bytes: u64) -> i64 {
        let mut all = 0;
        for (size, own) in &self.classes {
            let is_class = |name: &str| {
                kmalloc_class(name).is_some_and(|class| class == ("kmalloc", u64::from(*size)))
            };
            let cache = caches.iter_mut().find(|cache| is_class(&cache.name));
            let Some(cache) = cache.filter(|cache| cache.objs_per_slab > 0) else {
                continue;
            };
            let slab_bytes = cache.pages_per_slab.saturating_mul(page_bytes) as f64;
            let object_bytes = slab_bytes / cache.objs_per_slab as f64;
            let bytes = own.objects.map(|n| (n * object_bytes).round() as i64);
            if bytes == [0; 3] {
                continue;
            }
            // They come from slabs of the class as other objects do.
            cache.holding.is_observed = false;
            cache.holding.add(own.objects[1].round() as i64);
            cache.spread.add(own.spread.times(object_bytes));
            let kept = cache.bytes.predicted_bytes.abs_diff(cache.observed_bytes);
            cache.bytes.add(bytes);
            cache.bytes.low_bytes = cache.bytes.low_bytes.min(cache.bytes.predicted_bytes);
            cache.bytes.high_bytes = cache.bytes.high_bytes.max(cache.bytes.predicted_bytes);
            cache.sheaves_bytes = bytes[1];
            if bytes[1].unsigned_abs() > kept {
                cache.cause = Cause::SheavesThemselves;
            }
            all += bytes[1];
        }
        all
    }
}
