//! Giving free memory back, on machines that count it.

use crate::model::scenario;
use crate::prelude::*;
use quarry_core::machine::Cpus as _;
use quarry_core::page::{PageInconsistency, TrimPolicy};

fn boot(pages: u32) -> Pages {
    boot_pages(Era::V6_18, Setup::of_pages(pages))
}

fn policy(keep_pages: u64, min_order: u32) -> TrimPolicy {
    TrimPolicy {
        keep_pages,
        min_order,
    }
}

fn use_block(pages: &Pages, order: u32) -> Pfn {
    let pfn = pages.alloc(order, None).expect("memory");
    for page in pfn.0..pfn.0 + (1 << order) {
        write(pages, page, 1);
    }
    pfn
}

fn byte(pages: &Pages, page: u32) -> *mut u8 {
    let address = pages.address(Pfn(page)).expect("a page");
    address.as_ptr().wrapping_add(77)
}

fn write(pages: &Pages, page: u32, value: u8) {
    // SAFETY: the test is single-threaded, and the byte is in a page, which is real memory.
    unsafe { byte(pages, page).write(value) }
}

fn read(pages: &Pages, page: u32) -> u8 {
    // SAFETY: as in `write`.
    unsafe { byte(pages, page).read() }
}

/// There are no blocks above the largest order, so no rule can ask for them only.
#[test]
fn an_order_above_the_largest_is_the_largest() {
    for min_order in each([MAX_ORDER, MAX_ORDER + 1, u32::MAX]) {
        let pages = boot(1 << 12);
        let blocks = [(); 2].map(|()| use_block(&pages, MAX_ORDER));
        give_pages(&pages, blocks, MAX_ORDER);
        let trimmed = pages.trim(policy(0, min_order));
        assert_eq!((trimmed.blocks, trimmed.pages), (2, 2 << MAX_ORDER));
    }
}

#[test]
fn what_was_given_back_reads_as_zero_and_is_not_given_back_twice() {
    let pages = boot(1 << 14);
    let residency = pages.residency();
    assert_eq!((residency.resident(), residency.untouched), (0, 1 << 14));
    assert_eq!(
        pages.trim(policy(0, 0)),
        Default::default(),
        "nothing was used"
    );

    let blocks: Vec<Pfn> = (0..4).map(|_| use_block(&pages, MAX_ORDER)).collect();
    assert_eq!(pages.residency().resident(), 4096);
    give_pages(&pages, &blocks, MAX_ORDER);
    assert_eq!(pages.residency().resident_free, 4096);

    let trimmed = pages.trim(policy(0, MAX_ORDER));
    assert_eq!(
        (trimmed.pages, trimmed.blocks, trimmed.refused),
        (4096, 4, 0)
    );
    let counters = pages.machine().counters();
    assert_eq!(
        (counters.releases, counters.released_bytes),
        (4, 4096 * 4096)
    );
    assert!((0..4096).all(|page| read(&pages, page) == 0));
    assert_eq!(pages.trim(policy(0, 0)).pages, 0);
    assert_eq!(pages.machine().counters().releases, 4);
    let residency = pages.residency();
    assert_eq!(
        (residency.resident(), residency.vacant, residency.released),
        (0, 4096, 4096)
    );
    assert_eq!(
        pages.check_consistency().map(|census| census.buddy),
        Ok(4096)
    );
}

/// Only what was used since goes back, although it is part of a larger free block again.
#[test]
fn a_part_that_was_used_again_goes_back_alone() {
    let pages = boot(1 << 12);
    let block = use_block(&pages, MAX_ORDER);
    pages.free_number(block, MAX_ORDER).expect("allocated");
    assert_eq!(pages.trim(policy(0, 0)).pages, 1024);
    let part = use_block(&pages, 5);
    pages.free_number(part, 5).expect("allocated");
    assert_eq!(pages.residency().resident_free, 32);
    assert_eq!(pages.trim(policy(0, 0)).pages, 32);
    assert_eq!(pages.residency().released, 1024 + 32);
    // A single page brings its unit of 16 back.
    let page = use_block(&pages, 0);
    assert_eq!(pages.trim(policy(0, 0)).pages, 0, "the unit is not free");
    pages.free_number(page, 0).expect("allocated");
    let residency = pages.residency();
    assert_eq!(
        residency.resident() - residency.resident_free,
        pages.check_consistency().expect("consistent").pcp
    );
    assert_eq!(pages.drain_all(), 0);
    let freed = pages.trim(policy(0, 0)).pages;
    assert!(
        freed > 0 && freed.is_multiple_of(16) && freed <= 64,
        "{freed}"
    );
    assert_eq!(pages.residency().resident(), 0);
}

