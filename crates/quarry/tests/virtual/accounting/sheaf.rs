//! Sheaves: two per CPU, more in the node's barn, on SLUB's slabs.

use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;

use super::{Tables, operations, operations_on_many};

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V6_18,
        &[
            (
                "alloc",
                "call, slow_path, slot, write cpu_state 64, read object 8, local_cmpxchg, free slot",
            ),
            (
                "free",
                "call, read slab 64, slow_path, slot, write cpu_state 64, write object 8, \
                 local_cmpxchg, free slot",
            ),
            (
                "remote free",
                "call, read slab 64, slow_path, slot, write cpu_state 64, slow_path, read slab 8 \
                 x2, write object 8, atomic slab 8, read slab 8, write slab 64, free slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slow_path, slot, write cpu_state 64, slow_path, read slab 8 \
                 x2, write object 8, atomic slab 8, free slot",
            ),
            (
                "remote alloc",
                "call, slow_path, slot, write cpu_state 64, slow_path, local_lock, write slab 64, \
                 read slab 8, atomic slab 8, read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V7_0,
        &[
            (
                "alloc",
                "call, slot, write cpu_state 64, read cpu_queue 8, preempt, free slot",
            ),
            (
                "free",
                "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, preempt, free \
                 slot",
            ),
            (
                "remote free",
                "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, preempt, free \
                 slot",
            ),
            (
                "remote free 2",
                "call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, preempt, free \
                 slot",
            ),
            (
                "remote alloc",
                "call, slot, write cpu_state 64, read cpu_queue 8, preempt, free slot",
            ),
        ],
    ),
];

#[test]
fn what_sheaf_accesses() {
    operations::<SheafCache>(TABLES);
}

const MANY: &[(Era, Tables)] = &[
    (
        Era::V6_18,
        &[
            (
                "refill",
                "call, slow_path, slot, write cpu_state 64, slow_path, local_lock, lock node_list, \
                 irq_save, write node 12, write slab 8, read slab 8, atomic slab 8, unlock \
                 node_list, read object 8, free slot",
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
                "lock rcu, unlock rcu, (remote slot, write cpu_state 64, free slot) x2, remote \
                 slot, write cpu_state 64, switch, read object 8 x23, lock node_list, irq_save, \
                 read slab 8, write object 8, atomic slab 8, write node 12, write slab 8, \
                 unlock node_list, free slot, remote slot, write cpu_state 64, free slot",
            ),
            (
                "drain",
                "call, read slab 64, slow_path, slot, write cpu_state 64, slow_path, read slab 8 \
                 x2, lock node_list, irq_save, write object 8, atomic slab 8, unlock node_list, \
                 free slot",
            ),
            (
                "new slab",
                "call, slow_path, slot, write cpu_state 64, slow_path, local_lock, lock node_list, \
                 irq_save, unlock node_list, slot, write pcp 64, page_call, preempt, atomic pcp 4, \
                 lock zone, irq_save, write zone 8, write zone 12, write page_descriptor 8, \
                 (buddy_step, write page_descriptor 64) x3, write page_descriptor 64 x2, \
                 (buddy_step, write page_descriptor 64, write page_descriptor 64, write \
                 page_descriptor 64, buddy_step, write page_descriptor 64) x2, write \
                 page_descriptor 64, write zone 12, write page_descriptor 8, unlock zone, write \
                 page_descriptor 64, free slot, write page_descriptor 64 x8, atomic node 8 x2, \
                 (slab_object, write object 8) x16, read object 8, free slot",
            ),
        ],
    ),
    (
        Era::V7_0,
        &[
            (
                "refill",
                "call, slot, write cpu_state 64, slow_path, preempt, (write cpu_queue 32, lock \
                 barn, irq_save, write node 48, unlock barn) x2, lock node_list, irq_save, read \
                 slab 8, read object 8, atomic slab 8, unlock node_list, write cpu_queue 32, lock \
                 node_list, irq_save, read slab 8, write node 12, write slab 8 x2, unlock \
                 node_list, write slab 8, read slab 8, atomic slab 8, read object 8 x24, slot, \
                 write pcp 64, page_call, atomic pcp 4, write page_descriptor 64, free slot, write \
                 page_descriptor 64, atomic node 8 x2, (slab_object, write object 8) x64, read \
                 object 8 x36, lock node_list, irq_save, write node 12, write slab 8, unlock \
                 node_list, write cpu_queue 480, write cpu_queue 32 x2, read cpu_queue 8, free slot",
            ),
            (
                "bulk alloc",
                "call, slot, write cpu_state 64, preempt, read cpu_queue 8 x16, free slot",
            ),
            (
                "bulk free",
                "call, slot, write cpu_state 64, preempt, read slab 64, write cpu_queue 8 x16, \
                 free slot",
            ),
            (
                "flush",
                "lock rcu, unlock rcu, remote slot, write cpu_state 64, switch, write cpu_queue \
                 32 x3, read cpu_queue 256, read slab 64, write object 8 x31, read slab 8, \
                 write object 8, atomic slab 8, write cpu_queue 32, read cpu_queue 216, read \
                 slab 64, write object 8 x2, read slab 8, write object 8, atomic slab 8, read \
                 slab 64, write object 8 x23, read slab 8, lock node_list, irq_save, write \
                 object 8, atomic slab 8, write node 12, write slab 8 x2, unlock node_list, \
                 write cpu_queue 32, free slot, write cpu_queue 32, read slab 64, read slab 8 \
                 x2, write object 8, atomic slab 8, remote slot, write cpu_state 64, write \
                 cpu_queue 32 x2, free slot",
            ),
            (
                "drain",
                "call, read slab 64, slot, write cpu_state 64, slow_path, preempt, write cpu_queue \
                 32, lock barn, irq_save, write node 48, unlock barn, lock node_list, irq_save, \
                 read slab 8, read object 8, atomic slab 8, unlock node_list, lock barn, irq_save, \
                 write node 48, write cpu_queue 32, unlock barn, write cpu_queue 32, write \
                 cpu_queue 8, free slot",
            ),
            (
                "new slab",
                "call, slot, write cpu_state 64, slow_path, preempt, (write cpu_queue 32, lock \
                 barn, irq_save, write node 48, unlock barn) x2, lock node_list, irq_save, read \
                 slab 8, read object 8, atomic slab 8, unlock node_list, write cpu_queue 32, lock \
                 node_list, irq_save, unlock node_list, slot, write pcp 64, page_call, atomic pcp \
                 4, lock zone, irq_save, write zone 8, write zone 12, write page_descriptor 8, \
                 (buddy_step, write page_descriptor 64) x4, write page_descriptor 64 x2, \
                 (buddy_step, write page_descriptor 64, write page_descriptor 64, write \
                 page_descriptor 64, buddy_step, write page_descriptor 64) x2, write \
                 page_descriptor 64, (write zone 12, write page_descriptor 8) x2, unlock zone, \
                 write page_descriptor 64, free slot, write page_descriptor 64 x8, atomic node 8 \
                 x2, (slab_object, write object 8) x16, read object 8 x12, lock node_list, \
                 irq_save, write node 12, write slab 8, unlock node_list, write cpu_queue 96, write \
                 cpu_queue 32 x2, read cpu_queue 8, free slot",
            ),
        ],
    ),
];

#[test]
fn what_sheaf_accesses_of_many() {
    operations_on_many::<SheafCache>(MANY);
}
