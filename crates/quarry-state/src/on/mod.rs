//! A state on another kernel or machine.
//!
//! For each cache the geometry under the other settings is exact (the design's formulas). [`Lay::outcome`] gives the slabs of
//! its objects there. What depends on pages, releases and options comes beside it: `pages.rs`, `releases.rs`,
//! `configuration.rs`, and the memory of sheaves themselves, `own.rs`.

pub(crate) mod configuration;
pub(crate) mod copies;
pub(crate) mod fit;
pub(crate) mod layout;
pub(crate) mod own;
pub(crate) mod pages;
pub(crate) mod prediction;
pub(crate) mod question;
pub(crate) mod releases;
pub(crate) mod vectors;

use quarry_core::geometry::{CacheParams, Geometry};
use quarry_core::slub::geometry::cpu_partial_slabs;
use quarry_snapshot::Snapshot;

use crate::draw::Draw;
use crate::error::{StateError, refused};
use crate::kernel::{self, KernelModel, Run};
use crate::lay::places::Holding;
use crate::lay::users::Cpus;
use crate::lay::{Lay, Shape};
use crate::state::{CacheState, Observed, State};
use crate::unknown::{Level, NORMAL, Point, Spread, Unknown};
use configuration::Configured;
use fit::OF_32_BITS;
use own::OwnSheaves;
use prediction::{Bounds, CachePrediction, CacheSpread, Cause, Prediction};
use question::Question;
use releases::Step;

/// Standard deviations of chance by which `low` and `high` are wider.
const SIGMAS: f64 = 2.0;

/// Predicts one thing; [`State`] is for several questions about one snapshot.
///
/// # Errors
///
/// As [`State::of`] and [`State::on`].
pub fn predict(snapshot: &Snapshot, question: &Question) -> Result<Prediction, StateError> {
    State::of(snapshot)?.on(question)
}

impl<'a> State<'a> {
    /// Predicts the state on another kernel or machine.
    ///
    /// # Errors
    ///
    /// [`StateError`] if the question names a tunable or a machine that does not exist.
    pub fn on(&self, question: &Question) -> Result<Prediction, StateError> {
        // sysfs shows at least how many CPUs hold slabs.
        let cpus_are_unknown = self.snapshot.present_cpus.is_none() && !self.snapshot.has_sysfs();
        if cpus_are_unknown && question.cpus.is_some() {
            return Err(StateError::Question(format!(
                "{} does not say how many CPUs its machine has, so nothing can be said about another number; \
                 --had-cpus says it",
                self.snapshot.file
            )));
        }
        if self.snapshot.is_32_bit() && *question != Question::default() {
            return Err(refused(
                self.snapshot,
                format!("it is {OF_32_BITS}; nothing can be said about another one"),
            ));
        }
        // A design that lacks what is asked for is not the kernel's: the question narrows what is as likely.
        let kernels = std::iter::once(&self.likeliest).chain(&self.others);
        let (mut told, mut lacking): (Option<Prediction>, Option<StateError>) = (None, None);
        for kernel in kernels {
            match (self.predict_from(kernel, question), &mut told) {
                (Ok(one), Some(told)) => told.include(&one),
                (Ok(one), told) => *told = Some(one),
                (Err(error), _) => lacking = lacking.or(Some(error)),
            }
        }
        let Some(mut told) = told else {
            return Err(lacking.unwrap_or_else(|| kernel::no_design(self.snapshot)));
        };
        for cache in &mut told.caches {
            if let Some(aliases) = self.aliases.get(&cache.name) {
                cache.aliases.clone_from(aliases);
            }
        }
        told.set.clone_from(&question.set);
        told.guessed = self.guessed();
        told.guessed
            .extend(self.guessed_of_possible(told.possible_cpus, told.cpus));
        let left_out = lacking
            .map(|error| format!("designs that lack what is asked for are left out: {error}"));
        told.guessed.extend(left_out);
        told.cpus_are_assumed = self.snapshot.present_cpus.is_none() && question.cpus.is_none();
        Ok(told)
    }

