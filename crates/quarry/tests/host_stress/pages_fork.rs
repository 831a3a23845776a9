//! Children of forks use the pages while other threads of their parents had some in their hands: everything that no thread had is theirs, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{alone, sys};
use quarry::kernel::page::{PageAllocator, PageCensus};
use quarry::kernel::slub::Slub;
use quarry::{Builder, HostMachine, Pfn};

const FORKS: usize = 60;
const SET: usize = 64;
const WORKERS: usize = 2;

/// Allocates and frees, in bulk and singly, until it is stopped.
fn work(pages: &PageAllocator<HostMachine>, stop: &AtomicBool) {
    let mut set = [None; SET];
    while !stop.load(Ordering::Relaxed) {
        pages.alloc_bulk(None, &mut set);
        // SAFETY: the pages are this thread's, which does not use them.
        unsafe { pages.free_bulk(&mut set) }.expect("pages of this thread");
        drop(pages.alloc_owned(0));
    }
}

/// Takes all pages there are, none of them twice, and gives them back. What is wrong, as an exit status.
fn use_all(pages: &PageAllocator<HostMachine>, mine: &[u32], seen: &mut [bool]) -> i32 {
    let before = match pages.check_consistency() {
        Ok(before) => before,
        Err(error) => {
            eprintln!("{error}");
            return 1;
        }
    };
    for &pfn in mine {
        seen[pfn as usize] = true;
    }
    let all: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(0, None)).collect();
    let got = all.len() as u64;
    for &pfn in &all {
        if std::mem::replace(&mut seen[pfn.0 as usize], true) {
            return 2;
        }
    }
    // Each of the parent's threads had many pages, or one between its list and its owner.
    let lost = (WORKERS * SET) as u64;
    let rest = mine.len() as u64 + before.slab + before.large;
    if got + rest + lost < before.total() {
        return 3;
    }
    for pfn in all {
        // SAFETY: the page was allocated above, and nothing uses it.
        if unsafe { pages.free(pfn, 0) }.is_err() {
            return 6;
        }
    }
    let in_use = |census: &PageCensus| census.allocated + census.in_hand;
    match pages.check_consistency() {
        Ok(after) if after.total() == before.total() && in_use(&after) == in_use(&before) => 0,
        Ok(_) => 4,
        Err(_) => 5,
    }
}

#[test]
fn children_have_the_pages_that_no_thread_had() {
    let _alone = alone();
    let missed = quarry::fork_misses();
    let heap = Builder::<Slub>::new()
        .memory_bytes(16 << 20)
        .build()
        .unwrap();
    let pages = heap.pages();
    let mine: Vec<_> = (0..SET).map(|_| pages.alloc_owned(0).unwrap()).collect();
    let numbers: Vec<u32> = mine.iter().map(|block| block.pfn().0).collect();
    let mut seen = vec![false; pages.pages() as usize];
    let stop = &AtomicBool::new(false);
    let statuses = thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| work(pages, stop));
        }
        let mut statuses = Vec::new();
        for _ in 0..FORKS {
            let child = sys::fork(|| use_all(pages, &numbers, &mut seen));
            statuses.push(sys::wait(child, Duration::from_secs(30)));
        }
        stop.store(true, Ordering::Relaxed);
        statuses
    });
    assert_eq!(quarry::fork_misses(), missed);
    assert_eq!(statuses, [Some(0); FORKS], "raw statuses of wait");
}
