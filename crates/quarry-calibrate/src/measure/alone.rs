//! Costs of a core by itself.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::ring::{Lines, Ring};
use crate::sample::{Effort, Sample};

/// Steps of the chain of a burst.
const CHAIN: usize = 1 << 18;

/// Cycles in a nanosecond: a chain of additions and rotations, which take a cycle each and wait for each other.
#[must_use]
pub fn ghz(effort: Effort) -> Sample {
    let steps = effort.times(CHAIN);
    let mut x = 1_u64;
    let chain = Sample::measure(effort, || {
        let step = black_box(3);
        let began = Instant::now();
        for _ in 0..steps / 16 {
            for _ in 0..16 {
                x = x.rotate_left(7).wrapping_add(step);
            }
        }
        x = black_box(x);
        began.elapsed().as_nanos() as f64 / (steps / 16 * 16) as f64
    });
    chain.map(|ns| 2.0 / ns)
}

/// Accesses of a burst.
const ACCESSES: usize = 1 << 15;

/// Nanoseconds of a load from the first cache, which waits for the load before it.
#[must_use]
pub fn hit(effort: Effort) -> Sample {
    walked(effort, Ring::walk)
}

/// Nanoseconds of a locked addition to a line in the first cache, which waits for the one before it.
#[must_use]
pub fn locked_hit(effort: Effort) -> Sample {
    walked(effort, Ring::walk_locked)
}

/// Words of the lines that stores go to.
const LINES_WORDS: usize = 64 * 8;

/// Nanoseconds of a locked addition beyond those of a store: in code that stores to other lines in between, as that of a
/// lock's holder does, it waits for these stores.
#[must_use]
pub fn atomic(effort: Effort) -> Sample {
    let stored = between_stores(effort, |word, value| word.store(value, Ordering::Relaxed));
    let added = between_stores(effort, |word, value| {
        word.fetch_add(value, Ordering::Relaxed);
    });
    added.less(stored)
}

/// Nanoseconds of a store to a line and of what is done with the line after it.
fn between_stores(effort: Effort, access: impl Fn(&AtomicUsize, usize)) -> Sample {
    let mut words = Vec::new();
    words.resize_with(LINES_WORDS, AtomicUsize::default);
    let count = effort.times(ACCESSES);
    Sample::measure(effort, || {
        let words = black_box(&words[..]);
        let began = Instant::now();
        for turn in 0..count {
            let at = turn * 16 % LINES_WORDS;
            if let [word, .., other] = &words[at..=at + 8] {
                word.store(turn, Ordering::Relaxed);
                access(other, turn);
            }
        }
        began.elapsed().as_nanos() as f64 / count as f64
    })
}

fn walked(effort: Effort, walk: impl Fn(&Ring, usize, usize) -> usize) -> Sample {
    let ring = Ring::new(1, Lines::All);
    let mut at = walk(&ring, ring.start(0), ring.lines());
    let accesses = effort.times(ACCESSES);
    Sample::measure(effort, || {
        let began = Instant::now();
        at = walk(&ring, black_box(at), accesses);
        began.elapsed().as_nanos() as f64 / accesses as f64
    })
}

/// Bytes that are filled or copied at a time: a page.
const PAGE_BYTES: usize = 4096;
/// Pages of a burst.
const PAGES: usize = 2048;

/// Nanoseconds in which 1024 bytes of the first cache are filled with zeros.
#[must_use]
pub fn fill_kib(effort: Effort) -> Sample {
    let mut page = vec![1_u8; PAGE_BYTES];
    pages(effort, || black_box(&mut page[..]).fill(0))
}

/// Nanoseconds in which 1024 bytes of the first cache are copied.
#[must_use]
pub fn copy_kib(effort: Effort) -> Sample {
    let (from, mut to) = (vec![1_u8; PAGE_BYTES], vec![0_u8; PAGE_BYTES]);
    pages(effort, || {
        black_box(&mut to[..]).copy_from_slice(black_box(&from))
    })
}

fn pages(effort: Effort, mut page: impl FnMut()) -> Sample {
    let count = effort.times(PAGES);
    Sample::measure(effort, || {
        let began = Instant::now();
        for _ in 0..count {
            page();
        }
        let kib = count * PAGE_BYTES / 1024;
        began.elapsed().as_nanos() as f64 / kib as f64
    })
}
