//! The answer to a question about a snapshot.

use quarry_core::geometry::{CacheParams, Geometry};
use schemars::JsonSchema;
use serde::Serialize;

use quarry_snapshot::SlabinfoRow;

use crate::lay::places::Holding;
use crate::on::releases::Unmodelled;
use crate::unknown::{Range, Spread, Unknown};

/// Cost of an option, in `predicted_bytes` and the bounds.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct ConfigCost {
    /// The option, as it was asked for.
    pub config: String,
    /// Expected bytes; negative if the kernel saves them.
    pub bytes: i64,
    /// Bytes at best.
    pub low_bytes: i64,
    /// Bytes at worst.
    pub high_bytes: i64,
}

/// Predicted bytes of slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Bounds {
    /// Expected bytes.
    pub predicted_bytes: u64,
    /// Lower end of the range that nine in ten real sizes lie in.
    pub likely_low_bytes: u64,
    /// Upper end of that range.
    pub likely_high_bytes: u64,
    /// Bytes with every unknown at its best: less can be excluded.
    pub low_bytes: u64,
    /// Bytes with every unknown at its worst: more can be excluded.
    pub high_bytes: u64,
}

impl Bounds {
    /// Bytes at best, expected and at worst.
    #[must_use]
    pub fn ends(&self) -> [u64; 3] {
        [self.low_bytes, self.predicted_bytes, self.high_bytes]
    }

    /// Adds a change of what can be excluded, and of what is expected between.
    pub(crate) fn add(&mut self, [low, expected, high]: [i64; 3]) {
        self.low_bytes = self.low_bytes.saturating_add_signed(low);
        self.predicted_bytes = self.predicted_bytes.saturating_add_signed(expected);
        self.high_bytes = self.high_bytes.saturating_add_signed(high);
    }

    /// Each of the numbers by itself.
    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self {
            predicted_bytes: change(self.predicted_bytes),
            likely_low_bytes: change(self.likely_low_bytes),
            likely_high_bytes: change(self.likely_high_bytes),
            low_bytes: change(self.low_bytes),
            high_bytes: change(self.high_bytes),
        }
    }

    /// Widens the bounds to those of another kernel that the snapshot may be of.
    fn include(&mut self, other: &Self) {
        self.low_bytes = self.low_bytes.min(other.low_bytes);
        self.high_bytes = self.high_bytes.max(other.high_bytes);
        self.likely_low_bytes = self.likely_low_bytes.min(other.likely_low_bytes);
        self.likely_high_bytes = self.likely_high_bytes.max(other.likely_high_bytes);
    }

    /// Places the ends of what is likely, within what can be excluded.
    fn place_likely(&mut self, spread: Spread) {
        let [low, expected, high] = self.ends();
        let [less, more] = [spread.less, spread.more].map(|distance| distance.round() as u64);
        self.likely_low_bytes = expected.saturating_sub(less).max(low.min(expected));
        self.likely_high_bytes = expected.saturating_add(more).min(high.max(expected));
    }
}

/// Slab memory of several guests, each with a kernel of its own: they share no slab. What each boot has by chance evens
/// out; sizes, options and errors of the model are the same in all guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Guests {
    /// Guests.
    pub count: u64,
    /// Bytes if each has the slabs of the snapshot.
    pub observed_bytes: u64,
    /// Predicted bytes of all.
    #[serde(flatten)]
    pub bytes: Bounds,
}

