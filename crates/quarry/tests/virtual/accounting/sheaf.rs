//! Sheaves: two per CPU, more in the node's barn, on SLUB's slabs.

use quarry_core::era::Era;
use quarry_core::sheaf::Sheaf;

use super::{Tables, operations};

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V6_18,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, free slot",
            ),
            (
                "free",
                "call, read slab 64 x2, slot, write cpu_state 64, write object 8, free slot",
            ),
            (
                "remote free",
                "call, read slab 64 x2, slot, write cpu_state 64, read slab 8 x2, write object \
                 8, atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64 x2, slot, write cpu_state 64, read slab 8 x2, write object \
                 8, atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, write slab 64, read slab 8, atomic slab 8, \
                 read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V7_0,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read cpu_queue 8, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, read cpu_queue 8, free slot",
            ),
        ],
    ),
];

#[test]
fn what_sheaf_accesses() {
    operations::<Sheaf>(TABLES);
}
