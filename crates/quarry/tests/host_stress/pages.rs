//! The page allocator alone: every page has an owner in a table.

use quarry::kernel::machine::Cpus as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use quarry::{HostMachine, PageAllocator, Pfn, TrimPolicy};

use super::Way;
use super::storm::{self, Place, Target};
use super::sys::Random;

/// Blocks that a worker keeps at most.
const HAND: usize = 128;
/// Owner of pages that a handler has.
const HANDLER: u32 = u32::MAX;

struct Table {
    pages: &'static PageAllocator<HostMachine>,
    /// Owner by page; 0 while it is free.
    owners: Vec<AtomicU32>,
    allocs: AtomicU64,
    clashes: AtomicU64,
    misses: AtomicU64,
}

impl Table {
    fn change(&self, pfn: Pfn, order: u32, from: u32, to: u32) {
        for owner in &self.owners[pfn.0 as usize..][..1 << order] {
            if owner.swap(to, Relaxed) != from {
                self.clashes.fetch_add(1, Relaxed);
            }
        }
    }

    fn alloc(&self, me: u32, order: u32) -> Option<(Pfn, u32)> {
        let Some(pfn) = self.pages.alloc(order, None) else {
            self.misses.fetch_add(u64::from(me != HANDLER), Relaxed);
            return None;
        };
        self.allocs.fetch_add(1, Relaxed);
        self.change(pfn, order, 0, me);
        Some((pfn, order))
    }

    fn free(&self, me: u32, (pfn, order): (Pfn, u32)) {
        self.change(pfn, order, me, 0);
        // SAFETY: the table says that the block is this worker's, and none uses its memory.
        if unsafe { self.pages.free(pfn, order) }.is_err() {
            self.clashes.fetch_add(1, Relaxed);
        }
    }

    fn work(&self, place: &Place<'_>) -> u64 {
        let me = place.index as u32 + 1;
        let mut random = Random(u64::from(me) * 31_337);
        let mut hand = Vec::with_capacity(HAND);
        place.enter();
        let mut ops = 0;
        while !place.is_over() {
            match random.below(100) {
                0..45 if hand.len() < HAND => {
                    hand.extend(self.alloc(me, random.below(4) as u32));
                }
                45..53 => self.bulk(me, 1 + random.below(32)),
                _ if !hand.is_empty() => {
                    let place = random.below(hand.len());
                    self.free(me, hand.swap_remove(place));
                }
                _ => (),
            }
            ops += 1;
        }
        while let Some(block) = hand.pop() {
            self.free(me, block);
        }
        storm::leave();
        ops
    }

    /// Many single pages, back at once.
    fn bulk(&self, me: u32, count: usize) {
        let mut slots = [None; 32];
        let slots = &mut slots[..count];
        let mut filled = 0;
        while filled < count {
            let before = filled;
            filled = self.pages.alloc_bulk(None, slots);
            if filled == before {
                self.misses.fetch_add(1, Relaxed);
                break;
            }
        }
        self.allocs.fetch_add(filled as u64, Relaxed);
        let change = |slots: &[Option<Pfn>], from, to| {
            slots
                .iter()
                .flatten()
                .for_each(|&pfn| self.change(pfn, 0, from, to));
        };
        change(slots, 0, me);
        change(slots, me, 0);
        // SAFETY: as in `free`.
        if unsafe { self.pages.free_bulk(slots) }.is_err() {
            self.clashes.fetch_add(1, Relaxed);
        }
    }
}

impl Target for Table {
    fn on_signal(&self, dice: u64) {
        if let Some(block) = self.alloc(HANDLER, dice as u32 % 4) {
            self.free(HANDLER, block);
        }
    }
}

/// Blows the storm over a page allocator.
pub(crate) fn run(pages: &'static PageAllocator<HostMachine>, seconds: f64, way: Way) {
    let table: &'static Table = Box::leak(Box::new(Table {
        pages,
        owners: (0..pages.pages()).map(|_| AtomicU32::new(0)).collect(),
        allocs: AtomicU64::new(0),
        clashes: AtomicU64::new(0),
        misses: AtomicU64::new(0),
    }));
    let handled = storm::handled();
    let aborts = quarry_host::rseq::aborts();
    let (mut trimmed, mut min_order) = (0, 4);
    let work = |place: &Place<'_>| table.work(place);
    let (ops, moves) = storm::blow(table, work, || {
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds {
            pages.drain_all();
            pages.stats();
            // Every other time down to the smallest unit, so that huge pages are split as well.
            min_order = if min_order == 9 { 4 } else { 9 };
            let policy = TrimPolicy {
                keep_pages: 0,
                min_order,
            };
            trimmed += pages.trim(policy).pages;
            thread::sleep(Duration::from_millis(1));
        }
    });
    // A busy computer may leave the trims above no moment with a large free block.
    pages.drain_all();
    let policy = TrimPolicy {
        keep_pages: 0,
        min_order: 4,
    };
    trimmed += pages.trim(policy).pages;
    let handled = storm::handled() - handled;
    let aborts = quarry_host::rseq::aborts() - aborts;
    let allocs = table.allocs.load(Relaxed);
    eprintln!(
        "pages {way:?}: {ops} ops, {allocs} allocs, {moves} moves, {handled} signals, \
         {aborts} restarts, {trimmed} pages trimmed"
    );
    assert!(trimmed > 0, "nothing was ever given back");
    assert_eq!(pages.residency().released, trimmed);
    assert_eq!(table.clashes.load(Relaxed), 0);
    assert_eq!(table.misses.load(Relaxed), 0);
    assert!(table.owners.iter().all(|owner| owner.load(Relaxed) == 0));
    let census = pages.check_consistency().unwrap();
    assert_eq!(census.in_hand, 0);
    assert_eq!(census.total(), u64::from(pages.pages()));
    assert_eq!((census.slab, census.large, census.allocated), (0, 0, 0));
    let stats = pages.stats();
    // Single steps may count once more per restart.
    for counted in [stats.allocs(), stats.frees()] {
        assert!((allocs..=allocs + aborts).contains(&counted), "{counted}");
    }
    assert_eq!(pages.machine().topology().page_size(), 4096);
}