/// Predicted slab memory.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Prediction {
    /// Design and release that the snapshot is taken to be of.
    pub snapshot_design: String,
    /// Facts about the snapshot's machine that no file tells, with what is assumed and what is as likely; the bounds
    /// hold for all of it.
    pub guessed: Vec<String>,
    /// Evidence that the snapshot's kernel has debugging (`slub_debug`); empty without.
    pub snapshot_debugging: String,
    /// The same of the prediction's kernel.
    pub debugging: String,
    /// Caches whose observed geometry the formulas reproduce, of all in `caches`.
    pub explained_caches: usize,
    /// Design and release of the prediction.
    pub design: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Online CPUs.
    pub cpus: u32,
    /// True if `cpus` is an assumption, since nothing tells how many the snapshot's machine has.
    pub cpus_are_assumed: bool,
    /// Possible CPUs.
    pub possible_cpus: u32,
    /// Values of lists given to `--set`, such as `cpu_partial=6`; `default` for the prediction without any of them.
    /// Left out without a list.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// Predicted bytes of all slabs.
    #[serde(flatten)]
    pub bytes: Bounds,
    /// Bytes of all slabs in the snapshot.
    pub observed_bytes: u64,
    /// Bytes that leave the slabs for the page allocator, because no cache of that size exists.
    pub to_pages_bytes: u64,
    /// Bytes that were kmallocs above the largest class and have one now; in `predicted_bytes`.
    pub from_pages_bytes: u64,
    /// Bytes of meminfo's `Slab` that no listed cache has, where the list is not whole and larger kmallocs get classes: how much
    /// of it they are is unknown, so it is in no sum.
    pub unlisted_bytes: u64,
    /// Bytes of the sheaves themselves, in `predicted_bytes`; negative if sheaves go away.
    pub sheaves_bytes: i64,
    /// Costs of the options of the configuration that were asked for; in the sums, not in the caches.
    pub configuration: Vec<ConfigCost>,
    /// Differences between the two releases that are not computed; they are in the bounds.
    pub unmodelled: Vec<Unmodelled>,
    /// All of it in several guests, if their number was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guests: Option<Guests>,
    /// All caches, in the snapshot's order.
    pub caches: Vec<CachePrediction>,
    /// Distances to the ends of what is likely that are not in those of the caches.
    #[serde(skip)]
    pub(crate) spread: Spread,
    /// Those by chance of a boot.
    #[serde(skip)]
    pub(crate) chance: Spread,
}

/// Distances from a cache's expected bytes to the ends of what is likely.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheSpread {
    /// By what is its own.
    pub(crate) own: Spread,
    /// By chance of a boot: its own, too.
    pub(crate) chance: Spread,
    /// By what is common to all caches, by [`Unknown`].
    pub(crate) common: [Spread; Unknown::ALL.len()],
}

impl CacheSpread {
    /// Adds what is this cache's own.
    pub(crate) fn add(&mut self, own: Spread) {
        self.own = self.own.beside(own);
    }

    /// Adds what differs from boot to boot.
    pub(crate) fn add_chance(&mut self, chance: Spread) {
        self.chance = self.chance.beside(chance);
    }

    /// Adds what is this cache's own, and what it has in common with others, of an unknown.
    pub(crate) fn split(&mut self, unknown: Unknown, spread: Spread) {
        let common = unknown.common();
        let all = &mut self.common[unknown as usize];
        *all = all.beside(spread.times(common.sqrt()));
        self.add(spread.times((1.0 - common).sqrt()));
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            own: self.own.times(factor),
            chance: self.chance.times(factor),
            common: self.common.map(|spread| spread.times(factor)),
        }
    }

    /// All that is the same in every boot.
    fn lasting(&self) -> Spread {
        self.common
            .iter()
            .fold(self.own, |all, one| all.beside(*one))
    }

    /// Those of two caches together.
    fn with(&self, other: &Self) -> Self {
        let mut common = self.common;
        for (sum, one) in common.iter_mut().zip(other.common) {
            *sum = sum.with(one);
        }
        Self {
            own: self.own.beside(other.own),
            chance: self.chance.beside(other.chance),
            common,
        }
    }
}

