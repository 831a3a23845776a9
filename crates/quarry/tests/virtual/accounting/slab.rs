//! SLAB: an array per CPU, and a descriptor with indices per slab.

use quarry_core::era::Era;
use quarry_core::slab::SlabCache;

use super::{Tables, operations, operations_on_many};

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V2_6_24,
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
    ),
    (
        Era::V6_1,
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
    ),
];

#[test]
fn what_slab_accesses() {
    operations::<SlabCache>(TABLES);
}

const MANY: &[(Era, Tables)] = &[
    (
        Era::V2_6_24,
        &[
            (
                "refill",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node \
                 12, write slab 8, write slab 64, read bitmap 4 x19, write node 12, write slab 8, \
                 unlock node_list, write cpu_queue 152, read cpu_queue 8, free slot",
            ),
            (
                "bulk alloc",
                "call, slot, write cpu_state 64, irq_disable, read cpu_queue 8 x16, free slot",
            ),
            (
                "bulk free",
                "call, slot, write cpu_state 64, irq_disable, read slab 64, write cpu_queue 8 \
                 x16, free slot",
            ),
            (
                "flush",
                "lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read \
                 cpu_queue 144, lock node_list, (read slab 64, write slab 64, write bitmap 4, \
                 write node 12, write slab 8, write node 12, write slab 8) x18, unlock \
                 node_list, free slot, remote slot, write cpu_state 64, ipi, free slot, lock \
                 node_list, irq_save, unlock node_list",
            ),
            (
                "drain",
                "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read cpu_queue \
                 480, lock node_list, write node 40, write node 480, unlock node_list, read \
                 cpu_queue 480, write cpu_queue 480, write cpu_queue 8, free slot",
            ),
            (
                "new slab",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock queue_config, unlock \
                 queue_config, call x2, slot, write cpu_state 64, read cpu_queue 8, free slot, (lock \
                 node_list, unlock node_list) x2, call x2, slot, write cpu_state 64, read cpu_queue 8, \
                 free slot, slot, write pcp 64, page_call, write page_descriptor 64, free slot, \
                 write page_descriptor 64, atomic node 8 x2, write slab 64, (slab_object, write \
                 bitmap 4) x2, lock node_list, (write node 12, write slab 8) x2, write slab 64, \
                 read bitmap 4 x2, write node 12, write slab 8, unlock node_list, write cpu_queue \
                 16, read cpu_queue 8, free slot",
            ),
        ],
    ),
    (
        Era::V6_1,
        &[
            (
                "refill",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node \
                 12, write slab 8, write slab 64, read bitmap 1 x24, write node 12, write slab 8, \
                 unlock node_list, write cpu_queue 192, read cpu_queue 8, free slot",
            ),
            (
                "bulk alloc",
                "call, slot, write cpu_state 64, irq_disable, read cpu_queue 8 x16, free slot",
            ),
            (
                "bulk free",
                "call, slot, write cpu_state 64, irq_disable, read slab 64, write cpu_queue 8 \
                 x16, free slot",
            ),
            (
                "flush",
                "lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read \
                 cpu_queue 184, lock node_list, (read slab 64, write slab 64, write bitmap 1, \
                 write node 12, write slab 8, write node 12, write slab 8) x23, unlock \
                 node_list, free slot, remote slot, write cpu_state 64, ipi, free slot, lock \
                 node_list, irq_save, unlock node_list",
            ),
            (
                "drain",
                "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read cpu_queue \
                 480, lock node_list, write node 40, write node 480, unlock node_list, read \
                 cpu_queue 480, write cpu_queue 480, write cpu_queue 8, free slot",
            ),
            (
                "new slab",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock queue_config, unlock \
                 queue_config, call x2, slot, write cpu_state 64, read cpu_queue 8, free slot, lock \
                 node_list, unlock node_list, slot, write pcp 64, page_call, atomic pcp 4, write \
                 page_descriptor 64, free slot, write page_descriptor 64, atomic node 8 x2, write \
                 slab 64, (slab_object, write bitmap 1) x2, lock node_list, write slab 64, read \
                 bitmap 1 x2, write node 12, write slab 8, unlock node_list, write cpu_queue 16, \
                 read cpu_queue 8, free slot",
            ),
        ],
    ),
];

#[test]
fn what_slab_accesses_of_many() {
    operations_on_many::<SlabCache>(MANY);
}
