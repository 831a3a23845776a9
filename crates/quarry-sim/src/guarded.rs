//! Sections with interrupts or preemption off: what is off already is not turned off again.

use std::cell::Cell;

use quarry_core::machine::Work;

/// The slots and locks that are held, and which of them turned off what.
#[derive(Clone, Copy, Default)]
struct Depths {
    /// Slots and locks held.
    held: u32,
    /// How many were, with the one that turned interrupts off; 0 while they are on.
    irqs: u32,
    /// The same for preemption.
    preempt: u32,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Guarded(Cell<Depths>);

impl Guarded {
    /// A slot or lock was taken.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        let mut depths = self.0.get();
        depths.held += 1;
        self.0.set(depths);
    }

    /// The last of them was freed; what it turned off is on again.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let mut depths = self.0.get();
        depths.held = depths.held.saturating_sub(1);
        if depths.irqs > depths.held {
            depths.irqs = 0;
        }
        if depths.preempt > depths.held {
            depths.preempt = 0;
        }
        self.0.set(depths);
    }

    /// Whether work is done: a guard is not where another one stands already.
    #[inline(always)]
    pub(crate) fn does(&self, work: Work) -> bool {
        if !work.guards() {
            return true;
        }
        let mut depths = self.0.get();
        // Its handler runs whatever the sender has turned off, and has interrupts off itself.
        if work == Work::Ipi {
            depths.irqs = match depths.irqs {
                0 => depths.held,
                outer => outer,
            };
            self.0.set(depths);
            return true;
        }
        let off = depths.irqs != 0 || (depths.preempt != 0 && work == Work::Preempt);
        if !off {
            match work {
                Work::Preempt => depths.preempt = depths.held,
                _ => depths.irqs = depths.held,
            }
            self.0.set(depths);
        }
        !off
    }

    /// Does `f` as a handler would, to which all is new.
    pub(crate) fn anew<R>(&self, f: impl FnOnce() -> R) -> R {
        let below = self.0.take();
        let result = f();
        self.0.set(below);
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