#[test]
fn smaller_blocks_than_the_order_stay() {
    let pages = boot(1 << 14);
    let halves: Vec<Pfn> = (0..4).map(|_| use_block(&pages, 9)).collect();
    // Two halves of one block, and one of another, whose buddy stays in use.
    give_pages(&pages, &halves[..3], 9);
    assert_eq!(pages.trim(policy(0, MAX_ORDER)).pages, 1024);
    assert_eq!(pages.trim(policy(0, MAX_ORDER)).pages, 0);
    assert_eq!(pages.trim(policy(0, 9)).pages, 512);
    assert_eq!(read(&pages, halves[3].0), 1, "in use");
    pages.free_number(halves[3], 9).expect("allocated");
    let huge = TrimPolicy::huge_pages(pages.machine().topology(), 0);
    assert_eq!(huge.min_order, 9);
    // Merged with its vacant buddy, so it is half of a block of order 10.
    assert_eq!(pages.trim(huge).pages, 512);
}

#[test]
fn what_is_to_be_kept_stays() {
    let pages = boot(1 << 14);
    let blocks: Vec<Pfn> = (0..8).map(|_| use_block(&pages, MAX_ORDER)).collect();
    give_pages(&pages, &blocks, MAX_ORDER);
    assert_eq!(pages.trim(policy(u64::MAX, 0)).pages, 0);
    assert_eq!(pages.trim(policy(3000, MAX_ORDER)).pages, 5 * 1024);
    assert_eq!(pages.residency().resident_free, 3 * 1024);
    // What stayed is used first.
    for _ in 0..3 {
        let block = pages.alloc(MAX_ORDER, None).expect("memory");
        assert_eq!(read(&pages, block.0), 1, "a block with memory");
    }
}

/// A block of order 10 that was given back; parts of these orders were used again and freed.
fn boot_with_a_used_part(orders: &[u32]) -> Rc<PageAllocator<Interrupted>> {
    let machine = Interrupted::new(Setup::of_pages(1 << 12).machine(), 1);
    let pages = PageAllocator::new(machine, Era::V6_18).expect("a page allocator");
    let block = pages.alloc(MAX_ORDER, None).expect("memory");
    pages.free_number(block, MAX_ORDER).expect("allocated");
    assert_eq!(pages.trim(policy(0, 0)).pages, 1024);
    let alloc = |&order| (pages.alloc(order, None).expect("memory"), order);
    let parts: Vec<(Pfn, u32)> = orders.iter().map(alloc).collect();
    for (part, order) in parts {
        pages.free_number(part, order).expect("allocated");
    }
    Rc::new(pages)
}

