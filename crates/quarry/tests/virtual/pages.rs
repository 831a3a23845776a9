//! The page allocator against the model, and its limits.

use crate::model::pages::check_pages;
use crate::prelude::*;
use quarry_core::page::ORDERS;

/// Scripts that a soak tries a property on.
const CASES: u32 = 100;

/// One script in this many runs twice.
const TWICE: u64 = 4;

/// The answers are the model's, and the same script counts the same twice.
fn agrees_with_the_model(name: &str, era: Era) {
    let config = PageConfig::new(era);
    let inputs = (setups(), page_scripts(60));
    check_property(name, CASES, inputs, |(setup, script)| {
        let first = check_pages(&setup, &config, &script)?;
        if setup.seed.is_multiple_of(TWICE) {
            let second = check_pages(&setup, &config, &script)?;
            ensure_eq!(first, second, "two runs of one script");
        }
        Ok(())
    });
}

macro_rules! agree {
    ($($name:ident: $era:ident,)*) => {$(
        #[test]
        fn $name() {
            agrees_with_the_model(stringify!($name), Era::$era);
        }
    )*};
}

agree! {
    pages_2_6_22_agree_with_the_model: V2_6_22,
    pages_2_6_24_agree_with_the_model: V2_6_24,
    pages_4_13_agree_with_the_model: V4_13,
    pages_5_9_agree_with_the_model: V5_9,
    pages_6_1_agree_with_the_model: V6_1,
    pages_6_18_agree_with_the_model: V6_18,
}

/// A kernel's zones, all of whose memory can be used when it is scarce.
#[test]
fn zones_agree_with_the_model() {
    let scarce = (4097u32..9000, 0usize..Era::REFERENCE.len());
    check_property(
        "zones_agree_with_the_model",
        CASES,
        (setups(), page_scripts(60), scarce),
        |(setup, script, (pages, era))| {
            let mut setup = setup;
            if setup.pages != 0 {
                setup.pages = pages;
            }
            // As in `setups`: among many slots one would always hide.
            if setup.cpus * (setup.nodes + 2) > 8 {
                setup.remote_per_mille = 0;
            }
            let config = PageConfig {
                zones: ZoneLayout::Kernel,
                min_free: if setup.pages == 0 {
                    MinFree::Computed
                } else {
                    MinFree::Nothing
                },
                ..PageConfig::new(Era::REFERENCE[era])
            };
            check_pages(&setup, &config, &script).map(|_| ())
        },
    );
}

/// Zones of any size, with pages of no zone between them.
#[test]
fn sized_zones_agree_with_the_model() {
    let sizes = (0u32..3000, 0u32..5000, 1u32..5000);
    check_property(
        "sized_zones_agree_with_the_model",
        CASES,
        (
            setups(),
            page_scripts(60),
            (sizes, 0usize..Era::REFERENCE.len()),
        ),
        |(setup, script, ((dma, dma32, normal), era))| {
            let sizes = [dma, dma32, normal];
            let setup = Setup {
                pages: ZoneLayout::pages_of(&sizes) as u32,
                nodes: 1,
                // As in `setups`: among many slots one would always hide.
                remote_per_mille: 0,
                ..setup
            };
            let config = PageConfig {
                zones: ZoneLayout::Sized(sizes),
                ..PageConfig::new(Era::REFERENCE[era])
            };
            check_pages(&setup, &config, &script).map(|_| ())
        },
    );
}

/// Memory of odd sizes on several nodes is handed out to the last page, once each, and comes back
/// whole.
#[test]
fn memory_is_used_to_the_last_page_and_recovers() {
    for (pages_in_all, cpus, nodes) in [
        (1, 1, 1),
        (7, 2, 1),
        (1023, 2, 2),
        (2500, 4, 2),
        (5000, 3, 3),
    ] {
        for era in Era::REFERENCE {
            let pages = boot_pages(era, Setup::of_pages(pages_in_all).on(cpus, nodes));
            let at_boot = pages.stats().free_blocks;
            for _ in each(0..2) {
                let mut got = Vec::new();
                while let Some(pfn) = pages.alloc(0, None) {
                    pages.machine().run_on(CpuId(got.len() as u32 % cpus));
                    got.push(pfn);
                }
                got.sort_unstable();
                let all: Vec<Pfn> = (0..pages_in_all).map(Pfn).collect();
                assert_eq!(got, all);
                assert_eq!(pages.stats().free_pages, 0);
                for (at, pfn) in got.into_iter().enumerate() {
                    pages.machine().run_on(CpuId(at as u32 * 7 % cpus));
                    pages
                        .free_number(pfn, 0)
                        .expect("a page that was allocated");
                }
                assert_eq!(pages.drain_all(), 0);
                assert_eq!(pages.stats().free_blocks, at_boot, "buddies merged");
                check_empty(&pages);
            }
        }
    }
}

/// Freeing every second page leaves single pages only; freeing the rest merges all of them.
#[test]
fn buddies_merge_as_soon_as_both_are_free() {
    let pages = boot_pages(Era::V2_6_35, Setup::of_pages(1024));
    assert_eq!(
        pages.pcp_params(NodeId(0)).map(|params| params.high),
        Some(0)
    );
    let all: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(0, None)).collect();
    assert_eq!(all.len(), 1024);
    let (even, odd): (Vec<Pfn>, Vec<Pfn>) = all.into_iter().partition(|pfn| pfn.0 % 2 == 0);
    give_pages(&pages, &even, 0);
    let stats = pages.stats();
    assert_eq!((stats.free_blocks[0], stats.merges), (512, 0));
    assert_eq!(pages.alloc(1, None), None, "fragmented");
    give_pages(&pages, &odd, 0);
    let stats = pages.stats();
    let mut one_block = [0; ORDERS];
    one_block[MAX_ORDER as usize] = 1;
    assert_eq!((stats.free_blocks, stats.merges), (one_block, 1023));
}

