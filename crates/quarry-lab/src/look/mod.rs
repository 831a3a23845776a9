//! First answer about a kernel's slab memory: how much, of what, why, and what would change it.
//!
//! ```text
//!   snapshot --> caches (cache.rs) --> parts, and what shrinking and dropping give back
//!            --> predictions (ask.rs): next release, other pages, orders of slabs
//!   snapshots --> growth (growth.rs): objects or the allocator
//!   all of it --> sentences (answer.rs), tables and charts (view.rs)
//!   a map of memory --> blocks that slabs are in (spread.rs), and a drawing (map.rs)
//!   a file without slabs --> what it has (bare/, owners.rs)
//!   reports of a kernel's log --> why requests for pages failed (why/)
//! ```
//!
//! Slab memory is divided into parts that add up: what objects in use take, what CPUs hold, free places of partly filled
//! slabs, debugging, and padding. The kernel counts all but the first two apart; these are estimated as
//! [`quarry_state`] does it.

mod answer;
mod ask;
mod bare;
mod cache;
mod growth;
mod map;
mod owners;
#[cfg(test)]
mod series;
mod spread;
#[cfg(test)]
mod tests;
mod view;
mod why;
mod zones;

use quarry_snapshot::Snapshot;
use quarry_snapshot::blocks::BLOCK_BYTES;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::LabError;
use quarry_state::{Fit, Prediction, Question, State};

use owners::sum;

pub use answer::Answer;
pub use ask::{WhatIf, later_releases};
pub use bare::{Bare, TABLES as BARE_TABLES};
pub use cache::{CacheLook, Freed};
pub use growth::{Basis, CacheGrowth, Growth, Moment, OfMachine, Unlisted, Verdict};
pub use map::{MapRow, MemoryMap};
pub use spread::Places;
pub use view::{CACHES, GROWTH, PARTS, TABLES, WHAT_IFS, view};
pub use why::Why;

/// Parts of the objects of reclaimable caches that stay in use, for [`Dropped`].
const STAYING: [f64; 3] = [0.0, 0.01, 0.1];

/// The answer.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Look {
    /// Bytes of all slabs.
    pub slab_bytes: u64,
    /// Bytes of slabs whose objects the kernel frees under memory pressure, by the caches' flags or names.
    pub reclaimable_bytes: u64,
    /// `Slab:` of meminfo; it has large kmallocs, too. Null if unknown.
    pub meminfo_slab_bytes: Option<u64>,
    /// Memory of the machine; null if unknown.
    pub memory_bytes: Option<u64>,
    /// Design and release that the snapshot is taken to be of.
    pub design: String,
    /// Caches whose observed geometry the formulas of that release reproduce.
    pub explained_caches: usize,
    /// Likely cause if the formulas do not give many caches their slabs; null if they do.
    pub misfit: Option<String>,
    /// Facts that no file tells, and what is taken instead; a sentence each.
    pub guessed: Vec<String>,
    /// All caches of the snapshot.
    pub all_caches: usize,
    /// Caches that have slabs.
    pub used_caches: usize,
    /// True if the kernel counted the slabs that CPUs hold (sysfs); else they are guessed.
    pub counts_cpus: bool,
    /// True if nothing tells what CPUs hold, not even roughly: it counts as objects in use.
    pub cpus_are_untold: bool,
    /// Blocks of memory by the pages that they are for; null if no file tells.
    pub block_types: Option<BlockTypes>,
    /// Places of pages, by a map of blocks.
    #[serde(flatten)]
    pub places: Places,
    /// Parts of the slab memory, which add up to `slab_bytes`.
    pub parts: Parts,
    /// Caches that have slabs, with most bytes first.
    pub caches: Vec<CacheLook>,
    /// Whole slabs that a shrink of all caches would free.
    pub shrink: Freed,
    /// Whole slabs that become free with most objects of reclaimable caches, as by `drop_caches`.
    pub drop: Vec<Dropped>,
    /// Change from the first snapshot to this, the last; null if there is one alone.
    pub growth: Option<Growth>,
    /// Predictions for other releases, pages and orders.
    pub what_ifs: Vec<WhatIf>,
    /// Questions that could not be answered, with the reason; a sentence each.
    pub unanswered: Vec<String>,
}

