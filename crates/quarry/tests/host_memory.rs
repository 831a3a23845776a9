//! Memory of this process that comes and goes, as the operating system counts it.

use quarry::core::machine::{Cpus as _, NodeId};
use quarry::{Era, HostMachine, HugePages, PageAllocator, Pfn, TrimPolicy};

const MEMORY: usize = 64 << 20;

fn pages(huge_pages: HugePages) -> PageAllocator<HostMachine> {
    let machine = HostMachine::builder()
        .memory_bytes(MEMORY)
        .huge_pages(huge_pages)
        .build()
        .expect("64 MiB of address space");
    PageAllocator::new(machine, Era::V6_18).expect("a page allocator")
}

fn fill(pages: &PageAllocator<HostMachine>, pfn: Pfn, order: u32) {
    let address = pages.address(pfn).expect("a page");
    // SAFETY: the block is the caller's.
    unsafe { address.as_ptr().write_bytes(0x5a, 4096 << order) };
}

fn resident(pages: &PageAllocator<HostMachine>) -> usize {
    pages.machine().resident_bytes().expect("mincore")
}

#[test]
fn memory_goes_back_and_comes_again() {
    for huge_pages in [HugePages::Never, HugePages::System, HugePages::Transparent] {
        let pages = pages(huge_pages);
        let used = pages.machine().huge_pages();
        eprintln!("{used:?}");
        assert_eq!(resident(&pages), 0, "nothing was touched");
        for _ in 0..2 {
            let blocks: Vec<Pfn> = (0..8).filter_map(|_| pages.alloc(10, None)).collect();
            blocks.iter().for_each(|&block| fill(&pages, block, 10));
            assert_eq!(resident(&pages), 32 << 20);
            assert_eq!(pages.residency().resident() * 4096, 32 << 20);
            for block in blocks {
                pages.free(block, 10).expect("allocated");
            }
            let policy = TrimPolicy::huge_pages(pages.machine().topology(), 2048);
            let trimmed = pages.trim(policy);
            assert_eq!((trimmed.pages * 4096, trimmed.refused), (24 << 20, 0));
            assert_eq!(resident(&pages), 8 << 20);
            assert_eq!(pages.residency().resident() * 4096, 8 << 20);
            let left = pages.trim(TrimPolicy {
                keep_pages: 0,
                min_order: 0,
            });
            assert_eq!((left.pages * 4096, resident(&pages)), (8 << 20, 0));
        }
    }
}

/// A huge page that is partly in use stays whole by the rule for whole huge pages, and is split by
/// one for less.
#[test]
fn a_huge_page_is_split_only_if_asked() {
    let pages = pages(HugePages::Transparent);
    let small: Vec<Pfn> = (0..512).filter_map(|_| pages.alloc(0, None)).collect();
    small.iter().for_each(|&page| fill(&pages, page, 0));
    let (kept, freed) = small.split_first().expect("512 pages");
    for &page in freed {
        pages.free(page, 0).expect("allocated");
    }
    let whole = TrimPolicy::huge_pages(pages.machine().topology(), 0);
    pages.trim(whole);
    let before = resident(&pages);
    assert!(before >= 2 << 20, "{before}");
    let parts = TrimPolicy {
        min_order: 4,
        ..whole
    };
    pages.trim(parts);
    let after = resident(&pages);
    assert!(
        (4096..=64 << 10).contains(&after),
        "{before} became {after}"
    );
    let address = pages.address(*kept).expect("a page");
    // SAFETY: the page is still allocated.
    assert_eq!(unsafe { address.read() }, 0x5a);
}

/// The pool of huge pages is empty on most systems; then the next best is used, and why is said.
#[test]
fn huge_pages_of_the_pool_or_the_reason_why_not() {
    let pages = pages(HugePages::Hugetlb);
    let used = pages.machine().huge_pages();
    assert_eq!(used.wanted, HugePages::Hugetlb);
    let Some(reason) = used.reason else {
        assert_eq!(used.in_use, HugePages::Hugetlb);
        let block = pages.alloc(9, None).expect("memory");
        fill(&pages, block, 9);
        pages.free(block, 9).expect("allocated");
        // The pool might have given its pages to others when they are wanted again.
        let whole = TrimPolicy::huge_pages(pages.machine().topology(), 0);
        let trimmed = pages.trim(whole);
        assert_eq!((trimmed.pages, trimmed.refused), (0, 1));
        assert_eq!(pages.residency().resident_free, 512);
        return;
    };
    eprintln!("the pool was not tested: {reason}");
    assert_ne!(used.in_use, HugePages::Hugetlb);
    let text = reason.to_string();
    assert!(
        text.contains("32 huge pages") && text.contains("nr_hugepages"),
        "{text}"
    );
    let block = pages.alloc(10, None).expect("ordinary memory");
    fill(&pages, block, 10);
}

#[test]
fn memory_of_several_nodes_is_bound() {
    let pages = pages(HugePages::System);
    let nodes = pages.machine().topology().nodes;
    let numa = pages.machine().numa();
    assert_eq!(numa.nodes, nodes);
    let refused = pages.machine().bind_error();
    if nodes == 1 {
        assert_eq!(refused, None, "nothing is bound");
        let reason = numa.reason.map(|reason| reason.to_string());
        let reason = reason.unwrap_or("this computer has one node".into());
        eprintln!("binding by the page allocator was not tested: {reason}");
        return;
    }
    let node = NodeId(nodes - 1);
    let pfn = pages.alloc(0, Some(node)).expect("memory");
    assert_eq!(pages.node_of(pfn), Some(node));
    match refused {
        None => (),
        // As `HostMachine::bind_error` says; and a kernel may have nodes and no `mbind`.
        Some(errno @ (libc::EPERM | libc::EINVAL | libc::ENOSYS)) => {
            eprintln!("skipped: this sandbox, cpuset or kernel binds no memory (errno {errno})");
        }
        Some(errno) => panic!("errno {errno} with {nodes} nodes"),
    }
}
