//! Who can run, and who of them goes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::rng::Rng;

/// All that can run, but for the one whose turn it is.
pub(super) enum Ready {
    /// The smallest clock goes first; of equal ones, the smallest number.
    Clocks(BinaryHeap<Reverse<(u64, usize)>>),
    /// A seed says who goes first.
    Seed(BySeed),
}

/// Those that a seed chooses from.
pub(super) struct BySeed {
    ready: Vec<usize>,
    /// Chosen to go first.
    next: Option<usize>,
    rng: Rng,
    switch_per_mille: u16,
    /// Turns that were given up in a row by those that wait for others without a lock.
    idle: u32,
    actions: u64,
    switches: u64,
}

impl Default for Ready {
    fn default() -> Self {
        Self::Clocks(BinaryHeap::new())
    }
}

impl Ready {
    /// A seed chooses, in `switch_per_mille` of 1000 visible actions.
    pub(super) fn by_seed(seed: u64, switch_per_mille: u16) -> Self {
        Self::Seed(BySeed {
            ready: Vec::new(),
            next: None,
            rng: Rng::new(seed),
            switch_per_mille,
            idle: 0,
            actions: 0,
            switches: 0,
        })
    }

    /// One can run, whose clock is this.
    pub(super) fn push(&mut self, now_ps: u64, who: usize) {
        match self {
            Self::Clocks(heap) => heap.push(Reverse((now_ps, who))),
            Self::Seed(seed) => seed.ready.push(who),
        }
    }

    /// Who goes first, and is not among those that can run any more, with its clock; by seed, with 0.
    pub(super) fn pop(&mut self) -> Option<(u64, usize)> {
        match self {
            Self::Clocks(heap) => heap.pop().map(|Reverse(first)| first),
            Self::Seed(seed) => {
                if seed.next.is_none() {
                    seed.choose();
                }
                seed.next.take().map(|who| (0, who))
            }
        }
    }

    /// One can run no more. Costs time proportional to those that can.
    pub(super) fn remove(&mut self, who: usize) {
        match self {
            Self::Clocks(heap) => heap.retain(|Reverse((_, other))| *other != who),
            Self::Seed(seed) => {
                seed.ready.retain(|other| *other != who);
                seed.next = seed.next.filter(|next| *next != who);
            }
        }
    }

    /// True if another one goes before the one whose turn it is, whose visible action is due.
    pub(super) fn precedes(&mut self, now_ps: u64, who: usize) -> bool {
        match self {
            Self::Clocks(heap) => heap
                .peek()
                .is_some_and(|first| *first > Reverse((now_ps, who))),
            Self::Seed(seed) => {
                seed.idle = 0;
                seed.actions += 1;
                seed.rng.chance(seed.switch_per_mille) && seed.switch()
            }
        }
    }

    /// The same for one that waits for another without a lock: by seed, it lets any other go first.
    pub(super) fn precedes_idle(&mut self, now_ps: u64, who: usize) -> bool {
        match self {
            Self::Clocks(_) => self.precedes(now_ps, who),
            Self::Seed(seed) => {
                seed.idle += 1;
                seed.switch()
            }
        }
    }

    /// Turns that were given up in a row by those that wait without a lock; 0 with clocks, where waits take time.
    pub(super) fn idle(&self) -> u32 {
        match self {
            Self::Clocks(_) => 0,
            Self::Seed(seed) => seed.idle,
        }
    }

    /// By seed: visible actions, and how often another one went first.
    pub(super) fn counts(&self) -> (u64, u64) {
        match self {
            Self::Clocks(_) => (0, 0),
            Self::Seed(seed) => (seed.actions, seed.switches),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Clocks(heap) => heap.clear(),
            Self::Seed(seed) => {
                seed.ready.clear();
                seed.next = None;
            }
        }
    }
}

impl BySeed {
    /// Chooses another one to go first, if any can run.
    fn switch(&mut self) -> bool {
        self.choose();
        self.switches += u64::from(self.next.is_some());
        self.next.is_some()
    }

    fn choose(&mut self) {
        let ready = self.ready.len() as u64;
        self.next = (ready > 0).then(|| self.ready.swap_remove(self.rng.below(ready) as usize));
    }
}
