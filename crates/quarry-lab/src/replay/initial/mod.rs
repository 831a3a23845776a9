//! The kernel's slabs before the recording.
//!
//! # What is known
//!
//! [`quarry_state`] has what a snapshot tells, and what not: in which slabs the free objects lie, and how many active ones
//! are really free in some CPU's own stock. SLUB's sysfs tells how many slabs lie on each CPU's partial list
//! (`slabs_cpu_partial`). The objects that it prints there are an estimate, half of what the slabs can hold.
//!
//! # What is assumed
//!
//! Only the first of these is a fact; the others replace what no report contains. [`quarry_state`] draws 2 to 5
//! ([`quarry_state::Holding`]), from the same estimates as what-if and `look` have.
//!
//! 1. Each cache has its `num_slabs` slabs, and all are full but for the free objects named here.
//! 2. Its `num_objs - active_objs` free objects lie on the nodes' lists. sysfs tells how many slabs these have
//!    (`partial`): the objects are spread over them, some slabs nearly full and some nearly empty, and none is free as a
//!    whole if there are more than the node keeps (`min_partial`). Without sysfs as many as the node keeps are free as a
//!    whole, for after a burst it has them; the rest is spread over slabs that are half free. A SLAB tells how many
//!    slabs are free as a whole: `num_slabs - active_slabs`.
//! 3. CPUs that hold a slab have used as much of it as its cache's demand lets expect; the rest counts as active. sysfs tells
//!    how many such slabs there are. A cache with fewer than CPUs has them on those CPUs that allocate from it first in the
//!    recording: those that use it have used it.
//! 4. sysfs tells how many slabs are on CPUs' own lists. Without it, if the nodes' lists hold free objects, these have
//!    overflowed and grown again: each has half of what it may hold. A slab there is as free as one of the nodes' lists is on
//!    average, or, where these have none, free as a whole.
//! 5. A SLAB reports how many free objects lie in the array that CPUs share (`sharedavail`). Each
//!    CPU's own array is half full, but all together have no more than half of the active objects.
//!    These take the place of 3 and 4.
//! 6. An object from before the recording that is freed in it (an orphan) is one of these objects
//!    of its cache. Which one cannot be known. Objects that die soon are young, and the young lie in the
//!    slabs that were allocated from last. So those of the CPUs' slabs go first, then those of the half
//!    free slabs, then the others.
//!
//! # What the recording shows
//!
//! A trace that tells the places of objects ([`quarry_trace::Place`]) replaces assumptions 2 to 4
//! and 6. It does so for caches whose CPUs hold slabs, as far as it touches them. It is read once
//! before the replay; `seen` says what is taken from it: each slab's number of free places, the CPUs
//! that took them and in which order, and the slab in which an orphan lay. Then
//!
//! 1. the slab of a CPU's first allocation is the slab that the CPU allocated from before;
//! 2. a CPU uses its own list before it takes slabs of the nodes' lists: of the slabs that it took, the first
//!    ones lay on its list, and the others on the nodes' lists. The report tells how many free objects the
//!    nodes' lists held. The replay puts slabs on the CPUs' lists in turn until the others have at most that
//!    number of free objects. A CPU takes several slabs of a node's list at once. After the
//!    first of them it uses the last; their order on that list follows from this;
//! 3. a slab of a CPU that the CPU never left may have more free places: half of those that the
//!    recording does not show are taken to be free. Of every other slab all free places were taken;
//! 4. places that the recording does not touch are full, but for the rest of what the report says
//!    is free: it lies as assumption 2 has it, in slabs that the recording does not show or shows by frees alone;
//! 5. an orphan frees an object of its own slab. A `kfree` names no cache, but the objects beside do.
//!
//! # What sysfs tells
//!
//! If the snapshot has the lengths of the CPUs' lists ([`Snapshot::cpu_partial_lists`]), they take the place of the
//! turns in 2: with a length of n, the first n slabs that the CPU took lay on its list. If it took fewer, the
//! others of its list are slabs as assumption 4 has them, below these. Whether a list is full
//! decides what the next free of an object of a full slab does: a full list goes to the node, which gives
//! empty slabs back. sysfs is read before the recording begins, and lists change. So the replay does without
//! the lengths if sysfs counted other slabs or objects of the cache than the report. It also does without them
//! if the nodes' lists would have more free places than the report says.
//!
//! If a debugger read what CPUs hold ([`Snapshot::hidden`]) and no event tells pages, every slab of SLUB begins as it was
//! read, and sheaves hold as many objects.
//!
//! Nothing is taken from slabs that the recording makes or gives back: how many there are is for the
//! replay to find out. Objects of arrays come from any slab in any order, so for SLAB the assumptions
//! above stay. Only which cache a `kfree` belongs to is taken from places.
//!
//! # Sheaves
//!
//! What lies in sheaves and barns counts as active. For caches with sheaves this takes the place of assumptions 3 and 4
//! (`sheaves`); CPUs that have lists of slabs beside them (6.18, 6.19) have as many as sysfs says:
//!
//! 1. A slab is made when sheaves, barn and nodes' lists have nothing any more. If the part makes slabs,
//!    the free places that it took were all there were: those that the lists had not lay in sheaves.
//! 2. Sheaves change hands as a whole. So until a CPU makes a slab, its allocations and frees tell
//!    the objects of its own sheaves modulo the capacity.
//! 3. If the part makes none, sheaves held what the state estimates, and at least what the part takes of them: if the lists
//!    have more free objects than a refill leaves of one slab, frees have overflowed.
//! 4. Of each CPU the first places that it takes were its own, then come the barn's, then the lists'.
//!
//! A CPU that the part does not use may have held objects that nothing shows; they stay alive.
//!
//! # Other slabs
//!
//! With another design, page size, CPU count or tunable the state is what [`quarry_state`] predicts of the row, in whole
//! slabs ([`quarry_state::Holding`]): these are made, and objects freed until each has as many as predicted. Every slab
//! that no CPU holds keeps an object, which pins it. Designs whose slabs serve all caches only get the objects.
//!
//! # Loads
//!
//! A load begins on the same state ([`crate::booted`]): without a recording nothing is seen, and all assumptions stand. On a
//! machine of several nodes each has an equal share of every cache's slabs.
//!
//! kmalloc has several caches of a size, for accounted, reclaimable and DMA memory, if the report
//! names them (`kmalloc-cg-64`); a kmalloc goes where its flags say.
//!
//! # States
//!
//! Facts that no report tells are drawn anew in each state ([`RunSpec::state`]), from the distributions that what-if's ranges
//! come from: of predicted slabs also how many there are. State 0 takes what is expected.

