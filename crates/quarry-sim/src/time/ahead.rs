//! Lines that come while their CPU goes on.
//!
//! A core executes ahead of an access that waits for its line: work overlaps with the line's way, and so do accesses that do
//! not need what it has. It waits when
//!
//! * an access needs what an earlier one brings ([`Access::Read`], [`Access::Write`]): their addresses may come from there;
//! * an atomic operation, a lock or its release comes: these wait for all lines;
//! * its window is full: the instructions behind the oldest access that waits fill the reorder buffer
//!   ([`LineCosts::window`](super::LineCosts::window)), or as many lines are under way as it has miss buffers.
//!
//! Accesses that decide a predicted branch alone ([`Access::Check`]) are needed by none. But what else is read of their line comes
//! with it. Runs of several lines, fills and copies have their own rates, and are waited for as a whole.

use std::cell::{Cell, RefCell};

use quarry_core::machine::Access;

use super::timed::Cause;

/// Lines under way to one CPU.
#[derive(Clone, Copy)]
struct Own {
    /// When the oldest access that is not done began.
    since_ps: u64,
    /// When all have come, and when those have that are needed.
    until_ps: u64,
    needed_ps: u64,
    lines: u32,
    /// Cause of the last access.
    cause: Cause,
}

/// Lines under way to all CPUs.
pub(super) struct Ahead {
    window_ps: u64,
    misses: u32,
    own: Vec<Cell<Own>>,
    /// Lines that each CPU fetches for a branch, and when they come.
    checked: Vec<RefCell<Vec<(usize, u64)>>>,
}

impl Ahead {
    /// None, on n CPUs that go on for `window_ps` and fetch `misses` lines at a time.
    pub(super) fn new(cpus: u32, window_ps: u64, misses: u32) -> Self {
        let none = Own {
            since_ps: 0,
            until_ps: 0,
            needed_ps: 0,
            lines: 0,
            cause: Cause::Outside,
        };
        Self {
            window_ps,
            misses,
            own: (0..cpus).map(|_| Cell::new(none)).collect(),
            checked: (0..cpus).map(|_| RefCell::default()).collect(),
        }
    }

    /// A CPU fetches a line for a branch, and it comes at a moment.
    pub(super) fn checked(&self, cpu: u32, line: usize, now_ps: u64, at_ps: u64) {
        let mut checked = self.checked[cpu as usize].borrow_mut();
        checked.retain(|(_, come_ps)| *come_ps > now_ps);
        checked.push((line, at_ps));
    }

    /// The moment at which a CPU has the bytes of a line that it reads: now, or when the line has come.
    #[inline(always)]
    pub(super) fn read_ps(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        if self.own[cpu as usize].get().until_ps <= now_ps {
            return now_ps;
        }
        let checked = self.checked[cpu as usize].borrow();
        let come = checked.iter().find(|(at, _)| *at == line);
        come.map_or(now_ps, |(_, come_ps)| now_ps.max(*come_ps))
    }

    /// A line comes to a CPU that goes on.
    #[inline(always)]
    pub(super) fn comes(&self, cpu: u32, access: Access, cause: Cause, now_ps: u64, at_ps: u64) {
        let cell = &self.own[cpu as usize];
        let mut own = cell.get();
        if own.until_ps <= now_ps {
            own.since_ps = now_ps;
            own.lines = 0;
        }
        own.until_ps = own.until_ps.max(at_ps);
        if access != Access::Check {
            own.needed_ps = own.needed_ps.max(at_ps);
        }
        own.lines += 1;
        own.cause = cause;
        cell.set(own);
    }

    /// When a CPU can begin an access, and the cause of its wait.
    #[inline(always)]
    pub(super) fn begins_ps(&self, cpu: u32, access: Access, now_ps: u64) -> (u64, Cause) {
        let own = self.own[cpu as usize].get();
        let is_full = now_ps >= own.since_ps + self.window_ps || own.lines >= self.misses;
        let waits_until_ps = match access {
            _ if own.until_ps <= now_ps => now_ps,
            Access::Atomic => own.until_ps,
            _ if is_full => own.until_ps,
            Access::Read | Access::Write => own.needed_ps,
            Access::Store | Access::Check | Access::Prefetch => now_ps,
        };
        (waits_until_ps.max(now_ps), own.cause)
    }

