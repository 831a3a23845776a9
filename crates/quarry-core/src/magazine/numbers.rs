//! The numbers, and the tunables that begin with them.

use super::ERA;
use crate::geometry::{KmallocRules, KmallocSizes};
use crate::sheaf::geometry::{
    Capacity, RefillOrder, RunRules, SHEAF_CAPACITY_MAX, SheafEra, Sizing, V7_3 as KERNEL,
};
use crate::sheaf::tunables as sheaf;
use crate::slub::geometry::{FreePointer, LayoutRules, OrderRules, SlubEra};
use crate::slub::tunables::{
    self as slub, REMOTE_NODE_DEFRAG_RATIO, SLUB_MIN_OBJECTS, SLUB_MIN_ORDER,
};
use crate::tunables::{DefaultValue, Row, Tunable};

/// See the [design's documentation](super).
pub(super) static NUMBERS: SheafEra = SheafEra {
    slub: SlubEra {
        kmalloc: KmallocRules {
            sizes: KmallocSizes::Fine,
            // 256 KiB. Filling a larger block takes longer than a trip to the page allocator.
            page_shift_plus: 6,
            shift_max: 18,
            ..KERNEL.slub.kmalloc
        },
        layout: LayoutRules {
            free_pointer: FreePointer::Start,
            ..KERNEL.slub.layout
        },
        // A class between powers of two wastes much of a small slab: 64 KiB, or two pages of 64 KiB.
        order: OrderRules {
            max_order_small: 4,
            max_order_large: 1,
            fractions: &[8, 4, 2],
            ..KERNEL.slub.order
        },
        ..KERNEL.slub
    },
    capacity: Capacity::Misses(Sizing {
        // Of small objects as many as in a kernel's sheaf.
        first_bytes: 8 << 10,
        first_objects: 60,
        most_bytes: 64 << 10,
        most_objects: SHEAF_CAPACITY_MAX,
        // A trip to the page allocator for an object from 16 KiB on costs more than what the sheaf holds; the budget bounds
        // that. Five such sheaves serve 64 live objects of 100,000 bytes, whatever the state of the main one.
        few_objects: 16,
        misses: 8,
        budget_bytes: 6 << 20,
        // Two of the largest sheaves of small objects, which a thread that frees hands to others that allocate.
        barn_bytes: 128 << 10,
        barn_sheaves: 3,
        empty_bytes: 128 << 10,
        look_ns: 1_000_000_000,
    }),
    run: RunRules {
        refill: RefillOrder::Abreast,
        ..KERNEL.run
    },
    ..KERNEL
};

const fn row(tunable: &'static Tunable) -> Row {
    Row::new(tunable, ERA, ERA)
}

/// Tunables of the design.
pub(super) static ROWS: &[Row] = &[
    row(&SLUB_MIN_ORDER),
    row(&SLUB_MAX_ORDER),
    row(&SLUB_MIN_OBJECTS),
    row(&MIN_PARTIAL),
    row(&REMOTE_NODE_DEFRAG_RATIO),
    row(&SHEAF_CAPACITY),
    row(&BARN_FULL),
    row(&sheaf::BARN_EMPTY),
];

static SLUB_MAX_ORDER: Tunable = Tunable {
    default: DefaultValue::Computed("4 with 4 KiB pages, 1 with larger ones"),
    ..slub::SLUB_MAX_ORDER
};

static MIN_PARTIAL: Tunable = Tunable {
    default: DefaultValue::Computed("half of log2 of the slab size, within 5..=10, and in 128 KiB"),
    ..slub::MIN_PARTIAL
};

static SHEAF_CAPACITY: Tunable = Tunable {
    default: DefaultValue::Computed(
        "60, or those in 8 KiB; then by misses, up to 64 KiB or 16 objects",
    ),
    doc: "Objects a sheaf holds; 0 for no sheaves. A value that is set stays, whatever is missed.",
    ..sheaf::SHEAF_CAPACITY
};

static BARN_FULL: Tunable = Tunable {
    default: DefaultValue::Computed("those with 128 KiB of objects, 3 at least"),
    doc: "Full sheaves a node keeps. It changes with the capacity, unless it is set.",
    ..sheaf::BARN_FULL
};
