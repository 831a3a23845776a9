//! SLUB+Q: a queue per CPU, a bitmap and a lock per slab.

use quarry_core::era::Era;
use quarry_core::slubq::Slubq;

use super::{Tables, operations};

const TABLES: &[(Era, Tables)] = &[(
    Era::V2_6_35,
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
            "call, read slab 64, slot, write cpu_state 64, lock queue_config, unlock \
                 queue_config, write cpu_queue 8, free slot",
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
)];

#[test]
fn what_slubq_accesses() {
    operations::<Slubq>(TABLES);
}
