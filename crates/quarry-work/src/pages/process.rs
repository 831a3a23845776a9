//! Processes: what each has, and when it moves.

use std::collections::VecDeque;
use std::rc::Rc;

use quarry_core::machine::CpuId;
use quarry_sim::Rng;

use super::lru::Held;

/// A process, on a CPU or waiting for one.
pub(super) struct Process<'h> {
    pub(super) number: u32,
    /// Its pages in the order of their addresses, with the CPU that each was allocated on.
    pub(super) pages: VecDeque<(Rc<Held<'h>>, CpuId)>,
    /// Pages that it has freed since it began to unmap; `None` if it has not.
    pub(super) unmapped: Option<usize>,
    /// Pages until it moves.
    stays: Option<Stays>,
}

struct Stays {
    /// Pages from one move to the next, in the mean.
    every: u32,
    left: u64,
    rng: Rng,
}

impl Stays {
    fn again(&mut self) {
        self.left = 1 + self.rng.below(2 * u64::from(self.every) - 1);
    }
}

impl Process<'_> {
    /// A process without pages, which moves after `every` pages in the mean.
    pub(super) fn new(number: u32, every: Option<u32>, seed: u64) -> Self {
        let stays = every.map(|every| {
            let rng = Rng::new(seed ^ (u64::from(number) << 32));
            let mut stays = Stays {
                every,
                left: 0,
                rng,
            };
            stays.again();
            stays
        });
        Self {
            number,
            pages: VecDeque::new(),
            unmapped: None,
            stays,
        }
    }

    /// It has touched or freed a page. True if it moves now.
    pub(super) fn moves(&mut self) -> bool {
        let Some(stays) = &mut self.stays else {
            return false;
        };
        stays.left -= 1;
        let is_due = stays.left == 0;
        if is_due {
            stays.again();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_moves_after_so_many_pages_in_the_mean() {
        let mut process = Process::new(3, Some(100), 1);
        let moves = (0..100_000).filter(|_| process.moves()).count();
        assert!((900..1100).contains(&moves), "{moves}");
        let mut often = Process::new(0, Some(1), 1);
        assert!((0..10).all(|_| often.moves()));
        let mut never = Process::new(0, None, 1);
        assert!(!(0..1000).any(|_| never.moves()));
    }
}
