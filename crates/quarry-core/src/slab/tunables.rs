//! SLAB's tunables.

use super::geometry::RELEASES;
use crate::era::Era;
use crate::geometry::PAGE_ORDER_MAX;
use crate::tunables::{DefaultValue, QUEUE_MAX, Row, Scope, Tunable};

const fn since(tunable: &'static Tunable, from: Era) -> Row {
    Row::new(tunable, from, *RELEASES.end())
}

/// Tunables of SLAB, and the eras that have them.
pub(super) static ROWS: &[Row] = &[
    since(&SLAB_MAX_ORDER, Era::V3_8),
    since(&LIMIT, Era::FIRST),
    since(&BATCHCOUNT, Era::FIRST),
    since(&SHAREDFACTOR, Era::FIRST),
];

static SLAB_MAX_ORDER: Tunable = Tunable {
    name: "slab_max_order",
    alias: None,
    scope: Scope::Boot,
    min: 0,
    max: PAGE_ORDER_MAX as u64,
    unit: "order",
    default: DefaultValue::Value(1),
    doc: "Highest order of a slab unless one object needs more (slab_max_order).",
};

static LIMIT: Tunable = Tunable {
    name: "limit",
    alias: None,
    scope: Scope::Cache,
    min: 1,
    // The kernel has no bound; this one keeps the arrays in the per-CPU range.
    max: QUEUE_MAX as u64,
    unit: "objects",
    default: DefaultValue::Computed(
        "by buffer size (above 128 KiB, a page, 1024, 256, less): 1, 8, 24, 54, 120",
    ),
    doc: "Objects a CPU's array holds (do_tune_cpucache()).",
};

static BATCHCOUNT: Tunable = Tunable {
    name: "batchcount",
    alias: None,
    scope: Scope::Cache,
    min: 1,
    max: QUEUE_MAX as u64,
    unit: "objects",
    default: DefaultValue::Computed("half of the limit, rounded up"),
    doc: "Objects moved per refill or flush, at most the limit (do_tune_cpucache()).",
};

static SHAREDFACTOR: Tunable = Tunable {
    name: "sharedfactor",
    alias: None,
    scope: Scope::Cache,
    min: 0,
    // The kernel has no bound; above it no general object could hold the array.
    max: 1024,
    unit: "batches",
    default: DefaultValue::Computed("8 with more than one CPU and objects of up to a page"),
    doc: "Room of the array that a node's CPUs share (do_tune_cpucache()).",
};
