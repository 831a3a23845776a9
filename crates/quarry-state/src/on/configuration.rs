//! Slab memory that a kernel's configuration costs, beside a prediction.
//!
//! | option | cost | unknown, and so in the bounds |
//! |---|---|---|
//! | `SLAB_MERGE_DEFAULT=n` | each alias that sysfs shows is a cache of its own, with slabs that are not full | CPUs that use each: none to all, their root expected |
//! | `RANDOM_KMALLOC_CACHES` (6.6 to 7.1), `PARTITION_KMALLOC_CACHES` (7.2 on) | fifteen more copies of each normal kmalloc class, by call site or type; with sheaves also those of each copy | the same of each copy |
//! | `MEMCG` (5.9 on) | a word of an accounting vector for each accounted object | accounted objects: those of `kmalloc-cg` at least, all at most; from 7.0 on the vector may lie in what a slab leaves over |
//! | `SLAB_FREELIST_RANDOM` (4.8 on) | a random sequence for each cache: four bytes for each object of a slab | nothing |
//! | `SLAB_FREELIST_HARDENED` (4.14 on) | none: the pointer in a free object is encrypted in place | nothing |
//!
//! `=n` asks what the kernel saves without it. Where the snapshot's caches show that it has what is asked for, nothing
//! changes. Sources: the options' descriptions in the kernel's configuration, names of caches, sizes of the elements.

use quarry_core::era::Era;
use quarry_core::sheaf::geometry::sheaf_bytes;
use quarry_snapshot::Snapshot;

use crate::error::StateError;

use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;
use crate::on::prediction::{CachePrediction, ConfigCost, Prediction};
use crate::on::question::{Config, Cost};
use crate::on::releases::ACCOUNT_BYTES;
use crate::unknown::{Range, Spread};

/// Copies of each normal kmalloc class beside it.
const COPIES: f64 = 15.0;
/// Bytes of an element of a random sequence.
const SEQUENCE_BYTES: u64 = 4;

/// A prediction's snapshot and kernel.
pub(crate) struct Configured<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) kernel: &'a KernelModel,
}

