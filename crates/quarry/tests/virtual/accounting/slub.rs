//! SLUB: a free pointer in each free object; the slab's word changes by one locked operation.

use quarry_core::era::Era;
use quarry_core::slub::Slub;

use super::{Tables, operations};

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V2_6_22,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, lock node_list, \
                 write object 8, atomic slab 8, write node 12, write slab 8, unlock node_list, \
                 free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, lock node_list, write node 12, write slab 8, \
                 read slab 8, atomic slab 8, unlock node_list, read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V3_10,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, write slab 64, read slab 8, atomic slab 8, \
                 read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V6_1,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, write slab 64, read slab 8, atomic slab 8, \
                 read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V6_18,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, read slab 8 x2, write object 8, \
                 atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, write slab 64, read slab 8, atomic slab 8, \
                 read object 8, free slot",
            ),
        ],
    ),
];

#[test]
fn what_slub_accesses() {
    operations::<Slub>(TABLES);
}
