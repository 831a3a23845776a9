//! Blocks that their handles free.

use crate::prelude::*;
use quarry_core::page::OwnedBlock;

fn allocated<M: Machine>(pages: &PageAllocator<M>) -> u64 {
    let census = pages.check_consistency().expect("consistent");
    assert_eq!(census.in_hand, 0);
    census.allocated
}

/// Runs a test with and without single steps.
fn on_both(test: impl Fn(&dyn Fn(CpuId), &mut dyn Pages)) {
    let setup = Setup::DEFAULT.on(2, 1);
    for era in [Era::V2_6_24, Era::V4_13, Era::V6_18] {
        let pages = boot_pages(era, setup);
        test(&|cpu| pages.machine().run_on(cpu), &mut &pages);
        let stepping = Stepping(setup.machine());
        let pages = PageAllocator::new(stepping, era).expect("a page allocator");
        test(&|cpu| pages.machine().0.run_on(cpu), &mut &pages);
    }
}

/// The tests' work with a page allocator, of any machine.
trait Pages {
    fn random_use(&mut self, go: &dyn Fn(CpuId));
    fn mistakes(&mut self);
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

    fn mistakes(&mut self) {
        let pages = *self;
        for order in [0, 0, 3] {
            let block = pages.alloc_owned(order).expect("memory");
            let pfn = block.pfn();
            let refused = PageError::NotAllocated(pfn, PageKind::Owned);
            assert_eq!(pages.free_number(pfn, order), Err(refused));
            assert_eq!(pages.free_numbers(&mut [Some(pfn)]), Err(refused));
            assert_eq!(pages.get_number(pfn), Err(refused));
            assert_eq!(pages.put_number(pfn), Err(refused));
            assert_eq!(pages.page_count(pfn), 1);
            assert!(refused.to_string().contains("drop the OwnedBlock"));
            assert_eq!(allocated(pages), 1 << order);
            drop(block);
            assert_eq!(allocated(pages), 0);
        }
        assert!(pages.alloc_owned(11).is_none());
        let nowhere = AllocOptions {
            node: Some(NodeId(9)),
            ..AllocOptions::default()
        };
        assert!(pages.alloc_owned_with(&nowhere).is_none());
        let movable = block_of(0, MigrateType::Movable);
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
fn owned_blocks_have_no_other_way_out() {
    on_both(|_, pages| pages.mistakes());
}
