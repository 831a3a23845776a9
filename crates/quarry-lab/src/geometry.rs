//! Slabs of a cache, without running anything: of caches that a user describes, and of those of a snapshot.

use quarry_core::geometry::{CacheParams, Geometry, MachineParams};
use quarry_designs::{DesignSpec, Setting, Tuning, resolve};
use quarry_snapshot::Snapshot;
use quarry_view::Form::{Bytes, Count, Of, Text};
use quarry_view::{Doc, Section, Spec, View, column};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::LabError;
use quarry_state::{OF_32_BITS, State, refused};

/// A question: one cache on one machine.
#[derive(Clone, Debug)]
pub struct Query {
    /// Design and era.
    pub design: DesignSpec,
    /// The machine.
    pub machine: MachineParams,
    /// The cache.
    pub cache: CacheParams,
    /// Tunables.
    pub settings: Tuning,
}

/// Geometry of a cache.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct CacheGeometry {
    /// Design and era.
    pub design: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of a cache line.
    pub cache_line: u32,
    /// Bytes of an object as asked for.
    pub object_size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Bytes from one object to the next.
    pub slab_size: u32,
    /// Order of a slab.
    pub order: u32,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Objects per slab.
    pub objects_per_slab: u32,
    /// Bytes of a slab that no object can use.
    pub slack: u32,
    /// Order of a slab if memory is short.
    pub fallback_order: u32,
    /// Objects of a slab of the fallback order.
    pub fallback_objects: u32,
    /// Objects that a CPU's partial list may hold.
    pub cpu_partial: u32,
    /// Slabs that a CPU's partial list may hold; 0 if the release does not count slabs.
    pub cpu_partial_slabs: u32,
    /// Slabs that a node keeps even if they are empty.
    pub min_partial: u32,
    /// Objects of a CPU's queue (SLUB+Q).
    pub cpu_queue_size: u32,
    /// Objects that move to or from a queue at a time (SLUB+Q).
    pub cpu_batch_size: u32,
    /// Objects of a sheaf; 0 without sheaves.
    pub sheaf_capacity: u32,
    /// Tunables that vary from row to row; left out if none does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
}

/// Tables of geometries.
pub const TABLES: [Spec; 1] = [Spec {
    title: "Geometry",
    rows: "runs",
    first: 0,
    columns: || {
        vec![
            column("design", "design", Text),
            column("pages", "page_size", Bytes),
            column("CPUs", "cpus", Count),
            column("set", "set", Text),
            column("object size", "object_size", Count),
            column("slab size", "slab_size", Count),
            column("alignment", "align", Count),
            column("order", "order", Count),
            column("slab", "slab_bytes", Bytes),
            column("objects per slab", "objects_per_slab", Count),
            column("slack", "slack", Count),
            column("  of the slab", "slack", Of("slab_bytes")),
            column("fallback order", "fallback_order", Count),
            column("  objects per slab", "fallback_objects", Count),
            column("cpu_partial", "cpu_partial", Count),
            column("cpu_partial_slabs", "cpu_partial_slabs", Count).rare(),
            column("min_partial", "min_partial", Count),
            column("cpu_queue_size", "cpu_queue_size", Count).rare(),
            column("cpu_batch_size", "cpu_batch_size", Count).rare(),
            column("sheaf_capacity", "sheaf_capacity", Count).rare(),
        ]
    },
}];

/// Columns of [`TABLES`] that say which run a row is.
const LEAD: usize = 4;

/// The view of answers: one beside the other.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let of = TABLES[0];
    let rows = docs.iter().filter_map(|doc| doc.content["runs"].as_array());
    let note = "Sizes, alignment and slack are bytes.";
    let table = of.table(rows.flatten()).turned(LEAD).noted(note);
    View::new(of.title).with(Section::default().with(table))
}

