//! Bulk calls of the page allocator, case by case.

use crate::prelude::*;

/// Pages of a megabyte.
const MIB: u32 = 256;

const STRANGER: Pfn = Pfn(u32::MAX);

#[test]
fn filled_slots_are_skipped_and_counted_from_the_start() {
    let pages = boot_pages(Era::V6_18, Setup::of_pages(64 * MIB));
    let mut slots = [Some(STRANGER), None, Some(STRANGER), None, Some(STRANGER)];
    assert_eq!(pages.alloc_bulk(None, &mut slots), 5);
    assert_eq!(slots.iter().flatten().count(), 5);
    let strangers = slots.iter().filter(|&&slot| slot == Some(STRANGER)).count();
    assert_eq!((strangers, pages.stats().allocs()), (3, 2));

    assert_eq!(pages.alloc_bulk(None, &mut slots), 5, "nothing is missing");
    assert_eq!(pages.alloc_bulk(None, &mut []), 0);
    assert_eq!(pages.stats().allocs(), 2);
    assert_eq!(
        pages.alloc_bulk(Some(NodeId(1)), &mut [None]),
        0,
        "no such node"
    );
}

/// One hold of the CPU's lists for 64 pages, and of the zone lock once per refill.
#[test]
fn an_array_takes_one_hold() {
    let pages = boot_pages(Era::V5_9, Setup::of_pages(1024 * MIB));
    pages.machine().reset_counters();
    let mut slots = [None; 64];
    assert_eq!(pages.alloc_bulk(None, &mut slots), 64);
    let counters = pages.machine().counters();
    let refills = pages.stats().pcp.refills;
    assert_eq!(
        (counters.slot_tries, refills),
        (1, 2),
        "63 pages per refill"
    );
    assert_eq!(counters.locks(LockClass::Zone), refills);

    pages.machine().reset_counters();
    assert_eq!(pages.free_numbers(&mut slots), Ok(()));
    assert_eq!(slots, [None; 64]);
    assert_eq!(
        pages.machine().counters().slot_tries,
        2,
        "32 pages per hold"
    );

    let newer = boot_pages(Era::V6_18, Setup::of_pages(1024 * MIB));
    assert_eq!(newer.alloc_bulk(None, &mut slots), 64);
    newer.machine().reset_counters();
    assert_eq!(newer.free_numbers(&mut slots), Ok(()));
    assert_eq!(
        newer.machine().counters().slot_tries,
        3,
        "31 pages per hold"
    );
}

/// In a process one hold of the CPU's lists frees what their array takes, and one hold of the zone
/// lock moves 32 pages.
#[test]
fn a_process_has_other_holds_than_a_kernel() {
    let config = PageConfig::in_process(Era::V6_18);
    let pages = configured_pages(Setup::of_pages(1024 * MIB), &config);
    let mut slots = [None; 4096];
    while pages.alloc_bulk(None, &mut slots) < slots.len() {}
    let stats = pages.stats().pcp;
    assert_eq!((stats.refills, stats.refilled), (128, 4096));
    // The free of the first pages looks at `high`.
    assert_eq!(pages.free_numbers(&mut slots[..64]), Ok(()));
    for (hold, free) in slots[64..].chunks_mut(128).take(3).enumerate() {
        pages.machine().reset_counters();
        assert_eq!(pages.free_numbers(free), Ok(()));
        assert_eq!(pages.machine().counters().slot_tries, 1, "hold {hold}");
    }
}

