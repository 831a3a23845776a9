//! The tunables of sheaves, and those of the slabs below.

use super::geometry::{RELEASES, SHEAF_CAPACITY_MAX};
use crate::era::Era;
use crate::slub::tunables::{
    CPU_PARTIAL, MIN_PARTIAL, REMOTE_NODE_DEFRAG_RATIO, SLUB_MAX_ORDER, SLUB_MIN_OBJECTS,
    SLUB_MIN_ORDER,
};
use crate::tunables::{COUNT_MAX, DefaultValue, Row, Scope, Tunable};

const fn row(tunable: &'static Tunable) -> Row {
    Row::new(tunable, *RELEASES.start(), *RELEASES.end())
}

/// Tunables of the design, and the eras that have them.
pub(super) static ROWS: &[Row] = &[
    row(&SLUB_MIN_ORDER),
    row(&SLUB_MAX_ORDER),
    row(&SLUB_MIN_OBJECTS),
    row(&MIN_PARTIAL),
    Row::new(&CPU_PARTIAL, Era::V6_18, Era::V6_19),
    row(&REMOTE_NODE_DEFRAG_RATIO),
    row(&SHEAF_CAPACITY),
    row(&BARN_FULL),
    row(&BARN_EMPTY),
];

pub(crate) static SHEAF_CAPACITY: Tunable = Tunable {
    name: "sheaf_capacity",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: SHEAF_CAPACITY_MAX as u64,
    unit: "objects",
    default: DefaultValue::Computed(
        "by slab size (a page, 1024, 256, less): 4, 12, 28, 60 in 7.0, or more if the \
         creator asks; in 6.18 what the creator asks",
    ),
    doc: "Objects a sheaf holds; 0 for no sheaves. Read-only in the kernel (sheaf_capacity).",
};

pub(crate) static BARN_FULL: Tunable = Tunable {
    name: "barn_full",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: COUNT_MAX,
    unit: "sheaves",
    default: DefaultValue::Value(10),
    doc: "Full sheaves a node keeps. A constant in the kernel (MAX_FULL_SHEAVES).",
};

pub(crate) static BARN_EMPTY: Tunable = Tunable {
    name: "barn_empty",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: COUNT_MAX,
    unit: "sheaves",
    default: DefaultValue::Value(10),
    doc: "Empty sheaves a node keeps. A constant in the kernel (MAX_EMPTY_SHEAVES).",
};
