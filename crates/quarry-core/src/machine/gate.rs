//! The gate: operations that run without a per-CPU slot, and how fork waits for them.
//!
//! Locks are only ever held by code that either holds a per-CPU slot or has entered the gate. So
//! a process is quiescent when a thread has taken every slot ([`PERCPU_QUIESCED`]) and then finds
//! the closed gate empty. Slots come first: a signal handler that interrupts the holder of a slot
//! must still be able to pass the gate, or the holder would never finish. For the same reason a
//! handler passes a closed gate if it interrupts an occupant of the gate or the thread that closed
//! it; the gate knows it by its thread.
//!
//! A closed gate can be what the fork itself waits for: the C library takes the locks of its own `malloc` after
//! the gate was closed. A signal handler that interrupted their holder may come here. Nothing distinguishes
//! that from a long fork, so a waiter goes through after [`PATIENCE_NS`], which is counted as a miss. If the
//! fork was only long, or the process stopped meanwhile, the copy may be of that moment. Then the child may
//! find a lock taken or a structure half changed.
//!
//! [`Gate::stop`] closes the gate for a walk over a cache whose slots the caller holds. A walk waits
//! for no lock but the cache's own, whose holders are all outside then, and calls no user's code.
//! So it ends, and no waiter has to lose patience with it.

use super::Machine;
use crate::sync::{AtomicUsize, Ordering, model_fence};

/// Threads inside that are known by name; more are only counted.
const OCCUPANTS: usize = if cfg!(loom) { 2 } else { 64 };
/// Looks for remaining occupants before [`Gate::close`] gives up.
const CLOSE_ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 1 << 16 };

/// The same for [`Gate::stop`], whose caller begins again.
const STOP_ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 1 << 12 };

/// Nanoseconds after which a closed gate lets through: longer than the system needs to copy a process
/// that has touched less than hundreds of GiB (about 10 ms for each).
const PATIENCE_NS: u64 = 5_000_000_000;

/// Mark of a thread that has taken a place and does not know yet whether the gate is open. A signal handler
/// that finds it must not take its thread for an occupant: the thread that closed the gate may have looked at
/// the place before it was taken.
const fn arriving(thread: usize) -> usize {
    !thread
}

/// Value of [`Gate::closed`] during a walk; it differs from a fork's.
const fn walking(thread: usize) -> usize {
    !thread
}

/// True if the gate is closed for a fork.
const fn is_fork(closed: usize) -> bool {
    (closed as isize) > 0
}

