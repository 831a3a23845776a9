//! The gate: operations that run without a per-CPU slot, and how fork waits for them.
//!
//! Locks are only ever held by code that either holds a per-CPU slot or has entered the gate. So
//! a process is quiescent when somebody has taken every slot ([`PERCPU_QUIESCED`]) and then finds
//! the closed gate empty. Slots come first: a signal handler that interrupts the holder of a slot
//! must still be able to pass the gate, or the holder would never finish. A handler that
//! interrupts an occupant of the gate is known by its thread and passes a closed gate, for the
//! same reason; so is one that interrupts whoever closed it.
//!
//! A closed gate can be what the fork itself waits for: the C library takes the locks of its own
//! `malloc` after the gate was closed, and a signal handler that interrupted their holder may come
//! here. Nobody can tell that from a long fork, so whoever has waited for [`PATIENCE_NS`] goes
//! through, and is counted as a miss. If the fork was only long, or the process stopped meanwhile,
//! and was copied at that moment, the child may find a lock taken or a structure half changed.

use super::Machine;
use crate::sync::{AtomicUsize, Ordering, model_fence};

/// Threads inside that are known by name; more are only counted.
const OCCUPANTS: usize = if cfg!(loom) { 2 } else { 64 };
/// How often [`Gate::close`] looks for remaining occupants before it gives up.
const CLOSE_ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 1 << 16 };

/// Nanoseconds after which a closed gate lets through: longer than the system needs to copy a process
/// that has touched less than hundreds of GiB (about 10 ms for each).
const PATIENCE_NS: u64 = 5_000_000_000;

/// What a thread puts in a place before it knows that the gate is open. A signal handler that finds
/// it must not take its thread for an occupant: whoever closed the gate may have looked at the place
/// before it was taken.
const fn arriving(thread: usize) -> usize {
    !thread
}

/// See the module's documentation.
pub(crate) struct Gate {
    /// Threads inside, or [`arriving`].
    occupants: [AtomicUsize; OCCUPANTS],
    /// Occupants that found no place. They must not wait for one: the holder of a slot may be among
    /// those that wait, in a signal handler, for an occupant that waits for a lock of that holder.
    unnamed: AtomicUsize,
    /// The thread that closed the gate, 0 while it is open.
    closed: AtomicUsize,
    /// Threads that lost patience since it was closed.
    passed: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            occupants: core::array::from_fn(|_| AtomicUsize::new(0)),
            unnamed: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
        }
    }

    /// Enters; waits while the gate is closed, unless this thread is inside already, for at most
    /// [`PATIENCE_NS`] where the machine can tell the time.
    pub(crate) fn enter<'a, M: Machine>(&'a self, machine: &'a M) -> Pass<'a> {
        let thread = machine.thread_id();
        // Relaxed: a thread's own earlier store is always visible to it.
        let mine = |word: &AtomicUsize| word.load(Ordering::Relaxed) == thread;
        if mine(&self.closed) || self.occupants.iter().any(mine) {
            return Pass {
                place: Place::Nested,
            };
        }
        let mut attempt = 0;
        let mut since = None;
        loop {
            let pass = self.take_place(thread);
            model_fence();
            // SeqCst: after the store of the place; see `close`.
            let closed = self.closed.load(Ordering::SeqCst) != 0;
            let impatient = closed && is_long(machine, &mut since);
            if impatient {
                self.passed.fetch_add(1, Ordering::Relaxed);
            }
            if !closed || impatient {
                if let Place::Named(occupant) = pass.place {
                    // Relaxed: only this thread's handlers care which of the two it is.
                    occupant.store(thread, Ordering::Relaxed);
                }
                return pass;
            }
            drop(pass);
            machine.pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    fn take_place(&self, thread: usize) -> Pass<'_> {
        for occupant in &self.occupants {
            // SeqCst: orders this store before the load of `closed` that follows, against the
            // opposite order in `close`; one of the two sees the other.
            let took =
                occupant.compare_exchange(0, arriving(thread), Ordering::SeqCst, Ordering::Relaxed);
            if took.is_ok() {
                return Pass {
                    place: Place::Named(occupant),
                };
            }
        }
        // SeqCst: as above.
        self.unnamed.fetch_add(1, Ordering::SeqCst);
        Pass {
            place: Place::Unnamed(&self.unnamed),
        }
    }

    /// Closes the gate and waits until nobody is inside. `false` if somebody stays.
    pub(crate) fn close<M: Machine>(&self, machine: &M) -> bool {
        // SeqCst: see `enter`.
        self.closed.store(machine.thread_id(), Ordering::SeqCst);
        model_fence();
        (0..CLOSE_ATTEMPTS).any(|attempt| {
            // SeqCst: see `enter`.
            let named = self.occupants.iter().any(|o| o.load(Ordering::SeqCst) != 0);
            let empty = !named && self.unnamed.load(Ordering::SeqCst) == 0;
            if !empty {
                machine.pause(attempt);
            }
            empty
        })
    }

    /// Opens the gate, and returns how many threads did not wait for it.
    pub(crate) fn open(&self) -> u32 {
        let passed = self.passed.swap(0, Ordering::Relaxed);
        // Release: what was done while closed happens before whoever enters next.
        self.closed.store(0, Ordering::Release);
        u32::try_from(passed).unwrap_or(u32::MAX)
    }

    /// In the child of a fork: forgets the occupants that are not the forking thread.
    pub(crate) fn forget_others<M: Machine>(&self, machine: &M) {
        let thread = machine.thread_id();
        for occupant in &self.occupants {
            let word = occupant.load(Ordering::Relaxed);
            if word != thread && word != arriving(thread) {
                occupant.store(0, Ordering::Relaxed);
            }
        }
        self.unnamed.store(0, Ordering::Relaxed);
    }
}

/// Whether the time since the first look has come to [`PATIENCE_NS`].
#[cold]
fn is_long<M: Machine>(machine: &M, since: &mut Option<u64>) -> bool {
    let now = machine.now_ns();
    now.saturating_sub(*since.get_or_insert(now)) >= PATIENCE_NS
}

/// Being inside; leaves when dropped.
pub(crate) struct Pass<'a> {
    place: Place<'a>,
}

enum Place<'a> {
    /// The thread was inside already.
    Nested,
    Named(&'a AtomicUsize),
    Unnamed(&'a AtomicUsize),
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // Release: pairs with the SeqCst loads in `close`.
        match self.place {
            Place::Nested => (),
            Place::Named(occupant) => occupant.store(0, Ordering::Release),
            Place::Unnamed(count) => {
                count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}
