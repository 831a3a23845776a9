//! Spin locks, as mechanisms on their line.
//!
//! A waiting CPU spins on a copy of the line. A write to the line takes the copies away, and each spinner
//! fetches it anew: one after the other ([`Lines`]). What differs between the kinds is who spins on the
//! lock's line, who takes the lock after a release, and who else tries to.
//!
//! A CPU that releases a lock has the line until a spinner's request comes to it, after half of a transfer. If it tries to take the
//! lock again before, it needs no transfer. A flag is then set again; a number is drawn, or the queue joined, at no cost
//! to others.
//!
//! | kind | kernels (x86) | spins on the line | after a release |
//! |---|---|---|---|
//! | [`LockKind::TestAndSet`] | to 2.6.24; locks of slabs to 3.0 | all | all read, near ones first, and try; the first attempt gets it, also that of the last holder |
//! | [`LockKind::Ticket`] | 2.6.25 to 4.1 | all | all read; the one that came first gets it |
//! | [`LockKind::Queued`] | 4.2 on | the first waiter, once it knows that | the first waiter reads and takes it, and tells the next one |
//!
//! The first waiter of a queue takes the lock by a plain store, for which it does not wait: no other CPU may take it then (W. Long,
//! "Use a simple write to grab the lock", 2c83e8e9492d, and P. Zijlstra, "Optimize for smaller NR_CPUS", 69f9cae90907, both 2015,
//! from memory). Only the last one of a queue needs an atomic operation, since it also empties the queue; a single waiter is not
//! in a queue (its bit is pending). The store that tells the next waiter is seen behind that one, as x86 keeps stores in order.
//! That waiter then reads the lock's line, from the holder or as it left it.

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
    /// When the holder took it, when its last one's release is seen, and who that was.
    taken_ps: u64,
    freed_ps: u64,
    freed_by: u32,
    /// In the order of arrival.
    waiters: VecDeque<u32>,
    /// The waiter that came when there was no other.
    pending: Option<u32>,
    /// The first waiter of a queue knows that it is, and spins on the line.
    spins: bool,
    /// The lock was released, and spinners have not fetched the line since.
    due: bool,
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
        let fetched_later = self.with(place.at, |lock| {
            if lock.waiters.is_empty() {
                lock.pending = Some(cpu);
                lock.spins = true;
            }
            lock.waiters.push_back(cpu);
            lock.due
        });
        // Its attempt was a write: it took the line away from those that spin, and each fetches it again. This is what
        // makes a contended flag or ticket slow for its holder, whose release has to fetch the line back. A holder that
        // releases and tries at once does both while it has the line, and the spinners fetch it once.
        if !fetched_later {
            self.respin(place, 0, began_ps, |_| ());
        }
        order.block(what);
        // A flag has no order: a woken waiter may find that another CPU, often the last holder, was faster, and waits
        // again. A number or a place in the queue is kept. A body that is unwound does not wait, as no CPU would wake it.
        while !order.is_ending() && !self.take_turn(place) {
            order.block(what);
        }
        Some(order.now_ps() - began_ps)
    }

    /// A waiter that a release or its predecessor in the queue woke tries to take the lock.
    fn take_turn(&self, place: &Place<'_>) -> bool {
        let order = place.order;
        order.visible();
        // Half of a transfer is the way of the request. The CPU that released the lock, or took it, has the line until
        // then.
        let owner = self.with(place.at, |lock| lock.holder.unwrap_or(lock.freed_by));
        let costs = place.lines.costs();
        let distance = costs.distance(owner, order.cpu());
        let asked_ps = costs.transfer[distance as usize] / 2;
        order.advance(asked_ps);
        order.visible();
        place.lines.pass(order.now_ps());
        match place.kind {
            LockKind::TestAndSet => {
                let taken = self.try_again(place, asked_ps);
                if !taken {
                    self.with(place.at, |lock| lock.waiters.push_back(order.cpu()));
                }
                taken
            }
            LockKind::Ticket => {
                self.be_served(place, asked_ps);
                true
            }
            LockKind::Queued => self.follows(place, asked_ps),
        }
    }

    /// The running CPU, which spins on a flag, tries to set it if it reads that it is not set. Else it has the line to
    /// spin on.
    fn try_again(&self, place: &Place<'_>, asked_ps: u64) -> bool {
        let &Place {
            order, lines, line, ..
        } = place;
        let cpu = order.cpu();
        let read = |asked_ps| {
            order.advance_to(lines.read_asked(cpu, line, asked_ps, order.now_ps()));
            order.visible();
            lines.pass(order.now_ps());
            order.now_ps()
        };
        let mut read_ps = read(asked_ps);
        let freed_ps = self.with(place.at, |lock| lock.freed_ps);
        if read_ps < freed_ps {
            // The release is still on its way when the line is read: it takes the line away once more, and only the next
            // read sees it.
            order.advance_to(freed_ps);
            order.visible();
            lines.pass(order.now_ps());
            read_ps = read(0);
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
            // Who draws a number or joins a queue gets the lock behind those that wait.
            let first = place.kind == LockKind::TestAndSet || lock.waiters.is_empty();
            let free = lock.holder.is_none() && first;
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
        let (held_ps, first) = self.with(place.at, |lock| {
            debug_assert_eq!(lock.holder, Some(cpu));
            lock.holder = None;
            (lock.freed_ps, lock.freed_by) = (free_ps, cpu);
            (free_ps - lock.taken_ps, lock.waiters.front().copied())
        });
        let Some(first) = first else {
            return held_ps;
        };
        if place.kind == LockKind::TestAndSet {
            self.race(place, free_ps);
            return held_ps;
        }
        // The first waiter fetches the line in its own turn: until then the CPU that released it has it. One that is not
        // told yet that it is the first will find the lock free.
        let spins = self.with(place.at, |lock| {
            let spins = place.kind == LockKind::Ticket || lock.spins;
            lock.due = spins;
            spins
        });
        if spins {
            order.wake(first, free_ps);
        }
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

    /// All spinners read which number is served: the running CPU's.
    fn be_served(&self, place: &Place<'_>, asked_ps: u64) {
        let order = place.order;
        let (cpu, mut read_ps) = (order.cpu(), 0);
        self.respin(place, asked_ps, order.now_ps(), |(spinner, has_ps)| {
            if spinner == cpu {
                read_ps = has_ps;
            }
        });
        order.advance_to(read_ps);
        self.with(place.at, |lock| {
            lock.waiters.pop_front();
            lock.due = false;
            lock.holder = Some(cpu);
            lock.taken_ps = read_ps;
        });
    }

    /// The running CPU is the first in the queue, and reads the line. If the lock is free it takes it, and tells its
    /// successor. Else it spins.
    fn follows(&self, place: &Place<'_>, asked_ps: u64) -> bool {
        let &Place {
            order,
            lines,
            stores,
            line,
            ..
        } = place;
        let cpu = order.cpu();
        let read_ps = lines.read_asked(cpu, line, asked_ps, order.now_ps());
        order.advance_to(read_ps);
        let (free, then, was_alone) = self.with(place.at, |lock| {
            let free = lock.holder.is_none();
            let was_alone = lock.pending == Some(cpu);
            lock.spins = !free;
            lock.due = false;
            if free {
                lock.waiters.pop_front();
                lock.pending = None;
                lock.holder = Some(cpu);
            }
            (free, lock.waiters.front().copied(), was_alone)
        });
        if !free {
            return false;
        }
        // No other CPU may take the lock now: a store does, which the CPU does not wait for. Only the last one in a queue
        // has to see whether it is.
        let taken_ps = if was_alone || then.is_some() {
            let seen_ps = lines.write(cpu, line, read_ps);
            lines.keep_until(line, seen_ps);
            stores.fetched(cpu, None, seen_ps);
            read_ps
        } else {
            lines.atomic(cpu, line, read_ps)
        };
        order.advance_to(taken_ps);
        self.with(place.at, |lock| lock.taken_ps = taken_ps);
        if let Some(then) = then {
            // A store to the next waiter's own line, which is seen behind the one to the lock. That waiter takes the miss.
            let distance = lines.costs().distance(cpu, then);
            let told_ps =
                stores.drained_ps(cpu, taken_ps) + lines.costs().transfer[distance as usize];
            order.wake(then, told_ps);
        }
        true
    }

    /// Those that spin on the line fetch it, in some order; calls `read` with each and when it has it.
    fn respin(
        &self,
        place: &Place<'_>,
        asked_ps: u64,
        now_ps: u64,
        mut read: impl FnMut((u32, u64)),
    ) {
        let mut spinners: Vec<u32> = self.with(place.at, |lock| {
            let spin = match place.kind {
                LockKind::Queued => usize::from(lock.spins),
                LockKind::TestAndSet | LockKind::Ticket => usize::MAX,
            };
            lock.waiters.iter().copied().take(spin).collect()
        });
        let mut rng = self.rng.borrow_mut();
        while !spinners.is_empty() {
            let cpu = spinners.swap_remove(rng.below(spinners.len() as u64) as usize);
            let has_ps = place.lines.read_asked(cpu, place.line, asked_ps, now_ps);
            read((cpu, has_ps));
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
