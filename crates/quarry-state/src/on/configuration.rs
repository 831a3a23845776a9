//! Slab memory that a kernel's configuration costs, beside a prediction.
//!
//! | option | cost | unknown, and so in the bounds |
//! |---|---|---|
//! | `SLAB_MERGE_DEFAULT=n`, `--set slub_nomerge=1` (SLUB; SLAB from 3.18 on) | each alias that sysfs shows is a cache of its own, with slabs that are not full | CPUs that use each: none to all, their root expected |
//! | `SLAB_MERGE_DEFAULT=y`, `--set slub_nomerge=0`, of a kernel that does not merge | caches with slots and flags alike share slabs | the same; without sysfs also whether a cache has a constructor or is of RCU, so nothing is expected then |
//! | `RANDOM_KMALLOC_CACHES` (6.6 to 7.1), `PARTITION_KMALLOC_CACHES` (7.2 on) | fifteen more copies of each normal kmalloc class, by call site or type; with sheaves also those of each copy | how objects fall into the copies: `copies.rs` |
//! | `MEMCG` (5.9 on) | a word of a vector for each accounted object; from 7.0 on nothing in caches whose slabs have room for it | accounted caches: those of `kmalloc-cg` and those with an `A` in sysfs at least, all at most: `vectors.rs` |
//! | `MEM_ALLOC_PROFILING` (6.10 on) | to 7.2 one more word for each accounted object, also if profiling is off; from 7.3 on nothing | the same |
//! | `MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT` (6.10 on) | a record for each object: to 7.2 all words, from 7.3 on one more | the same |
//! | `SLUB_TINY` (6.2 on) | the kernel is another one: no slabs, lists or sheaves of CPUs, orders to 1, no empty slabs kept, no files in sysfs; reclaimable kmalloc joins the normal one | those of the prediction; a slab of each reclaimable class |
//! | `SLAB_FREELIST_RANDOM` (4.8 on) | a random sequence for each cache: four bytes for each object of a slab | nothing |
//! | `SLAB_FREELIST_HARDENED` (4.14 on) | none: the pointer in a free object is encrypted in place | nothing |
//!
//! `=n` asks what the kernel saves without it. Where the snapshot's caches or its configuration show that it has what is
//! asked for, nothing changes. Sources: the options' descriptions in the kernel's configuration, names of caches, sizes of
//! the elements; `docs/kernel-facts.md` 1.5, 1.6.

use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_snapshot::{CacheAttributes, Snapshot};

use crate::error::StateError;
use crate::kernel::KernelModel;
use crate::kernel::names::kmalloc_class;
use crate::on::copies;
use crate::on::prediction::{CachePrediction, ConfigCost, Prediction};
use crate::on::question::{Config, Cost};
use crate::on::vectors::Vectors;
use crate::unknown::{Range, Spread, sum};

/// Bytes of an element of a random sequence.
const SEQUENCE_BYTES: u64 = 4;
/// First release whose SLAB merges caches.
const SLAB_MERGES: Era = Era::V3_18;
/// Boot parameters that keep caches apart.
pub(crate) const NO_MERGE: [&str; 2] = ["slub_nomerge", "slab_nomerge"];