/// No call moves more than 32 single pages or two larger blocks, whatever was freed before:
/// a huge page counts as a spree of 512, and 6.1 gives all back at the end of one.
#[test]
fn a_process_moves_little_at_a_time() {
    for era in each([Era::V6_1, Era::V6_18, Era::V7_0]) {
        let config = PageConfig::in_process(era);
        let pages = configured_pages(Setup::of_pages(1024 * MIB), &config);
        let singles = take_pages(&pages, 0, 40_000);
        let huge = take_pages(&pages, 9, 2);
        let larger = take_pages(&pages, 2, 2000);
        let orders = [(9, &huge), (0, &singles), (2, &larger)];
        for (order, blocks) in orders {
            for &pfn in blocks {
                let before = pages.stats().pcp.drained;
                pages.free_number(pfn, order).unwrap();
                let moved = pages.stats().pcp.drained - before;
                assert!(moved <= 32, "{moved} blocks for one of order {order}");
            }
        }
        assert!(pages.stats().pcp.drained > 1000);
        pages.vmstat_update();
        pages.check_consistency().expect("consistency");
    }
}

/// On a machine with steps a bulk call for n pages gives and takes what n single calls do, and leaves the same
/// behind; while the CPU's array suffices, the lists are not held. (From 5.14 on single allocations, and
/// they alone, also halve what frees count: `page_drains.rs`.)
#[test]
fn a_bulk_call_for_n_pages_is_n_steps() {
    for era in each([Era::V4_13, Era::V5_9, Era::V5_13]) {
        let [process, kernel] = [PageConfig::in_process(era), PageConfig::new(era)];
        for (nodes, config) in each([(1, &process), (2, &process), (1, &kernel)]) {
            let stepped = compare_with_single_calls(nodes, config);
            // Watermarks have to be looked at.
            let least = if config == &kernel { 100 } else { 1000 };
            assert!(stepped > least, "{stepped}");
        }
    }
}

/// Does the same to two page allocators, to one of them singly. Returns the number of bulk calls that took the slot
/// once, as steps do, and not a second time for the lists.
fn compare_with_single_calls(nodes: u32, config: &PageConfig) -> u32 {
    let [bulk, single] = [(); 2].map(|()| {
        let machine = Stepping(Setup::of_pages(1 << 18).on(2, nodes).machine());
        PageAllocator::with_config(machine, config).expect("a page allocator")
    });
    let both = [&bulk, &single];
    let mut rng = Rng::new(11);
    let (mut held, mut shared, mut stepped) = (Vec::new(), Vec::new(), 0);
    for _ in 0..4000 {
        let cpu = CpuId(u32::from(rng.below(50) == 0));
        for pages in both {
            pages.machine().0.run_on(cpu);
        }
        let holds = || {
            bulk.machine()
                .0
                .counters()
                .touches(Line::Pcp, Access::Write)
        };
        let count = 1 + rng.below(80) as usize;
        match rng.below(16) {
            0..7 if held.len() < 4000 => {
                let before = holds();
                let mut slots = vec![None; count];
                assert_eq!(bulk.alloc_bulk(None, &mut slots), count);
                stepped += u32::from(holds() == before + 1);
                let singly: Vec<_> = (0..count).map(|_| single.alloc(0, None)).collect();
                assert_eq!(slots, singly);
                held.append(&mut slots);
            }
            7 => {
                let options = block_of(0, MigrateType::Movable);
                let [page, other] = both.map(|pages| pages.alloc_with(&options));
                assert_eq!(page, other);
                held.push(page);
            }
            8 if !held.is_empty() => {
                let pfn = held[rng.below(held.len() as u64) as usize].expect("filled");
                for pages in both {
                    pages.get_number(pfn).expect("allocated");
                }
                shared.push(pfn);
            }
            9 => {
                for pfn in shared.drain(..) {
                    let put = both.map(|pages| pages.put_number(pfn));
                    assert_eq!(put, [Ok(false); 2]);
                }
            }
            _ => {
                for _ in 0..rng.below(3) * u64::from(!held.is_empty()) {
                    let [a, b] = [(); 2].map(|()| rng.below(held.len() as u64) as usize);
                    held.swap(a, b);
                }
                let before = holds();
                let mut slots = held.split_off(held.len().saturating_sub(count));
                let (mut kept, mut first) = (slots.clone(), Ok(()));
                let freed = bulk.free_numbers(&mut slots);
                stepped += u32::from(holds() == before + 1);
                for slot in &mut kept {
                    let freed = slot.map_or(Ok(()), |pfn| single.free_number(pfn, 0));
                    first = first.and(freed);
                    *slot = slot.filter(|_| freed.is_err());
                }
                assert_eq!((&slots, freed), (&kept, first));
                held.extend(slots.into_iter().filter(Option::is_some));
            }
        }
        let [a, b] = both.map(|pages| pages.stats());
        assert_eq!(a, b);
    }
    stepped
}

