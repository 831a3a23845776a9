//! The designs: what a list, a queue or a bitmap costs.

use super::{compare, observed, observed_many};
use crate::prelude::*;

#[test]
fn what_designs_access() {
    for_all_designs!(D => compare(D::NAME, OPERATIONS, observed::<D>));
}

#[test]
fn what_designs_access_of_many() {
    for_all_designs!(D => compare(D::NAME, MANY, observed_many::<D>));
}

/// SLUB+Q accesses what SLAB accesses while its queue suffices.
const OPERATIONS: &str = "
slab 2.6.24
    alloc: call, slot, write cpu_state 64, read cpu_queue 8, irq_save, free slot
    free: call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, irq_save, free slot
    remote free: call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, lock
        queue_config, unlock queue_config, write cpu_queue 8, free slot
    remote free 2: call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, irq_save, free
        slot
    remote alloc: call, slot, write cpu_state 64, read cpu_queue 8, irq_save, free slot
slab 6.1
slubq 2.6.35
sheaf 7.0
    alloc: call, slot, write cpu_state 64, read cpu_queue 8, preempt, free slot
    free: call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, preempt, free slot
    remote free: call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, preempt, free slot
    remote free 2: call, read slab 64, slot, write cpu_state 64, write cpu_queue 8, preempt, free
        slot
    remote alloc: call, slot, write cpu_state 64, read cpu_queue 8, preempt, free slot
slub 2.6.22
    alloc: call, slot, write cpu_state 64, write slab 64, read object 8, irq_save, free slot
    free: call, read slab 64, slot, write cpu_state 64, write slab 64, write object 8, irq_save,
        free
        slot
    remote free: call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read slab 8 x2,
        lock node_list, write object 8, atomic slab 8, write node 12, write slab 8, unlock
        node_list, free slot
    remote free 2: call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read slab 8
        x2, write object 8, atomic slab 8, free slot
    remote alloc: call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node
        12, write slab 8, read slab 8, atomic slab 8, unlock node_list, read object 8, free slot
slub 3.10
    alloc: call, slot, write cpu_state 64, read object 8, local_cmpxchg, free slot
    free: call, read slab 64, slot, write cpu_state 64, write object 8, local_cmpxchg, free slot
    remote free: call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write
        object 8, atomic slab 8, read slab 8, write slab 64, free slot
    remote free 2: call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write
        object 8, atomic slab 8, free slot
    remote alloc: call, slot, write cpu_state 64, slow_path, irq_save, write slab 64, read slab 8,
        atomic slab 8, read object 8, free slot
slub 6.1
    remote alloc: call, slot, write cpu_state 64, slow_path, local_lock, write slab 64, read slab 8,
        atomic slab 8, read object 8, free slot
slub 6.18
sheaf 6.18
    alloc: call, slow_path, slot, write cpu_state 64, read object 8, local_cmpxchg, free slot
    free: call, read slab 64, slow_path, slot, write cpu_state 64, write object 8, local_cmpxchg,
        free slot
    remote free: call, read slab 64, slow_path, slot, write cpu_state 64, slow_path, read slab 8 x2,
        write object 8, atomic slab 8, read slab 8, write slab 64, free slot
    remote free 2: call, read slab 64, slow_path, slot, write cpu_state 64, slow_path, read slab 8
        x2, write object 8, atomic slab 8, free slot
    remote alloc: call, slow_path, slot, write cpu_state 64, slow_path, local_lock, write slab 64,
        read slab 8, atomic slab 8, read object 8, free slot
slob 2.6.24
    alloc: call, slow_path, lock slob, irq_save, read slab 64, read object 1, write slab 64, write
        slab 8, write node 12, write slab 8, unlock slob
    free: call, slow_path, lock slob, irq_save, write slab 64, write object 1, write node 12, write
        slab 8, unlock slob
    remote free: call, slow_path, lock slob, irq_save, write slab 64, write object 1, write node
        12, write slab 8 x2, unlock slob
    remote free 2: call, slow_path, lock slob, irq_save, write slab 64, read object 1, write object
        1, unlock slob
    remote alloc: call, slow_path, lock slob, irq_save, read slab 64, read object 1, write object
        1, write slab 64, write slab 8, unlock slob
slob 6.1
    alloc: call, slow_path, lock slob, irq_save, read slab 64, read object 1, write slab 64, write
        node 12, write slab 8, unlock slob
";

