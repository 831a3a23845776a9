//! The loads: what a program does with its memory, and little else.
//!
//! They call what Rust's programs call (`malloc` by the system's allocator), so that one binary runs on any of them.

use std::mem::MaybeUninit;

mod large;
mod sizes;
mod small;
mod threads;

/// A load with the name that its rows have.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
}

/// All loads.
pub(crate) const ALL: [Load; 15] = [
    // Blocks of one size.
    Load {
        name: "batches in order",
        run: small::in_order,
    },
    Load {
        name: "batches shuffled",
        run: small::shuffled,
    },
    Load {
        name: "batches on 2 threads",
        run: small::on_two_threads,
    },
    Load {
        name: "bignums",
        run: small::bignums,
    },
    // Random sizes and lifetimes.
    Load {
        name: "random sizes",
        run: sizes::one_thread,
    },
    Load {
        name: "random sizes, all CPUs",
        run: sizes::all_cpus,
    },
    Load {
        name: "mixed sizes on 2 threads",
        run: sizes::mixed,
    },
    Load {
        name: "lifetimes to 16,000 bytes",
        run: sizes::lifetimes,
    },
    // Objects of one thread freed by another.
    Load {
        name: "server",
        run: threads::server,
    },
    Load {
        name: "producer and consumer",
        run: threads::producer,
    },
    Load {
        name: "threads that end",
        run: threads::ending,
    },
    Load {
        name: "strings on a pool",
        run: threads::strings,
    },
    Load {
        name: "map on 4 threads",
        run: threads::map,
    },
    // Large blocks.
    Load {
        name: "large blocks",
        run: large::blocks,
    },
    Load {
        name: "realloc that grows",
        run: large::growing,
    },
];

/// Numbers that look random and are the same in each run (xorshift, Marsaglia 2003).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }
}

/// A block of memory.
pub(crate) type Block = Box<[MaybeUninit<u8>]>;

/// A block whose first byte, and last, are written.
pub(crate) fn block(bytes: usize) -> Block {
    let mut block = Box::new_uninit_slice(bytes);
    for at in [0, bytes - 1] {
        block[at].write(1);
    }
    block
}