impl Configured<'_> {
    /// Adds the cost of an option to a prediction.
    ///
    /// # Errors
    ///
    /// [`StateError`] if the release has no such option, or the snapshot does not show what it costs.
    pub(crate) fn add(&self, config: Config, told: &mut Prediction) -> Result<(), StateError> {
        let option = config.option;
        let text = config.to_string();
        let usage = |problem: String| StateError(format!("--config {text}: {problem}"));
        let era = self.kernel.design.era;
        if !(option.first..=option.last).contains(&era) {
            return Err(usage(format!(
                "its cost is not known for {era}, only for {} to {}",
                option.first, option.last
            )));
        }
        let is_on = |part: &str| {
            let mut rows = self.snapshot.slabinfo.rows.iter();
            rows.any(|row| row.name.contains(part))
        };
        // What it costs to have it, or to have it not where it saves.
        let (cost, is_there) = match option.cost {
            Cost::Merging if self.snapshot.aliases.is_empty() => {
                let what = "which caches were merged stands in /sys/kernel/slab alone, which the snapshot has not";
                return Err(usage(what.to_string()));
            }
            Cost::Merging => (self.unmerged(told), false),
            Cost::Copies => (
                self.copies(told),
                is_on("kmalloc-rnd-") || is_on("kmalloc-part-"),
            ),
            Cost::Accounting => (self.vectors(told), is_on("kmalloc-cg-")),
            Cost::RandomLists => ([sequences(told); 3], !config.on),
            Cost::Nothing => ([0.0; 3], false),
        };
        let costs_when_off = option.cost == Cost::Merging;
        let [least, expected, most] = match () {
            () if costs_when_off && config.on => [0.0; 3],
            () if costs_when_off => cost,
            () if config.on == is_there => [0.0; 3],
            () if config.on => cost,
            () => [-cost[2], -cost[1], -cost[0]],
        };
        let cost = ConfigCost {
            config: text,
            bytes: expected.round() as i64,
            low_bytes: least.round() as i64,
            high_bytes: most.round() as i64,
        };
        told.low_bytes = told.low_bytes.saturating_add_signed(cost.low_bytes);
        told.predicted_bytes = told.predicted_bytes.saturating_add_signed(cost.bytes);
        told.high_bytes = told.high_bytes.saturating_add_signed(cost.high_bytes);
        let spread = Spread::of([expected - least, most - expected]);
        told.spread = told.spread.beside(spread);
        told.configuration.push(cost);
        Ok(())
    }

    /// Bytes that are free if `more` caches share the objects of one: each CPU that uses one holds a slab of its own,
    /// which is half full as expected, and has one object at worst.
    fn split(&self, cache: &CachePrediction, more: f64) -> Range {
        let slab_bytes = cache.pages_per_slab.saturating_mul(self.kernel.page_bytes) as f64;
        let slots = cache.objs_per_slab.max(1) as f64;
        let (objects, cpus) = (cache.objects as f64, f64::from(self.kernel.cpus));
        let slabs = |cpus: f64| (more * cpus).min(objects);
        [
            0.0,
            slabs(cpus.sqrt()) * slab_bytes / 2.0,
            slabs(cpus) * slab_bytes * (1.0 - 1.0 / slots),
        ]
    }

    fn unmerged(&self, told: &Prediction) -> Range {
        let aliases = |name: &str| {
            let own = self.snapshot.aliases.get(name).map_or(name, String::as_str);
            let same = self.snapshot.aliases.values().filter(|of| *of == own);
            // The row has one of the names itself.
            same.count() as f64 - f64::from(self.snapshot.aliases.contains_key(name))
        };
        let caches = told.caches.iter();
        sum(caches.map(|cache| self.split(cache, aliases(&cache.name).max(0.0))))
    }

    fn copies(&self, told: &Prediction) -> Range {
        let is_normal = |cache: &&CachePrediction| {
            kmalloc_class(&cache.name).is_some_and(|(family, _)| family == "kmalloc")
        };
        let of_sheaves = |cache: &CachePrediction| match cache.sheaf_capacity {
            0 => 0.0,
            capacity => {
                let sheaf = u32::try_from(capacity).map_or(0, sheaf_bytes);
                COPIES * f64::from(self.kernel.nr_cpu_ids) * f64::from(sheaf)
            }
        };
        let cost = |cache: &CachePrediction| {
            let own = of_sheaves(cache);
            self.split(cache, COPIES).map(|bytes| bytes + own)
        };
        sum(told.caches.iter().filter(is_normal).map(cost))
    }

    fn vectors(&self, told: &Prediction) -> Range {
        let bytes = |caches: &mut dyn Iterator<Item = &CachePrediction>| {
            ACCOUNT_BYTES as f64 * caches.map(|cache| cache.objects as f64).sum::<f64>()
        };
        let is_accounted = |cache: &&CachePrediction| cache.name.contains("kmalloc-cg-");
        let least = match self.kernel.design.era >= Era::V7_0 {
            true => 0.0,
            false => bytes(&mut told.caches.iter().filter(is_accounted)),
        };
        let most = bytes(&mut told.caches.iter());
        [least, (least + most) / 2.0, most]
    }
}

/// Bytes of the random sequences of all caches, each in a kmalloc class.
fn sequences(told: &Prediction) -> f64 {
    let bytes = told.caches.iter().map(|cache| {
        let bytes = cache.objs_per_slab.saturating_mul(SEQUENCE_BYTES);
        bytes.checked_next_power_of_two().unwrap_or(u64::MAX) as f64
    });
    bytes.sum()
}

fn sum(costs: impl Iterator<Item = Range>) -> Range {
    costs.fold([0.0; 3], |sum, cost| {
        [sum[0] + cost[0], sum[1] + cost[1], sum[2] + cost[2]]
    })
}
