//! Blocks and sets of pages that their handles free.

use std::collections::BTreeSet;

use crate::model::setup::Setup;
use crate::model::steps::Stepping;
use quarry_core::era::Era;
use quarry_core::machine::{CpuId, Machine, NodeId};
use quarry_core::page::{
    AllocOptions, MigrateType, OwnedBlock, OwnedPages, PageAllocator, PageError, PageKind, Pfn,
};
use quarry_sim::Rng;

fn allocated<M: Machine>(pages: &PageAllocator<M>) -> u64 {
    let census = pages.check_consistency().expect("consistent");
    assert_eq!(census.in_hand, 0);
    census.allocated
}

/// Runs a test with and without single steps.
fn on_both(test: impl Fn(&dyn Fn(CpuId), &mut dyn Pages)) {
    let setup = Setup {
        cpus: 2,
        ..Setup::default()
    };
    for era in [Era::V2_6_24, Era::V4_13, Era::V6_18] {
        let pages = PageAllocator::new(setup.machine(), era).expect("a page allocator");
        test(&|cpu| pages.machine().run_on(cpu), &mut &pages);
        let stepping = Stepping(setup.machine());
        let pages = PageAllocator::new(stepping, era).expect("a page allocator");
        test(&|cpu| pages.machine().0.run_on(cpu), &mut &pages);
    }
}

/// What the tests do with a page allocator of whatever machine.
trait Pages {
    fn random_use(&mut self, go: &dyn Fn(CpuId));
    fn random_sets(&mut self, go: &dyn Fn(CpuId));
    fn mistakes(&mut self);
    fn mistakes_with_sets(&mut self);
}

impl<M: Machine> Pages for &PageAllocator<M> {
    fn random_use(&mut self, go: &dyn Fn(CpuId)) {
        let pages = *self;
        let mut rng = Rng::new(7);
        let mut held: Vec<OwnedBlock<'_, M>> = Vec::new();
        let (mut sum, mut mark) = (0, 0u8);
        for _ in 0..4000 {
            go(CpuId(rng.below(2) as u32));
            if held.len() < 300 && rng.below(3) > 0 {
                let order = if rng.below(8) > 0 {
                    0
                } else {
                    rng.below(4) as u32
                };
                let mut block = pages.alloc_owned(order).expect("memory");
                mark = mark.wrapping_add(1);
                block.as_uninit_bytes_mut().iter_mut().for_each(|byte| {
                    byte.write(mark);
                });
                sum += 1u64 << order;
                held.push(block);
            } else if !held.is_empty() {
                let mut block = held.swap_remove(rng.below(held.len() as u64) as usize);
                let bytes = block.as_uninit_bytes_mut();
                // SAFETY: all bytes were written when the block was allocated.
                let [first, last] =
                    [0, bytes.len() - 1].map(|at| unsafe { bytes[at].assume_init() });
                assert_eq!(first, last, "a block that two owners have");
                sum -= 1u64 << block.order();
                drop(block);
            }
        }
        assert_eq!(allocated(pages), sum);
        drop(held);
        assert_eq!(allocated(pages), 0);
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(pages.check_consistency().expect("consistent").pcp, 0);
    }