/// See the module's documentation.
pub(crate) struct Gate {
    /// Threads inside, or [`arriving`].
    occupants: [AtomicUsize; OCCUPANTS],
    /// Places that were ever taken: as many, from the first one, as threads were inside together.
    used: AtomicUsize,
    /// Occupants that found no place. They must not wait for one: the holder of a slot may itself
    /// wait, in a signal handler, for an occupant that waits for a lock of that holder.
    unnamed: AtomicUsize,
    /// The thread that closed the gate, or [`walking`]; 0 while it is open.
    closed: AtomicUsize,
    /// Signal handlers that entered while their own thread had stopped the gate.
    handlers: AtomicUsize,
    /// Threads that lost patience since it was closed.
    passed: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            occupants: core::array::from_fn(|_| AtomicUsize::new(0)),
            used: AtomicUsize::new(0),
            unnamed: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            handlers: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
        }
    }

    /// Enters; waits while the gate is closed, unless this thread is inside already, for at most
    /// [`PATIENCE_NS`] where the machine has a clock.
    pub(crate) fn enter<'a, M: Machine>(&'a self, machine: &'a M) -> Pass<'a> {
        let thread = machine.thread_id();
        // Relaxed: a thread's own earlier store is always visible to it.
        let mine = |word: &AtomicUsize| word.load(Ordering::Relaxed) == thread;
        let stopped = self.closed.load(Ordering::Relaxed) == walking(thread);
        if stopped {
            self.handlers.fetch_add(1, Ordering::Relaxed);
        }
        if stopped || mine(&self.closed) || self.used().iter().any(mine) {
            return Pass {
                place: Place::Nested,
            };
        }
        let mut attempt = 0;
        let mut since = None;
        // Mostly once: the gate is closed for forks and walks only. The place is taken before `closed` is read.
        // In the other order a fork could find the gate empty between the two, and copy a process in which this
        // thread holds locks.
        loop {
            let pass = self.take_place(thread);
            model_fence();
            // SeqCst: after the store of the place; see `close`.
            let closed = self.closed.load(Ordering::SeqCst);
            let impatient = is_fork(closed) && is_long(machine, &mut since);
            if impatient {
                self.passed.fetch_add(1, Ordering::Relaxed);
            }
            if closed == 0 || impatient {
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

    /// The places that were ever taken. A look at all 64 would be most of what a short operation does, and mostly
    /// one is in use.
    fn used(&self) -> &[AtomicUsize] {
        // Relaxed: a thread raises it before it takes a place behind it, and so sees its own places.
        let used = self.used.load(Ordering::Relaxed);
        self.occupants.get(..used).unwrap_or(&self.occupants)
    }

    fn take_place(&self, thread: usize) -> Pass<'_> {
        for (place, occupant) in self.occupants.iter().enumerate() {
            if place >= self.used.load(Ordering::Relaxed) {
                // Before the place is taken: a signal handler that comes between must find it.
                self.used.fetch_max(place + 1, Ordering::Relaxed);
            }
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
        // SeqCst: the same order against `close` as for a named place.
        self.unnamed.fetch_add(1, Ordering::SeqCst);
        Pass {
            place: Place::Unnamed(&self.unnamed),
        }
    }

    /// Closes the gate and waits until no code is inside. `false` if a thread stays, or if a walk does
    /// not end.
    pub(crate) fn close<M: Machine>(&self, machine: &M) -> bool {
        let thread = machine.thread_id();
        self.claim(machine, thread, CLOSE_ATTEMPTS)
            && Self::wait_until(machine, CLOSE_ATTEMPTS, || self.is_empty_but(0))
    }

    /// Closes the gate for a walk by the calling thread, which holds the slots of what it walks over.
    /// `None` if another thread stays inside for long, which may wait for one of the slots, or if the gate stays
    /// closed. The caller's own thread may be inside if it is `visiting`: then it works on nothing but the list of caches.
    pub(crate) fn stop<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        visiting: bool,
    ) -> Option<Stopped<'a>> {
        let thread = machine.thread_id();
        let mine = |word: &AtomicUsize| word.load(Ordering::Relaxed) == thread;
        let inside = self.used().iter().any(mine);
        if mine(&self.closed) || inside && !visiting {
            return None;
        }
        if !self.claim(machine, walking(thread), STOP_ATTEMPTS) {
            return None;
        }
        let stopped = Stopped {
            gate: self,
            handlers: self.handlers.load(Ordering::Relaxed),
        };
        let alone = Self::wait_until(machine, STOP_ATTEMPTS, || self.is_empty_but(thread));
        alone.then_some(stopped)
    }

    /// Waits until no other thread is inside, for no longer than [`Gate::stop`] does.
    pub(crate) fn let_pass<M: Machine>(&self, machine: &M) {
        let thread = machine.thread_id();
        Self::wait_until(machine, STOP_ATTEMPTS, || self.is_empty_but(thread));
    }

    /// Closes the gate in the name of `closer`, once the thread that has closed it opens it.
    fn claim<M: Machine>(&self, machine: &M, closer: usize, attempts: u32) -> bool {
        if self.closed.load(Ordering::Relaxed) == walking(machine.thread_id()) {
            // A signal handler of the walker: the walk cannot end before it does.
            return false;
        }
        let claimed = Self::wait_until(machine, attempts, || {
            // SeqCst: see `enter`.
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            self.closed
                .compare_exchange(0, closer, order.0, order.1)
                .is_ok()
        });
        model_fence();
        claimed
    }

    fn wait_until<M: Machine>(machine: &M, attempts: u32, done: impl Fn() -> bool) -> bool {
        (0..attempts).any(|attempt| {
            let done = done();
            if !done {
                machine.pause(attempt);
            }
            done
        })
    }

    /// True if no thread but perhaps this one is inside.
    fn is_empty_but(&self, thread: usize) -> bool {
        // SeqCst: see `enter`.
        let other = |occupant: &AtomicUsize| {
            let word = occupant.load(Ordering::SeqCst);
            let own = thread != 0 && (word == thread || word == arriving(thread));
            word != 0 && !own
        };
        !self.occupants.iter().any(other) && self.unnamed.load(Ordering::SeqCst) == 0
    }

    /// Opens the gate that the calling thread closed, and returns how many threads did not wait for it.
    pub(crate) fn open<M: Machine>(&self, machine: &M) -> u32 {
        let passed = self.passed.swap(0, Ordering::Relaxed);
        // Release: what was done while closed happens before the next thread enters. A walk's gate stays
        // closed: the fork never had it.
        let _ = self.closed.compare_exchange(
            machine.thread_id(),
            0,
            Ordering::Release,
            Ordering::Relaxed,
        );
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
        if self.closed.load(Ordering::Relaxed) != thread {
            self.closed.store(0, Ordering::Relaxed);
        }
    }
}

/// The gate is closed for a walk; opens it when dropped.
pub(crate) struct Stopped<'a> {
    gate: &'a Gate,
    /// [`Gate::handlers`] at the beginning.
    handlers: usize,
}

impl Stopped<'_> {
    /// True if signal handlers of the walking thread ran meanwhile.
    pub(crate) fn disturbed(&self) -> bool {
        self.gate.handlers.load(Ordering::Relaxed) != self.handlers
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // Release: what the walk read comes before what is done next.
        self.gate.closed.store(0, Ordering::Release);
    }
}

/// True once [`PATIENCE_NS`] have passed since the first look.
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