/// While the machine takes a part of a block back, the whole block counts as in use for others, its
/// units without memory too.
#[test]
fn the_books_are_right_while_a_block_is_taken_back() {
    let pages = boot_with_a_used_part(&[4]);
    let before = pages.residency();
    assert_eq!((before.resident_free, before.vacant), (16, 1008));
    let while_taken = Rc::new(Cell::new(0));
    let handler = {
        let (pages, while_taken) = (Rc::downgrade(&pages), Rc::clone(&while_taken));
        move || {
            let Some(pages) = pages.upgrade() else { return };
            let now = pages.residency();
            if now.pages == 0 {
                return; // The interrupted code holds the zone's lock.
            }
            let known = now.untouched + now.vacant + now.resident_free;
            assert!(known <= now.pages && now.resident_free <= 16, "{now:?}");
            assert_eq!(pages.trim(policy(16, 0)).pages, 0, "no more than is kept");
            if now.vacant == 0 {
                assert_eq!((now.resident_free, now.resident()), (0, 1024));
                while_taken.set(while_taken.get() + 1);
            }
        }
    };
    pages.machine().interrupt(1000, Box::new(handler));
    let trimmed = pages.trim(policy(0, 0));
    pages.machine().quiet();
    assert!(while_taken.get() >= 2, "before the release and after it");
    assert_eq!(
        (trimmed.pages, trimmed.blocks, trimmed.refused),
        (16, 1, 0),
        "what had no memory is not given back"
    );
    let after = pages.residency();
    assert_eq!((after.resident(), after.vacant), (0, 1024));
    assert_eq!(
        pages.check_consistency().map(|census| census.buddy),
        Ok(1024)
    );
}

/// Pages that the machine keeps still have memory, and pages without memory still have none.
#[test]
fn a_refusal_leaves_the_books_as_they_were() {
    // The first unit and the next but one with its neighbour: two ranges.
    let pages = boot_with_a_used_part(&[4, 5]);
    let books = || {
        let now = pages.residency();
        (now.resident_free, now.vacant, now.resident())
    };
    assert_eq!(books(), (48, 976, 48));
    pages.machine().refuse_releases(2);
    let trimmed = pages.trim(policy(0, 0));
    assert_eq!((trimmed.pages, trimmed.blocks, trimmed.refused), (0, 0, 1));
    assert_eq!(books(), (48, 976, 48));
    pages.machine().refuse_releases(1);
    assert_eq!(pages.trim(policy(0, 0)).pages, 32, "the second range only");
    assert_eq!(books(), (16, 1008, 16));
    assert_eq!(pages.trim(policy(0, 0)).pages, 16);
    assert_eq!(books(), (0, 1024, 0));
    assert_eq!(pages.trim(policy(0, 0)), Default::default());
    assert_eq!(books(), (0, 1024, 0));
}

/// On, a free that reaches the zone gives one block back; a drain gives all back. What was needed again stays, and goes by
/// halves with the seconds.
#[test]
fn the_automatic_rule_is_kept() {
    let pages = boot(1 << 15);
    assert_eq!(pages.auto_trim_policy(), None);
    let rule = policy(2048, MAX_ORDER);
    let use_and_free = || {
        let blocks: Vec<Pfn> = (0..8).map(|_| use_block(&pages, MAX_ORDER)).collect();
        give_pages(&pages, &blocks, MAX_ORDER);
    };
    use_and_free();
    assert_eq!(
        (pages.drain_all(), pages.residency().released),
        (0, 0),
        "off"
    );
    pages.set_auto_trim(Some(rule));
    assert_eq!(pages.auto_trim_policy(), Some(rule));
    assert_eq!(
        (pages.drain_all(), pages.residency().resident_free),
        (0, 2048)
    );
    // Eight blocks of 1024 pages; six blocks were given back before.
    use_and_free();
    let free = |second: u64| {
        pages.machine().advance_to(second * 1_000_000_000);
        pages.drain_all();
        pages.residency().resident_free
    };
    assert_eq!(pages.residency().resident_free, 8192);
    let halved = [1, 2, 3, 30].map(free);
    // At the first of these 6144 pages are missed; only whole blocks go back.
    assert_eq!(halved, [5120, 4096, 3072, 2048]);
    let once = |order| give_pages(&pages, [use_block(&pages, order)].as_slice(), order);
    once(MAX_ORDER);
    assert_eq!(
        pages.residency().resident_free,
        2048,
        "one block for each free"
    );
    // Single pages, more than were ever used: the free that overflows the CPU's list is the one that counts.
    let released = pages.residency().released;
    let mut slots = vec![None; 16384];
    while pages.alloc_bulk(None, &mut slots) < slots.len() {}
    assert_eq!(pages.free_numbers(&mut slots), Ok(()));
    assert!(pages.residency().released > released);
    pages.set_auto_trim(None);
    let before = pages.residency().released;
    use_and_free();
    assert_eq!(
        (pages.drain_all(), pages.residency().released),
        (0, before),
        "off again"
    );
}

