//! Slabinfo and sysfs of heaps on virtual machines: every attribute of every design.

#[allow(dead_code, reason = "each test file uses its part of the model")]
mod model;

use std::ptr::NonNull;

use model::setup::Setup;
use quarry::core::heap::Cache;
use quarry::core::inspect::{SLABINFO_HEADER, SlabinfoError, Source, SysfsError};
use quarry::core::machine::{CpuId, NodeId};
use quarry::core::tunables::tunables_of;
use quarry::{CacheFlags, CacheSpec, Era, Heap, Slub, Slubq, Stat};
use quarry_core::design::Design;
use quarry_sim::VirtualMachine;

const CPUS: u32 = 4;
const NODES: u32 = 2;

fn heap<D: Design>(era: Era) -> Heap<VirtualMachine, D> {
    let setup = Setup {
        cpus: CPUS,
        nodes: NODES,
        ..Setup::default()
    };
    Heap::new(setup.machine(), era, setup.boot()).unwrap()
}

fn cache<'h, D: Design>(
    heap: &'h Heap<VirtualMachine, D>,
    name: &str,
    object_size: u32,
) -> Cache<'h, VirtualMachine, D> {
    let spec = CacheSpec {
        name,
        object_size,
        align: 0,
        flags: CacheFlags::RECLAIM,
    };
    heap.create_cache(&spec).unwrap()
}

/// Allocates on all CPUs and frees half of the objects, most on another CPU; gives the others.
fn use_it<D: Design>(
    machine: &VirtualMachine,
    cache: &Cache<'_, VirtualMachine, D>,
) -> Vec<NonNull<u8>> {
    let mut kept = Vec::new();
    for n in 0..3000 {
        machine.run_on(CpuId(n % CPUS));
        kept.push(cache.alloc().unwrap());
    }
    for n in 0..1500 {
        machine.run_on(CpuId((n / 3) % CPUS));
        // A stride that visits all slabs.
        let object = kept.swap_remove(n as usize * 7 % kept.len());
        // SAFETY: the object is this cache's, and nobody else knows it.
        unsafe { cache.free(object) }.unwrap();
    }
    kept
}

fn read<D: Design>(cache: &Cache<'_, VirtualMachine, D>, name: &str) -> String {
    let mut text = String::new();
    if let Err(error) = cache.sysfs_read(name, &mut text) {
        panic!("{name}: {error}");
    }
    text
}

/// The sum, and its parts by the number behind `letter`.
fn parts(text: &str, letter: char) -> (u64, Vec<(u32, u64)>) {
    let mut words = text.strip_suffix('\n').expect("a newline").split(' ');
    let sum = words.next().unwrap().parse().unwrap();
    let part = |word: &str| {
        let (id, value) = word.strip_prefix(letter)?.split_once('=')?;
        Some((id.parse().ok()?, value.parse().ok()?))
    };
    (sum, words.map(|word| part(word).expect(text)).collect())
}

