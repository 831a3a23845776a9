//! Spin locks, as mechanisms on their line.
//!
//! A waiting CPU spins on a copy of the line. A write to the line takes the copies away, and each spinner
//! fetches it anew: one after the other ([`Lines`]). What differs between the kinds is who spins on the
//! lock's line, who takes the lock after a release, and who else tries to.
//!
//! | kind | kernels (x86) | spins on the line | after a release |
//! |---|---|---|---|
//! | [`LockKind::TestAndSet`] | to 2.6.24; locks of slabs to 3.0 | all | all read, near ones first, and try; the first attempt gets it, also that of the last holder |
//! | [`LockKind::Ticket`] | 2.6.25 to 4.1 | all | all read; the one that came first gets it |
//! | [`LockKind::Queued`] | 4.2 on | the first waiter | the first waiter reads and takes it, and wakes the next one |
//!
//! The first waiter of a queue takes the lock by a plain store, for which it does not wait: no other CPU may take it then (W. Long,
//! "Use a simple write to grab the lock", 2c83e8e9492d, and P. Zijlstra, "Optimize for smaller NR_CPUS", 69f9cae90907, both 2015,
//! from memory). Only the last one of a queue needs an atomic operation, since it also empties the queue; a single waiter is not
//! in a queue (its bit is pending).

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use quarry_core::era::Era;
use rustc_hash::FxBuildHasher;

use super::lines::Lines;
use super::order::Order;
use super::stores::Stores;
use crate::rng::Rng;

/// Kind of a kernel's spin locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A flag: the CPU that sets it first has the lock. Unfair.
    TestAndSet,
    /// Numbers are drawn and served in order.
    Ticket,
    /// Waiters are a list, and all but the first spin on a line of their own.
    Queued,
}

impl LockKind {
    /// That of x86 kernels of a release (see the table above).
    #[must_use]
    pub fn of(era: Era) -> Self {
        if era < Era::V2_6_25 {
            Self::TestAndSet
        } else if era < Era::V4_2 {
            Self::Ticket
        } else {
            Self::Queued
        }
    }
}

#[derive(Default)]
struct Lock {
    holder: Option<u32>,
    /// When the holder took it, and when its last one's release is seen.
    taken_ps: u64,
    freed_ps: u64,
    /// In the order of arrival.
    waiters: VecDeque<u32>,
    /// The waiter that came when there was no other.
    pending: Option<u32>,
}

/// The locks of a machine, by their addresses.
pub(crate) struct Locks {
    locks: RefCell<HashMap<usize, Lock, FxBuildHasher>>,
    rng: RefCell<Rng>,
}

/// A lock on its machine.
pub(crate) struct Place<'a> {
    pub(crate) order: &'a Order,
    pub(crate) lines: &'a Lines,
    pub(crate) stores: &'a Stores,
    pub(crate) kind: LockKind,
    /// Its address, and its line.
    pub(crate) at: usize,
    pub(crate) line: usize,
}

