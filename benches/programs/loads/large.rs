//! Large blocks.

use std::hint::black_box;

use super::{Block, Random, block};

/// A hundred blocks of 5 to 25 MiB at a time, whose ends alone are used; random ones are replaced.
pub(super) fn blocks() {
    let mut random = Random::new(3);
    let mut size = move || (5 << 20) + random.below(20 << 20);
    let mut blocks: Vec<Block> = (0..100).map(|_| block(size())).collect();
    let mut random = Random::new(4);
    for _ in 0..200_000 {
        let at = random.below(100);
        blocks[at] = block(size());
    }
    black_box(blocks);
}

/// Buffers that grow by a few bytes each, as a text that is put together does, several at once.
pub(super) fn growing() {
    for turn in 0..12 {
        let mut random = Random::new(turn);
        let mut texts: Vec<Vec<u8>> = (0..64).map(|_| Vec::new()).collect();
        for _ in 0..400_000 {
            let text = &mut texts[random.below(64)];
            let more = 1 + random.below(200);
            // Exactly: the vector's own doubling would leave nothing for realloc to do.
            text.reserve_exact(more);
            text.resize(text.len() + more, 1);
        }
        black_box(texts);
    }
}
