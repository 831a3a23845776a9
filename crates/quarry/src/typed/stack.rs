//! A stack of numbers below 2^32 - 1, linked through a table of words, that any thread pushes to and pops from.
//!
//! A push and a pop are one compare-and-swap each, so a signal handler or the child of a fork finds the stack whole.
//! The head has a tag beside the number on top, which every change increments: a pop that read a link before others
//! popped and pushed the same number again fails, unless they did so 2^32 times meanwhile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the module's documentation.
pub(super) struct Stack {
    /// The tag in the upper half, and in the lower one the number on top plus 1, 0 if there is none.
    head: AtomicU64,
}

impl Stack {
    pub(super) const fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
        }
    }

    /// The head with another number on top, or none.
    const fn next(head: u64, top: u32) -> u64 {
        let tag = (head >> 32) as u32;
        (tag.wrapping_add(1) as u64) << 32 | top as u64
    }

    /// Puts a number on top. It is on no stack that uses the same links.
    pub(super) fn push(&self, number: usize, link: &AtomicU32) {
        let push = |head| {
            link.store(head as u32, Ordering::Relaxed);
            Some(Self::next(head, number as u32 + 1))
        };
        // Release: who pops the number sees what was written before (pairs with the Acquire in `pop` and `take`).
        let pushed = self
            .head
            .fetch_update(Ordering::Release, Ordering::Relaxed, push);
        debug_assert!(pushed.is_ok(), "`push` always has an answer");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) as u32 == 0
    }

    /// Takes the number on top; `link_of` finds the link of a number.
    pub(super) fn pop(&self, link_of: impl Fn(usize) -> &'static AtomicU32) -> Option<usize> {
        let pop = |head| {
            let top = (head as u32).checked_sub(1)?;
            // If another thread popped the number meanwhile the link is any number, and the tag another.
            let below = link_of(top as usize).load(Ordering::Relaxed);
            Some(Self::next(head, below))
        };
        // Acquire: pairs with the Release in `push`, also before the link is read.
        let popped = self
            .head
            .fetch_update(Ordering::Acquire, Ordering::Acquire, pop);
        popped.ok().map(|head| head as u32 as usize - 1)
    }

    /// Takes all numbers off: the one on top, whose links lead to the others ([`below`]).
    pub(super) fn take(&self) -> Option<usize> {
        let empty = |head| Some(Self::next(head, 0));
        // Acquire: pairs with the Release in `push`.
        let taken = self
            .head
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, empty);
        let head = taken.unwrap_or_else(|head| head);
        (head as u32).checked_sub(1).map(|top| top as usize)
    }
}

/// The number below the one with this link, of numbers that [`Stack::take`] took.
pub(super) fn below(link: &AtomicU32) -> Option<usize> {
    let below = link.load(Ordering::Relaxed);
    below.checked_sub(1).map(|number| number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_comes_first() {
        static LINKS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
        let stack = Stack::new();
        assert_eq!((stack.pop(|at| &LINKS[at]), stack.take()), (None, None));
        assert!(stack.is_empty());
        (0..4).for_each(|at| stack.push(at, &LINKS[at]));
        assert!(!stack.is_empty());
        assert_eq!(stack.pop(|at| &LINKS[at]), Some(3));
        let mut taken = stack.take();
        let all = std::iter::from_fn(|| {
            let at = taken?;
            taken = below(&LINKS[at]);
            Some(at)
        });
        assert_eq!(all.collect::<Vec<_>>(), [2, 1, 0]);
        assert!(stack.is_empty());
        assert_eq!(stack.pop(|at| &LINKS[at]), None);
    }

    /// Each change makes another head, though the same number is on top again.
    #[test]
    fn heads_are_tagged() {
        assert_eq!(Stack::next(0, 7), 1 << 32 | 7);
        assert_eq!(Stack::next(1 << 32 | 7, 0), 2 << 32);
        assert_eq!(Stack::next(u64::MAX, 7), 7, "the tag goes round");
    }

    /// No number is handed out twice, and none is lost.
    #[test]
    fn threads_share_the_numbers() {
        static LINKS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
        static OWNERS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
        let stack = Stack::new();
        (0..8).for_each(|at| stack.push(at, &LINKS[at]));
        std::thread::scope(|scope| {
            for me in 1..=4 {
                let stack = &stack;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let Some(at) = stack.pop(|at| &LINKS[at]) else {
                            panic!("four threads have at most four of eight")
                        };
                        assert_eq!(OWNERS[at].swap(me, Ordering::Relaxed), 0);
                        assert_eq!(OWNERS[at].swap(0, Ordering::Relaxed), me);
                        stack.push(at, &LINKS[at]);
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| stack.pop(|at| &LINKS[at])).count(), 8);
    }
}