/// A cache of a snapshot: as its kernel reports it, and by the formulas of that kernel.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct OfSnapshot {
    /// Name of the cache.
    pub name: String,
    /// Design and release that the snapshot is taken to be of.
    pub design: String,
    /// Bytes from one object to the next, as reported.
    pub reported_size: u64,
    /// Pages of a slab, as reported.
    pub reported_pages: u64,
    /// Objects per slab, as reported.
    pub reported_objects: u64,
    /// By the formulas; left out if no cache of the design has such objects.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub computed: Option<Computed>,
}

/// Main figures of a geometry.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Computed {
    /// Bytes from one object to the next.
    pub slab_size: u32,
    /// Order of a slab.
    pub order: u32,
    /// Objects per slab.
    pub objects_per_slab: u32,
    /// Objects that a CPU's partial list may hold.
    pub cpu_partial: u32,
    /// Slabs that a node keeps even if they are empty.
    pub min_partial: u32,
}

impl Query {
    /// The answer.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if there is no such cache.
    pub fn answer(&self) -> Result<Geometry, LabError> {
        let compute = self.design.design.geometry;
        let geometry = compute(
            self.design.era,
            &self.machine,
            &self.settings.boot,
            &self.cache,
        );
        let mut geometry =
            geometry.map_err(|error| LabError::Usage(format!("{}: {error}", self.design)))?;
        self.settings.adjust(&mut geometry);
        Ok(geometry)
    }
}

impl CacheGeometry {
    /// The answer of a question.
    #[must_use]
    pub fn of(query: &Query, geometry: &Geometry) -> Self {
        let page_size = 1 << query.machine.page_shift;
        Self {
            design: query.design.to_string(),
            page_size,
            cpus: query.machine.nr_cpus,
            cache_line: query.machine.cache_line,
            object_size: geometry.layout.object_size,
            align: geometry.layout.align,
            slab_size: geometry.layout.size,
            order: geometry.order,
            slab_bytes: page_size << geometry.order,
            objects_per_slab: geometry.objects,
            slack: geometry.slack_bytes,
            fallback_order: geometry.min_order,
            fallback_objects: geometry.min_objects,
            cpu_partial: geometry.cpu_partial,
            cpu_partial_slabs: geometry.cpu_partial_slabs,
            min_partial: geometry.min_partial,
            cpu_queue_size: geometry.queue,
            cpu_batch_size: geometry.batch,
            sheaf_capacity: geometry.sheaf_capacity,
            set: String::new(),
        }
    }
}

impl Computed {
    /// The main figures.
    #[must_use]
    pub fn of(geometry: &Geometry) -> Self {
        Self {
            slab_size: geometry.layout.size,
            order: geometry.order,
            objects_per_slab: geometry.objects,
            cpu_partial: geometry.cpu_partial,
            min_partial: geometry.min_partial,
        }
    }
}

/// Settings of a single design.
///
/// # Errors
///
/// [`LabError::Usage`] if the design does not have one of them.
pub fn settings_of(design: DesignSpec, settings: &[Setting]) -> Result<Tuning, LabError> {
    let mut resolved = resolve(settings, &[design])?;
    Ok(resolved.pop().unwrap_or_default())
}

/// The geometry of each cache of a snapshot by the formulas of its kernel, next to the reported one.
///
/// # Errors
///
/// [`LabError::Usage`] if this build does not have the kernel's design, [`LabError::Report`] if it is a 32-bit kernel.
pub fn of_snapshot(snapshot: &Snapshot) -> Result<Vec<OfSnapshot>, LabError> {
    if snapshot.is_32_bit() {
        let what = format!("it is {OF_32_BITS}; 32-bit kernels are not supported");
        return Err(refused(snapshot, what).into());
    }
    let state = State::of(snapshot)?;
    let design = state.design();
    let rows = snapshot.slabinfo.rows.iter().zip(state.geometries());
    let answers = rows.map(|(row, geometry)| OfSnapshot {
        name: row.name.clone(),
        design: design.to_string(),
        reported_size: row.objsize,
        reported_pages: row.pagesperslab,
        reported_objects: row.objperslab,
        computed: geometry.as_ref().map(Computed::of),
    });
    Ok(answers.collect())
}