    /// When a CPU has worked for a time, how much of that was a wait, and its cause.
    #[inline(always)]
    pub(super) fn worked_ps(&self, cpu: u32, now_ps: u64, ps: u64) -> (u64, u64, Cause) {
        let own = self.own[cpu as usize].get();
        let room_ps = (own.since_ps + self.window_ps).saturating_sub(now_ps);
        if own.until_ps <= now_ps || ps <= room_ps {
            return (now_ps + ps, 0, own.cause);
        }
        let full_ps = now_ps + room_ps;
        let wait_ps = own.until_ps.saturating_sub(full_ps);
        (now_ps + ps + wait_ps, wait_ps, own.cause)
    }

    /// When the code behind an allocator's call waits for no more lines, if that code is not simulated: it is taken to fill the
    /// window, so the rest of the wait is the call's. Returns the cause, too.
    pub(super) fn left_ps(&self, cpu: u32, now_ps: u64) -> (u64, Cause) {
        let cell = &self.own[cpu as usize];
        let own = cell.get();
        let room_ps = (own.since_ps + self.window_ps).saturating_sub(now_ps);
        let wait_ps = own.until_ps.saturating_sub(now_ps + room_ps);
        cell.set(Own {
            until_ps: 0,
            needed_ps: 0,
            ..own
        });
        (now_ps + wait_ps, own.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU 1 waits for a line from 0 to 100; its window is 30 long.
    fn waiting(access: Access) -> Ahead {
        let ahead = Ahead::new(2, 30, 3);
        ahead.comes(1, access, Cause::Fill, 0, 100);
        ahead
    }

    fn begins(ahead: &Ahead, access: Access, now_ps: u64) -> u64 {
        ahead.begins_ps(1, access, now_ps).0
    }

    #[test]
    fn what_needs_the_line_waits_for_it() {
        let ahead = waiting(Access::Read);
        for access in [Access::Read, Access::Write, Access::Atomic] {
            assert_eq!(begins(&ahead, access, 10), 100);
            assert_eq!(begins(&ahead, access, 110), 110, "it has come");
        }
        assert_eq!(begins(&ahead, Access::Check, 10), 10);
        assert_eq!(begins(&ahead, Access::Store, 10), 10);
        assert_eq!(ahead.begins_ps(0, Access::Atomic, 10).0, 10, "another CPU");
    }

    #[test]
    fn a_predicted_branch_is_waited_for_by_what_orders_memory_alone() {
        let ahead = waiting(Access::Check);
        assert_eq!(begins(&ahead, Access::Read, 10), 10);
        assert_eq!(begins(&ahead, Access::Atomic, 10), 100);
        // Two lines on their way at once take as long as one.
        ahead.comes(1, Access::Check, Cause::Fill, 10, 110);
        assert_eq!(begins(&ahead, Access::Atomic, 20), 110);
    }

    #[test]
    fn what_a_checked_line_has_comes_with_it() {
        let ahead = waiting(Access::Check);
        ahead.checked(1, 7, 0, 100);
        assert_eq!(ahead.read_ps(1, 7, 10), 100);
        assert_eq!(ahead.read_ps(1, 7, 110), 110, "it has come");
        assert_eq!(ahead.read_ps(1, 8, 10), 10, "another line");
        assert_eq!(ahead.read_ps(0, 7, 10), 10, "another CPU");
    }

    #[test]
    fn the_window_and_the_miss_buffers_end_it() {
        let ahead = waiting(Access::Check);
        assert_eq!(begins(&ahead, Access::Check, 29), 29);
        assert_eq!(begins(&ahead, Access::Check, 30), 100);
        for _ in 0..2 {
            ahead.comes(1, Access::Check, Cause::Fill, 10, 100);
        }
        assert_eq!(begins(&ahead, Access::Check, 11), 100, "three lines");
    }

    #[test]
    fn a_call_waits_for_what_its_caller_cannot_hide() {
        let ahead = waiting(Access::Read);
        // The caller fills the window until 30, and 70 are left.
        assert_eq!(ahead.left_ps(1, 10), (80, Cause::Fill));
        assert_eq!(begins(&ahead, Access::Atomic, 80), 80, "nothing is left");
        assert_eq!(waiting(Access::Read).left_ps(1, 90).0, 100);
        assert_eq!(waiting(Access::Read).left_ps(1, 120).0, 120);
    }

    #[test]
    fn work_overlaps_as_far_as_the_window_reaches() {
        let ahead = waiting(Access::Read);
        assert_eq!(ahead.worked_ps(1, 10, 20), (30, 0, Cause::Fill));
        // 20 of 50 are done at 30; the others begin at 100.
        assert_eq!(ahead.worked_ps(1, 10, 50), (130, 70, Cause::Fill));
        assert_eq!(ahead.worked_ps(1, 100, 50).0, 150);
        assert_eq!(ahead.worked_ps(0, 10, 50).0, 60);
    }
}
