//! Blocks of random sizes that live for random times.

use std::hint::black_box;

use super::{Block, Random, block};

/// Replaces random blocks of an array.
fn replace(live: usize, steps: usize, seed: u64, size: impl Fn(&mut Random) -> usize) {
    let mut random = Random::new(seed);
    let mut blocks: Vec<Block> = Vec::with_capacity(live);
    for _ in 0..live {
        let bytes = size(&mut random);
        blocks.push(block(bytes));
    }
    for _ in 0..steps {
        let (at, bytes) = (random.below(live), size(&mut random));
        blocks[at] = block(bytes);
    }
    black_box(blocks);
}

/// Exponential, 100 bytes in the mean, up to 1 KiB.
fn exponential(random: &mut Random) -> usize {
    let uniform = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
    let bytes = -(1.0 - uniform).ln() * 100.0;
    (bytes as usize).clamp(1, 1024)
}

pub(super) fn one_thread() {
    replace(1_000_000, 1_500_000, 1, exponential);
}

pub(super) fn all_cpus() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for cpu in 0..cpus {
            scope.spawn(move || replace(1_000_000 / cpus, 1_000_000, cpu as u64, exponential));
        }
    });
}

/// A few thousand live blocks, whose sizes are mostly small.
pub(super) fn mixed() {
    let size = |random: &mut Random| {
        let most = [16, 32, 64, 128, 256, 512, 1000][random.below(7)];
        1 + random.below(most)
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || replace(4096, 12_000_000, thread, size));
        }
    });
}

/// Small blocks that are mostly short-lived, and larger ones up to 16,000 bytes among them.
pub(super) fn lifetimes() {
    let size = |random: &mut Random| match random.below(100) {
        0..60 => 8 + random.below(120),
        60..90 => 128 + random.below(900),
        90..98 => 1024 + random.below(3000),
        _ => 4096 + random.below(12_000 - 96),
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || replace(20_000, 4_000_000, 10 + thread, size));
        }
    });
}