/// Prediction for one cache.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct CachePrediction {
    /// Name in slabinfo.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Bytes from one object to the next.
    pub slab_size: u64,
    /// Objects in use: as a debugger read them, else as estimated.
    pub objects: u64,
    /// Objects per slab in the snapshot.
    pub observed_objs_per_slab: u64,
    /// Objects per slab under the other settings; 0 if the cache does not exist there.
    pub objs_per_slab: u64,
    /// Pages per slab in the snapshot, of the snapshot's page size.
    pub observed_pages_per_slab: u64,
    /// Pages per slab under the other settings.
    pub pages_per_slab: u64,
    /// Predicted bytes.
    #[serde(flatten)]
    pub bytes: Bounds,
    /// Bytes in the snapshot.
    pub observed_bytes: u64,
    /// Objects per sheaf under the other settings; 0 without sheaves.
    pub sheaf_capacity: u64,
    /// Expected objects in sheaves and barns under the other settings.
    pub kept_objects: u64,
    /// Bytes of sheaves, of any cache, that are objects of this one; in `predicted_bytes`.
    pub sheaves_bytes: i64,
    /// Cause of the change.
    pub cause: Cause,
    /// Bytes that the objects in use need at least, in `low_bytes`.
    #[serde(skip)]
    pub(crate) needed_bytes: u64,
    /// Distances to the ends of what is likely.
    #[serde(skip)]
    pub(crate) spread: CacheSpread,
    /// Places of the objects, for a heap that begins so.
    #[serde(skip)]
    pub holding: Holding,
    /// Parameters that give the cache its slabs under the other settings; `None` if the formulas do not explain them.
    #[serde(skip)]
    pub params: Option<CacheParams>,
}

/// Cause of a change in the memory of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It does not change.
    #[default]
    Same,
    /// Sheaves and barns keep objects, which pin slabs.
    SheavesKeep,
    /// Sheaves are objects of this cache.
    SheavesThemselves,
    /// Slabs have another size or hold other objects.
    Layout,
    /// The cache comes or goes with the page size.
    PageSize,
    /// CPUs and nodes hold more or fewer slabs or objects.
    Held,
}

impl Prediction {
    /// The sum of a number of all caches.
    pub(crate) fn sum(&self, number: fn(&CachePrediction) -> u64) -> u64 {
        let numbers = self.caches.iter().map(number);
        numbers.fold(0, u64::saturating_add)
    }

    /// Widens the bounds to those of another kernel that the snapshot may be of.
    pub(crate) fn include(&mut self, other: &Self) {
        self.bytes.include(&other.bytes);
        if let (Some(all), Some(others)) = (&mut self.guests, &other.guests) {
            all.bytes.include(&others.bytes);
        }
        for cache in &mut self.caches {
            let mut same = other.caches.iter();
            if let Some(same) = same.find(|same| same.name == cache.name) {
                cache.bytes.include(&same.bytes);
            }
        }
    }

    /// Tells what a tiny kernel costs or saves, which is in the caches: of `ends` that it has, against a total without it.
    pub(crate) fn name_tiny(&mut self, ends: [u64; 3], without: u64) {
        let mut configuration = self.configuration.iter_mut();
        let Some(cost) = configuration.find(|cost| cost.config.starts_with("SLUB_TINY")) else {
            return;
        };
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let [low, expected, high] = ends.map(|bytes| signed(bytes) - signed(without));
        cost.low_bytes = cost.low_bytes.saturating_add(low);
        cost.bytes = cost.bytes.saturating_add(expected);
        cost.high_bytes = cost.high_bytes.saturating_add(high);
    }

    /// Places the ends of what is likely, once all that spreads it is known: of this kernel, and of `guests`.
    pub(crate) fn place_likely(&mut self, guests: Option<u64>) {
        let mut all = CacheSpread::default();
        for cache in &mut self.caches {
            let spread = cache.spread.lasting().beside(cache.spread.chance);
            cache.bytes.place_likely(spread);
            all = all.with(&cache.spread);
        }
        let lasting = all.lasting().beside(self.spread);
        let chance = all.chance.beside(self.chance);
        self.bytes.place_likely(lasting.beside(chance));
        // Half of the variance between two boots is the snapshot's own, so the same against all guests; the other half is
        // each guest's.
        self.guests = guests.map(|count| {
            let n = count as f64;
            let chance = chance.times(((n * n + n) / 2.0).sqrt());
            let mut bytes = self.bytes.map(|bytes| bytes.saturating_mul(count));
            bytes.place_likely(lasting.times(n).beside(chance));
            Guests {
                count,
                observed_bytes: self.observed_bytes.saturating_mul(count),
                bytes,
            }
        });
    }