fn every_attribute_reads<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    let cache = cache(&heap, "dentry", 192);
    let kept = use_it(heap.machine(), &cache);
    let (usage, stats) = (cache.usage(), cache.stats());
    assert!(usage.slabs > 10 && usage.partial_slabs > 0);
    let mut seen = 0;
    for attribute in cache.sysfs_attributes() {
        let (name, text) = match attribute.source {
            Source::Calls => {
                let error = cache.sysfs_read(attribute.name, &mut String::new());
                assert_eq!(error.unwrap_err().errno_name(), "ENOSYS");
                continue;
            }
            _ => (attribute.name, read(&cache, attribute.name)),
        };
        seen += 1;
        match attribute.source {
            Source::Nodes(_) => {
                let (sum, nodes) = parts(&text, 'N');
                assert_eq!(nodes.iter().map(|(_, part)| part).sum::<u64>(), sum);
                assert!(nodes.iter().all(|(id, part)| *id < NODES && *part > 0));
                let expected = match name {
                    "slabs" => usage.slabs,
                    "total_objects" => usage.num_objs,
                    "objects" => usage.active_objs,
                    "cpu_slabs" => usage.cpu_slabs + usage.cpu_partial_slabs,
                    _ => continue,
                };
                assert_eq!(sum, expected, "{name}");
            }
            Source::Statistic => {
                let (sum, cpus) = parts(&text, 'C');
                let expected = Stat::named(name).map_or(0, |stat| stats.get(stat));
                assert_eq!(sum, expected, "{name}");
                assert_eq!(cpus.iter().map(|(_, part)| part).sum::<u64>(), sum);
                assert!(cpus.iter().all(|(id, part)| *id < CPUS && *part > 0));
            }
            Source::CpuPartial { .. } => {
                let slabs = text.split_once('(').unwrap().1.split_once(')').unwrap().0;
                assert_eq!(slabs.parse(), Ok(usage.cpu_partial_slabs));
            }
            Source::Action(_) => assert_eq!(text, ""),
            Source::Ctor => assert_eq!(text, ""),
            _ => {
                let value: u64 = text.trim_end().parse().unwrap();
                assert_eq!(text, format!("{value}\n"));
            }
        }
    }
    assert!(seen > 20);
    // Free objects of listed slabs are what is neither in use nor on a CPU.
    let (objects, _) = parts(&read(&cache, "objects"), 'N');
    let (in_use, _) = parts(&read(&cache, "objects_partial"), 'N');
    let (listed, _) = parts(&read(&cache, "partial"), 'N');
    let (total, _) = parts(&read(&cache, "total_objects"), 'N');
    let per_slab: u64 = read(&cache, "objs_per_slab").trim_end().parse().unwrap();
    assert_eq!(objects + (listed * per_slab - in_use), total);
    for fixed in [
        "object_size=192",
        "reclaim_account=1",
        "hwcache_align=0",
        "poison=0",
    ] {
        let (name, value) = fixed.split_once('=').unwrap();
        assert_eq!(read(&cache, name), format!("{value}\n"), "{name}");
    }
    for object in kept {
        // SAFETY: allocated from this cache and not freed yet.
        unsafe { cache.free(object) }.unwrap();
    }
}

fn every_writable_attribute_writes<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    let cache = cache(&heap, "dentry", 192);
    let kept = use_it(heap.machine(), &cache);
    let (mut tunables, mut counters) = (0, 0);
    for attribute in cache.sysfs_attributes() {
        let name = attribute.name;
        if !attribute.writable(D::NAME, era) {
            let error = cache.sysfs_write(name, "1").unwrap_err();
            assert!(
                matches!(error, SysfsError::ReadOnly { .. }),
                "{name}: {error}"
            );
            continue;
        }
        let bad = match attribute.source {
            Source::Statistic => "1",
            Source::Action(_) => "0",
            _ => "many",
        };
        let error = cache.sysfs_write(name, bad).unwrap_err();
        assert_eq!(error.errno_name(), "EINVAL", "{name}: {error}");
        match attribute.source {
            Source::Statistic => {
                counters += 1;
                cache.sysfs_write(name, "0\n").unwrap();
                assert_eq!(read(&cache, name), "0\n");
            }
            Source::Action(_) => cache.sysfs_write(name, "1\n").unwrap(),
            _ => {
                tunables += 1;
                let range = tunables_of(D::NAME, era).find(|tunable| tunable.name == name);
                let range = range.unwrap();
                let value: u64 = read(&cache, name).trim_end().parse().unwrap();
                let other = match value < range.max {
                    true => value + 1,
                    false => value - 1,
                };
                cache.sysfs_write(name, &format!("{other}\n")).unwrap();
                assert_eq!(read(&cache, name), format!("{other}\n"), "{name}");
                let above = format!("{}", range.max + 1);
                let error = cache.sysfs_write(name, &above).unwrap_err();
                assert!(matches!(error, SysfsError::Tunable(_)), "{name}: {error}");
                cache.sysfs_write(name, &value.to_string()).unwrap();
            }
        }
    }
    let expected =
        tunables_of(D::NAME, era).filter(|t| t.scope == quarry::core::tunables::Scope::Cache);
    assert_eq!(tunables, expected.count());
    assert!(counters > 5);
    for object in kept {
        // SAFETY: allocated from this cache and not freed yet.
        unsafe { cache.free(object) }.unwrap();
    }
    // Shrinking is done, not only accepted.
    cache.sysfs_write("shrink", "1").unwrap();
    assert_eq!(read(&cache, "slabs"), "0\n");
}