    /// Predicts what becomes of the snapshot if it is of one of the kernels.
    fn predict_from(
        &self,
        old: &Observed<'a>,
        question: &Question,
    ) -> Result<Prediction, StateError> {
        let snapshot = self.snapshot;
        let new = old.kernel.asked(question)?;
        let mut told = compare(snapshot, old, &new, None);
        let step = Step {
            from: old.kernel.design.era,
            to: new.design.era,
            snapshot,
        };
        let configs = question.all_configs();
        let reboots =
            new.needs_boot_from(&old.kernel) || !configs.is_empty() || question.guests > Some(1);
        let before = told.bytes.ends();
        step.widen(&mut told, reboots);
        let configured = Configured {
            snapshot,
            old: &old.kernel,
            kernel: &new,
        };
        for config in configs {
            configured.add(config, &mut told)?;
        }
        if new.is_tiny != old.kernel.is_tiny {
            let same = KernelModel {
                is_tiny: old.kernel.is_tiny,
                ..new.clone()
            };
            told.name_tiny(
                before,
                compare(snapshot, old, &same, None).bytes.predicted_bytes,
            );
        }
        told.place_likely(question.guests);
        told.fit_into(snapshot.memory_bytes);
        Ok(told)
    }

    /// The state of a run in the place of the snapshot's kernel, with places for its objects: where a replay or a load
    /// begins.
    #[must_use]
    pub fn held_in(&self, run: &Run<'_>, draw: &mut Draw) -> Prediction {
        let new = self.likeliest.kernel.of_run(run);
        compare(self.snapshot, &self.likeliest, &new, Some(draw))
    }
}

/// Compares a snapshot, observed in its kernel, with another kernel.
///
/// With a draw the prediction is one of the states that the snapshot allows.
fn compare<'a>(
    snapshot: &'a Snapshot,
    observed: &Observed<'a>,
    new: &KernelModel,
    mut draw: Option<&mut Draw>,
) -> Prediction {
    let old = &observed.kernel;
    let teller = Teller {
        snapshot,
        cpus: Cpus::of(old, new),
        caches: &observed.caches(snapshot).0,
        old,
        new,
    };
    let mut variance = 0.0;
    let mut own = OwnSheaves::default();
    let expected = Point::all(Level::Expected);
    let common = draw.as_mut().map_or(expected, |draw| draw.point(None));
    let has_places = draw.is_some();
    let mut caches = Vec::with_capacity(teller.caches.len());
    for cache in teller.caches {
        let draw = draw.as_mut();
        let at = draw.map_or(expected, |draw| draw.point(Some(&common)));
        let (mut told, squared) = teller.cache(cache, &at, &mut own);
        if has_places && told.holding.is_observed {
            told.holding = Holding::observed(cache, snapshot, old.cpus, &at);
        }
        variance += squared;
        caches.push(told);
    }
    caches.extend(teller.of_larger_pages());
    let sheaves_bytes = own.place(&mut caches, new.page_bytes);
    let mut short_bytes = 0;
    for cache in &mut caches {
        cache.settle(new.page_bytes, &mut short_bytes);
    }
    let changes = caches.iter().any(|cache| !cache.stays());
    let chance = (f64::from(changes) * SIGMAS * variance.sqrt()) as u64;
    let mut told = Prediction {
        snapshot_design: old.design.to_string(),
        snapshot_debugging: old.debug.because.clone(),
        debugging: new.debug.because.clone(),
        explained_caches: observed.explained,
        design: new.design.to_string(),
        page_size: new.page_bytes,
        cpus: new.cpus,
        possible_cpus: new.nr_cpu_ids,
        observed_bytes: snapshot.slab_bytes(),
        from_pages_bytes: teller.kmalloc_of_pages(),
        unlisted_bytes: match teller.has_larger_classes() {
            true => snapshot.unlisted_bytes(),
            false => 0,
        },
        sheaves_bytes,
        caches,
        ..Prediction::default()
    };
    told.bytes = Bounds {
        predicted_bytes: told.sum(|cache| cache.bytes.predicted_bytes),
        low_bytes: told
            .sum(|cache| cache.bytes.low_bytes)
            .saturating_sub(chance),
        high_bytes: told
            .sum(|cache| cache.bytes.high_bytes)
            .saturating_add(chance),
        ..Bounds::default()
    };
    told.to_pages_bytes = told.sum(|cache| {
        // The new kernel has no such cache.
        let is_gone = cache.observed_bytes > 0 && cache.objs_per_slab == 0;
        u64::from(is_gone) * cache.objects.saturating_mul(cache.slab_size)
    });
    told
}