/// Parts of slab memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Parts {
    /// Bytes of objects in use: as a debugger read them, else as estimated.
    pub live_bytes: u64,
    /// Bytes of free objects that CPUs hold in their slabs, lists and sheaves: as a debugger read them, else as estimated.
    pub held_bytes: u64,
    /// Bytes of free objects in partly filled slabs of the nodes.
    pub partly_filled_bytes: u64,
    /// Bytes that debugging adds to objects: red zones and records of callers.
    pub debugging_bytes: u64,
    /// Bytes that alignment adds to objects, and ends of slabs that are too small for one.
    pub padding_bytes: u64,
}

impl Parts {
    /// Sum of all parts.
    #[must_use]
    pub fn total(&self) -> u64 {
        let parts = [
            self.live_bytes,
            self.held_bytes,
            self.partly_filled_bytes,
            self.debugging_bytes,
            self.padding_bytes,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    fn add(&mut self, other: &Parts) {
        for (sum, part) in [
            (&mut self.live_bytes, other.live_bytes),
            (&mut self.held_bytes, other.held_bytes),
            (&mut self.partly_filled_bytes, other.partly_filled_bytes),
            (&mut self.debugging_bytes, other.debugging_bytes),
            (&mut self.padding_bytes, other.padding_bytes),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// Blocks of memory in which the kernel keeps pages of one kind together. Slabs are in the first two kinds; a block with one
/// of them cannot become a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct BlockTypes {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// All blocks.
    pub all: u64,
    /// Blocks for pages that cannot be moved.
    pub unmovable: u64,
    /// Blocks for pages that cannot be moved, but reclaimed.
    pub reclaimable: u64,
    /// Blocks for movable pages that have slabs nevertheless, at least; null without a map of blocks.
    pub wrong_at_least: Option<u64>,
}

impl BlockTypes {
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let found = snapshot.pagetypeinfo.as_ref()?;
        let of_type = |name| sum(found.blocks.iter().map(|zone| found.blocks_of(zone, name)));
        let counts = found.blocks.iter().flat_map(|zone| &zone.counts);
        let all = counts.fold(0_u64, |sum, count| sum.saturating_add(*count));
        let block_bytes = snapshot.page_bytes.checked_shl(found.pageblock_order)?;
        // Kernels may lack the others.
        let movable = ["Movable", "CMA", "Isolate"].map(|name| of_type(name).unwrap_or(0));
        let for_slabs = movable.into_iter().fold(all, u64::saturating_sub);
        let map = snapshot.blocks.as_ref();
        let map = map.filter(|_| block_bytes.is_multiple_of(BLOCK_BYTES));
        Some(Self {
            block_bytes,
            all,
            unmovable: of_type("Unmovable")?,
            reclaimable: of_type("Reclaimable")?,
            wrong_at_least: map.map(|map| {
                let with_slab = map.spread(block_bytes).with_slab;
                with_slab.saturating_sub(for_slabs)
            }),
        })
    }
}

/// Slabs that become free when reclaimable caches lose most objects, at random places.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Dropped {
    /// Part of the objects that stays in use, from 0 to 1.
    pub staying: f64,
    /// Bytes of whole slabs that become free, as expected.
    pub bytes: u64,
}

/// Prepares snapshots for a look: those of one machine are put in the order of their times, and those without slabs are left
/// out if others have some.
pub fn prepare(snapshots: &mut Vec<Snapshot>) {
    growth::in_order(snapshots);
    Snapshot::with_slabs(snapshots);
}

impl Look {
    /// Looks at the last of some snapshots, oldest first, and at what changed since the first.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] without a snapshot, or if this build does not have the kernel's design.
    pub fn of(snapshots: &[Snapshot]) -> Result<Self, LabError> {
        let Some((last, before)) = snapshots.split_last() else {
            return Err(LabError::Usage(
                "there is no snapshot to look at".to_string(),
            ));
        };
        let state = State::of(last)?;
        let told = state.on(&Question::default())?;
        let mut look = Self::of_one(last, &state, &told);
        // A kernel that the formulas do not explain is no ground for predictions.
        if !matches!(told.fit(last), Fit::Bad(_)) {
            look.what_ifs = ask::answers(last, &state, &mut look.unanswered);
        }
        if !before.is_empty() {
            let earlier = |snapshot| Self::now(snapshot, &State::of(snapshot)?);
            let looks: Result<Vec<_>, LabError> = before.iter().map(earlier).collect();
            let mut looks = looks?;
            looks.push(look.clone());
            look.growth = Some(growth::between(snapshots, &looks));
        }
        Ok(look)
    }

    /// Looks at one snapshot, without predictions of other kernels.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if this build does not have the kernel's design.
    pub fn now(snapshot: &Snapshot, state: &State<'_>) -> Result<Self, LabError> {
        let told = state.on(&Question::default())?;
        Ok(Self::of_one(snapshot, state, &told))
    }

    /// Looks at one snapshot; `told` says how well the formulas fit. Predictions of other kernels are left out.
    fn of_one(snapshot: &Snapshot, state: &State<'_>, told: &Prediction) -> Self {
        let used = state
            .caches()
            .iter()
            .filter(|cache| cache.row.num_slabs > 0);
        let mut caches: Vec<CacheLook> = used.map(|cache| CacheLook::of(snapshot, cache)).collect();
        spread::of_caches(snapshot, &mut caches);
        caches.sort_by(|a, b| {
            b.slab_bytes
                .cmp(&a.slab_bytes)
                .then_with(|| a.name.cmp(&b.name))
        });
        let (mut parts, mut shrink) = (Parts::default(), Freed::default());
        for cache in &caches {
            parts.add(&cache.parts);
            shrink.add(&cache.shrink);
        }
        let reclaimable = caches.iter().filter(|cache| cache.reclaimable);
        let drop = std::array::from_fn(|at| Dropped {
            staying: STAYING[at],
            bytes: reclaimable
                .clone()
                .map(|cache| cache.dropped[at])
                .fold(0, u64::saturating_add),
        });
        let drop: [Dropped; STAYING.len()] = drop;
        let because = &told.snapshot_debugging;
        let debugging = (parts.debugging_bytes > 0 && !because.is_empty())
            .then(|| format!("debugging: {because}"));
        Self {
            slab_bytes: snapshot.slab_bytes(),
            reclaimable_bytes: reclaimable
                .map(|cache| cache.slab_bytes)
                .fold(0, u64::saturating_add),
            meminfo_slab_bytes: snapshot.meminfo_slab_bytes,
            memory_bytes: snapshot.memory_bytes,
            design: told.snapshot_design.clone(),
            explained_caches: told.explained_caches,
            misfit: match told.fit(snapshot) {
                Fit::Good => None,
                Fit::Doubtful(cause) | Fit::Bad(cause) => Some(cause),
            },
            guessed: debugging
                .into_iter()
                .chain(told.guessed.iter().cloned())
                .collect(),
            all_caches: snapshot.slabinfo.rows.len(),
            used_caches: caches.len(),
            counts_cpus: snapshot
                .sysfs
                .values()
                .any(|cache| cache.number("cpu_slabs").is_some()),
            cpus_are_untold: cache::cpus_are_untold(snapshot),
            block_types: BlockTypes::of(snapshot),
            places: Places::of(snapshot),
            parts,
            caches,
            shrink,
            drop: drop.to_vec(),
            growth: None,
            what_ifs: Vec::new(),
            unanswered: Vec::new(),
        }
    }
}