/// Splitting gives the lower half out and keeps the upper ones; merging undoes it.
#[test]
fn a_split_keeps_the_upper_halves() {
    let pages = boot_pages(Era::V5_9, Setup::of_pages(1024));
    let block = pages.alloc(4, None).expect("memory");
    assert_eq!(block, Pfn(0));
    let stats = pages.stats();
    let halves: [u64; ORDERS] = std::array::from_fn(|order| u64::from((4..10).contains(&order)));
    assert_eq!((stats.free_blocks, stats.splits), (halves, 6));
    assert_eq!(pages.alloc(4, None), Some(Pfn(16)), "the buddy comes next");
    pages.free_number(Pfn(16), 4).expect("allocated");
    pages.free_number(Pfn(0), 4).expect("allocated");
    assert_eq!(pages.stats().free_blocks[MAX_ORDER as usize], 1);
}

/// A refill hands pages out by address; the page that was freed last comes first.
#[test]
fn per_cpu_lists_are_stacks() {
    let pages = boot_pages(Era::V4_13, Setup::of_pages(1 << 18));
    let got = take_pages(&pages, 0, 186);
    assert!(got.is_sorted());
    give_pages(&pages, &got, 0);
    assert_eq!(pages.alloc(0, None), got.last().copied());
}

/// Only order 0 is listed until 5.9, orders 0 to 3 and that of huge pages from 6.1 on.
#[test]
fn higher_orders_pass_the_lists_by() {
    for (era, largest) in each([(Era::V5_9, 0), (Era::V6_1, 3), (Era::V6_18, 3)]) {
        let pages = boot_pages(era, Setup::of_pages(1 << 16));
        for order in each(0..=MAX_ORDER) {
            let before = pages.stats();
            let block = pages.alloc(order, None).expect("memory");
            pages.free_number(block, order).expect("allocated");
            let after = pages.stats();
            let listed = after.pcp.allocs - before.pcp.allocs + after.pcp.frees - before.pcp.frees;
            let direct = after.allocs() + after.frees() - before.allocs() - before.frees() - listed;
            let huge = largest > 0 && order == 9;
            let expected = if order <= largest || huge {
                (2, 0)
            } else {
                (0, 2)
            };
            assert_eq!((listed, direct), expected);
        }
    }
}

/// The block's own order in the low bits of a larger one does not help.
#[test]
fn orders_beyond_the_largest_are_refused() {
    let pages = boot_pages(Era::V6_18, Setup::of_pages(2048));
    for order in [0, 3, MAX_ORDER] {
        let block = pages.alloc(order, None).expect("memory");
        let before = pages.stats();
        let large = [MAX_ORDER + 1, 1 << 8, 1 << 24, 1 << 31];
        for given in large
            .map(|large| large | order)
            .into_iter()
            .chain([1 << 24, u32::MAX])
        {
            let wrong = Err(PageError::WrongOrder {
                pfn: block,
                given,
                allocated: order,
            });
            assert_eq!(pages.free_number(block, given), wrong);
        }
        assert_eq!(pages.stats(), before);
        assert_eq!(pages.free_number(block, order), Ok(()));
    }
}

/// A refused free names the kind of the page; the model checks that wrong frees are refused at all.
#[test]
fn refusals_name_what_the_page_is() {
    let pages = boot_pages(Era::V6_18, Setup::of_pages(2048));
    let block = pages.alloc(3, None).expect("memory");
    let not_allocated = |pfn, kind| Err(PageError::NotAllocated(pfn, kind));
    let untouched = Pfn(2000);
    assert_eq!(
        pages.free_number(untouched, 0),
        not_allocated(untouched, PageKind::Untouched)
    );
    assert_eq!(pages.free_number(block, 3), Ok(()));
    assert_eq!(
        pages.free_number(block, 3),
        not_allocated(block, PageKind::Pcp)
    );
    assert_eq!(pages.drain_all(), 0);
    assert_eq!(
        pages.free_number(block, 3),
        not_allocated(block, PageKind::Buddy)
    );
    let nowhere = pages.alloc(0, Some(NodeId(1)));
    assert_eq!(nowhere, None, "there is no such node");
}

/// With a slot that is never free, everything goes to the zone, under its lock.
#[test]
fn a_busy_slot_leads_to_the_zone() {
    let pages = boot_pages(Era::V6_18, Setup::of_pages(4096).busy(1000));
    let mut slots = [None, Some(Pfn(u32::MAX)), None];
    assert_eq!(pages.alloc_bulk(None, &mut slots), 2, "one page is tried");
    assert_eq!(pages.alloc_bulk(None, &mut slots), 3);
    assert_eq!(slots[1], Some(Pfn(u32::MAX)));
    let stats = pages.stats();
    assert_eq!((stats.pcp.allocs, stats.direct_allocs), (0, 2));
    slots[1] = None;
    assert_eq!(pages.free_numbers(&mut slots), Ok(()));
    assert_eq!(
        (pages.stats().pcp.frees, pages.stats().direct_frees),
        (0, 2)
    );
}
