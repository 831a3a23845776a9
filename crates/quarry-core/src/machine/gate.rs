//! The gate: operations that run without a per-CPU slot, and how fork waits for them.
//!
//! Locks are only ever held by code that either holds a per-CPU slot or has entered the gate. So
//! a process is quiescent when somebody has taken every slot ([`PERCPU_QUIESCED`]) and then finds
//! the closed gate empty. Slots come first: a signal handler that interrupts the holder of a slot
//! must still be able to pass the gate, or the holder would never finish. A handler that
//! interrupts an occupant of the gate is known by its thread and passes a closed gate, for the
//! same reason.

use super::Machine;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// Threads that can be inside at the same time; more wait their turn.
const OCCUPANTS: usize = 64;
/// How often [`Gate::close`] looks for remaining occupants before it gives up.
const CLOSE_ATTEMPTS: u32 = 1 << 16;

/// See the module's documentation.
pub(crate) struct Gate {
    occupants: [AtomicUsize; OCCUPANTS],
    closed: AtomicU32,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            occupants: core::array::from_fn(|_| AtomicUsize::new(0)),
            closed: AtomicU32::new(0),
        }
    }

    /// Enters; waits while the gate is closed, unless this thread is inside already.
    pub(crate) fn enter<'a, M: Machine>(&'a self, machine: &'a M) -> Pass<'a> {
        let thread = machine.thread_id();
        // Relaxed: a thread's own earlier store is always visible to it.
        if self
            .occupants
            .iter()
            .any(|o| o.load(Ordering::Relaxed) == thread)
        {
            return Pass { occupant: None };
        }
        let mut attempt = 0;
        loop {
            for occupant in &self.occupants {
                // SeqCst: orders this store before the load of `closed` below, against the
                // opposite order in `close`; one of the two sees the other.
                let took =
                    occupant.compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed);
                if took.is_err() {
                    continue;
                }
                // SeqCst: see above.
                if self.closed.load(Ordering::SeqCst) == 0 {
                    return Pass {
                        occupant: Some(occupant),
                    };
                }
                occupant.store(0, Ordering::Release);
                break;
            }
            machine.pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Closes the gate and waits until nobody is inside. `false` if somebody stays.
    pub(crate) fn close<M: Machine>(&self, machine: &M) -> bool {
        // SeqCst: see `enter`.
        self.closed.store(1, Ordering::SeqCst);
        (0..CLOSE_ATTEMPTS).any(|attempt| {
            // SeqCst: see `enter`.
            let empty = self.occupants.iter().all(|o| o.load(Ordering::SeqCst) == 0);
            if !empty {
                machine.pause(attempt);
            }
            empty
        })
    }

    pub(crate) fn open(&self) {
        // Release: what was done while closed happens before whoever enters next.
        self.closed.store(0, Ordering::Release);
    }

    /// In the child of a fork: forgets the occupants that are not the forking thread.
    pub(crate) fn forget_others<M: Machine>(&self, machine: &M) {
        let thread = machine.thread_id();
        for occupant in &self.occupants {
            if occupant.load(Ordering::Relaxed) != thread {
                occupant.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Being inside; leaves when dropped.
pub(crate) struct Pass<'a> {
    occupant: Option<&'a AtomicUsize>,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(occupant) = self.occupant {
            // Release: pairs with the SeqCst load in `close`.
            occupant.store(0, Ordering::Release);
        }
    }
}