/// A hold ends where the next page is another zone's.
#[test]
fn a_hold_is_one_zones() {
    let pages = boot_pages(Era::V6_18, Setup::of_pages(64 * MIB).on(2, 2));
    let [near, far] = [0, 1].map(|node| {
        let mut slots = [None; 4];
        assert_eq!(pages.alloc_bulk(Some(NodeId(node)), &mut slots), 4);
        slots
    });
    for (node, slots) in [near, far].iter().enumerate() {
        let mut pfns = slots.iter().flatten();
        assert!(pfns.all(|&pfn| pages.node_of(pfn) == Some(NodeId(node as u32))));
    }
    let mut mixed: Vec<_> = near.into_iter().chain(far).collect();
    pages.machine().reset_counters();
    assert_eq!(pages.free_numbers(&mut mixed), Ok(()));
    assert_eq!(pages.machine().counters().slot_tries, 2);
    check_empty(&pages);
}

/// Nothing past what was filled is touched when memory runs out, and the rest can be used.
#[test]
fn out_of_memory_leaves_the_rest_of_the_array() {
    for (cpus, nodes) in [(1, 1), (4, 2)] {
        let pages = boot_pages(Era::V6_18, Setup::of_pages(2500).on(cpus, nodes));
        let mut slots = vec![None; 2600];
        slots[2550] = Some(STRANGER);
        let mut filled = 0;
        loop {
            let now = pages.alloc_bulk(None, &mut slots);
            if now == filled {
                break;
            }
            filled = now;
        }
        assert_eq!(filled, 2500, "the last page is found");
        let (got, rest) = slots.split_at(2500);
        assert!(got.iter().all(Option::is_some));
        assert_eq!(rest[50], Some(STRANGER));
        assert_eq!(rest.iter().flatten().count(), 1);
        slots[2550] = None;
        assert_eq!(pages.free_numbers(&mut slots), Ok(()));
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(pages.stats().free_pages, 2500);
    }
}

#[test]
fn mistakes_keep_their_slots_and_the_first_is_reported() {
    let pages = boot_pages(Era::V6_18, Setup::of_pages(64 * MIB));
    let block = pages.alloc(2, None).expect("memory");
    let mut slots = [None; 4];
    assert_eq!(pages.alloc_bulk(None, &mut slots), 4);
    let double = slots[3].expect("filled");
    assert_eq!(pages.free_number(double, 0), Ok(()));
    let before = pages.stats().frees();
    let mut mixed = [
        slots[0],
        Some(double),
        Some(STRANGER),
        None,
        Some(block),
        slots[1],
        slots[1],
    ];
    assert_eq!(
        pages.free_numbers(&mut mixed),
        Err(PageError::NotAllocated(double, PageKind::Pcp))
    );
    let left = [
        None,
        Some(double),
        Some(STRANGER),
        None,
        Some(block),
        None,
        slots[1],
    ];
    assert_eq!(mixed, left);
    assert_eq!(pages.stats().frees() - before, 2);
    let foreign = &mut mixed[2..3];
    assert_eq!(
        pages.free_numbers(foreign),
        Err(PageError::Foreign(STRANGER))
    );
    let wrong = PageError::WrongOrder {
        pfn: block,
        given: 0,
        allocated: 2,
    };
    assert_eq!(pages.free_numbers(&mut mixed[4..5]), Err(wrong));
    assert_eq!(pages.free_number(block, 2), Ok(()));
    assert_eq!(pages.free_number(slots[2].expect("filled"), 0), Ok(()));
    check_empty(&pages);
}