/// Tells what becomes of one cache.
struct Teller<'a, 's> {
    snapshot: &'a Snapshot,
    cpus: Cpus,
    /// The snapshot's caches, in its order.
    caches: &'a [CacheState<'s>],
    old: &'a KernelModel,
    new: &'a KernelModel,
}

impl Teller<'_, '_> {
    /// A cache at a point of what is unknown, and the variance of its bytes by chance. Its sheaves are counted in `own`.
    fn cache(
        &self,
        cache: &CacheState<'_>,
        at: &Point,
        own: &mut OwnSheaves,
    ) -> (CachePrediction, f64) {
        let row = cache.row;
        let mut lay = cache.lay.clone();
        let by_all = lay.brought.by_all;
        let chance = self.cpus.users_variance(lay.demand.users, by_all);
        // The snapshot is of one boot by chance, and what it is compared with of another.
        let by_chance = |told: &mut CachePrediction, slab_bytes: f64| {
            let variance = 2.0 * chance * slab_bytes.powi(2);
            told.spread
                .add_chance(Spread::even(NORMAL * variance.sqrt()));
            variance
        };
        let mut told = CachePrediction::as_observed(row, self.snapshot.page_bytes);
        told.objects = cache.objects();
        if self.is_gone(row) {
            (told.objs_per_slab, told.pages_per_slab) = (0, 0);
            told.set_bytes([0.0; 3]);
            told.cause = Cause::PageSize;
            return (told, 0.0);
        }
        told.holding.is_observed = true;
        let params = self.params(self.new, cache);
        let shapes = params.and_then(|params| self.shapes(cache, &params));
        let Some((from, to, is_same)) = shapes else {
            return (told, 0.0);
        };
        told.params = params;
        told.sheaf_capacity = to.sheaves.capacity;
        told.kept_objects = lay.kept[1].round() as u64;
        let gone = match row.name.as_str() {
            "kernfs_node_cache" => self.sysfs_nodes_gone(),
            "biovec-max" => self.vectors_of_pages_gone(),
            _ => 0.0,
        };
        if is_same && from == to && self.cpus.are_same() && gone == 0.0 {
            let variance = by_chance(&mut told, from.slab_bytes);
            return (told, variance);
        }
        if !is_same {
            told.objs_per_slab = to.slots as u64;
            told.pages_per_slab = (to.slab_bytes / self.new.page_bytes as f64) as u64;
        }
        let right = lay.calibration(&from);
        lay.drop_full(gone);
        let (few, cpus) = (&cache.lay_of_one_cpu, &self.cpus);
        let outcome = |level| lay.outcome(&Point::all(level), &from, &to, cpus);
        let expected = lay.outcome(at, &from, &to, cpus);
        let ends = [Level::Least, Level::Most].map(|level| outcome(level).slabs);
        let mut slabs = [ends[0], expected.slabs, ends[1]];
        let mut spread = self.spread_of(&lay, &from, &to, expected.slabs);
        if let Some(few) = few {
            let scale = few.calibration(&from) / right;
            let of_few = |level| scale * few.outcome(&Point::all(level), &from, &to, cpus).slabs;
            slabs[0] = slabs[0].min(of_few(Level::Least));
            slabs[2] = slabs[2].max(of_few(Level::Most));
            let of_few = of_few(Level::Expected) - expected.slabs;
            // How many CPUs use a cache here is half the load's, half the cache's, as elsewhere.
            spread.split(
                Unknown::Users,
                Spread::evenly((-of_few).max(0.0), of_few.max(0.0)),
            );
        }
        own.count(-1.0, self.old, &from, lay.beside_main);
        own.count(1.0, self.new, &to, expected.sheaves);
        told.set_bytes(slabs.map(|slabs| slabs * right * to.slab_bytes));
        let needed = lay.objects_at_least() * to.slab_bytes / to.slots;
        told.needed_bytes = (needed as u64).min(told.bytes.low_bytes);
        told.spread = spread.times(right * to.slab_bytes);
        let variance = by_chance(&mut told, to.slab_bytes);
        let slabs = expected.slabs * right;
        told.holding = Holding::of(&lay, &to, &self.cpus, expected.kept, slabs);
        told.kept_objects = expected.kept.round() as u64;
        told.cause = match () {
            () if told.stays() => Cause::Same,
            () if !is_same => Cause::Layout,
            () if from.sheaves.capacity != to.sheaves.capacity => Cause::SheavesKeep,
            () => Cause::Held,
        };
        (told, variance)
    }

