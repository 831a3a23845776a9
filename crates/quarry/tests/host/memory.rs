//! Memory of this process that comes and goes, as the operating system counts it.

use quarry::kernel::machine::{Cpus as _, NodeId};
use quarry::kernel::page::OwnedBlock;
use quarry::{Era, HostMachine, HugePages, PageAllocator, TrimPolicy};

const MEMORY: usize = 64 << 20;

fn pages(huge_pages: HugePages) -> PageAllocator<HostMachine> {
    let machine = HostMachine::builder()
        .memory_bytes(MEMORY)
        .huge_pages(huge_pages)
        .build()
        .expect("64 MiB of address space");
    PageAllocator::new(machine, Era::V6_18).expect("a page allocator")
}

/// A block all of whose bytes are written.
fn filled(pages: &PageAllocator<HostMachine>, order: u32) -> Option<OwnedBlock<'_, HostMachine>> {
    let mut block = pages.alloc_owned(order)?;
    for byte in block.as_uninit_bytes_mut() {
        byte.write(0x5a);
    }
    Some(block)
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
            let blocks: Vec<_> = (0..8).filter_map(|_| filled(&pages, 10)).collect();
            assert_eq!(resident(&pages), 32 << 20);
            assert_eq!(pages.residency().resident() * 4096, 32 << 20);
            drop(blocks);
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
    let mut small: Vec<_> = (0..512).filter_map(|_| filled(&pages, 0)).collect();
    small.truncate(1);
    let kept = &mut small[0];
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
    // SAFETY: `filled` wrote every byte.
    assert_eq!(unsafe { kept.as_uninit_bytes_mut()[0].assume_init() }, 0x5a);
}

/// The pool of huge pages is empty on most systems; then the next best is used, and why is said.
#[test]
fn huge_pages_of_the_pool_or_the_reason_why_not() {
    let pages = pages(HugePages::Hugetlb);
    let used = pages.machine().huge_pages();
    assert_eq!(used.wanted, HugePages::Hugetlb);
    let Some(reason) = used.reason else {
        assert_eq!(used.in_use, HugePages::Hugetlb);
        drop(filled(&pages, 9).expect("memory"));
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
    filled(&pages, 10).expect("ordinary memory");
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
        return;
    }
    let node = NodeId(nodes - 1);
    let pfn = pages.alloc(0, Some(node)).expect("memory");
    assert_eq!(pages.node_of(pfn), Some(node));
    match refused {
        None => (),
        // As `HostMachine::bind_error` says; and a kernel may have nodes and no `mbind`.
        Some(libc::EPERM | libc::EINVAL | libc::ENOSYS) => (),
        Some(errno) => panic!("errno {errno} with {nodes} nodes"),
    }
}
