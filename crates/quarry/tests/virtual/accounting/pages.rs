//! The page allocator: a list per CPU in front of a zone's free lists, under the zone's lock.
//!
//! One node, two CPUs, 64 MiB. `page` is a single page from the CPU's list, after one was freed there;
//! `block` is one of order 3, which is on the CPU's list from 5.14 on; `large` one of order 8, after
//! one was freed.

use quarry_core::era::Era;
use quarry_core::page::PageAllocator;
use quarry_sim::{Config, VirtualMachine};

use super::{Tables, compare, steps};
use crate::model::by_number::ByNumber as _;

const TABLES: &[(Era, Tables)] = &[
    (
        Era::V2_6_22,
        &[
            (
                "page alloc",
                "slot, write pcp 64, write page_descriptor 64, free slot",
            ),
            (
                "page free",
                "slot, write pcp 64, write page_descriptor 64, free slot",
            ),
            (
                "block alloc",
                "lock zone, write zone 8, write zone 12, write page_descriptor 8, write \
                 page_descriptor 64, unlock zone",
            ),
            (
                "block free",
                "lock zone, write zone 8, write page_descriptor 64, write zone 12, write \
                 page_descriptor 8, unlock zone",
            ),
            (
                "large alloc",
                "lock zone, write zone 8, write zone 12, write page_descriptor 8, write \
                 page_descriptor 64, unlock zone",
            ),
            (
                "large free",
                "lock zone, write zone 8, write page_descriptor 64, write zone 12, write \
                 page_descriptor 8, unlock zone",
            ),
        ],
    ),
    (
        Era::V6_18,
        &[
            (
                "page alloc",
                "slot, write pcp 64, write page_descriptor 64, free slot",
            ),
            (
                "page free",
                "slot, write pcp 64, write page_descriptor 64, free slot",
            ),
            (
                "block alloc",
                "slot, write pcp 64, write page_descriptor 64, free slot",
            ),
            (
                "block free",
                "slot, write pcp 64, write page_descriptor 64, free slot",
            ),
            (
                "large alloc",
                "lock zone, write zone 8, write zone 12, write page_descriptor 8, write \
                 page_descriptor 64, unlock zone",
            ),
            (
                "large free",
                "lock zone, write zone 8, write page_descriptor 64, read page_descriptor 64, \
                 write zone 12, write page_descriptor 8, unlock zone",
            ),
        ],
    ),
];

fn observed(era: Era) -> Vec<(&'static str, String)> {
    let config = Config {
        cpus: 2,
        memory_bytes: 64 << 20,
        ..Config::default()
    };
    let machine = VirtualMachine::new(config).expect("a machine");
    let pages = PageAllocator::new(machine, era).expect("pages");
    let mut rows = Vec::new();
    for (order, alloc, free) in [
        (0, "page alloc", "page free"),
        (3, "block alloc", "block free"),
        (8, "large alloc", "large free"),
    ] {
        let warm = pages.alloc(order, None).expect("memory");
        pages.free_number(warm, order).expect("allocated");
        let mut pfn = None;
        rows.push((
            alloc,
            steps(pages.machine(), || pfn = pages.alloc(order, None)),
        ));
        let pfn = pfn.expect("memory");
        rows.push((
            free,
            steps(pages.machine(), || {
                assert!(pages.free_number(pfn, order).is_ok())
            }),
        ));
    }
    rows
}

#[test]
fn what_the_page_allocator_accesses() {
    compare("the page allocator", TABLES, observed);
}
