//! The locks that are held, and whether they were taken in their order.

use std::cell::RefCell;

use quarry_core::machine::LockClass;

/// Locks held by what runs, oldest first.
#[derive(Default)]
pub(crate) struct Held(RefCell<Vec<LockClass>>);

/// Checked where tests are: a replay takes the same paths, and each lock would pay for it.
const CHECKED: bool = cfg!(debug_assertions);

impl Held {
    /// Notes an acquisition. One that would have waited has to follow the order.
    ///
    /// # Panics
    ///
    /// If it does not: [`LockClass::ORDER`] says what may be held.
    #[inline]
    pub(crate) fn take(&self, class: LockClass, waits: bool) {
        if !CHECKED {
            return;
        }
        let mut held = self.0.borrow_mut();
        let follows = |outer: &&LockClass| outer.rank() < class.rank() || class.nests_in(**outer);
        let outer = held.iter().find(|outer| !follows(outer));
        if let Some(outer) = outer.filter(|_| waits) {
            let outer = *outer;
            // A test that expects this goes on.
            drop(held);
            panic!("lock order: {class:?} taken while {outer:?} is held");
        }
        held.push(class);
    }

    /// Notes a release.
    #[inline]
    pub(crate) fn give(&self, class: LockClass) {
        if !CHECKED {
            return;
        }
        let mut held = self.0.borrow_mut();
        if let Some(at) = held.iter().rposition(|&it| it == class) {
            held.remove(at);
        }
    }

    /// Sets aside what is held.
    pub(crate) fn begin(&self) -> Vec<LockClass> {
        std::mem::take(&mut self.0.borrow_mut())
    }

    /// Puts back what was set aside.
    ///
    /// # Panics
    ///
    /// If a lock is held that was taken meanwhile.
    pub(crate) fn end(&self, below: Vec<LockClass>) {
        let left = std::mem::replace(&mut *self.0.borrow_mut(), below);
        assert!(left.is_empty(), "a handler ended with {left:?}");
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::machine::Locks as _;
    use quarry_core::machine::RawLock;

    use super::*;
    use crate::{Config, VirtualMachine};

    #[test]
    #[should_panic(expected = "lock order: NodeList taken while Zone is held")]
    fn an_inner_lock_before_an_outer_one_is_an_error() {
        let machine = VirtualMachine::new(Config::default()).expect("a machine");
        let (zone, list) = (RawLock::new(), RawLock::new());
        let _ = machine.lock(&list, LockClass::NodeList);
        let _ = machine.lock(&zone, LockClass::Zone);
        // SAFETY: taken above.
        unsafe { machine.unlock(&list, LockClass::NodeList) };
        let _ = machine.lock(&list, LockClass::NodeList);
    }

    #[test]
    fn handlers_and_attempts_have_no_order() {
        let machine = VirtualMachine::new(Config::default()).expect("a machine");
        let (zone, list) = (RawLock::new(), RawLock::new());
        let _ = machine.lock(&zone, LockClass::Zone);
        machine.interrupt(|| {
            let _ = machine.lock(&list, LockClass::NodeList);
            // SAFETY: taken above.
            unsafe { machine.unlock(&list, LockClass::NodeList) };
        });
        assert!(machine.try_lock(&list, LockClass::NodeList));
    }
}
