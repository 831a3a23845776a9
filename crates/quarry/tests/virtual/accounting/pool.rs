//! Page pools: the owner's stack, the lanes and the ring, and pages cut into pieces.
//!
//! One node, two CPUs, 64 KiB pages, a pool whose ring holds 16 pages. CPU 0 is the owner's, and its list has pages.
//!
//! | operation | what it is |
//! |---|---|
//! | `slow alloc` | the first allocation, which takes 4 pages from the page allocator (64 before 7.1; before 5.13 each `alloc` takes 1) |
//! | `alloc` | the next one |
//! | `recycle` | the owner puts that page |
//! | `put` | CPU 1 puts the first page |
//! | `bulk put` | CPU 1 puts two pages at once |
//! | `refill` | an allocation that finds the stack empty and takes what was put |
//! | `piece` | a piece is cut from an open page |
//! | `put piece` | CPU 1 puts it |
//! | `release` | CPU 1 puts a page that another user has |

use super::{Recorded, compare, steps};
use crate::prelude::*;
use quarry_core::pool::pool_rules;
use quarry_sim::{Config, LonePut as _};

const TABLES: &str = "
pool 5.9
    alloc: write pool_cache 64, read pool_ring 4, write pool_ring 8, slot, write pcp 64, page_call,
        irq_save, lock zone, write zone 8, write zone 12, write page_descriptor 8, zone_take, write
        page_descriptor 64, unlock zone, write page_descriptor 64, free slot, write page_descriptor
        64
    recycle: write page_descriptor 64, write pool_cache 64
    put: write page_descriptor 64, atomic pool_ring 8, write pool_ring 4
    bulk put: write page_descriptor 64 x2, atomic pool_ring 8, write pool_ring 4 x2
    refill: write pool_cache 64, write pool_ring 4 x3, read pool_ring 4, write pool_ring 8, write
        page_descriptor 64
    release: write page_descriptor 64, atomic page_descriptor 8, read page_descriptor 64, atomic
        page_descriptor 64
pool 6.18
    alloc: write pool_cache 64, write page_descriptor 64
    piece: atomic page_descriptor 8
    put piece: write page_descriptor 64, atomic page_descriptor 8
pool 7.1
    slow alloc: write pool_cache 64, read pool_ring 4, write pool_ring 8, slot, write pcp 64,
        page_call, preempt, atomic pcp 4, write page_descriptor 64 x4, free slot, write
        page_descriptor 64
";

fn observed(era: Era) -> Vec<(&'static str, String)> {
    let config = Config {
        cpus: 2,
        memory_bytes: 64 << 20,
        page_bytes: 1 << 16,
        ..Config::default()
    };
    let machine = VirtualMachine::new(config).expect("a machine");
    let pages = PageAllocator::new(machine, era).expect("pages");
    let params = PoolParams {
        pool_size: 16,
        ..PoolParams::default()
    };
    let mut owner = PoolOwner::create(&pages, era, &params).expect("a pool");
    let machine = pages.machine();
    let mut rows = Recorded::new(machine);
    let mut held = Vec::new();
    let warm: Vec<_> = (0..4).map(|_| pages.alloc_owned(0)).collect();
    drop(warm);
    let slow = steps(machine, || held.extend(owner.alloc()));
    if pool_rules(era, 16).bulk == 4 {
        rows.rows.push(("slow alloc", slow));
    }
    rows.add("alloc", || held.extend(owner.alloc()));
    let page = held.pop().expect("memory");
    rows.add("recycle", || assert!(owner.lone_put(page).is_ok()));
    // The stack is emptied, so that what comes home is wanted.
    while held.len() < 64 {
        held.push(owner.alloc().expect("memory"));
    }
    machine.run_on(CpuId(1));
    let pool = owner.handle();
    rows.add("put", || assert!(pool.lone_put(held[0]).is_ok()));
    let mut slots = [Some(held[1]), Some(held[2])];
    rows.add("bulk put", || {
        assert!(pool.lone_put_bulk(&mut slots).is_ok())
    });
    machine.run_on(CpuId(0));
    rows.add("refill", || held.extend(owner.alloc()));
    if owner.alloc_piece(1024).is_ok() {
        let mut piece = None;
        rows.add("piece", || piece = owner.alloc_piece(1024).ok());
        let piece = piece.expect("memory");
        machine.run_on(CpuId(1));
        rows.add("put piece", || {
            assert!(pool.lone_put_piece(piece.pfn, piece.offset).is_ok());
        });
    }
    machine.run_on(CpuId(1));
    pages.get_number(held[3]).expect("a reference");
    rows.add("release", || assert!(pool.lone_put(held[3]).is_ok()));
    assert_eq!(pages.put_number(held[3]), Ok(true));
    rows.rows
}

#[test]
fn what_page_pools_access() {
    compare("pool", TABLES, observed);
}