    /// Sets beside owned and plain pages, which all get each other's pages.
    fn random_sets(&mut self, go: &dyn Fn(CpuId)) {
        let pages = *self;
        let mut rng = Rng::new(11);
        let mut sets: Vec<OwnedPages<'_, M, 70>> = (0..6).map(|_| pages.owned_pages()).collect();
        let mut blocks = Vec::new();
        let mut plain: Vec<Option<Pfn>> = Vec::new();
        for round in 0..1200 {
            go(CpuId(rng.below(2) as u32));
            let set = &mut sets[rng.below(6) as usize];
            match rng.below(9) {
                0 | 1 => {
                    let before = set.len();
                    let len = set.fill();
                    assert_eq!(len, set.len());
                    assert!(len > before || before == 70, "memory");
                }
                2 | 3 => set.clear(),
                4 => blocks.extend(set.pop()),
                5 => {
                    let block = blocks.pop().or_else(|| pages.alloc_owned(0));
                    if let Err(back) = set.push(block.expect("memory")) {
                        assert_eq!(set.len(), 70);
                        blocks.push(back);
                    }
                }
                6 => {
                    let more = plain.len() + rng.below(80) as usize;
                    plain.resize(more, None);
                    while pages.alloc_bulk(None, &mut plain) < more {}
                }
                7 => {
                    let from = rng.below(plain.len() as u64 + 1) as usize;
                    assert_eq!(pages.free_bulk(&mut plain[from..]), Ok(()));
                    plain.truncate(from);
                }
                _ => {
                    let pfn = pages.alloc(0, None).expect("memory");
                    assert_eq!(pages.page_count(pfn), 1);
                    assert_eq!(pages.free(pfn, 0), Ok(()));
                }
            }
            if round % 16 == 0 {
                let in_sets = sets.iter().flat_map(OwnedPages::iter);
                let in_blocks = blocks.iter().map(OwnedBlock::pfn);
                let plain = plain.iter().flatten().copied();
                let all: Vec<Pfn> = in_sets.chain(in_blocks).chain(plain).collect();
                let different: BTreeSet<Pfn> = all.iter().copied().collect();
                assert_eq!(all.len(), different.len(), "a page that two have");
                assert_eq!(allocated(pages), all.len() as u64);
            }
            if rng.below(200) == 0 {
                assert_eq!(pages.drain_all(), 0);
            }
        }
        assert_eq!(pages.free_bulk(&mut plain), Ok(()));
        drop((sets, blocks));
        let stats = pages.stats();
        assert_eq!(stats.allocs(), stats.frees());
        assert_eq!(allocated(pages), 0);
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(pages.check_consistency().expect("consistent").pcp, 0);
    }

    /// Nobody else frees a page that is in a set, nor one that a set gave back.
    fn mistakes_with_sets(&mut self) {
        let pages = *self;
        let mut set = pages.owned_pages::<8>();
        assert!(set.is_empty() && set.pop().is_none() && set.address(0).is_none());
        // The first time `high` is looked at, and pages go back one by one.
        for _ in 0..3 {
            while set.fill() < 8 {}
            let numbers: Vec<Pfn> = set.iter().collect();
            let refused = |pfn: Pfn| {
                let by_number = pages.free(pfn, 0).expect_err("not the caller's");
                assert!(matches!(by_number, PageError::NotAllocated(at, _) if at == pfn));
                // SAFETY: nobody else frees the page.
                assert_eq!(unsafe { pages.free_exclusive(pfn, 0) }, Err(by_number));
                assert_eq!(pages.free_cold(pfn, 0), Err(by_number));
                assert_eq!(pages.free_bulk(&mut [None, Some(pfn)]), Err(by_number));
                assert_eq!(pages.get_page(pfn), Err(by_number));
                assert_eq!(pages.put_page(pfn), Err(by_number));
                by_number
            };
            for &pfn in &numbers {
                let error = refused(pfn);
                assert_eq!(error, PageError::NotAllocated(pfn, PageKind::Owned));
                assert!(error.to_string().contains("OwnedPages"));
            }
            assert_eq!(allocated(pages), 8);
            set.clear();
            for &pfn in &numbers {
                refused(pfn);
            }
            assert_eq!(allocated(pages), 0);
        }
        // What a set gave back is anybody's when it is handed out again.
        let mut slots = [None; 8];
        while pages.alloc_bulk(None, &mut slots) < 8 {}
        for pfn in slots.into_iter().flatten() {
            assert_eq!(pages.get_page(pfn), Ok(()));
            assert_eq!(pages.put_page(pfn), Ok(false));
            assert_eq!(pages.free(pfn, 0), Ok(()));
        }
        let large = pages.alloc_owned(1).expect("memory");
        let large = set.push(large).expect_err("two pages");
        for _ in 0..8 {
            let block = pages.alloc_owned(0).expect("memory");
            assert!(set.push(block).is_ok());
        }
        let block = pages.alloc_owned(0).expect("memory");
        drop(set.push(block).expect_err("full"));
        let bytes = set.as_uninit_bytes_mut(7).expect("the last page");
        bytes.iter_mut().for_each(|byte| {
            byte.write(1);
        });
        assert!(set.as_uninit_bytes_mut(8).is_none());
        drop((set, large));
        assert_eq!(allocated(pages), 0);
    }