/// SLOB moves no objects together.
const MANY: &str = "
slab 2.6.24
    refill: call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node 12,
        write slab 16, write slab 48, read bitmap 4 x19, write node 12, write slab 16, unlock
        node_list, write cpu_queue 152, read cpu_queue 8, free slot
    bulk alloc: call, bulk_object x16, slot, write cpu_state 64, irq_disable, read cpu_queue 8 x16,
        free slot
    bulk free: call, bulk_object x16, slot, write cpu_state 64, irq_disable, read slab 64, write
        cpu_queue 8 x16, free slot
    flush: lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read cpu_queue 144,
        lock node_list, (drain_object, read slab 64, write slab 48, write bitmap 4, write node 12,
        write slab 16, write node 12, write slab 16) x18, unlock node_list, free slot, remote slot,
        write cpu_state 64, ipi, free slot, lock node_list, irq_save, unlock node_list
    drain: call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read cpu_queue 480,
        lock node_list, write node 40, write node 480, unlock node_list, read cpu_queue 480, write
        cpu_queue 480, write cpu_queue 8, free slot
    new slab: call, slot, write cpu_state 64, slow_path, irq_save, lock queue_config, unlock
        queue_config, call x2, slot, write cpu_state 64, read cpu_queue 8, free slot, (lock
        node_list, unlock node_list) x2, call x2, slot, write cpu_state 64, read cpu_queue 8, free
        slot, slot, write pcp 64, page_call, write page_descriptor 64, free slot, write
        page_descriptor 64, atomic node 8 x2, write slab 48, (slab_object, write bitmap 4) x2, lock
        node_list, (write node 12, write slab 16) x2, write slab 48, read bitmap 4 x2, write node
        12, write slab 16, unlock node_list, write cpu_queue 16, read cpu_queue 8, free slot
slab 6.1
    refill: call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node 12,
        write slab 8, write slab 64, read bitmap 1 x24, write node 12, write slab 8, unlock
        node_list, write cpu_queue 192, read cpu_queue 8, free slot
    flush: lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read cpu_queue 184, lock
        node_list, (drain_object, read slab 64, write slab 64, write bitmap 1, write node 12, write
        slab 8, write node 12, write slab 8) x23, unlock node_list, free slot, remote slot, write
        cpu_state 64, ipi, free slot, lock node_list, irq_save, unlock node_list
    new slab: call, slot, write cpu_state 64, slow_path, irq_save, lock queue_config, unlock
        queue_config, call x2, slot, write cpu_state 64, read cpu_queue 8, free slot, lock
        node_list, unlock node_list, slot, write pcp 64, page_call, atomic pcp 4, write
        page_descriptor 64, free slot, write page_descriptor 64, atomic node 8 x2, write slab 64,
        (slab_object, write bitmap 1) x2, write slab 64, read bitmap 1 x2, lock node_list, write
        node 12, write slab 8, unlock node_list, write cpu_queue 16, read cpu_queue 8, free slot
slubq 2.6.35
    refill: call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write slab 64, try
        slab, write node 12, write slab 8, unlock node_list, unlock slab, (lock node_list, unlock
        node_list) x2, slot, write pcp 64, page_call, write page_descriptor 64, free slot, write
        page_descriptor 64, atomic node 8 x2, write slab 64, lock slab, unlock slab, write slab 64,
        lock slab, lock node_list, write node 12, write slab 8, unlock node_list, unlock slab, write
        cpu_queue 480, read cpu_queue 8, free slot
    bulk alloc: call, bulk_object x16, slot, write cpu_state 64, irq_save, read cpu_queue 8 x16,
        free slot
    bulk free: call, bulk_object x16, slot, write cpu_state 64, irq_save, read slab 64, write
        cpu_queue 8 x16, free slot
    flush: lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read cpu_queue 472, read
        slab 64 x26, write slab 64, lock slab, lock node_list, drain_object x24, write node 12,
        write slab 8 x2, unlock node_list, unlock slab, read slab 64 x36, write slab 64, lock slab,
        drain_object x35, unlock slab, free slot, remote slot, write cpu_state 64, ipi, free slot
    drain: call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read cpu_queue 480,
        read slab 64 x3, write slab 64, lock slab, lock node_list, drain_object, write node 12,
        write slab 8 x3, unlock node_list, unlock slab, atomic node 8 x2, write page_descriptor 64,
        slot, write pcp 64, page_call, write page_descriptor 64, free slot, read slab 64 x23, write
        slab 64, lock slab, lock node_list, drain_object x21, write node 12, write slab 8 x2, unlock
        node_list, unlock slab, read slab 64 x39, write slab 64, lock slab, drain_object x38, unlock
        slab, read cpu_queue 480, write cpu_queue 480, write cpu_queue 8, free slot
    new slab: call, slot, write cpu_state 64, slow_path, irq_save, lock queue_config, unlock
        queue_config, (lock node_list, unlock node_list) x2, page_call, lock zone, write zone 8,
        write zone 12, write page_descriptor 8, (buddy_step, write page_descriptor 64) x2,
        zone_take, write page_descriptor 64, (write zone 12, write page_descriptor 8) x2, unlock
        zone, write page_descriptor 64 x8, atomic node 8 x2, write slab 64, lock slab, unlock slab,
        write slab 64, lock slab, lock node_list, write node 12, write slab 8, unlock node_list,
        unlock slab, write cpu_queue 96, read cpu_queue 8, free slot