impl Locks {
    /// Free locks; the seed decides in which order spinners fetch a line.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            locks: RefCell::default(),
            rng: RefCell::new(Rng::new(seed)),
        }
    }

    /// The running CPU takes a lock, and waits while another one has it. `what` names it for a
    /// [`Deadlock`](super::Deadlock). Returns the time that it waited for, in picoseconds; `None` if it was free.
    pub(crate) fn lock(&self, place: &Place<'_>, what: &'static str) -> Option<u64> {
        if self.try_lock(place) {
            return None;
        }
        let order = place.order;
        let (cpu, began_ps) = (order.cpu(), order.now_ps());
        self.with(place.at, |lock| {
            if lock.waiters.is_empty() {
                lock.pending = Some(cpu);
            }
            lock.waiters.push_back(cpu);
        });
        // Its attempt was a write: it took the line away from those that spin, and each fetches it again. This is what
        // makes a contended flag or ticket slow for its holder, whose release has to fetch the line back.
        self.respin(place, began_ps, |_| ());
        order.block(what);
        // A flag has no order: a woken waiter may find that another CPU, often the last holder, was faster, and waits
        // again. Tickets and queues are handed over by `unlock`, and their waiter has the lock when it wakes. A body that
        // is unwound does not wait, as no CPU would wake it.
        while place.kind == LockKind::TestAndSet && !order.is_ending() && !self.try_again(place) {
            self.with(place.at, |lock| lock.waiters.push_back(cpu));
            order.block(what);
        }
        Some(order.now_ps() - began_ps)
    }

    /// The running CPU, which spins on a flag, tries to set it if it reads that it is not set. Else it has the line to
    /// spin on.
    fn try_again(&self, place: &Place<'_>) -> bool {
        let &Place {
            order, lines, line, ..
        } = place;
        let cpu = order.cpu();
        let read = || {
            order.visible();
            lines.pass(order.now_ps());
            order.advance_to(lines.read(cpu, line, order.now_ps()));
            order.visible();
            order.now_ps()
        };
        let mut read_ps = read();
        let freed_ps = self.with(place.at, |lock| lock.freed_ps);
        if read_ps < freed_ps {
            // The release is still on its way when the line is read: it takes the line away once more, and only the next
            // read sees it.
            order.advance_to(freed_ps);
            read_ps = read();
        }
        // An attempt that is on its way does not show yet.
        let free = self.with(place.at, |lock| {
            lock.holder.is_none() || lock.taken_ps > read_ps
        });
        if free && self.try_lock(place) {
            return true;
        }
        lines.read(cpu, line, order.now_ps());
        false
    }

    /// The running CPU takes a lock if it is free.
    pub(crate) fn try_lock(&self, place: &Place<'_>) -> bool {
        let &Place {
            order, lines, line, ..
        } = place;
        order.visible();
        lines.pass(order.now_ps());
        let cpu = order.cpu();
        let drained_ps = place.stores.drained_ps(cpu, order.now_ps());
        order.advance_to(lines.atomic(cpu, line, drained_ps));
        self.with(place.at, |lock| {
            let free = lock.holder.is_none();
            if free {
                lock.holder = Some(cpu);
                lock.taken_ps = order.now_ps();
            }
            free
        })
    }

    /// The running CPU, which has the lock, releases it. It does not wait for that to be seen. Returns for how long it
    /// had it until then, in picoseconds.
    pub(crate) fn unlock(&self, place: &Place<'_>) -> u64 {
        let &Place {
            order,
            lines,
            stores,
            line,
            ..
        } = place;
        if order.is_ending() {
            // A body that is unwound frees its locks on any CPU, at no time, and no waiter is there to get them.
            self.with(place.at, |lock| lock.holder = None);
            return 0;
        }
        order.visible();
        lines.pass(order.now_ps());
        let cpu = order.cpu();
        // The release is a store behind all stores before it: others see it when those are done. The CPU itself goes on
        // at once, for the price of a hit.
        let drained_ps = stores.drained_ps(cpu, order.now_ps());
        let free_ps = lines.write(cpu, line, drained_ps);
        lines.keep_until(line, free_ps);
        stores.fetched(cpu, None, free_ps);
        order.advance(lines.costs().l1.hit);
        let (held_ps, waits) = self.with(place.at, |lock| {
            debug_assert_eq!(lock.holder, Some(cpu));
            lock.holder = None;
            lock.freed_ps = free_ps;
            (free_ps - lock.taken_ps, !lock.waiters.is_empty())
        });
        if !waits {
            return held_ps;
        }
        let (next, at_ps) = match place.kind {
            LockKind::TestAndSet => {
                self.race(place, free_ps);
                return held_ps;
            }
            LockKind::Ticket => self.serve(place, free_ps),
            LockKind::Queued => self.hand_over(place, free_ps),
        };
        self.with(place.at, |lock| {
            lock.holder = Some(next);
            lock.taken_ps = at_ps;
            lock.waiters.retain(|&waiter| waiter != next);
        });
        order.wake(next, at_ps);
        held_ps
    }

    /// All spinners read the line, the near ones first.
    fn race(&self, place: &Place<'_>, free_ps: u64) {
        let order = place.order;
        let spinners = self.with(place.at, |lock| std::mem::take(&mut lock.waiters));
        let mut rng = self.rng.borrow_mut();
        let costs = place.lines.costs();
        let rank = |cpu| (costs.distance(order.cpu(), cpu), rng.next_u64(), cpu);
        let mut ranks: Vec<_> = spinners.into_iter().map(rank).collect();
        ranks.sort_unstable();
        // A picosecond decides who is first.
        for (sooner_ps, (_, _, cpu)) in (0..).zip(ranks) {
            order.wake(cpu, free_ps + sooner_ps);
        }
    }

    /// All spinners read which number is served.
    fn serve(&self, place: &Place<'_>, free_ps: u64) -> (u32, u64) {
        let next = self.with(place.at, |lock| lock.waiters[0]);
        let mut served_ps = free_ps;
        self.respin(place, free_ps, |(cpu, read_ps)| {
            if cpu == next {
                served_ps = read_ps;
            }
        });
        (next, served_ps)
    }

    /// The first waiter takes the lock, and lets the next one spin on the line.
    fn hand_over(&self, place: &Place<'_>, free_ps: u64) -> (u32, u64) {
        let &Place {
            lines,
            stores,
            line,
            ..
        } = place;
        let (next, then, was_alone) = self.with(place.at, |lock| {
            let next = lock.waiters[0];
            let was_alone = lock.pending == Some(next);
            (next, lock.waiters.get(1).copied(), was_alone)
        });
        let read_ps = lines.read(next, line, free_ps);
        let taken_ps = if was_alone || then.is_some() {
            let seen_ps = lines.write(next, line, read_ps);
            stores.fetched(next, None, seen_ps);
            read_ps
        } else {
            lines.atomic(next, line, read_ps)
        };
        if let Some(then) = then {
            // Store to the next waiter's own line. That waiter takes the miss, and then reads the lock's line, which it
            // spins on from now on: two transfers for each waiter, however many there are.
            let distance = lines.costs().distance(next, then);
            let told_ps = taken_ps + lines.costs().transfer[distance as usize];
            lines.read(then, line, told_ps);
        }
        (next, taken_ps)
    }

    /// Those that spin on the line fetch it, in some order; calls `read` with each and when it has it.
    fn respin(&self, place: &Place<'_>, now_ps: u64, mut read: impl FnMut((u32, u64))) {
        let waiters = |lock: &mut Lock| lock.waiters.iter().copied().collect();
        let mut spinners: Vec<u32> = self.with(place.at, waiters);
        if place.kind == LockKind::Queued {
            spinners.truncate(1);
        }
        let mut rng = self.rng.borrow_mut();
        while !spinners.is_empty() {
            let cpu = spinners.swap_remove(rng.below(spinners.len() as u64) as usize);
            read((cpu, place.lines.read(cpu, place.line, now_ps)));
        }
    }

    fn with<R>(&self, at: usize, f: impl FnOnce(&mut Lock) -> R) -> R {
        f(self.locks.borrow_mut().entry(at).or_default())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::super::lines::tests::COSTS;
    use super::*;

    /// A lock alone on a line.
    pub(crate) fn place<'a>(
        order: &'a Order,
        lines: &'a Lines,
        stores: &'a Stores,
        kind: LockKind,
        line: usize,
    ) -> Place<'a> {
        Place {
            order,
            lines,
            stores,
            kind,
            at: line,
            line,
        }
    }

    const KINDS: [LockKind; 3] = [LockKind::TestAndSet, LockKind::Ticket, LockKind::Queued];

    #[test]
    fn one_cpu_at_a_time_has_a_lock() {
        for kind in KINDS {
            let (order, lines, locks) = (Order::new(8), Lines::new(8, 64, COSTS), Locks::new(1));
            let stores = Stores::new(8, 10);
            let (inside, rounds) = (Cell::new(0), Cell::new(0));
            let ran = order.run(|cpu| {
                for round in 0..50 {
                    order.advance((u64::from(cpu) * 37 + round * 11) % 90);
                    locks.lock(&place(&order, &lines, &stores, kind, 7), "zone");
                    assert_eq!(inside.replace(inside.get() + 1), 0, "{kind:?}");
                    order.advance(30);
                    order.visible();
                    inside.set(inside.get() - 1);
                    rounds.set(rounds.get() + 1);
                    locks.unlock(&place(&order, &lines, &stores, kind, 7));
                }
            });
            assert_eq!((ran, rounds.get()), (Ok(()), 400), "{kind:?}");
        }
    }

    #[test]
    fn tickets_and_queues_are_fair_and_flags_prefer_the_near() {
        let turns = |kind| {
            let (order, lines, locks) = (Order::new(8), Lines::new(8, 64, COSTS), Locks::new(1));
            let stores = Stores::new(8, 10);
            let taken = RefCell::new(Vec::new());
            let ran = order.run(|cpu| {
                order.advance(u64::from(cpu) * 1000);
                locks.lock(&place(&order, &lines, &stores, kind, 7), "zone");
                // Until all others wait.
                order.advance(100_000);
                taken.borrow_mut().push(cpu);
                locks.unlock(&place(&order, &lines, &stores, kind, 7));
            });
            assert_eq!(ran, Ok(()));
            taken.into_inner()
        };
        let in_order: Vec<u32> = (0..8).collect();
        assert_eq!(turns(LockKind::Ticket), in_order);
        assert_eq!(turns(LockKind::Queued), in_order);
        let flag = turns(LockKind::TestAndSet);
        assert_eq!(flag[..2], [0, 1], "the neighbour of the same cluster");
        let (near, far) = (&flag[..4], &flag[4..]);
        assert!(near.iter().all(|&cpu| cpu < 4), "{flag:?}");
        assert!(far.iter().all(|&cpu| cpu >= 4), "{flag:?}");
    }

    #[test]
    fn the_last_holder_of_a_flag_sets_it_again_before_others_have_read_it() {
        let turns = |kind, pause_ps| {
            let (order, lines, locks) = (Order::new(2), Lines::new(8, 64, COSTS), Locks::new(1));
            let stores = Stores::new(2, 10);
            let taken = RefCell::new(Vec::new());
            let ran = order.run(|cpu| {
                order.advance(u64::from(cpu) * 1000);
                for _ in 0..3 {
                    locks.lock(&place(&order, &lines, &stores, kind, 7), "zone");
                    order.advance(100_000);
                    taken.borrow_mut().push(cpu);
                    locks.unlock(&place(&order, &lines, &stores, kind, 7));
                    order.advance(pause_ps);
                }
            });
            assert_eq!(ran, Ok(()));
            taken.into_inner()
        };
        let transfer_ps = COSTS.transfer[0];
        let again = turns(LockKind::TestAndSet, 1);
        assert_eq!(again, [0, 0, 0, 1, 1, 1]);
        let later = turns(LockKind::TestAndSet, 3 * transfer_ps);
        assert_eq!(later, [0, 1, 0, 1, 0, 1]);
        for kind in [LockKind::Ticket, LockKind::Queued] {
            assert_eq!(turns(kind, 1), [0, 1, 0, 1, 0, 1], "{kind:?}");
        }
    }

    #[test]
    fn a_body_that_is_unwound_does_not_spin_for_ever() {
        struct Again<'a>(&'a dyn Fn());
        impl Drop for Again<'_> {
            fn drop(&mut self) {
                (self.0)();
            }
        }
        let (order, lines, locks) = (Order::new(2), Lines::new(8, 64, COSTS), Locks::new(1));
        let stores = Stores::new(2, 10);
        let lock = || {
            let place = place(&order, &lines, &stores, LockKind::TestAndSet, 7);
            locks.lock(&place, "slab");
        };
        let ran = order.run(|_| {
            let _ends = Again(&lock);
            lock();
            order.block("no one");
        });
        let error = ran.expect_err("a deadlock");
        assert!(error.to_string().starts_with("deadlock: "), "{error}");
    }

    #[test]
    fn a_lock_that_is_never_released_is_a_deadlock() {
        let (order, lines) = (Order::new(2), Lines::new(8, 64, COSTS));
        let (locks, stores) = (Locks::new(1), Stores::new(2, 10));
        let ran = order.run(|cpu| {
            if cpu == 0 {
                locks.lock(&place(&order, &lines, &stores, LockKind::Queued, 7), "zone");
                locks.lock(&place(&order, &lines, &stores, LockKind::Queued, 8), "barn");
            } else {
                locks.lock(&place(&order, &lines, &stores, LockKind::Queued, 8), "barn");
                locks.lock(&place(&order, &lines, &stores, LockKind::Queued, 7), "zone");
            }
        });
        let error = ran.expect_err("a deadlock");
        let text = error.to_string();
        assert_eq!(text, "deadlock: CPU 0 waits for barn, CPU 1 waits for zone");
    }

    #[test]
    fn a_release_is_seen_behind_the_stores_before_it() {
        for kind in KINDS {
            let (order, lines, locks) = (Order::new(2), Lines::new(8, 64, COSTS), Locks::new(1));
            let stores = Stores::new(2, 10);
            let ran = order.run(|cpu| {
                // The second one comes while the lock is held, or free but not seen so.
                order.advance(u64::from(cpu) * 120);
                locks.lock(&place(&order, &lines, &stores, kind, 7), "zone");
                if cpu == 0 {
                    stores.fetched(0, None, 5000);
                    locks.unlock(&place(&order, &lines, &stores, kind, 7));
                    assert!(order.now_ps() < 200, "the first one goes on");
                } else {
                    assert!(order.now_ps() >= 5000, "{kind:?}: {}", order.now_ps());
                }
            });
            assert_eq!(ran, Ok(()));
        }
    }
}
