//! What the slab memory of a kernel would be under other settings, from one snapshot of it.
//!
//! # What a snapshot tells
//!
//! Exact: the slabs of every cache and their geometry; the slabs on the nodes' partial lists and
//! the objects in them; how many slabs CPUs hold (sysfs `cpu_slabs`), and how many of these wait on
//! their partial lists. All other slabs are full.
//!
//! # What it cannot tell
//!
//! * *What CPUs use of the slabs they hold.* The kernel counts all of it as in use. With 64 KiB
//!   pages and 16 CPUs this is most of the memory. Estimated from how many slabs CPUs have used up
//!   before: `demand.rs`.
//! * *Where objects lie in partial slabs.* Taken as left over at random: `demand.rs`.
//! * *Which objects exist because of a CPU*, and how many CPUs would use a cache on a machine with
//!   more or fewer of them: `users.rs`. What only *possible* CPUs cost is not in the prediction.
//! * *Which objects exist because of a page*, or have sizes that depend on it: taken over as they
//!   are.
//! * *How many slabs stand empty*, which a node keeps up to `min_partial` of.
//!
//! # How it is computed
//!
//! For each cache the geometry under the other settings is exact (the design's formulas). Slabs are
//! then counted in three parts: those that CPUs filled or hold, those on CPUs' partial lists, those
//! on nodes' lists. Where neither geometry nor CPUs change, the cache stays as it was observed.
//! With other pages some caches come or go: `pages.rs`. `observed` and `predicted` are slabs only;
//! what goes to the page allocator is told beside them.
//!
//! `low` and `high` put every unknown at its best and its worst, in all caches at once: one object
//! or all in what CPUs hold, left-over objects packed or each in a slab of its own, full slabs
//! proportional to the CPUs or not. The total is wider by twice the standard deviation of chance:
//! another boot has other CPUs use a cache.

mod cache;
mod demand;
mod layout;
mod pages;
mod users;
mod world;

use quarry_core::geometry::{CacheParams, Geometry};
use quarry_core::slub::geometry::cpu_partial_slabs;
use serde::Serialize;

use crate::design::DesignSpec;
use crate::error::LabError;
use crate::kernel::{CacheAttributes, SlabinfoRow, Snapshot};
use crate::setting::Setting;

use cache::{Lay, Shape};
use users::{Cpus, Range};
use world::World;

/// Standard deviations of chance by which `low` and `high` are wider.
const SIGMAS: f64 = 2.0;

/// What is asked: whatever is `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Another design or era.
    pub design: Option<DesignSpec>,
    /// Another page size in bytes.
    pub page_bytes: Option<u64>,
    /// Another number of CPUs, present and possible.
    pub cpus: Option<u32>,
    /// Another number of possible CPUs.
    pub possible_cpus: Option<u32>,
    /// Tunables.
    pub settings: Vec<Setting>,
}

/// The slab memory that is predicted.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Design and era that the snapshot is taken to be of.
    pub snapshot_design: String,
    /// Caches whose observed geometry the formulas reproduce, of all in `caches`.
    pub explained_caches: usize,
    /// Design and era that were asked about.
    pub design: String,
    /// Page size in bytes.
    pub page_size: u64,
    /// CPUs at work.
    pub cpus: u32,
    /// Possible CPUs.
    pub possible_cpus: u32,
    /// Expected bytes of all slabs.
    pub predicted_bytes: u64,
    /// With every unknown at its best, less chance.
    pub low_bytes: u64,
    /// With every unknown at its worst, and chance.
    pub high_bytes: u64,
    /// Bytes of all slabs in the snapshot.
    pub observed_bytes: u64,
    /// Bytes that leave the slabs for the page allocator, because no cache of that size exists.
    pub to_pages_bytes: u64,
    /// Bytes that were kmallocs above the largest class and have one now; in `predicted_bytes`.
    pub from_pages_bytes: u64,
    /// Every cache, in the snapshot's order.
    pub caches: Vec<CachePrediction>,
}