fn slabinfo_lists_every_cache<D: Design>(era: Era) {
    let heap = heap::<D>(era);
    heap.make_kmalloc_caches();
    let kept = use_it(heap.machine(), &cache(&heap, "dentry", 192));
    cache(&heap, "a name that is longer than the column", 64);
    let mut text = String::new();
    heap.write_slabinfo(&mut text).unwrap();
    let lines = text.strip_prefix(SLABINFO_HEADER).unwrap();
    let mut rows = lines.lines();
    heap.for_each_cache(|cache| {
        assert_eq!(rows.next().unwrap(), cache.slabinfo_row().to_string());
    });
    assert_eq!(rows.next(), None);
    let names: Vec<_> = lines.lines().collect();
    assert!(names[0].starts_with("a name that is longer than the column      0      0"));
    assert!(names[1].starts_with("dentry "), "the newest comes first");
    let dentry = kept.len();
    let mut rows = Vec::new();
    heap.sysfs_caches(|cache| {
        rows.push((cache.name().to_string(), cache.slabinfo_row().active_objs))
    });
    assert!(rows[1].1 >= dentry as u64 && rows.len() == names.len());
}

macro_rules! designs {
    ($($test:ident: $design:ty, $era:expr;)*) => {
        $(mod $test {
            use super::*;

            #[test]
            fn reads() {
                every_attribute_reads::<$design>($era);
            }

            #[test]
            fn writes() {
                every_writable_attribute_writes::<$design>($era);
            }

            #[test]
            fn slabinfo() {
                slabinfo_lists_every_cache::<$design>($era);
            }
        })*
    };
}

designs! {
    slub_5_9: Slub, Era::V5_9;
    slub_6_1: Slub, Era::V6_1;
    slub_6_18: Slub, Era::V6_18;
    slubq_2_6_35: Slubq, Era::V2_6_35;
}

/// Every byte of the formats with parts, in a state that can be counted by hand.
#[test]
fn parts_are_printed_as_by_the_kernel() {
    let heap = heap::<Slub>(Era::V6_18);
    let cache = cache(&heap, "dentry", 192);
    let machine = heap.machine();
    // CPUs 0 and 2 are on different nodes; each takes a slab of its own.
    for (cpu, objects) in [(0, 3), (3, 1)] {
        machine.run_on(CpuId(cpu));
        for _ in 0..objects {
            cache.alloc().unwrap();
        }
    }
    for (name, expected) in [
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
    ] {
        assert_eq!(read(&cache, name), expected, "{name}");
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
        let objects: Vec<_> = (0..64).map(|_| cache.alloc().unwrap()).collect();
        machine.run_on(CpuId(1));
        for object in [objects[0], objects[21], objects[42]] {
            // SAFETY: allocated from this cache and not freed yet.
            unsafe { cache.free(object) }.unwrap();
        }
        assert_eq!(read(&cache, "slabs_cpu_partial"), expected);
        assert_eq!(read(&cache, "cpu_slabs"), "4 N0=4\n");
        assert_eq!(cache.usage().cpu_partial_slabs, 3);
    }
}

#[test]
fn flags_are_shown() {
    let heap = heap::<Slub>(Era::V6_18);
    let flags = CacheFlags::CTOR | CacheFlags::RCU | CacheFlags::HWCACHE_ALIGN;
    let spec = CacheSpec {
        name: "inode_cache",
        object_size: 100,
        align: 0,
        flags,
    };
    let cache = heap.create_cache(&spec).unwrap();
    for (name, expected) in [
        ("ctor", "ctor\n"),
        ("destroy_by_rcu", "1\n"),
        ("hwcache_align", "1\n"),
        ("reclaim_account", "0\n"),
        ("object_size", "100\n"),
        ("slab_size", "128\n"),
        ("align", "64\n"),
    ] {
        assert_eq!(read(&cache, name), expected, "{name}");
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
    let error = heap.write_tunables("dentry 120 60 8").unwrap_err();
    assert!(matches!(error, SlabinfoError::ReadOnly { .. }), "{error}");
}

/// A writer that has no room is told of, not ignored.
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
    for name in ["order", "slabs", "alloc_slab", "slabs_cpu_partial"] {
        assert_eq!(
            cache.sysfs_read(name, &mut Full),
            Err(SysfsError::Writer),
            "{name}"
        );
    }
}