/// A heap gives back the empty slabs of its caches, and at a reap what the rule says.
#[test]
fn a_heap_gives_its_slabs_back() {
    let heap = scenario::boot::<Slub>(Era::V6_18, Setup::of_pages(1 << 15));
    let fill = || {
        let objects: Vec<_> = (0..20_000)
            .map(|_| heap.kmalloc(1000, None).expect("memory"))
            .collect();
        for object in objects {
            kfree(&heap, object).expect("allocated");
        }
    };
    fill();
    let used = heap.pages().residency();
    let trimmed = heap.trim(policy(0, 0));
    assert!(
        trimmed.pages * 10 > used.resident() * 9,
        "{trimmed:?} of {used:?}"
    );
    fill();
    heap.pages().set_auto_trim(Some(policy(100, 4)));
    let before = heap.pages().residency();
    assert!(before.resident_free > 100, "{before:?}");
    heap.reap();
    let after = heap.pages().residency();
    assert!(after.resident_free <= 116, "{after:?}");
}

/// Random use: every page is where it should be, what is vacant reads as zero, and every page that
/// is not zero is known to be resident.
#[test]
fn random_use_keeps_the_books() {
    for seed in 0..20 {
        let faults = if seed % 5 == 4 { 100 } else { 0 };
        let setup = Setup {
            cpus: 3,
            nodes: 1 + (seed % 2) as u32,
            slot_per_mille: faults,
            remote_per_mille: faults,
            seed,
            ..Setup::of_pages(12_000)
        };
        let pages = boot_pages(Era::V6_18, setup);
        let mut rng = Rng::new(seed);
        let mut live: Vec<(Pfn, u32)> = Vec::new();
        for _ in 0..600 {
            pages.machine().run_on(CpuId(rng.below(3) as u32));
            match rng.below(10) {
                0..5 => {
                    let order = rng.below(11) as u32;
                    if let Some(pfn) = pages.alloc(order, None) {
                        (pfn.0..pfn.0 + (1 << order)).for_each(|page| write(&pages, page, 9));
                        live.push((pfn, order));
                    }
                }
                5..9 if !live.is_empty() => {
                    let (pfn, order) = live.swap_remove(rng.below(live.len() as u64) as usize);
                    pages.free_number(pfn, order).expect("allocated");
                }
                _ => {
                    let before = pages.residency();
                    let keep = rng.below(3000);
                    let trimmed = pages.trim(policy(keep, rng.below(11) as u32));
                    let after = pages.residency();
                    assert_eq!(after.released - before.released, trimmed.pages);
                    let dirty = (0..pages.pages())
                        .filter(|&page| read(&pages, page) != 0)
                        .count();
                    assert!(dirty as u64 <= after.resident(), "{dirty} of {after:?}");
                }
            }
            let in_use: u64 = live.iter().map(|&(_, order)| 1 << order).sum();
            let census = loop {
                match pages.check_consistency() {
                    Err(PageInconsistency::Busy(_)) => (),
                    census => break census.expect("consistent"),
                }
            };
            assert_eq!(census.allocated, in_use);
            let residency = pages.residency();
            assert_eq!(
                residency.resident(),
                in_use + census.pcp + residency.resident_free,
                "{residency:?}"
            );
        }
        assert!(live.iter().all(|&(pfn, _)| read(&pages, pfn.0) == 9));
        for (pfn, order) in live.drain(..) {
            pages.free_number(pfn, order).expect("allocated");
        }
        while pages.drain_all() > 0 {}
        pages.trim(policy(0, 0));
        let dirty = (0..pages.pages())
            .filter(|&page| read(&pages, page) != 0)
            .count();
        let bytes = pages.machine().counters().released_bytes;
        assert_eq!(bytes, pages.residency().released * 4096);
        // What is left is in the last blocks, which are smaller than a unit.
        assert!(dirty < 2 * 16, "{dirty} pages keep their contents");
    }
}