sheaf 7.0
    refill: call, slot, write cpu_state 64, slow_path, preempt, (write cpu_queue 32, lock barn,
        irq_save, write node 56, unlock barn) x2, lock node_list, irq_save, read slab 8, read object
        8, atomic slab 8, unlock node_list, write cpu_queue 32, lock node_list, irq_save, read slab
        8, write node 12, write slab 8 x2, unlock node_list, write slab 8, read slab 8, atomic slab
        8, read object 8 x24, slot, write pcp 64, page_call, atomic pcp 4, write page_descriptor 64,
        free slot, write page_descriptor 64, atomic node 8 x2, (slab_object, write object 8) x64,
        read object 8 x36, lock node_list, irq_save, write node 12, write slab 8, unlock node_list,
        write cpu_queue 480, write cpu_queue 32 x2, read cpu_queue 8, free slot
    bulk alloc: call, bulk_object x16, slot, write cpu_state 64, preempt, read cpu_queue 8 x16, free
        slot
    bulk free: call, bulk_object x16, slot, write cpu_state 64, preempt, read slab 64, write
        cpu_queue 8 x16, free slot
    flush: lock rcu, unlock rcu, remote slot, write cpu_state 64, switch, write cpu_queue 32 x3,
        read cpu_queue 256, read slab 64, write object 8 x31, read slab 8, write object 8, atomic
        slab 8, write cpu_queue 32, read cpu_queue 216, read slab 64, write object 8 x2, read slab
        8, write object 8, atomic slab 8, read slab 64, write object 8 x23, read slab 8, lock
        node_list, irq_save, write object 8, atomic slab 8, write node 12, write slab 8 x2, unlock
        node_list, write cpu_queue 32, free slot, write cpu_queue 32, read slab 64, read slab 8 x2,
        write object 8, atomic slab 8, remote slot, write cpu_state 64, write cpu_queue 32 x2, free
        slot
    drain: call, read slab 64, slot, write cpu_state 64, slow_path, preempt, write cpu_queue 32,
        lock barn, irq_save, write node 56, unlock barn, lock node_list, irq_save, read slab 8, read
        object 8, atomic slab 8, unlock node_list, lock barn, irq_save, write node 56, write
        cpu_queue 32, unlock barn, write cpu_queue 32, write cpu_queue 8, free slot
    new slab: call, slot, write cpu_state 64, slow_path, preempt, (write cpu_queue 32, lock barn,
        irq_save, write node 56, unlock barn) x2, lock node_list, irq_save, read slab 8, read object
        8, atomic slab 8, unlock node_list, write cpu_queue 32, lock node_list, irq_save, unlock
        node_list, slot, write pcp 64, page_call, atomic pcp 4, lock zone, irq_save, write zone 8,
        write zone 12, write page_descriptor 8, (buddy_step, write page_descriptor 64) x4,
        (zone_take, write page_descriptor 64) x2, (buddy_step, write page_descriptor 64, zone_take,
        write page_descriptor 64, zone_take, write page_descriptor 64, buddy_step, write
        page_descriptor 64) x2, zone_take, write page_descriptor 64, (write zone 12, write
        page_descriptor 8) x2, unlock zone, write page_descriptor 64, free slot, write
        page_descriptor 64 x8, atomic node 8 x2, (slab_object, write object 8) x16, read object 8
        x12, lock node_list, irq_save, write node 12, write slab 8, unlock node_list, write
        cpu_queue 96, write cpu_queue 32 x2, read cpu_queue 8, free slot
