//! Timed uses of objects.

use std::cell::UnsafeCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Options;
use crate::common::pin;
use crate::times::{timed, wait};

/// The value of an object.
pub(crate) type Value = [u64; 8];

/// Threads that may use a pool at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Threads {
    /// One, for all of it.
    One,
    /// One takes objects, any gives them back.
    OneTakes,
    Any,
}

/// A pool under test. Implementations are statically dispatched inside the loops.
pub(crate) trait Pool: Sync {
    const THREADS: Threads;
    /// A pair costs about the same however many objects are live.
    const MANY_LIVE: bool = true;
    type Object<'p>: Send
    where
        Self: 'p;

    /// An object whose first word was written.
    fn take(&self) -> Self::Object<'_>;

    /// Gives an object back; most do that when they are dropped.
    #[inline(always)]
    fn give<'p>(&'p self, object: Self::Object<'p>) {
        drop(object);
    }
}

/// A way of using objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// Take one, give it back.
    Single,
    /// The same on two CPUs.
    TwoThreads,
    /// One thread takes, another one on another CPU gives back.
    OtherThread,
    /// Give a random one of many live objects back, and take another.
    Churn,
}

impl Pattern {
    pub(crate) const ALL: [Self; 4] = [
        Self::Single,
        Self::TwoThreads,
        Self::OtherThread,
        Self::Churn,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "one thread",
            Self::TwoThreads => "two threads",
            Self::OtherThread => "other thread gives",
            Self::Churn => "churn, many live",
        }
    }

    fn needs(self) -> Threads {
        match self {
            Self::Single | Self::Churn => Threads::One,
            Self::OtherThread => Threads::OneTakes,
            Self::TwoThreads => Threads::Any,
        }
    }
}

/// Runs a pattern, and returns nanoseconds per pair; `None` if the pool does not allow it.
pub(crate) fn time<P: Pool>(pool: &P, pattern: Pattern, options: &Options) -> Option<f64> {
    if P::THREADS < pattern.needs() || (pattern == Pattern::Churn && !P::MANY_LIVE) {
        return None;
    }
    let objects = options.objects;
    let ns = match pattern {
        Pattern::Single => pairs(pool, objects),
        Pattern::TwoThreads => two_threads(pool, objects, options.cpu),
        Pattern::OtherThread => other_thread(pool, objects, options.cpu),
        Pattern::Churn => churn(pool, objects, options.live),
    };
    Some(ns / objects as f64)
}

/// Bytes that come into memory for each of many live objects. Right in a process that has done nothing else.
pub(crate) fn bytes<P: Pool>(pool: &P, live: usize) -> Option<f64> {
    if !P::MANY_LIVE {
        return None;
    }
    // The vector is in memory before what is counted.
    let mut held = Vec::new();
    held.resize_with(live, || None);
    let before = resident();
    held.fill_with(|| Some(pool.take()));
    let bytes = (resident() - before) / live as f64;
    held.into_iter()
        .flatten()
        .for_each(|object| pool.give(object));
    Some(bytes)
}

#[inline(never)]
fn pairs<P: Pool>(pool: &P, objects: usize) -> f64 {
    timed(|| {
        for _ in 0..objects {
            pool.give(pool.take());
        }
    })
}

/// The slower of the two.
fn two_threads<P: Pool>(pool: &P, objects: usize, cpu: usize) -> f64 {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(cpu ^ 1);
            start.wait();
            pairs(pool, objects)
        });
        start.wait();
        let mine = pairs(pool, objects);
        mine.max(other.join().expect("no panic"))
    })
}

/// Objects handed over at a time when another thread gives back.
const HAND_OVER: usize = 64;
/// Hand-overs in flight.
const RING: usize = 16;

/// A hand-over, full or empty.
struct Place<O> {
    full: AtomicBool,
    objects: UnsafeCell<Vec<O>>,
}

// SAFETY: the flag says whose the objects are: the taking thread's while it is false, the giving one's while it is true.
unsafe impl<O: Send> Sync for Place<O> {}

fn other_thread<P: Pool>(pool: &P, objects: usize, cpu: usize) -> f64 {
    let place = |_| Place {
        full: AtomicBool::new(false),
        objects: UnsafeCell::new(Vec::with_capacity(HAND_OVER)),
    };
    let ring: [Place<P::Object<'_>>; RING] = std::array::from_fn(place);
    let rounds = objects / HAND_OVER;
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let ring = &ring;
        let start = &start;
        scope.spawn(move || {
            pin(cpu ^ 1);
            start.wait();
            for round in 0..rounds {
                let place = &ring[round % RING];
                wait(&place.full, true);
                // SAFETY: the place is full, so its objects are this thread's.
                let objects = unsafe { &mut *place.objects.get() };
                objects.drain(..).for_each(|object| pool.give(object));
                // Release: the place may be filled again.
                place.full.store(false, Ordering::Release);
            }
        });
        start.wait();
        timed(|| {
            for round in 0..rounds {
                let place = &ring[round % RING];
                wait(&place.full, false);
                // SAFETY: the place is empty, so it is this thread's.
                let objects = unsafe { &mut *place.objects.get() };
                objects.extend((0..HAND_OVER).map(|_| pool.take()));
                // Release: hands the objects over.
                place.full.store(true, Ordering::Release);
            }
            for place in ring {
                wait(&place.full, false);
            }
        })
    })
}

/// Bytes of the process in memory.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux process");
    let pages = text.split(' ').nth(1).expect("resident pages");
    pages.parse::<f64>().expect("a number") * 4096.0
}

fn churn<P: Pool>(pool: &P, objects: usize, live: usize) -> f64 {
    let mut held: Vec<_> = (0..live).map(|_| Some(pool.take())).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let elapsed = timed(|| {
        for _ in 0..objects {
            // xorshift
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random % live as u64) as usize;
            if let Some(object) = held[at].take() {
                pool.give(object);
            }
            held[at] = Some(pool.take());
        }
    });
    held.into_iter()
        .flatten()
        .for_each(|object| pool.give(object));
    elapsed
}