mod fill;
mod lists;
mod seen;
mod shape;
mod sheaves;
mod silent;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use quarry_core::design::Design;
use quarry_core::geometry::{
    CacheFlags, CacheParams, KmallocClass, kmalloc_classes, kmalloc_params,
};
use quarry_core::sheaf::geometry::sheaf_bytes;
use quarry_sim::driver::{CacheIndex, CacheView, Driver, ObjectRef};
use quarry_trace::Flags;

use super::engine::caches::create;
use super::input::{Input, RecordedCache};
use super::objects::NONE;
use crate::error::LabError;
use crate::run::{Kmalloc, RunSpec};
use fill::{Filled, Filling, Source, is_told};
use quarry_snapshot::{CacheAttributes, SlabinfoRow, Snapshot};
use quarry_state::{CachePrediction, Draw, Sheaves, State, in_a_kernel, kmalloc_class};
use seen::Seen;
use silent::SilentDraw;

pub(super) use silent::Change;

/// Kinds of kmalloc caches beside the normal one: which flag leads there and what their names begin
/// with. The first flag that an allocation has decides.
const KMALLOC_KINDS: [(Flags, &str); 3] = [
    (Flags::DMA, "dma-kmalloc-"),
    (Flags::RECLAIMABLE, "kmalloc-rcl-"),
    (Flags::ACCOUNTED, "kmalloc-cg-"),
];
/// The kind without a flag.
const NORMAL: usize = KMALLOC_KINDS.len();
/// Prefix of the names of normal kmalloc caches.
const KMALLOC_NORMAL: &str = "kmalloc-";
/// The same of SLAB up to 3.9.
const SIZE_NORMAL: &str = "size-";
const CLASSES: usize = KmallocClass::INDEXES;

/// An object from before the part that the recording frees.
pub(super) struct Orphan<'h> {
    pub(super) object: ObjectRef<'h>,
    pub(super) bytes: u32,
    /// The driver's cache that it is freed to; `None` for a normal kmalloc cache.
    pub(super) cache: Option<CacheIndex>,
}

