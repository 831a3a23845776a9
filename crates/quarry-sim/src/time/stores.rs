//! Stores that wait for their lines while their CPU goes on.
//!
//! A CPU does not wait for a line that it only stores to ([`Access::Store`](quarry_core::machine::Access::Store)): the
//! store stays in a buffer, and the line is fetched meanwhile. It fetches as many lines at a time as it has miss buffers; a
//! store beyond that waits. What was stored can be read back at once; other bytes of the line when it has come. Stores
//! become visible in their order (x86), so the release of a lock is seen behind all stores before it, and an atomic
//! operation waits for them. A prefetch takes a miss buffer as well; it has no place in that order, and only an access to its
//! line waits for it.

use std::cell::RefCell;

/// Bytes of a line, by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) line: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Bytes {
    fn has(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// A store whose line is under way.
#[derive(Clone, Copy)]
struct Store {
    to: Option<Bytes>,
    come_ps: u64,
}

/// The stores of one CPU.
struct Own {
    /// The last use of each miss buffer; the oldest is at `next`.
    buffers: Vec<Store>,
    next: usize,
    /// When all stores so far are visible.
    drained_ps: u64,
    /// When all lines so far have come.
    come_ps: u64,
}

impl Own {
    /// A line is under way.
    fn begin(&mut self, store: Store) {
        self.buffers[self.next] = store;
        self.next = (self.next + 1) % self.buffers.len();
        self.come_ps = self.come_ps.max(store.come_ps);
    }
}

/// The stores of all CPUs.
pub(super) struct Stores(RefCell<Vec<Own>>);

impl Stores {
    /// No stores, on n CPUs that fetch `misses` lines at a time each.
    pub(super) fn new(cpus: u32, misses: u32) -> Self {
        let none = Store {
            to: None,
            come_ps: 0,
        };
        let own = |_| Own {
            buffers: vec![none; misses as usize],
            next: 0,
            drained_ps: 0,
            come_ps: 0,
        };
        Self(RefCell::new((0..cpus).map(own).collect()))
    }

    /// When a CPU that would store to a line that it does not have can begin to fetch it.
    pub(super) fn begin_ps(&self, cpu: u32, now_ps: u64) -> u64 {
        let own = &self.0.borrow()[cpu as usize];
        own.buffers[own.next].come_ps.max(now_ps)
    }

    /// A line comes that a store waits for; without `to` the CPU has the line, and waits for older stores.
    pub(super) fn fetched(&self, cpu: u32, to: Option<Bytes>, come_ps: u64) {
        let own = &mut self.0.borrow_mut()[cpu as usize];
        own.begin(Store { to, come_ps });
        own.drained_ps = own.drained_ps.max(come_ps);
    }

    /// A line comes that nothing waits for yet.
    pub(super) fn prefetched(&self, cpu: u32, line: usize, come_ps: u64) {
        let nothing_stored = Bytes {
            line,
            first: usize::MAX,
            last: 0,
        };
        let to = Some(nothing_stored);
        self.0.borrow_mut()[cpu as usize].begin(Store { to, come_ps });
    }

    /// When all stores of a CPU so far are visible: now, or later.
    #[inline(always)]
    pub(super) fn drained_ps(&self, cpu: u32, now_ps: u64) -> u64 {
        self.0.borrow()[cpu as usize].drained_ps.max(now_ps)
    }

    /// When a CPU has what it reads of a line: now, or when the line has come that it stored other bytes to.
    #[inline(always)]
    pub(super) fn read_ps(&self, cpu: u32, read: Bytes, now_ps: u64) -> u64 {
        let own = &self.0.borrow()[cpu as usize];
        if own.come_ps <= now_ps {
            return now_ps;
        }
        let waits_for = |to: Bytes| to.line == read.line && !to.has(&read);
        let under_way = own
            .buffers
            .iter()
            .filter(|store| store.to.is_some_and(waits_for));
        let come_ps = under_way.map(|store| store.come_ps).max();
        come_ps.map_or(now_ps, |come_ps| come_ps.max(now_ps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lines_are_fetched_at_a_time() {
        let stores = Stores::new(2, 2);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let begin_ps = stores.begin_ps(1, 5);
            stores.fetched(1, None, begin_ps + 100);
            seen.push(begin_ps);
        }
        assert_eq!(seen, [5, 5, 105, 105]);
        assert_eq!(stores.drained_ps(1, 7), 205);
        assert_eq!(stores.drained_ps(1, 300), 300);
        assert_eq!(stores.drained_ps(0, 7), 7, "another CPU");
    }

    #[test]
    fn what_was_stored_is_read_at_once_and_the_rest_of_its_line_when_it_comes() {
        let stores = Stores::new(2, 2);
        let bytes = |first, last| Bytes {
            line: first / 64,
            first,
            last,
        };
        stores.fetched(1, Some(bytes(64, 79)), 100);
        let read_ps = |cpu, first, last, now_ps| stores.read_ps(cpu, bytes(first, last), now_ps);
        assert_eq!(read_ps(1, 64, 71, 5), 5);
        assert_eq!(read_ps(1, 72, 87, 5), 100);
        assert_eq!(read_ps(1, 72, 87, 105), 105, "it has come");
        assert_eq!(read_ps(1, 128, 135, 5), 5, "another line");
        assert_eq!(read_ps(0, 72, 87, 5), 5, "another CPU");
    }
    #[test]
    fn a_prefetch_is_waited_for_by_its_line_alone() {
        let stores = Stores::new(2, 2);
        stores.prefetched(1, 1, 100);
        let bytes = |first, last| Bytes {
            line: first / 64,
            first,
            last,
        };
        let read_ps = |first, now_ps| stores.read_ps(1, bytes(first, first + 7), now_ps);
        assert_eq!((read_ps(64, 5), read_ps(120, 5)), (100, 100));
        assert_eq!((read_ps(64, 105), read_ps(128, 5)), (105, 5));
        assert_eq!(stores.drained_ps(1, 5), 5, "it is no store");
        stores.prefetched(1, 2, 200);
        assert_eq!(stores.begin_ps(1, 5), 100, "both buffers are in use");
    }
}
