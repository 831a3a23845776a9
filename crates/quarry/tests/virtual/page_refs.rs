//! Reference counts of allocated blocks.

use crate::prelude::*;

fn boot() -> Pages {
    boot_pages(Era::V6_18, Setup::of_pages(4096).on(2, 1))
}

#[test]
fn a_shared_block_is_not_freed() {
    let pages = boot();
    let block = pages.alloc(2, None).unwrap();
    pages.get_number(block).unwrap();
    let shared = PageError::Referenced {
        pfn: block,
        count: 2,
    };
    assert_eq!(pages.free_number(block, 2), Err(shared));
    let single = pages.alloc(0, None).unwrap();
    pages.get_number(single).unwrap();
    let mut slots = [Some(single), None];
    assert!(matches!(
        pages.free_numbers(&mut slots),
        Err(PageError::Referenced { count: 2, .. })
    ));
    assert_eq!(slots[0], Some(single), "it stays the caller's");
    assert_eq!(pages.page_count(block), 2, "nothing has changed");
    for pfn in [block, single] {
        assert_eq!(pages.put_number(pfn), Ok(false));
    }
    assert_eq!(pages.free_number(block, 2), Ok(()));
    assert_eq!(pages.free_number(single, 0), Ok(()));
    assert_eq!(pages.check_consistency().unwrap().allocated, 0);
}

#[test]
fn references_to_what_is_not_allocated_are_refused() {
    let pages = boot();
    let block = pages.alloc(1, None).unwrap();
    let inside = Pfn(block.0 + 1);
    let foreign = Pfn(u32::MAX);
    let untouched = Pfn(pages.pages() - 1);
    type Act = fn(&Pages, Pfn) -> Result<(), PageError>;
    let acts: [Act; 2] = [
        |pages, pfn| pages.get_number(pfn),
        |pages, pfn| pages.put_number(pfn).map(drop),
    ];
    for act in acts {
        assert_eq!(act(&pages, foreign), Err(PageError::Foreign(foreign)));
        for (pfn, kind) in each([(untouched, PageKind::Untouched), (inside, PageKind::Tail)]) {
            match act(&pages, pfn) {
                Err(PageError::NotAllocated(at, _)) => assert_eq!(at, pfn),
                other => panic!("{kind:?}: {other:?}"),
            }
            assert_eq!(pages.page_count(pfn), 0);
        }
    }
    assert_eq!(pages.page_count(foreign), 0);
    pages.free_number(block, 1).unwrap();
    let again = Err(PageError::NotAllocated(block, PageKind::Pcp));
    assert_eq!(pages.put_number(block), again.map(|()| true));
    assert_eq!(pages.get_number(block), again);
}

/// A block's next life begins with one reference, whatever became of the last.
#[test]
fn counts_do_not_outlive_their_block() {
    let pages = boot();
    let mut rng = Rng::new(7);
    let mut live: Vec<(Pfn, u32, u32)> = Vec::new();
    for _ in 0..20_000 {
        let n = rng.below(4);
        if live.is_empty() || (n == 0 && live.len() < 64) {
            let order = rng.below(4) as u32;
            let block = pages.alloc(order, None).unwrap();
            assert_eq!(pages.page_count(block), 1);
            live.push((block, order, 1));
            continue;
        }
        let at = rng.below(live.len() as u64) as usize;
        let (block, order, count) = &mut live[at];
        assert_eq!(pages.page_count(*block), *count);
        if n == 1 {
            pages.get_number(*block).unwrap();
            *count += 1;
        } else if n == 2 && *count == 1 {
            pages.free_number(*block, *order).unwrap();
            live.swap_remove(at);
        } else {
            *count -= 1;
            assert_eq!(pages.put_number(*block), Ok(*count == 0));
            if *count == 0 {
                live.swap_remove(at);
            }
        }
    }
    let pages_live: u64 = live.iter().map(|&(_, order, _)| 1 << order).sum();
    assert_eq!(pages.check_consistency().unwrap().allocated, pages_live);
}