/// Objects and slabs of the kernel that are not yet freed.
pub(super) struct Held<'h> {
    /// Objects that the recording frees, by the row of the trace.
    pub(super) orphans: HashMap<u64, Orphan<'h>>,
    /// Bytes of all objects at the beginning.
    pub(super) object_bytes: u64,
    /// Driver's cache by type of kmalloc and class.
    typed: [[u16; CLASSES]; KMALLOC_KINDS.len()],
    /// Frees and allocations without an event, with their time: the next one last.
    changes: Vec<(u64, Change<'h>)>,
}

/// Inputs of the preparation.
pub(super) struct Preparation<'a> {
    pub(super) spec: &'a RunSpec,
    /// The recording; `None` if something else than a replay begins.
    pub(super) input: Option<&'a Input>,
    pub(super) kmalloc: Kmalloc,
    /// Facts that the report does not tell.
    pub(super) draw: Draw,
}

/// Makes the caches of a report with what they held, on a heap that no recording uses.
pub(crate) fn fill<D: Design>(
    spec: &RunSpec,
    draw: Draw,
    initial: &Snapshot,
    driver: &mut Driver<'_, D>,
) -> Result<(), LabError> {
    let preparation = Preparation {
        spec,
        input: None,
        kmalloc: spec.kmalloc()?,
        draw,
    };
    Held::prepare(&preparation, initial, driver, &mut []).map(|_| ())
}

impl<'h> Held<'h> {
    /// Makes the caches of a report with what they held. `cache_of` learns which of the driver's
    /// caches serves which cache of the trace.
    pub(super) fn prepare<D: Design>(
        preparation: &Preparation<'_>,
        initial: &Snapshot,
        driver: &mut Driver<'h, D>,
        cache_of: &mut [u16],
    ) -> Result<Self, LabError> {
        in_a_kernel(preparation.spec.design)?;
        let mut draw = preparation.draw.clone();
        let told = State::of(initial)?.held_in(&preparation.spec.kernel(), &mut draw);
        // Caches that the recorded kernel has not follow those of its rows.
        let known = &initial.slabinfo.rows;
        let added = told.caches.iter().skip(known.len()).map(row_of);
        let rows: Vec<SlabinfoRow> = known.iter().cloned().chain(added).collect();
        let mut held = Self {
            orphans: HashMap::new(),
            object_bytes: 0,
            typed: [[NONE; CLASSES]; KMALLOC_KINDS.len()],
            changes: Vec::new(),
        };
        let seen = Seen::scan(preparation, &rows)?;
        let mut fillings = Vec::new();
        for (at, ((row, told), row_seen)) in
            (0..).zip(rows.iter().zip(&told.caches).zip(&seen.rows))
        {
            if told.objs_per_slab == 0 {
                // The run's kernel has no such cache: its objects are pages.
                continue;
            }
            let kmalloc = preparation.class_of(row);
            let groups = preparation.groups_of(row);
            let (source, view) = if let Some((NORMAL, class)) = kmalloc {
                let view = driver.kmalloc_cache(class.size);
                (Source::Kmalloc(class), view)
            } else {
                let asked = initial
                    .attributes(&row.name)
                    .and_then(CacheAttributes::params);
                let params = preparation.params_of::<D>(told, asked, kmalloc, &groups);
                let index = create(driver, &row.name, &params).map_err(|source| {
                    LabError::InitialCache {
                        run: preparation.spec.label(),
                        cache: row.name.clone(),
                        object_size: params.object_size,
                        source,
                    }
                })?;
                if let Some((kind, class)) = kmalloc {
                    held.typed[kind][class.index as usize] = index.0;
                }
                let recorded = preparation.input.map(|input| &input.cache_of[..]);
                for (into, group) in cache_of.iter_mut().zip(recorded.unwrap_or_default()) {
                    if groups.contains(&usize::from(*group)) {
                        *into = index.0;
                    }
                }
                (Source::Cache(index), driver.cache(index))
            };
            if let Some(view) = view {
                if told.holding.is_observed {
                    preparation.keep_limits(initial.attributes(&row.name), &view);
                }
                let stock = preparation.stock_of(&view);
                view.set_attribute("sheaf_capacity", 0);
                fillings.push(Filling {
                    at,
                    run: preparation.spec,
                    row,
                    told,
                    source,
                    view,
                    seen: row_seen,
                    tells_pages: seen.tells_pages,
                    stock,
                });
            }
        }
        // Making the other caches' slabs may have taken objects of normal kmalloc caches, which the
        // report counts there.
        fillings.sort_by_key(|filling| matches!(filling.source, Source::Kmalloc(_)));
        let mut filled = Vec::with_capacity(fillings.len());
        for filling in &fillings {
            filled.push(filling.fill(driver, &mut draw)?);
        }
        preparation.make_room_for_sheaves(&fillings, &mut filled, driver)?;
        let (spec, input) = (preparation.spec, preparation.input);
        let part = input.map_or((0, 0), Input::part_bounds);
        let batches = input.map_or(&[][..], |input| &input.file.meta().rcu.batches);
        let mut silent = SilentDraw::new(spec.state, &spec.missing, (&seen, &rows), part, batches);
        for (filling, filled) in fillings.iter().zip(filled) {
            let (_, bytes) = filling.served();
            let count = filled.orphans.len() + filled.others.len();
            held.object_bytes += count as u64 * u64::from(bytes);
            for (row, object) in filled.orphans {
                held.orphans.insert(row, filling.orphan(object));
            }
            silent.add(filling, filled.others);
            for (cpu, objects) in filled.in_sheaves.frees {
                filling.free(objects, cpu, driver)?;
            }
        }
        held.changes = silent.finish();
        for filling in &fillings {
            filling.complete(driver)?;
        }
        Ok(held)
    }

