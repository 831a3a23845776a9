//! SLUB's tunables. Designs that grew out of it have some of them.

use super::geometry::RELEASES;
use crate::era::Era;
use crate::geometry::PAGE_ORDER_MAX;
use crate::tunables::{COUNT_MAX, DefaultValue, Row, Scope, Tunable};

const fn since(tunable: &'static Tunable, from: Era) -> Row {
    Row::new(tunable, from, *RELEASES.end())
}

/// Tunables of SLUB, and the eras that have them.
pub(super) static ROWS: &[Row] = &[
    since(&SLUB_MIN_ORDER, Era::FIRST),
    since(&SLUB_MAX_ORDER, Era::FIRST),
    since(&SLUB_MIN_OBJECTS, Era::FIRST),
    since(&SLUB_NOMERGE, Era::FIRST),
    since(&SLUB_CPU_PARTIAL, Era::V3_2),
    Row::new(&SLUB_CPU_PARTIAL_BY_SIZE, Era::V3_2, Era::V5_15),
    Row::new(&ORDER, Era::V2_6_25, Era::V5_8),
    since(&SLAB_ORDER, Era::FIRST),
    since(&CPU_SLABS_MAX, Era::FIRST),
    since(&MIN_PARTIAL, Era::V2_6_30),
    since(&CPU_PARTIAL, Era::V3_2),
    Row::new(&DEFRAG_RATIO, Era::FIRST, Era::V2_6_24),
    since(&REMOTE_NODE_DEFRAG_RATIO, Era::V2_6_25),
];

pub(crate) static SLUB_MIN_ORDER: Tunable = Tunable {
    name: "slub_min_order",
    alias: Some(("slab_min_order", Era::V6_9)),
    scope: Scope::Boot,
    min: 0,
    max: PAGE_ORDER_MAX as u64,
    unit: "order",
    default: DefaultValue::Value(0),
    doc: "Lowest order of a slab, save for the object limit (slub_min_order).",
};

pub(crate) static SLUB_MAX_ORDER: Tunable = Tunable {
    name: "slub_max_order",
    alias: Some(("slab_max_order", Era::V6_9)),
    scope: Scope::Boot,
    min: 0,
    max: PAGE_ORDER_MAX as u64,
    unit: "order",
    default: DefaultValue::Computed(
        "3 from 2.6.35 on; before, 1 with 4 KiB pages and 2 with larger ones",
    ),
    doc: "Highest order of a slab unless one object needs more (slub_max_order).",
};

pub(crate) static SLUB_MIN_OBJECTS: Tunable = Tunable {
    name: "slub_min_objects",
    alias: Some(("slab_min_objects", Era::V6_9)),
    scope: Scope::Boot,
    min: 0,
    max: 65535,
    unit: "objects",
    default: DefaultValue::Computed(
        "0: 4 * (fls(CPUs) + 1) from 2.6.35 on; \
         before, 4 with 4 KiB pages and 8 with larger ones",
    ),
    doc: "Objects that a slab should hold at least; 0 for the default (slub_min_objects).",
};

pub(crate) static SLUB_NOMERGE: Tunable = Tunable {
    name: "slub_nomerge",
    alias: Some(("slab_nomerge", Era::V3_18)),
    scope: Scope::Boot,
    min: 0,
    max: 1,
    unit: "0 or 1",
    default: DefaultValue::Value(1),
    doc: "0: a new cache that an existing one can serve becomes its alias, as kernels do by \
          default; names in recordings are those after merging (slub_nomerge).",
};

static SLUB_CPU_PARTIAL: Tunable = Tunable {
    name: "slub_cpu_partial",
    alias: None,
    scope: Scope::Boot,
    min: 0,
    max: COUNT_MAX,
    unit: "objects",
    default: DefaultValue::Computed("by slab size, as cpu_partial"),
    doc: "Quarry's own: cpu_partial of every cache, as measured by the 64K-page report of 2020.",
};

static SLUB_CPU_PARTIAL_BY_SIZE: Tunable = Tunable {
    name: "slub_cpu_partial_by_size",
    alias: None,
    scope: Scope::Boot,
    min: 0,
    max: 1,
    unit: "0 or 1",
    default: DefaultValue::Value(0),
    doc: "Quarry's own: cpu_partial 1 from 8192 bytes and 2 from 4096 at any page size, \
          as that report proposed (set_cpu_partial()).",
};

static ORDER: Tunable = Tunable {
    name: "order",
    alias: None,
    scope: Scope::Cache,
    min: 0,
    max: PAGE_ORDER_MAX as u64,
    unit: "order",
    default: DefaultValue::Computed("calculate_order()"),
    doc: "Order of new slabs, or the nearest that holds an object; from slub_min_order to \
          slub_max_order (order_store()).",
};

static SLAB_ORDER: Tunable = Tunable {
    name: "slab_order",
    alias: None,
    scope: Scope::Own,
    min: 0,
    max: PAGE_ORDER_MAX as u64,
    unit: "order",
    default: DefaultValue::Computed("calculate_order()"),
    doc: "Quarry's own: order of slabs, or the nearest that holds an object; can be set \
          before the first slab.",
};

static CPU_SLABS_MAX: Tunable = Tunable {
    name: "cpu_slabs_max",
    alias: None,
    scope: Scope::Own,
    min: 1,
    max: COUNT_MAX,
    unit: "slabs",
    default: DefaultValue::Computed("1 until 2.6.35; from 4.13 on what cpu_partial allows"),
    doc: "Quarry's own, asked for in 2007: slabs a CPU may hold, its CPU slab among them; \
          writing cpu_partial undoes it.",
};

pub(crate) static MIN_PARTIAL: Tunable = Tunable {
    name: "min_partial",
    alias: None,
    scope: Scope::Cache,
    min: 0,
    max: COUNT_MAX,
    unit: "slabs",
    default: DefaultValue::Computed(
        "log2 of the slab size in 2.6.35, half of that from 4.13 on; within 5..=10",
    ),
    doc: "Slabs a node keeps on its partial list even if empty (set_min_partial()).",
};

pub(crate) static CPU_PARTIAL: Tunable = Tunable {
    name: "cpu_partial",
    alias: None,
    scope: Scope::Cache,
    min: 0,
    max: COUNT_MAX,
    unit: "objects",
    default: DefaultValue::Computed(
        "by slab size (a page, 1024, 256, less): \
         2, 6, 13, 30 until 5.9; 6, 24, 52, 120 from 6.1 on",
    ),
    doc: "Objects a CPU may hold on its list of partial slabs (slub_set_cpu_partial()).",
};

static DEFRAG_RATIO: Tunable = Tunable {
    name: "defrag_ratio",
    alias: None,
    scope: Scope::Cache,
    min: 0,
    max: 99,
    unit: "tens of 1/1024",
    default: DefaultValue::Value(10),
    doc: "How often an allocation looks at other nodes' partial lists (get_any_partial()).",
};

pub(crate) static REMOTE_NODE_DEFRAG_RATIO: Tunable = Tunable {
    name: "remote_node_defrag_ratio",
    alias: None,
    scope: Scope::Cache,
    min: 0,
    max: 100,
    unit: "tens of 1/1024",
    default: DefaultValue::Value(100),
    doc: "How often an allocation looks at other nodes' partial lists (get_any_partial()).",
};
