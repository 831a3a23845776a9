//! Loads that wait for each other: a ring of lines, and each line has the place of the next.
//!
//! Neither a core nor a prefetcher can know the next line before the load of this one is done. The order is random within
//! a chunk, and chunks follow each other by address: a chunk's pages stay in the translation caches, as the kernel's
//! large pages do.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use quarry_sim::Rng;

/// Words of a page of 4 KiB.
const PAGE_WORDS: usize = 512;
/// Pages of a chunk.
const CHUNK_PAGES: usize = 64;
/// Words of a line of 64 bytes.
const LINE_WORDS: usize = 8;

/// Lines of each page that a ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// All of them.
    All,
    /// Every second one: no cache line is met twice where lines have 128 bytes, or come in pairs.
    Second,
}

impl Lines {
    /// Their places in a page, in words.
    fn words(self) -> impl Iterator<Item = usize> {
        let step = match self {
            Self::All => LINE_WORDS,
            Self::Second => 2 * LINE_WORDS,
        };
        (0..PAGE_WORDS).step_by(step)
    }
}

/// A ring. Words are atomic, so that two CPUs may have it; a relaxed load is a load.
pub struct Ring {
    words: Vec<AtomicUsize>,
    /// The words in the order of the ring.
    order: Vec<usize>,
}

impl Ring {
    /// A ring through n pages of 4 KiB, one at least.
    #[must_use]
    pub fn new(pages: usize, lines: Lines) -> Self {
        let pages = pages.max(1);
        let order = order(pages, lines, 1);
        let mut words: Vec<AtomicUsize> = Vec::new();
        words.resize_with(pages * PAGE_WORDS, AtomicUsize::default);
        for (at, word) in order.iter().enumerate() {
            words[*word] = AtomicUsize::new(order[(at + 1) % order.len()]);
        }
        Self { words, order }
    }

    /// Lines of it.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.order.len()
    }

    /// The word of its n-th line.
    #[must_use]
    pub fn start(&self, n: usize) -> usize {
        self.order[n % self.order.len()]
    }

    /// Goes on n lines from a word; returns the word where it ends.
    #[must_use]
    pub fn walk(&self, from: usize, n: usize) -> usize {
        let mut at = from;
        for _ in 0..n {
            at = self.words[at].load(Ordering::Relaxed);
        }
        at
    }

    /// The same from several words at a time.
    #[must_use]
    pub fn walk_all<const N: usize>(&self, from: [usize; N], n: usize) -> [usize; N] {
        let mut at = from;
        for _ in 0..n {
            for at in &mut at {
                *at = self.words[*at].load(Ordering::Relaxed);
            }
        }
        at
    }

    /// Goes on n lines by locked additions of 0. Each waits for the one before it.
    #[must_use]
    pub fn walk_locked(&self, from: usize, n: usize) -> usize {
        // A 0 that the compiler knew would make it a fence and a load.
        let zero = black_box(0);
        let mut at = from;
        for _ in 0..n {
            at = self.words[at].fetch_add(zero, Ordering::Relaxed);
        }
        at
    }

    /// Writes to n lines from a word on, and leaves them as they are.
    pub fn write(&self, from: usize, n: usize) {
        let mut at = from;
        for _ in 0..n {
            let next = self.words[at].load(Ordering::Relaxed);
            self.words[at].store(next, Ordering::Relaxed);
            at = next;
        }
    }
}

/// The words of lines of pages, each once: random within chunks, which follow each other.
fn order(pages: usize, lines: Lines, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed);
    let of_page = |page: usize| lines.words().map(move |word| page * PAGE_WORDS + word);
    let mut order: Vec<usize> = (0..pages).flat_map(of_page).collect();
    for chunk in order.chunks_mut(CHUNK_PAGES * lines.words().count()) {
        for last in (1..chunk.len()).rev() {
            chunk.swap(last, rng.below(last as u64 + 1) as usize);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [Lines; 2] = [Lines::All, Lines::Second];

    #[test]
    fn a_ring_is_one_cycle_through_all_of_its_lines() {
        for (pages, lines) in [0, 1, 3, 130]
            .into_iter()
            .flat_map(|pages| ALL.map(|lines| (pages, lines)))
        {
            let ring = Ring::new(pages, lines);
            assert_eq!(ring.lines(), pages.max(1) * lines.words().count());
            let mut seen = BTreeSet::new();
            let mut at = ring.start(0);
            for n in 0..ring.lines() {
                assert_eq!(at, ring.start(n));
                assert!(seen.insert(at), "a shorter cycle");
                at = ring.walk(at, 1);
            }
            assert_eq!(at, ring.start(0), "it closes");
        }
    }

    #[test]
    fn all_ways_to_walk_go_the_same_way() {
        let ring = Ring::new(16, Lines::Second);
        let at = ring.start(5);
        let there = ring.walk(at, 37);
        assert_eq!(there, ring.start(42));
        assert_eq!(ring.walk_locked(at, 37), there);
        assert_eq!(
            ring.walk_all([at, ring.start(6)], 37),
            [there, ring.start(43)]
        );
        ring.write(at, 37);
        assert_eq!(ring.walk(at, 37), there, "writes change nothing");
    }

    #[test]
    fn neighbours_in_the_order_are_seldom_neighbours_in_memory() {
        let order = order(CHUNK_PAGES * 3, Lines::All, 1);
        let near = order
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) <= LINE_WORDS);
        assert!(near.count() < 20);
        let chunk_words = CHUNK_PAGES * PAGE_WORDS;
        for (number, chunk) in order.chunks(chunk_words / LINE_WORDS).enumerate() {
            let first = number * chunk_words;
            assert!(
                chunk
                    .iter()
                    .all(|word| (first..first + chunk_words).contains(word))
            );
        }
    }
}
