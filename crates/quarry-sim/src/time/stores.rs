//! Stores that wait for their lines while their CPU goes on.
//!
//! A CPU does not wait for the line that it writes to: the store stays in a buffer, and the line is fetched meanwhile. It
//! fetches as many lines at a time as it has miss buffers; a store beyond that waits. Stores become visible in their
//! order (x86), so the release of a lock is seen behind all stores before it, and an atomic operation waits for them.

use std::cell::RefCell;

/// The stores of one CPU.
struct Own {
    /// When each miss buffer is free; the oldest use is at `next`.
    buffers_ps: Vec<u64>,
    next: usize,
    /// When all stores so far are visible.
    drained_ps: u64,
}

/// The stores of all CPUs.
pub(super) struct Stores(RefCell<Vec<Own>>);

impl Stores {
    /// No stores, on n CPUs that fetch `misses` lines at a time each.
    pub(super) fn new(cpus: u32, misses: u32) -> Self {
        let own = |_| Own {
            buffers_ps: vec![0; misses as usize],
            next: 0,
            drained_ps: 0,
        };
        Self(RefCell::new((0..cpus).map(own).collect()))
    }

    /// When a CPU that would write to a line that it does not have can begin to fetch it.
    pub(super) fn begin_ps(&self, cpu: u32, now_ps: u64) -> u64 {
        let own = &self.0.borrow()[cpu as usize];
        own.buffers_ps[own.next].max(now_ps)
    }

    /// A line comes that a store waits for.
    pub(super) fn fetched(&self, cpu: u32, come_ps: u64) {
        let own = &mut self.0.borrow_mut()[cpu as usize];
        own.buffers_ps[own.next] = come_ps;
        own.next = (own.next + 1) % own.buffers_ps.len();
        own.drained_ps = own.drained_ps.max(come_ps);
    }

    /// When all stores of a CPU so far are visible: now, or later.
    pub(super) fn drained_ps(&self, cpu: u32, now_ps: u64) -> u64 {
        self.0.borrow()[cpu as usize].drained_ps.max(now_ps)
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
            stores.fetched(1, begin_ps + 100);
            seen.push(begin_ps);
        }
        assert_eq!(seen, [5, 5, 105, 105]);
        assert_eq!(stores.drained_ps(1, 7), 205);
        assert_eq!(stores.drained_ps(1, 300), 300);
        assert_eq!(stores.drained_ps(0, 7), 7, "another CPU");
    }
}
