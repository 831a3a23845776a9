//! Small blocks, of one size or short-lived.

use std::hint::black_box;

use super::{Random, block};

/// Blocks that live at a time.
const BATCHES: [usize; 5] = [25, 100, 400, 1600, 6400];
/// Pairs of calls for each number.
const PAIRS: usize = 6_400_000;

/// Batches of a size, freed in an order.
fn batches(bytes: usize, shuffle: bool, pairs: usize) {
    let mut random = Random::new(bytes as u64);
    for live in BATCHES {
        let mut blocks = Vec::with_capacity(live);
        for _ in 0..pairs / live {
            blocks.extend((0..live).map(|_| block(bytes)));
            if shuffle {
                for at in (1..live).rev() {
                    blocks.swap(at, random.below(at + 1));
                }
            }
            black_box(&mut blocks).clear();
        }
    }
}

pub(super) fn in_order() {
    batches(64, false, PAIRS);
}

pub(super) fn shuffled() {
    batches(40, true, PAIRS / 2);
}

pub(super) fn on_two_threads() {
    std::thread::scope(|scope| {
        for bytes in [56, 128] {
            scope.spawn(move || batches(bytes, false, PAIRS));
        }
    });
}

/// A natural number in words of 32 bits, the lowest first; each result is memory of its own, as in libraries of such numbers.
type Big = Vec<u32>;

fn add(a: &Big, b: &Big) -> Big {
    let mut sum = Big::with_capacity(a.len().max(b.len()) + 1);
    let mut carry = 0;
    for at in 0..a.len().max(b.len()) {
        let word = |number: &Big| u64::from(number.get(at).copied().unwrap_or(0));
        let total = word(a) + word(b) + carry;
        sum.push(total as u32);
        carry = total >> 32;
    }
    if carry > 0 {
        sum.push(carry as u32);
    }
    sum
}

fn times(a: &Big, factor: u32) -> Big {
    let mut product = Big::with_capacity(a.len() + 1);
    let mut carry = 0;
    for word in a {
        let total = u64::from(*word) * u64::from(factor) + carry;
        product.push(total as u32);
        carry = total >> 32;
    }
    if carry > 0 {
        product.push(carry as u32);
    }
    product
}

/// Convergents of the continued fraction of a square root: numerators of up to 60 bytes, then from the start again.
pub(super) fn bignums() {
    let mut terms = Random::new(7);
    for _ in 0..45_000 {
        let (mut before, mut now) = (vec![1], vec![2]);
        while now.len() < 15 {
            let term = 1 + terms.below(1 << 10) as u32;
            let scaled = times(&now, term);
            let next = add(&scaled, &before);
            before = now;
            now = next;
        }
        black_box((before, now));
    }
}
