//! SLUB: a free pointer in each free object; the slab's word changes by one locked operation.

use quarry_core::era::Era;
use quarry_core::slub::Slub;

use super::{Tables, operations, operations_on_many};

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V2_6_22,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, irq_save, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, irq_save, free \
                 slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read slab 8 x2, \
                 lock node_list, write object 8, atomic slab 8, write node 12, write slab 8, unlock \
                 node_list, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read slab 8 x2, \
                 write object 8, atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node \
                 12, write slab 8, read slab 8, atomic slab 8, unlock node_list, read object 8, \
                 free slot",
            ),
        ],
    ),
    (
        Era::V3_10,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, local_cmpxchg, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, local_cmpxchg, \
                 free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, slow_path, irq_save, write slab 64, read slab 8, \
                 atomic slab 8, read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V6_1,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, local_cmpxchg, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, local_cmpxchg, \
                 free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, slow_path, local_lock, write slab 64, read slab 8, \
                 atomic slab 8, read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V6_18,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read object 8, local_cmpxchg, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write object 8, local_cmpxchg, \
                 free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, slow_path, local_lock, write slab 64, read slab 8, \
                 atomic slab 8, read object 8, free slot",
            ),
        ],
    ),
];

#[test]
fn what_slub_accesses() {
    operations::<Slub>(TABLES);
}

const MANY: &[(Era, Tables)] = &[
    (
        Era::V2_6_22,
        &[
            (
                "refill",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node \
                 12, write slab 8, read slab 8, atomic slab 8, unlock node_list, read object 8, \
                 free slot",
            ),
            (
                "bulk alloc",
                "call, slot, write cpu_state 64, irq_save, read object 8 x16, free slot",
            ),
            (
                "bulk free",
                "call, slot, write cpu_state 64, irq_save, write object 8 x16, free slot",
            ),
            (
                "flush",
                "lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read object 8 \
                 x23, lock node_list, read slab 8, write object 8, atomic slab 8, write node \
                 12, write slab 8, unlock node_list, free slot, remote slot, write cpu_state \
                 64, free slot",
            ),
            (
                "drain",
                "call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read slab 8 x2, \
                 lock node_list, write object 8, atomic slab 8, write node 12, write slab 8, unlock \
                 node_list, atomic node 8 x2, write page_descriptor 64, slot, write pcp 64, \
                 page_call, write page_descriptor 64, free slot x2",
            ),
            (
                "new slab",
                "call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, unlock \
                 node_list, page_call, lock zone, write zone 8, write zone 12, write \
                 page_descriptor 8, (buddy_step, write page_descriptor 64) x4, write \
                 page_descriptor 64, (write zone 12, write page_descriptor 8) x4, unlock zone, \
                 write page_descriptor 64 x2, atomic node 8 x2, (slab_object, write object 8) x4, \
                 read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V6_1,
        &[
            (
                "refill",
                "call, slot, write cpu_state 64, slow_path, local_lock, lock node_list, irq_save, \
                 write node 12, write slab 8, read slab 8, atomic slab 8, unlock node_list, read \
                 object 8, free slot",
            ),
            (
                "bulk alloc",
                "call, slot, write cpu_state 64, irq_disable, read object 8 x16, free slot",
            ),
            (
                "bulk free",
                "call, slot, write cpu_state 64, write object 8 x16, local_cmpxchg, free slot",
            ),
            (
                "flush",
                "lock rcu, unlock rcu, remote slot, write cpu_state 64, switch, read object 8 \
                 x23, lock node_list, irq_save, read slab 8, write object 8, atomic slab 8, \
                 write node 12, write slab 8, unlock node_list, free slot, remote slot, write \
                 cpu_state 64, free slot",
            ),
            (
                "drain",
                "call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write \
                 object 8, atomic slab 8, lock node_list, irq_save, (write slab 64, read slab 8, \
                 atomic slab 8, write node 12, write slab 8) x2, (write slab 8, write slab 64, read \
                 slab 8, atomic slab 8, write node 12, write slab 8) x2, write slab 8, unlock \
                 node_list, read slab 8, write slab 64, free slot",
            ),
            (
                "new slab",
                "call, slot, write cpu_state 64, slow_path, local_lock, lock node_list, irq_save, \
                 unlock node_list, slot, write pcp 64, page_call, irq_save, atomic pcp 4, lock \
                 zone, write zone 8, write zone 12, write page_descriptor 8, (buddy_step, write \
                 page_descriptor 64) x3, write page_descriptor 64 x2, (buddy_step, write \
                 page_descriptor 64, write page_descriptor 64, write page_descriptor 64, \
                 buddy_step, write page_descriptor 64) x2, write page_descriptor 64, write zone 12, \
                 write page_descriptor 8, unlock zone, write page_descriptor 64, free slot, write \
                 page_descriptor 64 x8, atomic node 8 x2, (slab_object, write object 8) x16, read \
                 object 8, free slot",
            ),
        ],
    ),
];

#[test]
fn what_slub_accesses_of_many() {
    operations_on_many::<Slub>(MANY);
}
