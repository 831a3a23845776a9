//! Slow paths and waits of operations on CPUs with clocks.

use std::cell::Cell;

use quarry_core::machine::Work;

use super::VirtualMachine;

/// Slow paths and waits of a CPU so far. The difference between two moments is that of the operations between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Entries to slow paths ([`Work::SlowPath`]).
    pub slow_paths: u64,
    /// Entries to the page allocator ([`Work::PageCall`]).
    pub page_calls: u64,
    /// Picoseconds that it waited for locks.
    pub lock_wait_ps: u64,
}

impl Passage {
    /// Difference to an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            slow_paths: self.slow_paths - earlier.slow_paths,
            page_calls: self.page_calls - earlier.page_calls,
            lock_wait_ps: self.lock_wait_ps - earlier.lock_wait_ps,
        }
    }
}

impl VirtualMachine {
    /// Slow paths and waits of the running CPU while CPUs run side by side.
    #[must_use]
    pub fn passage(&self) -> Passage {
        self.on_passage(|_| ())
    }

    /// Changes what the running CPU went through, and returns it.
    pub(super) fn on_passage(&self, change: impl FnOnce(&mut Passage)) -> Passage {
        let cell = self.passages.get(self.cpu.get().0 as usize);
        let mut passage = cell.map(Cell::get).unwrap_or_default();
        change(&mut passage);
        if let Some(cell) = cell {
            cell.set(passage);
        }
        passage
    }

    /// Work takes the running CPU's time.
    pub(super) fn do_work(&self, work: Work) {
        self.timed().work(work);
        match work {
            Work::SlowPath => self.on_passage(|passage| passage.slow_paths += 1),
            Work::PageCall => self.on_passage(|passage| passage.page_calls += 1),
            _ => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use quarry_core::machine::{Accounting as _, LockClass, Locks as _, RawLock};

    use super::*;
    use crate::config::Config;
    use crate::time::tests::MODEL;

    #[test]
    fn what_an_operation_went_through_is_its_cpus_own() {
        let config = Config {
            cpus: 2,
            time: Some(MODEL),
            ..Config::default()
        };
        let machine = VirtualMachine::new(config).unwrap();
        let lock = RawLock::new();
        let (seen, turns) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let ran = machine.run_cpus(|cpu| {
            // The second one comes while the first one has the lock.
            machine.spend(10_000 * u64::from(cpu.0));
            let before = machine.passage();
            let _ = machine.lock(&lock, LockClass::Zone);
            machine.work(Work::PageCall);
            if cpu.0 == 0 {
                machine.work(Work::SlowPath);
                machine.spend(1_000_000);
            }
            // SAFETY: taken above.
            unsafe { machine.unlock(&lock, LockClass::Zone) };
            machine.take_turn();
            turns.borrow_mut().push(machine.clock_ps());
            let passage = machine.passage().since(before);
            seen.borrow_mut().push((cpu.0, passage));
        });
        assert_eq!(ran, Ok(()));
        assert!(turns.borrow().is_sorted(), "{turns:?}");
        let [(0, first), (1, second)] = seen.into_inner()[..] else {
            panic!("the first one is done first");
        };
        assert_eq!((first.slow_paths, first.page_calls), (1, 1));
        assert_eq!((second.slow_paths, second.page_calls), (0, 1));
        assert_eq!(first.lock_wait_ps, 0);
        let waited_ps = second.lock_wait_ps;
        assert!((900_000..1_200_000).contains(&waited_ps), "{waited_ps}");
        let zone = machine.time_counters().unwrap().locks[LockClass::Zone as usize];
        assert_eq!(zone.wait_ps, waited_ps);
    }
}