/// A prediction's snapshot and kernel.
pub(crate) struct Configured<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The snapshot's kernel.
    pub(crate) old: &'a KernelModel,
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
        let usage = |problem: String| StateError::Question(format!("--config {config}: {problem}"));
        let era = self.kernel.design.era;
        if !(option.first..=option.last).contains(&era) {
            return Err(usage(format!(
                "its cost is not known for {era}, only for {} to {}",
                option.first, option.last
            )));
        }
        let (cost, spread) = self.price(config, told).map_err(usage)?;
        let [least, expected, most] = cost;
        let added = ConfigCost {
            config: config.to_string(),
            bytes: expected.round() as i64,
            low_bytes: least.round() as i64,
            high_bytes: most.round() as i64,
        };
        told.bytes
            .add([added.low_bytes, added.bytes, added.high_bytes]);
        told.spread = told.spread.beside(spread);
        told.configuration.push(added);
        Ok(())
    }

    /// Bytes that an option costs in the kernel that is asked about, and their distances nine times in ten; or the problem.
    fn price(&self, config: Config, told: &Prediction) -> Result<(Range, Spread), String> {
        let is_on = |part: &str| {
            let mut rows = self.snapshot.slabinfo.rows.iter();
            rows.any(|row| row.name.contains(part))
        };
        // The configuration says how it is set; else names of caches do.
        let is_set = |name: &str| Some(self.snapshot.config.get(name)? == "y");
        let has_groups = || is_set("MEMCG").unwrap_or_else(|| is_on("kmalloc-cg-"));
        let evenly = |cost: Range| (cost, Spread::of(cost));
        let vectors = Vectors {
            snapshot: self.snapshot,
            kernel: self.kernel,
        };
        let has_wide_records = self.kernel.design.era < Era::V7_3;
        let (cost, shows) = match config.option.cost {
            Cost::Merging => return self.merging(config.on, told).map(evenly),
            Cost::Tiny => return Ok(evenly(self.reclaimable(config.on, told))),
            Cost::Nothing => return Ok(evenly([0.0; 3])),
            Cost::Copies => (
                copies::price(self.kernel, &self.snapshot.call_sites, told),
                is_on("kmalloc-rnd-") || is_on("kmalloc-part-"),
            ),
            Cost::Accounting => (evenly(vectors.price(told, [0, 1], [0, 0])), has_groups()),
            Cost::Profiling => {
                // Without groups there are no vectors to be wider.
                let before = u64::from(has_groups());
                let after = before + u64::from(has_groups() && has_wide_records);
                let cost = vectors.price(told, [before, after], [0, 0]);
                (evenly(cost), !self.snapshot.call_sites.is_empty())
            }
            Cost::ProfilingOn => {
                let before = u64::from(has_groups());
                let of_others = before * u64::from(has_wide_records) + 1;
                let cost = vectors.price(told, [before, before + 1], [0, of_others]);
                (evenly(cost), !self.snapshot.call_sites.is_empty())
            }
            Cost::RandomLists => (evenly([sequences(told); 3]), !config.on),
        };
        let is_there = is_set(config.option.name).unwrap_or(shows);
        let ([least, expected, most], spread) = cost;
        Ok(match () {
            () if config.on == is_there => evenly([0.0; 3]),
            () if config.on => cost,
            () => (
                [-most, -expected, -least],
                Spread {
                    less: spread.more,
                    more: spread.less,
                },
            ),
        })
    }

    /// True if the snapshot's kernel merges caches; `None` if nothing tells. Kernels do unless they are told otherwise.
    fn merges(&self) -> Option<bool> {
        let is_slab = self.old.design.design.features.arrays_in_slabinfo;
        let directories = || self.snapshot.sysfs.keys();
        match () {
            () if self.snapshot.boot_values(&NO_MERGE).next().is_some() => Some(false),
            () if is_slab && self.old.design.era < SLAB_MERGES => Some(false),
            () if !self.snapshot.aliases.is_empty() => Some(true),
            () if directories().any(|name| name.starts_with(':')) => Some(true),
            () if self.snapshot.has_sysfs() => Some(false),
            () => Some(self.snapshot.config.get("SLAB_MERGE_DEFAULT")? == "y"),
        }
    }

    /// Bytes that merging saves, or that caches of their own cost.
    fn merging(&self, on: bool, told: &Prediction) -> Result<Range, String> {
        let is_slab = self.kernel.design.design.features.arrays_in_slabinfo;
        if is_slab && self.kernel.design.era < SLAB_MERGES {
            return match on {
                true => Err(format!("SLAB merges caches from {SLAB_MERGES} on")),
                false => Ok([0.0; 3]),
            };
        }
        match (self.merges(), on) {
            (Some(true), true) | (Some(false), false) => Ok([0.0; 3]),
            (Some(true), false) if !self.snapshot.aliases.is_empty() => Ok(self.unmerged(told)),
            (_, false) => Err(
                "which caches were merged stands in /sys/kernel/slab alone, which the snapshot has not; SLAB has no such \
                 files, so how many caches share a row is not known"
                    .to_string(),
            ),
            (merges, true) => {
                let [least, expected, most] = self.merged(told).map(|bytes| -bytes);
                // By default it is what the kernel does.
                let expected = if merges.is_none() { 0.0 } else { expected };
                Ok([most, expected.max(most), least])
            }
        }
    }

    /// Bytes that caches would save if they were merged: those with equal slots that may share slabs.
    fn merged(&self, told: &Prediction) -> Range {
        let never = CacheFlags::CTOR | CacheFlags::RCU | CacheFlags::DEBUG;
        let mut groups: Vec<(u64, Option<bool>, Vec<&CachePrediction>)> = Vec::new();
        for cache in &told.caches {
            let sysfs = self.snapshot.attributes(&cache.name);
            let flags = sysfs.map(CacheAttributes::flags);
            let is_apart = flags.is_some_and(|flags| flags.intersects(never))
                || kmalloc_class(&cache.name).is_some()
                || matches!(cache.name.as_str(), "kmem_cache" | "kmem_cache_node");
            if is_apart || cache.objs_per_slab == 0 {
                continue;
            }
            let reclaimed = flags.map(|flags| flags.contains(CacheFlags::RECLAIM));
            let same = |group: &&mut (u64, Option<bool>, _)| {
                group.0 == cache.slab_size && group.1 == reclaimed
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.2.push(cache),
                None => groups.push((cache.slab_size, reclaimed, vec![cache])),
            }
        }
        sum(groups.iter().map(|(_, reclaimed, caches)| {
            let count = caches.len();
            let Some(first) = caches.first().filter(|_| count > 1) else {
                return [0.0; 3];
            };
            let total = |number: fn(&CachePrediction) -> u64| {
                let numbers = caches.iter().map(|cache| number(cache));
                numbers.fold(0, u64::saturating_add)
            };
            let objects = total(|cache| cache.objects);
            let used = objects.saturating_mul(first.slab_size);
            let free = total(|cache| cache.bytes.predicted_bytes).saturating_sub(used) as f64;
            let [_, expected, most] = self.split(first, objects, (count - 1) as f64);
            let expected = if reclaimed.is_none() { 0.0 } else { expected };
            [0.0, expected.min(free), most.min(free)]
        }))
    }

    /// Bytes that change if reclaimable kmalloc joins the normal classes, or leaves them: half a slab for each class, of what
    /// is free in it.
    fn reclaimable(&self, tiny: bool, told: &Prediction) -> Range {
        if tiny == self.old.is_tiny || !tiny {
            // Which objects are reclaimable is not told where they have no class.
            return [0.0; 3];
        }
        let classes = told.caches.iter().filter(|cache| {
            kmalloc_class(&cache.name).is_some_and(|(family, _)| family == "kmalloc-rcl")
        });
        sum(classes.map(|cache| {
            let slab = cache.pages_per_slab.saturating_mul(self.kernel.page_bytes) as f64;
            let used = cache.objects.saturating_mul(cache.slab_size);
            let free = cache.bytes.predicted_bytes.saturating_sub(used) as f64;
            [-free.min(slab), -free.min(slab / 2.0), 0.0]
        }))
    }

    /// Bytes that are free if `more` caches alike share the objects of one: each CPU that uses one holds a slab of its own,
    /// which is half full as expected, and has one object at worst.
    fn split(&self, cache: &CachePrediction, objects: u64, more: f64) -> Range {
        let slab_bytes = cache.pages_per_slab.saturating_mul(self.kernel.page_bytes) as f64;
        let slots = cache.objs_per_slab.max(1) as f64;
        let (objects, cpus) = (objects as f64, f64::from(self.kernel.cpus));
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
        sum(caches.map(|cache| self.split(cache, cache.objects, aliases(&cache.name).max(0.0))))
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