    /// The distances to the slabs that a cache has nine times in ten, from each unknown alone.
    fn spread_of(&self, lay: &Lay, from: &Shape, to: &Shape, expected: f64) -> CacheSpread {
        let mut spread = CacheSpread::default();
        for unknown in Unknown::ALL {
            if !lay.leaves_open(unknown, from, to, &self.cpus) {
                continue;
            }
            let of_one = Spread::around(expected, |level| {
                let at = Point::all(Level::Expected).with(unknown, level);
                lay.outcome(&at, from, to, &self.cpus).slabs
            });
            spread.split(unknown, of_one);
        }
        spread
    }

    /// The shapes of a cache in both kernels, and whether its slabs stay the same; `to` are its parameters in the new
    /// one. `None` if it cannot exist in one of them.
    fn shapes(&self, cache: &CacheState<'_>, to: &CacheParams) -> Option<(Shape, Shape, bool)> {
        let params = self.params(self.old, cache)?;
        let row = cache.row;
        let before = self.old.geometry_of(&row.name, &params)?;
        let after = self.new.geometry_of(&row.name, to)?;
        let mut from = Shape::of(&before, self.old);
        let mut to = Shape::of(&after, self.new);
        for (shape, kernel) in [(&mut from, self.old), (&mut to, self.new)] {
            if kernel.debug.flags(row, cache.sysfs).debug() {
                shape.bypass_cpus();
            }
        }
        self.keep_limits(cache, (&before, &mut from), (&after, &mut to));
        let is_same = self.old.page_bytes == self.new.page_bytes
            && from.shared == to.shared
            && (from.slab_bytes, from.slots) == (to.slab_bytes, to.slots);
        from.reshape(row, self.old.page_bytes);
        if is_same {
            // What the formulas do not explain stays as it is.
            to.reshape(row, self.old.page_bytes);
        }
        Some((from, to, is_same))
    }

    /// Limits may have been written while the kernel ran; they stay unless others are asked for. Of
    /// another design those stay that differ from the formula's.
    fn keep_limits(
        &self,
        cache: &CacheState<'_>,
        (before, from): (&Geometry, &mut Shape),
        (after, to): (&Geometry, &mut Shape),
    ) {
        let same_design = self.old.design.design.name == self.new.design.design.name;
        let written = |file| cache.sysfs.and_then(|sysfs| sysfs.number(file));
        let stays = |name| !self.new.settings.sets(name);
        if self.old.sheaf_era().is_some() {
            let capacity = cache.sheaf_capacity;
            from.set_sheaves(self.old.sheaves(capacity));
            // What both releases compute may differ: from 7.0 on caches have sheaves that had none in 6.19.
            let is_formula = capacity == before.sheaf_capacity;
            if same_design && stays("sheaf_capacity") && !is_formula && !self.new.is_tiny {
                to.set_sheaves(self.new.sheaves(capacity));
            }
        }
        if let Some(slabs) = written("min_partial") {
            let is_formula = slabs == u64::from(before.min_partial);
            from.min_partial = slabs as f64;
            if stays("min_partial") && !is_formula && !self.new.is_tiny {
                to.min_partial = from.min_partial;
            }
        }
        if let Some(objects) = written("cpu_partial").filter(|_| before.cpu_partial_slabs > 0) {
            let is_formula = objects == u64::from(before.cpu_partial);
            let objects = u32::try_from(objects).unwrap_or(u32::MAX);
            from.cpu_partial = cpu_partial_slabs(objects, before.objects).into();
            if stays("cpu_partial") && !is_formula && after.cpu_partial_slabs > 0 {
                to.cpu_partial = cpu_partial_slabs(objects, after.objects).into();
            }
        }
    }
}

#[cfg(test)]
mod tests;