/// One cache.
#[derive(Clone, Debug, Serialize)]
pub struct CachePrediction {
    /// Its name in slabinfo.
    pub name: String,
    /// Bytes from object to object.
    pub slab_size: u64,
    /// Objects in use, as estimated.
    pub objects: u64,
    /// Objects a slab in the snapshot.
    pub observed_objs_per_slab: u64,
    /// Objects a slab under the other settings; 0 if the cache does not exist there.
    pub objs_per_slab: u64,
    /// Pages a slab in the snapshot, of the snapshot's size.
    pub observed_pages_per_slab: u64,
    /// Pages a slab under the other settings.
    pub pages_per_slab: u64,
    /// Expected bytes.
    pub predicted_bytes: u64,
    /// At best.
    pub low_bytes: u64,
    /// At worst.
    pub high_bytes: u64,
    /// Bytes in the snapshot.
    pub observed_bytes: u64,
}

/// Predicts.
///
/// # Errors
///
/// [`LabError::Usage`] if the question names a tunable or a machine that does not exist.
pub fn predict(snapshot: &Snapshot, question: &Question) -> Result<Prediction, LabError> {
    let (old, explained) = World::of(snapshot)?;
    let new = old.asked(question)?;
    let teller = Teller {
        snapshot,
        line: world::line_of(snapshot),
        cpus: Cpus::new(old.cpus, new.cpus),
        old: &old,
        new: &new,
    };
    let rows = &snapshot.slabinfo.rows;
    let mut variance = 0.0;
    let mut caches: Vec<_> = rows
        .iter()
        .map(|row| {
            let (told, squared) = teller.cache(row);
            variance += squared;
            told
        })
        .collect();
    caches.extend(teller.of_larger_pages());
    let changes = caches.iter().any(|cache| !cache.stays());
    let chance = if changes {
        SIGMAS * variance.sqrt()
    } else {
        0.0
    } as u64;
    let sum =
        |bytes: fn(&CachePrediction) -> u64| caches.iter().map(bytes).fold(0, u64::saturating_add);
    // Caches that the new kernel has not.
    let gone = |cache: &CachePrediction| cache.observed_bytes > 0 && cache.objs_per_slab == 0;
    Ok(Prediction {
        snapshot_design: old.design.to_string(),
        explained_caches: explained,
        design: new.design.to_string(),
        page_size: new.page_bytes,
        cpus: new.cpus,
        possible_cpus: new.nr_cpu_ids,
        predicted_bytes: sum(|cache| cache.predicted_bytes),
        low_bytes: sum(|cache| cache.low_bytes).saturating_sub(chance),
        high_bytes: sum(|cache| cache.high_bytes).saturating_add(chance),
        observed_bytes: snapshot.slab_bytes(),
        to_pages_bytes: caches
            .iter()
            .filter(|cache| gone(cache))
            .map(|cache| cache.objects.saturating_mul(cache.slab_size))
            .fold(0, u64::saturating_add),
        from_pages_bytes: teller.kmalloc_of_pages(),
        caches,
    })
}

/// Tells what becomes of one cache.
struct Teller<'a> {
    snapshot: &'a Snapshot,
    line: u32,
    cpus: Cpus,
    old: &'a World,
    new: &'a World,
}

