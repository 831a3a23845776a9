//! SLUB+Q: a queue per CPU, a bitmap and a lock per slab.

use quarry_core::era::Era;
use quarry_core::slubq::Slubq;

use super::{Tables, operations, operations_on_many};

const TABLES: &[(Era, Tables)] = &[(
    Era::V2_6_35,
    &[
        (
            "alloc",
            "call, slot, write cpu_state 64, read cpu_queue 8, irq_save, free slot",
        ),
        (
            "free",
            "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, irq_save, \
                 free slot",
        ),
        (
            "remote free",
            "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, lock \
                 queue_config, unlock queue_config, write cpu_queue 8, free slot",
        ),
        (
            "remote free 2",
            "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, irq_save, \
                 free slot",
        ),
        (
            "remote alloc",
            "call, slot, write cpu_state 64, read cpu_queue 8, irq_save, free slot",
        ),
    ],
)];

#[test]
fn what_slubq_accesses() {
    operations::<Slubq>(TABLES);
}

const MANY: &[(Era, Tables)] = &[(
    Era::V2_6_35,
    &[
        (
            "refill",
            "call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write slab \
                 64, try slab, write node 12, write slab 8, unlock node_list, unlock slab, (lock \
                 node_list, unlock node_list) x2, slot, write pcp 64, page_call, write \
                 page_descriptor 64, free slot, write page_descriptor 64, atomic node 8 x2, write \
                 slab 64, lock slab, unlock slab, write slab 64, lock slab, lock node_list, write \
                 node 12, write slab 8, unlock node_list, unlock slab, write cpu_queue 480, read \
                 cpu_queue 8, free slot",
        ),
        (
            "bulk alloc",
            "call, slot, write cpu_state 64, irq_save, read cpu_queue 8 x16, free slot",
        ),
        (
            "bulk free",
            "call, slot, write cpu_state 64, irq_save, read slab 64, write cpu_queue 8 x16, \
                 free slot",
        ),
        (
            "flush",
            "lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read \
                 cpu_queue 472, read slab 64 x26, write slab 64, lock slab, lock node_list, \
                 write node 12, write slab 8 x2, unlock node_list, unlock slab, read slab 64 \
                 x36, write slab 64, lock slab, unlock slab, free slot, remote slot, write \
                 cpu_state 64, ipi, free slot",
        ),
        (
            "drain",
            "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read cpu_queue \
                 480, read slab 64 x3, write slab 64, lock slab, lock node_list, write node 12, \
                 write slab 8 x3, unlock node_list, unlock slab, atomic node 8 x2, write \
                 page_descriptor 64, slot, write pcp 64, page_call, write page_descriptor 64, free \
                 slot, read slab 64 x23, write slab 64, lock slab, lock node_list, write node 12, \
                 write slab 8 x2, unlock node_list, unlock slab, read slab 64 x39, write slab 64, \
                 lock slab, unlock slab, read cpu_queue 480, write cpu_queue 480, write cpu_queue \
                 8, free slot",
        ),
        (
            "new slab",
            "call, slot, write cpu_state 64, slow_path, irq_save, lock queue_config, unlock \
                 queue_config, (lock node_list, unlock node_list) x2, page_call, lock zone, write \
                 zone 8, write zone 12, write page_descriptor 8, (buddy_step, write page_descriptor \
                 64) x2, write page_descriptor 64, (write zone 12, write page_descriptor 8) x2, \
                 unlock zone, write page_descriptor 64 x8, atomic node 8 x2, write slab 64, lock \
                 slab, unlock slab, write slab 64, lock slab, lock node_list, write node 12, write \
                 slab 8, unlock node_list, unlock slab, write cpu_queue 96, read cpu_queue 8, free \
                 slot",
        ),
    ],
)];

#[test]
fn what_slubq_accesses_of_many() {
    operations_on_many::<Slubq>(MANY);
}
