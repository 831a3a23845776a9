//! SLOB: one lock, and free blocks that begin with their size.

use quarry_core::era::Era;
use quarry_core::slob::Slob;

use super::{Tables, operations};

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V2_6_24,
        &[
            (
                "alloc",
                "call, lock slob, irq_save, read slab 64, read object 1, write slab 64, write \
                 slab 8, write node 12, write slab 8, unlock slob",
            ),
            (
                "free",
                "call, lock slob, irq_save, write slab 64, write object 1, write node 12, write \
                 slab 8, unlock slob",
            ),
            (
                "remote free",
                "call, lock slob, irq_save, write slab 64, write object 1, write node 12, write \
                 slab 8 x2, unlock slob",
            ),
            (
                "remote free 2",
                "call, lock slob, irq_save, write slab 64, read object 1, write object 1, \
                 unlock slob",
            ),
            (
                "remote alloc",
                "call, lock slob, irq_save, read slab 64, read object 1, write object 1, write \
                 slab 64, write slab 8, unlock slob",
            ),
        ],
    ),
    (
        Era::V6_1,
        &[
            (
                "alloc",
                "call, lock slob, irq_save, read slab 64, read object 1, write slab 64, write \
                 node 12, write slab 8, unlock slob",
            ),
            (
                "free",
                "call, lock slob, irq_save, write slab 64, write object 1, write node 12, write \
                 slab 8, unlock slob",
            ),
            (
                "remote free",
                "call, lock slob, irq_save, write slab 64, write object 1, write node 12, write \
                 slab 8 x2, unlock slob",
            ),
            (
                "remote free 2",
                "call, lock slob, irq_save, write slab 64, read object 1, write object 1, \
                 unlock slob",
            ),
            (
                "remote alloc",
                "call, lock slob, irq_save, read slab 64, read object 1, write object 1, write \
                 slab 64, write slab 8, unlock slob",
            ),
        ],
    ),
];

#[test]
fn what_slob_accesses() {
    operations::<Slob>(TABLES);
}
