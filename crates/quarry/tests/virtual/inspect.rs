//! Slabinfo and sysfs: formats in states that can be counted by hand, and errors.

use crate::model::inspect::{cache, heap, read};
use crate::prelude::*;
use quarry::kernel::inspect::{SlabinfoError, SysfsError};
use quarry::kernel::machine::{CpuId, NodeId};
use quarry::{CacheFlags, Era, Slub, Slubq};

/// Every byte of the formats with parts, in a state that can be counted by hand.
#[test]
fn parts_are_printed_as_by_the_kernel() {
    let heap = heap::<Slub>(Era::V6_18);
    let cache = cache(&heap, "dentry", 192);
    let machine = heap.machine();
    // CPUs 0 and 2 are on different nodes; each takes a slab of its own.
    for (cpu, objects) in [(0, 3), (3, 1)] {
        machine.run_on(CpuId(cpu));
        take(cache, objects);
    }
    for (name, expected) in each([
        ("alloc_fastpath", "2 C0=2\n"),
        ("alloc_slowpath", "2 C0=1 C3=1\n"),
        ("alloc_slab", "2 C0=1 C3=1\n"),
        ("free_slab", "0\n"),
        ("slabs", "2 N0=1 N1=1\n"),
        ("cpu_slabs", "2 N0=1 N1=1\n"),
        ("total_objects", "42 N0=21 N1=21\n"),
        ("objects", "42 N0=21 N1=21\n"),
        ("partial", "0\n"),
        ("slabs_cpu_partial", "0(0)\n"),
        ("sheaf_capacity", "0\n"),
        ("remote_node_defrag_ratio", "100\n"),
    ]) {
        assert_eq!(read(&cache, name), expected);
    }
    // The first object on another node's slab.
    machine.run_on(CpuId(0));
    cache.alloc_node(NodeId(1)).unwrap();
    assert_eq!(read(&cache, "alloc_node_mismatch"), "1 C0=1\n");
    assert_eq!(read(&cache, "slabs"), "3 N0=1 N1=2\n");
    assert_eq!(read(&cache, "objects_partial"), "3 N0=3\n");
    assert_eq!(read(&cache, "objects"), "45 N0=3 N1=42\n");
    assert_eq!(read(&cache, "partial"), "1 N0=1\n");
}

/// Three full slabs get a hole each from CPU 1: they are on its partial list.
#[test]
fn cpu_partial_lists_are_counted_or_estimated() {
    for (era, expected) in [
        (Era::V5_9, "3(3) C1=3(3)\n"),
        (Era::V6_1, "31(3) C1=31(3)\n"),
    ] {
        let heap = heap::<Slub>(era);
        let cache = cache(&heap, "dentry", 192);
        let machine = heap.machine();
        machine.run_on(CpuId(0));
        let objects = take(cache, 64);
        machine.run_on(CpuId(1));
        give(cache, &[objects[0], objects[21], objects[42]]);
        assert_eq!(read(&cache, "slabs_cpu_partial"), expected);
        assert_eq!(read(&cache, "cpu_slabs"), "4 N0=4\n");
        assert_eq!(cache.usage().cpu_partial_slabs, 3);
    }
}

#[test]
fn flags_are_shown() {
    let heap = heap::<Slub>(Era::V6_18);
    let flags = CacheFlags::CTOR | CacheFlags::RCU | CacheFlags::HWCACHE_ALIGN;
    let cache = cache_of(&heap, "inode_cache", 100, flags);
    for (name, expected) in each([
        ("ctor", "ctor\n"),
        ("destroy_by_rcu", "1\n"),
        ("hwcache_align", "1\n"),
        ("reclaim_account", "0\n"),
        ("object_size", "100\n"),
        ("slab_size", "128\n"),
        ("align", "64\n"),
    ]) {
        assert_eq!(read(&cache, name), expected);
    }
}

#[test]
fn kmalloc_may_be_copied_to_user_space() {
    let heap = heap::<Slub>(Era::V6_18);
    let kmalloc = heap.kmalloc_cache(100).unwrap();
    assert_eq!(read(&kmalloc, "usersize"), "128\n");
    assert_eq!(read(&cache(&heap, "dentry", 192), "usersize"), "0\n");
}

#[test]
fn errors_are_clear() {
    let heap = heap::<Slubq>(Era::V2_6_35);
    let cache = cache(&heap, "dentry", 192);
    let read = |name| cache.sysfs_read(name, &mut String::new()).unwrap_err();
    let write = |name, text| cache.sysfs_write(name, text).unwrap_err().to_string();
    let unknown = read("cpu_partial");
    assert_eq!(unknown.errno_name(), "ENOENT");
    assert!(
        unknown.to_string().starts_with(
            "slubq@2.6.35 has no attribute \"cpu_partial\"; it has slab_size, object_size"
        ),
        "{unknown}"
    );
    let read_only = write("slab_size", "1");
    assert!(
        read_only
            .starts_with("slab_size of slubq@2.6.35 is read-only; writable are cpu_queue_size,")
            && read_only.ends_with(" and the counters"),
        "{read_only}"
    );
    assert_eq!(
        write("cpu_queue_size", "3"),
        "cpu_queue_size is 3; it takes 4..=10000 (objects)"
    );
    assert_eq!(
        write("cpu_queue_size", "-1"),
        "cpu_queue_size takes a number from 0 on, not \"-1\""
    );
    assert_eq!(
        write("alloc_slab", "7"),
        "alloc_slab takes 0, which clears it, not \"7\""
    );
    assert!(write("shrink", "").starts_with("shrink takes 1"));
}

/// A writer without room is an error, not ignored.
#[test]
fn a_writer_that_fails_is_an_error() {
    struct Full;
    impl std::fmt::Write for Full {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            Err(std::fmt::Error)
        }
    }
    let heap = heap::<Slub>(Era::V6_18);
    let cache = cache(&heap, "dentry", 192);
    assert_eq!(heap.write_slabinfo(&mut Full), Err(SlabinfoError::Writer));
    for name in each(["order", "slabs", "alloc_slab", "slabs_cpu_partial"]) {
        assert_eq!(cache.sysfs_read(name, &mut Full), Err(SysfsError::Writer));
    }
}