    /// The driver's cache that serves a kmalloc with these flags; `None` if a normal one does.
    #[inline(always)]
    pub(super) fn typed(&self, class: KmallocClass, flags: Flags) -> Option<u16> {
        let typed = self.typed.get(kmalloc_kind(flags))?;
        Some(typed[class.index as usize]).filter(|cache| *cache != NONE)
    }

    /// When the next change without an event is due.
    pub(super) fn due_ns(&self) -> u64 {
        self.changes.last().map_or(u64::MAX, |(at_ns, _)| *at_ns)
    }

    /// The next change without an event that is due by now.
    pub(super) fn change(&mut self, now_ns: u64) -> Option<Change<'h>> {
        let next = self.changes.pop_if(|(at_ns, _)| *at_ns <= now_ns)?;
        Some(next.1)
    }
}

impl<'a> Preparation<'a> {
    pub(super) fn recorded(&self) -> &'a [RecordedCache] {
        self.input.map_or(&[], |input| &input.caches)
    }

    /// Capacity of a cache's sheaves; `None` if it has none.
    fn stock_of<D: Design>(&self, view: &CacheView<'_, D>) -> Option<Sheaves> {
        let capacity = view.attribute("sheaf_capacity").filter(|n| *n > 0)?;
        Some(Sheaves {
            capacity,
            in_barns: view.attribute("barn_full").unwrap_or(0),
            cpus: self.spec.config.cpus.into(),
        })
    }

    /// Sets the limits that the kernel ran with, which may have been written since it booted, but for those that the run
    /// sets.
    fn keep_limits<D: Design>(&self, sysfs: Option<&CacheAttributes>, view: &CacheView<'_, D>) {
        for name in ["min_partial", "cpu_partial"] {
            if !self.spec.settings.sets(name)
                && let Some(value) = sysfs.and_then(|sysfs| sysfs.number(name))
            {
                view.set_attribute(name, value);
            }
        }
    }

    /// Gives caches their sheaves back. Sheaves are kmalloc objects, which the rows of kmalloc's caches
    /// count: each takes the place of one object there with an unknown use.
    fn make_room_for_sheaves<'h, D: Design>(
        &self,
        fillings: &[Filling<'_, 'h, D>],
        filled: &mut [Filled<'h>],
        driver: &Driver<'h, D>,
    ) -> Result<(), LabError> {
        let mut sheaves = [0; CLASSES];
        for (filling, filled) in fillings.iter().zip(&*filled) {
            let Some(stock) = filling.stock else { continue };
            let bytes = sheaf_bytes(stock.capacity as u32);
            if let Some(class) = self.kmalloc.class(bytes) {
                sheaves[class.index as usize] += filled.in_sheaves.sheaves;
            }
        }
        for (filling, filled) in fillings.iter().zip(filled) {
            if let Source::Kmalloc(class) = filling.source {
                let count = sheaves[class.index as usize] as usize;
                let rest = filled.others.len().saturating_sub(count);
                filling.free(filled.others.split_off(rest), 0, driver)?;
            }
        }
        for filling in fillings {
            if let Some(stock) = filling.stock {
                filling.view.set_attribute("sheaf_capacity", stock.capacity);
            }
        }
        Ok(())
    }

    /// Kind and class of a row that is a kmalloc cache, whatever its kernel calls a class of that size.
    fn class_of(&self, row: &SlabinfoRow) -> Option<(usize, KmallocClass)> {
        let of_slab = row.name.strip_prefix(SIZE_NORMAL);
        let of_slab = of_slab.map(|size| format!("{KMALLOC_NORMAL}{size}"));
        let (family, bytes) = kmalloc_class(of_slab.as_ref().unwrap_or(&row.name))?;
        let prefixes = KMALLOC_KINDS.iter().map(|(_, prefix)| *prefix);
        let kind = prefixes
            .chain([KMALLOC_NORMAL])
            .position(|prefix| prefix.strip_suffix('-') == Some(family))?;
        kmalloc_classes(self.kmalloc.rules, &self.kmalloc.machine)
            .find(|class| u64::from(class.size) == bytes)
            .map(|class| (kind, class))
    }

    /// Parameters with which a cache is created: those that give it the predicted slabs, if any do.
    fn params_of<D: Design>(
        &self,
        told: &CachePrediction,
        asked: Option<CacheParams>,
        kmalloc: Option<(usize, KmallocClass)>,
        groups: &[usize],
    ) -> CacheParams {
        if let Some((_, class)) = kmalloc {
            return kmalloc_params(self.kmalloc.rules, class);
        }
        let inferred = groups
            .iter()
            .find_map(|group| self.recorded().get(*group)?.inferred)
            .map(|inferred| inferred.params());
        // Without a recorded size: objects of this many bytes lie as far apart as the kernel's.
        let plain =
            CacheParams::new(u32::try_from(told.slab_size).unwrap_or(u32::MAX)).with_align(8);
        let first = inferred.unwrap_or(plain);
        let gives_the_slabs = |params: &CacheParams| {
            let (era, boot) = (self.spec.design.era, &self.spec.settings.boot);
            D::geometry(era, &self.kmalloc.machine, boot, params)
                .is_ok_and(|geometry| is_told(told, &geometry))
        };
        let predicted = told.params.unwrap_or(first);
        // Only the prediction knows what is reclaimable, and SLAB gives such caches smaller slabs.
        let flagged = first.with_flags(first.flags | predicted.flags);
        let chosen = [first, flagged, asked.unwrap_or(first), predicted]
            .into_iter()
            .find(gives_the_slabs)
            .unwrap_or(first);
        // Its pages are of a type of their own; in most designs its slabs are the same.
        let initial = self.input.and_then(|input| input.initial.as_ref());
        let is_reclaimable = initial.and_then(|initial| initial.is_reclaimable(&told.name));
        let reclaimable = chosen.with_flags(chosen.flags | CacheFlags::RECLAIM);
        match is_reclaimable {
            Some(true) if gives_the_slabs(&reclaimable) => reclaimable,
            _ => chosen,
        }
    }

    /// The recording's caches that are this row's: those of its name, or, for a cache whose name no
    /// event told, the only row of its size.
    fn groups_of(&self, row: &SlabinfoRow) -> Vec<usize> {
        let size_fits = |cache: &RecordedCache| u64::from(cache.slab_size) == row.objsize;
        let rows = self.input.and_then(|input| input.initial.as_ref());
        let rows = rows.map(|initial| &initial.slabinfo.rows);
        let alone = || {
            let same = |other: &&SlabinfoRow| {
                other.objsize == row.objsize && !other.name.contains(KMALLOC_NORMAL)
            };
            rows.is_some_and(|rows| rows.iter().filter(same).count() == 1)
        };
        let caches = self.recorded().iter().enumerate().skip(1);
        caches
            .filter(|(_, cache)| match cache.synthetic {
                true => size_fits(cache) && alone() && !row.name.contains(KMALLOC_NORMAL),
                false => cache.name == row.name && (cache.slab_size == 0 || size_fits(cache)),
            })
            .map(|(group, _)| group)
            .collect()
    }
}

/// The kind of kmalloc caches that serves an allocation with these flags, if there is such a cache.
#[inline(always)]
fn kmalloc_kind(flags: Flags) -> usize {
    let kind = KMALLOC_KINDS.iter().position(|(flag, _)| flags.has(*flag));
    kind.unwrap_or(NORMAL)
}

/// The row that a cache would have which the recorded kernel has not.
fn row_of(told: &CachePrediction) -> SlabinfoRow {
    SlabinfoRow {
        // The class of kmallocs that were pages has its plain name in a heap.
        name: told.name.split(' ').next().unwrap_or_default().to_string(),
        objsize: told.slab_size,
        objperslab: told.objs_per_slab,
        pagesperslab: told.pages_per_slab,
        ..SlabinfoRow::default()
    }
}
