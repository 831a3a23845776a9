//! Memory, nodes, CPUs and flags of a machine.

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::heap::Heap;
use quarry_core::machine::{Memory as _, RawRange};
use quarry_core::page::PageAllocator;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

use super::*;
use crate::huge::{HUGE_PAGE_BYTES, HugePages};

/// The pool is empty on most systems, so ordinary memory stands in for its pages.
#[test]
#[cfg_attr(miri, ignore = "no madvise")]
fn memory_of_the_pool_is_kept() {
    let builder = HostMachine::builder().memory_bytes(64 << 20);
    let mut machine = builder.build().expect("64 MiB of address space");
    let base = machine.ranges().pages.base;
    assert!(base.addr().get().is_multiple_of(HUGE_PAGE_BYTES));
    let range = RawRange {
        base,
        bytes: HUGE_PAGE_BYTES,
    };
    // SAFETY: the range is the machine's, which no other code uses.
    unsafe { base.write(0x5a) };
    machine.memory.huge_pages.in_use = HugePages::Hugetlb;
    // SAFETY: as above.
    assert!(!unsafe { machine.release(range) });
    // SAFETY: as above.
    assert_eq!(unsafe { base.read() }, 0x5a);
    machine.memory.huge_pages.in_use = HugePages::System;
    // SAFETY: as above.
    assert!(unsafe { machine.release(range) });
    // SAFETY: as above.
    assert_eq!(unsafe { base.read() }, 0);
}

