//! Readers of objects whose free is deferred, and when those that run now have finished.
//!
//! # What a reader is
//!
//! A read-side section begins when [`HostMachine::rcu_read_lock`](crate::HostMachine::rcu_read_lock) returns
//! and ends when its guard is dropped. Nothing else is one: a thread without a guard is never waited for.
//! Sections nest, may block, may move to other threads and CPUs, and may be in signal handlers. While
//! one lasts, nothing is freed whose free was deferred after it began; so a section that never ends
//! makes memory grow, as in the kernel.
//!
//! The child of a fork has no readers: sections of its parent, those of the forking thread among them,
//! have ended there.
//!
//! # How grace periods end
//!
//! Readers and writers announce nothing. A thread that asks whether a grace period is over tries to end it:
//!
//! ```text
//!   epoch                 0        1        2        3
//!   readers count at    [0]      [1]      [0]      [1]      counters of the epoch's parity, one pair
//!   1 -> 2 waits for                       ^ none at [0]    a shard
//! ```
//!
//! A reader counts itself in the counter of the epoch's parity, in the shard of its CPU or concurrency id; any shard
//! is right, and this one is seldom another running reader's. The epoch moves on
//! when every shard's counter of the other parity has been seen at 0. An object that is deferred in epoch
//! `e` is free in epoch `e + 3`: the step to `e + 1` may have looked before the object was unlinked. Each
//! of the next two looks at one of the two counters afterwards.
//!
//! A reader that a look at its counter misses has counted itself later, in the order of all `SeqCst`
//! operations: it finds the object unlinked. One that read the epoch long ago may count itself at
//! the wrong parity; both are looked at, so that only delays.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Pairs of counters; CPUs share them if there are more.
const SHARDS: usize = 32;
/// Steps of the epoch that an object waits for.
const STEPS: u64 = 3;

/// Readers of one shard by the parity of the epoch; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard([AtomicUsize; 2]);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    shards: [Shard; SHARDS],
    epoch: AtomicU64,
    /// Forks so far; guards of earlier ones count nowhere.
    forks: AtomicUsize,
}

/// A read-side section; ends when it is dropped
/// ([`HostMachine::rcu_read_lock`](crate::HostMachine::rcu_read_lock)).
#[derive(Debug)]
#[must_use = "the read-side section ends when the guard is dropped"]
pub struct RcuReadGuard<'m> {
    readers: &'m Readers,
    counter: &'m AtomicUsize,
    forks: usize,
}

impl Readers {
    /// Begins a section on a CPU.
    pub(crate) fn enter(&self, cpu: u32) -> RcuReadGuard<'_> {
        let forks = self.forks.load(Ordering::Relaxed);
        // Relaxed: an old epoch only delays (see the module's documentation).
        let parity = self.epoch.load(Ordering::Relaxed) as usize % 2;
        let counter = &self.shards[cpu as usize % SHARDS].0[parity];
        // SeqCst: ordered against the looks of `step`.
        counter.fetch_add(1, Ordering::SeqCst);
        // SeqCst: if a look behind the fence in `cookie` missed the counter, the reader loads from
        // here on what was stored before that fence.
        fence(Ordering::SeqCst);
        RcuReadGuard {
            readers: self,
            counter,
            forks,
        }
    }

    /// The epoch in which objects that are unlinked now may be freed.
    pub(crate) fn cookie(&self) -> u64 {
        // SeqCst: see `enter`.
        fence(Ordering::SeqCst);
        // SeqCst: looks for the steps behind the next one come after this, in the order of all.
        self.epoch.load(Ordering::SeqCst) + STEPS
    }

    /// True if that epoch has come, or can be made to come now.
    pub(crate) fn elapsed(&self, cookie: u64) -> bool {
        loop {
            // SeqCst: see `cookie`. It also acquires what readers did before the steps so far.
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch >= cookie {
                return true;
            }
            if !self.step(epoch) {
                return false;
            }
        }
    }

    /// Moves on from an epoch; `false` while readers of the one before it run.
    fn step(&self, epoch: u64) -> bool {
        let other = (epoch as usize + 1) % 2;
        // SeqCst: see `enter`. Acquire is part of it: pairs with the Release in the guard's drop.
        let quiet = |shard: &Shard| shard.0[other].load(Ordering::SeqCst) == 0;
        if !self.shards.iter().all(quiet) {
            return false;
        }
        // Another thread may have made the step; a failure is as good. SeqCst: see `cookie`.
        let _ = self
            .epoch
            .compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst);
        true
    }

    /// In the child of a fork: ends all sections.
    pub(crate) fn forget(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        for shard in &self.shards {
            shard
                .0
                .iter()
                .for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }
}

impl Drop for RcuReadGuard<'_> {
    fn drop(&mut self) {
        if self.forks == self.readers.forks.load(Ordering::Relaxed) {
            // Release: pairs with the looks of `step`.
            self.counter.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_readers_a_grace_period_ends_when_it_is_asked_for() {
        let readers = Readers::default();
        for _ in 0..10 {
            let cookie = readers.cookie();
            assert!(readers.elapsed(cookie));
        }
    }

    /// Only the sections that had begun are waited for, whatever the epoch they began in.
    #[test]
    fn a_grace_period_waits_for_the_sections_that_had_begun() {
        let readers = Readers::default();
        for cpu in 0..7 {
            let before = readers.enter(cpu);
            let cookie = readers.cookie();
            assert!(!readers.elapsed(cookie));
            let after = readers.enter(cpu + 1);
            assert!(!readers.elapsed(cookie));
            drop(before);
            // The later section began in the epoch that the earlier one held up, or in the next.
            let second = readers.cookie();
            assert!(!readers.elapsed(second), "the later section runs");
            drop(after);
            assert!(readers.elapsed(cookie) && readers.elapsed(second));
        }
    }

    /// A section that does not end holds up at most what was deferred after its beginning.
    #[test]
    fn sections_that_come_and_go_do_not_hold_up_for_ever() {
        let readers = Readers::default();
        let cookie = readers.cookie();
        let mut current = readers.enter(0);
        let mut asked = 0;
        while !readers.elapsed(cookie) {
            // The next begins before the last ends.
            current = readers.enter(asked % 3);
            asked += 1;
            assert!(asked < 10, "the grace period never ends");
        }
        drop(current);
    }

    /// A reader that read the epoch before it moved on is counted at the other parity.
    #[test]
    fn a_late_count_is_waited_for() {
        let readers = Readers::default();
        assert!(readers.elapsed(1));
        // It read epoch 0, then the epoch moved on, and only now it counts itself.
        let late = &readers.shards[3].0[0];
        late.fetch_add(1, Ordering::SeqCst);
        let cookie = readers.cookie();
        assert!(!readers.elapsed(cookie));
        late.fetch_sub(1, Ordering::Release);
        assert!(readers.elapsed(cookie));
    }

    #[test]
    fn a_child_has_no_readers() {
        let readers = Readers::default();
        let parents = readers.enter(0);
        let cookie = readers.cookie();
        readers.forget();
        assert!(readers.elapsed(cookie));
        let own = readers.enter(0);
        drop(parents);
        assert!(!readers.elapsed(readers.cookie()), "its own section runs");
        drop(own);
    }
}