impl Teller<'_> {
    /// A cache, and the variance of its bytes by chance.
    fn cache(&self, row: &SlabinfoRow) -> (CachePrediction, f64) {
        let sysfs = self.snapshot.attributes(&row.name);
        let mut lay = Lay::of(row, sysfs, self.old.cpus);
        let chance = lay.users_variance(&self.cpus);
        // The snapshot is of one boot by chance, and what it is compared with of another.
        let variance = |slab_bytes: f64| 2.0 * chance * slab_bytes.powi(2);
        let observed = row.slab_bytes(self.snapshot.page_bytes);
        let mut told = CachePrediction {
            name: row.name.clone(),
            slab_size: row.objsize,
            objects: lay.objects().round() as u64,
            observed_objs_per_slab: row.objperslab,
            objs_per_slab: row.objperslab,
            observed_pages_per_slab: row.pagesperslab,
            pages_per_slab: row.pagesperslab,
            predicted_bytes: observed,
            low_bytes: observed,
            high_bytes: observed,
            observed_bytes: observed,
        };
        if self.is_gone(row) {
            told.set_shape(0, 0);
            told.set_bytes([0.0; 3]);
            return (told, 0.0);
        }
        let new_layout = self.old.design != self.new.design;
        let params = self.params(row, sysfs);
        let geometry_in = |world: &World, params: &CacheParams| world.geometry(params, self.line);
        let Some(params) = params else {
            return (told, 0.0);
        };
        let (Some(before), Some(after)) = (
            geometry_in(self.old, &params),
            geometry_in(self.new, &params),
        ) else {
            return (told, 0.0);
        };
        let mut from = self.old.shape(&before);
        let mut to = self.new.shape(&after);
        self.keep_limits(sysfs, &before, &mut from, &after, &mut to);
        let same_shape = !new_layout
            && self.old.page_bytes == self.new.page_bytes
            && (from.slab_bytes, from.slots) == (to.slab_bytes, to.slots);
        from.reshape(row, self.old.page_bytes);
        if same_shape {
            // What the formulas do not explain stays as it is.
            to.reshape(row, self.old.page_bytes);
        } else {
            told.set_shape(u64::from(after.objects), 1 << after.order);
        }
        if same_shape && from == to && self.old.cpus == self.new.cpus {
            return (told, variance(from.slab_bytes));
        }
        let right = lay.calibration(&from);
        if row.name == "kernfs_node_cache" {
            lay.drop_full(self.sysfs_nodes());
        }
        let slabs = lay.slabs_in(&from, &to, &self.cpus);
        told.set_bytes(slabs.map(|slabs| slabs * right * to.slab_bytes));
        (told, variance(to.slab_bytes))
    }

    /// Limits may have been written while the kernel ran; they stay unless others are asked for.
    fn keep_limits(
        &self,
        sysfs: Option<&CacheAttributes>,
        before: &Geometry,
        from: &mut Shape,
        after: &Geometry,
        to: &mut Shape,
    ) {
        if self.old.design != self.new.design {
            return;
        }
        let written = |file| sysfs.and_then(|sysfs| sysfs.number(file));
        let stays = |name| {
            let mut set = self.new.settings.cache.iter();
            set.all(|(tunable, _)| tunable.name != name)
        };
        if let Some(slabs) = written("min_partial") {
            from.min_partial = slabs as f64;
        }
        if stays("min_partial") {
            to.min_partial = from.min_partial;
        }
        if let Some(objects) = written("cpu_partial").filter(|_| before.cpu_partial_slabs > 0) {
            let objects = u32::try_from(objects).unwrap_or(u32::MAX);
            from.cpu_partial = cpu_partial_slabs(objects, before.objects).into();
            if stays("cpu_partial") {
                to.cpu_partial = cpu_partial_slabs(objects, after.objects).into();
            }
        }
    }
}

impl CachePrediction {
    /// Of a cache that the snapshot has not.
    fn new(name: String, slab_size: u64) -> Self {
        Self {
            name,
            slab_size,
            objects: 0,
            observed_objs_per_slab: 0,
            objs_per_slab: 0,
            observed_pages_per_slab: 0,
            pages_per_slab: 0,
            predicted_bytes: 0,
            low_bytes: 0,
            high_bytes: 0,
            observed_bytes: 0,
        }
    }

    /// Whether nothing changes.
    fn stays(&self) -> bool {
        [self.low_bytes, self.predicted_bytes, self.high_bytes] == [self.observed_bytes; 3]
    }

    fn set_shape(&mut self, objects: u64, pages: u64) {
        self.objs_per_slab = objects;
        self.pages_per_slab = pages;
    }

    fn set_bytes(&mut self, [low, expected, high]: Range) {
        self.predicted_bytes = expected.round() as u64;
        self.low_bytes = low.min(expected).round() as u64;
        self.high_bytes = high.max(expected).round() as u64;
    }
}

#[cfg(test)]
mod tests;