/// Moves the calling thread to a CPU, if it may run there.
fn run_on(cpu: u32) -> bool {
    // SAFETY: all-zero is a valid set.
    let mut set = unsafe { core::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: the CPU is below the set's size.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: the set outlives the call.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 }
}

/// Calls `f` on an even CPU, an odd one and the even one again; on one CPU if the thread may use one only.
fn on_both_cpus(mut f: impl FnMut(u32)) {
    let first = |odd| (odd..1024).step_by(2).find(|&cpu| run_on(cpu));
    let (even, odd) = (first(0), first(1));
    assert!(even.or(odd).is_some());
    for cpu in [even, odd, even].into_iter().flatten() {
        assert!(run_on(cpu));
        f(cpu);
    }
}

fn with_alternating_nodes() -> HostMachine {
    let builder = HostMachine::builder().memory_bytes(64 << 20);
    let mut machine = builder.cpus(2).build().expect("64 MiB of address space");
    machine.nodes = Nodes::alternating(1, 1);
    machine.topology.nodes = 2;
    machine
}

/// Facts 7.2: the CPUs of the node are those that are online.
#[test]
#[cfg_attr(miri, ignore = "too much memory")]
fn lists_are_sized_for_the_cpus_that_are_online() {
    let limits = |first, second| {
        let mut machine = with_alternating_nodes();
        machine.nodes = Nodes::alternating(first, second);
        let pages = PageAllocator::new(machine, Era::V6_18).expect("pages");
        [0, 1].map(|zone| {
            let lists = pages.pageset_report(zone, CpuId(0));
            lists.expect("no thread uses them").high_max
        })
    };
    // An eighth of the 8192 pages of a node, dealt to its CPUs.
    assert_eq!(limits(1, 1), [1024, 1024]);
    assert_eq!(limits(4, 1), [256, 1024]);
    assert_eq!(limits(1, 8), [1024, 128]);
}

fn objects_are_local<D: Design>(era: Era) {
    let heap = Heap::<_, D>::new(with_alternating_nodes(), era, BootParams::default());
    let heap = heap.expect("a heap");
    on_both_cpus(|cpu| {
        let object = heap.kmalloc(100, None).expect("memory");
        let page = heap.pages().pfn_of(object).expect("a page of the heap");
        assert_eq!(
            heap.pages().node_of(page),
            Some(NodeId(1 - cpu)),
            "{}",
            D::NAME
        );
        // SAFETY: the object has no user left.
        unsafe { heap.kfree(object) }.expect("allocated");
    });
    heap.pages().check_consistency().expect("consistency");
}

/// Nodes need not be what the CPUs' numbers suggest.
#[test]
#[cfg_attr(miri, ignore = "no CPUs to choose from")]
fn memory_is_of_the_node_that_the_table_tells() {
    let pages = PageAllocator::new(with_alternating_nodes(), Era::V6_18).expect("pages");
    on_both_cpus(|cpu| {
        for order in [0, 3, 10] {
            let block = pages.alloc_owned(order).expect("memory");
            let node = pages.node_of(block.pfn());
            assert_eq!(node, Some(NodeId(1 - cpu)), "order {order}");
        }
    });
    objects_are_local::<SlabCache>(Era::V6_1);
    objects_are_local::<Slub>(Era::V6_18);
    objects_are_local::<Slubq>(Era::V2_6_35);
    objects_are_local::<SheafCache>(Era::V7_0);
}

/// The flags that `/proc/self/smaps` shows of the mapping that an address lies in.
fn flags_at(address: NonNull<u8>) -> Vec<String> {
    let address = address.addr().get();
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let mut inside = false;
    for line in smaps.lines() {
        let bounds = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        if let Some((from, to)) = bounds {
            let number = |text| usize::from_str_radix(text, 16).ok();
            inside = number(from)
                .zip(number(to))
                .is_some_and(|(from, to)| (from..to).contains(&address));
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split_whitespace().map(str::to_owned).collect();
        }
    }
    Vec::new()
}

#[test]
#[cfg_attr(miri, ignore = "no madvise")]
fn descriptors_have_huge_pages_where_pages_have() {
    let kernel_has_them = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    for (wanted, flag) in [(HugePages::Transparent, "hg"), (HugePages::System, "nh")] {
        let builder = HostMachine::builder().memory_bytes(64 << 20);
        let machine = builder.huge_pages(wanted).build().expect("address space");
        if machine.huge_pages().in_use != wanted {
            // The kernel has none, or its administrator switched them off.
            assert!(!kernel_has_them || machine.huge_pages().reason.is_some());
            continue;
        }
        let flags = flags_at(machine.ranges().descriptors.base);
        assert!(
            flags.iter().any(|known| known == flag),
            "{wanted:?}: {flags:?}"
        );
        let flags = flags_at(machine.ranges().percpu.base);
        assert!(
            flags.iter().any(|known| known == "nh"),
            "{wanted:?}: {flags:?}"
        );
    }
}

/// A heap that may have huge pages once it is large has small ones at first.
#[test]
#[cfg_attr(miri, ignore = "no madvise")]
fn huge_pages_begin_behind_the_first_bytes() {
    let builder = HostMachine::builder().memory_bytes(64 << 20);
    let wanted = HugePages::TransparentBeyond(3 << 20);
    let machine = builder.huge_pages(wanted).build().expect("address space");
    if machine.huge_pages().in_use != wanted {
        assert!(machine.huge_pages().reason.is_some());
        return;
    }
    let pages = machine.ranges().pages;
    for (mib, expected) in [(0, "nh"), (3, "nh"), (4, "hg"), (63, "hg")] {
        // SAFETY: inside the range.
        let at = unsafe { pages.base.add(mib << 20) };
        let flags = flags_at(at);
        assert!(
            flags.iter().any(|flag| flag == expected),
            "{mib}: {flags:?}"
        );
    }
    let descriptors = machine.ranges().descriptors.base;
    assert!(flags_at(descriptors).iter().any(|flag| flag == "nh"));
}

/// Calls `f` on each CPU where the thread may run.
fn on_each_cpu(mut f: impl FnMut(u32)) {
    let cpus: Vec<_> = (0..crate::os::allowed_cpus_end())
        .filter(|&cpu| run_on(cpu))
        .collect();
    assert!(!cpus.is_empty());
    for cpu in cpus {
        assert!(run_on(cpu));
        f(cpu);
    }
}

fn is_at_home_everywhere<D: Design>(mode: Mode, cpus: u32) {
    let builder = HostMachine::builder().memory_bytes(64 << 20);
    let machine = builder.cpus(cpus).mode(mode).build().expect("64 MiB");
    let heap = Heap::<_, D>::new(machine, D::DEFAULT_ERA, BootParams::default()).expect("a heap");
    let name = D::NAME;
    on_each_cpu(|cpu| {
        let objects: Vec<_> = (0..500)
            .map(|_| heap.kmalloc(100, None).expect("memory"))
            .collect();
        for object in objects {
            // SAFETY: allocated above, and used by no code.
            unsafe { heap.kfree(object) }.expect("allocated");
        }
        heap.for_each_cache(|cache| assert_eq!(cache.shrink(), 0, "{name} on CPU {cpu} of {cpus}"));
    });
    heap.for_each_cache(|cache| assert_eq!(cache.check_consistency(), Ok(()), "{name}"));
    heap.pages().check_consistency().expect("consistent pages");
}

/// A machine may have fewer slots than the thread's CPU has a number (a list that a container shows), and far more than
/// CPUs are online (virtual machines to which CPUs may be added).
#[test]
#[cfg_attr(miri, ignore = "no CPUs to choose from")]
fn cpus_may_be_beyond_the_slots_and_slots_beyond_the_cpus() {
    for mode in [Mode::Auto, Mode::Fallback] {
        for cpus in [1, 100] {
            is_at_home_everywhere::<SlabCache>(mode, cpus);
            is_at_home_everywhere::<Slub>(mode, cpus);
            is_at_home_everywhere::<Slubq>(mode, cpus);
            is_at_home_everywhere::<SheafCache>(mode, cpus);
        }
    }
}