    fn mistakes(&mut self) {
        let pages = *self;
        for order in [0, 0, 3] {
            let block = pages.alloc_owned(order).expect("memory");
            let pfn = block.pfn();
            let refused = PageError::NotAllocated(pfn, PageKind::Owned);
            assert_eq!(pages.free(pfn, order), Err(refused));
            assert_eq!(pages.free_cold(pfn, order), Err(refused));
            // SAFETY: nobody else frees the block.
            assert_eq!(unsafe { pages.free_exclusive(pfn, order) }, Err(refused));
            assert_eq!(pages.free_bulk_order(order, &mut [Some(pfn)]), Err(refused));
            assert_eq!(pages.get_page(pfn), Err(refused));
            assert_eq!(pages.put_page(pfn), Err(refused));
            assert_eq!(pages.page_count(pfn), 1);
            assert!(refused.to_string().contains("drop the OwnedBlock"));
            assert_eq!(allocated(pages), 1 << order);
            let raw = block.into_raw();
            assert_eq!(raw, pfn);
            assert_eq!(pages.free(pfn, order), Ok(()));
            assert_eq!(allocated(pages), 0);
        }
        assert!(pages.alloc_owned(11).is_none());
        let nowhere = AllocOptions {
            node: Some(NodeId(9)),
            ..AllocOptions::default()
        };
        assert!(pages.alloc_owned_with(&nowhere).is_none());
        let movable = AllocOptions {
            migratetype: MigrateType::Movable,
            ..AllocOptions::default()
        };
        let block = pages.alloc_owned_with(&movable).expect("memory");
        assert_eq!(allocated(pages), 1);
        drop(block);
        assert_eq!(allocated(pages), 0);
    }
}

#[test]
fn owned_blocks_come_back_when_dropped() {
    on_both(|go, pages| pages.random_use(go));
}

#[test]
fn sets_come_back_when_they_are_cleared() {
    on_both(|go, pages| pages.random_sets(go));
}

#[test]
fn sets_have_no_other_way_out() {
    on_both(|_, pages| pages.mistakes_with_sets());
}

/// A set takes one hold of the CPU's lists each way, whatever its pages are.
#[test]
fn a_set_takes_one_hold() {
    let pages = PageAllocator::new(Setup::default().machine(), Era::V6_18).expect("memory");
    let mut set = pages.owned_pages::<64>();
    // After the first time, which looks at `high`.
    set.fill();
    set.clear();
    pages.machine().reset_counters();
    for holds in [1, 3, 5] {
        assert_eq!(set.fill(), 64);
        assert_eq!(pages.machine().counters().slot_tries, holds);
        set.clear();
        assert_eq!(pages.machine().counters().slot_tries, holds + 1);
    }
}

/// Pages whose pageblock has become another type's go to that type's list, as all others do.
#[test]
fn a_set_goes_where_its_pageblocks_say() {
    let setup = Setup {
        pages: 4096,
        ..Setup::default()
    };
    let pages = PageAllocator::new(setup.machine(), Era::V6_18).expect("a page allocator");
    let movable = AllocOptions {
        migratetype: MigrateType::Movable,
        ..AllocOptions::default()
    };
    // All memory is movable but for what the set has.
    let mut set = pages.owned_pages::<64>();
    set.fill();
    set.clear();
    assert_eq!(set.fill(), 64);
    assert_eq!(pages.drain_all(), 0);
    let taken: Vec<Pfn> = core::iter::from_fn(|| pages.alloc_with(&movable)).collect();
    let retagged = |pfn: &Pfn| pages.migratetype_of(*pfn) == Some(MigrateType::Movable);
    assert_eq!(set.iter().filter(retagged).count(), 64, "the test's setup");
    set.clear();
    assert!(pages.alloc_with(&movable).is_some());
    let report = pages.pageset_report(0, CpuId(0), false).expect("CPU 0's");
    assert_eq!(report.count, 63);
    for pfn in taken {
        assert_eq!(pages.free(pfn, 0), Ok(()));
    }
}

#[test]
fn owned_blocks_have_no_other_way_out() {
    on_both(|_, pages| pages.mistakes());
}