slub 2.6.22
    refill: call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, write node 12,
        write slab 8, read slab 8, atomic slab 8, unlock node_list, read object 8, free slot
    bulk alloc: call, bulk_object x16, slot, write cpu_state 64, irq_save, read object 8 x16, free
        slot
    bulk free: call, bulk_object x16, slot, write cpu_state 64, irq_save, write object 8 x16, free
        slot
    flush: lock rcu, unlock rcu, remote slot, write cpu_state 64, irq_save, read object 8 x23, lock
        node_list, read slab 8, write object 8, atomic slab 8, write node 12, write slab 8, unlock
        node_list, free slot, remote slot, write cpu_state 64, free slot
    drain: call, read slab 64, slot, write cpu_state 64, slow_path, irq_save, read slab 8 x2, lock
        node_list, write object 8, atomic slab 8, write node 12, write slab 8, unlock node_list,
        atomic node 8 x2, write page_descriptor 64, slot, write pcp 64, page_call, write
        page_descriptor 64, free slot x2
    new slab: call, slot, write cpu_state 64, slow_path, irq_save, lock node_list, unlock node_list,
        page_call, lock zone, write zone 8, write zone 12, write page_descriptor 8, (buddy_step,
        write page_descriptor 64) x4, zone_take, write page_descriptor 64, (write zone 12, write
        page_descriptor 8) x4, unlock zone, write page_descriptor 64 x2, atomic node 8 x2,
        (slab_object, write object 8) x4, read object 8, free slot
slub 6.1
    refill: call, slot, write cpu_state 64, slow_path, local_lock, lock node_list, irq_save, write
        node 12, write slab 8, read slab 8, atomic slab 8, unlock node_list, read object 8, free
        slot
    bulk alloc: call, bulk_object x16, slot, write cpu_state 64, irq_disable, read object 8 x16,
        free slot
    bulk free: call, bulk_object x16, slot, write cpu_state 64, write object 8 x16, local_cmpxchg,
        free slot
    flush: lock rcu, unlock rcu, remote slot, write cpu_state 64, switch, read object 8 x23, lock
        node_list, irq_save, read slab 8, write object 8, atomic slab 8, write node 12, write slab
        8, unlock node_list, free slot, remote slot, write cpu_state 64, free slot
    drain: call, read slab 64, slot, write cpu_state 64, slow_path, read slab 8 x2, write object 8,
        atomic slab 8, lock node_list, irq_save, (write slab 64, read slab 8, atomic slab 8, write
        node 12, write slab 8) x2, (write slab 8, write slab 64, read slab 8, atomic slab 8, write
        node 12, write slab 8) x2, write slab 8, unlock node_list, read slab 8, write slab 64, free
        slot
    new slab: call, slot, write cpu_state 64, slow_path, local_lock, lock node_list, irq_save,
        unlock node_list, slot, write pcp 64, page_call, irq_save, atomic pcp 4, lock zone, write
        zone 8, write zone 12, write page_descriptor 8, (buddy_step, write page_descriptor 64) x3,
        (zone_take, write page_descriptor 64) x2, (buddy_step, write page_descriptor 64, zone_take,
        write page_descriptor 64, zone_take, write page_descriptor 64, buddy_step, write
        page_descriptor 64) x2, zone_take, write page_descriptor 64, write zone 12, write
        page_descriptor 8, unlock zone, write page_descriptor 64, free slot, write page_descriptor
        64 x8, atomic node 8 x2, (slab_object, write object 8) x16, read object 8, free slot
sheaf 6.18
    refill: call, slow_path, slot, write cpu_state 64, slow_path, local_lock, lock node_list,
        irq_save, write node 12, write slab 8, read slab 8, atomic slab 8, unlock node_list, read
        object 8, free slot
    flush: lock rcu, unlock rcu, (remote slot, write cpu_state 64, free slot) x2, remote slot, write
        cpu_state 64, switch, read object 8 x23, lock node_list, irq_save, read slab 8, write object
        8, atomic slab 8, write node 12, write slab 8, unlock node_list, free slot, remote slot,
        write cpu_state 64, free slot
    drain: call, read slab 64, slow_path, slot, write cpu_state 64, slow_path, read slab 8 x2, lock
        node_list, irq_save, write object 8, atomic slab 8, unlock node_list, free slot
    new slab: call, slow_path, slot, write cpu_state 64, slow_path, local_lock, lock node_list,
        irq_save, unlock node_list, slot, write pcp 64, page_call, preempt, atomic pcp 4, lock zone,
        irq_save, write zone 8, write zone 12, write page_descriptor 8, (buddy_step, write
        page_descriptor 64) x3, (zone_take, write page_descriptor 64) x2, (buddy_step, write
        page_descriptor 64, zone_take, write page_descriptor 64, zone_take, write page_descriptor
        64, buddy_step, write page_descriptor 64) x2, zone_take, write page_descriptor 64, write
        zone 12, write page_descriptor 8, unlock zone, write page_descriptor 64, free slot, write
        page_descriptor 64 x8, atomic node 8 x2, (slab_object, write object 8) x16, read object 8,
        free slot
";
