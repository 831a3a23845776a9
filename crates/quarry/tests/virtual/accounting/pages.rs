//! The page allocator: a list per CPU in front of a zone's free lists, under the zone's lock.
//!
//! One node, two CPUs, 64 MiB. `page` is a single page from the CPU's list, after one was freed there;
//! `block` is one of order 3, which is on the CPU's list from 5.14 on; `large` one of order 8, after
//! one was freed.

use super::{Recorded, compare};
use crate::prelude::*;

const TABLES: &str = "
pages 2.6.22
    page alloc: slot, write pcp 64, page_call, irq_save, write page_descriptor 64, free slot
    page free: slot, write pcp 64, page_call, irq_save, write page_descriptor 64, free slot
    block alloc: page_call, lock zone, irq_save, write zone 8, write zone 12, write page_descriptor
        8, zone_take, write page_descriptor 64, unlock zone
    block free: page_call, lock zone, irq_save, write zone 8, zone_give, read page_descriptor 64,
        write page_descriptor 64, write zone 12, write page_descriptor 8, unlock zone
    large alloc: page_call, lock zone, irq_save, write zone 8, write zone 12, write page_descriptor
        8, zone_take, write page_descriptor 64, unlock zone
    large free: page_call, lock zone, irq_save, write zone 8, zone_give, read page_descriptor 64,
        write page_descriptor 64, write zone 12, write page_descriptor 8, unlock zone
pages 6.18
    page alloc: slot, write pcp 64, page_call, preempt, atomic pcp 4, write page_descriptor 64, free
        slot
    page free: slot, write pcp 64, page_call, preempt, atomic pcp 4, write page_descriptor 64, free
        slot
    block alloc: slot, write pcp 64, page_call, preempt, atomic pcp 4, write page_descriptor 64,
        free slot
    block free: slot, write pcp 64, page_call, preempt, atomic pcp 4, write page_descriptor 64, free
        slot
    large free: page_call, lock zone, irq_save, write zone 8, zone_give, read page_descriptor 64,
        write page_descriptor 64, read page_descriptor 64, write zone 12, write page_descriptor 8,
        unlock zone
";

/// Splits, merges and calls that move many pages. `split` and `merge` find one free block of order 10, and the rest of
/// memory unused; after them a block of order 2 is the smallest:
///
/// | operation | what it is |
/// |---|---|
/// | `split` | an allocation of order 8, which leaves halves of orders 9 and 8 |
/// | `merge` | its free, which makes the block whole again |
/// | `refill` | an allocation of one page, which fills the CPU's empty list |
/// | `bulk alloc` | of two pages that are on the list |
/// | `bulk free` | the free of these |
/// | `drain` | the lists of both CPUs are emptied; one holds pages |
const BULK_TABLES: &str = "
pages 2.6.22
    split: page_call, lock zone, irq_save, write zone 8, write zone 12, write page_descriptor 8,
        buddy_step, write page_descriptor 64, buddy_step, write page_descriptor 64, zone_take, write
        page_descriptor 64, write zone 12, write page_descriptor 8, write zone 12, write
        page_descriptor 8, unlock zone
    merge: page_call, lock zone, irq_save, write zone 8, zone_give, buddy_step, write
        page_descriptor 64, write zone 12, write page_descriptor 8, buddy_step, write
        page_descriptor 64, write zone 12, write page_descriptor 8, write page_descriptor 64, write
        zone 12, write page_descriptor 8, unlock zone
    refill: slot, write pcp 64, page_call, irq_save, lock zone, write zone 8, write zone 12, write
        page_descriptor 8, buddy_step, write page_descriptor 64, buddy_step, write page_descriptor
        64, zone_take, write page_descriptor 64, zone_take, write page_descriptor 64, buddy_step,
        write page_descriptor 64, zone_take, write page_descriptor 64, write zone 12, write
        page_descriptor 8, unlock zone, write page_descriptor 64, free slot
    bulk alloc: slot, write pcp 64, page_call, irq_save, write page_descriptor 64 x2, free slot
    bulk free: slot, write pcp 64, page_call, irq_save, write page_descriptor 64 x2, free slot
    drain: remote slot, write pcp 64, irq_save, lock zone, write zone 8, zone_give, write
        page_descriptor 64, read page_descriptor 64, write page_descriptor 64, write zone 12, write
        page_descriptor 8 x2, zone_give, write page_descriptor 64, buddy_step, write page_descriptor
        64, write zone 12, write page_descriptor 8 x2, read page_descriptor 64, write
        page_descriptor 64, write zone 12, write page_descriptor 8, unlock zone, free slot, remote
        slot, write pcp 64, irq_save, free slot