    /// Keeps the sums below the machine's memory, in bytes, if it is known: no kernel holds more.
    pub(crate) fn fit_into(&mut self, memory_bytes: Option<u64>) {
        let most = memory_bytes.unwrap_or(u64::MAX).max(self.observed_bytes);
        self.bytes = self.bytes.map(|bytes| bytes.min(most));
        if let Some(all) = &mut self.guests {
            let most = most.saturating_mul(all.count);
            all.bytes = all.bytes.map(|bytes| bytes.min(most));
        }
    }
}

impl CachePrediction {
    /// Report of a cache that the snapshot has not.
    pub(crate) fn new(name: String, slab_size: u64) -> Self {
        Self {
            name,
            slab_size,
            cause: Cause::PageSize,
            ..Self::default()
        }
    }

    /// As the snapshot has it.
    pub(crate) fn as_observed(row: &SlabinfoRow, page_bytes: u64) -> Self {
        let observed = row.slab_bytes(page_bytes);
        Self {
            observed_objs_per_slab: row.objperslab,
            objs_per_slab: row.objperslab,
            observed_pages_per_slab: row.pagesperslab,
            pages_per_slab: row.pagesperslab,
            bytes: Bounds::default().map(|_| observed),
            observed_bytes: observed,
            cause: Cause::Same,
            ..Self::new(row.name.clone(), row.objsize)
        }
    }

    /// True if nothing changes.
    pub(crate) fn stays(&self) -> bool {
        self.bytes.ends() == [self.observed_bytes; 3]
    }

    /// Places the objects in a whole number of slabs: of the two next to the prediction the one with which all caches
    /// together come nearest to theirs. `short_bytes` is what those before this one lack of their predictions.
    pub(crate) fn settle(&mut self, page_bytes: u64, short_bytes: &mut i64) {
        let slab_bytes = self.pages_per_slab.saturating_mul(page_bytes);
        let predicted = self.bytes.predicted_bytes;
        let wanted = predicted.saturating_add_signed(*short_bytes);
        let slabs = match slab_bytes {
            0 => 0,
            of_slab => (wanted.saturating_add(of_slab / 2) / of_slab)
                .clamp(predicted / of_slab, predicted.div_ceil(of_slab)),
        };
        let taken = slabs.saturating_mul(slab_bytes);
        *short_bytes = short_bytes
            .saturating_add_unsigned(predicted)
            .saturating_sub_unsigned(taken);
        // Bytes that all caches share are of no slab of this one (SLOB): their objects count alone.
        self.holding.settle(slabs, self.objs_per_slab);
    }

    /// Widens the bounds by factors.
    pub(crate) fn scale_bounds(&mut self, (low, high): (f64, f64)) {
        self.bytes.low_bytes = (self.bytes.low_bytes as f64 * low).round() as u64;
        self.bytes.high_bytes = (self.bytes.high_bytes as f64 * high).round() as u64;
    }

    pub(crate) fn take_shape(&mut self, geometry: &Geometry) {
        self.objs_per_slab = geometry.objects.into();
        self.pages_per_slab = 1 << geometry.order;
    }

    /// Takes the ends of what can be excluded for those of what is likely, with nothing known of what lies between.
    pub(crate) fn spread_evenly(&mut self) {
        let ends = self.bytes.ends().map(|bytes| bytes as f64);
        self.spread.add(Spread::of(ends));
    }

    pub(crate) fn set_bytes(&mut self, [low, expected, high]: Range) {
        self.bytes.predicted_bytes = expected.round() as u64;
        self.bytes.low_bytes = low.min(expected).round() as u64;
        self.bytes.high_bytes = high.max(expected).round() as u64;
    }
}
