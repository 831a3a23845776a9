//! Sections with interrupts or preemption off: what is off already is not turned off again.

use std::cell::Cell;

use quarry_core::machine::Work;

/// The slots and locks that are held, and which of them turned off what.
#[derive(Default)]
pub(crate) struct Guarded {
    /// Slots and locks held.
    held: Cell<u32>,
    /// Number of them, with the one that turned interrupts off; 0 while they are on.
    irqs: Cell<u32>,
    /// The same for preemption.
    preempt: Cell<u32>,
}

impl Guarded {
    /// A slot or lock was taken.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        self.held.set(self.held.get() + 1);
    }

    /// The last of them was freed; what it turned off is on again.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let held = self.held.get().saturating_sub(1);
        self.held.set(held);
        for off in [&self.irqs, &self.preempt] {
            if off.get() > held {
                off.set(0);
            }
        }
    }

    /// True if the work is done: a guard inside another one of its kind costs nothing.
    #[inline(always)]
    pub(crate) fn does(&self, work: Work) -> bool {
        if !work.guards() {
            return true;
        }
        let begins = match work {
            Work::Preempt => &self.preempt,
            _ => &self.irqs,
        };
        let off = self.irqs.get() != 0 || begins.get() != 0;
        if !off {
            begins.set(self.held.get());
        }
        // The handler on another CPU runs whatever the sender has turned off.
        !off || work == Work::Ipi
    }

    /// Does `f` as a handler would, to which all is new.
    pub(crate) fn anew<R>(&self, f: impl FnOnce() -> R) -> R {
        let cells = [&self.held, &self.irqs, &self.preempt];
        let below = cells.map(Cell::take);
        let result = f();
        for (cell, value) in cells.into_iter().zip(below) {
            cell.set(value);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_turned_off_once_and_come_back_with_what_they_were_off_for() {
        let guarded = Guarded::default();
        guarded.enter();
        assert!(guarded.does(Work::IrqSave));
        guarded.enter();
        assert!(!guarded.does(Work::IrqSave));
        assert!(!guarded.does(Work::Preempt));
        assert!(guarded.does(Work::LocalCmpxchg));
        guarded.leave();
        assert!(!guarded.does(Work::IrqDisable));
        guarded.leave();
        guarded.enter();
        assert!(guarded.does(Work::IrqSave));
    }

    #[test]
    fn a_lock_in_a_section_without_preemption_turns_interrupts_off_for_itself() {
        let guarded = Guarded::default();
        guarded.enter();
        assert!(guarded.does(Work::Preempt));
        for _ in 0..2 {
            guarded.enter();
            assert!(guarded.does(Work::IrqSave));
            guarded.leave();
        }
        assert!(!guarded.does(Work::Preempt));
    }

    #[test]
    fn an_interrupt_of_another_cpu_is_always_done_and_has_interrupts_off() {
        let guarded = Guarded::default();
        for _ in 0..2 {
            guarded.enter();
            assert!(guarded.does(Work::Ipi));
            assert!(!guarded.does(Work::IrqSave));
            guarded.leave();
        }
    }

    #[test]
    fn a_handler_begins_with_all_on() {
        let guarded = Guarded::default();
        guarded.enter();
        assert!(guarded.does(Work::IrqSave));
        guarded.anew(|| {
            guarded.enter();
            assert!(guarded.does(Work::IrqSave));
            guarded.leave();
        });
        assert!(!guarded.does(Work::IrqSave));
    }
}
