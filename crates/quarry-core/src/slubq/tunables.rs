//! The tunables of SLUB with queues: SLUB's of its release, and the queues'.

use super::geometry::QUEUE_MIN;
use crate::era::Era;
use crate::slub::tunables::{
    REMOTE_NODE_DEFRAG_RATIO, SLUB_MAX_ORDER, SLUB_MIN_OBJECTS, SLUB_MIN_ORDER, SLUB_NOMERGE,
};
use crate::tunables::{DefaultValue, QUEUE_MAX, Row, Scope, Tunable};

const fn row(tunable: &'static Tunable) -> Row {
    Row::new(tunable, Era::V2_6_35, Era::V2_6_35)
}

/// Tunables of the design.
pub(super) static ROWS: &[Row] = &[
    row(&SLUB_MIN_ORDER),
    row(&SLUB_MAX_ORDER),
    row(&SLUB_MIN_OBJECTS),
    row(&SLUB_NOMERGE),
    row(&REMOTE_NODE_DEFRAG_RATIO),
    row(&CPU_QUEUE_SIZE),
    row(&CPU_BATCH_SIZE),
    row(&SHARED_QUEUE_SIZE),
    row(&ALIEN_QUEUE_SIZE),
    row(&IDLE_EXPIRY),
];

static CPU_QUEUE_SIZE: Tunable = Tunable {
    name: "cpu_queue_size",
    alias: None,
    scope: Scope::Cache,
    min: QUEUE_MIN as u64,
    max: QUEUE_MAX as u64,
    unit: "objects",
    default: DefaultValue::Computed("by slot size (above a page, 1024, 256, less): 8, 24, 54, 120"),
    doc: "Objects a CPU's queue holds (cpu_queue_size).",
};

static CPU_BATCH_SIZE: Tunable = Tunable {
    name: "cpu_batch_size",
    alias: None,
    scope: Scope::Cache,
    // The posted store refuses values below the queue size; its test is taken as inverted.
    min: QUEUE_MIN as u64,
    max: QUEUE_MAX as u64,
    unit: "objects",
    default: DefaultValue::Computed("half of the queue, rounded up"),
    doc: "Objects moved per refill or drain, at most the queue (cpu_batch_size).",
};

static SHARED_QUEUE_SIZE: Tunable = Tunable {
    name: "shared_queue_size",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: QUEUE_MAX as u64,
    unit: "objects",
    default: DefaultValue::Value(0),
    doc: "Objects in the queue that a node's CPUs share (shared_queue_size; S+Q3).",
};

static ALIEN_QUEUE_SIZE: Tunable = Tunable {
    name: "alien_queue_size",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: QUEUE_MAX as u64,
    unit: "objects",
    default: DefaultValue::Value(0),
    doc: "Objects in each queue of a node for objects of another node (alien_queue_size; S+Q3).",
};

static IDLE_EXPIRY: Tunable = Tunable {
    name: "idle_expiry",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: 1,
    unit: "0 or 1",
    default: DefaultValue::Value(0),
    doc: "1: every 2 s, queues not used since the last time are drained, and their next refill \
          brings at most 16 objects (S+Q3).",
};
