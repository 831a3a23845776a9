//! Hand-overs from a thread that allocates to another one that frees.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::pin;
use crate::times::{timed, wait};

/// Handed over at a time.
pub(crate) const HAND_OVER: usize = 64;
/// Hand-overs in flight.
const RING: usize = 16;

struct HandOver<P> {
    full: AtomicBool,
    contents: std::cell::UnsafeCell<P>,
}

// SAFETY: the contents are the allocating thread's while `full` is false and the freeing thread's
// while it is true; the flag changes with Release and is read with Acquire.
unsafe impl<P: Send> Sync for HandOver<P> {}

/// [`HAND_OVER`] of them at a time, in whatever `new` makes, go to another thread: `get` fills it on
/// this one, `put` empties it there.
pub(crate) fn handed_over<P: Send>(
    count: usize,
    cpu: usize,
    new: impl Fn() -> P,
    mut get: impl FnMut(&mut P),
    put: impl Fn(&mut P) + Sync,
    enter: impl Fn() + Sync,
    leave: impl Fn() + Sync,
) -> f64 {
    let ring: [HandOver<P>; RING] = std::array::from_fn(|_| HandOver {
        full: AtomicBool::new(false),
        contents: new().into(),
    });
    let rounds = count / HAND_OVER;
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let (ring, start) = (&ring, &start);
        let (put, enter, leave) = (&put, &enter, &leave);
        scope.spawn(move || {
            pin(cpu ^ 1);
            enter();
            start.wait();
            for round in 0..rounds {
                let hand_over = &ring[round % RING];
                wait(&hand_over.full, true);
                // SAFETY: the flag is true, so the contents are this thread's.
                put(unsafe { &mut *hand_over.contents.get() });
                // Release: it may be filled again.
                hand_over.full.store(false, Ordering::Release);
            }
            leave();
        });
        start.wait();
        timed(|| {
            for round in 0..rounds {
                let hand_over = &ring[round % RING];
                wait(&hand_over.full, false);
                // SAFETY: the flag is false, so the contents are this thread's.
                get(unsafe { &mut *hand_over.contents.get() });
                // Release: hands them over.
                hand_over.full.store(true, Ordering::Release);
            }
            for hand_over in ring {
                wait(&hand_over.full, false);
            }
        })
    })
}
