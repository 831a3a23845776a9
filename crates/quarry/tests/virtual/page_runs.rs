//! Refills and drains move runs of blocks at a time; to a zone that is the same as one block after
//! the other.

use crate::model::steps::PREFETCHED;
use crate::prelude::*;
use quarry_core::machine::{DESCRIPTOR_BYTES, Memory as _, Work};

const PAGES: u32 = 1 << 15;

/// A page allocator; without its per-CPU lists each block goes to the zone by itself.
fn boot(era: Era, lists: bool) -> Pages {
    let setup = Setup {
        slot_per_mille: if lists { 0 } else { 1000 },
        ..Setup::of_pages(PAGES)
    };
    boot_pages(era, setup)
}

/// A zone's report, and the work that it took.
fn state(pages: &Pages) -> impl PartialEq + core::fmt::Debug + use<> {
    let report = pages.zone_reports().next().expect("a zone");
    let stats = pages.stats();
    let counters = pages.machine().counters();
    (
        (report.free_blocks, report.pageblocks, report.free_pages),
        (stats.splits, stats.merges, stats.extfrag, stats.retagged),
        counters.work(Work::BuddyStep),
    )
}

/// All memory, block by block past the lists, in pageblocks of two types.
fn all_blocks(pages: &Pages, order: u32) -> Vec<Pfn> {
    let types = [MigrateType::Unmovable, MigrateType::Movable];
    let nth = |at: usize| pages.alloc_past_lists(order, types[at / 1000 % 2]);
    (0..).map_while(nth).collect()
}

/// Pages in an order in which some are neighbours, up or down or crosswise, and others are not.
fn shuffle(pages: &mut [Pfn], rng: &mut Rng) {
    let mut at = 0;
    while at < pages.len() {
        let len = (1 + rng.below(90) as usize).min(pages.len() - at);
        let run = &mut pages[at..at + len];
        match rng.below(4) {
            0 => run.reverse(),
            1 => run.chunks_mut(2).for_each(<[Pfn]>::reverse),
            2 => (1..len).for_each(|i| run.swap(i, rng.below(i as u64 + 1) as usize)),
            _ => {}
        }
        let other = rng.below((pages.len() - len + 1) as u64) as usize;
        if other + len <= at {
            let (before, from) = pages.split_at_mut(at);
            before[other..other + len].swap_with_slice(&mut from[..len]);
        }
        at += len;
    }
}

/// The same requests with and without lists: the zone gives the same blocks, takes them back into
/// the same lists in the same order, and counts the same work.
#[test]
fn runs_leave_what_single_blocks_leave() {
    for era in [Era::V2_6_24, Era::V5_9, Era::V6_1, Era::V6_18] {
        for seed in 0..3 {
            runs_leave_what_single_blocks_leave_once(era, seed);
        }
    }
}

fn runs_leave_what_single_blocks_leave_once(era: Era, seed: u64) {
    let mut rng = Rng::new(seed);
    let both = [boot(era, true), boot(era, false)];
    let [by_runs, one_by_one] = &both;
    let batched = era >= Era::V6_1;
    let order = if batched { rng.below(3) as u32 } else { 0 };
    let options = block_of(order, MigrateType::Unmovable);
    // Some of the memory is never given back, so that blocks of all sizes come about.
    let mut pieces: Vec<Pfn> = Vec::new();
    for pages in &both {
        pieces = all_blocks(pages, order);
        pages.machine().reset_counters();
    }
    shuffle(&mut pieces, &mut rng);
    let kept = rng.below(200) as usize;
    for at in 0..kept {
        let other = rng.below(pieces.len() as u64) as usize;
        pieces.swap(at, other);
    }
    for round in 0..3 {
        // Lists of two types would take turns when they are drained.
        let type_of = |pfn: &Pfn| by_runs.block_type_of(*pfn).expect("a page").index();
        pieces[kept..].sort_by_key(type_of);
        for one_type in pieces[kept..].chunk_by(|a, b| type_of(a) == type_of(b)) {
            for &pfn in one_type {
                for pages in &both {
                    assert_eq!(pages.free_number(pfn, order), Ok(()));
                }
            }
            assert_eq!(by_runs.drain_all(), 0);
        }
        let what = format!("{era}, seed {seed}, order {order}, round {round}");
        assert_eq!(state(by_runs), state(one_by_one), "freed: {what}");
        // Up to the end, or the lists would still hold what the last refill brought.
        pieces.truncate(kept);
        while let Some(pfn) = by_runs.alloc_with(&options) {
            assert_eq!(Some(pfn), one_by_one.alloc_with(&options), "{what}");
            pieces.push(pfn);
        }
        assert_eq!(one_by_one.alloc_with(&options), None, "{what}");
        assert_eq!(state(by_runs), state(one_by_one), "allocated: {what}");
        shuffle(&mut pieces[kept..], &mut rng);
    }
    // A refill or drain is one hold of the zone lock for several blocks, or this showed nothing.
    let holds = |pages: &Pages| pages.machine().counters().locks(LockClass::Zone);
    let few = [by_runs, one_by_one].map(holds);
    assert!(few[0] < few[1], "{era}, seed {seed}: {few:?}");
    for pages in &both {
        pages.check_consistency().expect("consistent");
    }
}

/// The pages whose descriptors were asked for meanwhile; all of them are pages that there are.
fn asked_for(pages: &PageAllocator<Stepping>, f: impl FnOnce()) -> BTreeSet<u32> {
    PREFETCHED.set(Some(Vec::new()));
    f();
    let base = pages.machine().ranges().descriptors.base.addr().get();
    let asked = PREFETCHED.take().expect("noted");
    let page = |address: usize| {
        let page = address.wrapping_sub(base) / DESCRIPTOR_BYTES;
        assert!(page < PAGES as usize, "{address:#x} is of no page");
        page as u32
    };
    asked.into_iter().map(page).collect()
}

/// Pages that are no neighbours are asked for before a drain and a refill come to them; what a slab left in a
/// descriptor is not taken for a page.
#[test]
fn lists_ask_for_what_comes_next() {
    let machine = Stepping(Setup::of_pages(PAGES).machine());
    let pages = PageAllocator::with_config(machine, &PageConfig::in_process(Era::V6_18));
    let pages = pages.expect("a page allocator");
    let mut all = take_pages(&pages, 0, 24_000);
    let mut rng = Rng::new(1);
    (1..all.len()).for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
    // Every other pair stays in use, so that nothing merges far.
    let (free, used): (Vec<Pfn>, Vec<Pfn>) = all.iter().partition(|pfn| pfn.0 / 2 % 2 == 0);
    let mut drained = 0;
    let asked = asked_for(&pages, || {
        give_pages(&pages, &free, 0);
        drained = pages.stats().pcp.drained;
    });
    assert!(drained > 1000, "{drained}");
    let of_free = free.iter().filter(|pfn| asked.contains(&pfn.0)).count() as u64;
    assert!(of_free * 5 > drained * 4, "{of_free} of {drained}");
    assert_eq!(pages.drain_all(), 0);
    let mut got = BTreeSet::new();
    let asked = asked_for(&pages, || {
        got.extend((0..1000).map(|_| pages.alloc(0, None).unwrap().0));
    });
    assert!(asked.intersection(&got).count() > 300, "{}", asked.len());
    give_pages(&pages, used, 0);
}