pages 6.18
    refill: slot, write pcp 64, page_call, preempt, atomic pcp 4, lock zone, irq_save, write zone 8,
        write zone 12, write page_descriptor 8, buddy_step, write page_descriptor 64, buddy_step,
        write page_descriptor 64, zone_take, write page_descriptor 64, zone_take, write
        page_descriptor 64, buddy_step, write page_descriptor 64, zone_take, write page_descriptor
        64, write zone 12, write page_descriptor 8, unlock zone, write page_descriptor 64, free slot
    bulk alloc: slot, write pcp 64, page_call, preempt, atomic pcp 4, write page_descriptor 64 x2,
        free slot
    bulk free: slot, write pcp 64, page_call, preempt, atomic pcp 4, write page_descriptor 64 x2,
        free slot
    drain: remote slot, write pcp 64, preempt, atomic pcp 4, lock zone, irq_save, write zone 8,
        zone_give, write page_descriptor 64 x2, read page_descriptor 64, write page_descriptor 64,
        read page_descriptor 64, write zone 12, write page_descriptor 8 x2, zone_give, write
        page_descriptor 64, buddy_step, write page_descriptor 64, write zone 12, write
        page_descriptor 8 x2, read page_descriptor 64, write page_descriptor 64, read
        page_descriptor 64, write zone 12, write page_descriptor 8, unlock zone, free slot, remote
        slot, write pcp 64, preempt, atomic pcp 4, free slot
";

fn boot(era: Era) -> Pages {
    boot_pages(era, Setup::of_pages(1 << 14).on(2, 1))
}

fn observed_in_bulk(era: Era) -> Vec<(&'static str, String)> {
    let pages = boot(era);
    drop(pages.alloc_owned(10).expect("memory"));
    let mut block = None;
    let mut rows = Recorded::new(pages.machine());
    rows.add("split", || block = pages.alloc_owned(8));
    rows.add("merge", || drop(block.take()));
    let _neighbour = pages.alloc_past_lists(2, MigrateType::Unmovable);
    rows.add("refill", || block = pages.alloc_owned(0));
    let mut slots = [None; 2];
    rows.add("bulk alloc", || {
        assert_eq!(pages.alloc_bulk(None, &mut slots), 2);
    });
    rows.add("bulk free", || {
        assert_eq!(pages.free_numbers(&mut slots), Ok(()));
    });
    rows.add("drain", || assert_eq!(pages.drain_all(), 0));
    rows.rows
}

#[test]
fn what_bulk_calls_and_the_buddy_lists_access() {
    compare("pages", BULK_TABLES, observed_in_bulk);
}

fn observed(era: Era) -> Vec<(&'static str, String)> {
    let pages = boot(era);
    let mut rows = Recorded::new(pages.machine());
    for (order, alloc, free) in [
        (0, "page alloc", "page free"),
        (3, "block alloc", "block free"),
        (8, "large alloc", "large free"),
    ] {
        let warm = pages.alloc(order, None).expect("memory");
        pages.free_number(warm, order).expect("allocated");
        let mut pfn = None;
        rows.add(alloc, || pfn = pages.alloc(order, None));
        let pfn = pfn.expect("memory");
        rows.add(free, || assert!(pages.free_number(pfn, order).is_ok()));
    }
    rows.rows
}

#[test]
fn what_the_page_allocator_accesses() {
    compare("pages", TABLES, observed);
}
